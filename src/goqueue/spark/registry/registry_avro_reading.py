"""Avro schema resolution: reads values written with one schema as values of another.

Resolution is compiled once per pair of schemas: fields that only one of them has, wider types, branches of unions. The
result is one function per type that steps through a value; this takes at most half the time of consulting both schemas
at each value. The rules are those of the Avro specification.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, NoReturn

from goqueue.schemas.avro.avro_walk import MOST_EMPTY_ITEMS
from goqueue.spark.registry.registry_avro import Node, default_of, is_decimal, is_member, to_decimal, wrap_in_union

Step = Callable[[bytes, int], tuple[Any, int]]
"""Takes a value's bytes and a position; returns the datum that begins there, and the position behind it."""

_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_NAMED = ("record", "enum", "fixed")
_FLOAT, _DOUBLE = Struct("<f").unpack_from, Struct("<d").unpack_from
_LONGEST_SHIFT = 63


class Unreadable(Exception):
    """The value is malformed, or cannot be resolved to the reader's schema."""


def avro_reading(writer: Node, reader: Node) -> Step:
    """A function that reads values of the writer's schema as values of the reader's."""
    return _StepBuilder().step(writer, reader)


class _StepBuilder:
    def __init__(self) -> None:
        self._records: dict[tuple[int, int], Step] = {}
        """Steps by writer's and reader's record: a writer's record may be recursive in fields that are skipped."""

    def step(self, writer: Node, reader: Node) -> Step:
        if writer["type"] == "union":
            return _union([self.step(each, reader) for each in writer["branches"]])
        if reader["type"] == "union":
            return self._into_union(writer, reader)
        kind, wanted = writer["type"], reader["type"]
        if not _is_readable_as(writer, reader):
            return _raising_step(f"{_describe(writer)} was written, which cannot be read as {_describe(reader)}")
        match kind:
            case "record":
                return self._record(writer, reader)
            case "array":
                return _array(self.step(writer["items"], reader["items"]))
            case "map":
                return _map(self.step(writer["values"], reader["values"]))
            case "enum":
                return _enum(writer["symbols"], reader)
            case "fixed":
                return _with_decimal(_fixed(writer["size"]), reader)
            case "string" | "bytes" if wanted == "bytes":
                return _with_decimal(_bytes, reader)
            case "bytes":
                return _string
            case "int" | "long" if wanted in ("float", "double"):
                return _with_change(_long, float)
        return _PRIMITIVES[kind]

    def _into_union(self, writer: Node, reader: Node) -> Step:
        branch = _matching_branch(writer, reader["branches"])
        if branch is None:
            return _raising_step(f"{_describe(writer)} was written, which is no branch of {_describe(reader)}")
        step = self.step(writer, branch)
        if is_member(reader, branch):
            return _with_change(step, lambda value: wrap_in_union(reader, branch, value))
        return step

    def _record(self, writer: Node, reader: Node) -> Step:
        known = self._records.get((id(writer), id(reader)))
        if known is not None:
            return known
        steps: list[tuple[str | None, Step]] = []
        defaults: dict[str, Any] = {}

        def read(value: bytes, at: int) -> tuple[Any, int]:
            row = defaults.copy()
            for name, step in steps:
                found, at = step(value, at)
                if name is not None:
                    row[name] = found
            return row, at

        def read_all(value: bytes, at: int) -> tuple[Any, int]:
            row = {}
            for name, step in steps:
                row[name], at = step(value, at)
            return row, at

        sources = {id(source): each for each in reader["fields"] if (source := _source(each, writer)) is not None}
        unwritten = [each for each in reader["fields"] if _source(each, writer) is None]
        has_all_fields = len(writer["fields"]) == len(reader["fields"]) and not unwritten
        self._records[id(writer), id(reader)] = read_all if has_all_fields else read
        for each in writer["fields"]:
            wanted = sources.get(id(each))
            if wanted is None:
                steps.append((None, self.step(each["type"], each["type"])))
            else:
                steps.append((wanted["name"], self.step(each["type"], wanted["type"])))
        for each in unwritten:
            if "default" in each:
                defaults[each["name"]] = default_of(each["type"], each["default"])
            else:
                steps.append((None, _raising_step(f"field {each['name']!r} was not written, and has no default")))
        return self._records[id(writer), id(reader)]


def _source(field: Node, writer: Node) -> Node | None:
    """The writer's field, by name or alias, that provides a field of the reader; ``None`` if there is none."""
    written: dict[str, Node] = {each["name"]: each for each in writer["fields"]}
    names = (field["name"], *field.get("aliases", ()))
    return next((written[name] for name in names if name in written), None)


def _is_readable_as(writer: Node, reader: Node) -> bool:
    kind, wanted = writer["type"], reader["type"]
    if kind != wanted:
        return wanted in _PROMOTIONS.get(kind, ())
    if kind not in _NAMED:
        return True
    is_same = _short_name(writer) == _short_name(reader) or writer["name"] in reader["aliases"]
    return is_same and (kind != "fixed" or writer["size"] == reader["size"])


