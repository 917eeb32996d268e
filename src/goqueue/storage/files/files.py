"""File system port through which storage accesses the disk, and its implementation for the real disk.

No other code in ``storage`` calls the system directly, so a test double that drops all data not fsynced can replace the
disk and prove that every fsync is needed. Methods are called from the event loop; ``read``, ``sync``, ``sync_dir`` and
``sync_filesystem`` from threads as well.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from goqueue.model.errors import DataFolderLocked, LinkInDataFolder
from goqueue.storage.files.file_modes import close_to_others
from goqueue.storage.files.safe_paths import Beneath, Descriptor

Buffer = bytes | bytearray | memoryview


class File(Protocol):
    """An open file. It is closed with the last reference to it, so a reader in a thread never loses it."""

    def read(self, position: int, size: int) -> bytes:
        """Up to ``size`` bytes; fewer only at the end of the file."""

    def write(self, position: int, data: Buffer) -> None:
        """Write all of ``data`` or raise ``OSError``; after a failed call, the content is unknown."""

    def size(self) -> int: ...
    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Make the content and the length durable before returning."""


class Files(Protocol):
    """A file system."""

    def open(self, path: Path, *, create: bool = False) -> File: ...
    def exists(self, path: Path) -> bool: ...
    def size(self, path: Path) -> int: ...
    def list_dir(self, path: Path) -> list[str]: ...
    def make_dirs(self, path: Path) -> None: ...
    def rename(self, source: Path, target: Path) -> None: ...

    def link(self, source: Path, target: Path) -> None:
        """Create a hard link to a file: the content stays as long as one of the names exists."""

    def remove(self, path: Path) -> None: ...
    def remove_tree(self, path: Path) -> None: ...

    def sync_dir(self, path: Path) -> None:
        """Make the names in a folder (created, renamed, removed) durable before returning."""

    def sync_filesystem(self, path: Path) -> None:
        """Make everything written to the file system of ``path`` durable before returning."""

    def free_bytes(self, path: Path) -> int: ...

    def close_to_others(self, root: Path, is_ours: Callable[[str], bool]) -> int | None:
        """Restrict access to the owner for the files and folders in ``root`` whose names ``is_ours`` accepts, and
        for ``root`` itself if it holds nothing else. Returns the number left open to others; ``None`` if ``root``
        was closed before."""

    def lock(self, path: Path) -> object:
        """Lock ``path`` for this process until the returned object is dropped; raises if it is locked."""


class OsFile(Descriptor):
    """A file on the real disk."""

    __slots__ = ()

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
    """The real disk. Below ``root``, no symbolic link is followed."""

    def __init__(self, root: Path | None = None) -> None:
        self._beneath = Beneath(root)
        self._roots: dict[Path, Descriptor] = {}

    def open(self, path: Path, *, create: bool = False) -> OsFile:
        return OsFile(self._beneath.open(path, os.O_RDWR | (os.O_CREAT if create else 0)))

    def exists(self, path: Path) -> bool:
        return self._beneath.stat(path) is not None

    def size(self, path: Path) -> int:
        found = self._beneath.stat(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return found.st_size

    def list_dir(self, path: Path) -> list[str]:
        return self._beneath.list_dir(path)

    def make_dirs(self, path: Path) -> None:
        self._beneath.make_dirs(path)

    def rename(self, source: Path, target: Path) -> None:
        with self._beneath.parent(source) as (source_fd, old), self._beneath.parent(target) as (target_fd, new):
            os.replace(old, new, src_dir_fd=source_fd, dst_dir_fd=target_fd)
        self._beneath.forget()

    def link(self, source: Path, target: Path) -> None:
        with self._beneath.parent(source) as (source_fd, old), self._beneath.parent(target) as (target_fd, new):
            os.link(old, new, src_dir_fd=source_fd, dst_dir_fd=target_fd, follow_symlinks=False)

    def remove(self, path: Path) -> None:
        with suppress(FileNotFoundError), self._beneath.parent(path) as (parent, name):
            os.unlink(name, dir_fd=parent)

    def remove_tree(self, path: Path) -> None:
        with suppress(FileNotFoundError), self._beneath.parent(path) as (parent, name):
            shutil.rmtree(name, ignore_errors=True, dir_fd=parent)
        self._beneath.forget()

    def sync_dir(self, path: Path) -> None:
        with self._beneath.folder(path) as fd:
            os.fsync(fd)

    def sync_filesystem(self, path: Path) -> None:
        if _syncfs is None:
            _sync_tree(path)
            return
        # Kept open: errors of earlier writes are reported only to descriptors that were open at the time.
        root = self._roots.get(path)
        if root is None:
            root = self._roots[path] = Descriptor(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        if _syncfs(root.fd) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(path))

    def free_bytes(self, path: Path) -> int:
        figures = os.statvfs(path)
        return figures.f_bavail * figures.f_frsize

    def close_to_others(self, root: Path, is_ours: Callable[[str], bool]) -> int | None:
        return close_to_others(root, is_ours)

    def lock(self, path: Path) -> object:
        held = OsFile(self._beneath.open(path, os.O_RDWR | os.O_CREAT))
        if os.fstat(held.fd).st_nlink > 1:
            # The file is about to be written, and might belong to someone else.
            raise LinkInDataFolder(f"{path} has a second name somewhere; what it is may be written to")
        if not _take_lock(held.fd):
            holder = held.read(0, 32).decode(errors="replace").strip() or "unknown"
            raise DataFolderLocked(
                f"{path.parent} is in use by another broker (process {holder}); two on one folder would corrupt it"
            ) from None
        held.truncate(0)
        held.write(0, f"{os.getpid()}\n".encode())
        return held


def _take_lock(fd: int) -> bool:
    """Try to take the lock; returns whether it was taken. Retries, since a check for the lock takes it for a moment."""
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
            fd = os.open(Path(folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
