"""Trace of one message: its steps, status and groups, as returned by queries."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import msgspec

from goqueue.observe import trace_event as kinds
from goqueue.observe.trace_event import TraceEvent, split_place

Status = Literal["completed", "error", "pending"]
STATUSES: tuple[Status, ...] = ("completed", "error", "pending")
Standing = Literal[
    "waiting", "in flight", "acked in a transaction", "retry", "moving", "settled", "dead-lettered", "expired"
]

NOBODY = ""
"""Used in place of a group's name for events that concern all groups."""
_LEADS_TO: dict[Status, tuple[str, ...]] = {
    "pending": (kinds.CONSUME, kinds.REDELIVERED, kinds.NACK, kinds.RELEASED, kinds.RESET),
    "completed": (kinds.ACK, kinds.COMMITTED, kinds.SKIPPED),
    "error": (kinds.REJECT, kinds.DLQ, kinds.LOST, kinds.DISCARDED),
}
_OUTCOMES = {event: status for status, events in _LEADS_TO.items() for event in events}
"""Status that a group's latest event implies; events not listed imply none."""
_DELIVERIES = (kinds.CONSUME, kinds.REDELIVERED)


class Place(msgspec.Struct, frozen=True, gc=False):
    """Position of a record: topic, partition and offset."""

    topic: str
    partition: int
    offset: int

    @property
    def name(self) -> str:
        return kinds.place_name(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


class Step(msgspec.Struct, frozen=True, gc=False):
    """One event of the message or of one of its copies. (A struct, as ``Place``, since there are many.)"""

    at_ns: int
    event: str
    place: Place
    group: str = ""
    member: str = ""
    reason: str = ""
    until_ns: int = 0
    to: Place | None = None
    attempt: int = 0
    """For a delivery, and for the event that ended it: number of the delivery within the group, counted from 1."""
    from_log: bool = False
    """No event is known, but the log holds the message."""

    @property
    def ends_transaction(self) -> bool:
        """Whether the step commits or aborts the transaction that the message was published in."""
        return not self.group and self.event in (kinds.COMMITTED, kinds.ABORTED)


@dataclass(frozen=True, slots=True)
class GroupStanding:
    """Current state of the message in one group."""

    group: str
    place: Place
    standing: Standing
    deliveries: int = 0
    member: str = ""
    until_ns: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class WaitsFor:
    """The open transaction that keeps the message invisible: its own, or one that began before it in its partition.

    A partition knows only the producer of the transaction.
    """

    producer_id: int
    is_own: bool


@dataclass(frozen=True, slots=True)
class Trace:
    """Trace of a message, published at ``place``. Steps are in order of time, including those of its copies."""

    trace_id: str
    place: Place
    status: Status
    steps: list[Step]
    groups: list[GroupStanding] = field(default_factory=list)
    key: bytes | None = None
    in_log: bool = True
    also: list[Place] = field(default_factory=list)
    """Other messages of the same trace, whose steps are included."""
    is_complete: bool = True
    """False if the search stopped at a limit before it found all events."""
    waits_for: WaitsFor | None = None

    @property
    def duration_ns(self) -> int:
        return self.steps[-1].at_ns - self.steps[0].at_ns if self.steps else 0


@dataclass(frozen=True, slots=True)
class TracePage:
    """A page of traces. ``is_complete`` is false if the search stopped at a limit before it had read all events."""

    traces: list[Trace]
    is_complete: bool


def step_of(event: TraceEvent, offset: int) -> Step:
    """The step of an event for the message at ``offset``."""
    to = None
    if event.to:
        topic, number = split_place(event.to)
        to = Place(topic, number, event.copy_of(offset))
    place = Place(*split_place(event.place), offset)
    return Step(event.at, event.event, place, event.group, event.member, event.reason, event.until, to)


def in_order(steps: Sequence[Step]) -> list[Step]:
    """Steps by time, with deliveries counted, and with the end of each delivery assigned to its member.

    ``steps`` are given in the order in which they were recorded, those of a copy after those of its original: the
    events of a group on a record stay in that order even if the clock was set back meanwhile. The creation of a copy
    and the end of a transaction appear once, even if a broker recorded them again after a crash.
    """
    told: list[Step] = []
    copies: set[tuple[Place, Place]] = set()
    ended: set[Place] = set()
    attempts: dict[str, int] = {}
    members: dict[tuple[str, Place], str] = {}
    for step in _by_time(_visible_to_groups(steps)):
        if step.to is not None:
            if (step.place, step.to) in copies:
                continue
            copies.add((step.place, step.to))
        if step.ends_transaction:
            if step.place in ended:
                continue
            ended.add(step.place)
        attempt, member = 0, step.member
        if step.group:
            here = step.group, step.place
            if step.event in _DELIVERIES:
                attempts[step.group] = attempts.get(step.group, 0) + 1
                members[here] = member
            attempt = attempts.get(step.group, 0)
            member = member or members.get(here, "")
        told.append(msgspec.structs.replace(step, member=member, attempt=attempt))
    return told


def _visible_to_groups(steps: Sequence[Step]) -> Sequence[Step]:
    """Steps without a group's events on records that no group sees: these events cover ranges."""
    hidden = {step.place for step in steps if step.event in kinds.HIDES or (step.event == kinds.DLQ and not step.group)}
    return [step for step in steps if not step.group or step.place not in hidden] if hidden else steps


def _by_time(steps: Sequence[Step]) -> Sequence[Step]:
    """Steps by time, none before its cause: an earlier event of group or record, or the record's creation."""
    if all(one.at_ns <= other.at_ns for one, other in pairwise(steps)):
        return steps
    latest: dict[tuple[Place, str], int] = {}
    ranked: list[tuple[int, Step]] = []
    for step in steps:
        before_ns = max(latest.get((step.place, who), 0) for who in (step.group, NOBODY))
        rank_ns = latest[step.place, step.group] = max(step.at_ns, before_ns)
        if step.to is not None:
            latest.setdefault((step.to, NOBODY), rank_ns)
        ranked.append((rank_ns, step))
    ranked.sort(key=lambda each: each[0])
    return [step for _, step in ranked]


def status_of(steps: Sequence[Step], standings: Sequence[GroupStanding] = (), *, gone: Place | None = None) -> Status:
    """Status of the message over all groups: an error takes precedence, then anything still pending.

    ``gone`` is the message's place if the log no longer holds it.
    """
    by_group = _GroupOutcomes()
    for step in steps:
        by_group.follow(step)
    outcomes = by_group.outcomes
    for each in standings:
        known = outcomes.get(each.group)
        if each.standing == "settled":
            outcomes[each.group] = known if known == "error" else "completed"
        elif each.standing == "expired":
            outcomes[each.group] = "error"
        elif each.standing == "dead-lettered":
            outcomes.setdefault(each.group, "error")
        else:
            outcomes[each.group] = "pending"
    if gone is not None:
        by_group.give_up(gone, {each.group for each in standings})
    found = set(outcomes.values())
    if "error" in found:
        return "error"
    return "completed" if found == {"completed"} else "pending"


class _GroupOutcomes:
    """Outcome of the message in each group, as far as events show it."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Status] = {}
        self._where: dict[str, Place] = {}
        """Record that each outcome refers to."""
        self._dead: set[str] = set()
        self._left: set[Place] = set()
        """Records that were copied to another place."""
        self._over_age: set[tuple[str, Place]] = set()

    def follow(self, step: Step) -> None:
        here = step.group, step.place
        if step.to is not None:
            self._left.add(step.place)
        if step.event == kinds.CANCELLED:
            self.outcomes[NOBODY] = "completed"
        elif step.event == kinds.REDRIVEN:
            # A redrive is a new attempt for the groups that gave the message up.
            for group in self._dead - {NOBODY}:
                self._set(group, step.to or step.place, "pending")
            self.outcomes.pop(NOBODY, None)
            self._dead.clear()
        elif step.event == kinds.DELETED:
            if not self.outcomes and step.place not in self._left:
                self.outcomes[NOBODY] = "error"
            self.give_up(step.place)
        elif step.event == kinds.DLQ and not step.group:
            # The message did not match its topic's schema, so no group ever saw it.
            self.outcomes[NOBODY] = "error"
            self._dead.add(NOBODY)
        elif step.event == kinds.ABORTED:
            self.outcomes[NOBODY] = "error"
        elif not step.group:
            return
        elif step.event == kinds.EXPIRED and step.reason == kinds.OVER_AGE:
            self._set(*here, "error")
            self._over_age.add(here)
        elif step.event == kinds.COMMITTED and here in self._over_age:
            # The group committed past the expired message.
            return
        elif step.event == kinds.CUT:
            if self.outcomes.get(step.group) != "completed":
                self._set(*here, "error")
        elif step.event in _OUTCOMES:
            self._set(*here, _OUTCOMES[step.event])
            if step.event == kinds.DLQ:
                self._dead.add(step.group)

    def _set(self, group: str, place: Place, outcome: Status) -> None:
        self.outcomes[group] = outcome
        self._where[group] = place

    def give_up(self, place: Place, others: Collection[str] = ()) -> None:
        """The record is gone: the outcome becomes an error for every group that had it pending, except ``others``."""
        for group, outcome in self.outcomes.items():
            if outcome == "pending" and self._where.get(group) == place and group not in others:
                self.outcomes[group] = "error"
