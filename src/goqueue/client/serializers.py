"""Values are bytes; these turn other things into bytes and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from goqueue.model.errors import InvalidMessage

Serializer = Callable[[Any], bytes]
Deserializer = Callable[[bytes], Any]


def to_bytes(value: Any) -> bytes:
    """The default: bytes pass, texts become UTF-8, anything else needs a serializer."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise InvalidMessage(f"{value[:40]!r} cannot be written as UTF-8") from None
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise InvalidMessage(f"a value of type {type(value).__name__} is not bytes; give the producer a serializer")


def as_text(value: bytes) -> str:
    """For ``deserializer=``: UTF-8."""
    return value.decode()


def to_json(value: Any) -> bytes:
    """For ``serializer=``: JSON, dataclasses and msgspec structs included."""
    return msgspec.json.encode(value)


def from_json(value: bytes) -> Any:
    """For ``deserializer=``: JSON."""
    return msgspec.json.decode(value)
