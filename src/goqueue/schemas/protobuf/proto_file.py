"""Result of parsing a ``.proto`` text, before names are resolved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from google.protobuf.descriptor_pb2 import (
    EnumOptions,
    EnumValueOptions,
    ExtensionRangeOptions,
    FieldDescriptorProto,
    FieldOptions,
    FileDescriptorProto,
    FileOptions,
    MessageOptions,
    MethodDescriptorProto,
    MethodOptions,
    OneofOptions,
    ServiceOptions,
)

from goqueue.schemas.protobuf.proto_tokens import Tokens
from goqueue.schemas.protobuf.proto_values import FieldType, NamePart, OptionValue

MAX_NESTING = 30
"""Limit on the nesting of messages, as in protoc."""
MAX_NAME = 1000
"""Limit on the length of a full name. Every declaration of a schema has one, so very long ones would take much
memory."""
MAX_FIELD_NUMBER = (1 << 29) - 1
MAX_ENUM_NUMBER = (1 << 31) - 1
MIN_ENUM_NUMBER = -(1 << 31)
OPEN_END = -1
"""End of a message's range ``to max``, until it is known whether the message is a message set."""

Options: TypeAlias = (
    FileOptions
    | MessageOptions
    | FieldOptions
    | OneofOptions
    | EnumOptions
    | EnumValueOptions
    | ExtensionRangeOptions
    | ServiceOptions
    | MethodOptions
)

SCALAR_TYPES: dict[str, FieldType] = {
    "double": FieldDescriptorProto.TYPE_DOUBLE,
    "float": FieldDescriptorProto.TYPE_FLOAT,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "uint64": FieldDescriptorProto.TYPE_UINT64,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "fixed64": FieldDescriptorProto.TYPE_FIXED64,
    "fixed32": FieldDescriptorProto.TYPE_FIXED32,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "uint32": FieldDescriptorProto.TYPE_UINT32,
    "sfixed32": FieldDescriptorProto.TYPE_SFIXED32,
    "sfixed64": FieldDescriptorProto.TYPE_SFIXED64,
    "sint32": FieldDescriptorProto.TYPE_SINT32,
    "sint64": FieldDescriptorProto.TYPE_SINT64,
}


@dataclass(frozen=True, slots=True)
class OptionUse:
    """One option that the text sets."""

    owner: Options
    name: tuple[NamePart, ...]
    value: OptionValue
    scope: str
    at: int


@dataclass(frozen=True, slots=True)
class TypeUse:
    """One reference to a message or an enum: a field's type or extendee, or a method's input or output."""

    target: FieldDescriptorProto | MethodDescriptorProto
    attribute: str
    scope: str
    at: int


@dataclass(slots=True)
class ParsedFile:
    """A parsed text: the descriptor, and the names still to be resolved."""

    tokens: Tokens
    descriptor: FileDescriptorProto = field(default_factory=FileDescriptorProto)
    types: list[TypeUse] = field(default_factory=list)
    options: list[OptionUse] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    """Position in the text of the declaration of each full name."""


def json_name(name: str) -> str:
    """A field's default name in JSON."""
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def map_entry_name(name: str) -> str:
    """Name of the message that represents the entries of a map."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"
