"""Serializers and deserializers: conversion between Python values and the bytes of a message."""

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
    """A serializer that depends on the topic, for example on the topic's schema, and may have to request it."""

    def __call__(self, value: Any) -> bytes: ...

    async def bind(self, topic: str, part: Part) -> Serializer:
        """The serializer for keys or values of a topic. Called before each message: it should cache its result."""


@runtime_checkable
class SchemaReader(Protocol):
    """A deserializer that has to load schemas before it can read values that begin with their ids."""

    def __call__(self, value: bytes) -> Any: ...

    async def learn(self, schema_ids: Iterable[int]) -> None:
        """Load these schemas. Raises transient errors only; permanent ones are raised when a value is decoded."""


def to_bytes(value: Any) -> bytes:
    """The default serializer: bytes unchanged, text as UTF-8; any other type needs a serializer."""
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
    """For ``deserializer=``: UTF-8 text."""
    return value.decode()


def to_json(value: Any) -> bytes:
    """For ``serializer=``: JSON, dataclasses and msgspec structs included."""
    return msgspec.json.encode(value)


def from_json(value: bytes) -> Any:
    """For ``deserializer=``: JSON."""
    return msgspec.json.decode(value)
