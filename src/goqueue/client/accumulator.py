"""Messages that wait for their batch: one queue a partition, one batch of it under way.

Order within a partition is kept because the next batch leaves only when the one before is settled, retries included.
While it is under way the queue grows, so batches grow with the load. (When producers are idempotent the broker will be
able to put batches in order by itself, and several may be under way: this is the place for it.)
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from goqueue.client.backoff import Backoff
from goqueue.client.config import ProducerConfig
from goqueue.model.errors import (
    ClientClosed,
    DeliveryTimeout,
    GoQueueError,
    InternalError,
    InvalidMessage,
    SchemaViolation,
    TooManyDelayed,
)
from goqueue.model.logging import get_logger
from goqueue.wire.batch import MAX_BATCH_BYTES, FrameRun, join_frames
from goqueue.wire.proto import goqueue_pb2 as pb

log = get_logger(__name__)

Deliver = Callable[[bytes], Awaitable[pb.Stored]]
"""Stores a batch in its envelope and returns where."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Where the messages of a parcel are, and when each will be seen, if any is delayed (0: at once)."""

    offsets: Sequence[int]
    dues: Sequence[int] | None = None
    failures: Mapping[int, BaseException] = field(default_factory=dict)
    """By place: those that are not stored. Their offsets mean nothing."""

    def due(self, place: int) -> int | None:
        return (self.dues[place] or None) if self.dues is not None else None


@dataclass(slots=True, eq=False)
class Parcel:
    """Frames that are acknowledged together; ``done`` tells where they are. At most a batch, unless it is one frame.

    If all have failed for the same reason, ``done`` raises it; if only some have, it tells which.
    """

    frames: list[bytes]
    size: int
    deadline: float
    done: asyncio.Future[Stored]


Part = tuple[Sequence[int], Parcel]
"""Some frames of a parcel: which, and on their own."""


