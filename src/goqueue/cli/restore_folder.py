"""A data folder that is being made from a backup: whole, or nothing that a broker would start on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from goqueue.model.errors import ClientError, DataFolderLocked, DataFolderTooNew, InvalidRequest
from goqueue.storage.atomic import write_atomically
from goqueue.storage.files import OsFiles
from goqueue.storage.folder import FORMAT_VERSION, RESTORE_PART, RESTORED

if TYPE_CHECKING:
    from goqueue.storage.backup_format import Head

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

    def __init__(self, root: Path, expect: Callable[[int], None]) -> None:
        self._root = root
        self._expect = expect
        self._file: BinaryIO | None = None
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
            place.parent.mkdir(parents=True, exist_ok=True)
            self._made.add(place.parent)
        self._file = place.open("xb", buffering=0)

    def write(self, data: bytes) -> None:
        if self._file is not None:
            self._file.write(data)

    def end_file(self) -> None:
        if self._file is not None:
            self._file.close()
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
        folder = _Folder(part, expect)
        part.mkdir(parents=True, exist_ok=True)
        with _alone(part):
            try:
                # Once more: another one may have been faster.
                _check_empty(data)
                _clear(data, but=part / _LOCK)
                yield folder
                write_atomically(OsFiles(), part / RESTORED, b"")
                _give_to_owner(part, data)
                OsFiles().sync_filesystem(part)
                _move_up(part, data)
            except NotEmpty:
                raise
            except BaseException:
                folder.end_file()
                _clear(data)
                if is_ours:
                    with suppress(OSError):
                        data.rmdir()
                raise
        shutil.rmtree(part)
        OsFiles().sync_dir(data)
        OsFiles().sync_dir(data.parent)
    except OSError as error:
        raise NotRestored(f"{data} cannot be written: {error.strerror or error}") from None


def _check_empty(data: Path) -> None:
    if not data.exists():
        return
    found = {str(data)} if not data.is_dir() else {each.name for each in data.iterdir()} - _MAY_BE_THERE
    is_broken_off = RESTORE_PART in found and "FORMAT" not in found
    if found and not (is_broken_off and found <= {RESTORE_PART, *_MOVED}):
        raise NotEmpty(f"{data} is there already, and is no empty folder")


@contextmanager
def _alone(part: Path) -> Iterator[None]:
    try:
        held = OsFiles().lock(part / _LOCK)
    except DataFolderLocked:
        raise NotEmpty(f"another 'goqueue restore' is filling {part.parent}") from None
    try:
        yield
    finally:
        del held


def _move_up(part: Path, data: Path) -> None:
    for name in _MOVED:
        if (part / name).exists():
            (part / name).rename(data / name)
    OsFiles().sync_dir(data)
    (part / "FORMAT").rename(data / "FORMAT")
    OsFiles().sync_dir(data)


def _clear(data: Path, but: Path | None = None) -> None:
    """Remove what a restore has put there; ``FORMAT`` first, and what tells that it is not whole last."""
    for place in (data / "FORMAT", *(data / name for name in _MOVED)):
        _remove(place)
    part = data / RESTORE_PART
    for place in part.iterdir() if part.is_dir() else ():
        if place != but:
            _remove(place)
    if but is None:
        with suppress(OSError):
            part.rmdir()


def _remove(place: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place, ignore_errors=True)
    else:
        place.unlink(missing_ok=True)


def _give_to_owner(part: Path, data: Path) -> None:
    """What root restores to somebody's folder is for him: his broker must be able to use it."""
    owner = data.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        return
    for place in part.rglob("*"):
        os.chown(place, owner.st_uid, owner.st_gid)
