"""Reads input from files and standard input in blocks of lines, holding at most one block in memory."""

from __future__ import annotations

import io
import os
import select
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import BinaryIO

from goqueue.model.errors import InvalidMessage, InvalidRequest
from goqueue.model.fields import shown

STANDARD_INPUT = "-"
MAX_LINE_BYTES = 32 << 20
"""More than any message, even one in base64."""
_BLOCK_BYTES = 256 << 10
_LOOK_EVERY_S = 0.2


class BadLine(InvalidMessage):
    """A line is not a valid message. Lines before it are stored, and none after it is sent."""

    remedy = "Correct it and go on from that line, or leave such lines out with --skip-bad."


class BadFile(InvalidMessage):
    """A whole file is not a valid message."""

    remedy = "Correct it, and send it and the files behind it again; or leave such files out with --skip-bad."


class TooLarge(InvalidMessage):
    """A whole file is larger than a message may be."""

    remedy = "Send a part of it, or its lines, without --whole. The files before it are stored."


class NotReadable(InvalidRequest):
    """A file cannot be read."""

    remedy = "Check the path, and that the file may be read; - is standard input."


@dataclass(frozen=True, slots=True)
class Source:
    """A file, or standard input for the path ``-``."""

    path: str

    @property
    def name(self) -> str:
        return "standard input" if self.path == STANDARD_INPUT else shown(self.path)[1:-1]


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive lines, without line ends."""

    source: str
    first: int
    """The number of the first line, counted from 1."""
    lines: list[bytes]
    size_bytes: int
    too_long: bool = False
    """Whether the last line exceeds the limit; only its beginning is here."""


@contextmanager
def open_source(source: Source) -> Iterator[BinaryIO]:
    if source.path == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    try:
        stream = Path(source.path).open("rb", buffering=0)  # noqa: SIM115
    except OSError as error:
        raise NotReadable(f"{source.name} cannot be read: {error.strerror}") from None
    with stream:
        yield stream


def blocks(source: Source, stop: Event) -> Iterator[Block]:
    """The lines of a source as they arrive, so that typed lines and a growing log are sent at once.

    A line ends with LF or CRLF; the last one may have no end. Ends early when ``stop`` is set.
    """
    with open_source(source) as stream:
        read = _reader(stream, stop)
        first, begun, begun_bytes, is_dropped = 1, list[bytes](), 0, False
        while piece := read():
            head, newline, rest = piece.rpartition(b"\n")
            if not newline:
                if not is_dropped:
                    begun.append(piece)
                    begun_bytes += len(piece)
                if begun_bytes > MAX_LINE_BYTES:
                    yield Block(source.name, first, [begun[0][:80]], begun_bytes, too_long=True)
                    begun, begun_bytes, is_dropped = [], 0, True
                continue
            lines = b"".join([*begun, head]).split(b"\n")
            if b"\r" in head or begun:
                lines = [line.removesuffix(b"\r") for line in lines]
            if is_dropped:
                # The rest of the overlong line.
                lines, first, is_dropped = lines[1:], first + 1, False
            if lines:
                yield Block(source.name, first, lines, begun_bytes + len(head) + 1)
            first += len(lines)
            begun, begun_bytes = ([rest], len(rest)) if rest else ([], 0)
        if begun and not stop.is_set():
            yield Block(source.name, first, [b"".join(begun).removesuffix(b"\r")], begun_bytes)


def read_whole(source: Source, max_bytes: int, stop: Event) -> bytes:
    """The whole source, as one message."""
    with open_source(source) as stream:
        read = _reader(stream, stop)
        parts, size = [], 0
        while piece := read():
            parts.append(piece)
            size += len(piece)
            if size > max_bytes:
                raise TooLarge(f"{source.name} has more than the {max_bytes:,} bytes that a message may have")
    return b"".join(parts)


def check_readable(sources: Sequence[Source]) -> None:
    """Check that the files are readable, before the first message is sent."""
    for source in sources:
        if source.path != STANDARD_INPUT and not os.access(source.path, os.R_OK):
            raise NotReadable(f"{source.name} is not there, or must not be read")
        if Path(source.path).is_dir():
            raise NotReadable(f"{source.name} is a folder; name its files")


def total_size(sources: Sequence[Source]) -> int | None:
    """The total size in bytes; ``None`` if it is not known in advance."""
    total = 0
    for source in sources:
        try:
            found = os.fstat(sys.stdin.fileno()) if source.path == STANDARD_INPUT else Path(source.path).stat()
        except (OSError, ValueError):
            return None
        if not stat.S_ISREG(found.st_mode):
            return None
        total += found.st_size
    return total


def _reader(stream: BinaryIO, stop: Event) -> Callable[[], bytes]:
    """A function that reads what is available, up to a block, waiting for the first byte. Empty at the end or after
    ``stop``."""
    try:
        descriptor = stream.fileno()
    except (OSError, io.UnsupportedOperation):
        return lambda: b"" if stop.is_set() else stream.read(_BLOCK_BYTES)

    def read() -> bytes:
        # A blocking read would not notice that a signal has set ``stop``.
        while not _is_ready(descriptor, _LOOK_EVERY_S):
            if stop.is_set():
                return b""
        if stop.is_set():
            return b""
        found = os.read(descriptor, _BLOCK_BYTES)
        # A pipe delivers small pieces: collect what is already there into one block.
        while 0 < len(found) < _BLOCK_BYTES and _is_ready(descriptor, 0):
            more = os.read(descriptor, _BLOCK_BYTES - len(found))
            if not more:
                break
            found += more
        return found

    return read


def _is_ready(descriptor: int, timeout_s: float) -> bool:
    return bool(select.select([descriptor], [], [], timeout_s)[0])
