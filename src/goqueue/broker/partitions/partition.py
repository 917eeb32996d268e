"""One partition at work: appending to its log, its high watermark, reading, and readers that wait for messages.

Every record gets into a partition's log by one of the ``append`` methods. In the step of the write, with no ``await``
in between, each brings everything that follows from the log up to date: the state of producers and of delayed messages,
counters, events for traces, timers, and readers that wait. So two requests never decide on the same state, and what is
in memory is what a replay of the log would make of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from goqueue.broker.partitions.append_listeners import AppendEvents, DelayTimers
from goqueue.broker.partitions.derived_state import DerivedState
from goqueue.broker.runtime.spread_calls import SpreadCalls, wake
from goqueue.model.errors import GoQueueError, TopicNotFound
from goqueue.model.logging import get_logger
from goqueue.model.message import HIDDEN
from goqueue.model.offset_runs import OffsetRuns
from goqueue.model.topic_settings import FsyncPolicy
from goqueue.observe.rates import Rate
from goqueue.storage.log import lanes
from goqueue.storage.log.durability import Durability
from goqueue.storage.log.frame_slice import Slice
from goqueue.storage.log.lanes import LaneSlice
from goqueue.storage.log.log import Log
from goqueue.storage.log.lost import lost_frames
from goqueue.wire.batch import CheckedBatch, FrameRun, join_frames, keep_frames
from goqueue.wire.delayed import cancel_frame, reschedule_frame, set_due_times, set_single_due_time
from goqueue.wire.frame import HEADER_SIZE
from goqueue.wire.producer_frames import Marker, aborted_among, marker_frame

log = get_logger(__name__)

LATEST_DUE_NS = 7_258_118_400 * 10**9
"""The year 2200: what is due later does not fit into the arithmetic of a wheel for long."""
_FIRST = np.zeros(1, np.intp)
_FIRST.flags.writeable = False
"""The index of a message that is alone in its batch."""
_NONE = np.empty(0, np.int64)
_ON_LOOP_BYTES = 256 << 10
_LANE_ON_LOOP_BYTES = 3 << 19
"""Much of what a lane reads belongs to other lanes and is not looked at."""
_MOST_DAMAGED = 10_000


class Partition:
    """Readers see what lies below the high watermark: what is durable, or written if the topic's policy says so; and
    nothing of a transaction before it is committed."""

    def __init__(
        self,
        log: Log,
        durability: Durability,
        policy: FsyncPolicy,
        place: str,
        events: AppendEvents[Partition],
        timers: DelayTimers[Partition],
    ) -> None:
        self.log = log
        self.derived = DerivedState(log, durability, lambda: self.high_watermark)
        self.producers = self.derived.producers
        self.delays = self.derived.delays
        self.place = place
        """The topic's name and this partition's number, as traces name it."""
        self.policy: FsyncPolicy = policy
        self.damaged: set[int] = set()
        """Offsets that readers met and that fail their checksum; as many as are worth remembering."""
        self.closed = False
        self.stopping = False
        self._shown = 0
        """The high watermark when the policy was last changed: it never goes back."""
        self._durability = durability
        self._events = events
        self._timers = timers
        self._waiters: dict[asyncio.Future[None], None] = {}
        self._waking: SpreadCalls[asyncio.Future[None]] | None = None
        self._on_news: Callable[[], None] | None = None
        self.arrivals = [Rate() for _ in range(HIDDEN)]
        """Messages written since the start that readers will see, by lane."""
        self.published_bytes = 0
        """Bytes of the messages that ``arrivals`` counts."""
        self.read_messages = 0
        self.read_bytes = 0
        """Messages and bytes read by offset, without a group, since the start."""
        durability.follow(log, self.wake)

    @property
    def high_watermark(self) -> int:
        """The end of what readers may see of uncommitted transactions too, by the topic's policy."""
        return max(self.durable_end, self._shown) if self.policy == "always" else self.log.end_offset

    @property
    def durable_end(self) -> int:
        """The end of what is durable, whatever the topic's policy."""
        return self._durability.end(self.log)

    @property
    def stable_end(self) -> int:
        """Readers see what lies below, unless they ask for more: no transaction is open there."""
        first_open = self.producers.first_open
        return self.high_watermark if first_open is None else min(self.high_watermark, first_open)

    def change_policy(self, policy: FsyncPolicy) -> None:
        """Change when records count. The watermark does not go back: a message already delivered would look lost."""
        self._shown = self.high_watermark
        self.policy = policy

    # Appending

    def append(self, batch: CheckedBatch, *, is_new: bool = True, in_transaction: bool = False) -> int:
        """Write a batch of messages and return its first offset. It counts once ``acknowledge`` is done.

        Some may be delayed; of these, what is due already becomes plain. ``is_new``: they come from a producer, and not
        from another partition. In a transaction due times do not count before it is committed: what is due by then is
        seen then, and until then it is one of the delayed. If this raises, nothing has changed.
        """
        now_ns = self.log.now_ns()
        places = dues = _NONE
        if type(batch.lanes) is not int or batch.lanes == HIDDEN:
            due_ns = set_single_due_time(batch, now_ns, LATEST_DUE_NS)
            if due_ns is not None:
                places, dues = _FIRST, np.array([due_ns], np.int64)
            else:
                batch, places, dues = set_due_times(batch, now_ns, LATEST_DUE_NS)
            if len(places):
                self._timers.check_room(len(places))
        first = self._write(batch, now_ns)
        stamp = batch.producer
        if stamp is not None:
            self.producers.stored(stamp, first, batch, now_ns, is_open=in_transaction)
        if is_new:
            self._events.published(self, first, len(batch.positions), now_ns)
        if len(places):
            offsets = first + places
            if in_transaction and stamp is not None:
                self.delays.hold(stamp.producer_id, offsets, dues)
                self._timers.held(self, len(offsets))
            else:
                self.delays.added(offsets, dues)
                self._events.delayed(self, offsets, dues, now_ns)
                self._timers.added(self, offsets, dues)
        self._show()
        return first

    def append_fired(self, copies: CheckedBatch, originals: list[int], now_ns: int) -> int:
        """Write the plain records that delayed messages become when they are due; return the offset of the first.

        ``originals`` are the offsets of the delayed messages, in the order of ``copies``.
        """
        first = self._write(copies, now_ns)
        self.delays.ended(np.array(originals, np.int64))
        self._events.fired(self, originals, first, now_ns)
        self._show()
        return first

    def append_cancel(self, offset: int) -> int:
        """Write that a delayed message will never be seen; return the offset behind that record."""
        now_ns = self.log.now_ns()
        first = self._write(join_frames([cancel_frame(offset, now_ns)], now_ns), now_ns)
        self.delays.ended(np.array([offset], np.int64))
        self._events.delay_changed(self, offset, None, now_ns)
        self._show()
        return first + 1

    def append_reschedule(self, offset: int, due_ns: int) -> int:
        """Write that a delayed message is due at another time; return the offset behind that record."""
        now_ns = self.log.now_ns()
        first = self._write(join_frames([reschedule_frame(offset, due_ns, now_ns)], now_ns), now_ns)
        self.delays.rescheduled(offset, due_ns)
        self._events.delay_changed(self, offset, due_ns, now_ns)
        self._timers.set_due(self, np.array([offset], np.int64), np.array([due_ns], np.int64))
        self._show()
        return first + 1

    def append_marker(self, marker: Marker, reason: str = "") -> int:
        """End a producer's transaction here; return the offset behind the marker. ``reason``: why it was aborted.

        What it has written is seen from now on, or never; what it has delayed waits from now on, or never did.
        """
        now_ns = self.log.now_ns()
        first = self._write(join_frames([marker_frame(marker, now_ns)], now_ns), now_ns)
        records = self.producers.ended(marker)
        if records is not None:
            self._events.transaction_ended(self, records, now_ns, is_commit=marker.is_commit, reason=reason)
        offsets, dues = self.delays.end_hold(marker.producer_id, is_commit=marker.is_commit)
        if marker.is_commit and len(offsets):
            self._events.delayed(self, offsets, dues, now_ns)
            self._timers.set_due(self, offsets, dues)
        self.wake()
        return first + 1

    def _write(self, batch: CheckedBatch, now_ns: int) -> int:
        first = self.log.append(batch)
        self._count(batch, now_ns)
        return first

    def _show(self) -> None:
        """Wake readers, unless they see nothing of what was written before it is durable."""
        if self.policy != "always":
            self.wake()

    def _count(self, batch: CheckedBatch, now_ns: int) -> None:
        of_batch = batch.lanes
        if isinstance(of_batch, int):
            if of_batch != HIDDEN:
                self.arrivals[of_batch].add(len(batch.positions), now_ns)
                self.published_bytes += len(batch.frames)
            return
        left = len(batch.positions)
        for lane, count in enumerate(np.bincount(of_batch, minlength=HIDDEN)[:HIDDEN].tolist()):
            if count:
                self.arrivals[lane].add(count, now_ns)
                left -= count
        self.published_bytes += len(batch.frames) - (_size_of(batch, of_batch == HIDDEN) if left else 0)

    def cut(self, end: int) -> Iterator[None]:
        """The log ends there now: everything that follows from it goes back to what it was there, in stretches, before
        anything is appended again."""
        yield from self.producers.cut(end)
        offsets, dues = yield from self.delays.cut(end)
        if len(offsets):
            self._timers.set_due(self, offsets, dues)
        self.damaged = {each for each in self.damaged if each < end}

    def acknowledge(self, end_offset: int) -> asyncio.Future[None]:
        """Done when what lies below ``end_offset`` is as durable as promised. Asked for by the call itself."""
        return self._durability.reached(self.log, end_offset if self.policy == "always" else 0)

    def durable(self, end_offset: int) -> asyncio.Future[None]:
        """Done when what lies below ``end_offset`` is durable, whatever the topic's policy."""
        return self._durability.reached(self.log, end_offset)

    def reason(self, error: GoQueueError) -> GoQueueError:
        """The error to answer a failed write with: if the topic was deleted, that, and no failure of the disk."""
        return _deleted() if self.closed else error

    # Reading

    async def read(
        self, offset: int, max_bytes: int, max_messages: int, limit: int | None = None
    ) -> tuple[FrameRun | None, int]:
        """Frames from ``offset`` on, and the offset to go on from. ``None``: there is nothing below the limit, which
        is the end of what is stable unless it is given."""
        if self.closed:
            raise _deleted()
        limit = self.stable_end if limit is None else limit
        lost = self.log.lost.next_open(offset)
        is_near = lost is not None and lost.first < limit
        stop = max(offset, lost.first) if lost is not None and is_near else limit
        found = self.log.locate(offset, max_bytes, max_messages, stop)
        if found is not None:
            return await self.load(found, offset), min(found.next_offset, stop) if is_near else found.next_offset
        if lost is not None and is_near and stop < limit:
            end = min(lost.end, limit, stop + max(1, min(max_messages, max_bytes // HEADER_SIZE)))
            return lost_frames(lost, stop, end), end
        # Offsets that compaction has emptied, up to the limit, are not worth asking for again.
        return None, max(offset, limit)

    async def load(self, found: Slice | LaneSlice, offset: int, on_loop_bytes: int = _ON_LOOP_BYTES) -> FrameRun:
        """Read what was found from ``offset`` on: in a thread, unless it is small and was written lately."""
        if self.log.is_active(offset) and found.size <= on_loop_bytes:
            run = found.load()
        else:
            run = await asyncio.to_thread(found.load)
        if run.misplaced:
            self.note_damage(list(run.misplaced))
        return run

    async def read_lane(self, lane: int, offset: int, max_bytes: int, max_messages: int) -> tuple[FrameRun | None, int]:
        """The next frames of one lane that readers see, and the offset behind the last that was looked at."""
        if self.closed:
            raise _deleted()
        limit = self.stable_end
        at = offset
        while True:
            at = max(at, self.log.start_offset)
            # What was aborted lies in lanes like everything else.
            at = max(at, self.producers.state.aborted.end_of(at))
            found = lanes.locate(self.log, lane, at, max_bytes, max_messages, limit)
            if found is None:
                return None, max(offset, limit)
            # As of now: a compaction that ends while the old files are read forgets what it has removed.
            aborted = self.producers.state.aborted
            run = _without(aborted, await self.load(found, at, _LANE_ON_LOOP_BYTES))
            if run is not None:
                return run, found.next_offset
            if self.closed:
                raise _deleted()
            at = found.next_offset

    def next_visible(self, offset: int, most_steps: int = 1 << 30) -> int:
        """``offset``, or the next behind it that a reader may see; after so many steps, as far as it was looked."""
        limit, aborted = self.stable_end, self.producers.state.aborted
        while most_steps > 0 and not self.closed and self.log.start_offset <= offset < limit:
            most_steps -= 1
            lost = self.log.lost.next_open(offset)
            at = min(lanes.next_visible(self.log, offset, limit), limit)
            if lost is not None and lost.first < at:
                # Readers are to meet it.
                return max(offset, lost.first)
            offset = at
            behind = aborted.end_of(offset)
            if behind == offset:
                break
            offset = min(behind, limit)
        return offset

    def note_damage(self, offsets: list[int]) -> None:
        new = {each for each in offsets if not self.log.lost.covers(each)} - self.damaged
        if new and len(self.damaged) < _MOST_DAMAGED:
            self.damaged |= new
            log.error("messages fail their checksum", folder=str(self.log.folder), offsets=sorted(new)[:20])

    def note_read(self, messages: int, size_bytes: int) -> None:
        """Count what was read by offset, without a group."""
        self.read_messages += messages
        self.read_bytes += size_bytes

    def has_news(self, offset: int, *, uncommitted: bool = False) -> bool:
        """Whether waiting for what comes at ``offset`` is over: it is there, nothing will come any more, or the log was
        cut before it."""
        end = self.high_watermark if uncommitted else self.stable_end
        return end > offset or self.closed or self.stopping or offset > self.log.end_offset

    def add_waiter(self, waiter: asyncio.Future[None]) -> None:
        """``waiter`` is done when there may be news. The caller must ``remove_waiter`` in any case."""
        self._waiters[waiter] = None

    def remove_waiter(self, waiter: asyncio.Future[None]) -> None:
        self._waiters.pop(waiter, None)

    def wake(self) -> None:
        """Have every waiting reader look again."""
        if self._waiters:
            waiters, self._waiters = self._waiters, {}
            if self._waking is None:
                self._waking = SpreadCalls(wake)
            self._waking.add(waiters)
        if self._on_news is not None:
            self._on_news()

    def watch(self, on_news: Callable[[], None] | None) -> None:
        """Call ``on_news`` whenever waiting readers are woken, in place of what was called until now."""
        self._on_news = on_news

    def stop_waiting(self) -> None:
        """Wake all readers; from now on none waits for messages here."""
        self.stopping = True
        self.wake()

    def close(self) -> None:
        self.closed = True
        self.wake()
        self._durability.unfollow(self.log)
        self.log.close()


def _without(aborted: OffsetRuns, run: FrameRun) -> FrameRun | None:
    """What is left of frames that were read without those that were aborted."""
    hidden = aborted_among(aborted, run) if len(aborted) else None
    if hidden is None or not hidden.any():
        return run
    return None if hidden.all() else keep_frames(run, ~hidden)


def _size_of(batch: CheckedBatch, chosen: NDArray[np.bool_]) -> int:
    """How many bytes some of a batch's messages take."""
    return int(np.diff(batch.positions.astype(np.int64), append=len(batch.frames))[chosen].sum())


def _deleted() -> TopicNotFound:
    return TopicNotFound("the topic was deleted")
