"""Heads of a stream that reads a partition. Its request is a ``FetchRequest``, as payload.

Each answer has a batch as payload (none if only the offsets are news) and the head::

    next offset     8   where to go on
    high watermark  8
    stable end      8   no transaction is open below

Credit that a reader gives, in bytes of payload::

    bytes           8
"""

from __future__ import annotations

from struct import Struct, error
from typing import NamedTuple

from goqueue.model.errors import InvalidRequest

_BATCH = Struct(">qqq")
_CREDIT = Struct(">Q")
MAX_CREDIT_BYTES = 1 << 40


class ReadHead(NamedTuple):
    """Offsets that come with each batch."""

    next_offset: int
    high_watermark: int
    stable_end: int


def dump_read(next_offset: int, high_watermark: int, stable_end: int) -> bytes:
    return _BATCH.pack(next_offset, high_watermark, stable_end)


def load_read(head: memoryview) -> ReadHead:
    try:
        return ReadHead(*_BATCH.unpack(head))
    except error as problem:
        raise InvalidRequest(f"the head of a batch cannot be read: {problem}") from None


def dump_credit(size_bytes: int) -> bytes:
    return _CREDIT.pack(size_bytes)


def load_credit(head: memoryview) -> int:
    try:
        (size_bytes,) = _CREDIT.unpack(head)
    except error as problem:
        raise InvalidRequest(f"the head of a credit cannot be read: {problem}") from None
    if size_bytes > MAX_CREDIT_BYTES:
        raise InvalidRequest(f"a credit is {size_bytes} bytes; at most {MAX_CREDIT_BYTES} are allowed")
    return int(size_bytes)
