"""Encoder for the part of Thrift's compact protocol that Jaeger's agent needs.

A struct is given as its fields, each as (number, type, bytes), in ascending order of their numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from goqueue.wire.varint import varint, zigzag

Field = tuple[int, int, bytes]

_TRUE, _FALSE, _I32, _I64, _BINARY, _LIST, _STRUCT = 1, 2, 5, 6, 8, 9, 12
_STOP: Final = b"\x00"

_PROTOCOL: Final = 0x82
_VERSION: Final = 1
_ONE_WAY: Final = 4
_LONGEST_STEP: Final = 15
"""A field number at most this much larger than the previous one shares a byte with the type."""
_SHORT_LIST: Final = 14


def one_way_call(name: str, arguments: bytes) -> bytes:
    """A one-way call of ``name``, without a reply; ``arguments`` is a struct."""
    return bytes((_PROTOCOL, _ONE_WAY << 5 | _VERSION)) + varint(0) + binary(name.encode()) + arguments


def struct(*fields: Field) -> bytes:
    parts = []
    before = 0
    for number, kind, encoded in fields:
        step = number - before
        if 0 < step <= _LONGEST_STEP:
            parts.append(bytes((step << 4 | kind,)))
        else:
            parts.append(bytes((kind,)) + varint(zigzag(number)))
        parts.append(encoded)
        before = number
    parts.append(_STOP)
    return b"".join(parts)


def i32_field(number: int, value: int) -> Field:
    return number, _I32, varint(zigzag(value))


def i64_field(number: int, value: int) -> Field:
    return number, _I64, varint(zigzag(value))


def bool_field(number: int, value: bool) -> Field:
    return number, _TRUE if value else _FALSE, b""


def text_field(number: int, value: str) -> Field:
    return number, _BINARY, binary(value.encode())


def struct_field(number: int, encoded: bytes) -> Field:
    return number, _STRUCT, encoded


def structs_field(number: int, encoded: Sequence[bytes]) -> Field:
    """A field with a list of structs."""
    count = len(encoded)
    head = bytes((count << 4 | _STRUCT,)) if count <= _SHORT_LIST else bytes((0xF0 | _STRUCT,)) + varint(count)
    return number, _LIST, b"".join([head, *encoded])


def binary(content: bytes) -> bytes:
    return varint(len(content)) + content


def signed(value: int) -> int:
    """A 64-bit value as a signed i64."""
    return value - (1 << 64) if value >> 63 else value
