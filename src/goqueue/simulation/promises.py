"""What clients of a simulated broker asked for, and what they were told: the model that the broker is held against.

Messages go by their values, which are all different. What was asked for and never answered may have happened or not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from goqueue.broker.operations import TransactionRef
from goqueue.simulation.fences import Fences

State = Literal["asked", "told", "refused"]
Ending = Literal["open", "preparing", "prepared", "committing", "committed", "aborted"]
Offsets = dict[tuple[str, str, int], int]
"""By group, topic and partition."""


class Broken(AssertionError):
    """A promise was not kept."""


class Place(NamedTuple):
    """Where a record lies."""

    topic: str
    partition: int
    offset: int


class Fact(NamedTuple):
    """A version of a subject. It stays once it was told: nothing is deleted here."""

    subject: str
    version: int
    schema_id: int


@dataclass(slots=True, eq=False)
class Unit:
    """A transaction: what it has written and acked becomes visible as a whole, or not at all."""

    reference: TransactionRef
    producer: str = ""
    """The name of its producer."""
    ending: Ending = "open"
    acks: list[Delivered] = field(default_factory=list)
    doubtful_acks: list[Delivered] = field(default_factory=list)
    offsets: Offsets = field(default_factory=dict)
    is_over: bool = False
    """Whether it was told to have ended, so that it takes nothing more."""
    over_in: int = 0
    """The start of the broker that said so."""

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
            self.ending, self.is_over = "aborted", True


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
    told_ns: int = 0
    """When it was told to be stored, by the broker's wall clock."""
    may_be_gone: bool = False
    """Whether it may have been purged."""
    fits: bool = True
    """Whether it is in its topic, and not with the dead letters because it does not fit the schema."""

    @property
    def must_be_seen(self) -> bool:
        stored = self.state == "told" and self.cancel in (None, "refused") and self.fits and not self.may_be_gone
        return stored and (self.unit is None or self.unit.must_be_seen)

    @property
    def may_be_seen(self) -> bool:
        is_there = self.state != "refused" and self.cancel != "told" and self.fits
        return is_there and (self.unit is None or self.unit.may_be_seen)


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
    starts: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    """Of purged partitions: where they were told to begin, and when."""
    purges: set[tuple[str, int]] = field(default_factory=set)
    """Partitions that were purged, or may have been."""
    serial: int = 0
    fences: Fences = field(init=False)

    def __post_init__(self) -> None:
        self.fences = Fences(self.tick, Broken)

    def new_value(self) -> bytes:
        self.serial += 1
        return b"m%06d" % self.serial

    def tick(self) -> int:
        self.now += 1
        return self.now

    def read(self, place: Place, value: bytes, asked_at: int) -> None:
        """A reader, who had asked at ``asked_at``, was given a record."""
        start, told_at = self.starts.get((place.topic, place.partition), (0, 0))
        if place.offset < start and told_at < asked_at:
            raise Broken(f"{place} was purged, and is read")
        if self.seen.setdefault(place, value) != value:
            raise Broken(f"{place} was {self.seen[place]!r}, and is {value!r}")
        self.check_visible(place, value)

    def check_visible(self, place: Place, value: bytes) -> None:
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
        self.read(place, value, asked_at)
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

    def purged(self, topic: str, partition: int, start: int | None) -> None:
        """A partition begins at ``start`` now; ``None``: that is not known, and anything in it may be gone."""
        self.purges.add((topic, partition))
        for message in self.sent.values():
            place = message.place
            is_below = place is None or message.due_ns or start is None or place.offset < start
            if message.topic == topic and (place is None or place.partition == partition) and is_below:
                message.may_be_gone = True
        for place in [each for each in self.seen if each[:2] == (topic, partition)]:
            if start is None or place.offset < start:
                del self.seen[place]
        if start is not None:
            before, told_at = self.starts.get((topic, partition), (0, 0))
            self.starts[topic, partition] = (start, self.tick()) if start > before else (before, told_at)

    def commit_asked(self, offsets: Offsets) -> None:
        for place, offset in offsets.items():
            told, asked = self.committed.get(place, (0, 0))
            self.committed[place] = (told, max(asked, offset))

    def commit_told(self, offsets: Offsets) -> None:
        for place, offset in offsets.items():
            told, asked = self.committed[place]
            self.committed[place] = (max(told, offset), asked)

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
    if not message.fits:
        return "no string of JSON"
    return "of a transaction that was not committed"
