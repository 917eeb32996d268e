"""Schemas that were read: by threads of their own, each once however many ask for it, and kept for the next who asks.

A large schema takes a second or more to be read, written in its canonical form, or compared. None of it happens on the
loop, and none of it in the threads that read files.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, ParamSpec, TypeVar

from goqueue.coordination.schema_records import Reference, SchemaRecord
from goqueue.model.errors import ShuttingDown
from goqueue.schemas.base import ParsedSchema, SchemaKind
from goqueue.schemas.parsing import parse_schema, schema_kind

_THREADS = 2
_LEAST_SIZE = 1_000
"""What the smallest schema counts for."""
_MAX_DIGESTS = 100_000
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
RecordOf = Callable[[int], SchemaRecord]


@dataclass(frozen=True, slots=True)
class CachedSchema:
    """A schema that someone has sent. Its text is canonical, or normalized if that was asked for."""

    parsed: ParsedSchema
    text: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class _Kept:
    parsed: ParsedSchema
    size: int


class ParsedSchemas:
    """``record_of`` gives a registered schema by its id; what an id stands for never changes."""

    def __init__(self, record_of: RecordOf, max_bytes: int) -> None:
        self._record_of = record_of
        self._max_bytes = max_bytes
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="goqueue-registry")
        self._closed = False
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._size = 0
        self._under_way: dict[Hashable, asyncio.Task[Any]] = {}
        self._digests: OrderedDict[tuple[int, bool], bytes] = OrderedDict()

    async def close(self) -> None:
        """Begin nothing more, and wait for what was begun."""
        self._closed = True
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)
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
        """A schema that is not registered. Its references tell which schemas they mean."""
        used = await self._referred(references, {})
        key = kind, text, tuple((each.name, each.schema_id) for each in references), normalize
        found: CachedSchema = await self._once(key, lambda: self.in_thread(_understand, kind, text, used, normalize))
        return found

    async def get(self, schema_id: int) -> ParsedSchema:
        """A registered schema."""
        return await self._get(schema_id, {})

    async def _get(self, schema_id: int, held: dict[int, ParsedSchema]) -> ParsedSchema:
        """``held``: what was read for the same request. It may be too much to be kept, and is not read twice."""
        if schema_id in held:
            return held[schema_id]
        known = self._kept.get(schema_id)
        if known is not None:
            self._kept.move_to_end(schema_id)
            return known.parsed
        found: ParsedSchema = await self._once(schema_id, lambda: self._read(schema_id, held))
        held[schema_id] = found
        return found

    async def _referred(
        self, references: Sequence[Reference], held: dict[int, ParsedSchema]
    ) -> dict[str, ParsedSchema]:
        return {each.name: await self._get(each.schema_id, held) for each in references}

    async def digest(self, schema_id: int, *, normalized: bool) -> bytes:
        """Of its canonical, or its normalized text."""
        key = schema_id, normalized
        found = self._digests.get(key)
        if found is None:
            parsed = await self.get(schema_id)
            found = self._digests[key] = await self.in_thread(_digest_of, parsed, normalized)
            if len(self._digests) > _MAX_DIGESTS:
                self._digests.popitem(last=False)
        return found

    async def _once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        making = self._under_way.get(key)
        if making is None:
            # Whoever asked first may go away; the others still wait.
            making = self._under_way[key] = asyncio.create_task(make())
            making.add_done_callback(lambda done: self._done(key, done))
        return await asyncio.shield(making)

    def _done(self, key: Hashable, done: asyncio.Task[Any]) -> None:
        del self._under_way[key]
        if not done.cancelled():
            # Looked at, though all who asked may have gone.
            done.exception()

    async def _read(self, schema_id: int, held: dict[int, ParsedSchema]) -> ParsedSchema:
        record = self._record_of(schema_id)
        used = await self._referred(record.references, held)
        parsed = await self.in_thread(parse_schema, schema_kind(record.kind), record.text, used, is_registered=True)
        self._keep(schema_id, parsed)
        return parsed

    def _keep(self, schema_id: int, parsed: ParsedSchema) -> None:
        size = self.size_of(schema_id)
        self._kept[schema_id] = _Kept(parsed, size)
        self._size += size
        while len(self._kept) > 1 and self._size > self._max_bytes:
            self._size -= self._kept.popitem(last=False)[1].size

    def size_of(self, schema_id: int) -> int:
        """Of its text and of all that it refers to: it holds on to these."""
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
