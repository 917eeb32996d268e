"""File access below a folder without following symbolic links.

Otherwise a user with write access to the data folder of a broker that runs as root could redirect its writes. Names are
resolved one by one, relative to the folder's descriptor, so a link that replaces a folder meanwhile is not followed
either. The path of the root itself may contain links, since it comes from the operator.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from goqueue.model.errors import LinkInDataFolder

FOLDER_MODE = 0o700
FILE_MODE = 0o600
"""Owner only: files hold messages, and the key that signs receipts."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_IS_LINK = {errno.ELOOP, errno.ENOTDIR}


class Descriptor:
    """An open file or folder. It is closed with the last reference to it, since a thread may still use it."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


class Beneath:
    """Names below ``root``. For other names, and for all names without a root, the system resolves the path; then
    only a link as its last component is refused."""

    def __init__(self, root: Path | None = None) -> None:
        self._root = root
        # Without a root, no path has this prefix.
        self._prefix = f"{root}/" if root is not None else "\0"
        self._entered_root: Descriptor | None = None
        self._last: tuple[str, Descriptor] | None = None
        """A folder and its path. Cached, since the files of a segment are opened one after the other."""

    @contextmanager
    def parent(self, path: Path) -> Iterator[tuple[int | None, str]]:
        """Descriptor and name for calls that take a parent folder's descriptor. Errors give the whole path."""
        text = str(path)
        try:
            if not text.startswith(self._prefix):
                yield None, text
                return
            folder, _, name = text.rpartition("/")
            last = self._last
            if last is None or last[0] != folder:
                last = self._last = folder, self._enter(path, folder)
            yield last[1].fd, name
        except OSError as error:
            if error.filename is not None:
                error.filename = text
            raise

    def forget(self) -> None:
        """Drop cached descriptors, after folders were replaced."""
        self._last = None

    @contextmanager
    def folder(self, path: Path) -> Iterator[int]:
        """Open a folder."""
        with self.parent(path) as (parent, name):
            # Without a parent, it is the root or a folder outside of it, which may be links.
            flags = _FOLDER if parent is None else _FOLDER | os.O_NOFOLLOW
            fd = self._open(path, name, flags, parent)
        try:
            yield fd
        finally:
            os.close(fd)

    def open(self, path: Path, flags: int) -> int:
        """Open a regular file. Devices, pipes and links are refused: reading them may never end."""
        with self.parent(path) as (parent, name):
            fd = self._open(path, name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, parent)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "Not a plain file", str(path))
        return fd

    def stat(self, path: Path) -> os.stat_result | None:
        """Status of a file; ``None`` if it does not exist."""
        try:
            with self.parent(path) as (parent, name):
                found = os.stat(name, dir_fd=parent, follow_symlinks=path == self._root)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if stat.S_ISLNK(found.st_mode):
            raise LinkInDataFolder.at(path)
        return found

    def make_dirs(self, path: Path) -> None:
        """Create folders, accessible to the owner only from the root down; those above the root get default modes."""
        if path == self._root:
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._make_dir(path)
        except FileNotFoundError:
            if path == self._root:
                # The parent exists and accepts no folders, such as /proc.
                raise
            self.make_dirs(path.parent)
            self._make_dir(path)

    def _make_dir(self, path: Path) -> None:
        try:
            with self.parent(path) as (parent, name):
                os.mkdir(name, FOLDER_MODE, dir_fd=parent)
        except FileExistsError:
            found = self.stat(path)
            if found is not None and not stat.S_ISDIR(found.st_mode):
                raise

    def list_dir(self, path: Path) -> list[str]:
        """Names in a folder, without symbolic links."""
        with self.folder(path) as fd, os.scandir(fd) as entries:
            names = []
            for entry in entries:
                if entry.is_symlink():
                    raise LinkInDataFolder.at(path / entry.name)
                names.append(entry.name)
            return names

    def _enter(self, path: Path, folder: str) -> Descriptor:
        if self._entered_root is None:
            self._entered_root = Descriptor(os.open(str(self._root), _FOLDER))
        entered = self._entered_root
        for name in folder[len(self._prefix) :].split("/"):
            if name == "..":
                raise OSError(errno.EINVAL, "It leads out of the data folder", str(path))
            if name:
                # The previous descriptor is closed with the last reference to it.
                entered = Descriptor(self._open(path, name, _FOLDER | os.O_NOFOLLOW, entered.fd))
        return entered

    @staticmethod
    def _open(path: Path, name: str, flags: int, parent: int | None) -> int:
        try:
            return os.open(name, flags, FILE_MODE, dir_fd=parent)
        except OSError as error:
            if error.errno in _IS_LINK and stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                raise LinkInDataFolder.at(path) from None
            raise
