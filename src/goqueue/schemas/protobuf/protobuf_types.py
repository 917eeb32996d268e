"""Messages and fields of Protobuf schemas as the comparison of two schemas needs them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from goqueue.schemas.protobuf.proto_values import SCALAR_TYPES

_KINDS = {
    "whole number": ("int32", "int64", "uint32", "uint64", "bool"),
    "sint": ("sint32", "sint64"),
    "string": ("string", "bytes"),
    "fixed32": ("fixed32", "sfixed32"),
    "fixed64": ("fixed64", "sfixed64"),
    "float": ("float",),
    "double": ("double",),
}
_KIND_OF_TYPE = {SCALAR_TYPES[name]: kind for kind, names in _KINDS.items() for name in names}
_KIND_OF_TYPE[FieldDescriptorProto.TYPE_ENUM] = "whole number"
TYPES_OF_KIND = {kind: " or ".join(names) for kind, names in _KINDS.items()}
TYPES_OF_KIND["whole number"] = "int32, int64, uint32, uint64, bool or an enum"


@dataclass(frozen=True, slots=True)
class MessageType:
    """A message, and where it is declared."""

    message: DescriptorProto
    local_name: str
    """Full name without the package."""
    implicit_labels: bool
    """Whether fields of the file may omit the label, so that a missing label is no statement."""
    is_own: bool
    """Whether the schema's own file declares the message, as opposed to an imported file."""
    resolved: Descriptor | None
    """The descriptor with its edition's features applied; ``None`` without an edition, where fields are explicit."""

    def is_required(self, field: FieldDescriptorProto) -> bool:
        """Whether a message without this field cannot be read."""
        if self.resolved is None:
            return field.label == FieldDescriptorProto.LABEL_REQUIRED
        return bool(self.resolved.fields_by_number[field.number].is_required)

    def is_delimited(self, field: FieldDescriptorProto) -> bool:
        """Whether the field is a message encoded between start and end tags, as groups are, not length-prefixed."""
        if self.resolved is None:
            return field.type == FieldDescriptorProto.TYPE_GROUP
        return self.resolved.fields_by_number[field.number].type == FieldDescriptorProto.TYPE_GROUP


class TypeIndex:
    """Messages and enums that a schema declares and imports, indexed for comparison."""

    def __init__(
        self, file: FileDescriptorProto, imported: Iterable[FileDescriptorProto], pool: DescriptorPool
    ) -> None:
        self.file = file
        self._pool = pool
        self.messages: dict[str, MessageType] = {}
        for other in imported:
            self._collect_file(other, is_own=False)
        self._collect_file(file, is_own=True)
        self.own = {name: found for name, found in self.messages.items() if found.is_own}

    def _collect_file(self, file: FileDescriptorProto, *, is_own: bool) -> None:
        pending = [(message, message.name) for message in file.message_type]
        implicit = file.syntax in ("proto3", "editions")
        while pending:
            message, local = pending.pop()
            full = f".{file.package}.{local}" if file.package else f".{local}"
            resolved = self._pool.FindMessageTypeByName(full[1:]) if file.syntax == "editions" else None
            self.messages[full] = MessageType(message, local, implicit, is_own, resolved)
            pending.extend((nested, f"{local}.{nested.name}") for nested in message.nested_type)


class FieldsOfMessage:
    """Fields of a message by number, and which of them are in a oneof that is not synthetic."""

    def __init__(self, found: MessageType) -> None:
        message = found.message
        self.by_number = {field.number: field for field in message.field}
        self.oneof_of: dict[int, str] = {}
        self.oneofs: dict[str, list[int]] = {}
        for field in message.field:
            if field.HasField("oneof_index") and not field.proto3_optional:
                name = message.oneof_decl[field.oneof_index].name
                self.oneof_of[field.number] = name
                self.oneofs.setdefault(name, []).append(field.number)


def is_scalar(field: FieldDescriptorProto) -> bool:
    """Whether the field's type is no message."""
    return field.type in _KIND_OF_TYPE


def kind_of(field: FieldDescriptorProto) -> str:
    """Types of the same kind have the same encoding, so values of one can be read as the other."""
    return _KIND_OF_TYPE[field.type]


def label_of(owner: MessageType, field: FieldDescriptorProto) -> str | None:
    """The label that the field states; ``None`` if it states none."""
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return "repeated"
    if owner.is_required(field):
        return "required"
    if field.proto3_optional:
        return "optional"
    if owner.implicit_labels or field.HasField("oneof_index"):
        return None
    return "optional"


def described(field: FieldDescriptorProto) -> str:
    """The field's type, for messages."""
    if field.type_name:
        kind = "the enum" if field.type == FieldDescriptorProto.TYPE_ENUM else "the message"
        return f"{kind} {field.type_name.lstrip('.')}"
    return FieldDescriptorProto.Type.Name(field.type)[5:].lower()
