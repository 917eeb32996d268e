"""A cache of parsed schemas. Each schema is parsed once, however many requests need it at the same time.

A large schema takes a second or more to parse, to format or to compare. The cache has its own threads for this, so it
blocks neither the event loop nor the threads that read files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, ParamSpec, TypeVar

from goqueue.broker.runtime.shared_tasks import SharedTasks
from goqueue.coordination.schema_records import Reference, SchemaRecord
from goqueue.model.bounded_cache import BoundedCache
from goqueue.model.errors import ShuttingDown
from goqueue.model.ids import SchemaId
from goqueue.schemas.base import ParsedSchema, SchemaKind
from goqueue.schemas.parsing import parse_schema, schema_kind

_THREADS = 2
_LEAST_SIZE = 1_000
"""The size that is assumed for a smaller schema."""
_MAX_DIGESTS = 100_000
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
RecordOf = Callable[[SchemaId], SchemaRecord]


@dataclass(frozen=True, slots=True)
class CachedSchema:
    """A schema from a request. ``text`` is canonical, or normalized if the request asks for it."""

    parsed: ParsedSchema
    text: str
    digest: bytes


class ParsedSchemas:
    """``record_of`` finds a registered schema by its id. The schema of an id never changes."""

    def __init__(self, record_of: RecordOf, max_bytes: int) -> None:
        self._record_of = record_of
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="goqueue-registry")
        self._closed = False
        self._kept: BoundedCache[SchemaId, ParsedSchema] = BoundedCache(max_bytes)
        self._digests: BoundedCache[tuple[SchemaId, bool], bytes] = BoundedCache(_MAX_DIGESTS)
        self._tasks: SharedTasks[Any] = SharedTasks()

    async def close(self) -> None:
        """Start nothing new, and wait for the work under way."""
        self._closed = True
        await self._tasks.wait()
        await asyncio.to_thread(self._threads.shutdown)

    async def in_thread(
        self, work: Callable[Parameters, Result], *arguments: Parameters.args, **named: Parameters.kwargs
    ) -> Result:
        if self._closed:
            raise ShuttingDown("the broker is stopping", retry_after_s=1)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: work(*arguments, **named))

    async def understood(
        self, kind: SchemaKind, text: str, references: Sequence[Reference], *, normalize: bool
    ) -> CachedSchema:
        """Parse a schema that is not registered. Its references include schema ids."""
        used = await self._referred(references, {})
        key = kind, text, tuple((each.name, each.schema_id) for each in references), normalize
        found: CachedSchema = await self._tasks.run(
            key, lambda: self.in_thread(_understand, kind, text, used, normalize)
        )
        return found

    async def get(self, schema_id: SchemaId) -> ParsedSchema:
        """A registered schema."""
        return await self._get(schema_id, {})

    async def _get(self, schema_id: SchemaId, held: dict[SchemaId, ParsedSchema]) -> ParsedSchema:
        """``held``: schemas parsed for the same request. They may be too large for the cache, and are parsed once."""
        if schema_id in held:
            return held[schema_id]
        known = self._kept.get(schema_id)
        if known is not None:
            return known
        found: ParsedSchema = await self._tasks.run(schema_id, lambda: self._read(schema_id, held))
        held[schema_id] = found
        return found

    async def _referred(
        self, references: Sequence[Reference], held: dict[SchemaId, ParsedSchema]
    ) -> dict[str, ParsedSchema]:
        return {each.name: await self._get(each.schema_id, held) for each in references}

    async def digest(self, schema_id: SchemaId, *, normalized: bool) -> bytes:
        """The digest of the canonical or normalized text."""
        key = schema_id, normalized
        found = self._digests.get(key)
        if found is None:
            parsed = await self.get(schema_id)
            found = await self.in_thread(_digest_of, parsed, normalized)
            self._digests.put(key, found)
        return found

    async def _read(self, schema_id: SchemaId, held: dict[SchemaId, ParsedSchema]) -> ParsedSchema:
        record = self._record_of(schema_id)
        used = await self._referred(record.references, held)
        parsed = await self.in_thread(parse_schema, schema_kind(record.kind), record.text, used, is_registered=True)
        self._kept.put(schema_id, parsed, self.size_of(schema_id))
        return parsed

    def size_of(self, schema_id: SchemaId) -> int:
        """The size of its text and of all schemas that it refers to, since it keeps them in memory."""
        size, seen, waiting = 0, {schema_id}, [schema_id]
        while waiting:
            record = self._record_of(waiting.pop())
            size += max(_LEAST_SIZE, len(record.text))
            referred = {each.schema_id for each in record.references} - seen
            seen |= referred
            waiting += referred
        return size


def _understand(kind: SchemaKind, text: str, references: dict[str, ParsedSchema], normalize: bool) -> CachedSchema:
    parsed = parse_schema(kind, text, references)
    written = parsed.normalized() if normalize else parsed.canonical()
    return CachedSchema(parsed, written, _digest(written))


def _digest_of(parsed: ParsedSchema, normalized: bool) -> bytes:
    return _digest(parsed.normalized() if normalized else parsed.canonical())


def _digest(text: str) -> bytes:
    return sha256(text.encode(errors="surrogatepass")).digest()