class PartitionQueue:
    """``released`` is told of every byte that no longer waits."""

    def __init__(
        self,
        config: ProducerConfig,
        deliver: Deliver,
        backoff: Callable[[], Backoff],
        released: Callable[[int], None],
    ) -> None:
        self._config = config
        self._deliver = deliver
        self._make_backoff = backoff
        self._released = released
        self._parcels: deque[Parcel] = deque()
        self._under_way: list[Parcel] = []
        self._messages = 0
        self._bytes = 0
        self._leave_at: float | None = None
        self._ready = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._last_error: GoQueueError | None = None

    def put(self, parcel: Parcel) -> None:
        loop = asyncio.get_running_loop()
        self._parcels.append(parcel)
        self._messages += len(parcel.frames)
        self._bytes += parcel.size
        if self._is_full() or not self._config.linger_ms:
            self._ready.set()
        elif self._leave_at is None:
            self._leave_at = loop.time() + self._config.linger_ms / 1_000
        if self._pump is None:
            self._pump = loop.create_task(self._run())
        if self._expiry is None:
            self._expiry = loop.call_at(parcel.deadline, self._expire)

    @property
    def unsettled_messages(self) -> int:
        return sum(len(parcel.frames) for parcel in (*self._under_way, *self._parcels) if not parcel.done.done())

    def is_sticky(self) -> bool:
        """Whether a keyless message should still join what waits here."""
        return bool(self._parcels) and not self._is_full()

    def hurry(self) -> asyncio.Future[Stored] | None:
        """Let what waits leave now; when the future is done, everything put so far is settled."""
        if self._parcels:
            self._ready.set()
            return self._parcels[-1].done
        return self._under_way[-1].done if self._under_way else None

    async def close(self) -> None:
        """Give up what is not settled."""
        if self._expiry is not None:
            self._expiry.cancel()
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)

    def _is_full(self) -> bool:
        return self._messages >= self._config.batch_messages or self._bytes >= self._config.batch_bytes

    async def _run(self) -> None:
        reason: GoQueueError = ClientClosed("the producer was closed before the message was acknowledged")
        try:
            while self._parcels:
                await self._wait_until_it_leaves()
                self._under_way = self._take()
                await self._settle(self._under_way, self._make_backoff())
                self._under_way = []
        except Exception as defect:
            log.exception("a producer's batch failed in a way that was not foreseen")
            reason = InternalError(f"the producer failed: {defect!r}")
        finally:
            self._fail([*self._under_way, *self._parcels], reason)
            self._under_way = []
            self._parcels.clear()
            self._messages = self._bytes = 0
            self._pump = None

    async def _wait_until_it_leaves(self) -> None:
        if self._leave_at is not None and not self._ready.is_set():
            try:
                async with asyncio.timeout_at(self._leave_at):
                    await self._ready.wait()
            except TimeoutError:
                pass
        self._ready.clear()
        self._leave_at = None

    def _take(self) -> list[Parcel]:
        """Everything that waits, as far as one batch holds it."""
        taken: list[Parcel] = []
        size = 0
        while self._parcels and (not taken or size + self._parcels[0].size <= MAX_BATCH_BYTES):
            taken.append(self._pop())
            size += taken[-1].size
        if self._parcels:
            self._ready.set()
        return taken

    def _pop(self) -> Parcel:
        parcel = self._parcels.popleft()
        self._messages -= len(parcel.frames)
        self._bytes -= parcel.size
        return parcel

    async def _settle(self, parcels: list[Parcel], backoff: Backoff) -> None:
        """Deliver, trying again while it makes sense; every parcel is done afterwards."""
        while parcels:
            batch = join_frames([frame for parcel in parcels for frame in parcel.frames], 0)
            try:
                # Those whose time is up earlier are told by the timer; the attempt goes on for the others.
                async with asyncio.timeout_at(parcels[-1].deadline):
                    stored = await self._deliver(FrameRun(memoryview(batch.frames), batch.positions).to_wire())
            except TimeoutError:
                self._fail(parcels, self._too_late())
                return
            except SchemaViolation as error:
                await self._settle_fitting(parcels, error, backoff)
                return
            except (InvalidMessage, TooManyDelayed) as error:
                await self._settle_apart(parcels, error, backoff)
                return
            except GoQueueError as error:
                parcels = await self._after_failure(parcels, error, backoff)
            else:
                at, first, dues = 0, stored.first_offset, list(stored.deliver_at_ns)
                for parcel in parcels:
                    end = at + len(parcel.frames)
                    self._succeed(parcel, Stored(range(first + at, first + end), dues[at:end] or None))
                    at = end
                return

    async def _settle_fitting(self, parcels: list[Parcel], error: SchemaViolation, backoff: Backoff) -> None:
        """The broker has told which messages do not fit: these fail, and the others go once more."""
        left: list[Parcel] = []
        broken: list[tuple[Parcel, list[Part], dict[int, BaseException]]] = []
        at = 0
        for parcel in parcels:
            count = len(parcel.frames)
            failures: dict[int, BaseException] = {
                place: SchemaViolation(error.misfits[at + place])
                for place in range(count)
                if at + place in error.misfits
            }
            at += count
            if not failures:
                left.append(parcel)
                continue
            parts: list[Part] = []
            if places := [place for place in range(count) if place not in failures]:
                parts.append((places, self._part_of(parcel, places)))
                left.append(parts[0][1])
            broken.append((parcel, parts, failures))
        if not broken:
            # It has told of none of these.
            await self._settle_apart(parcels, error, backoff)
            return
        if left:
            await self._settle(left, backoff)
        for parcel, parts, failures in broken:
            self._finish(parcel, parts, failures)

    async def _settle_apart(self, parcels: list[Parcel], error: GoQueueError, backoff: Backoff) -> None:
        """One bad message must not take its neighbours with it: try the halves, down to the bad one."""
        if len(parcels) > 1:
            half = len(parcels) // 2
            await self._settle(parcels[:half], backoff)
            await self._settle(parcels[half:], backoff)
            return
        (parcel,) = parcels
        count = len(parcel.frames)
        if count == 1:
            self._fail(parcels, error)
            return
        halves = (range(count // 2), range(count // 2, count))
        parts: list[Part] = [(places, self._part_of(parcel, places)) for places in halves]
        for _, part in parts:
            await self._settle([part], backoff)
        self._finish(parcel, parts, {})

    def _part_of(self, parcel: Parcel, places: Sequence[int]) -> Parcel:
        """Some frames of a parcel on their own. The bytes are released with the whole."""
        frames = [parcel.frames[place] for place in places]
        return Parcel(frames, 0, parcel.deadline, asyncio.get_running_loop().create_future())

    def _finish(self, parcel: Parcel, parts: list[Part], failures: dict[int, BaseException]) -> None:
        """Tell of a parcel what became of its parts, which are settled, and of those that failed before."""
        stored = _put_together(len(parcel.frames), parts, failures)
        reasons = list({id(each): each for each in stored.failures.values()}.values())
        if len(stored.failures) == len(parcel.frames) and len(reasons) == 1:
            self._fail([parcel], reasons[0])
        else:
            self._succeed(parcel, stored)

    async def _after_failure(self, parcels: list[Parcel], error: GoQueueError, backoff: Backoff) -> list[Parcel]:
        """What is left to try again, after a pause."""
        if not error.retriable:
            self._fail(parcels, error)
            return []
        self._last_error = error
        pause_s = backoff.next_s(error.retry_after_s)
        earliest = asyncio.get_running_loop().time() + pause_s
        self._fail([parcel for parcel in parcels if parcel.deadline <= earliest], self._too_late())
        left = [parcel for parcel in parcels if parcel.deadline > earliest]
        if left:
            await asyncio.sleep(pause_s)
        return left

    def _expire(self) -> None:
        """Fail what has waited too long: it may wait behind a batch that has more time, or in it."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        late = [parcel for parcel in self._under_way if parcel.deadline <= now and not parcel.done.done()]
        for parcel in late:
            # Its bytes are still being sent, so they are not released yet.
            parcel.done.set_exception(self._too_late())
        while self._parcels and self._parcels[0].deadline <= now:
            self._fail([self._pop()], self._too_late())
        waiting = [parcel for parcel in self._under_way if not parcel.done.done()] or list(self._parcels)[:1]
        self._expiry = loop.call_at(waiting[0].deadline, self._expire) if waiting else None

    def _too_late(self) -> DeliveryTimeout:
        last = "" if self._last_error is None else f"; the last attempt said: {self._last_error}"
        error = DeliveryTimeout(f"not acknowledged within {self._config.delivery_timeout_ms} ms{last}")
        error.__cause__ = self._last_error
        return error

    def _succeed(self, parcel: Parcel, stored: Stored) -> None:
        self._release(parcel)
        self._last_error = None
        if not parcel.done.done():
            parcel.done.set_result(stored)

    def _fail(self, parcels: list[Parcel], error: BaseException) -> None:
        for parcel in parcels:
            self._release(parcel)
            if not parcel.done.done():
                parcel.done.set_exception(error)

    def _release(self, parcel: Parcel) -> None:
        self._released(parcel.size)
        parcel.size = 0


def _put_together(count: int, parts: list[Part], failures: dict[int, BaseException]) -> Stored:
    offsets, dues, failures = [-1] * count, [0] * count, dict(failures)
    for places, part in parts:
        error = part.done.exception()
        if error is not None:
            failures.update(dict.fromkeys(places, error))
            continue
        stored = part.done.result()
        for at, place in enumerate(places):
            if at in stored.failures:
                failures[place] = stored.failures[at]
            else:
                offsets[place], dues[place] = stored.offsets[at], stored.due(at) or 0
    return Stored(offsets, dues if any(dues) else None, failures)
