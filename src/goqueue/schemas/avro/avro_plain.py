"""Normal form of Avro schemas as JSON: full names, and keys in a fixed order."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from goqueue.schemas.avro.avro_types import PRIMITIVES

_KEY_ORDER = ("type", "name", "namespace", "doc", "aliases", "fields", "items", "values", "symbols", "size", "default")
_FIELD_KEY_ORDER = ("name", "type", "doc", "default")
_NAMED = ("record", "error", "enum", "fixed")
_KEYWORDS = (*_NAMED, "array", "map")
_WITHOUT_NAME = {*PRIMITIVES, "array", "map"}
_PART_OF = {"array": "items", "map": "values"}
_OF_NAMED = {"name", "namespace", "doc", "aliases", "fields", "symbols", "size", *_PART_OF.values()}

Definitions = dict[str, dict[str, object]]
"""Named types in normal form, by their full names."""


def written(plain: object) -> str:
    """Text of a normalized schema. ``ValueError`` if JSON cannot express it: JSON has no infinite numbers."""
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def plain(raw: object, known: Collection[str], namespace: str = "") -> object:
    """Normal form of a schema, equal for schemas that differ in notation only. ``known``: full names of all types."""
    if isinstance(raw, list):
        return [plain(each, known, namespace) for each in raw]
    if isinstance(raw, str):
        full = raw if "." in raw or raw in PRIMITIVES or not namespace else f"{namespace}.{raw}"
        return full if full in known else raw
    if not isinstance(raw, dict):
        return raw
    kind = raw.get("type")
    if isinstance(kind, dict):
        # The nested type may be a primitive in another notation, which makes the attributes beside it meaningless.
        kind = plain(kind, known, namespace)
    if isinstance(kind, str) and kind in _WITHOUT_NAME:
        # Avro's own libraries ignore these attributes as well: it is the same type.
        raw = {key: value for key, value in raw.items() if key not in _OF_NAMED or key == _PART_OF.get(kind)}
    if set(raw) == {"type"}:
        return kind if isinstance(raw["type"], dict) else plain(kind, known, namespace)
    if kind in _NAMED:
        raw = _with_full_name(raw, namespace)
        namespace = str(raw["name"]).rpartition(".")[0]
    made: dict[str, object] = {}
    for key in sorted(raw, key=lambda each: _rank(each, _KEY_ORDER)):
        value = raw[key]
        if key == "type" and isinstance(value, dict):
            made[key] = kind
        elif key in ("items", "values") or (key == "type" and value not in _KEYWORDS):
            made[key] = plain(value, known, namespace)
        elif key == "fields" and isinstance(value, list):
            made[key] = [_field(each, known, namespace) for each in value]
        else:
            made[key] = _ordered(value)
    return made


def _with_full_name(raw: dict[str, object], namespace: str) -> dict[str, object]:
    name = str(raw["name"])
    given = raw.get("namespace")
    left = {key: value for key, value in raw.items() if key != "namespace"}
    if "." in name:
        return left | {"name": name}
    inside = namespace if given is None else str(given)
    if inside:
        return left | {"name": f"{inside}.{name}"}
    # A type without a namespace inside one that has a namespace: the empty namespace must be explicit.
    return left | ({"name": name, "namespace": ""} if namespace else {"name": name})


def _field(raw: object, known: Collection[str], namespace: str) -> object:
    if not isinstance(raw, dict):
        return raw
    keys = sorted(raw, key=lambda each: _rank(each, _FIELD_KEY_ORDER))
    return {key: plain(raw[key], known, namespace) if key == "type" else _ordered(raw[key]) for key in keys}


def _rank(key: str, known: tuple[str, ...]) -> tuple[int, str]:
    return (known.index(key), "") if key in known else (len(known), key)


def _ordered(value: object) -> object:
    """Values and other attributes of a schema, with keys sorted: the order of keys has no meaning there."""
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value)}
    return [_ordered(each) for each in value] if isinstance(value, list) else value


def definitions(schema: object) -> Definitions:
    """Every named type that a normalized schema defines."""
    found: Definitions = {}
    waiting = [schema]
    while waiting:
        each = waiting.pop()
        waiting += _inside(each)
        if isinstance(each, dict) and each.get("type") in _NAMED:
            found[str(each["name"])] = each
    return found


def _inside(schema: object) -> list[object]:
    """The types that a normalized type is composed of."""
    if isinstance(schema, list):
        return schema
    if not isinstance(schema, dict):
        return []
    if schema.get("type") in _NAMED:
        fields = schema.get("fields")
        return [each["type"] for each in fields] if isinstance(fields, list) else []
    return [schema[key] for key in ("type", "items", "values") if isinstance(schema.get(key), dict | list)]


def resolved(schema: object, others: Mapping[str, dict[str, object]], depth: int) -> object:
    """A normalized schema with the types of ``others`` defined at their first use, down to the given ``depth``."""
    return _Resolving(others).type(schema, depth)


class TooDeep(Exception):
    """The nesting exceeds what can be written."""


class _Resolving:
    def __init__(self, others: Mapping[str, dict[str, object]]) -> None:
        self._others = others
        self._done: set[str] = set()

    def type(self, schema: object, depth: int) -> object:
        if depth == 0:
            raise TooDeep
        if isinstance(schema, list):
            return [self.type(each, depth - 1) for each in schema]
        if isinstance(schema, str):
            known = self._others.get(schema)
            return schema if known is None or schema in self._done else self.type(known, depth)
        if not isinstance(schema, dict):
            return schema
        if schema.get("type") in _NAMED:
            return self._named(schema, depth)
        parts = ("type", "items", "values") if schema.get("type") not in _KEYWORDS else ("items", "values")
        return {key: self.type(value, depth - 1) if key in parts else value for key, value in schema.items()}

    def _named(self, schema: dict[str, object], depth: int) -> object:
        name = str(schema["name"])
        if name in self._done:
            return name
        self._done.add(name)
        fields = schema.get("fields")
        if not isinstance(fields, list):
            return schema
        return schema | {"fields": [each | {"type": self.type(each["type"], depth - 1)} for each in fields]}
