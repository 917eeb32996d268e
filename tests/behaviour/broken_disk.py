"""A disk on which one kind of operation fails with one error, for as long as a test says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from goqueue.storage.files.files import Buffer, OsFile, OsFiles

OPERATIONS = ("open", "read", "write", "fsync", "rename", "mkdir", "statvfs")


class BrokenDisk(OsFiles):
    """``fails`` counts how often something was kept from working."""

    def __init__(self) -> None:
        super().__init__()
        self._broken: tuple[str, int] | None = None
        self.fails = 0

    @contextmanager
    def broken(self, operation: str, error: int) -> Iterator[None]:
        self._broken = (operation, error)
        try:
            yield
        finally:
            self._broken = None

    def check(self, operation: str) -> None:
        broken = self._broken
        if broken is not None and broken[0] == operation:
            self.fails += 1
            raise OSError(broken[1], os.strerror(broken[1]))

    def open(self, path: Path, *, create: bool = False) -> OsFile:
        self.check("open")
        return BrokenFile(self, super().open(path, create=create))  # type: ignore[return-value]

    def make_dirs(self, path: Path) -> None:
        self.check("mkdir")
        super().make_dirs(path)

    def rename(self, source: Path, target: Path) -> None:
        self.check("rename")
        super().rename(source, target)

    def sync_dir(self, path: Path) -> None:
        self.check("fsync")
        super().sync_dir(path)

    def sync_filesystem(self, path: Path) -> None:
        self.check("fsync")
        super().sync_filesystem(path)

    def free_bytes(self, path: Path) -> int:
        self.check("statvfs")
        return super().free_bytes(path)


class BrokenFile:
    def __init__(self, disk: BrokenDisk, file: OsFile) -> None:
        self._disk, self._file = disk, file

    def read(self, position: int, size: int) -> bytes:
        self._disk.check("read")
        return self._file.read(position, size)

    def write(self, position: int, data: Buffer) -> None:
        self._disk.check("write")
        self._file.write(position, data)

    def size(self) -> int:
        return self._file.size()

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def sync(self) -> None:
        self._disk.check("fsync")
        self._file.sync()
