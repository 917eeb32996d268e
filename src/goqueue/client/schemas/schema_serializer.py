"""Base of serializers whose values begin with a schema id: choice of the schema, and when the registry is asked."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any, TypedDict

from goqueue.client.connection.instants import Span
from goqueue.client.connection.loop_thread import LoopThread
from goqueue.client.connection.response_cache import ResponseCache
from goqueue.client.consumer.handler_result import to_seconds
from goqueue.client.messages.serializers import Part, Serializer
from goqueue.client.schemas.schemas import (
    SCHEMAS_KEPT,
    AsyncSchemas,
    Schema,
    SchemaGiven,
    Schemas,
    SchemaVersion,
    build_in_thread_if_large,
    to_schema,
)
from goqueue.model.errors import GoQueueError, InvalidConfiguration, InvalidSchema
from goqueue.model.logging import get_logger
from goqueue.schemas.base import ParsedSchema, SchemaKind

log = get_logger(__name__)


def registry_of(schemas: AsyncSchemas | Schemas) -> tuple[AsyncSchemas, LoopThread | None]:
    """The registry, and for a synchronous client the thread that calls it."""
    if isinstance(schemas, Schemas):
        return schemas._inner, schemas._thread
    if isinstance(schemas, AsyncSchemas):
        return schemas, None
    raise InvalidConfiguration(f"schemas is {type(schemas).__name__}; give client.schemas")


class WhichSchema(TypedDict, total=False):
    """Options of all serializers beside the schema."""

    subject: str | None
    """Replaces the default subject, which is derived from the topic."""
    auto_register: bool
    """Whether a missing schema is registered. Default: true."""
    use_latest: bool
    """Use the subject's latest schema instead of a given one."""
    version: int | None
    """Use this version of the subject instead of a given schema."""
    normalize: bool
    """Register the schema in normalized form, independent of formatting."""
    latest_max_age: Span
    """How long the latest schema is cached. Default: one minute."""


class SchemaSerializer(ABC):
    """Base class, for ``serializer=`` and ``key_serializer=``. The registry is asked once for each subject."""

    _kind: SchemaKind

    def __init__(
        self,
        schemas: AsyncSchemas | Schemas,
        schema: SchemaGiven | None,
        *,
        subject: str | None = None,
        auto_register: bool = True,
        use_latest: bool = False,
        version: int | None = None,
        normalize: bool = False,
        latest_max_age: Span = 60.0,
    ) -> None:
        self._schemas, self._thread = registry_of(schemas)
        given = None if schema is None else to_schema(schema, self._kind)
        if given is not None and given.kind != self._kind:
            raise InvalidConfiguration(f"the schema is of kind {given.kind}; this needs one of kind {self._kind}")
        if (given is not None) + use_latest + (version is not None) != 1:
            raise InvalidConfiguration("say which schema: give either a schema, or use_latest=True, or a version")
        self._schema, self._subject, self._version = given, subject, version
        self._auto_register, self._normalize = auto_register, normalize
        self._latest_max_age_s = to_seconds(latest_max_age) if use_latest else float("inf")
        self._bound: ResponseCache[str, tuple[Serializer, float]] = ResponseCache(SCHEMAS_KEPT)
        self._schemas.follow(self._bound)

    def __call__(self, value: Any) -> bytes:
        raise InvalidConfiguration(
            f"{type(self).__name__} needs to know the topic: give it to a producer, or call serialize(topic, value)"
        )

    async def bind(self, topic: str, part: Part = "value") -> Serializer:
        """The serializer for the values, or the keys, of a topic."""
        subject = self._subject or f"{topic}-{part}"
        cached = self._bound.cached(subject)
        now = asyncio.get_running_loop().time()
        if cached is not None and cached[1] > now:
            return cached[0]
        if cached is not None:
            return await self._refresh(subject, cached[0], now)
        return (await self._bound.get(subject, lambda: self._bind(subject)))[0]

    async def _refresh(self, subject: str, cached: Serializer, now: float) -> Serializer:
        """Look up the latest schema again."""
        # Concurrent callers use the previous schema until the lookup returns.
        self._bound.put(subject, (cached, now + self._latest_max_age_s))
        try:
            built = await self._bind(subject)
        except GoQueueError as error:
            log.warning(
                "the latest schema is not known, going on with the one before", subject=subject, error=str(error)
            )
            built = cached, asyncio.get_running_loop().time() + self._latest_max_age_s
        self._bound.put(subject, built)
        return built[0]

    async def _bind(self, subject: str) -> tuple[Serializer, float]:
        until = asyncio.get_running_loop().time() + self._latest_max_age_s
        schema = await self._resolve_schema(subject)
        if schema.kind != self._kind:
            raise InvalidSchema(
                f"subject {subject[:300]!r} has a {schema.kind} schema; this serializer writes {self._kind}"
            )
        parsed = await self._schemas.parsed(schema)
        return await build_in_thread_if_large((schema,), self._build, subject, schema, parsed), until

    async def _resolve_schema(self, subject: str) -> Schema:
        if self._schema is None:
            return (await self._schemas.version(subject, self._version or "latest")).schema
        return (await self._identify(subject, await self._with_references(self._schema))).schema

    async def _identify(self, subject: str, schema: Schema) -> SchemaVersion:
        """The schema as a version of the subject."""
        ask = self._schemas.register if self._auto_register else self._schemas.find
        return await ask(subject, schema, normalize=self._normalize)

    async def _with_references(self, schema: Schema) -> Schema:
        """The schema with its references."""
        return schema

    @abstractmethod
    def _build(self, subject: str, schema: Schema, parsed: ParsedSchema) -> Serializer:
        """A serializer for values of this schema. Called in any thread."""

    def serialize(self, topic: str, value: Any, part: Part = "value") -> Any:
        """The bytes of a value, without sending it. To be awaited if the registry is an ``AsyncClient``'s."""
        if self._thread is None:
            return self._serialize(topic, value, part)
        return self._thread.run(self._serialize(topic, value, part))

    async def _serialize(self, topic: str, value: Any, part: Part) -> bytes:
        return (await self.bind(topic, part))(value)
