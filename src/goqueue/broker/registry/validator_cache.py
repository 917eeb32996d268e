"""A cache of compiled validators."""

from __future__ import annotations

from dataclasses import dataclass

from goqueue.broker.registry.schema_registry import SchemaRegistry
from goqueue.broker.runtime.shared_tasks import SharedTasks
from goqueue.model.bounded_cache import BoundedCache
from goqueue.model.errors import GoQueueError, SchemaViolation, ShuttingDown
from goqueue.model.ids import SchemaId
from goqueue.schemas.base import ParsedSchema, Validator
from goqueue.schemas.framed import framed_validator

_MAX_KEPT = 1_000
_MAX_BYTES = 32 << 20
"""Of the texts of their schemas; a validator takes several times the memory of the text."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A validator, and the size of its schema's text."""

    validator: Validator
    size: int


class ValidatorCache:
    """Validators by schema, and by whether values begin with the id of their schema."""

    def __init__(self, registry: SchemaRegistry, max_kept: int = _MAX_KEPT, max_bytes: int = _MAX_BYTES) -> None:
        self._registry = registry
        self._least_size = max_bytes // max_kept
        self._kept: BoundedCache[tuple[SchemaId, bool], Ready] = BoundedCache(max_bytes)
        self._tasks: SharedTasks[Ready] = SharedTasks()

    async def get(self, schema_id: SchemaId, framed: bool) -> Ready:
        key = schema_id, framed
        known = self._kept.get(key)
        return known if known is not None else await self._tasks.run(key, lambda: self._make(schema_id, framed))

    async def _make(self, schema_id: SchemaId, framed: bool) -> Ready:
        try:
            schema = await self._registry.ready(schema_id)
            # A large schema takes a while.
            validator = await self._registry.in_thread(_compiled, schema, framed)
            size = self._registry.size_of(schema_id)
        except ShuttingDown:
            raise
        except GoQueueError as error:
            raise SchemaViolation(f"schema {schema_id} cannot be used: {error}") from None
        made = Ready(validator, size)
        self._kept.put((schema_id, framed), made, max(size, self._least_size))
        return made


def _compiled(schema: ParsedSchema, framed: bool) -> Validator:
    return framed_validator(schema) if framed else schema.validator()
