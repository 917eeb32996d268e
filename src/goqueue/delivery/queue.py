"""One group's view of one partition: what is done, in flight, waiting for another try, or being moved elsewhere.

Only ``apply`` changes it, by an event; everything else looks. Indexes (the heap of times, the ready lists) follow from
the state.

It is served lane by lane, and each lane has its own cursor. ``front`` is as far as any of them ever looked. A lane that
is not in ``lanes`` has nothing below the front that is not done, so a queue of one lane, or an empty one, costs no more
than if there were no lanes.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterator
from itertools import count

import msgspec

from goqueue.delivery.events import (
    Acked,
    AnyQueueEvent,
    Committed,
    CutTo,
    Delivered,
    Dropped,
    Extended,
    Frozen,
    Moved,
    Moving,
    Parts,
    QueueOpened,
    Redelivered,
    Released,
    ResetTo,
    Returned,
    Target,
)
from goqueue.delivery.in_flight_batch import READY, SPAN, InFlightBatch, InFlightBatchDump
from goqueue.delivery.key_order import KeyOrder
from goqueue.delivery.lane import Lane, LaneDump, lane_of, lease_in
from goqueue.delivery.lease_acks import LeaseAcks, LeaseAcksDump, Recent
from goqueue.model.runs import (
    Runs,
    bits_of,
    bits_to_runs,
    moved_bits,
    offsets_in,
    packed,
    pairs,
    size_of,
    to_bits,
    to_runs,
    unpacked,
)

_SPAN_MASK = (1 << SPAN) - 1
_FOR_EVER = 4_102_444_800 * 10**9
"""The year 2100: a transaction ends before."""
_STALE_ALLOWED = 1_024
"""How many entries the heap of times may have before anyone looks for those that are of no use any more."""


class Move(msgspec.Struct, frozen=True, array_like=True):
    """A message that is on its way to another topic."""

    count: int
    reason: str
    target: Target
    lane: int


class QueueDump(msgspec.Struct, frozen=True):
    """As it goes into a snapshot."""

    group: str
    topic_id: str
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
        self.topic_id = opened.topic_id
        self.partition = opened.partition
        self.front = opened.start
        self.lanes: dict[int, Lane] = {}
        self.outstanding = 0
        """How many messages are in batches."""
        self.moving: dict[int, Move] = {}
        self.keys: KeyOrder | None = None
        self.acks = LeaseAcks(recent or Recent())
        self.next_lease = 1
        """Its number; the lane is added when it is made."""
        self._leases: dict[int, InFlightBatch] = {}
        self._in_flight = in_flight
        self._in_hand: dict[str, int] = {}
        self._times: list[tuple[int, int, InFlightBatch]] = []
        self._most_times = _STALE_ALLOWED
        self._tie = count()

    # Looking

    @property
    def committed(self) -> int:
        """The end of the prefix that is done, in every lane."""
        return min([self.front, *(lane.acked.prefix for lane in self.lanes.values())])

    def cursor(self, lane: int) -> int:
        """Where to look for the lane's next messages."""
        found = self.lanes.get(lane)
        return self.front if found is None else found.cursor

    def is_done(self, offset: int, lane: int) -> bool:
        """Of an offset that is known to be of this lane."""
        found = self.lanes.get(lane)
        return offset < self.front if found is None else offset in found.acked

    def was_acked(self, lease: int, offset: int) -> bool:
        """Whether a message is known to have been acked by this very delivery."""
        return self.acks.acked(lease, offset) & 1 == 1

    def between(self, lease: int, runs: Runs, base: int) -> int:
        """What lies between the messages of a lease, in runs that begin and end with one of them; bits from ``base``.

        Where lanes are mixed a lease has gaps, and whoever names it as one run does not mean what is in them.
        """
        batch = self._leases.get(lease)
        first, whole = (batch.first, batch.whole) if batch is not None else self.acks.whole(lease)
        own = moved_bits(whole, first - base)
        gaps = 0
        for low, end in pairs(runs):
            if own >> (low - base) & own >> (end - 1 - base) & 1:
                gaps |= ((1 << (end - low)) - 1) << (low - base)
        return gaps & ~own

    @property
    def known_end(self) -> int:
        """Nothing is known of any message from here on."""
        ends = [lane.acked.end for lane in self.lanes.values()]
        return max([self.front, *ends, *(offset + 1 for offset in self.moving)])

    @property
    def in_flight(self) -> int:
        """How many messages members have in hand."""
        return sum(self._in_hand.values())

    def in_hand(self, member: str) -> int:
        """How many of them this member has."""
        return self._in_hand.get(member, 0)

    @property
    def parked(self) -> int:
        """How many messages below their lane's cursor are neither done nor held: they wait until their key is free."""
        undone = sum(lane.undone() for lane in self.lanes.values())
        moving = sum(
            offset < lane.cursor and offset not in lane.acked
            for offset, move in self.moving.items()
            if (lane := self.lanes.get(move.lane)) is not None
        )
        return undone - self.outstanding - moving

    def has_lease(self, lease: int) -> bool:
        return lease in self._leases

    def batches(self, lease: int | None = None) -> Iterator[InFlightBatch]:
        for head in self._leases.values() if lease is None else [self._leases.get(lease)]:
            batch = head
            while batch is not None:
                if batch.bits:
                    yield batch
                batch = batch.next

    def find(self, lease: int, offset: int) -> InFlightBatch | None:
        """The batch that a message of this lease lies in, if it was neither settled nor delivered again."""
        batch = self._leases.get(lease)
        while batch is not None:
            if offset >= batch.first and batch.bits >> (offset - batch.first) & 1:
                return batch
            batch = batch.next
        return None

    def first_ready(self, lane: int) -> InFlightBatch | None:
        """What of a lane may be delivered again now, first come first served."""
        found = self.lanes.get(lane)
        return None if found is None else found.first_ready()

    @property
    def has_ready(self) -> bool:
        waits_for_a_poll = any(lane.ready and lane.first_ready() for lane in self.lanes.values())
        return waits_for_a_poll or (self.keys is not None and self.keys.has_ready)

    def next_time_ns(self) -> int | None:
        """When something expires or becomes ready next."""
        while self._times:
            at_ns, _, batch = self._times[0]
            if batch.bits and batch.at_ns == at_ns:
                return at_ns
            heapq.heappop(self._times)
        return None

    def ripen(self, now_ns: int) -> list[InFlightBatch]:
        """Time has come so far: waiting messages become ready. Return the batches in flight whose time is up."""
        expired = []
        while (at_ns := self.next_time_ns()) is not None and at_ns <= now_ns:
            batch = heapq.heappop(self._times)[2]
            if batch.member is None:
                self._make_ready(batch)
            else:
                expired.append(batch)
        for batch in expired:
            # Until an event takes it out: if the journal cannot be written just now, its time must come again.
            heapq.heappush(self._times, (batch.at_ns, next(self._tie), batch))
        return expired

    def delivered_below(self, offset: int) -> Parts:
        """Everything that was delivered below ``offset`` and is not done, but for what transactions hold."""
        found: Parts = []
        for batch in self.batches():
            if batch.is_frozen:
                continue
            bits = batch.among([batch.first, offset])
            if bits:
                found.append((batch.lease, bits_to_runs(batch.first, bits)))
        return found

    def held(self) -> set[int]:
        """Offsets that are in a batch or moving."""
        found = set(self.moving)
        for batch in self.batches():
            for first, end in pairs(batch.runs):
                found.update(range(first, end))
        return found

    # Changing

    def apply(self, event: AnyQueueEvent) -> None:
        match event:
            case Delivered():
                self._deliver(event)
            case Redelivered(_, parts, member, until_ns):
                for taken in self._take(parts):
                    self._lease(taken.runs, taken.count + 1, member, until_ns, lane_of(taken.lease))
            case Acked(_, parts):
                for taken in self._take(parts):
                    self._done(lane_of(taken.lease), taken)
                    if not event.error and not event.gone:
                        self.acks.add(taken.lease, taken.first, taken.whole, taken.bits)
            case Returned(_, parts, at_ns, error):
                for taken in self._take(parts):
                    taken.member, taken.at_ns, taken.error = None, at_ns, error
                    self._put(taken)
            case Released(_, parts):
                for taken in self._take(parts):
                    taken.count, taken.member, taken.at_ns = taken.count - 1, None, READY
                    self._put(taken)
            case Extended(_, parts, until_ns):
                for taken in self._take(parts):
                    taken.at_ns = until_ns
                    self._put(taken)
            case Frozen(_, parts, holder):
                for taken in self._take(parts):
                    taken.member, taken.at_ns = holder, _FOR_EVER
                    self._put(taken)
            case Moving():
                self._move(event)
            case Moved(_, runs, lane):
                self._moved(runs, lane)
            case Committed(_, offset):
                self.lanes.clear()
                self.front = offset
            case Dropped(_, start):
                self._drop_below(start)
            case ResetTo(_, offset):
                self._forget(0, None)
                self.acks.clear()
                self.lanes.clear()
                self.front = offset
                self.keys = None
            case CutTo(_, end):
                self._cut(end)

    def close(self) -> None:
        """Nothing is in flight any more."""
        self._forget(0, None)
        self.acks.clear()

    def _lane(self, number: int) -> Lane:
        """Of a lane that is about to have something that is not done, or is done beyond the front."""
        lane = self.lanes.get(number)
        if lane is None:
            lane = self.lanes[number] = Lane(self.front)
        return lane

    def _tidy(self, number: int, lane: Lane) -> None:
        """A lane in which everything up to the front is done need not be kept."""
        # After a reset something beyond the front may be done already, and must be remembered.
        if lane.acked.prefix == self.front and not lane.acked.above:
            self.lanes.pop(number, None)

    def _deliver(self, event: Delivered) -> None:
        lane = self._lane(event.lane)
        if isinstance(event.runs, str):
            first, bits = unpacked(event.runs)
            if event.skipped is None:
                lane.acked.add(lane.cursor, first)
                lane.acked.add_bits(first, ~bits & ((1 << bits.bit_length()) - 1))
                lane.acked.add(first + bits.bit_length(), event.upto)
            self._lease_bits(first, bits, event)
        else:
            if event.skipped is None:
                lane.acked.add_others(lane.cursor, event.upto, event.runs)
            self._lease(event.runs, 1, event.member, event.until_ns, event.lane)
        for first, end in pairs(event.skipped or []):
            self._add(event.lane, lane, first, end)
        if event.upto > self.front:
            self._move_front(event)
        lane.cursor = max(lane.cursor, event.upto)
        self._tidy(event.lane, lane)

    def _move_front(self, event: Delivered) -> None:
        """Other lanes that had come to the front stop at what they have behind it, or go along."""
        before, self.front = self.front, event.upto
        left = dict(event.left)
        for number in left:
            if number not in self.lanes:
                self.lanes[number] = Lane(before)
        for number, lane in list(self.lanes.items()):
            if lane.cursor == before and number != event.lane:
                lane.pass_over(left.get(number, event.upto))
                self._tidy(number, lane)

    def _moved(self, runs: Runs, otherwise: int) -> None:
        by_lane: dict[int, list[int]] = {}
        for offset in offsets_in(runs):
            move = self.moving.pop(offset, None)
            by_lane.setdefault(otherwise if move is None else move.lane, []).append(offset)
        for number, offsets in by_lane.items():
            lane = self._lane(number)
            for first, end in pairs(to_runs(offsets)):
                self._add(number, lane, first, end)
            self._tidy(number, lane)

    def _drop_below(self, start: int) -> None:
        self._forget(0, start)
        self.front = max(self.front, start)
        for number, lane in list(self.lanes.items()):
            lane.acked.add(0, start)
            lane.cursor = max(lane.cursor, start)
            self._tidy(number, lane)
        if self.keys is not None:
            self.keys.release(0, start)
            self.keys.stopped.clear()

    def _cut(self, end: int) -> None:
        self._forget(end, None)
        self.acks.cut(end)
        for offset in [each for each in self.moving if each >= end]:
            del self.moving[offset]
        self.front = min(self.front, end)
        for number, lane in list(self.lanes.items()):
            lane.acked.cut(end)
            lane.cursor = min(lane.cursor, end)
            self._tidy(number, lane)
        self.keys = None

    def _lease(self, runs: Runs, times: int, member: str, until_ns: int, lane: int) -> None:
        """New leases, each within its span."""
        at = 0
        while at < len(runs):
            first = runs[at]
            # Runs that begin within the span of this one's first; the last of them may reach beyond it.
            end = bisect_left(runs, first + SPAN, at)
            end += end % 2
            lease = lease_in(self.next_lease, lane)
            self.next_lease += 1
            bits = to_bits(runs[at:end], first, SPAN)
            self._put(InFlightBatch(lease, first, bits, bits, times, member, until_ns))
            if runs[end - 1] > first + SPAN:
                runs = [first + SPAN, *runs[end - 1 :]]
                at = 0
            else:
                at = end

    def _lease_bits(self, first: int, bits: int, event: Delivered) -> None:
        while bits:
            lease = lease_in(self.next_lease, event.lane)
            self.next_lease += 1
            some = bits & _SPAN_MASK
            self._put(InFlightBatch(lease, first, some, some, 1, event.member, event.until_ns))
            bits >>= SPAN
            zeros = (bits & -bits).bit_length() - 1 if bits else 0
            bits >>= zeros
            first += SPAN + zeros

    def _put(self, batch: InFlightBatch) -> None:
        """Of one that is in no list."""
        lease, member, at_ns = batch.lease, batch.member, batch.at_ns
        head = self._leases.setdefault(lease, batch)
        if head is not batch:
            # Behind the first: most are taken from what is left of the whole, which is found at once there.
            batch.next, head.next = head.next, batch
        size = batch.bits.bit_count()
        self.outstanding += size
        self._lane(lane_of(lease)).outstanding += size
        if member is not None:
            _count(self._in_flight, member, size)
            _count(self._in_hand, member, size)
        if at_ns == READY and member is None:
            self._make_ready(batch)
        else:
            heapq.heappush(self._times, (at_ns, next(self._tie), batch))
            if len(self._times) > self._most_times:
                self._times = [entry for entry in self._times if entry[2].bits and entry[2].at_ns == entry[0]]
                heapq.heapify(self._times)
                self._most_times = 2 * len(self._times) + _STALE_ALLOWED

    def _make_ready(self, batch: InFlightBatch) -> None:
        batch.at_ns = READY
        self._lane(lane_of(batch.lease)).ready.append(batch)

    def _take(self, parts: Parts) -> list[InFlightBatch]:
        """Take messages out of their batches; return them as batches of their own, which are in no list."""
        taken = []
        for lease, runs in parts:
            before: InFlightBatch | None = None
            batch = self._leases.get(lease)
            asked = 0 if batch is None else bits_of(runs, batch.first, SPAN)
            while batch is not None and asked:
                bits = batch.bits & asked
                if bits:
                    asked &= ~bits
                    taken.append(
                        InFlightBatch(
                            lease,
                            batch.first,
                            bits,
                            batch.whole,
                            batch.count,
                            batch.member,
                            batch.at_ns,
                            batch.error,
                        )
                    )
                    self._remove(batch, bits)
                if batch.bits:
                    before = batch
                else:
                    self._unlink(batch, before)
                batch = batch.next
        return taken

    def _unlink(self, batch: InFlightBatch, before: InFlightBatch | None) -> None:
        """An empty batch leaves its lease; the lease goes with its last."""
        if before is not None:
            before.next = batch.next
        elif batch.next is not None:
            self._leases[batch.lease] = batch.next
        else:
            del self._leases[batch.lease]

    def _remove(self, batch: InFlightBatch, bits: int) -> None:
        batch.bits &= ~bits
        size = bits.bit_count()
        self.outstanding -= size
        lane = self.lanes.get(lane_of(batch.lease))
        if lane is not None:
            lane.outstanding -= size
        if batch.member is not None:
            _count(self._in_flight, batch.member, -size)
            _count(self._in_hand, batch.member, -size)

    def _forget(self, low: int, high: int | None) -> None:
        """Drop batches' messages from ``low`` to before ``high``."""
        for lease, head in list(self._leases.items()):
            self._take([(lease, [low, head.first + SPAN if high is None else max(low, high)])])

    def _move(self, event: Moving) -> None:
        for taken in self._take(event.parts):
            move = Move(taken.count, event.reason, event.target, lane_of(taken.lease))
            for first, end in pairs(taken.runs):
                self.moving.update(dict.fromkeys(range(first, end), move))
        if event.fresh:
            move = Move(0, event.reason, event.target, event.lane)
            for first, end in pairs(event.fresh):
                self.moving.update(dict.fromkeys(range(first, end), move))

    def _done(self, number: int, taken: InFlightBatch) -> None:
        lane = self._lane(number)
        lane.acked.add_bits(taken.first, taken.bits)
        if self.keys is not None:
            for first, end in pairs(taken.runs):
                self.keys.release(first, end)
        self._tidy(number, lane)

    def _add(self, number: int, lane: Lane, first: int, end: int) -> None:
        lane.acked.add(first, end)
        if self.keys is not None:
            # What lies there of other lanes is not done by that.
            self.keys.release(first, end, number)

    # Snapshots

    def dump(self) -> QueueDump:
        # In one order for one state, whatever way led there.
        batches = sorted(
            (
                InFlightBatchDump(
                    batch.lease,
                    batch.runs,
                    batch.count,
                    batch.member,
                    batch.at_ns,
                    batch.error,
                    [] if batch.whole == batch.bits else packed(batch.first, batch.whole),
                )
                for batch in self.batches()
            ),
            key=lambda batch: (batch.lease, batch.runs),
        )
        return QueueDump(
            self.group,
            self.topic_id,
            self.partition,
            self.front,
            self.next_lease,
            [lane.dump(number) for number, lane in sorted(self.lanes.items())],
            batches,
            dict(self.moving),
            self.acks.dump(),
        )

    @classmethod
    def load(cls, key: str, dump: QueueDump, in_flight: dict[str, int], recent: Recent | None = None) -> Queue:
        queue = cls(QueueOpened(key, dump.group, dump.topic_id, dump.partition, dump.front), in_flight, recent)
        queue.lanes = {each.lane: Lane.load(each) for each in dump.lanes}
        queue.next_lease = dump.next_lease
        queue.moving = dict(dump.moving)
        queue.acks.load(dump.acks)
        firsts: dict[int, int] = {}
        for each in dump.batches:
            # They come sorted, so what is left of a lease begins with its first; what it had at first may begin before.
            first = firsts.setdefault(each.lease, each.first)
            bits = to_bits(each.runs, first, SPAN)
            whole = bits if each.whole == [] else bits_of(each.whole or [first, first + SPAN], first, SPAN)
            queue._put(InFlightBatch(each.lease, first, bits, whole, each.count, each.member, each.at_ns, each.error))
        return queue


def _count(counts: dict[str, int], member: str, more: int) -> None:
    """Those who have nothing are not kept."""
    left = counts.get(member, 0) + more
    if left:
        counts[member] = left
    else:
        counts.pop(member, None)


def total(parts: Parts) -> int:
    return sum(size_of(runs) for _, runs in parts)
