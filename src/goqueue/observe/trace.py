"""The story of one message, as it is told to whoever asks."""

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
"""Stands where a group's name stands, for what concerns all of them."""
_OUTCOMES: dict[str, Status] = {
    kinds.CONSUME: "pending",
    kinds.REDELIVERED: "pending",
    kinds.NACK: "pending",
    kinds.RELEASED: "pending",
    kinds.ACK: "completed",
    kinds.COMMITTED: "completed",
    kinds.REJECT: "error",
    kinds.DLQ: "error",
    kinds.LOST: "error",
    kinds.DISCARDED: "error",
    kinds.RESET: "pending",
    kinds.SKIPPED: "completed",
}
"""What a group's latest event says; another says nothing of how it ends."""
_DELIVERIES = (kinds.CONSUME, kinds.REDELIVERED)


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where a record lies."""

    topic: str
    partition: int
    offset: int

    @property
    def name(self) -> str:
        return kinds.place_name(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


class Step(msgspec.Struct, frozen=True, gc=False):
    """One thing that happened to the message, or to a copy that was made of it. (A struct, as ``Place``: many.)"""

    at_ns: int
    event: str
    place: Place
    group: str = ""
    member: str = ""
    reason: str = ""
    until_ns: int = 0
    to: Place | None = None
    attempt: int = 0
    """Of a delivery, and of what ended it: which it was for this group, counted from 1."""
    from_log: bool = False
    """No event is known, but the log has the message."""

    @property
    def ends_transaction(self) -> bool:
        """Whether the transaction was committed or aborted that the message was published in."""
        return not self.group and self.event in (kinds.COMMITTED, kinds.ABORTED)


@dataclass(frozen=True, slots=True)
class GroupStanding:
    """Where a group is with the message, right now."""

    group: str
    place: Place
    standing: Standing
    deliveries: int = 0
    member: str = ""
    until_ns: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class WaitsFor:
    """The transaction without whose end nobody sees a message: its own, or one that began before it in its partition.

    A partition knows only whose it is.
    """

    producer_id: int
    is_own: bool


@dataclass(frozen=True, slots=True)
class Trace:
    """``place`` is where the message was published; steps are in the order of time, also those of its copies."""

    trace_id: str
    place: Place
    status: Status
    steps: list[Step]
    groups: list[GroupStanding] = field(default_factory=list)
    key: bytes | None = None
    in_log: bool = True
    also: list[Place] = field(default_factory=list)
    """Other messages of the same trace, whose steps are among these."""
    is_complete: bool = True
    """There was enough room to look for all of its events."""
    waits_for: WaitsFor | None = None

    @property
    def duration_ns(self) -> int:
        return self.steps[-1].at_ns - self.steps[0].at_ns if self.steps else 0


@dataclass(frozen=True, slots=True)
class TracePage:
    """``is_complete``: there was enough room to look at everything that is still known."""

    traces: list[Trace]
    is_complete: bool


def step_of(event: TraceEvent, offset: int) -> Step:
    """An event as the message at ``offset`` met it."""
    to = None
    if event.to:
        topic, number = split_place(event.to)
        to = Place(topic, number, event.copy_of(offset))
    place = Place(*split_place(event.place), offset)
    return Step(event.at, event.event, place, event.group, event.member, event.reason, event.until, to)


def in_order(steps: Sequence[Step]) -> list[Step]:
    """By time, with deliveries counted, and with the member named that each delivery's end belongs to.

    ``steps`` come as they were noted, those of a copy behind those of its original: what a group did to a record stays
    in that order also if the clock was set back meanwhile. That a copy was made and how a transaction ended is told
    once, also if a broker that was killed right then has noted it again.
    """
    told: list[Step] = []
    copies: set[tuple[Place, Place]] = set()
    ended: set[Place] = set()
    attempts: dict[str, int] = {}
    members: dict[tuple[str, Place], str] = {}
    for step in _by_time(_of_those_who_see_it(steps)):
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


def _of_those_who_see_it(steps: Sequence[Step]) -> Sequence[Step]:
    """A group's events cover ranges, and so also records between that nobody sees: these are none of its business."""
    hidden = {step.place for step in steps if step.event in kinds.HIDES or (step.event == kinds.DLQ and not step.group)}
    return [step for step in steps if not step.group or step.place not in hidden] if hidden else steps


def _by_time(steps: Sequence[Step]) -> Sequence[Step]:
    """Nothing stands before what led to it: in the same group, to the record as such, or to its being there."""
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
    """How the message fared: an error counts most, then what is still to be done.

    ``gone`` is its place if the log does not have it any more.
    """
    fate = _Fate()
    for step in steps:
        fate.follow(step)
    outcomes = fate.outcomes
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
        fate.give_up(gone, {each.group for each in standings})
    found = set(outcomes.values())
    if "error" in found:
        return "error"
    return "completed" if found == {"completed"} else "pending"


class _Fate:
    """What each group made of the message, as far as events tell."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Status] = {}
        self._where: dict[str, Place] = {}
        """The record that each outcome is about."""
        self._dead: set[str] = set()
        self._left: set[Place] = set()
        """Records that went on as others."""
        self._over_age: set[tuple[str, Place]] = set()

    def follow(self, step: Step) -> None:
        here = step.group, step.place
        if step.to is not None:
            self._left.add(step.place)
        if step.event == kinds.CANCELLED:
            self.outcomes[NOBODY] = "completed"
        elif step.event == kinds.REDRIVEN:
            # It is another try for whoever gave it up.
            for group in self._dead - {NOBODY}:
                self._set(group, step.to or step.place, "pending")
            self.outcomes.pop(NOBODY, None)
            self._dead.clear()
        elif step.event == kinds.DELETED:
            if not self.outcomes and step.place not in self._left:
                self.outcomes[NOBODY] = "error"
            self.give_up(step.place)
        elif step.event == kinds.DLQ and not step.group:
            # It did not fit its topic's schema, so no group ever saw it.
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
            # The group went on behind it.
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
        """The record there is gone: whoever still had to do with it will never be done, the ``others`` excepted."""
        for group, outcome in self.outcomes.items():
            if outcome == "pending" and self._where.get(group) == place and group not in others:
                self.outcomes[group] = "error"
