"""Walks through an Avro value byte by byte to find where it is invalid. Slow: meant for values known to be invalid."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import inf

from goqueue.schemas.avro import avro_types as types
from goqueue.schemas.base import MAX_DEPTH

UUID = re.compile(rb"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
NUMBERS = {"int": (5, 0x0F), "long": (10, 0x01)}
"""Maximal number of bytes of a number, and the largest last byte of an encoding of that length."""
MOST_EMPTY_ITEMS = 100_000
"""Limit on array items that take no bytes: else a few bytes could claim enough of them to fill a reader's memory."""
_DAY = {"time-millis": 86_400_000, "time-micros": 86_400_000_000}
WIDTHS = {"float": 4, "double": 8}
"""Bytes of a number of fixed size."""
_MOST_STEPS = 150_000
"""About a quarter of a second."""
_MOST_STEPS_IN_PLACE = 10 * MAX_DEPTH
"""Nested records take fewer: a type that takes more without consuming a byte contains itself endlessly."""
_SHOWN_NAMES = 20

_Path = tuple["_Path | None", str | int]


class _Invalid(Exception):
    """The problem, as text."""


class _TooDeep(Exception):
    """Records are nested more deeply than the caller allows."""


@dataclass(slots=True)
class _Blocks:
    """An array or a map that is being walked."""

    item: types.AvroType
    has_keys: bool
    left: int = 0
    place: int = 0


def first_problem(root: types.AvroType, value: bytes, max_depth: float = inf) -> str | None:
    """Description of the first problem in a value, with its path; ``None`` if the value is valid. ``max_depth``:
    largest nesting depth of records."""
    walk = _Walk(value, max_depth)
    try:
        walk.through(root)
    except _TooDeep:
        return f"records lie in one another more than {max_depth} deep"
    except _Invalid as wrong:
        return f"{_shown_path(walk.path)}: {wrong}"
    left = len(value) - walk.at
    return f"{left} bytes are left over behind the value" if left else None


class _Walk:
    def __init__(self, value: bytes, max_depth: float) -> None:
        self.at = 0
        self.path: _Path | None = None
        self._value = value
        self._max_depth = max_depth
        self._depth = 0
        """Number of records around the current part."""
        self._waiting: list[tuple[types.AvroType | _Blocks, _Path | None, int]] = []
        self._fields: dict[int, list[types.Field]] = {}

    def through(self, root: types.AvroType) -> None:
        waiting = self._waiting
        waiting.append((root, None, 0))
        steps = moved = before = 0
        while waiting:
            part, self.path, self._depth = waiting.pop()
            steps += 1
            if self._depth > self._max_depth:
                raise _TooDeep
            if self.at != before:
                moved, before = steps, self.at
            if steps - moved > _MOST_STEPS_IN_PLACE:
                raise _Invalid("the type lies in itself without an end")
            if steps > _MOST_STEPS:
                raise _Invalid("the value does not fit or is nested too deep, and it is too large to find out where")
            if isinstance(part, _Blocks):
                self._next_item(part)
            elif not types.takes_no_bytes(part):
                self._part(part)

    def _part(self, part: types.AvroType) -> None:
        path, depth = self.path, self._depth
        match part:
            case types.Primitive(kind, logical):
                self._primitive(kind, logical)
            case types.Fixed():
                self._skip(part.size, types.shown(part))
            case types.Enum():
                self._choice(len(part.symbols), f"a symbol of {types.shown(part)}")
            case types.Union(branches):
                self._waiting.append((branches[self._choice(len(branches), "a branch of the union")], path, depth))
            case types.Record():
                self._waiting += ((each.type, (path, each.name), depth + 1) for each in self._fields_of(part))
            case types.Array(items):
                self._waiting.append((_Blocks(items, has_keys=False), path, depth))
            case types.Map(values):
                self._waiting.append((_Blocks(values, has_keys=True), path, depth))

    def _fields_of(self, record: types.Record) -> list[types.Field]:
        """Fields in reverse order, for the stack. Fields that take no bytes are skipped: they would only cost steps."""
        if id(record) not in self._fields:
            self._fields[id(record)] = [each for each in reversed(record.fields) if not types.takes_no_bytes(each.type)]
        return self._fields[id(record)]

    def _primitive(self, kind: str, logical: str) -> None:
        if kind in NUMBERS:
            number = self._number(kind, kind)
            if logical and not 0 <= number < _DAY[logical]:
                raise _Invalid(f"{number} is no {logical}; these are from 0 to {_DAY[logical] - 1}")
        elif kind == "boolean":
            if self._skip(1, kind)[0] > 1:
                raise _Invalid(f"a boolean is 0 or 1, the byte at {self.at - 1} is neither")
        elif kind in WIDTHS:
            self._skip(WIDTHS[kind], kind)
        else:
            text = self._text(kind)
            if logical == "uuid" and not UUID.fullmatch(text):
                raise _Invalid(f"{text[:50]!r} is no UUID")

    def _next_item(self, blocks: _Blocks) -> None:
        if not blocks.left:
            count = self._number("long", "number of items")
            if count < 0:
                count = -count
                self._number("long", "size of a block")
            if not count:
                return
            blocks.left = count
        path = self.path
        self._waiting.append((blocks, path, self._depth))
        if types.takes_no_bytes(blocks.item) and not blocks.has_keys:
            blocks.place, blocks.left = blocks.place + blocks.left, 0
            if blocks.place > MOST_EMPTY_ITEMS:
                raise _Invalid(f"there are {blocks.place} items that take no bytes; {MOST_EMPTY_ITEMS} are allowed")
            return
        self.path = (path, blocks.place)
        if blocks.has_keys:
            self._text("string")
        self._waiting.append((blocks.item, self.path, self._depth))
        blocks.left -= 1
        blocks.place += 1

    def _skip(self, size: int, what: str) -> bytes:
        left = len(self._value) - self.at
        if not 0 <= size <= left:
            raise _Invalid(f"{what} needs {size} bytes at byte {self.at}, and {left} are left")
        self.at += size
        return self._value[self.at - size : self.at]

    def _number(self, kind: str, what: str) -> int:
        most_bytes, most_in_last = NUMBERS[kind]
        begin, number = self.at, 0
        while True:
            byte = self._skip(1, what)[0]
            place = self.at - begin
            number |= (byte & 0x7F) << 7 * (place - 1)
            if byte < 0x80:
                if place == most_bytes and byte > most_in_last:
                    raise _Invalid(f"the {what} at byte {begin} is too large for {kind}")
                return (number >> 1) ^ -(number & 1)
            if place == most_bytes:
                raise _Invalid(f"the {what} at byte {begin} has more than {most_bytes} bytes")

    def _text(self, kind: str) -> bytes:
        size = self._number("long", f"length of {kind}")
        content = self._skip(size, kind)
        if kind == "string":
            try:
                content.decode()
            except UnicodeDecodeError:
                raise _Invalid(f"the string at byte {self.at - size} is not UTF-8") from None
        return content

    def _choice(self, count: int, what: str) -> int:
        number = self._number("long", what)
        if not 0 <= number < count:
            raise _Invalid(f"{number} is no {what.removeprefix('a ')}; there are 0 to {count - 1}")
        return number


def _shown_path(path: _Path | None) -> str:
    names: list[str] = []
    while path is not None:
        path, name = path
        names.append(str(name))
        if len(names) > _SHOWN_NAMES:
            names.append("…")
            break
    return "/" + "/".join(reversed(names))
