"""JSON schemas in Spark: Arrow types of schemas, and conversion of values from and to JSON.

An object with properties is a struct, one with only ``additionalProperties`` a map. A value of several possible types,
one that the schema does not describe, and a recursive one is a STRING that holds the JSON as it was written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pyarrow as pa

from goqueue.model.errors import InvalidMessage
from goqueue.schemas.json.json_nodes import Node
from goqueue.schemas.json.json_schema import JsonSchema

Change = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class JsonShape:
    """The Arrow type of a schema's values, the type their JSON is decoded to, and the conversions between the two."""

    arrow: pa.DataType
    decoded: Any
    """The msgspec type that JSON is decoded to. Every part of it may be null or missing."""
    after: Change | None = None
    """Conversion of a decoded value for Arrow. Not called for null."""
    before: Change | None = None
    """Conversion of a value from Arrow before it is encoded. Not called for null."""


_BY_TYPE: dict[str, JsonShape] = {
    "string": JsonShape(pa.string(), str | None),
    "integer": JsonShape(pa.int64(), int | None),
    "number": JsonShape(pa.float64(), float | None),
    "boolean": JsonShape(pa.bool_(), bool | None),
}
_CHOICES = ("anyOf", "oneOf")
_OTHER_KEYWORDS = ("if", "not", "dependentSchemas", "dependencies", "patternProperties", "unevaluatedProperties")


def json_shape(schema: JsonSchema) -> JsonShape:
    """The shape of a schema's values."""
    return _ShapeBuilder().shape([schema.document.root], frozenset())


def _text(raw: msgspec.Raw) -> str | None:
    content = bytes(raw)
    return None if content == b"null" else content.decode()


def _raw(text: str) -> Any:
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidMessage(f"{text[:100]!r} is no JSON: {error}") from None
    return msgspec.Raw(text.encode())


_ANY_JSON = JsonShape(pa.string(), msgspec.Raw, _text, _raw)


class _ShapeBuilder:
    def shape(self, nodes: list[Node], ancestors: frozenset[int]) -> JsonShape:
        """The shape of a value that all of these nodes apply to."""
        applied = _with_referenced(nodes)
        if applied is None or any(id(each) in ancestors for each in applied):
            return _ANY_JSON
        ancestors |= {id(each) for each in applied}
        choices = [each.many(keyword) for each in applied for keyword in _CHOICES if each.get(keyword) is not None]
        if choices:
            return self._choice(choices, applied, ancestors)
        types = _types(applied)
        if types == {"object"}:
            return self._object(applied, ancestors)
        if types == {"array"}:
            return self._array(applied, ancestors)
        if types == {"integer", "number"}:
            types = {"number"}
        return _BY_TYPE[types.pop()] if types is not None and len(types) == 1 else _ANY_JSON

    def _choice(self, choices: list[list[Node]], applied: list[Node], ancestors: frozenset[int]) -> JsonShape:
        """The shape of ``anyOf`` or ``oneOf``: only "this or null" has one, anything else is free JSON."""
        left = [each for each in choices[0] if each.get("type") != "null"]
        is_more = any(each.get(keyword) is not None for each in applied for keyword in ("type", "properties", "enum"))
        if len(choices) > 1 or len(left) != 1 or is_more:
            return _ANY_JSON
        return self.shape(left, ancestors)

    def _object(self, applied: list[Node], ancestors: frozenset[int]) -> JsonShape:
        properties: dict[str, list[Node]] = {}
        for each in applied:
            for name, part in each.named("properties").items():
                properties.setdefault(name, []).append(part)
        if properties:
            shapes = {name: self.shape(parts, ancestors) for name, parts in properties.items()}
            required = {name for each in applied for name in _strings(each.get("required"))}
            return _struct(shapes, _defaults(properties, shapes), required)
        others = [each.one("additionalProperties") for each in applied]
        described = [each for each in others if each is not None and not isinstance(each.raw, bool)]
        if not described or any(each.get(keyword) is not None for each in applied for keyword in _OTHER_KEYWORDS):
            return _ANY_JSON
        return _map(self.shape(described, ancestors))

    def _array(self, applied: list[Node], ancestors: frozenset[int]) -> JsonShape:
        if any(each.get("prefixItems") is not None or isinstance(each.get("items"), list) for each in applied):
            return _ANY_JSON
        items = [item for each in applied if (item := each.one("items")) is not None]
        return _list(self.shape(items, ancestors))


