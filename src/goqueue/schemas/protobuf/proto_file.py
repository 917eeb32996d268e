"""Result of parsing a ``.proto`` text, before names are resolved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from google.protobuf import descriptor_pb2 as pb

from goqueue.schemas.protobuf.proto_tokens import Tokens
from goqueue.schemas.protobuf.proto_values import NamePart, OptionValue

MAX_NESTING = 30
"""Limit on the nesting of messages, as in protoc."""
MAX_NAME = 1000
"""Limit on the length of a full name: every declaration has one, so very long ones would take much memory."""
MAX_FIELD_NUMBER = (1 << 29) - 1
MAX_ENUM_NUMBER = (1 << 31) - 1
MIN_ENUM_NUMBER = -(1 << 31)
OPEN_END = -1
"""End of a message's range ``to max``, until it is known whether the message is a message set."""

Options: TypeAlias = (
    pb.FileOptions
    | pb.MessageOptions
    | pb.FieldOptions
    | pb.OneofOptions
    | pb.EnumOptions
    | pb.EnumValueOptions
    | pb.ExtensionRangeOptions
    | pb.ServiceOptions
    | pb.MethodOptions
)


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

    target: pb.FieldDescriptorProto | pb.MethodDescriptorProto
    attribute: str
    scope: str
    at: int


@dataclass(slots=True)
class ParsedFile:
    """A parsed text: the descriptor, and the names still to be resolved."""

    tokens: Tokens
    descriptor: pb.FileDescriptorProto = field(default_factory=pb.FileDescriptorProto)
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
