"""Protobuf serializer and deserializer, in the registry's format: schema id, message indexes, then the value."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, Unpack

from google.protobuf.descriptor_pb2 import DescriptorProto
from google.protobuf.message import DecodeError, EncodeError, Message
from google.protobuf.message_factory import GetMessageClass

from goqueue.client.messages.serializers import Deserializer, Serializer
from goqueue.client.schemas.schema_deserializer import SchemaDeserializer
from goqueue.client.schemas.schema_serializer import SchemaSerializer, WhichSchema
from goqueue.client.schemas.schemas import AsyncSchemas, Schema, SchemaReference, Schemas
from goqueue.model.errors import InvalidConfiguration, InvalidMessage, InvalidSchema
from goqueue.schemas.base import ParsedSchema, SchemaKind
from goqueue.schemas.protobuf.protobuf_builtins import builtin_files
from goqueue.schemas.protobuf.protobuf_schema import ProtobufSchema
from goqueue.wire.registry_framing import decode_message_indexes, encode_message_indexes, encode_schema_id

_CLASSES_KEPT = 1_000


class ProtobufSerializer(SchemaSerializer):
    """Serializes messages of one generated class. The schema is the file that declares it.

    Imported files are registered as well, each under its own name. Otherwise the schema is chosen as in
    ``AvroSerializer``.
    """

    _kind: SchemaKind = "PROTOBUF"

    def __init__(
        self, schemas: AsyncSchemas | Schemas, message_class: type[Message], **which: Unpack[WhichSchema]
    ) -> None:
        self._class = _checked(message_class)
        is_registered = which.get("use_latest") or which.get("version") is not None
        super().__init__(schemas, None if is_registered else _schema_of(message_class.DESCRIPTOR.file), **which)

    async def _with_references(self, schema: Schema) -> Schema:
        return Schema(schema.text, "PROTOBUF", await self._references(self._class.DESCRIPTOR.file))

    async def _references(self, file: Any) -> tuple[SchemaReference, ...]:
        found = []
        for each in file.dependencies:
            if each.name in builtin_files():
                continue
            schema = Schema(_schema_of(each).text, "PROTOBUF", await self._references(each))
            found.append(SchemaReference(each.name, each.name, (await self._identify(each.name, schema)).version))
        return tuple(found)

    def _build(self, subject: str, schema: Schema, parsed: ParsedSchema) -> Serializer:
        assert isinstance(parsed, ProtobufSchema)
        message_class, name = self._class, self._class.DESCRIPTOR.full_name
        indexes = next((indexes for indexes, each in _messages(parsed) if each == name), None)
        if indexes is None:
            raise InvalidSchema(f"schema {schema.id} of subject {subject[:300]!r} has no message {name}")
        header = encode_schema_id(schema.id) + encode_message_indexes(indexes)

        def serialize(value: Any) -> bytes:
            if not isinstance(value, message_class):
                raise InvalidMessage(f"the value is a {type(value).__name__}; this serializer writes {name}")
            try:
                return header + value.SerializeToString()
            except (EncodeError, ValueError) as error:
                raise InvalidMessage(
                    f"the value does not fit schema {schema.id} of subject {subject[:300]!r}: {error}"
                ) from None

        return serialize


class ProtobufDeserializer(SchemaDeserializer):
    """Deserializes into a generated class, or into a class made from the schema if none is given."""

    _kind: SchemaKind = "PROTOBUF"

    def __init__(self, schemas: AsyncSchemas | Schemas, message_class: type[Message] | None = None) -> None:
        super().__init__(schemas)
        self._class = None if message_class is None else _checked(message_class)

    def _build(self, schema: Schema, parsed: ParsedSchema, reader: ParsedSchema | None) -> Deserializer:
        assert isinstance(parsed, ProtobufSchema)
        classes: dict[tuple[int, ...], type[Message]] = {}

        def class_at(indexes: tuple[int, ...]) -> type[Message]:
            found = parsed.message_at(indexes)
            if found is None:
                path = ", ".join(map(str, indexes[:10]))
                raise InvalidMessage(f"schema {schema.id} has no message at [{path}], which the value names")
            made = self._class or GetMessageClass(found)
            if made.DESCRIPTOR.full_name != found.full_name:
                raise InvalidMessage(
                    f"the value is a {found.full_name}; this deserializer reads {made.DESCRIPTOR.full_name}"
                )
            if len(classes) < _CLASSES_KEPT:
                classes[indexes] = made
            return made

        def deserialize(value: bytes) -> Any:
            indexes, at = decode_message_indexes(value)
            message_class = classes.get(indexes) or class_at(indexes)
            try:
                return message_class.FromString(value[at:])
            except DecodeError as error:
                raise InvalidMessage(
                    f"the value is no {message_class.DESCRIPTOR.full_name} of schema {schema.id}: {error}"
                ) from None

        return deserialize


def _checked(message_class: type[Message]) -> type[Message]:
    if not isinstance(message_class, type) or not issubclass(message_class, Message):
        raise InvalidConfiguration(f"{message_class!r} is no class that was generated for a Protobuf message")
    if message_class.DESCRIPTOR.file is None:
        raise InvalidConfiguration(f"{message_class.__name__} belongs to no file, so it has no schema")
    return message_class


def _schema_of(file: Any) -> Schema:
    """The schema of a generated class's file descriptor."""
    return Schema(base64.b64encode(file.serialized_pb).decode("ascii"), "PROTOBUF")


def _messages(schema: ProtobufSchema) -> Iterator[tuple[tuple[int, ...], str]]:
    """Every message of a file: its indexes and its full name."""
    package = f"{schema.descriptor.package}." if schema.descriptor.package else ""
    pending: list[tuple[tuple[int, ...], str, DescriptorProto]] = [
        ((index,), package + each.name, each) for index, each in enumerate(schema.descriptor.message_type)
    ]
    while pending:
        indexes, name, message = pending.pop()
        yield indexes, name
        pending += [((*indexes, index), f"{name}.{each.name}", each) for index, each in enumerate(message.nested_type)]
