"""What reading a ``.proto`` text gives, before its names are looked up."""

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
"""How deep messages may be declared in one another, as protoc has it."""
MAX_NAME = 1000
"""How long a full name may be. Every part of a schema has one, so very long ones would take much memory."""
MAX_FIELD_NUMBER = (1 << 29) - 1
MAX_ENUM_NUMBER = (1 << 31) - 1
MIN_ENUM_NUMBER = -(1 << 31)
OPEN_END = -1
"""The end of a range ``to max`` of a message, until it is known whether the message is a message set."""

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
    """An option that is set somewhere."""

    owner: Options
    name: tuple[NamePart, ...]
    value: OptionValue
    scope: str
    at: int


@dataclass(frozen=True, slots=True)
class TypeUse:
    """A place that names a message or an enum: a field's type or extendee, or what a method takes or gives."""

    target: FieldDescriptorProto | MethodDescriptorProto
    attribute: str
    scope: str
    at: int


@dataclass(slots=True)
class ParsedFile:
    """A text that was read: the descriptor, and what is still to be looked up."""

    tokens: Tokens
    descriptor: FileDescriptorProto = field(default_factory=FileDescriptorProto)
    types: list[TypeUse] = field(default_factory=list)
    options: list[OptionUse] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    """Where in the text each thing with a full name is declared."""


def json_name(name: str) -> str:
    """The name that a field has in JSON unless it says otherwise."""
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def map_entry_name(name: str) -> str:
    """The name of the message that stands for the entries of a map."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"
