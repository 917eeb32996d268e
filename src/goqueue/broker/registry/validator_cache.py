"""Validators, compiled once and kept for the next batch."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from goqueue.broker.registry.schema_registry import SchemaRegistry
from goqueue.model.errors import GoQueueError, SchemaViolation, ShuttingDown
from goqueue.schemas.base import ParsedSchema, Validator
from goqueue.schemas.framed import framed_validator

MAX_KEPT = 1_000
MAX_KEPT_BYTES = 32 << 20
"""Of the texts of their schemas; what is made of one takes several times as much."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A validator, and the size of its schema's text."""

    validator: Validator
    size: int


class ValidatorCache:
    """By schema, and by whether values tell of which schema they are. Those used least make room."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._kept: OrderedDict[tuple[int, bool], Ready] = OrderedDict()
        self._size = 0
        self._making: dict[tuple[int, bool], asyncio.Task[Ready]] = {}

    async def get(self, schema_id: int, framed: bool) -> Ready:
        key = schema_id, framed
        known = self._kept.get(key)
        if known is not None:
            self._kept.move_to_end(key)
            return known
        making = self._making.get(key)
        if making is None:
            # Whoever asked first may go away; the others still wait.
            making = self._making[key] = asyncio.create_task(self._make(schema_id, framed))
            making.add_done_callback(lambda done: self._made(key, done))
        return await asyncio.shield(making)

    async def _make(self, schema_id: int, framed: bool) -> Ready:
        try:
            schema = await self._registry.ready(schema_id)
            # A large schema takes a while.
            validator = await self._registry.in_thread(_compiled, schema, framed)
            size = self._registry.size_of(schema_id)
        except ShuttingDown:
            raise
        except GoQueueError as error:
            raise SchemaViolation(f"schema {schema_id} cannot be used: {error}") from None
        return Ready(validator, size)

    def _made(self, key: tuple[int, bool], done: asyncio.Task[Ready]) -> None:
        del self._making[key]
        if done.cancelled() or done.exception() is not None:
            return
        made = self._kept[key] = done.result()
        self._size += made.size
        while len(self._kept) > 1 and (len(self._kept) > MAX_KEPT or self._size > MAX_KEPT_BYTES):
            self._size -= self._kept.popitem(last=False)[1].size


def _compiled(schema: ParsedSchema, framed: bool) -> Validator:
    return framed_validator(schema) if framed else schema.validator()
