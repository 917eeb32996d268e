"""The real disk, with faults on demand: fsync that hangs or fails, names that cannot be written, little room."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from goqueue.storage.files.files import Buffer, OsFile, OsFiles

PATIENCE_S = 60.0


class FaultyFiles(OsFiles):
    """Faults go by path: ``fails`` and ``hangs`` tell which files' fsync is concerned."""

    def __init__(self) -> None:
        super().__init__()
        self.cannot_open: Callable[[Path], bool] = lambda path: False
        self.free: int | None = None
        self.fails: Callable[[Path], bool] = lambda path: False
        self.cannot_write: Callable[[Path], bool] = lambda path: False
        self._hangs: Callable[[Path], bool] = lambda path: False
        self._released = threading.Event()
        self._reached = threading.Event()

    @contextmanager
    def hanging(self, which: Callable[[Path], bool]) -> Iterator[threading.Event]:
        """While this lasts, fsyncs of those files do not return. The event is set when the first has begun."""
        self._released.clear()
        self._reached.clear()
        self._hangs = which
        try:
            yield self._reached
        finally:
            self._hangs = lambda path: False
            self._released.set()

    def begin_sync(self, path: Path) -> None:
        if self._hangs(path):
            self._reached.set()
            assert self._released.wait(PATIENCE_S)
        if self.fails(path):
            raise OSError(errno.EIO, "Input/output error")

    def open(self, path: Path, *, create: bool = False) -> OsFile:
        if self.cannot_open(path):
            raise OSError(errno.EMFILE, "Too many open files")
        if create and self.cannot_write(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        return FaultyFile(self, path, super().open(path, create=create))  # type: ignore[return-value]

    def sync_dir(self, path: Path) -> None:
        if self.cannot_open(path):
            raise OSError(errno.EMFILE, "Too many open files")
        self.begin_sync(path)
        super().sync_dir(path)

    def sync_filesystem(self, path: Path) -> None:
        self.begin_sync(path)
        super().sync_filesystem(path)

    def free_bytes(self, path: Path) -> int:
        return super().free_bytes(path) if self.free is None else self.free


class FaultyFile:
    def __init__(self, disk: FaultyFiles, path: Path, file: OsFile) -> None:
        self._disk, self._path, self._file = disk, path, file

    def read(self, position: int, size: int) -> bytes:
        return self._file.read(position, size)

    def write(self, position: int, data: Buffer) -> None:
        if self._disk.cannot_write(self._path):
            raise OSError(errno.ENOSPC, "No space left on device")
        self._file.write(position, data)

    def size(self) -> int:
        return self._file.size()

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def sync(self) -> None:
        self._disk.begin_sync(self._path)
        self._file.sync()


def of_topic(name: str, partition: int | None = None) -> Callable[[Path], bool]:
    """The files of a topic, or of one of its partitions."""

    def concerned(path: Path) -> bool:
        parts = path.parts
        for at, part in enumerate(parts):
            if part.startswith(f"{name}~"):
                return partition is None or parts[at + 1 : at + 2] == (str(partition),)
        return False

    return concerned


def of_metadata(path: Path) -> bool:
    return "__metadata" in path.parts and "logs" in path.parts


def of_checkpoint(path: Path) -> bool:
    return path.name.startswith("checkpoint")
