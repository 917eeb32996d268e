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


def may_overwhelm(root: AvroType) -> bool:
    """Whether values of this schema have to be checked before use."""
    return _Shape().is_boundless(root)


def overwhelming(root: AvroType, value: bytes) -> str | None:
    """Why such a value must not be decoded; ``None`` if it can be."""
    if _Descent(value).is_too_deep(root):
        return f"records lie in one another more than {MAX_VALUE_DEPTH} deep"
    return first_problem(root, value)


def lies_too_deep(value: Any) -> bool:
    """Whether dicts and lists of a value to be encoded are nested too deep."""
    waiting = [(value, 1)]
    while waiting:
        part, depth = waiting.pop()
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list | tuple) else ()
        if depth > MAX_VALUE_DEPTH and inner:
            return True
        waiting += ((each, depth + 1) for each in inner if isinstance(each, dict | list | tuple))
    return False


class _Shape:
    def __init__(self) -> None:
        self._around: set[int] = set()
        self._seen: set[int] = set()

    def is_boundless(self, avro_type: AvroType) -> bool:
        match avro_type:
            case Array(items):
                return takes_no_bytes(items) or self.is_boundless(items)
            case Map(values):
                return self.is_boundless(values)
            case Union(branches):
                return any(map(self.is_boundless, branches))
            case Record():
                return self._lies_in_itself(avro_type)
        return False

    def _lies_in_itself(self, record: Record) -> bool:
        if id(record) in self._around:
            return True
        if id(record) in self._seen:
            return False
        self._seen.add(id(record))
        self._around.add(id(record))
        found = any(self.is_boundless(each.type) for each in record.fields)
        self._around.discard(id(record))
        return found


@dataclass(slots=True)
class _Items:
    """Remaining items of an array or a map."""

    item: AvroType
    has_keys: bool
    left: int = 0


class _Descent:
    """Walks an encoded value, up to where it is damaged."""

    def __init__(self, value: bytes) -> None:
        self._value = value
        self._at = 0
        self._waiting: list[tuple[AvroType | _Items, int]] = []

    def is_too_deep(self, root: AvroType) -> bool:
        self._waiting.append((root, 0))
        try:
            while self._waiting:
                part, depth = self._waiting.pop()
                if depth > MAX_VALUE_DEPTH:
                    return True
                self._enter(part, depth)
        except IndexError:
            # The value is damaged here; a decoder gets no further either.
            pass
        return False

    def _enter(self, part: AvroType | _Items, depth: int) -> None:
        match part:
            case Primitive("int" | "long"):
                self._number()
            case Primitive("bytes" | "string"):
                self._skip(self._number())
            case Primitive(kind):
                self._skip(_WIDTHS[kind])
            case Fixed():
                self._skip(part.size)
            case Enum():
                self._number()
            case Union(branches):
                self._waiting.append((branches[self._counted()], depth))
            case Record():
                self._waiting += ((each.type, depth + 1) for each in reversed(part.fields))
            case Array(items):
                self._waiting.append((_Items(items, has_keys=False), depth))
            case Map(values):
                self._waiting.append((_Items(values, has_keys=True), depth))
            case _Items():
                self._next_item(part, depth)

    def _next_item(self, items: _Items, depth: int) -> None:
        if not items.left:
            items.left = self._number()
            if items.left < 0:
                items.left = -items.left
                self._number()
            if not items.left:
                return
        self._waiting.append((items, depth))
        if takes_no_bytes(items.item) and not items.has_keys:
            items.left = 0
            return
        items.left -= 1
        if items.has_keys:
            self._skip(self._number())
        self._waiting.append((items.item, depth))

    def _skip(self, size: int) -> None:
        if not 0 <= size <= len(self._value) - self._at:
            raise IndexError(size)
        self._at += size

    def _counted(self) -> int:
        number = self._number()
        if number < 0:
            raise IndexError(number)
        return number

    def _number(self) -> int:
        number = shift = 0
        while True:
            byte = self._value[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
