"""A backup is what the data folder was at one instant of the event loop, as if the process had been killed then.

In that step every log's segments and sizes are noted. Bytes below these sizes never change, but files may be removed or
replaced; so that is held off until all of them have a second name. From then on the backup is read from these, at the
pace of whoever takes it, and holds nobody up.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from goqueue.broker.runtime.checkpoints import Checkpoints
from goqueue.broker.runtime.file_freeze import FileFreeze
from goqueue.model.clock import NANOS_PER_MS, Clock
from goqueue.model.errors import BackupUnderway, GoQueueError, RequestTimeout, ShuttingDown, StorageFailed
from goqueue.model.logging import get_logger
from goqueue.model.units import format_instant_ns
from goqueue.storage.backup.backup_format import BACKUP_FORMAT, Head, is_of_backup
from goqueue.storage.backup.backup_writer import SourceFile, archive
from goqueue.storage.files.data_folder import FORMAT_VERSION, DataFolder
from goqueue.storage.files.files import Files
from goqueue.storage.log.index_file import LANE_ENTRY, POSITION, TIME_ENTRY
from goqueue.storage.log.lost import FILE_NAME
from goqueue.storage.log.recoverable import Recoverable
from goqueue.storage.log.segment import Segment
from goqueue.version import __version__

log = get_logger(__name__)

STALL_S = 60.0
"""A reader that takes no piece for so long is given up."""
_BYTES_PER_S = 400e6
"""No faster, not counting the time that reading and sending take."""
_BESIDE_LOGS = ("delays", "producers", FILE_NAME)
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.EXDEV, errno.EMLINK, errno.ENOSYS}


@dataclass(frozen=True, slots=True)
class _NotedLog:
    """A log as it was at the instant. Sealed segments do not change; the active one had files of these sizes."""

    folder: Path
    segments: list[Segment]
    active_sizes: tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class _Noted:
    instant_ns: int
    logs: list[_NotedLog]
    checkpoint: bytes


class Backup:
    """The backup that is under way. Its pieces are asked for one at a time; whoever stops asking lets go of it."""

    def __init__(self, on_end: Callable[[Backup], None]) -> None:
        self._on_end = on_end
        self._pieces: Iterator[bytes] = iter(())
        self._taking: asyncio.Task[bytes] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._next_at = 0.0
        self._reason: GoQueueError | None = None
        self.size_bytes = 0

    def begin(self, pieces: Iterator[bytes], size_bytes: int) -> None:
        self._pieces, self.size_bytes = pieces, size_bytes
        if self._reason is None:
            self._watch()

    async def next(self) -> bytes:
        """The next piece; nothing when that was all."""
        if self._reason is not None:
            raise self._reason
        self._stop_watching()
        # Publishers have the processor and the disk in between.
        await asyncio.sleep(self._next_at - asyncio.get_running_loop().time())
        self._taking = asyncio.create_task(asyncio.to_thread(next, self._pieces, b""))
        try:
            piece = await asyncio.shield(self._taking)
        except OSError as error:
            failed = StorageFailed(f"a file of the backup cannot be read: {error.strerror or error}")
            self.end(failed)
            raise failed from error
        except BaseException:
            self.end(RequestTimeout("whoever took the backup has gone"))
            raise
        self._next_at = asyncio.get_running_loop().time() + len(piece) / _BYTES_PER_S
        if not piece:
            self.end()
        elif self._reason is None:
            self._watch()
        return piece

    def end(self, reason: GoQueueError | None = None) -> None:
        """Nobody wants more of it. ``reason``: what to tell one who asks all the same."""
        if self._reason is None:
            self._reason = reason or RequestTimeout("this backup was read to its end")
            self._stop_watching()
            self._on_end(self)

    @property
    def is_over(self) -> bool:
        return self._reason is not None

    async def idle(self) -> None:
        """Returns when no thread reads it any more."""
        if self._taking is not None:
            await asyncio.gather(self._taking, return_exceptions=True)

    def _watch(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(STALL_S, self._give_up)

    def _stop_watching(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _give_up(self) -> None:
        log.warning("a backup is given up: nobody has taken anything of it for long", seconds=STALL_S)
        self.end(RequestTimeout(f"the backup was given up: nothing of it was taken for {STALL_S:g} s"))


@dataclass(eq=False, repr=False)
class Backups:
    """One at a time."""

    _files: Files
    _folder: DataFolder
    _recoverables: Callable[[], Iterable[Recoverable]]
    _checkpoints: Checkpoints
    _stillness: FileFreeze
    _clock: Clock
    _node_id: str
    _current: Backup | None = field(default=None, init=False)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _preparing: asyncio.Task[None] | None = field(default=None, init=False)
    _stopping: bool = field(default=False, init=False)

    async def begin(self) -> Backup:
        """When this returns, the instant is over; everything that was acknowledged before this call is in it."""
        while self._current is not None and self._current.is_over:
            # Its links are being removed.
            await asyncio.wait(list(self._tasks))
        if self._stopping:
            raise ShuttingDown("the broker is stopping; no backup is begun", retry_after_s=1)
        if self._current is not None:
            raise BackupUnderway("a backup is being read already; there is one at a time")
        backup = self._current = Backup(self._ended)
        self._preparing = asyncio.create_task(self._prepare(backup))
        try:
            # To its end in any case: a thread that makes links cannot be stopped.
            await asyncio.shield(self._preparing)
        except OSError as error:
            backup.end()
            if error.errno in _NO_LINKS:
                raise StorageFailed(
                    f"the file system of {self._folder.root} gives files no second name ({error.strerror}), which a "
                    "backup of a running broker needs; stop the broker and use 'goqueue backup --data'"
                ) from error
            raise StorageFailed(f"a backup cannot be begun: {error.strerror or error}") from error
        except BaseException:
            backup.end(RequestTimeout("whoever asked for the backup has gone"))
            raise
        return backup

    def stop_accepting(self) -> None:
        """Whoever reads one is told at the next piece."""
        self._stopping = True
        if self._current is not None:
            self._current.end(ShuttingDown("the broker is stopping; the backup is not whole"))

    async def stop(self) -> None:
        self.stop_accepting()
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    async def _prepare(self, backup: Backup) -> None:
        async with self._stillness.held():
            noted = self._note()
            sources = await asyncio.to_thread(self._link, noted)
        total = sum(source.size for source in sources)
        head = Head(
            BACKUP_FORMAT,
            format_instant_ns(noted.instant_ns),
            self._node_id,
            __version__,
            FORMAT_VERSION,
            len(sources),
            total,
        )
        instant_s = noted.instant_ns // (1_000 * NANOS_PER_MS)
        backup.begin(archive(self._files, head, sources, instant_s, are_links=True), total)
        log.info("backup begun", instant=head.instant, files=head.files, bytes=total)

    def _note(self) -> _Noted:
        """The instant: nothing else runs until this returns."""
        all_of_them = list(self._recoverables())
        logs = [each.log for each in all_of_them]
        noted = [_NotedLog(each.folder, list(each.segments), _sizes(each.active)) for each in logs]
        return _Noted(self._clock.now_ns(), noted, self._checkpoints.points_of_copy(all_of_them))

    def _link(self, noted: _Noted) -> list[SourceFile]:
        """Give every file a second name; in a thread, while nobody removes or replaces any."""
        links = _Links(self._files, self._folder)
        links.add(self._folder.root / "FORMAT")
        links.sources.append(SourceFile("checkpoint", len(noted.checkpoint), content=noted.checkpoint))
        for name in sorted(self._files.list_dir(self._folder.snapshots)):
            # Others are half-made, set aside by a repair, or not the broker's at all.
            if is_of_backup(f"{self._folder.snapshots.name}/{name}"):
                links.add(self._folder.snapshots / name)
        for each in noted.logs:
            for name in _BESIDE_LOGS:
                links.add(each.folder / name)
            for segment in each.segments[:-1]:
                log_path, *indexes = segment.paths()
                links.add(log_path, segment.size)
                for path in indexes:
                    links.add(path)
            log_path, *indexes = each.segments[-1].paths()
            log_size, *index_sizes = each.active_sizes
            links.add(log_path, log_size)
            for path, size in zip(indexes, index_sizes, strict=True):
                if size:
                    links.add(path, size)
        return links.sources

    def _ended(self, backup: Backup) -> None:
        ending = asyncio.create_task(self._clear(backup))
        self._tasks.add(ending)
        ending.add_done_callback(self._tasks.discard)

    async def _clear(self, backup: Backup) -> None:
        """Remove the links once no thread makes or reads any."""
        if self._preparing is not None:
            await asyncio.gather(self._preparing, return_exceptions=True)
        await backup.idle()
        try:
            await asyncio.to_thread(self._files.remove_tree, self._folder.backup_links)
        finally:
            self._current = None
        log.info("backup ended", bytes=backup.size_bytes)


class _Links:
    def __init__(self, files: Files, folder: DataFolder) -> None:
        self._files = files
        self._folder = folder
        self._made = 0
        self.sources: list[SourceFile] = []
        files.make_dirs(folder.backup_links)

    def add(self, place: Path, size: int | None = None) -> None:
        """A file and its size in the backup; without a size, a file that may be missing, as it is."""
        path = place.relative_to(self._folder.root).as_posix()
        if size == 0:
            # It may not have been made yet, and must be there all the same.
            self.sources.append(SourceFile(path, 0))
            return
        target = self._folder.backup_links / str(self._made)
        try:
            self._files.link(place, target)
        except FileNotFoundError:
            if size is None:
                return
            raise
        self._made += 1
        size = self._files.size(target) if size is None else size
        self.sources.append(SourceFile(path, size, target))


def _sizes(active: Segment) -> tuple[int, int, int, int]:
    """Of the files of an active segment, in the order of ``Segment.paths``."""
    return (
        active.size,
        active.count * POSITION.itemsize,
        active.times.entries * TIME_ENTRY.itemsize,
        active.lanes.entries * LANE_ENTRY.itemsize,
    )
