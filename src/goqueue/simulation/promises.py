"""What clients of a simulated broker asked for, and what they were told: the model that the broker is held against.

Messages go by their values, which are all different. What was asked for and never answered may have happened or not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from goqueue.broker.operations import TransactionRef

State = Literal["asked", "told", "refused"]
Ending = Literal["open", "committing", "committed", "aborted"]


class Broken(AssertionError):
    """A promise was not kept."""


class Place(NamedTuple):
    """Where a record lies."""

    topic: str
    partition: int
    offset: int


@dataclass(slots=True, eq=False)
class Unit:
    """A transaction: what it has written and acked becomes visible as a whole, or not at all."""

    reference: TransactionRef
    ending: Ending = "open"
    acks: list[Delivered] = field(default_factory=list)
    doubtful_acks: list[Delivered] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.reference.transaction_id or ""

    @property
    def may_be_seen(self) -> bool:
        return self.ending in ("committing", "committed")

    @property
    def must_be_seen(self) -> bool:
        return self.ending == "committed"

    def lose(self) -> None:
        """The broker that had it open is gone."""
        if self.ending == "open":
            self.ending = "aborted"


@dataclass(slots=True, eq=False)
class Sent:
    """A message that was published, or may have been."""

    value: bytes
    topic: str
    key: bytes | None = None
    unit: Unit | None = None
    state: State = "asked"
    place: Place | None = None
    due_ns: int | None = None
    """When it becomes visible, if it is delayed. Then it is seen at another place."""
    cancel: State | None = None

    @property
    def must_be_seen(self) -> bool:
        stored = self.state == "told" and self.cancel in (None, "refused")
        return stored and (self.unit is None or self.unit.must_be_seen)

    @property
    def may_be_seen(self) -> bool:
        return self.state != "refused" and self.cancel != "told" and (self.unit is None or self.unit.may_be_seen)


@dataclass(slots=True, eq=False)
class Delivered:
    """What one group was told of one record."""

    group: str
    place: Place
    value: bytes
    count: int = 0
    """The highest delivery count that was told."""
    told_at: int = 0
    """When that was, by ``Promises.now``."""
    acked_at: int | None = None
    may_be_acked: bool = False
    dead: bool = False
    """Whether it was told to be a dead letter."""


@dataclass(slots=True)
class Promises:
    now: int = 0
    """Counts what was told, to order it."""
    sent: dict[bytes, Sent] = field(default_factory=dict)
    delivered: dict[tuple[str, Place], Delivered] = field(default_factory=dict)
    seen: dict[Place, bytes] = field(default_factory=dict)
    """What readers have seen: it stays where it is."""
    watermarks: dict[tuple[str, int], int] = field(default_factory=dict)
    committed: dict[tuple[str, str, int], tuple[int, int]] = field(default_factory=dict)
    """Of groups that read streams: the offset that was told to be committed, and the highest that was asked for."""
    may_redrive: set[bytes] = field(default_factory=set)
    topic: State = "refused"
    """The topic that comes and goes: told to be there, told to be gone ('refused'), or neither."""
    topic_doubtful_in: int = 0
    """The start of the broker in which it last became neither."""
    serial: int = 0

    def new_value(self) -> bytes:
        self.serial += 1
        return b"m%06d" % self.serial

    def tick(self) -> int:
        self.now += 1
        return self.now

    def read(self, place: Place, value: bytes) -> None:
        """A reader was given a record."""
        if self.seen.setdefault(place, value) != value:
            raise Broken(f"{place} was {self.seen[place]!r}, and is {value!r}")
        if place.topic.endswith(DEAD):
            return
        message = self.sent.get(value)
        if message is None or message.topic != place.topic:
            raise Broken(f"{place} has {value!r}, which was not sent there")
        if not message.may_be_seen:
            raise Broken(f"{place} has {value!r}, which is {_why_unseen(message)}")

    def watermark(self, topic: str, partition: int, offset: int) -> None:
        before = self.watermarks.get((topic, partition), 0)
        if offset < before:
            raise Broken(f"the high watermark of {topic}/{partition} fell from {before} to {offset}")
        self.watermarks[topic, partition] = offset

    def deliver(self, group: str, place: Place, value: bytes, count: int, asked_at: int) -> Delivered:
        """A poll, which was asked for at ``asked_at``, was answered with a record."""
        self.read(place, value)
        known = self.delivered.get((group, place))
        if known is None:
            known = self.delivered[group, place] = Delivered(group, place, value)
        if known.acked_at is not None and known.acked_at < asked_at:
            raise Broken(f"{value!r} at {place} was acked by {group}, and came again")
        if known.dead and known.told_at < asked_at:
            raise Broken(f"{value!r} at {place} is a dead letter of {group}, and came again")
        if count <= known.count and known.told_at < asked_at:
            raise Broken(f"{value!r} at {place} came to {group} as delivery {count}, after delivery {known.count}")
        if count > known.count:
            known.count, known.told_at = count, self.tick()
        return known

    def acked(self, delivered: Delivered) -> None:
        delivered.may_be_acked = True
        if delivered.acked_at is None:
            delivered.acked_at = self.tick()

    def died(self, delivered: Delivered) -> None:
        delivered.dead = True
        delivered.told_at = self.tick()

    def broker_is_gone(self) -> None:
        """Transactions that were open are aborted by the next start."""
        for message in self.sent.values():
            if message.unit is not None:
                message.unit.lose()


DEAD = ".dlq"


def _why_unseen(message: Sent) -> str:
    if message.state == "refused":
        return "refused"
    if message.cancel == "told":
        return "cancelled"
    return "of a transaction that was not committed"
