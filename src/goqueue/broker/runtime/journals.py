"""The broker's own logs: what it must not forget, each with the state that follows from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from goqueue.broker.runtime.checkpoints import Checkpoints
from goqueue.broker.runtime.file_freeze import FileFreeze
from goqueue.broker.runtime.journal import Journal, Machine
from goqueue.broker.runtime.journal_kinds import JournalKind
from goqueue.model.clock import Clock
from goqueue.model.config import Config
from goqueue.model.errors import CorruptData, GoQueueError
from goqueue.model.logging import get_logger
from goqueue.storage.files.data_folder import DataFolder
from goqueue.storage.log.durability import Durability
from goqueue.storage.log.log import Log, LogOptions
from goqueue.storage.log.open_files import OpenFiles
from goqueue.storage.log.recovery import open_log

log = get_logger(__name__)

_SEGMENT_BYTES = 8 << 20
"""Journals are trimmed by whole segments, so these are small whatever topics have."""


@dataclass(eq=False, repr=False)
class Journals:
    _folder: DataFolder
    _open_files: OpenFiles
    _durability: Durability
    _checkpoints: Checkpoints
    _config: Config
    _clock: Clock
    _stillness: FileFreeze
    _open: dict[str, Journal[Any]] = field(default_factory=dict, init=False)

    def open(self, kind: JournalKind[Machine]) -> Journal[Machine]:
        """A journal with its state."""
        journal = self._open_log_of(kind)
        journal.load()
        return journal

    def open_shards(self, kind: JournalKind[Machine]) -> dict[int, Journal[Machine]]:
        """The journals of a kind's shards by number; each shard loads its own."""
        return {shard: self._open_log_of(kind, shard) for shard in kind.numbers}

    def close_shards(self, kind: JournalKind[Any]) -> None:
        """The journals of a kind are not needed any more."""
        for shard in kind.numbers:
            self._open.pop(kind.without.format(shard=shard)).log.close()

    def has_points(self, kind: JournalKind[Any]) -> bool:
        """Whether recovery points tell of journals of a kind that have held anything."""
        points = [self._checkpoints.point(self._log_folder(kind, shard)) for shard in kind.numbers]
        return any(point is not None and point.base + point.count for point in points)

    def forget_points(self, kind: JournalKind[Any]) -> None:
        """The folders of a kind's journals are gone for good."""
        for shard in kind.numbers:
            self._checkpoints.forget_at_start(self._log_folder(kind, shard))

    def _log_folder(self, kind: JournalKind[Any], shard: int) -> Path:
        return self._folder.logs / kind.name / str(shard)

    def _open_log_of(self, kind: JournalKind[Machine], shard: int = 0) -> Journal[Machine]:
        kept = self._journal_log(self._log_folder(kind, shard))
        point = self._checkpoints.point(kept.folder)
        journal = Journal(
            kept,
            self._durability,
            self._folder.snapshots / kind.snapshot_name(shard),
            kind.make,
            kind.events,
            kind.snapshot_every,
            0 if point is None else point.base + point.count,
            lambda: self._checkpoints.forget_at_start(kept.folder),
        )
        self._open[kind.without.format(shard=shard)] = journal
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
                    async with self._stillness.changing():
                        await journal.snapshot()
            except (OSError, GoQueueError) as error:
                # The others are none the worse for it, and this one has its log.
                log.error("a snapshot cannot be written, it will be tried again", error=str(error))
