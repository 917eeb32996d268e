"""Parser for Avro schemas: resolves every name, checks every default against its type, and reports every error with
its path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from goqueue.model.errors import InvalidSchema
from goqueue.model.fields import shown as quoted
from goqueue.schemas.avro.avro_types import (
    LOGICAL,
    NO_DEFAULT,
    PRIMITIVES,
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Primitive,
    Record,
    Union,
    shown,
    takes_no_bytes,
)
from goqueue.schemas.base import MAX_DEPTH, MAX_NODES

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INT, _LONG = 1 << 31, 1 << 63
_MAX_NAME = 1_000
_MAX_TOLD = 300


class AvroParser:
    """Parses one schema. ``named`` holds the types of the schemas that it may refer to, and then its own types as
    well."""

    def __init__(self, named: Mapping[str, Named], nodes: int = 0) -> None:
        self.named: dict[str, Named] = dict(named)
        self.nodes = 0
        self._others = nodes
        """Number of nodes in the referenced schemas."""
        self._fitting: dict[tuple[int, int], bool] = {}
        """Whether a default fits a type, by identity: parts of both recur many times."""
        self._defaults: list[tuple[object, AvroType, str]] = []
        """Defaults with their types and paths. They are checked last: a type may be one that encloses the default,
        and is incomplete until then."""

    def parse(self, raw: object) -> AvroType:
        found = self._type(raw, "", "", 0)
        for default, avro_type, path in self._defaults:
            if not self._fits(default, avro_type, 0):
                raise InvalidSchema(f"{path}: {quoted(default)} is no value of {_told(avro_type)}")
        return found

    def _type(self, raw: object, namespace: str, path: str, depth: int) -> AvroType:
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
                return Array(self._part(raw, "items", namespace, path, depth))
            case "map":
                return Map(self._part(raw, "values", namespace, path, depth))
            case "record" | "error":
                return self._record(raw, namespace, path, depth)
            case "enum":
                return self._enum(raw, namespace, path)
            case "fixed":
                return self._fixed(raw, namespace, path)
            case str():
                found = self._by_name(kind, namespace, f"{path}/type")
                logical = raw.get("logicalType")
                return Primitive(kind, logical) if isinstance(logical, str) and (kind, logical) in LOGICAL else found
        raise InvalidSchema(f"{path}/type: {quoted(kind)} is no type")

    def _count(self, parts: int, path: str) -> None:
        self.nodes += parts
        if self.nodes + self._others > MAX_NODES:
            raise InvalidSchema(f"{path or '/'}: the schema has more than {MAX_NODES} parts, references included")

    def _part(self, raw: dict[str, Any], key: str, namespace: str, path: str, depth: int) -> AvroType:
        if key not in raw:
            raise InvalidSchema(f"{path or '/'}: {raw['type']} needs {key!r}")
        return self._type(raw[key], namespace, f"{path}/{key}", depth + 1)

    def _by_name(self, name: str, namespace: str, path: str) -> AvroType:
        if name in PRIMITIVES:
            return Primitive(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self.named.get(full) or self.named.get(name)
        if isinstance(found, Fixed | Enum | Record):
            return found
        raise InvalidSchema(
            f"{path or '/'}: there is no type {quoted(name)}; use a primitive type, one that is defined before it, or "
            "one of a schema that is referred to"
        )

    def _union(self, raw: list[Any], namespace: str, path: str, depth: int) -> Union:
        branches: list[AvroType] = []
        seen: set[str] = set()
        for place, each in enumerate(raw):
            here = f"{path}/{place}"
            branch = self._type(each, namespace, here, depth + 1)
            if isinstance(branch, Union):
                raise InvalidSchema(f"{here}: a union cannot stand in a union")
            mark = branch.name if isinstance(branch, Named) else branch.type
            if mark in seen:
                raise InvalidSchema(f"{here}: {shown(branch)} is in the union already")
            seen.add(mark)
            branches.append(branch)
        return Union(tuple(branches))

    # Named types

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
        _check_name(full, f"{path}/name")
        if full in PRIMITIVES or full in self.named:
            raise InvalidSchema(f"{path}/name: {quoted(full)} is defined already")
        inside = full.rpartition(".")[0]
        return full, _aliases(raw, inside, path), inside

    def _define(self, made: Fixed | Enum | Record) -> None:
        self.named[made.name] = made

    def _record(self, raw: dict[str, Any], namespace: str, path: str, depth: int) -> Record:
        name, aliases, inside = self._names(raw, namespace, path)
        made = Record(name, aliases)
        self._define(made)
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
        made.takes_no_bytes = all(takes_no_bytes(each.type) for each in made.fields)
        return made

    def _field(self, raw: object, namespace: str, path: str, depth: int) -> Field:
        if not isinstance(raw, dict):
            raise InvalidSchema(f"{path}: {quoted(raw)} is no field")
        name = raw.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > _MAX_NAME:
            raise InvalidSchema(f"{path}/name: {quoted(name)} is no name; letters, digits and _ make one")
        if "type" not in raw:
            raise InvalidSchema(f"{path}: field {quoted(name)} needs a 'type'")
        field_type = self._type(raw["type"], namespace, f"{path}/type", depth + 1)
        default = raw.get("default", NO_DEFAULT)
        if default is not NO_DEFAULT:
            self._defaults.append((default, field_type, f"{path}/default"))
        return Field(name, field_type, default, _aliases(raw, "", path))

    def _enum(self, raw: dict[str, Any], namespace: str, path: str) -> Enum:
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
        made = Enum(name, aliases, tuple(symbols), default)
        self._define(made)
        return made

    def _fixed(self, raw: dict[str, Any], namespace: str, path: str) -> Fixed:
        name, aliases, _ = self._names(raw, namespace, path)
        size = raw.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < _INT:
            raise InvalidSchema(f"{path}/size: fixed {name} needs a 'size' from 0 to {_INT - 1}, not {quoted(size)}")
        made = Fixed(name, aliases, size)
        self._define(made)
        return made

    # Defaults

    def _fits(self, value: object, avro_type: AvroType, depth: int) -> bool:
        """Whether a default, given as JSON, is a value of a type. For a union, any branch may match."""
        if depth > MAX_DEPTH:
            return False
        pair = id(value), id(avro_type)
        if pair not in self._fitting:
            self._fitting[pair] = self._fits_now(value, avro_type, depth + 1)
        return self._fitting[pair]

    def _fits_now(self, value: object, avro_type: AvroType, depth: int) -> bool:
        match avro_type:
            case Union(branches):
                return any(self._fits(value, branch, depth) for branch in branches)
            case Primitive(kind):
                return _is_primitive(value, kind)
            case Enum():
                return isinstance(value, str) and value in avro_type.symbols
            case Fixed():
                return isinstance(value, str) and len(value) == avro_type.size
            case Array(items):
                return isinstance(value, list) and all(self._fits(each, items, depth) for each in value)
            case Map(values):
                return isinstance(value, dict) and all(self._fits(each, values, depth) for each in value.values())
            case Record():
                return isinstance(value, dict) and all(
                    self._fits(value[each.name], each.type, depth) if each.name in value else each.has_default
                    for each in avro_type.fields
                )


def _check_name(full: str, path: str) -> None:
    if len(full) > _MAX_NAME or not all(_NAME.fullmatch(part) for part in full.split(".")):
        raise InvalidSchema(f"{path}: {quoted(full)} is no name; letters, digits and _ make one, with dots between")


def _aliases(raw: dict[str, Any], namespace: str, path: str) -> tuple[str, ...]:
    aliases = raw.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(each, str) for each in aliases):
        raise InvalidSchema(f"{path}/aliases: {quoted(aliases)} is no list of names")
    return tuple(each if "." in each or not namespace else f"{namespace}.{each}" for each in aliases)


def _told(avro_type: AvroType) -> str:
    text = shown(avro_type)
    return text if len(text) <= _MAX_TOLD else text[:_MAX_TOLD] + "..."


def _is_primitive(value: object, kind: str) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    match kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int":
            return is_whole and isinstance(value, int) and -_INT <= value < _INT
        case "long":
            return is_whole and isinstance(value, int) and -_LONG <= value < _LONG
        case "float" | "double":
            return is_number or value in ("NaN", "Infinity", "-Infinity")
        case _:
            return isinstance(value, str)
