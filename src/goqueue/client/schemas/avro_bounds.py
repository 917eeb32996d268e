"""Bounds for Avro values that could exhaust memory or the stack.

A few bytes can stand for a huge value: an array of items that take no bytes, or deeply nested recursive types. fastavro
accepts any number of such items, and overflows its stack on deep nesting, which ends the process. So values of such
schemas, and only of these, are walked before they are encoded or decoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from goqueue.schemas.avro.avro_types import Array, AvroType, Enum, Fixed, Map, Primitive, Record, Union, takes_no_bytes
from goqueue.schemas.avro.avro_walk import first_problem

MAX_VALUE_DEPTH = 500
"""Largest nesting depth of records in a value."""
_WIDTHS = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def needs_bounds_check(root: AvroType) -> bool:
    """Whether values of this schema have to be checked before use."""
    return _SchemaWalk().is_unbounded(root)


def bounds_problem(root: AvroType, value: bytes) -> str | None:
    """Why such a value must not be decoded; ``None`` if it can be."""
    if _ValueWalk(value).is_too_deep(root):
        return f"records lie in one another more than {MAX_VALUE_DEPTH} deep"
    return first_problem(root, value)


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


@dataclass(slots=True)
class _RemainingItems:
    """Remaining items of an array or a map."""

    item: AvroType
    has_keys: bool
    left: int = 0


class _ValueWalk:
    """Walks an encoded value, up to where it is damaged."""

    def __init__(self, value: bytes) -> None:
        self._value = value
        self._at = 0
        self._pending: list[tuple[AvroType | _RemainingItems, int]] = []

    def is_too_deep(self, root: AvroType) -> bool:
        self._pending.append((root, 0))
        try:
            while self._pending:
                part, depth = self._pending.pop()
                if depth > MAX_VALUE_DEPTH:
                    return True
                self._enter(part, depth)
        except IndexError:
            # The value is damaged here; a decoder gets no further either.
            pass
        return False

    def _enter(self, part: AvroType | _RemainingItems, depth: int) -> None:
        match part:
            case Primitive("int" | "long"):
                self._read_number()
            case Primitive("bytes" | "string"):
                self._skip(self._read_number())
            case Primitive(kind):
                self._skip(_WIDTHS[kind])
            case Fixed():
                self._skip(part.size)
            case Enum():
                self._read_number()
            case Union(branches):
                self._pending.append((branches[self._read_index()], depth))
            case Record():
                self._pending += ((each.type, depth + 1) for each in reversed(part.fields))
            case Array(items):
                self._pending.append((_RemainingItems(items, has_keys=False), depth))
            case Map(values):
                self._pending.append((_RemainingItems(values, has_keys=True), depth))
            case _RemainingItems():
                self._enter_item(part, depth)

    def _enter_item(self, items: _RemainingItems, depth: int) -> None:
        if not items.left:
            items.left = self._read_number()
            if items.left < 0:
                items.left = -items.left
                self._read_number()
            if not items.left:
                return
        self._pending.append((items, depth))
        if takes_no_bytes(items.item) and not items.has_keys:
            items.left = 0
            return
        items.left -= 1
        if items.has_keys:
            self._skip(self._read_number())
        self._pending.append((items.item, depth))

    def _skip(self, size: int) -> None:
        if not 0 <= size <= len(self._value) - self._at:
            raise IndexError(size)
        self._at += size

    def _read_index(self) -> int:
        number = self._read_number()
        if number < 0:
            raise IndexError(number)
        return number

    def _read_number(self) -> int:
        number = shift = 0
        while True:
            byte = self._value[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
