"""What the producers of delayed messages were told, kept beside a broker, to hold against what it does afterwards."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from doubles.ledger import Broken
from goqueue.broker.broker import Broker
from goqueue.broker.delays.delayed_messages import MAX_PAGE
from goqueue.broker.partitions.read import Bounds
from goqueue.delivery.wheel import TICK_NS

TOPIC = "t"


@dataclass(frozen=True, slots=True)
class Shown:
    """What a broker makes of its partition: who waits until when, and what readers see."""

    start: int
    waits: list[tuple[bytes, int]]
    """Values and due times, the next one first."""
    seen: list[tuple[int, bytes, int]]
    """Offsets, values, timestamps."""

    @property
    def values(self) -> list[bytes]:
        return [value for _, value, _ in self.seen]


@dataclass
class Told:
    """Messages go by their values, which are all different. ``may_*`` was asked for, the rest was answered."""

    now_ns: int
    lasting: bool = True
    """Whether what readers saw is promised to stay, as under ``fsync: always``."""
    published: set[bytes] = field(default_factory=set)
    may_publish: set[bytes] = field(default_factory=set)
    dues: dict[bytes, set[int]] = field(default_factory=dict)
    """Of delayed messages: when they may be due."""
    cancelled: set[bytes] = field(default_factory=set)
    may_cancel: set[bytes] = field(default_factory=set)
    may_vanish: set[bytes] = field(default_factory=set)
    """Was seen, and may have gone since by retention or compaction."""
    seen: dict[int, bytes] = field(default_factory=dict)

    def copy(self) -> Told:
        return Told(
            self.now_ns,
            self.lasting,
            set(self.published),
            set(self.may_publish),
            {value: set(dues) for value, dues in self.dues.items()},
            set(self.cancelled),
            set(self.may_cancel),
            set(self.may_vanish),
            dict(self.seen),
        )

    def look(self, shown: Shown) -> None:
        """Hold what a broker shows against what was told, and remember what readers saw."""
        self._check_once(shown)
        self._check_times(shown)
        self._check_seen(shown)
        if self.lasting:
            self.seen |= {offset: value for offset, value, _ in shown.seen}

    def _check_once(self, shown: Shown) -> None:
        waits, seen = Counter(value for value, _ in shown.waits), Counter(shown.values)
        if twice := [value for value, times in (waits + seen).items() if times > 1]:
            raise Broken(f"messages are there twice: {sorted(twice)}")
        there = waits.keys() | seen.keys()
        if back := there & self.cancelled:
            raise Broken(f"messages are back that were cancelled: {sorted(back)}")
        if made_up := there - self.may_publish:
            raise Broken(f"messages that nobody published: {sorted(made_up)}")
        if lost := self.published - there - self.may_cancel - self.may_vanish:
            raise Broken(f"messages are lost: {sorted(lost)}")

    def _check_times(self, shown: Shown) -> None:
        for value, due_ns in shown.waits:
            if due_ns not in self.dues[value]:
                raise Broken(f"{value!r} is due at {due_ns}, and was told to be at {self.dues[value]}")
            if due_ns <= self.now_ns - TICK_NS:
                raise Broken(f"{value!r} still waits although its time has come")
        for _, value, timestamp_ns in shown.seen:
            if value in self.dues and timestamp_ns < min(self.dues[value]):
                raise Broken(f"{value!r} was seen before its time")

    def _check_seen(self, shown: Shown) -> None:
        places = {value: offset for offset, value, _ in shown.seen}
        waits = {value for value, _ in shown.waits}
        for offset, value in self.seen.items():
            if value in waits:
                raise Broken(f"{value!r} was seen, and waits again")
            if places.get(value, offset) != offset:
                raise Broken(f"{value!r} was seen at {offset}, and again at {places[value]}")
            if value not in places and offset >= shown.start and value not in self.may_vanish:
                raise Broken(f"{value!r} was seen, and is gone")


async def at_rest(broker: Broker) -> None:
    """Return when nothing is on its way to the disk or to readers, but for what waits for its time or for room."""
    firing = broker.delays._firing
    while firing._task is not None or firing.not_durable or broker._commits._running is not None:  # noqa: ASYNC110
        await asyncio.sleep(0)


async def shown_by(broker: Broker) -> Shown:
    await at_rest(broker)
    page = await broker.delays.page(TOPIC, MAX_PAGE)
    if lost := broker.delays.stats().tally.lost:
        raise Broken(f"{lost} delayed messages were given up")
    waits = []
    for each in page.messages:
        if each.message is None:
            raise Broken(f"a message waits at offset {each.offset}, and is not there")
        waits.append((each.message.value, each.deliver_at_ns))
    start = broker.topic(TOPIC).partitions[0].log.start_offset
    read = await broker.read(TOPIC, 0, Bounds(1 << 24), offset=start)
    return Shown(start, waits, [(each.offset, each.value, each.timestamp_ns) for each in read.messages])
