"""Writes a data folder from a backup: complete, or nothing that a broker would start on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from goqueue.model.errors import ClientError, DataFolderLocked, DataFolderTooNew, InvalidRequest, LinkInDataFolder
from goqueue.storage.files.atomic import write_atomically
from goqueue.storage.files.data_folder import FORMAT_VERSION, RESTORE_PART, RESTORED
from goqueue.storage.files.files import OsFile, OsFiles
from goqueue.storage.files.safe_paths import FOLDER_MODE, Beneath

if TYPE_CHECKING:
    from goqueue.storage.backup.backup_format import Head

_LOCK = "LOCK"
_MOVED = ("logs", "snapshots", "checkpoint", RESTORED)
"""Moved in this order. Every version of the broker refuses a folder with logs and no ``FORMAT``."""
_IGNORED_NAMES = {_LOCK, "lost+found"}


class NotEmpty(InvalidRequest):
    """The target folder exists and is not empty."""

    remedy = "Name a folder that is not there yet; nothing is ever restored over what exists."


class NoRoom(ClientError):
    """The disk has less free space than the backup needs."""

    remedy = "Make room, or restore to another disk."


class NotRestored(ClientError):
    """The folder cannot be written."""

    remedy = "See that there is room on the disk and that the folder may be written to."


class _FolderWriter:
    """Writes files as they are read. The reader has validated their names."""

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
        target = self._root / path
        if target.parent not in self._made:
            self._beneath.make_dirs(target.parent)
            self._made.add(target.parent)
        self._file, self._position = OsFile(self._beneath.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL)), 0

    def write(self, data: bytes) -> None:
        if self._file is not None:
            self._file.write(self._position, data)
            self._position += len(data)

    def end_file(self) -> None:
        self._file = None


@contextmanager
def restore_into(data: Path, expect: Callable[[int], None]) -> Iterator[_FolderWriter]:
    """Write to a folder inside ``data``, fsync it, and move it up if the block succeeds, ``FORMAT`` last: without it no
    broker starts there. ``data`` itself stays: it may be a mount point with an owner of its own. ``expect`` is called
    as by ``Nowhere``."""
    try:
        if data.is_symlink() and not data.exists():
            raise NotEmpty(f"{data} is a link that leads nowhere")
        data = data.resolve()
        _check_empty(data)
        is_ours = not data.exists()
        part = data / RESTORE_PART
        files, beneath = OsFiles(data), Beneath(data)
        folder = _FolderWriter(part, beneath, expect)
        beneath.make_dirs(part)
        _check_owner(beneath, part)
        with _exclusive(files, part):
            try:
                # Again under the lock: another restore may have been faster.
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
    found = {str(data)} if not data.is_dir() else {each.name for each in data.iterdir()} - _IGNORED_NAMES
    is_broken_off = RESTORE_PART in found and "FORMAT" not in found
    if found and not (is_broken_off and found <= {RESTORE_PART, *_MOVED}):
        raise NotEmpty(f"{data} is there already, and is no empty folder")


def _check_owner(beneath: Beneath, part: Path) -> None:
    """Refuse a part folder of another user, who could change what is written to it."""
    with beneath.folder(part) as fd:
        owner = os.fstat(fd).st_uid
        if owner != os.geteuid():
            raise NotEmpty(f"{part} is there and belongs to somebody else (user {owner}); remove it")
        os.fchmod(fd, FOLDER_MODE)


@contextmanager
def _exclusive(files: OsFiles, part: Path) -> Iterator[None]:
    try:
        lock = files.lock(part / _LOCK)
    except DataFolderLocked:
        raise NotEmpty(f"another 'goqueue restore' is filling {part.parent}") from None
    try:
        yield
    finally:
        del lock


def _move_up(files: OsFiles, part: Path, data: Path) -> None:
    for name in _MOVED:
        if files.exists(part / name):
            files.rename(part / name, data / name)
    files.sync_dir(data)
    files.rename(part / "FORMAT", data / "FORMAT")
    files.sync_dir(data)


def _clear(files: OsFiles, data: Path, but: Path | None = None) -> None:
    """Remove what a restore has written: ``FORMAT`` first, and the marker of an incomplete restore last."""
    for path in (data / "FORMAT", *(data / name for name in _MOVED)):
        _remove(files, path)
    part = data / RESTORE_PART
    for path in part.iterdir() if part.is_dir() else ():
        if path != but:
            _remove(files, path)
    if but is None:
        with suppress(OSError):
            part.rmdir()


def _remove(files: OsFiles, path: Path) -> None:
    """Remove a file or tree; a link itself, not its target."""
    try:
        files.remove(path)
    except (IsADirectoryError, PermissionError):
        files.remove_tree(path)


def _give_to_owner(beneath: Beneath, part: Path, data: Path) -> None:
    """Give what root restores to the owner of the target folder, whose broker must be able to use it.

    A folder changes owner after its contents, so that files its owner adds meanwhile are not affected.
    """
    owner = data.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        return
    with beneath.folder(part) as fd:
        for _, folders, names, parent in os.fwalk(".", topdown=False, follow_symlinks=False, dir_fd=fd):
            for name in (*folders, *names):
                os.chown(name, owner.st_uid, owner.st_gid, dir_fd=parent, follow_symlinks=False)
