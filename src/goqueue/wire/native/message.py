"""Message of the native protocol: a 16-byte header, a head whose form depends on the operation, and a payload.

::

    0  size         4   bytes behind the header
    4  operation    2
    6  flags        1
    7  version      1   of the head's form: 1
    8  correlation  4   chosen by the client for each request; every answer to it carries the same
    12 head size    4   the rest is payload

All numbers are big-endian. Each side begins with the preface, before its first message.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntFlag
from struct import Struct
from typing import NamedTuple

from goqueue.model.errors import InvalidRequest

PREFACE = b"GoQueue\n"
VERSION = 1
HEADER = Struct(">IHBBII")
HEADER_SIZE = HEADER.size
MAX_HEAD_BYTES = 1 << 20
MAX_CORRELATION = (1 << 32) - 1

Piece = bytes | bytearray | memoryview


class MessageFlag(IntFlag):
    """Bits of a message's flags."""

    ANSWER = 1
    ERROR = 2
    """The payload is an ``Error``; with correlation 0 it is about the connection, which ends."""
    MORE = 4
    """Of an answer: another one follows."""
    LAST = 8
    """Of a request in a stream: the client sends nothing more in it."""


class Message(NamedTuple):
    """A message as received. Head and payload are views of one buffer, which belongs to this message alone."""

    operation: int
    flags: int
    correlation: int
    head: memoryview
    payload: memoryview


def pack(operation: int, flags: int, correlation: int, head: Piece = b"", payload: Sequence[Piece] = ()) -> list[Piece]:
    """A message as pieces to be written one behind the other. A payload that is small is joined to its head."""
    size = sum(map(len, payload))
    start = HEADER.pack(len(head) + size, operation, flags, VERSION, correlation, len(head))
    if size < _JOINED_BYTES:
        return [b"".join((start, head, *payload))]
    return [start + bytes(head), *payload]


_JOINED_BYTES = 16 << 10


def check_header(size: int, version: int, head_size: int, max_message_bytes: int) -> None:
    """Raise unless a header with these values can belong to a message."""
    if version != VERSION:
        raise InvalidRequest(f"a message has version {version}; {VERSION} is spoken here")
    if size > max_message_bytes:
        raise InvalidRequest(f"a message has {size} bytes; at most {max_message_bytes} are taken")
    if head_size > min(size, MAX_HEAD_BYTES):
        raise InvalidRequest(
            f"a message of {size} bytes announces a head of {head_size}; it is a part of them, of at most "
            f"{MAX_HEAD_BYTES}"
        )
