"""Avro schemas for Spark: their types, and how rows are made ready to be written.

Values come as Arrow takes them without looking at each: dates and timestamps as the numbers that Avro has, and what a
union other than "this or null" holds as a struct with one member for each branch, of which one is set, as Spark's own
Avro functions have it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from goqueue.model.errors import InvalidSchema
from goqueue.schemas.avro.avro_schema import AvroSchema
from goqueue.schemas.avro.avro_types import PRIMITIVES

Node = dict[str, Any]
"""A type as JSON has it, names resolved: a named type is one object wherever it is used, and a union is a dict too."""
Change = Callable[[Any], Any]

NAMED = ("record", "error", "enum", "fixed")
_MOST_DIGITS = 38
_EXACT = Context(prec=80)
_PLAIN: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL: dict[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_WIDER = ({"int", "long"}, {"float", "double"})
"""Branches that are one: the second takes every value of the first."""


def avro_node(schema: AvroSchema) -> Node:
    """A schema with everything that it refers to."""
    return _Expanding().node(json.loads(schema.resolved()), "")


class _Expanding:
    def __init__(self) -> None:
        self._named: dict[str, Node] = {}

    def node(self, raw: Any, namespace: str) -> Node:
        if isinstance(raw, list):
            return {"type": "union", "branches": [self.node(each, namespace) for each in raw]}
        if isinstance(raw, str):
            return {"type": raw} if raw in PRIMITIVES else self._named[raw]
        kind = raw["type"]
        if not isinstance(kind, str) or kind in self._named:
            return self.node(kind, namespace) | {key: raw[key] for key in raw if key != "type"}
        made = dict(raw)
        if kind in NAMED:
            self._named[raw["name"]] = made
            namespace = raw["name"].rpartition(".")[0]
            prefix = f"{namespace}." if namespace else ""
            made["aliases"] = [each if "." in each else prefix + each for each in raw.get("aliases", ())]
        if kind in ("record", "error"):
            made["type"] = "record"
            made["fields"] = [each | {"type": self.node(each["type"], namespace)} for each in raw["fields"]]
        for part in ("items", "values"):
            if part in raw:
                made[part] = self.node(raw[part], namespace)
        return made


def avro_type(node: Node, path: str = "", around: tuple[int, ...] = ()) -> pa.DataType:
    """What its values are in Arrow; ``InvalidSchema`` if there is nothing for them."""
    match node["type"]:
        case "record":
            if id(node) in around:
                raise InvalidSchema(
                    f"{path or 'the schema'}: {node['name']} lies within itself; Spark has no type for that. Use a "
                    "version of the schema that does not"
                )
            fields = [
                pa.field(each["name"], avro_type(each["type"], f"{path}.{each['name']}", (*around, id(node))))
                for each in node["fields"]
            ]
            return pa.struct(fields)
        case "array":
            return pa.list_(pa.field("element", avro_type(node["items"], f"{path}[]", around)))
        case "map":
            return pa.map_(pa.string(), avro_type(node["values"], f"{path}{{}}", around))
        case "union":
            branches = members(node)
            if len(branches) == 1:
                return avro_type(branches[0], path, around)
            return pa.struct(
                [
                    pa.field(f"member{place}", avro_type(each, f"{path}.member{place}", around))
                    for place, each in enumerate(branches)
                ]
            )
    if is_decimal(node):
        if node["precision"] > _MOST_DIGITS:
            raise InvalidSchema(
                f"{path or 'the schema'}: a decimal of {node['precision']} digits; Spark has up to {_MOST_DIGITS}"
            )
        return pa.decimal128(node["precision"], node.get("scale", 0))
    return _LOGICAL.get((node["type"], node.get("logicalType", ""))) or _PLAIN[node["type"]]


def members(union: Node) -> list[Node]:
    """The branches of a union that Spark sees: without null, and a number that fits both as the wider one."""
    branches = [each for each in union["branches"] if each["type"] != "null"]
    if {each["type"] for each in branches} in _WIDER and not any("logicalType" in each for each in branches):
        return [each for each in branches if each["type"] in ("long", "double")]
    return branches or [{"type": "null"}]


def is_decimal(node: Node) -> bool:
    """Whether it is one that makes sense; Avro has any other be the bytes that it is."""
    precision, scale = node.get("precision"), node.get("scale", 0)
    return (
        node["type"] in ("bytes", "fixed")
        and node.get("logicalType") == "decimal"
        and isinstance(precision, int)
        and isinstance(scale, int)
        and precision > 0
        and 0 <= scale <= precision
    )


def to_decimal(content: bytes, scale: int) -> Decimal:
    return _EXACT.scaleb(Decimal(int.from_bytes(content, signed=True)), -scale)


def default_of(node: Node, default: Any) -> Any:
    """What a default of the schema, in JSON, is as a value."""
    match node["type"]:
        case "union":
            # A default is of the first branch; newer schemas may have it of any.
            for place, each in enumerate(branches := node["branches"]):
                if place == len(branches) - 1 or _could_be(each, default):
                    return in_union(node, each, default_of(each, default))
        case "record":
            return {
                each["name"]: default_of(each["type"], default.get(each["name"], each.get("default")))
                for each in node["fields"]
            }
        case "array":
            return [default_of(node["items"], each) for each in default]
        case "map":
            return {key: default_of(node["values"], each) for key, each in default.items()}
        case "bytes" | "fixed":
            content = default.encode("latin-1")
            return to_decimal(content, node.get("scale", 0)) if is_decimal(node) else content
        case "float" | "double":
            return float(default)
    return default


_JSON_OF: dict[str, tuple[type, ...]] = {
    "null": (type(None),), "boolean": (bool,), "int": (int,), "long": (int,), "float": (float, int),
    "double": (float, int), "bytes": (str,), "fixed": (str,), "string": (str,), "enum": (str,), "array": (list,),
    "map": (dict,), "record": (dict,),
}  # fmt: skip


def _could_be(node: Node, default: Any) -> bool:
    kinds = _JSON_OF.get(node["type"], ())
    return isinstance(default, kinds) and (bool in kinds or not isinstance(default, bool))


def in_union(union: Node, branch: Node, value: Any) -> Any:
    """A value of one branch as a value of the union."""
    if not is_member(union, branch):
        return value
    place = next(place for place, each in enumerate(members(union)) if each is branch)
    return {f"member{place}": value}


def is_member(union: Node, branch: Node) -> bool:
    """Whether values of the branch are one member of several; of others nothing but the value is seen."""
    return branch["type"] != "null" and len(members(union)) > 1


def to_written(node: Node) -> Change | None:
    """What has to be done to a value from Arrow before it is written; ``None``: nothing."""
    match node["type"]:
        case "record":
            changes = [
                (each["name"], change) for each in node["fields"] if (change := to_written(each["type"])) is not None
            ]
            return _record_change(changes) if changes else None
        case "array":
            return _items_change(to_written(node["items"]))
        case "map":
            return _values_change(to_written(node["values"]))
        case "union":
            return _union_change(members(node))
    return None


def _items_change(change: Change | None) -> Change | None:
    if change is None:
        return None
    return lambda value: None if value is None else [change(each) for each in value]


def _values_change(change: Change | None) -> Change | None:
    if change is None:
        return None
    return lambda value: None if value is None else {key: change(each) for key, each in value.items()}


def _record_change(changes: list[tuple[str, Change]]) -> Change:
    def change(row: Any) -> Any:
        if row is not None:
            for name, each in changes:
                if name in row:
                    row[name] = each(row[name])
        return row

    return change


def _union_change(branches: list[Node]) -> Change | None:
    changes = [to_written(each) for each in branches]
    if len(branches) == 1:
        return changes[0]
    names = [each.get("name") for each in branches]

    def change(value: Any) -> Any:
        if value is None:
            return None
        chosen = [place for place in range(len(branches)) if value.get(f"member{place}") is not None]
        if len(chosen) > 1:
            # Left as it is: no branch takes it, and whoever writes it says where it stands.
            return value
        for place in chosen:
            found, inner, name = value[f"member{place}"], changes[place], names[place]
            found = found if inner is None else inner(found)
            return found if name is None else (name, found)
        return None

    return change
