"""Stories: the order of steps, whose attempt each is, and how a message fared."""

from __future__ import annotations

import pytest

from goqueue.observe.trace import GroupStanding, Place, Standing, Status, Step, in_order, status_of, step_of
from goqueue.observe.trace_event import DLQ, OVER_AGE, TraceEvent

OF_NOBODY = {"publish", "delay", "redriven", "cancelled", "deleted", "aborted"}
HERE, DEAD, AGAIN = Place("t", 0, 7), Place("t.dlq", 0, 1), Place("t", 0, 9)


def step(
    event: str, at: int = 0, group: str = "g", place: Place = HERE, member: str = "", to: Place | None = None
) -> Step:
    if event == OVER_AGE:
        return Step(at, "expired", place, group, member, OVER_AGE, to=to)
    return Step(at, event, place, group, member, to=to)


def steps(*events: str, group: str = "g") -> list[Step]:
    return [step(event, at, "" if event in OF_NOBODY else group) for at, event in enumerate(events)]


@pytest.mark.parametrize(
    ("events", "standings", "expected"),
    [
        ([], [], "pending"),
        (["publish"], [], "pending"),
        (["publish"], ["waiting"], "pending"),
        (["publish"], ["settled"], "completed"),
        (["publish", "consume"], [], "pending"),
        (["publish", "consume", "ack"], [], "completed"),
        (["publish", "consume", "ack"], ["settled"], "completed"),
        # A group that was set back will see it again.
        (["publish", "consume", "ack"], ["waiting"], "pending"),
        (["publish", "consume", "nack"], ["retry"], "pending"),
        (["publish", "consume", "expired"], ["retry"], "pending"),
        (["publish", "consume", "released"], ["waiting"], "pending"),
        (["publish", "consume", "extended"], ["in flight"], "pending"),
        (["publish", "consume", "committed"], ["settled"], "completed"),
        (["publish", "aborted"], [], "error"),
        (["publish", "aborted", "deleted"], [], "error"),
        (["publish", "consume"], ["acked in a transaction"], "pending"),
        (["publish", OVER_AGE], ["expired"], "error"),
        (["publish", OVER_AGE], ["settled"], "error"),
        # The delivery that expired, and the ack of the next, were noted in the last moment before a kill.
        (["publish", "expired"], ["settled"], "completed"),
        (["publish", "consume", "reject"], ["moving"], "pending"),
        (["publish", "consume", "reject"], [], "error"),
        (["publish", "consume", "reject", "dlq"], ["dead-lettered"], "error"),
        (["publish", "consume", "reject", "dlq", "redriven"], ["dead-lettered"], "pending"),
        (["publish", "consume", "reject", "dlq", "redriven", "consume", "ack"], ["dead-lettered"], "completed"),
        (["publish", "consume", "reject", "dlq", "redriven", "consume", "reject", "dlq"], ["dead-lettered"], "error"),
        (["publish", "consume", "lost"], ["settled"], "error"),
        (["publish", "consume", "lost"], [], "error"),
        (["publish", "consume", "nack", "discarded"], ["settled"], "error"),
        (["publish", "consume", "expired", "discarded"], ["dead-lettered"], "error"),
        (["publish", "consume", "ack", "reset"], [], "pending"),
        (["publish", "consume", "reject", "dlq", "reset"], ["waiting"], "pending"),
        (["publish", "consume", "skipped"], [], "completed"),
        (["publish", "consume", "cut"], [], "error"),
        (["publish", "consume", "ack", "cut"], [], "completed"),
        (["publish", OVER_AGE, "committed"], ["settled"], "error"),
        (["publish", "consume", "deleted"], [], "error"),
        (["publish", "consume", "ack", "deleted"], [], "completed"),
        (["publish", "deleted"], [], "error"),
        (["publish", "delay", "cancelled"], [], "completed"),
        (["publish", "delay", "cancelled", "deleted"], [], "completed"),
        (["publish", "delay"], [], "pending"),
        # What covers a record that nobody sees is not about it.
        (["publish", "delay", "committed"], [], "pending"),
        (["publish", "delay", "committed", "cancelled"], [], "completed"),
        (["publish", "delay", "lost"], [], "pending"),
    ],
)
def test_how_a_message_fared(events: list[str], standings: list[Standing], expected: Status) -> None:
    there = [GroupStanding("g", HERE, each) for each in standings]
    assert status_of(in_order(steps(*events)), there) == expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (["consume", "ack"], ["consume", "ack"], "completed"),
        (["consume", "ack"], ["consume"], "pending"),
        (["consume", "ack"], ["consume", "dlq"], "error"),
        (["consume"], ["consume", "dlq"], "error"),
    ],
)
def test_of_two_groups_the_worse_counts(one: list[str], other: list[str], expected: Status) -> None:
    assert status_of(in_order(steps(*one) + steps(*other, group="h"))) == expected


def test_a_group_that_was_not_there_yet_counts() -> None:
    done = in_order(steps("publish", "consume", "ack"))
    assert status_of(done, [GroupStanding("g", HERE, "settled"), GroupStanding("h", HERE, "waiting")]) == "pending"


