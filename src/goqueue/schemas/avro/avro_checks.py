"""Validation of Avro values: one function per type, built once, that skips over a value and raises if it is invalid.

No objects are built from a value, and each step consumes at least one byte, or is one of a few nested records that
begin at the same byte, so the work is bounded by the size of the value. A value that is nested too deep for recursive
calls is left to the iterative walk, which is slower and has no such limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from goqueue.schemas.avro.avro_types import Array, AvroType, Enum, Fixed, Map, Primitive, Record, Union, takes_no_bytes
from goqueue.schemas.avro.avro_walk import MOST_EMPTY_ITEMS, NUMBERS, UUID, first_problem

_MOST_ON_LOOP = 4 << 10
"""Size of a value in bytes, if each byte costs one step."""
_FEW_STEPS = 4
"""With at most this many steps per byte, values of any size are checked."""
_MOST_STEPS = 4_000_000
"""About a second."""
Step = Callable[[bytes, int], int]
"""Takes a value and a position in it; returns the position after the part that it skips."""


class Unfit(Exception):
    """The value is invalid; the walk finds out where."""


class AvroValidator:
    """A value is valid if it can be decoded and no bytes remain."""

    def __init__(self, root: AvroType, steps_of_a_byte: int) -> None:
        self._root = root
        self._step = _StepBuilder().make(root)
        self.most_on_loop = _MOST_ON_LOOP // steps_of_a_byte
        self._most_bytes = _MOST_STEPS // steps_of_a_byte if steps_of_a_byte > _FEW_STEPS else None

    def check(self, values: Sequence[bytes]) -> list[str | None]:
        step = self._step
        found: list[str | None] = []
        for value in values:
            if self._most_bytes is not None and len(value) > self._most_bytes:
                found.append(
                    f"the schema is too costly for a value of this size, {len(value)} bytes; with as many records in "
                    f"one another as it has, {self._most_bytes} bytes are allowed; split the value, or put fewer "
                    "records with one field into one another"
                )
                continue
            try:
                fits = step(value, 0) == len(value)
            except (Unfit, IndexError, UnicodeDecodeError, RecursionError):
                fits = False
            found.append(None if fits else first_problem(self._root, value))
        return found


class _StepBuilder:
    """Builds the function for a type. Records are completed later, as they may contain themselves, and long chains."""

    def __init__(self) -> None:
        self._records: dict[int, Step] = {}
        self._unfinished: list[tuple[Record, list[Step]]] = []

    def make(self, root: AvroType) -> Step:
        step = self._step(root)
        while self._unfinished:
            record, steps = self._unfinished.pop()
            steps += (self._step(each.type) for each in record.fields if not takes_no_bytes(each.type))
        return step

    def _step(self, avro_type: AvroType) -> Step:
        if takes_no_bytes(avro_type):
            return _nothing
        match avro_type:
            case Primitive(kind, logical):
                return _LOGICAL.get((kind, logical)) or _PRIMITIVES[kind]
            case Fixed():
                return _sized(avro_type.size)
            case Enum():
                return _enum(len(avro_type.symbols))
            case Union(branches):
                return _union([self._step(each) for each in branches])
            case Array(items):
                return _blocks(self._step(items), items_take_bytes=not takes_no_bytes(items))
            case Map(values):
                return _blocks(_entry(self._step(values)), items_take_bytes=True)
            case Record():
                return self._record(avro_type)

    def _record(self, record: Record) -> Step:
        known = self._records.get(id(record))
        if known is not None:
            return known
        steps: list[Step] = []
        self._unfinished.append((record, steps))

        def step_over(value: bytes, at: int) -> int:
            for each in steps:
                at = each(value, at)
            return at

        self._records[id(record)] = step_over
        return step_over


def _number(value: bytes, at: int) -> tuple[int, int]:
    """A length, a count or a union branch, and the position after it."""
    byte = value[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    end = _long(value, at)
    number = 0
    for place in range(end - 1, at - 1, -1):
        number = number << 7 | value[place] & 0x7F
    return (number >> 1) ^ -(number & 1), end


def _varint(kind: str) -> Step:
    most_bytes, most_in_last = NUMBERS[kind]

    def step_over(value: bytes, at: int) -> int:
        begin = at
        while value[at] >= 0x80:
            at += 1
        if at - begin >= most_bytes - 1 and (at - begin >= most_bytes or value[at] > most_in_last):
            raise Unfit
        return at + 1

    return step_over


def _nothing(_: bytes, at: int) -> int:
    return at


def _boolean(value: bytes, at: int) -> int:
    if value[at] > 1:
        raise Unfit
    return at + 1


def _bytes(value: bytes, at: int) -> int:
    size, at = _number(value, at)
    if not 0 <= size <= len(value) - at:
        raise Unfit
    return at + size


def _string(value: bytes, at: int) -> int:
    size, at = _number(value, at)
    if not 0 <= size <= len(value) - at:
        raise Unfit
    value[at : at + size].decode()
    return at + size


def _sized(size: int) -> Step:
    def step_over(value: bytes, at: int) -> int:
        if at + size > len(value):
            raise Unfit
        return at + size

    return step_over


def _enum(count: int) -> Step:
    def step_over(value: bytes, at: int) -> int:
        number, at = _number(value, at)
        if not 0 <= number < count:
            raise Unfit
        return at

    return step_over


def _union(steps: Sequence[Step]) -> Step:
    count = len(steps)

    def step_over(value: bytes, at: int) -> int:
        number, at = _number(value, at)
        if not 0 <= number < count:
            raise Unfit
        return steps[number](value, at)

    return step_over


def _entry(step: Step) -> Step:
    return lambda value, at: step(value, _string(value, at))


def _blocks(step: Step, *, items_take_bytes: bool) -> Step:
    def step_over(value: bytes, at: int) -> int:
        empty = 0
        while True:
            count, at = _number(value, at)
            if count == 0:
                return at
            if count < 0:
                count = -count
                _, at = _number(value, at)
            if items_take_bytes:
                for _ in range(count):
                    at = step(value, at)
            else:
                empty += count
                if empty > MOST_EMPTY_ITEMS:
                    raise Unfit

    return step_over


def _uuid(value: bytes, at: int) -> int:
    end = _string(value, at)
    _, begin = _number(value, at)
    if not re.fullmatch(UUID, value[begin:end]):
        raise Unfit
    return end


def _time(most: int, number: Step) -> Step:
    def step_over(value: bytes, at: int) -> int:
        end = number(value, at)
        if not 0 <= _number(value, at)[0] < most:
            raise Unfit
        return end

    return step_over


_int, _long = _varint("int"), _varint("long")
_PRIMITIVES: dict[str, Step] = {
    "null": _nothing,
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _sized(4),
    "double": _sized(8),
    "bytes": _bytes,
    "string": _string,
}
_LOGICAL: dict[tuple[str, str], Step] = {
    ("string", "uuid"): _uuid,
    ("int", "time-millis"): _time(86_400_000, _int),
    ("long", "time-micros"): _time(86_400_000_000, _long),
}
