"""Targets of a backup. A file appears complete under its name, or not at all."""

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
from typing import Any, BinaryIO

from goqueue.cli.terminal.output import discard_output
from goqueue.cli.terminal.progress import STOP_SIGNALS, handling_stop_signals
from goqueue.model.errors import ClientError, InvalidRequest

_MODE = 0o600
"""Readable by the owner only: a backup holds, among other things, the key that signs receipts."""
_LONGEST_NAME_IN_PART = 50
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS, errno.EACCES}
_SYNC_EVERY_BYTES = 16 << 20


class Stopped(Exception):
    """A signal asked to stop."""


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Raise ``Stopped`` in this block on Ctrl-C or SIGTERM, at once, even while the broker sends nothing.

    Only for the first signal, so that clean-up is not interrupted. Use it in the main thread only.
    """

    def on_signal(*_: object) -> None:
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        raise Stopped

    with handling_stop_signals(on_signal):
        yield


class FileExists(InvalidRequest):
    """The backup file exists already."""

    remedy = "Choose another name, or say --force to replace it."


class NotAFile(InvalidRequest):
    """The target exists and is not a regular file, so it is not replaced."""

    remedy = "Choose another name. To send a backup to a device or another program use - and a pipe."


class ReaderGone(ClientError):
    """The reader of standard output has closed it."""

    remedy = "Whoever reads it has stopped before the end. What it has got is no backup."


class NotWritten(ClientError):
    """The backup file cannot be written."""

    remedy = "See that there is room on the disk and that the folder may be written to."


@contextmanager
def reporting_errors(name: str) -> Iterator[None]:
    """Turn errors of the operating system in this block into errors about ``name``."""
    try:
        yield
    except BrokenPipeError:
        raise ReaderGone(f"{name} was closed by who reads it; the backup is not whole") from None
    except OSError as error:
        raise NotWritten(f"{name} cannot be written: {error.strerror or error}") from None


class Output:
    """A backup file being written. ``written`` counts bytes after compression."""

    def __init__(self, file: BinaryIO, name: str, *, compress: bool) -> None:
        self._file = file
        self._name = name
        self._packing: Any = None
        self.written = self._unsynced = 0
        self.syncs_at_intervals = False
        """Whether to fsync at intervals. A single fsync at the end would delay everything else that waits for this
        disk, possibly a broker."""
        if compress:
            import zstandard

            self._packing = zstandard.ZstdCompressor(write_checksum=True).compressobj()

    def write(self, data: bytes) -> None:
        self._put(data if self._packing is None else self._packing.compress(data))

    def finish(self) -> None:
        if self._packing is not None:
            self._put(self._packing.flush())
        with reporting_errors(self._name):
            self._file.flush()

    def _put(self, data: bytes) -> None:
        with reporting_errors(self._name):
            self._file.write(data)
        self.written += len(data)
        self._unsynced += len(data)
        if self.syncs_at_intervals and self._unsynced >= _SYNC_EVERY_BYTES:
            self.sync()

    def sync(self) -> None:
        """Fsync what was written."""
        with reporting_errors(self._name):
            self._file.flush()
            os.fsync(self._file.fileno())
        self._unsynced = 0


def target_path(file: str, *, force: bool) -> Path:
    """The path to write to, with links resolved. Raises if something exists there that must stay."""
    if not file:
        raise InvalidRequest("FILE is empty; it must be a name, or - for standard output")
    with reporting_errors(file):
        path = Path(os.path.realpath(file))
        if path.is_dir():
            raise NotAFile(f"{file} is a folder; a backup is a file")
        if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
            raise NotAFile(f"{file} is there and is no plain file; it is not replaced")
    if os.path.lexists(file) and not force:
        raise FileExists(f"{file} is there already")
    return path


@contextmanager
def to_file(file: Path, compress: bool, *, force: bool) -> Iterator[Output]:
    """Write to a temporary file beside the target; fsync it and rename it into place if the block succeeds."""
    part = file.with_name(f"{file.name[:_LONGEST_NAME_IN_PART]}.part-{os.getpid()}-{secrets.token_hex(4)}")
    with reporting_errors(str(file)):
        opened = os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE), "wb")
    try:
        output = Output(opened, str(file), compress=compress)
        output.syncs_at_intervals = True
        yield output
        output.sync()
        with reporting_errors(str(file)):
            opened.close()
            if force:
                part.replace(file)
            else:
                _put_in_place(part, file)
            _sync_folder(file.absolute().parent)
    finally:
        # Closing tries once more to write what failed before.
        with suppress(OSError):
            opened.close()
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _put_in_place(part: Path, file: Path) -> None:
    """Link the file into place without replacing one that was created meanwhile."""
    try:
        try:
            os.link(part, file)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # A file system without links: create an empty file exclusively, then replace it.
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE))
            part.replace(file)
    except FileExistsError:
        raise FileExists(f"{file} has appeared while the backup was taken; it was left as it is") from None


@contextmanager
def to_standard_output(compress: bool) -> Iterator[Output]:
    try:
        yield Output(sys.stdout.buffer, "standard output", compress=compress)
        with reporting_errors("standard output"):
            sys.stdout.buffer.flush()
    except (NotWritten, ReaderGone):
        # At exit, Python would try to flush the rest of the buffer again and report the error.
        discard_output()
        raise


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
