"""Stories whose last events were lost with the moment before a kill."""

from __future__ import annotations

from goqueue.broker.tracing.trace_assembly import assemble
from goqueue.model.message import Message
from goqueue.observe import trace_event as kinds
from goqueue.observe.trace import GroupStanding, Place, Step

PLACE = Place("t", 0, 7)
MESSAGE = Message(7, 1, None, b"x")


def step(at_ns: int, event: str, group: str = "g", reason: str = "") -> Step:
    return Step(at_ns, event, PLACE, group, reason=reason)


def test_a_settled_message_whose_last_known_event_is_a_timeout_was_done_after_it() -> None:
    published, timed_out = step(1, kinds.PUBLISH, ""), step(3, kinds.EXPIRED, reason="its visibility timed out")
    # The delivery itself may have been lost with a kill before.
    for steps in ([published, step(2, kinds.CONSUME), timed_out], [published, timed_out]):
        trace = assemble(PLACE, MESSAGE, steps, [GroupStanding("g", PLACE, "settled")])
        assert (trace.status, trace.groups[0].standing) == ("completed", "settled")


def test_a_settled_message_that_expired_before_anyone_got_it_is_an_error() -> None:
    steps = [step(1, kinds.PUBLISH, ""), step(3, kinds.EXPIRED, reason=kinds.OVER_AGE)]
    trace = assemble(PLACE, MESSAGE, steps, [GroupStanding("g", PLACE, "settled")])
    assert (trace.status, trace.groups[0].standing) == ("error", "expired")
