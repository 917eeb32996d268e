"""Avro types as a tree with resolved names. Recursive schemas make it a graph: each named type is one object."""

from __future__ import annotations

from dataclasses import dataclass, field

NO_DEFAULT = object()
LOGICAL = {("string", "uuid"), ("int", "time-millis"), ("long", "time-micros")}
"""Logical types whose values are a subset of the values of the underlying type."""
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


@dataclass(frozen=True, slots=True)
class Primitive:
    type: str
    logical: str = ""
    """The logical type, if it restricts the values: see ``LOGICAL``."""


@dataclass(frozen=True, slots=True)
class Array:
    items: AvroType
    type: str = "array"


@dataclass(frozen=True, slots=True)
class Map:
    values: AvroType
    type: str = "map"


@dataclass(frozen=True, slots=True)
class Union:
    branches: tuple[AvroType, ...]
    type: str = "union"


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: AvroType
    default: object = NO_DEFAULT
    aliases: tuple[str, ...] = ()

    @property
    def has_default(self) -> bool:
        return self.default is not NO_DEFAULT


@dataclass(eq=False, slots=True)
class Named:
    """A type that can be referred to by name. Types are equal only if they are the same object."""

    name: str
    """Full name, including the namespace."""
    aliases: tuple[str, ...] = ()

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]


@dataclass(eq=False, slots=True)
class Fixed(Named):
    size: int = 0
    type: str = "fixed"


@dataclass(eq=False, slots=True)
class Enum(Named):
    symbols: tuple[str, ...] = ()
    default: str | None = None
    type: str = "enum"


@dataclass(eq=False, slots=True)
class Record(Named):
    """A record. ``fields`` are filled in after the record itself is registered, since they may refer to it."""

    fields: list[Field] = field(default_factory=list)
    type: str = "record"
    takes_no_bytes: bool = False
    """Whether values are encoded in zero bytes: the record has no fields, or only fields encoded in zero bytes."""


AvroType = Primitive | Array | Map | Union | Fixed | Enum | Record


def takes_no_bytes(avro_type: AvroType) -> bool:
    """Whether every value of the type is encoded in zero bytes; values of all other types take at least one byte."""
    match avro_type:
        case Primitive("null"):
            return True
        case Fixed():
            return avro_type.size == 0
        case Record():
            return avro_type.takes_no_bytes
    return False


def shown(avro_type: AvroType) -> str:
    """The type as text for messages: its kind, and its name if it has one."""
    if isinstance(avro_type, Named):
        return f"{avro_type.type} {avro_type.name}"
    if isinstance(avro_type, Union):
        return (
            f"union of {', '.join(shown(each) for each in avro_type.branches)}" if avro_type.branches else "empty union"
        )
    return avro_type.type
