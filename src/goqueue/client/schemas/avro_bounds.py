"""Bounds for Avro values that could exhaust memory or the stack.

A few bytes can stand for a huge value: an array of items that take no bytes, or deeply nested recursive types. fastavro
accepts any number of such items, and overflows its stack on deep nesting, which ends the process. So values of such
schemas, and only of these, are walked before they are encoded or decoded.
"""

from __future__ import annotations

from typing import Any

from goqueue.schemas.avro.avro_types import Array, AvroType, Map, Record, Union, takes_no_bytes

MAX_VALUE_DEPTH = 500
"""Largest nesting depth of records in a value."""


def needs_bounds_check(root: AvroType) -> bool:
    """Whether values of this schema have to be checked before use."""
    return _SchemaWalk().is_unbounded(root)


def is_too_deep_to_encode(value: Any) -> bool:
    """Whether dicts and lists of a value to be encoded are nested too deep."""
    pending = [(value, 1)]
    while pending:
        part, depth = pending.pop()
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list | tuple) else ()
        if depth > MAX_VALUE_DEPTH and inner:
            return True
        pending += ((each, depth + 1) for each in inner if isinstance(each, dict | list | tuple))
    return False


class _SchemaWalk:
    def __init__(self) -> None:
        self._enclosing: set[int] = set()
        self._seen: set[int] = set()

    def is_unbounded(self, avro_type: AvroType) -> bool:
        match avro_type:
            case Array(items):
                return takes_no_bytes(items) or self.is_unbounded(items)
            case Map(values):
                return self.is_unbounded(values)
            case Union(branches):
                return any(map(self.is_unbounded, branches))
            case Record():
                return self._is_recursive(avro_type)
        return False

    def _is_recursive(self, record: Record) -> bool:
        if id(record) in self._enclosing:
            return True
        if id(record) in self._seen:
            return False
        self._seen.add(id(record))
        self._enclosing.add(id(record))
        found = any(self.is_unbounded(each.type) for each in record.fields)
        self._enclosing.discard(id(record))
        return found
