"""The port through which storage reaches the disk, and the real disk behind it.

Nothing in ``storage`` calls the system directly: a double that forgets what was not fsynced can stand in for the disk,
so that every fsync here is known to be needed. Methods are called from the event loop and, for ``read``, ``sync``,
``sync_dir`` and ``sync_filesystem``, from threads as well.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import shutil
import time
from pathlib import Path
from typing import Protocol

from goqueue.model.errors import DataFolderLocked

Buffer = bytes | bytearray | memoryview


class File(Protocol):
    """An open file. It is closed when nobody refers to it any more, so a reader in a thread never loses it."""

    def read(self, position: int, size: int) -> bytes:
        """At most ``size`` bytes; fewer only at the end of the file."""

    def write(self, position: int, data: Buffer) -> None:
        """Write all of ``data`` or raise ``OSError``; what a failed call left behind is unknown."""

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Return when the content and the length are on the disk."""


class Files(Protocol):
    """A file system."""

    def open(self, path: Path, *, create: bool = False) -> File: ...

    def exists(self, path: Path) -> bool: ...

    def size(self, path: Path) -> int: ...

    def list_dir(self, path: Path) -> list[str]: ...

    def make_dirs(self, path: Path) -> None: ...

    def rename(self, source: Path, target: Path) -> None: ...

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name: its content stays as long as one of them is there."""

    def remove(self, path: Path) -> None: ...

    def remove_tree(self, path: Path) -> None: ...

    def sync_dir(self, path: Path) -> None:
        """Return when the names in a folder (created, renamed, removed) are on the disk."""

    def sync_filesystem(self, path: Path) -> None:
        """Return when everything written to the file system of ``path`` is on the disk."""

    def free_bytes(self, path: Path) -> int: ...

    def lock(self, path: Path) -> object:
        """Hold ``path`` as this process's alone until the returned object is dropped, or raise."""


class OsFile:
    """A file of the real disk."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)

    def read(self, position: int, size: int) -> bytes:
        data = os.pread(self.fd, size, position)
        while 0 < len(data) < size and (more := os.pread(self.fd, size - len(data), position + len(data))):
            data += more
        return data

    def write(self, position: int, data: Buffer) -> None:
        view = memoryview(data)
        written = os.pwrite(self.fd, view, position)
        while written < len(view):
            written += os.pwrite(self.fd, view[written:], position + written)

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fd, size)

    def sync(self) -> None:
        _sync_content(self.fd)


class OsFiles:
    """The real disk."""

    def __init__(self) -> None:
        self._roots: dict[Path, OsFile] = {}

    def open(self, path: Path, *, create: bool = False) -> OsFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return OsFile(os.open(path, flags, 0o644))

    def exists(self, path: Path) -> bool:
        return path.exists()

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def list_dir(self, path: Path) -> list[str]:
        return [entry.name for entry in path.iterdir()]

    def make_dirs(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def rename(self, source: Path, target: Path) -> None:
        source.replace(target)

    def link(self, source: Path, target: Path) -> None:
        os.link(source, target)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        shutil.rmtree(path, ignore_errors=True)

    def sync_dir(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_filesystem(self, path: Path) -> None:
        if _syncfs is None:
            _sync_tree(path)
            return
        # Kept open: an error of earlier writes is reported only to descriptors that were there before it.
        root = self._roots.get(path)
        if root is None:
            root = self._roots[path] = OsFile(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        if _syncfs(root.fd) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(path))

    def free_bytes(self, path: Path) -> int:
        figures = os.statvfs(path)
        return figures.f_bavail * figures.f_frsize

    def lock(self, path: Path) -> object:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        held = OsFile(fd)
        if not _take_lock(fd):
            holder = held.read(0, 32).decode(errors="replace").strip() or "unknown"
            raise DataFolderLocked(
                f"{path.parent} is in use by another broker (process {holder}); two on one folder would corrupt it"
            ) from None
        held.truncate(0)
        held.write(0, f"{os.getpid()}\n".encode())
        return held


def _take_lock(fd: int) -> bool:
    """Whether it could be taken. Tried more than once: who looks whether it is held holds it for a moment himself."""
    for pause_s in (0.005, 0.02, 0.05, None):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in {errno.EWOULDBLOCK, errno.EACCES}:
                raise
        else:
            return True
        if pause_s is not None:
            time.sleep(pause_s)
    return False


_sync_content = getattr(os, "fdatasync", os.fsync)


def _load_syncfs() -> ctypes._NamedFuncPointer | None:
    """``syncfs``, where it also reports errors of earlier writes (Linux 5.8 and newer)."""
    if platform.system() != "Linux":
        return None
    version = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2] if part.isdigit())
    if version < (5, 8):
        return None
    try:
        return ctypes.CDLL(None, use_errno=True).syncfs
    except AttributeError:
        return None


_syncfs = _load_syncfs()


def _sync_tree(path: Path) -> None:
    for folder, _, names in os.walk(path):
        for name in names:
            fd = os.open(Path(folder, name), os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
