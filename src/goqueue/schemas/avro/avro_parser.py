"""Parser for Avro schemas: resolves names, checks defaults against their types, reports errors with their paths."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from goqueue.model.errors import InvalidSchema
from goqueue.model.fields import shown as quoted
from goqueue.schemas.avro import avro_types as types
from goqueue.schemas.base import MAX_DEPTH, MAX_NODES

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INT, _LONG = 1 << 31, 1 << 63
_MAX_NAME = 1_000
_MAX_TOLD = 300


class AvroParser:
    """Parses one schema. ``named`` holds the types of the schemas that it may refer to, then its own as well."""

    def __init__(self, named: Mapping[str, types.Named], nodes: int = 0) -> None:
        self.named: dict[str, types.Named] = dict(named)
        self.nodes = 0
        self._others = nodes
        """Number of nodes in the referenced schemas."""
        self._fitting: dict[tuple[int, int], bool] = {}
        """Whether a default fits a type, by identity: parts of both recur many times."""
        self._defaults: list[tuple[object, types.AvroType, str]] = []
        """Defaults with types and paths, checked last: a type that encloses its default is incomplete until then."""

    def parse(self, raw: object) -> types.AvroType:
        found = self._type(raw, "", "", 0)
        for default, avro_type, path in self._defaults:
            if not self._fits(default, avro_type, 0):
                raise InvalidSchema(f"{path}: {quoted(default)} is no value of {_told(avro_type)}")
        return found

    def _type(self, raw: object, namespace: str, path: str, depth: int) -> types.AvroType:
        if depth > MAX_DEPTH:
            raise InvalidSchema(f"{path[:200] or '/'}: types lie in one another more than {MAX_DEPTH} deep")
        self._count(1, path)
        if isinstance(raw, str):
            return self._by_name(raw, namespace, path)
        if isinstance(raw, list):
            return self._union(raw, namespace, path, depth)
        if not isinstance(raw, dict):
            raise InvalidSchema(f"{path or '/'}: {quoted(raw)} is no type; a name, a union in [] or a type in {{}} is")
        kind = raw.get("type")
        if kind is None:
            raise InvalidSchema(f"{path or '/'}: 'type' is missing")
        if isinstance(kind, dict | list):
            return self._type(kind, namespace, f"{path}/type", depth + 1)
        match kind:
            case "array":
                return types.Array(self._part(raw, "items", namespace, path, depth))
            case "map":
                return types.Map(self._part(raw, "values", namespace, path, depth))
            case "record" | "error":
                return self._record(raw, namespace, path, depth)
            case "enum":
                return self._enum(raw, namespace, path)
            case "fixed":
                return self._fixed(raw, namespace, path)
            case str():
                found = self._by_name(kind, namespace, f"{path}/type")
                logical = raw.get("logicalType")
                return (
                    types.Primitive(kind, logical)
                    if isinstance(logical, str) and (kind, logical) in types.LOGICAL
                    else found
                )
        raise InvalidSchema(f"{path}/type: {quoted(kind)} is no type")

    def _count(self, parts: int, path: str) -> None:
        self.nodes += parts
        if self.nodes + self._others > MAX_NODES:
            raise InvalidSchema(f"{path or '/'}: the schema has more than {MAX_NODES} parts, references included")

    def _part(self, raw: dict[str, Any], key: str, namespace: str, path: str, depth: int) -> types.AvroType:
        if key not in raw:
            raise InvalidSchema(f"{path or '/'}: {raw['type']} needs {key!r}")
        return self._type(raw[key], namespace, f"{path}/{key}", depth + 1)

    def _by_name(self, name: str, namespace: str, path: str) -> types.AvroType:
        if name in types.PRIMITIVES:
            return types.Primitive(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self.named.get(full) or self.named.get(name)
        if isinstance(found, types.Fixed | types.Enum | types.Record):
            return found
        raise InvalidSchema(
            f"{path or '/'}: there is no type {quoted(name)}; use a primitive type, one that is defined before it, or "
            "one of a schema that is referred to"
        )

    def _union(self, raw: list[Any], namespace: str, path: str, depth: int) -> types.Union:
        branches: list[types.AvroType] = []
        seen: set[str] = set()
        for place, each in enumerate(raw):
            here = f"{path}/{place}"
            branch = self._type(each, namespace, here, depth + 1)
            if isinstance(branch, types.Union):
                raise InvalidSchema(f"{here}: a union cannot stand in a union")
            mark = branch.name if isinstance(branch, types.Named) else branch.type
            if mark in seen:
                raise InvalidSchema(f"{here}: {types.shown(branch)} is in the union already")
            seen.add(mark)
            branches.append(branch)
        return types.Union(tuple(branches))

    def _names(self, raw: dict[str, Any], namespace: str, path: str) -> tuple[str, tuple[str, ...], str]:
        """The full name, the aliases, and the namespace that applies inside the type."""
        name = raw.get("name")
        if not isinstance(name, str) or not name:
            raise InvalidSchema(f"{path or '/'}: {raw['type']} needs a 'name'")
        given = raw.get("namespace")
        if given is not None and not isinstance(given, str):
            raise InvalidSchema(f"{path}/namespace: {quoted(given)} is no namespace")
        full = name
        if "." not in name:
            inside = namespace if given is None else given
            full = f"{inside}.{name}" if inside else name
        if len(full) > _MAX_NAME or not all(_NAME.fullmatch(part) for part in full.split(".")):
            problem = f"{quoted(full)} is no name; letters, digits and _ make one, with dots between"
            raise InvalidSchema(f"{path}/name: {problem}")
        if full in types.PRIMITIVES or full in self.named:
            raise InvalidSchema(f"{path}/name: {quoted(full)} is defined already")
        inside = full.rpartition(".")[0]
        return full, _aliases(raw, inside, path), inside

    def _record(self, raw: dict[str, Any], namespace: str, path: str, depth: int) -> types.Record:
        name, aliases, inside = self._names(raw, namespace, path)
        made = self.named[name] = types.Record(name, aliases)
        fields = raw.get("fields")
        if not isinstance(fields, list):
            raise InvalidSchema(f"{path or '/'}: record {name} needs 'fields', a list")
        seen: set[str] = set()
        for place, each in enumerate(fields):
            here = f"{path}/fields/{place}"
            found = self._field(each, inside, here, depth)
            if found.name in seen:
                raise InvalidSchema(f"{here}/name: field {quoted(found.name)} is there twice")
            seen.add(found.name)
            made.fields.append(found)
        made.takes_no_bytes = all(types.takes_no_bytes(each.type) for each in made.fields)
        return made

    def _field(self, raw: object, namespace: str, path: str, depth: int) -> types.Field:
        if not isinstance(raw, dict):
            raise InvalidSchema(f"{path}: {quoted(raw)} is no field")
        name = raw.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > _MAX_NAME:
            raise InvalidSchema(f"{path}/name: {quoted(name)} is no name; letters, digits and _ make one")
        if "type" not in raw:
            raise InvalidSchema(f"{path}: field {quoted(name)} needs a 'type'")
        field_type = self._type(raw["type"], namespace, f"{path}/type", depth + 1)
        default = raw.get("default", types.NO_DEFAULT)
        if default is not types.NO_DEFAULT:
            self._defaults.append((default, field_type, f"{path}/default"))
        return types.Field(name, field_type, default, _aliases(raw, "", path))

    def _enum(self, raw: dict[str, Any], namespace: str, path: str) -> types.Enum:
        name, aliases, _ = self._names(raw, namespace, path)
        symbols = raw.get("symbols")
        if not isinstance(symbols, list) or not all(
            isinstance(each, str) and len(each) <= _MAX_NAME and _NAME.fullmatch(each) for each in symbols
        ):
            raise InvalidSchema(f"{path}/symbols: enum {name} needs 'symbols', a list of names")
        if len(set(symbols)) != len(symbols):
            raise InvalidSchema(f"{path}/symbols: a symbol of enum {name} is there twice")
        self._count(len(symbols), f"{path}/symbols")
        default = raw.get("default")
        if default is not None and default not in symbols:
            raise InvalidSchema(f"{path}/default: {quoted(default)} is no symbol of enum {name}")
        made = self.named[name] = types.Enum(name, aliases, tuple(symbols), default)
        return made

    def _fixed(self, raw: dict[str, Any], namespace: str, path: str) -> types.Fixed:
        name, aliases, _ = self._names(raw, namespace, path)
        size = raw.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < _INT:
            raise InvalidSchema(f"{path}/size: fixed {name} needs a 'size' from 0 to {_INT - 1}, not {quoted(size)}")
        made = self.named[name] = types.Fixed(name, aliases, size)
        return made

    def _fits(self, value: object, avro_type: types.AvroType, depth: int) -> bool:
        """Whether a default, given as JSON, is a value of a type. For a union, any branch may match."""
        if depth > MAX_DEPTH:
            return False
        pair = id(value), id(avro_type)
        if pair not in self._fitting:
            self._fitting[pair] = self._fits_now(value, avro_type, depth + 1)
        return self._fitting[pair]

    def _fits_now(self, value: object, avro_type: types.AvroType, depth: int) -> bool:
        match avro_type:
            case types.Union(branches):
                return any(self._fits(value, branch, depth) for branch in branches)
            case types.Primitive(kind):
                return _is_primitive(value, kind)
            case types.Enum():
                return isinstance(value, str) and value in avro_type.symbols
            case types.Fixed():
                return isinstance(value, str) and len(value) == avro_type.size
            case types.Array(items):
                return isinstance(value, list) and all(self._fits(each, items, depth) for each in value)
            case types.Map(values):
                return isinstance(value, dict) and all(self._fits(each, values, depth) for each in value.values())
            case types.Record():
                return isinstance(value, dict) and all(
                    self._fits(value[each.name], each.type, depth) if each.name in value else each.has_default
                    for each in avro_type.fields
                )


def _aliases(raw: dict[str, Any], namespace: str, path: str) -> tuple[str, ...]:
    aliases = raw.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(each, str) for each in aliases):
        raise InvalidSchema(f"{path}/aliases: {quoted(aliases)} is no list of names")
    return tuple(each if "." in each or not namespace else f"{namespace}.{each}" for each in aliases)


def _told(avro_type: types.AvroType) -> str:
    text = types.shown(avro_type)
    return text if len(text) <= _MAX_TOLD else text[:_MAX_TOLD] + "..."


def _is_primitive(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    match kind:
        case "null":
            return value is None
        case "int" | "long":
            limit = _INT if kind == "int" else _LONG
            return isinstance(value, int) and -limit <= value < limit
        case "float" | "double":
            return isinstance(value, int | float) or value in ("NaN", "Infinity", "-Infinity")
        case _:
            return kind != "boolean" and isinstance(value, str)
