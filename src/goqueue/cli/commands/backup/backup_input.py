"""Sources of a backup: a running broker, the folder of a stopped one, or a file."""

from __future__ import annotations

import http.client
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from goqueue.cli.connection.broker_http import NoBroker, Refusal, connection_to, parse_address
from goqueue.model.clock import NANOS_PER_SECOND
from goqueue.model.errors import DataFolderLocked, InvalidRequest, error_from
from goqueue.model.units import format_instant_ns
from goqueue.observe.logs import escape
from goqueue.storage.backup.backup_format import BACKUP_FORMAT, BadBackup, Head
from goqueue.version import __version__

if TYPE_CHECKING:
    from goqueue.storage.backup.backup_reader import Source

_PATH = "/admin/backup"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_LARGEST_WINDOW = 1 << 27
_LONGEST_ERROR = 64 << 10
_OK = 200


class NoSuchFile(InvalidRequest):
    """The backup file cannot be read."""

    remedy = "Give the file that 'goqueue backup' has written, or - for standard input."


class FolderInUse(DataFolderLocked):
    """A running broker uses the folder."""

    remedy = "Leave out --data: then the running broker is asked, and goes on working; --server says which one."


class BrokeOff(NoBroker):
    """The broker or the connection failed before the end of the backup."""

    remedy = "Nothing was kept. See whether the broker still runs, and begin anew."


class _ResponseReader:
    """The body of the broker's response; raises ``BrokeOff`` if it ends early."""

    def __init__(self, response: http.client.HTTPResponse, server: str) -> None:
        self._response = response
        self._server = server
        self._read = 0

    def read(self, size: int, /) -> bytes:
        try:
            # ``read1`` returns what has arrived; ``read`` would wait for all of ``size``.
            data = self._response.read1(size)
        except (OSError, http.client.HTTPException):
            raise BrokeOff(
                f"the connection to {self._server} broke after {self._read:,} bytes of the backup; the broker's log "
                "tells why if it was the broker"
            ) from None
        self._read += len(data)
        return data


@contextmanager
def from_broker(server: str, timeout_s: float) -> Iterator[Source]:
    """A backup of a running broker. ``timeout_s`` limits the wait for each piece."""
    url = parse_address(server)
    connection = connection_to(url, timeout_s)
    try:
        try:
            connection.request("GET", url.path.rstrip("/") + _PATH)
            response = connection.getresponse()
            refused = response.read(_LONGEST_ERROR) if response.status != _OK else b""
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise NoBroker(f"no broker can be reached at {server}: {why} (GET {_PATH})") from None
        if refused:
            raise _refusal(server, response.status, refused)
        yield _ResponseReader(response, server)
    finally:
        connection.close()


def _refusal(server: str, status: int, body: bytes) -> Exception:
    try:
        refusal = msgspec.json.decode(body, type=Refusal)
    except (msgspec.DecodeError, RecursionError):
        return NoBroker(f"what listens at {server} is no broker: it answered GET {_PATH} with {status}")
    return error_from(escape(refusal.code), escape(refusal.error))


class _IteratorReader:
    """Reads of any size from an iterator of bytes."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = memoryview(b"")

    def read(self, size: int, /) -> bytes:
        if not self._left:
            self._left = memoryview(next(self._pieces, b""))
        data, self._left = bytes(self._left[:size]), self._left[size:]
        return data


@contextmanager
def from_folder(data: Path) -> Iterator[Source]:
    """A backup of a folder that no broker uses; it is locked while it is read."""
    import platform

    from goqueue.broker.checkup.journal_checkup import known_logs
    from goqueue.storage.backup.backup_folder import check_logs, data_format, recovery_points, stopped
    from goqueue.storage.backup.backup_writer import archive
    from goqueue.storage.files.files import OsFiles

    with ExitStack() as locked:
        try:
            sources = locked.enter_context(stopped(data))
        except DataFolderLocked:
            raise FolderInUse(f"{data} is in use by a broker; --data reads a folder that no broker uses") from None
        check_logs(data, sources, known_logs(data, recovery_points(data)))
        now_ns = time.time_ns()
        total = sum(source.size for source in sources)
        head = Head(
            BACKUP_FORMAT,
            format_instant_ns(now_ns),
            platform.node(),
            __version__,
            data_format(data),
            len(sources),
            total,
        )
        yield _IteratorReader(archive(OsFiles(data), head, sources, now_ns // NANOS_PER_SECOND))


@contextmanager
def from_file(file: str) -> Iterator[Source]:
    """A backup file, compressed or not; ``-`` is standard input."""
    if file == "-":
        yield _decompressed(sys.stdin.buffer)
        return
    try:
        opened = Path(file).open("rb")  # noqa: SIM115
    except OSError as error:
        raise NoSuchFile(f"{file} cannot be read: {error.strerror or error}") from None
    with opened:
        yield _decompressed(opened)


def _decompressed(file: BinaryIO) -> Source:
    first = file.read(len(_ZSTD_MAGIC))
    whole = _PrependedReader(first, file)
    if first != _ZSTD_MAGIC:
        return whole
    import zstandard

    unpacking = zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW)
    return _ZstdReader(unpacking.stream_reader(whole, read_across_frames=True))  # type: ignore[arg-type]


class _PrependedReader:
    """A file whose first bytes have been read already; they are returned first."""

    def __init__(self, first: bytes, file: BinaryIO) -> None:
        self._first = first
        self._file = file

    def read(self, size: int = -1, /) -> bytes:
        if self._first:
            data, self._first = self._first[:size], self._first[size:]
            return data
        return self._file.read(size)


class _ZstdReader:
    def __init__(self, reader: Source) -> None:
        self._reader = reader

    def read(self, size: int, /) -> bytes:
        import zstandard

        try:
            return self._reader.read(size)
        except zstandard.ZstdError as error:
            raise BadBackup(f"it cannot be unpacked, it is damaged or not whole: {error}") from None
