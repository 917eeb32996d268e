"""The way to what lies in a folder, on which no link is followed.

Who may write to the folder of a broker that runs as root could otherwise have it write anywhere. Names are looked up
from the folder's descriptor, one after the other, so a link that is put in the place of a folder meanwhile is not
followed either. The folder itself may be named through links: its name comes from the operator.
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
"""For nobody else: messages lie there, and the key that proves receipts."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_IS_LINK = {errno.ELOOP, errno.ENOTDIR}


class _Entered:
    """An open folder. It is closed when nobody refers to it any more: a thread may still use it."""

    __slots__ = ("fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


class Beneath:
    """Names below ``root``. Others, and all of them without a root, are looked up as the system does it; then only a
    link at the very end is refused."""

    def __init__(self, root: Path | None = None) -> None:
        self._root = root
        # Without a root no path begins so.
        self._prefix = f"{root}/" if root is not None else "\0"
        self._entered_root: _Entered | None = None
        self._last: _Entered | None = None
        """The files of a segment are opened one after the other."""

    @contextmanager
    def parent(self, path: Path) -> Iterator[tuple[int | None, str]]:
        """For a call that takes a folder's descriptor and a name. Errors name the whole path."""
        text = str(path)
        try:
            if not text.startswith(self._prefix):
                yield None, text
                return
            folder, _, name = text.rpartition("/")
            entered = self._last
            if entered is None or entered.path != folder:
                entered = self._last = self._enter(path, folder)
            yield entered.fd, name
        except OSError as error:
            if error.filename is not None:
                error.filename = text
            raise

    def forget(self) -> None:
        """Folders have become others."""
        self._last = None

    @contextmanager
    def folder(self, path: Path) -> Iterator[int]:
        """A folder, opened."""
        with self.parent(path) as (parent, name):
            # Without a parent it is the root, or a folder of somebody else: these may be links.
            flags = _FOLDER if parent is None else _FOLDER | os.O_NOFOLLOW
            fd = self._open(path, name, flags, parent)
        try:
            yield fd
        finally:
            os.close(fd)

    def open(self, path: Path, flags: int) -> int:
        """A plain file, opened. Devices, pipes and links are refused: reading from them may never end."""
        with self.parent(path) as (parent, name):
            fd = self._open(path, name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, parent)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "Not a plain file", str(path))
        return fd

    def stat(self, path: Path) -> os.stat_result | None:
        """``None`` if nothing is there."""
        try:
            with self.parent(path) as (parent, name):
                found = os.stat(name, dir_fd=parent, follow_symlinks=path == self._root)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if stat.S_ISLNK(found.st_mode):
            raise LinkInDataFolder.at(path)
        return found

    def make_dirs(self, path: Path) -> None:
        """Folders in the root, and the root itself, are for nobody else; those above it are as usual."""
        if path == self._root:
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._make_dir(path)
        except FileNotFoundError:
            if path == self._root:
                # What it would lie in is there, and takes no folders: such as /proc.
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
        """The names in a folder, none of which is a link's."""
        with self.folder(path) as fd, os.scandir(fd) as entries:
            names = []
            for entry in entries:
                if entry.is_symlink():
                    raise LinkInDataFolder.at(path / entry.name)
                names.append(entry.name)
            return names

    def _enter(self, path: Path, folder: str) -> _Entered:
        if self._entered_root is None:
            self._entered_root = _Entered(str(self._root), os.open(str(self._root), _FOLDER))
        entered = self._entered_root
        for name in folder[len(self._prefix) :].split("/"):
            if name == "..":
                raise OSError(errno.EINVAL, "It leads out of the data folder", str(path))
            if name:
                # The one before is closed when nobody refers to it any more.
                entered = _Entered(folder, self._open(path, name, _FOLDER | os.O_NOFOLLOW, entered.fd))
        return entered

    @staticmethod
    def _open(path: Path, name: str, flags: int, parent: int | None) -> int:
        try:
            return os.open(name, flags, FILE_MODE, dir_fd=parent)
        except OSError as error:
            if error.errno in _IS_LINK and stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                raise LinkInDataFolder.at(path) from None
            raise
