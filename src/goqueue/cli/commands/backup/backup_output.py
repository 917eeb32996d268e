"""Where a backup goes. A file is there whole under its name, or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

from goqueue.model.errors import ClientError, InvalidRequest

_MODE = 0o600
"""For nobody else: among other things a backup holds the key that proves receipts."""
_LONGEST_NAME_IN_PART = 50
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS, errno.EACCES}
_SYNC_EVERY_BYTES = 16 << 20


class Stopped(Exception):
    """Somebody wants it to end."""


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Ctrl-C and SIGTERM raise ``Stopped`` in this block, at once: a broker that sends nothing is not waited for.

    Only the first one, so that what was begun is tidied up. To be used in the main thread.
    """

    def told(number: int, _: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped

    before = {number: signal.signal(number, told) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class FileExists(InvalidRequest):
    """The backup's file is there already."""

    remedy = "Choose another name, or say --force to replace it."


class NotAFile(InvalidRequest):
    """What is there is not for replacing."""

    remedy = "Choose another name. To send a backup to a device or another program use - and a pipe."


class ReaderGone(ClientError):
    """Nobody reads standard output any more."""

    remedy = "Whoever reads it has stopped before the end. What it has got is no backup."


class NotWritten(ClientError):
    """The file of the backup cannot be written."""

    remedy = "See that there is room on the disk and that the folder may be written to."


@contextmanager
def written(name: str) -> Iterator[None]:
    """What the system says in this block, as an error of ``name``."""
    try:
        yield
    except BrokenPipeError:
        raise ReaderGone(f"{name} was closed by who reads it; the backup is not whole") from None
    except OSError as error:
        raise NotWritten(f"{name} cannot be written: {error.strerror or error}") from None


class Output:
    """``written`` counts what came out, after packing."""

    def __init__(self, file: BinaryIO, name: str, *, compress: bool) -> None:
        self._file = file
        self._name = name
        self._packing: Any = None
        self.written = self._unsynced = 0
        self.is_synced = False
        """Whether it is brought to the disk little by little. All at once, at the end, it would hold up everybody else
        who waits for that disk; a broker may be among them."""
        if compress:
            import zstandard

            self._packing = zstandard.ZstdCompressor(write_checksum=True).compressobj()

    def write(self, data: bytes) -> None:
        self._put(data if self._packing is None else self._packing.compress(data))

    def finish(self) -> None:
        if self._packing is not None:
            self._put(self._packing.flush())
        with written(self._name):
            self._file.flush()

    def _put(self, data: bytes) -> None:
        with written(self._name):
            self._file.write(data)
        self.written += len(data)
        self._unsynced += len(data)
        if self.is_synced and self._unsynced >= _SYNC_EVERY_BYTES:
            self.sync()

    def sync(self) -> None:
        """Bring what was written to the disk."""
        with written(self._name):
            self._file.flush()
            os.fsync(self._file.fileno())
        self._unsynced = 0


def place_of(file: str, *, force: bool) -> Path:
    """Where a backup goes: where links lead. Raises if something is there that must stay."""
    if not file:
        raise InvalidRequest("FILE is empty; it must be a name, or - for standard output")
    with written(file):
        place = Path(os.path.realpath(file))
        if place.is_dir():
            raise NotAFile(f"{file} is a folder; a backup is a file")
        if os.path.lexists(place) and not stat.S_ISREG(place.lstat().st_mode):
            raise NotAFile(f"{file} is there and is no plain file; it is not replaced")
    if os.path.lexists(file) and not force:
        raise FileExists(f"{file} is there already")
    return place


@contextmanager
def to_file(file: Path, compress: bool, *, force: bool) -> Iterator[Output]:
    """Written beside it under a name of its own, brought to the disk and put in place when the block ends well."""
    part = file.with_name(f"{file.name[:_LONGEST_NAME_IN_PART]}.part-{os.getpid()}-{secrets.token_hex(4)}")
    with written(str(file)):
        opened = os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE), "wb")
    try:
        output = Output(opened, str(file), compress=compress)
        output.is_synced = True
        yield output
        output.sync()
        with written(str(file)):
            opened.close()
            if force:
                part.replace(file)
            else:
                _put_in_place(part, file)
            _sync_folder(file.absolute().parent)
    finally:
        # What could not be written is tried once more by closing.
        with suppress(OSError):
            opened.close()
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _put_in_place(part: Path, file: Path) -> None:
    """Unless something has appeared there meanwhile."""
    try:
        try:
            os.link(part, file)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # A file system without links: whoever can make an empty file may replace it.
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE))
            part.replace(file)
    except FileExistsError:
        raise FileExists(f"{file} has appeared while the backup was taken; it was left as it is") from None


@contextmanager
def to_standard_output(compress: bool) -> Iterator[Output]:
    try:
        yield Output(sys.stdout.buffer, "standard output", compress=compress)
        with written("standard output"):
            sys.stdout.buffer.flush()
    except (NotWritten, ReaderGone):
        # What is left in its buffer would be tried again, and complained about, when the process ends.
        with suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
        raise


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
