"""Avro schemas in Spark: Arrow types of schemas, and preparation of rows for writing.

Values use the form that Arrow converts without per-value work: dates and timestamps are the numbers that Avro stores.
A union other than "this or null" is a struct with one member per branch, of which one is set, as in Spark's own Avro
functions.
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
"""An Avro type as JSON with names resolved: a named type is the same object wherever it is used, a union is a dict."""
Change = Callable[[Any], Any]

NAMED = ("record", "error", "enum", "fixed")
_MAX_PRECISION = 38
_EXACT = Context(prec=80)
_PRIMITIVE_TYPES: dict[str, pa.DataType] = {
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
_LOGICAL_TYPES: dict[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_MERGED_BRANCHES = ({"int", "long"}, {"float", "double"})
"""Pairs of branches that become one Spark type: the wider takes every value of the narrower."""


def avro_node(schema: AvroSchema) -> Node:
    """The schema as a node, with all references resolved."""
    return _ReferenceResolver().node(json.loads(schema.resolved()), "")


class _ReferenceResolver:
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
        resolved = dict(raw)
        if kind in NAMED:
            self._named[raw["name"]] = resolved
            namespace = raw["name"].rpartition(".")[0]
            prefix = f"{namespace}." if namespace else ""
            resolved["aliases"] = [each if "." in each else prefix + each for each in raw.get("aliases", ())]
        if kind in ("record", "error"):
            resolved["type"] = "record"
            resolved["fields"] = [each | {"type": self.node(each["type"], namespace)} for each in raw["fields"]]
        for part in ("items", "values"):
            if part in raw:
                resolved[part] = self.node(raw[part], namespace)
        return resolved


def avro_type(node: Node, path: str = "", ancestors: tuple[int, ...] = ()) -> pa.DataType:
    """The Arrow type of the node's values; raises ``InvalidSchema`` if Spark has none for them."""
    match node["type"]:
        case "record":
            if id(node) in ancestors:
                raise InvalidSchema(
                    f"{path or 'the schema'}: {node['name']} lies within itself; Spark has no type for that. Use a "
                    "version of the schema that does not"
                )
            fields = [
                pa.field(each["name"], avro_type(each["type"], f"{path}.{each['name']}", (*ancestors, id(node))))
                for each in node["fields"]
            ]
            return pa.struct(fields)
        case "array":
            return pa.list_(pa.field("element", avro_type(node["items"], f"{path}[]", ancestors)))
        case "map":
            return pa.map_(pa.string(), avro_type(node["values"], f"{path}{{}}", ancestors))
        case "union":
            branches = members(node)
            if len(branches) == 1:
                return avro_type(branches[0], path, ancestors)
            return pa.struct(
                [
                    pa.field(f"member{index}", avro_type(each, f"{path}.member{index}", ancestors))
                    for index, each in enumerate(branches)
                ]
            )
    if is_decimal(node):
        if node["precision"] > _MAX_PRECISION:
            raise InvalidSchema(
                f"{path or 'the schema'}: a decimal of {node['precision']} digits; Spark has up to {_MAX_PRECISION}"
            )
        return pa.decimal128(node["precision"], node.get("scale", 0))
    return _LOGICAL_TYPES.get((node["type"], node.get("logicalType", ""))) or _PRIMITIVE_TYPES[node["type"]]


def members(union: Node) -> list[Node]:
    """The branches of a union that become Spark types: without null, and two number types merged into the wider one."""
    branches = [each for each in union["branches"] if each["type"] != "null"]
    if {each["type"] for each in branches} in _MERGED_BRANCHES and not any("logicalType" in each for each in branches):
        return [each for each in branches if each["type"] in ("long", "double")]
    return branches or [{"type": "null"}]


def is_decimal(node: Node) -> bool:
    """Whether the node is a valid decimal; by the Avro specification an invalid one is read as plain bytes."""
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
    """A default of the schema, given in JSON, as a value."""
    match node["type"]:
        case "union":
            # A default belongs to the first branch; newer versions of the specification allow any branch.
            for index, each in enumerate(branches := node["branches"]):
                if index == len(branches) - 1 or _accepts_default(each, default):
                    return wrap_in_union(node, each, default_of(each, default))
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


_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "null": (type(None),), "boolean": (bool,), "int": (int,), "long": (int,), "float": (float, int),
    "double": (float, int), "bytes": (str,), "fixed": (str,), "string": (str,), "enum": (str,), "array": (list,),
    "map": (dict,), "record": (dict,),
}  # fmt: skip


def _accepts_default(node: Node, default: Any) -> bool:
    kinds = _JSON_TYPES.get(node["type"], ())
    return isinstance(default, kinds) and (bool in kinds or not isinstance(default, bool))


def wrap_in_union(union: Node, branch: Node, value: Any) -> Any:
    """Convert a value of one branch to a value of the union."""
    if not is_member(union, branch):
        return value
    index = next(index for index, each in enumerate(members(union)) if each is branch)
    return {f"member{index}": value}


def is_member(union: Node, branch: Node) -> bool:
    """Whether the branch is a member of a struct; else the union's value is the plain value of the branch."""
    return branch["type"] != "null" and len(members(union)) > 1


def change_before_write(node: Node) -> Change | None:
    """The conversion that a value from Arrow needs before it is written; ``None`` if it needs none."""
    match node["type"]:
        case "record":
            changes = [
                (each["name"], change)
                for each in node["fields"]
                if (change := change_before_write(each["type"])) is not None
            ]
            return _record_change(changes) if changes else None
        case "array":
            return _items_change(change_before_write(node["items"]))
        case "map":
            return _values_change(change_before_write(node["values"]))
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
    changes = [change_before_write(each) for each in branches]
    if len(branches) == 1:
        return changes[0]
    names = [each.get("name") for each in branches]

    def change(value: Any) -> Any:
        if value is None:
            return None
        chosen = [index for index in range(len(branches)) if value.get(f"member{index}") is not None]
        if len(chosen) > 1:
            # Returned unchanged: no branch accepts it, so the writer raises an error that names the field.
            return value
        for index in chosen:
            found, inner, name = value[f"member{index}"], changes[index], names[index]
            found = found if inner is None else inner(found)
            return found if name is None else (name, found)
        return None

    return change
