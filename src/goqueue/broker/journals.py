"""The broker's own logs: what it must not forget, each with the state that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from goqueue.broker.checkpoints import Checkpoints
from goqueue.broker.journal import Journal, Machine
from goqueue.model.config import Config
from goqueue.model.errors import CorruptData, GoQueueError
from goqueue.model.logging import get_logger
from goqueue.model.ports import Clock
from goqueue.storage.commit import CommitScheduler
from goqueue.storage.folder import DataFolder
from goqueue.storage.log import Log, LogOptions
from goqueue.storage.open_files import OpenFiles
from goqueue.storage.recovery import open_log

log = get_logger(__name__)

_SEGMENT_BYTES = 8 << 20
"""Journals are trimmed by whole segments, so these are small whatever topics have."""


class Journals:
    def __init__(
        self,
        folder: DataFolder,
        open_files: OpenFiles,
        commits: CommitScheduler,
        checkpoints: Checkpoints,
        config: Config,
        clock: Clock,
    ) -> None:
        self._folder = folder
        self._open_files = open_files
        self._commits = commits
        self._checkpoints = checkpoints
        self._config = config
        self._clock = clock
        self._open: dict[str, Journal[Any]] = {}

    def open(
        self, name: str, make: Callable[[], Machine], events: Any, every: int, without: str, shard: int | None = None
    ) -> Journal[Machine]:
        """``every``: how many events lie between two snapshots. ``without`` it: what stands still if it fails."""
        kept = self._journal_log(self._folder.logs / name / str(shard or 0))
        point = self._checkpoints.point(kept.folder)
        journal = Journal(
            kept,
            self._commits,
            self._folder.snapshots / (name if shard is None else f"{name}-{shard}"),
            make,
            events,
            every,
            0 if point is None else point.base + point.count,
            lambda: self._checkpoints.forget_at_start(kept.folder),
        )
        self._open[without] = journal
        return journal

    def _journal_log(self, folder: Path) -> Log:
        size = min(_SEGMENT_BYTES, self._config.topic.segment_bytes)
        found = self.open_log(folder, LogOptions(size, self._config.storage.index_interval_bytes))
        if found.missing is not None:
            # Without it every topic would look like a stranger's folder, and every group would begin again.
            raise CorruptData(f"{folder}: {found.missing}; restore the data folder from a backup")
        return found

    def open_log(self, folder: Path, options: LogOptions) -> Log:
        """Any log of the data folder."""
        return open_log(self._open_files, folder, options, self._clock.now_ns, self._checkpoints.point(folder))

    def logs(self) -> Iterator[Log]:
        return (journal.log for journal in self._open.values())

    def by_what_stands_still(self) -> dict[str, Log]:
        return {without: journal.log for without, journal in self._open.items()}

    async def snapshot_if_due(self) -> None:
        for journal in self._open.values():
            try:
                if journal.snapshot_due:
                    await journal.snapshot()
            except (OSError, GoQueueError) as error:
                # The others are none the worse for it, and this one has its log.
                log.error("a snapshot cannot be written, it will be tried again", error=str(error))
