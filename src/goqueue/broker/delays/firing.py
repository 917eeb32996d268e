"""Making delayed messages visible when they are due: each is appended once more, as a plain record.

What is due is taken in the order of its time, a few hundred at a stretch, so that a burst holds nobody up. A message
that is cancelled or rescheduled meanwhile is left out at the last moment: nothing lies between the look and the append.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goqueue.broker.delays.delay_timers import DelayTimers
from goqueue.broker.partitions.delayed_records import read_delayed_records
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.runtime.timer_service import TimerService
from goqueue.delivery.wheel import Entries
from goqueue.model.clock import NANOS_PER_SECOND, Clock
from goqueue.model.errors import GoQueueError, Overloaded, StorageFailed, TopicNotFound
from goqueue.model.logging import get_logger
from goqueue.observe.histogram import Histogram
from goqueue.observe.trace_event import split_place
from goqueue.wire.batch import MAX_BATCH_BYTES, join_frames
from goqueue.wire.delayed import fire

log = get_logger(__name__)

_AT_A_STRETCH = 500
_FEW = 32
"""So many are counted one by one in less time than as a column."""
_TRY_AGAIN_S = 1.0
_MOST_NAMED = 20
_ERROR_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0, 3_600.0)


@dataclass(slots=True)
class DelayTally:
    """Since the start."""

    delivered: int = 0
    cancelled: int = 0
    rescheduled: int = 0
    lost: int = 0
    delay_ns: int = 0
    """How long those delivered had to wait, together, from their timestamps on."""
    error: Histogram = field(default_factory=lambda: Histogram(_ERROR_BOUNDS_S))
    """From when they were due until readers saw them."""


@dataclass(eq=False, slots=True)
class Waiting:
    """What is due in one partition."""

    partition: Partition
    due: deque[Entries] = field(default_factory=deque)
    """Taken from the timer wheel and not visible yet: one piece for each time that the wheel returned some."""
    trouble: str = ""
    """Why the last attempt to make some visible failed."""

    def still_pending(self, due: Entries) -> Entries:
        """The entries that still wait: neither cancelled, nor rescheduled, nor visible."""
        return due[self.partition.delays.pending.is_due(due[:, 2], due[:, 0])]

    def take(self, most: int) -> Entries:
        """Remove and return the first entries that are due, without touching the rest of a large backlog."""
        taken: list[Entries] = []
        while self.due and most > 0:
            piece = self.due.popleft()
            if len(piece) > most:
                self.due.appendleft(piece[most:])
            taken.append(piece[:most])
            most -= len(taken[-1])
        return taken[0] if len(taken) == 1 else np.concatenate(taken)

    def is_late(self, before_ns: int) -> bool:
        """Whether the first of what is due was due before that instant and was not cancelled since."""
        return bool(self.due and (self.still_pending(self.due[0][:_AT_A_STRETCH])[:, 0] < before_ns).any())


class Firing:
    """Owns the task that makes messages visible."""

    def __init__(self, timers: TimerService, clock: Clock, check_disk: Callable[[], None], max_delayed: int) -> None:
        self.timers = DelayTimers(timers, max_delayed, self._on_due)
        self._clock = clock
        self._check_disk = check_disk
        self._waiting: dict[Partition, Waiting] = {}
        self._due: dict[Waiting, None] = {}
        self._put_off: dict[Waiting, None] = {}
        """Partitions that could not be written, to be tried again later; the others continue."""
        self._task: asyncio.Task[None] | None = None
        self._again: asyncio.TimerHandle | None = None
        self._stopped = False
        self.tally = DelayTally()
        self.not_durable = 0
        """Messages that were appended when they were due, and whose append is not durable yet: no reader sees them."""

    def forget(self, partition: Partition) -> None:
        """Drop what is due in a partition whose topic was deleted, and its timers."""
        self.timers.forget(partition)
        waiting = self._waiting.pop(partition, None)
        if waiting is not None:
            self._due.pop(waiting, None)
            self._put_off.pop(waiting, None)

    def overdue(self, before_ns: int) -> list[Waiting]:
        """Partitions where something was due before that instant and still waits."""
        return [each for each in [*self._due, *self._put_off] if each.is_late(before_ns)]

    async def stop(self) -> None:
        """What is under way is finished; the rest is found by the next start."""
        self._stopped = True
        if self._again is not None:
            self._again.cancel()
        if self._task is not None:
            await self._task

    def _on_due(self, partition: Partition, due: Entries) -> None:
        waiting = self._waiting.get(partition)
        if waiting is None:
            waiting = self._waiting[partition] = Waiting(partition)
        waiting.due.append(due)
        if waiting not in self._put_off:
            self._due[waiting] = None
            self._begin()

    def _begin(self) -> None:
        if self._task is None and self._due and not self._stopped:
            self._task = asyncio.create_task(self._run(), name="make delayed messages visible")

    async def _run(self) -> None:
        try:
            while self._due and not self._stopped:
                waiting = next(iter(self._due))
                del self._due[waiting]
                if not await self._fire_some(waiting):
                    self._try_later(waiting)
                elif waiting.due:
                    # Behind the others: every partition has its turn.
                    self._due[waiting] = None
                await asyncio.sleep(0)
        finally:
            self._task = None

    def _try_later(self, waiting: Waiting) -> None:
        self._put_off[waiting] = None
        if self._again is None and not self._stopped:
            self._again = asyncio.get_running_loop().call_later(_TRY_AGAIN_S, self._try_again)

    def _try_again(self) -> None:
        self._again = None
        self._due |= self._put_off
        self._put_off.clear()
        self._begin()

    async def _fire_some(self, waiting: Waiting) -> bool:
        """Make a stretch of what is due visible; ``False`` if that must wait."""
        if not waiting.due:
            # Given up since, because the partition cannot be written.
            return True
        now = _once(waiting.still_pending(waiting.take(_AT_A_STRETCH)))
        if not len(now) or waiting.partition.closed:
            return True
        try:
            left = await self._append(waiting, now)
        except (StorageFailed, TopicNotFound) as error:
            # Nothing more can be written here; a restart finds them.
            waiting.trouble = str(error)
            if not waiting.partition.closed:
                log.error(
                    "delayed messages wait: their partition cannot be written", error=str(error), **_place(waiting)
                )
            waiting.due.clear()
            return True
        except Exception as error:
            waiting.trouble = str(error)
            if isinstance(error, GoQueueError):
                log.warning("delayed messages wait, it will be tried again", error=str(error), **_place(waiting))
            else:
                log.error(
                    "delayed messages could not be made visible, it will be tried again",
                    exc_info=error,
                    **_place(waiting),
                )
            waiting.due.appendleft(now)
            return False
        waiting.trouble = ""
        if len(left):
            waiting.due.appendleft(left)
        return True

    async def _append(self, waiting: Waiting, due: Entries) -> Entries:
        """Returns what was too much for one batch."""
        self._check_disk()
        partition = waiting.partition
        cuts = partition.log.truncations
        due, frames, left = await _read_first(partition, due)
        if partition.log.truncations != cuts or partition.log.is_being_cut:
            raise Overloaded("what is due was read while the partition was cut back", retry_after_s=1)
        # From here to the append nothing else runs: who was cancelled or rescheduled until now is left out.
        now_ns = self._clock.now_ns()
        due = self._without_early(waiting, waiting.still_pending(due), now_ns)
        lost = [offset for offset in due[:, 2].tolist() if offset not in frames]
        if lost:
            self._give_up(waiting, lost)
            due = due[[offset in frames for offset in due[:, 2].tolist()]]
        chosen = due[:, 2].tolist()
        if not chosen:
            return left
        made, since_ns = fire([frames[offset] for offset in chosen], chosen, now_ns)
        for first, end in _batches(made):
            part = chosen[first:end]
            partition.append_fired(join_frames(made[first:end], now_ns), part, now_ns)
            self.not_durable += len(part)
            partition.acknowledge(partition.log.end_offset).add_done_callback(partial(self._seen, due[first:end, 0]))
            self.tally.delivered += len(part)
            self.tally.delay_ns += len(part) * now_ns - sum(since_ns[first:end])
        return left

    def _seen(self, due_ns: NDArray[np.int64], acknowledged: asyncio.Future[None]) -> None:
        """A log that cannot be synced has said so, and takes no more writes."""
        self.not_durable -= len(due_ns)
        if not acknowledged.cancelled() and acknowledged.exception() is None:
            late_s = (self._clock.now_ns() - due_ns) / NANOS_PER_SECOND
            if len(late_s) > _FEW:
                self.tally.error.observe_all(late_s)
            else:
                for each_s in late_s.tolist():
                    self.tally.error.observe(each_s)

    def _without_early(self, waiting: Waiting, due: Entries, now_ns: int) -> Entries:
        """The clock may have gone back since these were due: then they wait once more."""
        early = due[:, 0] > now_ns
        if not early.any():
            return due
        self.timers.schedule(waiting.partition, due[early, 2], due[early, 0])
        return due[~early]

    def _give_up(self, waiting: Waiting, lost: list[int]) -> None:
        topic, number = split_place(waiting.partition.place)
        log.error(
            "delayed messages are damaged and lost",
            topic=topic,
            partition=number,
            count=len(lost),
            offsets=lost[:_MOST_NAMED],
        )
        self.tally.lost += len(lost)
        waiting.partition.delays.given_up(np.array(lost, np.int64))


async def _read_first(partition: Partition, due: Entries) -> tuple[Entries, dict[int, memoryview], Entries]:
    """As many as fit into a batch, from the first that is due on; their originals; the others."""
    most = len(due)
    while True:
        frames, looked = await read_delayed_records(partition, np.sort(due[:most, 2]).tolist(), MAX_BATCH_BYTES // 2)
        if looked == most:
            return due[:most], frames, due[most:]
        # They lie in another order than they are due in, and those with the lowest offsets were read.
        most = looked


def _place(waiting: Waiting) -> dict[str, Any]:
    topic, number = split_place(waiting.partition.place)
    return {"topic": topic, "partition": number}


def _once(due: Entries) -> Entries:
    """A message that was rescheduled to the very time that it had is in the wheel twice."""
    if len(set(due[:, 2].tolist())) == len(due):
        return due
    return due[np.sort(np.unique(due[:, 2], return_index=True)[1])]


def _batches(frames: list[bytes]) -> list[tuple[int, int]]:
    """Where to cut, so that no batch is larger than batches are."""
    cuts, size = [0], 0
    for place, frame in enumerate(frames):
        if size and size + len(frame) > MAX_BATCH_BYTES:
            cuts.append(place)
            size = 0
        size += len(frame)
    return list(zip(cuts, [*cuts[1:], len(frames)], strict=True))
