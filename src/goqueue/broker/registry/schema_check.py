"""Checking values at publish: does each fit the schema that its topic asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from goqueue.broker.partitions.topic import Topic
from goqueue.broker.registry.schema_registry import SchemaRegistry
from goqueue.broker.registry.validator_cache import Ready, ValidatorCache
from goqueue.broker.runtime.time_slices import TimeSlice
from goqueue.model.errors import GoQueueError, SchemaViolation, ShuttingDown
from goqueue.model.ids import SchemaId
from goqueue.model.message import Message
from goqueue.wire.batch import FrameRun
from goqueue.wire.compression import decompress, decompress_within
from goqueue.wire.frame import HEADER_SIZE, Flag
from goqueue.wire.registry_framing import HEADER_BYTES, parse_schema_id

MAX_REASON_LENGTH = 1_000
_AT_A_STRETCH = 50
_BYTES_AT_A_STRETCH = 4 << 10
"""What is checked at once: within a millisecond, or a few if it has to be found where a value is wrong."""
_BYTES_AT_ONCE_IN_THREAD = 64 << 10
_UNPACKED_ON_LOOP = 64 << 10
_THREADS = 2
_Result = TypeVar("_Result")
_TOMBSTONE, _COMPRESSED = int(Flag.TOMBSTONE), int(Flag.COMPRESSED)


@dataclass(frozen=True, slots=True)
class Packed:
    """A value as its producer packed it. It is unpacked while it is looked at: together they may be very large."""

    value: bytes


Value = bytes | Packed | None
"""``None``: there is nothing to check."""
Problems = dict[int, str]
"""What is wrong, by place."""


class SchemaCheck:
    """Small values are checked in between by the loop, large ones by a thread."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._validators = ValidatorCache(registry)
        # Its own: those who read files must not wait for whoever has large values.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="goqueue-schemas")
        self._closed = False

    def close(self) -> None:
        """Nothing is published any more."""
        self._closed = True
        self._threads.shutdown(wait=False)

    async def problems(self, topic: Topic, values: Iterable[Value]) -> Problems:
        """What is wrong with each value that does not fit."""
        found: Problems = {}
        waiting: dict[tuple[SchemaId, bool], _Work] = {}
        rules = _Rules(topic, self._registry.ids_of(subject_of(topic)))
        stretch = TimeSlice()
        for place, given in enumerate(values):
            if stretch.is_over:
                await stretch.rest()
            if given is None:
                continue
            try:
                value = await self._unpacked(given, rules.max_bytes) if isinstance(given, Packed) else given
                key = rules.schema_of(place, value)
                work = waiting.get(key)
                if work is None:
                    work = waiting[key] = _Work(await self._validators.get(*key))
            except ShuttingDown:
                # Nothing is wrong with the value.
                raise
            except GoQueueError as error:
                found[place] = _told(str(error))
                continue
            work.add(place, value[HEADER_BYTES:] if key[1] else value)
            if work.is_enough:
                found |= await self._checked(work)
        for work in waiting.values():
            if work.values:
                found |= await self._checked(work)
        return {place: problem + rules.hint(place) for place, problem in found.items()}

    async def _checked(self, work: _Work) -> Problems:
        found = await self._in_thread(work.check) if work.takes_long else work.check()
        work.clear()
        return found

    async def _unpacked(self, packed: Packed, max_bytes: int) -> bytes:
        if len(packed.value) <= _BYTES_AT_A_STRETCH:
            content = decompress_within(packed.value, min(max_bytes, _UNPACKED_ON_LOOP))
            if content is not None:
                return content
        return await self._in_thread(lambda: decompress(packed.value, max_bytes))

    async def _in_thread(self, work: Callable[[], _Result]) -> _Result:
        if self._closed:
            raise ShuttingDown("the broker is stopping", retry_after_s=1)
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


class _Rules:
    """What a topic asks for, as long as one request is looked at."""

    def __init__(self, topic: Topic, ids: Sequence[SchemaId]) -> None:
        self.max_bytes = topic.settings.max_message_bytes
        self._framing = topic.settings.schema_framing
        self._subject = subject_of(topic)
        self._ids = frozenset(ids)
        self._latest = ids[-1] if ids else None
        self._strangers: dict[int, int] = {}
        """By place: values that begin as if with the id of a schema, which is none of the subject's."""

    def schema_of(self, place: int, value: bytes) -> tuple[SchemaId, bool]:
        """The schema that a value must fit, and whether it begins with its id."""
        if self._latest is None:
            raise SchemaViolation(
                f"subject {self._subject!r} has no schema; register one, or set schema_validation to off"
            )
        if self._framing == "plain":
            return self._latest, False
        named = parse_schema_id(value)
        if named is not None and named in self._ids:
            return SchemaId(named), True
        if self._framing == "auto":
            if named is not None:
                self._strangers[place] = named
            return self._latest, False
        if named is None:
            raise SchemaViolation(f"it does not begin with the id of a schema: a zero, and {HEADER_BYTES - 1} bytes")
        raise SchemaViolation(f"schema {named} is not one of subject {self._subject!r}")

    def hint(self, place: int) -> str:
        named = self._strangers.get(place)
        return "" if named is None else f" (it begins like one of schema {named}, which is none of the subject's)"


@dataclass(slots=True)
class _Work:
    """Values of one schema that wait to be checked, and where they stand in the request."""

    ready: Ready
    places: list[int] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    size: int = 0
    takes_long: bool = False
    """Whether one of them is so large that they are left to a thread."""
    most_on_loop: int = field(init=False)

    def __post_init__(self) -> None:
        self.most_on_loop = self.ready.validator.most_on_loop

    def add(self, place: int, value: bytes) -> None:
        self.places.append(place)
        self.values.append(value)
        self.size += len(value)
        self.takes_long |= len(value) > self.most_on_loop

    @property
    def is_enough(self) -> bool:
        most = _BYTES_AT_ONCE_IN_THREAD if self.takes_long else min(_BYTES_AT_A_STRETCH, self.most_on_loop)
        return self.size >= most or len(self.values) >= _AT_A_STRETCH

    def check(self) -> Problems:
        outcomes = self.ready.validator.check(self.values)
        pairs = zip(self.places, outcomes, strict=True)
        return {place: _told(problem) for place, problem in pairs if problem is not None}

    def clear(self) -> None:
        self.places, self.values, self.size, self.takes_long = [], [], 0, False


def subject_of(topic: Topic) -> str:
    return topic.settings.schema_subject or f"{topic.name}-value"


def values_of(messages: Iterable[Message]) -> Iterator[Value]:
    for each in messages:
        yield None if each.tombstone else Packed(each.value) if each.compressed else each.value


def values_in(run: FrameRun, max_bytes: int) -> Iterator[Value]:
    """The values of frames. What is too large is none: it is refused for that."""
    columns = run.columns()
    starts = run.positions.astype(np.int64) + HEADER_SIZE + columns["key_length"]
    rows = zip(starts.tolist(), columns["value_length"].tolist(), columns["flags"].tolist(), strict=True)
    for start, length, flags in rows:
        if flags & _TOMBSTONE or length > max_bytes:
            yield None
        else:
            value = bytes(run.frames[start : start + length])
            yield Packed(value) if flags & _COMPRESSED else value


def _told(problem: str) -> str:
    """Any text becomes one that can be stored and sent."""
    return problem[:MAX_REASON_LENGTH].encode(errors="replace").decode()
