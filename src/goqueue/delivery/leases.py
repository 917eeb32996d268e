"""Messages of a queue that were delivered and are not done: in flight, or waiting for a retry, by lease.

The heap of times and the lanes' ready lists are indexes over the batches; both are rebuilt from a snapshot.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterator
from itertools import count

from msgspec.structs import replace

from goqueue.delivery.events import Parts
from goqueue.delivery.in_flight_batch import HOLDER_PREFIX, READY, SPAN, InFlightBatch, InFlightBatchDump
from goqueue.delivery.lane_cursors import LaneCursors
from goqueue.model.runs import Runs, bits_of, packed, to_bits

_LANES_PER_LEASE = 8
_SPAN_MASK = (1 << SPAN) - 1
_STALE_ALLOWED = 1_024
"""The heap of times is searched for entries that are out of date only when it is longer than this."""


def lane_of(lease: int) -> int:
    """The lane of a lease, which is part of its number: a message that is delivered again stays in its lane."""
    return lease % _LANES_PER_LEASE


def lease_in(number: int, lane: int) -> int:
    return number * _LANES_PER_LEASE + lane


class Leases:
    """The in-flight batches of one queue, linked by lease.

    ``in_flight`` counts messages by member over all queues of the group, and is kept up to date here.
    """

    def __init__(self, lanes: LaneCursors, in_flight: dict[str, int]) -> None:
        self.next_number = 1
        """The number of the next lease, before its lane is added."""
        self.outstanding = 0
        """How many messages are in batches."""
        self._heads: dict[int, InFlightBatch] = {}
        self._lanes = lanes
        self._in_flight = in_flight
        self._in_hand: dict[str, int] = {}
        self._times: list[tuple[int, int, InFlightBatch]] = []
        self._most_times = _STALE_ALLOWED
        self._tie = count()

    # Looking

    @property
    def in_flight(self) -> int:
        """How many messages members have in flight."""
        return sum(self._in_hand.values())

    def in_hand(self, member: str) -> int:
        """How many messages this member has in flight."""
        return self._in_hand.get(member, 0)

    def has(self, lease: int) -> bool:
        return lease in self._heads

    def head(self, lease: int) -> InFlightBatch | None:
        """The first batch of a lease; all of the lease's batches have the same ``first`` and ``whole``."""
        return self._heads.get(lease)

    def batches(self, lease: int | None = None) -> Iterator[InFlightBatch]:
        """The batches of one lease, or of all."""
        for head in self._heads.values() if lease is None else [self._heads.get(lease)]:
            batch = head
            while batch is not None:
                if batch.bits:
                    yield batch
                batch = batch.next

    def issued_since(self, number: int, lane: int) -> list[InFlightBatch]:
        """What new leases of a lane have, from the one with ``number`` on."""
        return [batch for each in range(number, self.next_number) for batch in self.batches(lease_in(each, lane))]

    def find(self, lease: int, offset: int) -> InFlightBatch | None:
        """The batch of this lease with a message, unless that was settled or delivered again."""
        batch = self._heads.get(lease)
        while batch is not None:
            if offset >= batch.first and batch.bits >> (offset - batch.first) & 1:
                return batch
            batch = batch.next
        return None

    def next_time_ns(self) -> int | None:
        """When the next visibility timeout ends or retry is due."""
        while self._times:
            at_ns, _, batch = self._times[0]
            if batch.bits and batch.at_ns == at_ns:
                return at_ns
            heapq.heappop(self._times)
        return None

    def ripen(self, now_ns: int) -> list[InFlightBatch]:
        """Make retries ready that are due by now, and return the batches whose visibility timeout is over."""
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

    # Changing

    def add(self, runs: Runs, times: int, member: str, until_ns: int, lane: int) -> None:
        """New leases for messages that are delivered for the ``times``-th time, each lease within its span."""
        at = 0
        while at < len(runs):
            first = runs[at]
            # Runs that begin within the span of this one's first; the last of them may reach beyond it.
            end = bisect_left(runs, first + SPAN, at)
            end += end % 2
            lease = lease_in(self.next_number, lane)
            self.next_number += 1
            bits = to_bits(runs[at:end], first, SPAN)
            self.put(InFlightBatch(lease, first, bits, bits, times, member, until_ns))
            if runs[end - 1] > first + SPAN:
                runs = [first + SPAN, *runs[end - 1 :]]
                at = 0
            else:
                at = end

    def add_bits(self, first: int, bits: int, member: str, until_ns: int, lane: int) -> None:
        """The same for messages that are delivered for the first time, as bits from ``first`` on."""
        while bits:
            lease = lease_in(self.next_number, lane)
            self.next_number += 1
            some = bits & _SPAN_MASK
            self.put(InFlightBatch(lease, first, some, some, 1, member, until_ns))
            bits >>= SPAN
            zeros = (bits & -bits).bit_length() - 1 if bits else 0
            bits >>= zeros
            first += SPAN + zeros

    def put(self, batch: InFlightBatch) -> None:
        """Add a batch that is in no list."""
        lease, member, at_ns = batch.lease, batch.member, batch.at_ns
        head = self._heads.setdefault(lease, batch)
        if head is not batch:
            # Behind the first: most are taken from what is left of the whole, which is found at once there.
            batch.next, head.next = head.next, batch
        size = batch.bits.bit_count()
        self.outstanding += size
        self._lanes.open(lane_of(lease)).outstanding += size
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
        self._lanes.open(lane_of(batch.lease)).ready.append(batch)

    def take(self, parts: Parts) -> list[InFlightBatch]:
        """Take messages out of their batches, and return them as batches of their own that are in no list."""
        taken = []
        for lease, runs in parts:
            before: InFlightBatch | None = None
            batch = self._heads.get(lease)
            asked = 0 if batch is None else bits_of(runs, batch.first, SPAN)
            while batch is not None and asked:
                bits = batch.bits & asked
                if bits:
                    asked &= ~bits
                    taken.append(replace(batch, bits=bits, next=None))
                    self._remove(batch, bits)
                if batch.bits:
                    before = batch
                else:
                    self._unlink(batch, before)
                batch = batch.next
        return taken

    def _unlink(self, batch: InFlightBatch, before: InFlightBatch | None) -> None:
        """Remove an empty batch from its lease, and the lease with its last batch."""
        if before is not None:
            before.next = batch.next
        elif batch.next is not None:
            self._heads[batch.lease] = batch.next
        else:
            del self._heads[batch.lease]

    def _remove(self, batch: InFlightBatch, bits: int) -> None:
        batch.bits &= ~bits
        size = bits.bit_count()
        self.outstanding -= size
        lane = self._lanes.by_number.get(lane_of(batch.lease))
        if lane is not None:
            lane.outstanding -= size
        if batch.member is not None:
            _count(self._in_flight, batch.member, -size)
            _count(self._in_hand, batch.member, -size)

    def forget(self, low: int, high: int | None) -> None:
        """Drop messages from ``low`` to before ``high``, or to the end."""
        for lease, head in list(self._heads.items()):
            self.take([(lease, [low, head.first + SPAN if high is None else max(low, high)])])

    # Snapshots

    def dump(self) -> list[InFlightBatchDump]:
        """In one order for one state, whatever events led to it."""
        return sorted(
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

    def load(self, dump: list[InFlightBatchDump]) -> None:
        firsts: dict[int, int] = {}
        for each in dump:
            # They come sorted, so what is left of a lease begins with its first; what it had at first may begin before.
            first = firsts.setdefault(each.lease, each.first)
            bits = to_bits(each.runs, first, SPAN)
            whole = bits if each.whole == [] else bits_of(each.whole or [first, first + SPAN], first, SPAN)
            is_frozen = each.member is not None and each.member.startswith(HOLDER_PREFIX)
            self.put(
                InFlightBatch(
                    each.lease, first, bits, whole, each.count, each.member, each.at_ns, each.error, is_frozen
                )
            )


def _count(counts: dict[str, int], member: str, more: int) -> None:
    """Members that have nothing in flight are not kept."""
    left = counts.get(member, 0) + more
    if left:
        counts[member] = left
    else:
        counts.pop(member, None)
