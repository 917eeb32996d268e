"""A data folder that is being made from a backup: whole, or nothing that a broker would start on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from goqueue.model.errors import ClientError, DataFolderLocked, DataFolderTooNew, InvalidRequest, LinkInDataFolder
from goqueue.storage.files.atomic import write_atomically
from goqueue.storage.files.files import OsFile, OsFiles
from goqueue.storage.files.folder import FORMAT_VERSION, RESTORE_PART, RESTORED
from goqueue.storage.files.safe_paths import FOLDER_MODE, Beneath

if TYPE_CHECKING:
    from goqueue.storage.backup.backup_format import Head

_LOCK = "LOCK"
_MOVED = ("logs", "snapshots", "checkpoint", RESTORED)
"""In this order. A folder with logs and no ``FORMAT`` is refused by every version of the broker."""
_MAY_BE_THERE = {_LOCK, "lost+found"}


class NotEmpty(InvalidRequest):
    """The folder is there and something is in it."""

    remedy = "Name a folder that is not there yet; nothing is ever restored over what exists."


class NoRoom(ClientError):
    """The disk is too small for what the backup holds."""

    remedy = "Make room, or restore to another disk."


class NotRestored(ClientError):
    """The folder cannot be written."""

    remedy = "See that there is room on the disk and that the folder may be written to."


class _Folder:
    """Writes files as they come. Names were looked at by who reads them."""

    def __init__(self, root: Path, beneath: Beneath, expect: Callable[[int], None]) -> None:
        self._root = root
        self._beneath = beneath
        self._expect = expect
        self._file: OsFile | None = None
        self._position = 0
        self._made: set[Path] = set()

    def begin(self, head: Head) -> None:
        if head.data_format > FORMAT_VERSION:
            raise DataFolderTooNew(
                f"the backup is of a data folder of format {head.data_format}; this version of GoQueue knows formats "
                f"up to {FORMAT_VERSION}"
            )
        free = shutil.disk_usage(self._root).free
        if head.size_bytes > free:
            raise NoRoom(f"the backup needs {head.size_bytes:,} bytes, and {self._root.parent} has {free:,} free")
        self._expect(head.size_bytes)

    def begin_file(self, path: str, size: int) -> None:
        place = self._root / path
        if place.parent not in self._made:
            self._beneath.make_dirs(place.parent)
            self._made.add(place.parent)
        self._file, self._position = OsFile(self._beneath.open(place, os.O_RDWR | os.O_CREAT | os.O_EXCL)), 0

    def write(self, data: bytes) -> None:
        if self._file is not None:
            self._file.write(self._position, data)
            self._position += len(data)

    def end_file(self) -> None:
        self._file = None


@contextmanager
def restored_to(data: Path, expect: Callable[[int], None]) -> Iterator[_Folder]:
    """Written to a folder inside it, brought to the disk and moved up when the block ends well, ``FORMAT`` last:
    without it no broker starts there. The folder itself stays as it is: it may be a mount point, and have an owner of
    its own. ``expect``: as of ``Nowhere``."""
    try:
        if data.is_symlink() and not data.exists():
            raise NotEmpty(f"{data} is a link that leads nowhere")
        data = data.resolve()
        _check_empty(data)
        is_ours = not data.exists()
        part = data / RESTORE_PART
        files, beneath = OsFiles(data), Beneath(data)
        folder = _Folder(part, beneath, expect)
        beneath.make_dirs(part)
        _check_owner(beneath, part)
        with _alone(files, part):
            try:
                # Once more: another one may have been faster.
                _check_empty(data)
                _clear(files, data, but=part / _LOCK)
                yield folder
                write_atomically(files, part / RESTORED, b"")
                _give_to_owner(beneath, part, data)
                files.sync_filesystem(part)
                _move_up(files, part, data)
            except NotEmpty:
                raise
            except BaseException:
                folder.end_file()
                _clear(files, data)
                if is_ours:
                    with suppress(OSError):
                        data.rmdir()
                raise
        files.remove_tree(part)
        files.sync_dir(data)
        files.sync_dir(data.parent)
    except LinkInDataFolder:
        raise
    except OSError as error:
        raise NotRestored(f"{data} cannot be written: {error.strerror or error}") from None


def _check_empty(data: Path) -> None:
    if not data.exists():
        return
    found = {str(data)} if not data.is_dir() else {each.name for each in data.iterdir()} - _MAY_BE_THERE
    is_broken_off = RESTORE_PART in found and "FORMAT" not in found
    if found and not (is_broken_off and found <= {RESTORE_PART, *_MOVED}):
        raise NotEmpty(f"{data} is there already, and is no empty folder")


def _check_owner(beneath: Beneath, part: Path) -> None:
    """In a folder of his own somebody else could change what is written to it."""
    with beneath.folder(part) as fd:
        owner = os.fstat(fd).st_uid
        if owner != os.geteuid():
            raise NotEmpty(f"{part} is there and belongs to somebody else (user {owner}); remove it")
        os.fchmod(fd, FOLDER_MODE)


@contextmanager
def _alone(files: OsFiles, part: Path) -> Iterator[None]:
    try:
        held = files.lock(part / _LOCK)
    except DataFolderLocked:
        raise NotEmpty(f"another 'goqueue restore' is filling {part.parent}") from None
    try:
        yield
    finally:
        del held


def _move_up(files: OsFiles, part: Path, data: Path) -> None:
    for name in _MOVED:
        if files.exists(part / name):
            files.rename(part / name, data / name)
    files.sync_dir(data)
    files.rename(part / "FORMAT", data / "FORMAT")
    files.sync_dir(data)


def _clear(files: OsFiles, data: Path, but: Path | None = None) -> None:
    """Remove what a restore has put there; ``FORMAT`` first, and what tells that it is not whole last."""
    for place in (data / "FORMAT", *(data / name for name in _MOVED)):
        _remove(files, place)
    part = data / RESTORE_PART
    for place in part.iterdir() if part.is_dir() else ():
        if place != but:
            _remove(files, place)
    if but is None:
        with suppress(OSError):
            part.rmdir()


def _remove(files: OsFiles, place: Path) -> None:
    """Of a link, the link."""
    try:
        files.remove(place)
    except (IsADirectoryError, PermissionError):
        files.remove_tree(place)


def _give_to_owner(beneath: Beneath, part: Path, data: Path) -> None:
    """What root restores to somebody's folder is for him: his broker must be able to use it.

    A folder becomes his after all that is in it: what he puts there meanwhile is not given to him.
    """
    owner = data.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        return
    with beneath.folder(part) as fd:
        for _, folders, names, parent in os.fwalk(".", topdown=False, follow_symlinks=False, dir_fd=fd):
            for name in (*folders, *names):
                os.chown(name, owner.st_uid, owner.st_gid, dir_fd=parent, follow_symlinks=False)
