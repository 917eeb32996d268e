"""One group's view of one partition: what is done, in flight, waiting for another try, or being moved elsewhere.

Only ``apply`` changes it, by an event; everything else looks. Indexes (the heap of times, the ready list) follow from
the state.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import count

import msgspec

from goqueue.delivery.acked import AckedDump, AckedOffsets
from goqueue.delivery.events import (
    Acked,
    AnyQueueEvent,
    Committed,
    CutTo,
    Delivered,
    Dropped,
    Extended,
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
from goqueue.delivery.keyed import KeyOrder
from goqueue.delivery.parcel import READY, SPAN, Parcel, ParcelDump
from goqueue.model.runs import Runs, bits_to_runs, offsets_in, pairs, size_of, to_bits

_STALE_ALLOWED = 1_024
"""How many entries the heap of times may have before anyone looks for those that are of no use any more."""


class Move(msgspec.Struct, frozen=True, array_like=True):
    """A message that is on its way to another topic."""

    count: int
    reason: str
    target: Target


class QueueDump(msgspec.Struct, frozen=True):
    """As it goes into a snapshot."""

    group: str
    topic_id: str
    partition: int
    cursor: int
    next_lease: int
    acked: AckedDump
    parcels: list[ParcelDump]
    moving: dict[int, Move]


class Queue:
    """Each offset below ``cursor`` is done, in a parcel, moving, or parked until its key is free."""

    def __init__(self, opened: QueueOpened, in_flight: dict[str, int]) -> None:
        self.key = opened.q
        self.group = opened.group
        self.topic_id = opened.topic_id
        self.partition = opened.partition
        self.cursor = opened.start
        self.acked = AckedOffsets(opened.start)
        self.outstanding = 0
        """How many messages are in parcels."""
        self.moving: dict[int, Move] = {}
        self.keys: KeyOrder | None = None
        self.next_lease = 1
        self._leases: dict[int, Parcel] = {}
        self._in_flight = in_flight
        self._in_hand: dict[str, int] = {}
        self._times: list[tuple[int, int, Parcel]] = []
        self._most_times = _STALE_ALLOWED
        self._ready: deque[Parcel] = deque()
        self._tie = count()

    # Looking

    @property
    def committed(self) -> int:
        """The end of the prefix that is done."""
        return self.acked.prefix

    def lag(self, log_start: int, high_watermark: int) -> int:
        """How many messages are not done."""
        return max(0, high_watermark - max(self.acked.prefix, log_start) - self.acked.above_from(log_start))

    @property
    def in_flight(self) -> int:
        """How many messages members have in hand."""
        return sum(self._in_hand.values())

    def in_hand(self, member: str) -> int:
        """How many of them this member has."""
        return self._in_hand.get(member, 0)

    @property
    def parked(self) -> int:
        """How many offsets below the cursor are neither done nor held: they wait until their key is free."""
        acked = self.acked
        if self.cursor <= acked.prefix:
            return 0
        done = acked.above - (acked.above_from(self.cursor) if acked.end > self.cursor else 0)
        moving = sum(acked.prefix <= offset < self.cursor for offset in self.moving)
        return self.cursor - acked.prefix - done - self.outstanding - moving

    def parcels(self, lease: int | None = None) -> Iterator[Parcel]:
        for head in self._leases.values() if lease is None else [self._leases.get(lease)]:
            parcel = head
            while parcel is not None:
                if parcel.bits:
                    yield parcel
                parcel = parcel.next

    def find(self, lease: int, offset: int) -> Parcel | None:
        """The parcel that a message of this lease lies in, if it was neither settled nor delivered again."""
        parcel = self._leases.get(lease)
        while parcel is not None:
            if offset >= parcel.first and parcel.bits >> (offset - parcel.first) & 1:
                return parcel
            parcel = parcel.next
        return None

    def ready(self) -> Iterator[Parcel]:
        """What may be delivered again now, first come first served."""
        while self._ready and not _is_ready(self._ready[0]):
            self._ready.popleft()
        return (parcel for parcel in self._ready if _is_ready(parcel))

    @property
    def has_ready(self) -> bool:
        return next(self.ready(), None) is not None or (self.keys is not None and self.keys.has_ready)

    def next_time_ns(self) -> int | None:
        """When something expires or becomes ready next."""
        while self._times:
            at_ns, _, parcel = self._times[0]
            if parcel.bits and parcel.at_ns == at_ns:
                return at_ns
            heapq.heappop(self._times)
        return None

    def ripen(self, now_ns: int) -> list[Parcel]:
        """Time has come so far: waiting messages become ready. Return the parcels in flight whose time is up."""
        expired = []
        while (at_ns := self.next_time_ns()) is not None and at_ns <= now_ns:
            parcel = heapq.heappop(self._times)[2]
            if parcel.member is None:
                self._make_ready(parcel)
            else:
                expired.append(parcel)
        for parcel in expired:
            # Until an event takes it out: if the journal cannot be written just now, its time must come again.
            heapq.heappush(self._times, (parcel.at_ns, next(self._tie), parcel))
        return expired

    def delivered_below(self, offset: int) -> Parts:
        """Everything that was delivered below ``offset`` and is not done."""
        found: Parts = []
        for parcel in self.parcels():
            bits = parcel.among([parcel.first, offset])
            if bits:
                found.append((parcel.lease, bits_to_runs(parcel.first, bits)))
        return found

    def held(self) -> set[int]:
        """Offsets that are in a parcel or moving."""
        found = set(self.moving)
        for parcel in self.parcels():
            for first, end in pairs(parcel.runs):
                found.update(range(first, end))
        return found

    # Changing

    def apply(self, event: AnyQueueEvent) -> None:
        match event:
            case Delivered():
                self._deliver(event)
            case Redelivered(_, parts, member, until_ns):
                for taken in self._take(parts):
                    self._lease(taken.runs, taken.count + 1, member, until_ns)
            case Acked(_, parts):
                for taken in self._take(parts):
                    self._done(taken.runs)
            case Returned(_, parts, at_ns, error):
                for taken in self._take(parts):
                    self._put(taken.lease, taken.first, taken.bits, taken.count, None, at_ns, error)
            case Released(_, parts):
                for taken in self._take(parts):
                    self._put(taken.lease, taken.first, taken.bits, taken.count - 1, None, READY, taken.error)
            case Extended(_, parts, until_ns):
                for taken in self._take(parts):
                    self._put(taken.lease, taken.first, taken.bits, taken.count, taken.member, until_ns, taken.error)
            case Moving():
                self._move(event)
            case Moved(_, runs):
                for offset in offsets_in(runs):
                    self.moving.pop(offset, None)
                self._done(runs)
            case Committed(_, offset):
                self.acked.reset(offset)
                self.cursor = offset
            case Dropped(_, start):
                self._forget(0, start)
                self._done([0, start])
                self.cursor = max(self.cursor, start)
            case ResetTo(_, offset):
                self._forget(0, None)
                self.acked.reset(offset)
                self.cursor = offset
                self.keys = None
            case CutTo(_, end):
                self._forget(end, None)
                for offset in [each for each in self.moving if each >= end]:
                    del self.moving[offset]
                self.acked.cut(end)
                self.cursor = min(self.cursor, end)
                self.keys = None

    def close(self) -> None:
        """Nothing is in flight any more."""
        self._forget(0, None)

    def _deliver(self, event: Delivered) -> None:
        self._done(event.skipped)
        self._lease(event.runs, 1, event.member, event.until_ns)
        self.cursor = max(self.cursor, event.upto)

    def _lease(self, runs: Runs, times: int, member: str, until_ns: int) -> None:
        """New leases, each within its span."""
        held: Runs = []
        for first, end in pairs(runs):
            while first < end:
                if held and first >= held[0] + SPAN:
                    self._lease_one(held, times, member, until_ns)
                    held = []
                part_end = min(end, (held[0] if held else first) + SPAN)
                held += (first, part_end)
                first = part_end
        if held:
            self._lease_one(held, times, member, until_ns)

    def _lease_one(self, runs: Runs, times: int, member: str, until_ns: int) -> None:
        lease = self.next_lease
        self.next_lease += 1
        self._put(lease, runs[0], to_bits(runs, runs[0], SPAN), times, member, until_ns, "")

    def _put(self, lease: int, first: int, bits: int, times: int, member: str | None, at_ns: int, error: str) -> None:
        parcel = Parcel(lease, first, bits, times, member, at_ns, error)
        head = self._leases.setdefault(lease, parcel)
        if head is not parcel:
            # Behind the first: most are taken from what is left of the whole, which is found at once there.
            parcel.next, head.next = head.next, parcel
        size = bits.bit_count()
        self.outstanding += size
        if member is not None:
            _count(self._in_flight, member, size)
            _count(self._in_hand, member, size)
        if at_ns == READY and member is None:
            self._make_ready(parcel)
        else:
            heapq.heappush(self._times, (at_ns, next(self._tie), parcel))
            if len(self._times) > self._most_times:
                self._times = [entry for entry in self._times if entry[2].bits and entry[2].at_ns == entry[0]]
                heapq.heapify(self._times)
                self._most_times = 2 * len(self._times) + _STALE_ALLOWED

    def _make_ready(self, parcel: Parcel) -> None:
        parcel.at_ns = READY
        self._ready.append(parcel)

    def _take(self, parts: Parts) -> list[Parcel]:
        """Take messages out of their parcels; return them as parcels of their own, which are in no list."""
        taken = []
        for lease, runs in parts:
            before: Parcel | None = None
            parcel = self._leases.get(lease)
            asked = 0 if parcel is None else to_bits(runs, parcel.first, SPAN)
            while parcel is not None and asked:
                bits = parcel.bits & asked
                if bits:
                    asked &= ~bits
                    taken.append(
                        Parcel(lease, parcel.first, bits, parcel.count, parcel.member, parcel.at_ns, parcel.error)
                    )
                    self._remove(parcel, bits)
                if parcel.bits:
                    before = parcel
                else:
                    self._unlink(parcel, before)
                parcel = parcel.next
        return taken

    def _unlink(self, parcel: Parcel, before: Parcel | None) -> None:
        """An empty parcel leaves its lease; the lease goes with its last."""
        if before is not None:
            before.next = parcel.next
        elif parcel.next is not None:
            self._leases[parcel.lease] = parcel.next
        else:
            del self._leases[parcel.lease]

    def _remove(self, parcel: Parcel, bits: int) -> None:
        parcel.bits &= ~bits
        size = bits.bit_count()
        self.outstanding -= size
        if parcel.member is not None:
            _count(self._in_flight, parcel.member, -size)
            _count(self._in_hand, parcel.member, -size)

    def _forget(self, low: int, high: int | None) -> None:
        """Drop parcels' messages from ``low`` to before ``high``."""
        for lease, head in list(self._leases.items()):
            self._take([(lease, [low, head.first + SPAN if high is None else max(low, high)])])

    def _move(self, event: Moving) -> None:
        for taken in self._take(event.parts):
            move = Move(taken.count, event.reason, event.target)
            for first, end in pairs(taken.runs):
                self.moving.update(dict.fromkeys(range(first, end), move))
        if event.fresh:
            move = Move(0, event.reason, event.target)
            for first, end in pairs(event.fresh):
                self.moving.update(dict.fromkeys(range(first, end), move))

    def _done(self, runs: Runs) -> None:
        for first, end in pairs(runs):
            self.acked.add(first, end)
            if self.keys is not None:
                self.keys.release(first, end)

    # Snapshots

    def dump(self) -> QueueDump:
        # In one order for one state, whatever way led there.
        parcels = sorted(
            (
                ParcelDump(parcel.lease, parcel.runs, parcel.count, parcel.member, parcel.at_ns, parcel.error)
                for parcel in self.parcels()
            ),
            key=lambda parcel: (parcel.lease, parcel.runs),
        )
        return QueueDump(
            self.group,
            self.topic_id,
            self.partition,
            self.cursor,
            self.next_lease,
            self.acked.dump(),
            parcels,
            dict(self.moving),
        )

    @classmethod
    def load(cls, key: str, dump: QueueDump, in_flight: dict[str, int]) -> Queue:
        queue = cls(QueueOpened(key, dump.group, dump.topic_id, dump.partition, dump.cursor), in_flight)
        queue.acked = AckedOffsets.load(dump.acked)
        queue.next_lease = dump.next_lease
        queue.moving = dict(dump.moving)
        firsts: dict[int, int] = {}
        for each in dump.parcels:
            # They come sorted, so the first of a lease has its lowest offset.
            first = firsts.setdefault(each.lease, each.runs[0])
            bits = to_bits(each.runs, first, SPAN)
            queue._put(each.lease, first, bits, each.count, each.member, each.at_ns, each.error)
        return queue


def _is_ready(parcel: Parcel) -> bool:
    return parcel.bits != 0 and parcel.member is None and parcel.at_ns == READY


def _count(counts: dict[str, int], member: str, more: int) -> None:
    """Those who have nothing are not kept."""
    left = counts.get(member, 0) + more
    if left:
        counts[member] = left
    else:
        counts.pop(member, None)


def total(parts: Iterable[tuple[int, Runs]]) -> int:
    return sum(size_of(runs) for _, runs in parts)
