"""Describes trace events and group states in words. Text of producers and consumers is escaped, so it cannot control
the terminal."""

from __future__ import annotations

from goqueue.cli.commands.trace.trace_answers import Event, GroupNow, Place, Story, WaitsFor
from goqueue.cli.terminal.times import Times, duration
from goqueue.model.units import parse_instant_ns
from goqueue.observe import trace_event as kinds
from goqueue.observe.logs import escape

_DONE = ("settled", "dead-lettered", "expired")


def event_words(event: Event, times: Times) -> str:
    """Describe an event in one line, without its time; ``to`` is the position of a copy."""
    told, seen_ns = event.attributes, event.at_ns
    who, reason = _who(told.member, told.group), _because(told.reason)
    until = times.later(told.until, seen_ns) if told.until else ""
    attempt = f", attempt {told.attempt}" if told.attempt else ""
    match event.event_type:
        case kinds.PUBLISH:
            in_what = f" {escape(told.reason)}" if told.reason else ""
            return f"published{in_what}" + (" (the log says so; no event is kept)" if told.source == "log" else "")
        case kinds.DELAY:
            return f"delayed until {until}" if until else "delayed"
        case kinds.FIRED:
            return f"became visible{_as(told.to)}"
        case kinds.CANCELLED:
            return "cancelled before it was due"
        case kinds.RESCHEDULED:
            return f"rescheduled to {until}" if until else "rescheduled"
        case kinds.CONSUME | kinds.REDELIVERED:
            verb = "delivered" if event.event_type == kinds.CONSUME else "redelivered"
            return f"{verb} to {who}{attempt}" + (f", until {until}" if until else "")
        case kinds.ACK:
            return f"acked by {who}"
        case kinds.NACK:
            return f"nacked by {who}{reason}{_again(event, times)}"
        case kinds.REJECT:
            return f"rejected by {who}{reason}"
        case kinds.EXPIRED:
            if told.attempt and told.reason != kinds.OVER_AGE:
                return f"not settled in time by {who}{_again(event, times)}"
            return f"expired for {_who('', told.group)}{reason}"
        case kinds.RELEASED:
            return f"given back by {who}{reason}{_again(event, times)}"
        case kinds.EXTENDED:
            return f"kept longer by {who}" + (f", until {until}" if until else "")
        case kinds.COMMITTED:
            return f"committed by {who}" if told.group else "committed: visible from now on"
        case kinds.ABORTED:
            why = told.reason.removeprefix(kinds.NEVER_SEEN).removeprefix(": ")
            return f"aborted with its transaction{f' ({escape(why)})' if why else ''}: nobody ever sees it"
        case kinds.MARKER:
            return f"{escape(told.reason)} here" if told.reason else "a transaction ended here"
        case kinds.DLQ:
            return f"dead-lettered{_to(told.to)} for {_who('', told.group)}{reason}"
        case kinds.REDRIVEN:
            return f"redriven{_to(told.to)}"
        case kinds.LOST:
            return f"lost for {_who('', told.group)}{reason or ': the log does not have it any more'}"
        case kinds.DISCARDED:
            return f"given up by {_who('', told.group)}{reason}"
        case kinds.RESET:
            return f"to be delivered again to {_who('', told.group)}{reason}"
        case kinds.SKIPPED:
            return f"skipped by {_who('', told.group)}{reason}"
        case kinds.CUT:
            return f"lost for {_who('', told.group)}{reason}"
        case kinds.DELETED:
            return "deleted with its topic"
    # A newer broker may send other event types.
    whose = f" by {who}" if told.group else ""
    return f"{escape(event.event_type)}{whose}{_to(told.to)}{reason}"


def group_words(group: GroupNow, times: Times, seen_ns: int) -> str:
    """Describe a group's state for a message, without the group's name."""
    reason = _because(group.reason)
    until = times.later(group.until, seen_ns) if group.until else ""
    match group.state:
        case "waiting":
            return "waiting: not delivered yet"
        case "in flight":
            return f"in flight to {escape(group.member)}" + (f" until {until}" if until else "")
        case "retry":
            return f"to be redelivered{f' from {until} on' if until else ''}{reason}"
        case "moving":
            return f"on its way to the dead letters{reason}"
        case "settled":
            return "done"
    return f"{escape(group.state)}{reason}"