def _with_referenced(nodes: list[Node]) -> list[Node] | None:
    """The nodes with those they reference or combine (``allOf``); ``None`` if nothing constrains the value."""
    found: dict[int, Node] = {}
    queue = list(nodes)
    while queue:
        each = queue.pop(0)
        if id(each) not in found and not isinstance(each.raw, bool):
            found[id(each)] = each
            queue += each.referred() + each.many("allOf")
    return list(found.values()) or None


def _types(applied: list[Node]) -> set[str] | None:
    """The possible types of a value besides null; ``None``: any type."""
    found: set[str] | None = None
    for each in applied:
        own = _own_types(each)
        if own is None:
            continue
        if found is not None and "number" in found | own:
            # An integer is also a number.
            own, found = ({*some, "integer"} if "number" in some else some for some in (own, found))
        found = own if found is None else found & own
    return None if found is None else found - {"null"}


def _own_types(node: Node) -> set[str] | None:
    given = node.get("type")
    if given is not None:
        return {given} if isinstance(given, str) else _strings(given)
    if isinstance(options := node.get("enum"), list):
        return {_type_of(each) for each in options}
    if isinstance(node.raw, dict) and "const" in node.raw and node.knows("const"):
        return {_type_of(node.raw["const"])}
    return {"object"} if node.get("properties") is not None else None


def _type_of(value: object) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    names = {str: "string", int: "integer", float: "number", list: "array"}
    return names.get(type(value), "object")


def _strings(given: object) -> set[str]:
    return {each for each in given if isinstance(each, str)} if isinstance(given, list) else set()


def _defaults(properties: dict[str, list[Node]], shapes: dict[str, JsonShape]) -> dict[str, Any]:
    """Defaults by property. One that does not fit its property is ignored: JSON Schema does not check defaults."""
    found: dict[str, Any] = {}
    for name, parts in properties.items():
        for each in parts:
            if not isinstance(each.raw, dict) or "default" not in each.raw or each.raw["default"] is None:
                continue
            shape = shapes[name]
            try:
                value = msgspec.json.decode(msgspec.json.encode(each.raw["default"]), type=shape.decoded)
                value = value if shape.after is None else shape.after(value)
                pa.array([value], shape.arrow)
            except (msgspec.MsgspecError, pa.ArrowException, ValueError, OverflowError):
                continue
            found[name] = value
    return found


def _struct(shapes: dict[str, JsonShape], defaults: dict[str, Any], required: set[str]) -> JsonShape:
    # All objects share the name: msgspec only needs a class for each.
    decoded = TypedDict("Object", {name: each.decoded for name, each in shapes.items()}, total=False)  # type: ignore[misc]
    changes = [(name, each.after) for name, each in shapes.items() if each.after is not None]
    written = {name: each.before for name, each in shapes.items()}

    def after(row: Any) -> Any:
        for name, change in changes:
            if row.get(name) is not None:
                row[name] = change(row[name])
        for name, value in defaults.items():
            if name not in row:
                row[name] = value
        return row

    def before(row: Any) -> Any:
        made: dict[str, Any] = {}
        for name, value in row.items():
            if value is None:
                if name in required:
                    made[name] = None
                continue
            change = written[name]
            made[name] = value if change is None else change(value)
        return made

    arrow = pa.struct([pa.field(name, each.arrow) for name, each in shapes.items()])
    return JsonShape(arrow, decoded | None, after if changes or defaults else None, before)


def _map(values: JsonShape) -> JsonShape:
    return JsonShape(
        pa.map_(pa.string(), values.arrow),
        dict[str, values.decoded] | None,  # type: ignore[name-defined]
        None if values.after is None else lambda row: {key: _each(values.after, row[key]) for key in row},
        None if values.before is None else lambda row: {key: _each(values.before, row[key]) for key in row},
    )


def _list(items: JsonShape) -> JsonShape:
    return JsonShape(
        pa.list_(pa.field("element", items.arrow)),
        list[items.decoded] | None,  # type: ignore[name-defined]
        None if items.after is None else lambda row: [_each(items.after, each) for each in row],
        None if items.before is None else lambda row: [_each(items.before, each) for each in row],
    )


def _each(change: Change | None, value: Any) -> Any:
    return value if value is None or change is None else change(value)
