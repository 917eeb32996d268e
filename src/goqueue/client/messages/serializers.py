"""Values are bytes; these turn other things into bytes and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from goqueue.model.errors import InvalidMessage

Serializer = Callable[[Any], bytes]
Deserializer = Callable[[bytes], Any]

Part = Literal["key", "value"]


@runtime_checkable
class TopicSerializer(Protocol):
    """A serializer that has to know what it writes, and may have to ask for it."""

    def __call__(self, value: Any) -> bytes: ...

    async def bind(self, topic: str, part: Part) -> Serializer:
        """What writes the keys, or the values, of a topic. Asked before each message: it should know the answer."""


@runtime_checkable
class SchemaReader(Protocol):
    """A deserializer that has to know schemas before it can read values that begin with their ids."""

    def __call__(self, value: bytes) -> Any: ...

    async def learn(self, schema_ids: Iterable[int]) -> None:
        """Raises only what may be different later; what cannot be read for good fails where it is read."""


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
