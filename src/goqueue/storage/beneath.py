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


class Beneath:
    """Names below ``root``. Others, and all of them without a root, are looked up as the system does it; then only a
    link at the very end is refused."""

    def __init__(self, root: Path | None = None) -> None:
        self._root = root
        self._root_fd = -1

    def __del__(self) -> None:
        if self._root_fd >= 0:
            os.close(self._root_fd)

    @contextmanager
    def parent(self, path: Path) -> Iterator[tuple[int | None, str]]:
        """For a call that takes a folder's descriptor and a name. Errors name the whole path."""
        folders = self._folders(path)
        try:
            if not folders:
                yield None, str(path)
                return
            fd = self._enter(path, folders[:-1])
            try:
                yield fd, folders[-1]
            finally:
                self._leave(fd)
        except OSError as error:
            if error.filename is not None:
                error.filename = str(path)
            raise

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
            with self.parent(path) as (parent, name):
                os.mkdir(name, FOLDER_MODE, dir_fd=parent)
        except FileNotFoundError:
            self.make_dirs(path.parent)
            self.make_dirs(path)
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

    def _folders(self, path: Path) -> tuple[str, ...]:
        if self._root is None or path == self._root or not path.is_relative_to(self._root):
            return ()
        parts = path.relative_to(self._root).parts
        if ".." in parts:
            raise OSError(errno.EINVAL, "It leads out of the data folder", str(path))
        return parts

    def _enter(self, path: Path, folders: tuple[str, ...]) -> int:
        if self._root_fd < 0 and self._root is not None:
            self._root_fd = os.open(self._root, _FOLDER)
        fd = self._root_fd
        for name in folders:
            try:
                entered = self._open(path, name, _FOLDER | os.O_NOFOLLOW, fd)
            finally:
                self._leave(fd)
            fd = entered
        return fd

    def _leave(self, fd: int) -> None:
        if fd != self._root_fd:
            os.close(fd)

    @staticmethod
    def _open(path: Path, name: str, flags: int, parent: int | None) -> int:
        try:
            return os.open(name, flags, FILE_MODE, dir_fd=parent)
        except OSError as error:
            if error.errno in _IS_LINK and stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                raise LinkInDataFolder.at(path) from None
            raise
