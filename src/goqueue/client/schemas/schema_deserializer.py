"""Base of deserializers for values that begin with a schema id."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from time import monotonic
from typing import Any

from goqueue.client.messages.serializers import Deserializer
from goqueue.client.schemas.schema_serializer import registry_of
from goqueue.client.schemas.schemas import (
    SCHEMAS_KEPT,
    AsyncSchemas,
    Schema,
    SchemaGiven,
    Schemas,
    build_in_thread_if_large,
    to_schema,
)
from goqueue.model.bounded_cache import BoundedCache
from goqueue.model.errors import ClientError, GoQueueError, InvalidSchema
from goqueue.schemas.base import ParsedSchema, SchemaKind
from goqueue.wire.registry_framing import HEADER_BYTES, decode_schema_id, encode_schema_id

_FAILURE_CACHED_S = 5.0
"""A failed lookup is not repeated for this long, since many values may have the same schema."""
_LOADED_AT_ONCE = 16


class SchemaDeserializer(ABC):
    """Base class, for ``deserializer=``. Each schema is requested from the registry once, before its values are
    decoded."""

    _kind: SchemaKind

    def __init__(self, schemas: AsyncSchemas | Schemas, reader_schema: SchemaGiven | None = None) -> None:
        self._schemas, self._thread = registry_of(schemas)
        self._reader_schema = None if reader_schema is None else to_schema(reader_schema, self._kind)
        self._decoders: BoundedCache[bytes, Deserializer] = BoundedCache(SCHEMAS_KEPT)
        """By the header of a value. Changed on the client's loop only, read by any thread."""
        self._failures: BoundedCache[int, tuple[GoQueueError, float]] = BoundedCache(SCHEMAS_KEPT)

    def __call__(self, value: bytes) -> Any:
        decode = self._decoders.peek(value[:HEADER_BYTES])
        return self._decoder(value)(value) if decode is None else decode(value)

    async def read(self, value: bytes) -> Any:
        """Decode a value from any source, with an ``AsyncClient``; requests its schema if necessary."""
        await self.learn([decode_schema_id(value)])
        return self(value)

    async def learn(self, schema_ids: Iterable[int]) -> None:
        """Load these schemas. Raises transient errors only, such as ``BrokerUnavailable``."""
        now = monotonic()
        missing = [each for each in dict.fromkeys(schema_ids) if self._needs_loading(each, now)]
        transient: GoQueueError | None = None
        for first in range(0, len(missing), _LOADED_AT_ONCE):
            group = missing[first : first + _LOADED_AT_ONCE]
            outcomes = await asyncio.gather(*map(self._load, group), return_exceptions=True)
            for schema_id, outcome in zip(group, outcomes, strict=True):
                if not isinstance(outcome, BaseException):
                    continue
                if not isinstance(outcome, GoQueueError):
                    raise outcome
                if outcome.retriable:
                    transient = outcome
                else:
                    self._failures.put(schema_id, (outcome, monotonic()))
        if transient is not None:
            raise transient

    def _needs_loading(self, schema_id: int, now: float) -> bool:
        if self._decoders.peek(encode_schema_id(schema_id)) is not None:
            return False
        failure = self._failures.peek(schema_id)
        return failure is None or now > failure[1] + _FAILURE_CACHED_S

    async def _load(self, schema_id: int) -> None:
        schema = await self._schemas.get(schema_id)
        if schema.kind != self._kind:
            raise InvalidSchema(f"schema {schema_id} is of kind {schema.kind}; this deserializer reads {self._kind}")
        parsed = await self._schemas.parsed(schema)
        reader = None if self._reader_schema is None else await self._schemas.parsed(self._reader_schema)
        built = await build_in_thread_if_large((schema, self._reader_schema), self._build, schema, parsed, reader)
        self._decoders.put(encode_schema_id(schema_id), built)
        self._failures.drop(schema_id)

    @abstractmethod
    def _build(self, schema: Schema, parsed: ParsedSchema, reader: ParsedSchema | None) -> Deserializer:
        """A decoder of values of this schema, header included. Called in any thread."""

    def _decoder(self, value: bytes) -> Deserializer:
        """The decoder of a value whose schema may not have been loaded."""
        schema_id = decode_schema_id(value)
        header = encode_schema_id(schema_id)
        if self._thread is not None and not self._thread.is_current and self._needs_loading(schema_id, monotonic()):
            self._thread.run(self.learn([schema_id]))
        found = self._decoders.peek(header)
        if found is not None:
            return found
        failure = self._failures.peek(schema_id)
        if failure is not None:
            raise type(failure[0])(str(failure[0]))
        raise ClientError(
            f"schema {schema_id} was not asked for yet; read the value by 'await deserializer.read(value)'"
        )