def status_words(story: Story, times: Times) -> str:
    """Describe the status of a message in a few words."""
    took = duration(story.duration_ns)
    kinds_met = [event.event_type for event in story.events]
    if kinds.MARKER in kinds_met:
        return "no message, but the end of a transaction"
    if story.status == "completed":
        return f"cancelled after {took}" if kinds.CANCELLED in kinds_met else f"completed in {took}"
    if story.status == "error":
        return _failure(story, took)
    if story.status != "pending":
        return escape(story.status)
    return f"pending: {_waits_for(story, times)}"


def is_settled(story: Story) -> bool:
    """Whether every known group has settled the message, so that no more events are expected."""
    return story.status != "pending" and all(each.state in _DONE for each in story.groups_now())


def _failure(story: Story, took: str) -> str:
    names = {
        kinds.DLQ: "dead-lettered",
        kinds.REJECT: "rejected",
        kinds.EXPIRED: "expired",
        kinds.LOST: "lost",
        kinds.CUT: "lost",
        kinds.DISCARDED: "given up",
        kinds.DELETED: "deleted",
        kinds.ABORTED: "aborted",
    }
    for event in reversed(story.events):
        if event.event_type in names:
            after = duration(event.at_ns - story.events[0].at_ns)
            return f"{names[event.event_type]} after {after}"
    failed = [each.state for each in story.groups_now() if each.state in ("dead-lettered", "expired")]
    return failed[0] if failed else f"failed after {took}"


def _waits_for(story: Story, times: Times) -> str:
    if story.waits_for is None:
        return _waits_for_groups(story, times)
    seen_ns = story.events[-1].at_ns if story.events else 0
    transaction = _transaction_words(story.waits_for, times, seen_ns)
    if story.waits_for.own:
        return f"its transaction has not ended: {transaction}"
    return f"{_waits_for_groups(story, times)}, behind a transaction that has not ended: {transaction}"


def _transaction_words(waits_for: WaitsFor, times: Times, seen_ns: int) -> str:
    name, deadline = waits_for.transactional_id, waits_for.deadline
    of_whom = f"{escape(name)!r}" if name else f"producer {waits_for.producer_id}"
    words = f"{escape(waits_for.transaction_id)} of {of_whom}" if waits_for.transaction_id else f"one of {of_whom}"
    return words + (f", aborted at {times.later(deadline, seen_ns)} unless it ends before" if deadline else "")


def _waits_for_groups(story: Story, times: Times) -> str:
    by_state: dict[str, list[str]] = {}
    for each in story.groups_now():
        by_state.setdefault(each.state, []).append(escape(each.group))
    for state, words in (
        ("in flight", "in flight in"),
        ("acked in a transaction", "acked in a transaction that has not ended, in"),
        ("retry", "to be redelivered to"),
        ("moving", "to be dead-lettered for"),
        ("waiting", "waiting for"),
    ):
        if groups := by_state.get(state):
            return f"{words} group{'s' if len(groups) > 1 else ''} {', '.join(groups)}"
    last = story.events[-1] if story.events else None
    if last is not None and last.event_type in (kinds.DELAY, kinds.RESCHEDULED):
        return f"delayed until {times.later(last.attributes.until, last.at_ns)}" if last.attributes.until else "delayed"
    return "no group is done with it"


def _who(member: str, group: str) -> str:
    of_group = f"group {escape(group)}" if group else "nobody known"
    return f"{escape(member)} of {of_group}" if member else of_group


def _because(reason: str) -> str:
    return f": {escape(reason)}" if reason else ""


def _again(event: Event, times: Times) -> str:
    until = event.attributes.until
    if not until or parse_instant_ns(until) <= event.at_ns:
        return ""
    return f"; again from {times.later(until, event.at_ns, exact=True)} on"


def _to(place: Place | None) -> str:
    return f" to {escape(str(place))}" if place else ""


def _as(place: Place | None) -> str:
    return f" as {escape(str(place))}" if place else ""
