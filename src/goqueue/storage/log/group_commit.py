"""Group commit: one fsync serves everyone who waits for it.

A round makes durable what all logs of the data folder have written so far. While it runs, the next round's waiters
gather. A few files are synced one by one; beyond that one ``syncfs`` for all of them is cheaper (measured with 300
dirty files: 60 ms one by one, 2 to 3 ms with ``syncfs``).

An error is final for the logs it concerns: after a failed fsync the kernel may have dropped the data and marked it
clean, so trying again would report success for what is lost.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from goqueue.model.clock import NANOS_PER_MS, NANOS_PER_SECOND
from goqueue.model.errors import StorageFailed
from goqueue.model.logging import get_logger
from goqueue.storage.files.files import File, Files
from goqueue.storage.log.log import Log, Unsynced

MOST_SINGLE_SYNCS = 16
NO_DESCRIPTORS = {errno.EMFILE, errno.ENFILE}
_PATIENCE = 600
_PAUSE_S = 0.05
_SLOW_NS = NANOS_PER_SECOND
_MOST_NAMED = 5

logger = get_logger(__name__)


_Waiting = tuple[Log, int, int, asyncio.Future[None]]
"""A log, the offset that is to be durable, how often the log had been cut when that was asked for, who waits."""


@dataclass(frozen=True, slots=True)
class _Round:
    """What one round does. Files are opened only when they are few; else ``syncfs`` needs none."""

    taken: dict[Log, Unsynced]
    files: dict[Log, list[File]] | None
    failures: dict[Log, str]


class GroupCommit:
    """Durability of one node: one scheduler per data folder, on the event loop; its own thread waits for the disk."""

    def __init__(
        self,
        files: Files,
        root: Path,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        on_round: Callable[[float], None] | None = None,
    ) -> None:
        """``on_round`` is called after each round with its duration in seconds."""
        self._files = files
        self._root = root
        self._monotonic_ns = monotonic_ns
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="goqueue-fsync")
        self._dirty: dict[Log, None] = {}
        self._waiting: list[_Waiting] = []
        self._followers: dict[Log, Callable[[], None]] = {}
        self._running: asyncio.Task[None] | None = None
        self.rounds = 0
        self.round_began_ns: int | None = None
        """When the round that runs now was handed to the disk, by the monotonic clock."""
        self.last_round_ns = 0
        """How long the last round took that came to its end."""
        self._on_round = on_round

    def end(self, log: Log) -> int:
        """The high watermark: on one node, the end of what is on the disk."""
        return log.durable_offset

    def reached(self, log: Log, offset: int) -> asyncio.Future[None]:
        """Done when everything below ``offset`` is on the disk, in a round that this call asks for itself."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if log.durable_offset >= offset:
            done.set_result(None)
        elif log.failure is not None:
            done.set_exception(_failed(log))
        else:
            self._waiting.append((log, offset, log.truncations, done))
            self._dirty[log] = None
            if self._running is None:
                self._running = asyncio.create_task(self._run())
        return done

    def follow(self, log: Log, on_move: Callable[[], None]) -> None:
        """Call ``on_move`` after each round that has moved the end of what is on the disk of ``log``."""
        self._followers[log] = on_move

    def unfollow(self, log: Log) -> None:
        self._followers.pop(log, None)

    async def sync(self, logs: Iterable[Log]) -> None:
        """Make durable what logs hold now although nobody waits for it. A failure is left in its log."""
        behind = [log for log in logs if log.failure is None and log.durable_offset < log.end_offset]
        pending = [self.reached(log, log.end_offset) for log in behind]
        for outcome in await asyncio.gather(*pending, return_exceptions=True):
            if outcome is not None and not isinstance(outcome, StorageFailed):
                raise outcome

    async def close(self) -> None:
        while (running := self._running) is not None:
            # Whoever is impatient with a stop must not end the round that others wait for.
            await asyncio.shield(running)
        self._thread.shutdown()

    async def _run(self) -> None:
        try:
            while self._dirty:
                # One turn of the loop, so that publishes that are already here share the round.
                await asyncio.sleep(0)
                waiting, self._waiting = self._waiting, []
                dirty, self._dirty = self._dirty, {}
                await self._round(self._plan(dirty), waiting)
        finally:
            self._running = None

    async def _round(self, planned: _Round, waiting: list[_Waiting]) -> None:
        failures: dict[Log, str] = dict.fromkeys(planned.taken, "an fsync round did not come to its end")
        self.round_began_ns = began_ns = self._monotonic_ns()
        try:
            failures = await asyncio.get_running_loop().run_in_executor(self._thread, self._carry_out, planned)
        finally:
            self.round_began_ns = None
            self.last_round_ns = self._monotonic_ns() - began_ns
            if self._on_round is not None:
                self._on_round(self.last_round_ns / NANOS_PER_SECOND)
            if self.last_round_ns > _SLOW_NS:
                self._tell_slow(planned)
            # What became of a round that was cut short is not known, so none of it counts.
            self._finish(planned, failures, waiting)

    def _plan(self, dirty: Iterable[Log]) -> _Round:
        taken = {log: log.unsynced() for log in dirty if log.failure is None}
        operations = sum(len(each.segments) + (each.folder is not None) for each in taken.values())
        if operations > MOST_SINGLE_SYNCS:
            return _Round(taken, None, {})
        files: dict[Log, list[File]] = {}
        failures: dict[Log, str] = {}
        for log, each in taken.items():
            try:
                files[log] = [segment.files().log for segment in each.segments]
            except OSError as error:
                if error.errno in NO_DESCRIPTORS:
                    return _Round(taken, None, {})
                failures[log] = f"open: {error.strerror or error}"
        return _Round(taken, files, failures)

    def _carry_out(self, planned: _Round) -> dict[Log, str]:
        """In the thread. Returns why logs failed, for those that did."""
        if planned.files is None:
            try:
                when_descriptors_allow(partial(self._files.sync_filesystem, self._root))
            except OSError as error:
                return dict.fromkeys(planned.taken, f"syncfs: {error.strerror or error}")
            return {}
        failures = dict(planned.failures)
        for log, files in planned.files.items():
            try:
                for file in files:
                    file.sync()
                folder = planned.taken[log].folder
                if folder is not None:
                    when_descriptors_allow(partial(self._files.sync_dir, folder))
            except OSError as error:
                failures[log] = f"fsync: {error.strerror or error}"
        return failures

    def _tell_slow(self, planned: _Round) -> None:
        logger.warning(
            "an fsync round was slow",
            took_ms=self.last_round_ns // NANOS_PER_MS,
            logs=len(planned.taken),
            folders=[str(log.folder) for log in islice(planned.taken, _MOST_NAMED)],
        )

    def _finish(self, planned: _Round, failures: dict[Log, str], waiting: list[_Waiting]) -> None:
        self.rounds += 1
        for log, taken in planned.taken.items():
            if log in failures:
                log.fail(failures[log])
            elif log.synced(taken) and log in self._followers:
                self._followers[log]()
        for log, offset, truncations, done in waiting:
            if done.done():
                continue
            if log.failure is not None:
                done.set_exception(_failed(log))
            elif log.durable_offset >= offset and (
                truncations == log.truncations or offset <= log.kept_since(truncations)
            ):
                done.set_result(None)
            else:
                done.set_exception(StorageFailed("the log was cut back before the message was durable"))


def _failed(log: Log) -> StorageFailed:
    return StorageFailed(f"this partition takes no more writes: {log.failure}")


def when_descriptors_allow(work: Callable[[], None]) -> None:
    """Run something that opens a file first; while the process is out of descriptors, wait and try again.

    Only opening can fail that way: an fsync that was begun and failed is never tried a second time.
    """
    for attempt in range(_PATIENCE):
        try:
            work()
            return
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS or attempt == _PATIENCE - 1:
                raise
            time.sleep(_PAUSE_S)
