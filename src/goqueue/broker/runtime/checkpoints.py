"""Writing recovery points, so that a start after a crash has little to scan and one after a clean stop has nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from goqueue.broker.runtime.file_freeze import FileFreeze
from goqueue.model.logging import get_logger
from goqueue.storage.files.atomic import packed
from goqueue.storage.files.checkpoint import CheckpointFile, RecoveryPoint, encoded
from goqueue.storage.files.files import File, Files
from goqueue.storage.log.group_commit import MOST_SINGLE_SYNCS, NO_DESCRIPTORS, GroupCommit, when_descriptors_allow
from goqueue.storage.log.log import Log
from goqueue.storage.log.open_files import SegmentFiles
from goqueue.storage.log.recoverable import Recoverable

log = get_logger(__name__)


class Checkpoints:
    """The recovery points of every log of a data folder."""

    def __init__(
        self, files: Files, root: Path, file: CheckpointFile, commits: GroupCommit, stillness: FileFreeze | None = None
    ) -> None:
        self._files = files
        self._root = root
        self._prefix = f"{root}/"
        self._commits = commits
        self._file = file
        self._stillness = stillness or FileFreeze()
        self._busy = asyncio.Lock()
        self.points = file.load()

    def point(self, folder: Path) -> RecoveryPoint | None:
        return self.points.get(self._name(folder))

    async def save(self, recoverables: list[Recoverable]) -> None:
        """Bring every log's files to the disk and note how far they are; then remove what lies below their start."""
        async with self._busy, self._stillness.changing():
            await self._commits.sync([each.log for each in recoverables])
            current = {each: each.recovery_point() for each in recoverables if each.log.failure is None}
            changed = [each for each, point in current.items() if self.points.get(self._name(each.log.folder)) != point]
            # A log that failed keeps the point it had: it tells a restart what must be there.
            names = {self._name(each.log.folder) for each in recoverables}
            gone = self.points.keys() - names
            if not changed and not gone:
                return
            points = {name: point for name, point in self.points.items() if name in names}
            points |= {self._name(each.log.folder): current[each] for each in changed}
            try:
                await asyncio.to_thread(self._sync, self._to_sync([each.log for each in changed]))
            except OSError as error:
                for each in changed:
                    each.log.fail(f"checkpoint: {error.strerror or error}")
                return
            try:
                await asyncio.to_thread(self._file.save, points)
            except OSError as error:
                # A full disk, say. The points before these still hold, and the logs are none the worse.
                log.error(
                    "recovery points cannot be written, it will be tried again", error=error.strerror or str(error)
                )
                return
            self.points = points
            for each in changed:
                each.point_saved(current[each])

    def points_of_copy(self, recoverables: Iterable[Recoverable]) -> bytes:
        """The file for a copy of the folder that has everything that is written by now."""
        points: dict[str, RecoveryPoint] = {}
        for each in recoverables:
            name = self._name(each.log.folder)
            # A log that failed keeps the point it had, as above.
            point = each.recovery_point() if each.log.failure is None else self.points.get(name)
            if point is not None:
                points[name] = point
        return packed(encoded(points))

    async def replace(self, folder: Path, point: RecoveryPoint) -> None:
        """Durably put another point in the place of a log's, while the files of the data folder are held as they are:
        then no others are written."""
        self.points[self._name(folder)] = point
        await asyncio.to_thread(self._file.save, dict(self.points))

    def forget_at_start(self, folder: Path) -> None:
        """Durably drop one log's point, while a broker starts and nobody else is there."""
        if self.points.pop(self._name(folder), None) is not None:
            self._file.save(dict(self.points))

    def _to_sync(self, changed: list[Log]) -> list[File] | None:
        """The files that the new points vouch for, or ``None`` if they are so many that ``syncfs`` is cheaper."""
        segments = []
        for each in changed:
            before = self.points.get(self._name(each.folder))
            since = before.base if before else -1
            segments += [segment for segment in each.segments if segment.base >= since]
            if len(segments) * len(SegmentFiles._fields) > MOST_SINGLE_SYNCS:
                return None
        try:
            return [file for segment in segments for file in segment.files()]
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:
                return None
            raise

    def _sync(self, files: list[File] | None) -> None:
        if files is None:
            when_descriptors_allow(partial(self._files.sync_filesystem, self._root))
        else:
            for file in files:
                file.sync()

    def _name(self, folder: Path) -> str:
        # A path's own ways of doing this take ten times as long, and there may be twenty thousand.
        return str(folder).removeprefix(self._prefix)
