"""One group's view of one partition: what is done, in flight, waiting for another try, or being moved elsewhere.

The state changes only by an event, in ``apply``; everything else looks. Indexes follow from the state. A queue is
served lane by lane: ``lane_cursors`` has how far each lane has come, ``leases`` what is in flight.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from goqueue.delivery import events
from goqueue.delivery.events import AnyQueueEvent, QueueOpened, Target
from goqueue.delivery.in_flight_batch import READY, InFlightBatch, InFlightBatchDump
from goqueue.delivery.key_order import KeyOrder
from goqueue.delivery.lane import Lane, LaneDump
from goqueue.delivery.lane_cursors import LaneCursors
from goqueue.delivery.lease_acks import LeaseAcks, LeaseAcksDump, Recent
from goqueue.delivery.leases import Leases, lane_of
from goqueue.model.ids import QueueKey, TopicId, split_queue_key
from goqueue.model.runs import Runs, moved_bits, offsets_in, pairs, to_runs, unpacked

_FOR_EVER = 4_102_444_800 * 10**9
"""The year 2100: a transaction ends before."""


class Move(msgspec.Struct, frozen=True, array_like=True):
    """A message that is on its way to another topic."""

    count: int
    reason: str
    target: Target
    lane: int


class QueueDump(msgspec.Struct, frozen=True):
    """As it goes into a snapshot."""

    group: str
    topic_id: TopicId
    partition: int
    front: int
    next_lease: int
    lanes: list[LaneDump]
    batches: list[InFlightBatchDump] = msgspec.field(name="parcels")
    moving: dict[int, Move]
    acks: list[LeaseAcksDump] = []


class Queue:
    """One for each group and partition. ``recent`` bounds what several of them remember of acks."""

    def __init__(self, opened: QueueOpened, in_flight: dict[str, int], recent: Recent | None = None) -> None:
        self.key = opened.q
        self.group = opened.group
        self.group_id = split_queue_key(opened.q)[0]
        self.topic_id = opened.topic_id
        self.partition = opened.partition
        self.cursors = LaneCursors(opened.start)
        self.lanes = self.cursors.by_number
        """Lanes with something that is not done, or done beyond the front."""
        self.leases = Leases(self.cursors, in_flight)
        self.moving: dict[int, Move] = {}
        """By offset."""
        self.keys: KeyOrder | None = None
        self.acks = LeaseAcks(recent or Recent())

    # Looking

    @property
    def front(self) -> int:
        """The highest offset that any lane has come to."""
        return self.cursors.front

    @property
    def committed(self) -> int:
        """The end of the prefix that is done, in every lane."""
        return self.cursors.committed

    @property
    def known_end(self) -> int:
        """Nothing is known of any message from here on."""
        return max([self.cursors.known_end, *(offset + 1 for offset in self.moving)])

    def cursor(self, lane: int) -> int:
        """Where to look for the lane's next messages."""
        found = self.lanes.get(lane)
        return self.cursors.front if found is None else found.cursor

    def is_done(self, offset: int, lane: int) -> bool:
        """Of an offset that is known to be of this lane."""
        return self.cursors.is_done(offset, lane)

    def was_acked(self, lease: int, offset: int) -> bool:
        """Whether a message is known to have been acked by this very delivery."""
        return self.acks.acked(lease, offset) & 1 == 1

    def between(self, lease: int, runs: Runs, base: int) -> int:
        """What lies between the messages of a lease, in runs that begin and end with one of them; bits from ``base``.

        Where lanes are mixed a lease has gaps, and a client that names it as one run does not mean what is in them.
        """
        batch = self.leases.head(lease)
        first, whole = (batch.first, batch.whole) if batch is not None else self.acks.whole(lease)
        own = moved_bits(whole, first - base)
        gaps = 0
        for low, end in pairs(runs):
            if own >> (low - base) & own >> (end - 1 - base) & 1:
                gaps |= ((1 << (end - low)) - 1) << (low - base)
        return gaps & ~own

    @property
    def parked(self) -> int:
        """How many messages below their lane's cursor are neither done nor held: they wait until their key is free."""
        undone = sum(lane.undone() for lane in self.lanes.values())
        moving = sum(
            offset < lane.cursor and offset not in lane.acked
            for offset, move in self.moving.items()
            if (lane := self.lanes.get(move.lane)) is not None
        )
        return undone - self.leases.outstanding - moving

    def batches(self, lease: int | None = None) -> Iterator[InFlightBatch]:
        """The in-flight batches of one lease, or of all."""
        return self.leases.batches(lease)

    def first_ready(self, lane: int) -> InFlightBatch | None:
        """What of a lane may be delivered again now, first come first served."""
        found = self.lanes.get(lane)
        return None if found is None else found.first_ready()

    def has_only_new(self, lane: int) -> bool:
        """Whether a lane has neither retries that are ready nor messages beyond its cursor that are done."""
        found = self.lanes.get(lane)
        return found is None or (found.first_ready() is None and found.acked.end <= found.cursor)

    @property
    def has_ready(self) -> bool:
        waits_for_a_poll = any(lane.ready and lane.first_ready() for lane in self.lanes.values())
        return waits_for_a_poll or (self.keys is not None and self.keys.has_ready)

    def held(self) -> set[int]:
        """Offsets that are in a batch or moving."""
        found = set(self.moving)
        for batch in self.batches():
            for first, end in pairs(batch.runs):
                found.update(range(first, end))
        return found

    # Changing

    def apply(self, event: AnyQueueEvent) -> None:
        leases = self.leases
        match event:
            case events.Delivered():
                self._deliver(event)
            case events.Redelivered(_, parts, member, until_ns):
                for taken in leases.take(parts):
                    leases.add(taken.runs, taken.count + 1, member, until_ns, lane_of(taken.lease))
            case events.Acked(_, parts):
                for taken in leases.take(parts):
                    self._done(lane_of(taken.lease), taken)
                    if not event.error and not event.gone:
                        self.acks.add(taken.lease, taken.first, taken.whole, taken.bits)
            case events.Returned(_, parts, at_ns, error):
                for taken in leases.take(parts):
                    taken.member, taken.at_ns, taken.error, taken.is_frozen = None, at_ns, error, False
                    leases.put(taken)
            case events.Released(_, parts):
                for taken in leases.take(parts):
                    taken.count, taken.member, taken.at_ns, taken.is_frozen = taken.count - 1, None, READY, False
                    leases.put(taken)
            case events.Extended(_, parts, until_ns):
                for taken in leases.take(parts):
                    taken.at_ns = until_ns
                    leases.put(taken)
            case events.Frozen(_, parts, holder):
                for taken in leases.take(parts):
                    taken.member, taken.at_ns, taken.is_frozen = holder, _FOR_EVER, True
                    leases.put(taken)
            case events.Moving():
                self._move(event)
            case events.Moved(_, runs, lane):
                self._moved(runs, lane)
            case events.Committed(_, offset):
                self.cursors.restart(offset)
            case events.Dropped(_, start):
                leases.forget(0, start)
                self.cursors.drop_below(start)
                if self.keys is not None:
                    self.keys.release(0, start)
                    self.keys.stopped.clear()
            case events.ResetTo(_, offset):
                self.close()
                self.cursors.restart(offset)
                self.keys = None
            case events.CutTo(_, end):
                self._cut(end)

    def close(self) -> None:
        """Nothing is in flight any more."""
        self.leases.forget(0, None)
        self.acks.clear()

    def _deliver(self, event: events.Delivered) -> None:
        lane = self.cursors.open(event.lane)
        if isinstance(event.runs, str):
            first, bits = unpacked(event.runs)
            if event.skipped is None:
                lane.acked.add(lane.cursor, first)
                lane.acked.add_bits(first, ~bits & ((1 << bits.bit_length()) - 1))
                lane.acked.add(first + bits.bit_length(), event.upto)
            self.leases.add_bits(first, bits, event.member, event.until_ns, event.lane)
        else:
            if event.skipped is None:
                lane.acked.add_others(lane.cursor, event.upto, event.runs)
            self.leases.add(event.runs, 1, event.member, event.until_ns, event.lane)
        if event.skipped:
            for first, end in pairs(event.skipped):
                self._add(event.lane, lane, first, end)
        self.cursors.advance(event.lane, lane, event.upto, event.left)

    def _move(self, event: events.Moving) -> None:
        for taken in self.leases.take(event.parts):
            move = Move(taken.count, event.reason, event.target, lane_of(taken.lease))
            for first, end in pairs(taken.runs):
                self.moving.update(dict.fromkeys(range(first, end), move))
        if event.fresh:
            move = Move(0, event.reason, event.target, event.lane)
            for first, end in pairs(event.fresh):
                self.moving.update(dict.fromkeys(range(first, end), move))

    def _moved(self, runs: Runs, otherwise: int) -> None:
        by_lane: dict[int, list[int]] = {}
        for offset in offsets_in(runs):
            move = self.moving.pop(offset, None)
            by_lane.setdefault(otherwise if move is None else move.lane, []).append(offset)
        for number, offsets in by_lane.items():
            lane = self.cursors.open(number)
            for first, end in pairs(to_runs(offsets)):
                self._add(number, lane, first, end)
            self.cursors.tidy(number, lane)

    def _cut(self, end: int) -> None:
        self.leases.forget(end, None)
        self.acks.cut(end)
        for offset in [each for each in self.moving if each >= end]:
            del self.moving[offset]
        self.cursors.cut(end)
        self.keys = None

    def _done(self, number: int, taken: InFlightBatch) -> None:
        lane = self.lanes.get(number) or self.cursors.open(number)
        lane.acked.add_bits(taken.first, taken.bits)
        if self.keys is not None:
            for first, end in pairs(taken.runs):
                self.keys.release(first, end)
        self.cursors.tidy(number, lane)

    def _add(self, number: int, lane: Lane, first: int, end: int) -> None:
        lane.acked.add(first, end)
        if self.keys is not None:
            # What lies there of other lanes is not done by that.
            self.keys.release(first, end, number)

    # Snapshots

    def dump(self) -> QueueDump:
        return QueueDump(
            self.group,
            self.topic_id,
            self.partition,
            self.front,
            self.leases.next_number,
            [lane.dump(number) for number, lane in sorted(self.lanes.items())],
            self.leases.dump(),
            dict(self.moving),
            self.acks.dump(),
        )

    @classmethod
    def load(cls, key: QueueKey, dump: QueueDump, in_flight: dict[str, int], recent: Recent | None = None) -> Queue:
        queue = cls(QueueOpened(key, dump.group, dump.topic_id, dump.partition, dump.front), in_flight, recent)
        queue.lanes.update({each.lane: Lane.load(each) for each in dump.lanes})
        queue.leases.next_number = dump.next_lease
        queue.leases.load(dump.batches)
        queue.moving.update(dump.moving)
        queue.acks.load(dump.acks)
        return queue
