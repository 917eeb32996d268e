"""Assembling the trace of a message from its record, its events and the current state of groups."""

from __future__ import annotations

from dataclasses import replace

from goqueue.broker.tracing.transaction_outcomes import Fate
from goqueue.model.message import Message
from goqueue.observe import trace_event as kinds
from goqueue.observe.trace import GroupStanding, Place, Status, Step, Trace, in_order, status_of, step_of
from goqueue.observe.trace_event import TraceEvent, covers
from goqueue.observe.trace_grouping import abridged, since_copied, since_published
from goqueue.wire.trace_context import trace_id_of

_WORST_FIRST: list[Status] = ["error", "pending", "completed"]


def assemble(
    root: Place, message: Message | None, steps: list[Step], standing: list[GroupStanding], fate: Fate = ""
) -> Trace:
    """The trace of the message at ``root``. A step for its publish is added if no event recorded it and the log holds
    the message; so is the end of its transaction."""
    if message is not None and not any(step.place == root and step.event == kinds.PUBLISH for step in steps):
        reason = kinds.IN_TRANSACTION if fate else ""
        steps = [Step(message.timestamp_ns, kinds.PUBLISH, root, reason=reason, from_log=True), *steps]
    steps = _with_end(root, steps, fate, in_log=message is not None)
    headers = () if message is None else message.headers
    trace_id = trace_id_of(headers, root.topic, root.partition, root.offset)
    ordered = in_order(steps)
    standing = [_as_known(each, ordered) for each in standing]
    key = None if message is None else message.key
    status = status_of(ordered, standing, gone=root if message is None else None)
    return Trace(trace_id, root, status, ordered, standing, key, message is not None)


def _with_end(root: Place, steps: list[Step], fate: Fate, *, in_log: bool) -> list[Step]:
    """Add how the transaction of a message ended, if no event recorded it. Its time is unknown."""
    if not steps or fate == "open" or any(step.place == root and step.ends_transaction for step in steps):
        return steps
    published = [at for at, step in enumerate(steps) if step.place == root and step.event == kinds.PUBLISH]
    at = published[-1] if published else 0
    if fate == "aborted":
        end = Step(steps[at].at_ns, kinds.ABORTED, root, reason=kinds.NEVER_SEEN, from_log=True)
    elif in_log and kinds.is_in_transaction(steps[at].event, steps[at].reason):
        end = Step(steps[at].at_ns, kinds.COMMITTED, root, from_log=True)
    else:
        return steps
    return [*steps[: at + 1], end, *steps[at + 1 :]]


def steps_at(newest_first: list[TraceEvent], place: Place, *, is_copy: bool) -> list[Step]:
    """The steps that events record for the message at a place, in the order of the events."""
    events = tuple(
        each for each in reversed(newest_first) if each.place == place.name and covers(each.offsets, place.offset)
    )
    events = since_copied(events) if is_copy else since_published(events)
    return [step_of(each, place.offset) for each in abridged(events)]


def ends_in_group(step: Step) -> bool:
    """Whether the group was done with the message; after a delivery that expires another one follows."""
    return step.event in kinds.ENDS and (step.event != kinds.EXPIRED or step.reason == kinds.OVER_AGE)


def _as_known(standing: GroupStanding, steps: list[Step]) -> GroupStanding:
    """A standing with more detail: a group reports every message that it is done with as settled, and the steps show
    why it is."""
    if standing.standing != "settled":
        return standing
    # A stream commits past expired messages, which stay expired.
    last = [
        step
        for step in steps
        if (step.group, step.place) == (standing.group, standing.place) and step.event != kinds.COMMITTED
    ]
    if last and last[-1].event in (kinds.DLQ, kinds.DISCARDED):
        return replace(standing, standing="dead-lettered", reason=last[-1].reason)
    # Any other expiry ended a delivery: another one followed, whose outcome was not recorded.
    if last and last[-1].event == kinds.EXPIRED and last[-1].reason == kinds.OVER_AGE:
        return replace(standing, standing="expired", reason=last[-1].reason)
    return standing


def merge(traces: list[Trace]) -> Trace:
    """Several messages of one trace as one trace."""
    first = traces[0]
    steps = in_order([step for trace in traces for step in trace.steps])
    groups = [each for trace in traces for each in trace.groups]
    worst = min((each.status for each in traces), key=_WORST_FIRST.index)
    is_complete = all(each.is_complete for each in traces)
    also = [each.place for each in traces[1:]]
    return replace(first, status=worst, steps=steps, groups=groups, also=also, is_complete=is_complete)