def _matching_branch(writer: Node, branches: list[Node]) -> Node | None:
    """The reader's branch of the same type, or else the first that the writer's values can be promoted to."""
    fitting = [each for each in branches if _is_readable_as(writer, each)]
    same = [each for each in fitting if each["type"] == writer["type"] and each.get("name") == writer.get("name")]
    return next(iter(same + [each for each in fitting if each["type"] == writer["type"]] + fitting), None)


def _short_name(node: Node) -> str:
    return str(node["name"]).rpartition(".")[2]


def _describe(node: Node) -> str:
    if node["type"] == "union":
        return f"a union of {', '.join(map(_describe, node['branches'])) or 'nothing'}"
    return f"{node['type']} {node['name']}" if node["type"] in _NAMED else str(node["type"])


def _raising_step(reason: str) -> Step:
    def refuse(value: bytes, at: int) -> NoReturn:
        raise Unreadable(reason)

    return refuse


def _with_change(step: Step, change: Callable[[Any], Any]) -> Step:
    def read(value: bytes, at: int) -> tuple[Any, int]:
        found, at = step(value, at)
        return change(found), at

    return read


def _with_decimal(step: Step, reader: Node) -> Step:
    if not is_decimal(reader):
        return step
    scale = reader.get("scale", 0)
    return _with_change(step, lambda content: to_decimal(content, scale))


def _null(value: bytes, at: int) -> tuple[Any, int]:
    return None, at


def _boolean(value: bytes, at: int) -> tuple[Any, int]:
    byte = value[at]
    if byte > 1:
        raise Unreadable(f"a boolean is 0 or 1, and not {byte}")
    return byte == 1, at + 1


def _long(value: bytes, at: int) -> tuple[Any, int]:
    byte = value[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    number = byte & 0x7F
    shift = 7
    while shift <= _LONGEST_SHIFT:
        at += 1
        byte = value[at]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at + 1
        shift += 7
    raise Unreadable("a number has more than 10 bytes")


def _float(value: bytes, at: int) -> tuple[Any, int]:
    return _FLOAT(value, at)[0], at + 4


def _double(value: bytes, at: int) -> tuple[Any, int]:
    return _DOUBLE(value, at)[0], at + 8


def _string(value: bytes, at: int) -> tuple[Any, int]:
    size, at = _long(value, at)
    end = at + size
    if size < 0 or end > len(value):
        raise Unreadable(f"a text of {size} bytes is longer than the value")
    return value[at:end].decode(), end


def _bytes(value: bytes, at: int) -> tuple[Any, int]:
    size, at = _long(value, at)
    end = at + size
    if size < 0 or end > len(value):
        raise Unreadable(f"{size} bytes are more than the value has")
    return value[at:end], end


_PRIMITIVES: dict[str, Step] = {
    "null": _null, "boolean": _boolean, "int": _long, "long": _long, "float": _float, "double": _double,
    "string": _string, "bytes": _bytes,
}  # fmt: skip


def _fixed(size: int) -> Step:
    def read(value: bytes, at: int) -> tuple[Any, int]:
        end = at + size
        if end > len(value):
            raise Unreadable(f"{size} bytes are more than the value has")
        return value[at:end], end

    return read


def _enum(symbols: list[str], reader: Node) -> Step:
    known, default = set(reader["symbols"]), reader.get("default")
    readable = [symbol if symbol in known else default for symbol in symbols]

    def read(value: bytes, at: int) -> tuple[Any, int]:
        index, at = _long(value, at)
        if not 0 <= index < len(symbols):
            raise Unreadable(f"there is no symbol {index} in an enum of {len(symbols)}")
        found = readable[index]
        if found is None:
            raise Unreadable(f"the reader's enum {reader['name']} has no symbol {symbols[index]!r}, and no default")
        return found, at

    return read


def _union(steps: list[Step]) -> Step:
    def read(value: bytes, at: int) -> tuple[Any, int]:
        branch: int
        branch, at = _long(value, at)
        if not 0 <= branch < len(steps):
            raise Unreadable(f"there is no branch {branch} in a union of {len(steps)}")
        return steps[branch](value, at)

    return read


def _array(step: Step) -> Step:
    def read(value: bytes, at: int) -> tuple[Any, int]:
        items: list[Any] = []
        while True:
            count, at = _count(value, at)
            if count == 0:
                return items, at
            if len(items) + count > len(value) + MOST_EMPTY_ITEMS:
                # Items may take no bytes: without this limit a few bytes could demand a list that fills memory.
                raise Unreadable(f"{len(items) + count} items are more than a value of {len(value)} bytes may have")
            for _ in range(count):
                item, at = step(value, at)
                items.append(item)

    return read


def _map(step: Step) -> Step:
    def read(value: bytes, at: int) -> tuple[Any, int]:
        entries: dict[str, Any] = {}
        while True:
            count, at = _count(value, at)
            if count == 0:
                return entries, at
            for _ in range(count):
                key, at = _string(value, at)
                entries[key], at = step(value, at)

    return read


def _count(value: bytes, at: int) -> tuple[int, int]:
    """The number of items in a block. A negative count is followed by the block's size in bytes, which is skipped."""
    count, at = _long(value, at)
    if count < 0:
        _, at = _long(value, at)
        count = -count
    return count, at