def test_steps_are_in_the_order_of_time_with_attempts_and_members() -> None:
    told = in_order(
        [
            step("publish", 1, group=""),
            step("consume", 2, member="m1"),
            step("nack", 3),
            step("redelivered", 5, member="m2"),
            step("ack", 6),
            step("consume", 4, group="h", member="m3"),
        ]
    )
    assert [(each.event, each.group, each.attempt, each.member) for each in told] == [
        ("publish", "", 0, ""),
        ("consume", "g", 1, "m1"),
        ("nack", "g", 1, "m1"),
        ("consume", "h", 1, "m3"),
        ("redelivered", "g", 2, "m2"),
        ("ack", "g", 2, "m2"),
    ]


def test_attempts_go_on_with_a_copy_and_its_members_are_its_own() -> None:
    told = in_order(
        [
            step("consume", 1, member="m1"),
            step("dlq", 2, to=DEAD),
            step("consume", 3, place=AGAIN, member="m2"),
            step("ack", 4, place=AGAIN),
        ]
    )
    assert [(each.attempt, each.member) for each in told] == [(1, "m1"), (1, "m1"), (2, "m2"), (2, "m2")]


def test_a_clock_that_was_set_back_changes_no_order() -> None:
    noted = [
        step("publish", 9, group=""),
        step("consume", 10),
        step("nack", 2),
        step("dlq", 3, to=DEAD),
        step("consume", 4, group="h"),
        step("consume", 5, place=DEAD),
    ]
    told = in_order(noted)
    assert [each.event for each in told if each.group != "h"] == ["publish", "consume", "nack", "dlq", "consume"]
    assert told[0].event == "publish"


def test_a_redriven_message_that_expires_is_an_error() -> None:
    noted = [
        step("publish", 1, group=""),
        step("consume", 2),
        step("reject", 3),
        step("dlq", 4, to=DEAD),
        step("redriven", 5, group="", place=DEAD, to=AGAIN),
    ]
    dead, waits = GroupStanding("g", HERE, "dead-lettered"), GroupStanding("g", AGAIN, "waiting")
    assert status_of(in_order(noted), [dead, waits]) == "pending"
    expired = [*noted, step(OVER_AGE, 6, place=AGAIN)]
    assert status_of(in_order(expired), [dead, GroupStanding("g", AGAIN, "expired")]) == "error"
    assert status_of(in_order(expired)) == "error"


def test_what_left_the_log_will_never_be_done() -> None:
    met = in_order(steps("publish", "consume"))
    assert status_of(met, gone=HERE) == "error"
    assert status_of(met, [GroupStanding("g", AGAIN, "waiting")], gone=HERE) == "pending"
    assert status_of(in_order(steps("publish", "consume", "ack")), gone=HERE) == "completed"
    # No group had to do with it.
    assert status_of(in_order(steps("publish")), gone=HERE) == "pending"


def test_a_topic_that_goes_leaves_alone_what_went_on_elsewhere() -> None:
    noted = [
        step("publish", 1, group=""),
        step("consume", 2),
        step("dlq", 3, to=DEAD),
        step("redriven", 4, group="", place=DEAD, to=AGAIN),
        step("deleted", 5, group="", place=DEAD),
    ]
    assert status_of(in_order(noted)) == "pending"
    assert status_of(in_order([*noted, step("deleted", 6, group="", place=AGAIN)])) == "error"


def test_a_copy_that_was_noted_twice_is_told_once() -> None:
    told = in_order([step("dlq", 1, to=DEAD), step("dlq", 2, to=DEAD), step("dlq", 3, to=AGAIN)])
    assert [(each.at_ns, each.to) for each in told] == [(1, DEAD), (3, AGAIN)]


def test_steps_at_the_same_instant_stay_as_they_were_noted() -> None:
    assert [each.event for each in in_order([step("consume"), step("ack")])] == ["consume", "ack"]


def test_a_step_is_an_event_as_one_message_met_it() -> None:
    event = TraceEvent("t/0", 5, DLQ, [6, 9], group="g", reason="no", to="t.dlq/3", first_copy=20)
    assert step_of(event, 7) == Step(5, DLQ, HERE, "g", "", "no", 0, Place("t.dlq", 3, 21))


def test_a_transaction_that_was_ended_once_more_after_a_kill_is_told_of_once() -> None:
    noted = [step("publish", 1, ""), step("committed", 2, ""), step("committed", 3, ""), step("committed", 4)]
    assert [(each.at_ns, each.group) for each in in_order(noted)] == [(1, ""), (2, ""), (4, "g")]
    assert status_of(in_order(noted[:3])) == "pending"


def test_what_a_group_did_to_a_range_is_not_told_of_an_aborted_message_in_it() -> None:
    noted = [step("publish", 1, ""), step("committed", 2), step("aborted", 3, "")]
    assert [each.event for each in in_order(noted)] == ["publish", "aborted"]
