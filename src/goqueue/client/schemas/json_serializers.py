"""JSON Schema serializer and deserializer, in the registry's format: schema id, then the value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from goqueue.client.messages.serializers import Deserializer, Serializer, from_json, to_json
from goqueue.client.schemas.schema_deserializer import SchemaDeserializer
from goqueue.client.schemas.schema_serializer import SchemaSerializer, WhichSchema
from goqueue.client.schemas.schemas import AsyncSchemas, Schema, SchemaGiven, Schemas
from goqueue.model.errors import GoQueueError, InvalidMessage
from goqueue.schemas.base import ParsedSchema, SchemaKind
from goqueue.wire.registry_framing import HEADER_BYTES, encode_schema_id


class JsonSerializer(SchemaSerializer):
    """Serializes values as JSON, dataclasses and msgspec structs included. Values that do not fit the schema are
    rejected.

    The schema is chosen as in ``AvroSerializer``. ``encode`` replaces the default conversion to JSON.
    """

    _kind: SchemaKind = "JSON"

    def __init__(
        self,
        schemas: AsyncSchemas | Schemas,
        schema: SchemaGiven | None = None,
        *,
        validate: bool = True,
        encode: Callable[[Any], bytes] = to_json,
        **which: Unpack[WhichSchema],
    ) -> None:
        super().__init__(schemas, schema, **which)
        self._validate = validate
        self._encode = encode

    def _build(self, subject: str, schema: Schema, parsed: ParsedSchema) -> Serializer:
        header, encode = encode_schema_id(schema.id), self._encode
        check = parsed.validator().check if self._validate else None

        def serialize(value: Any) -> bytes:
            try:
                content = encode(value)
            except GoQueueError:
                raise
            except Exception as error:
                raise InvalidMessage(f"the value cannot be written as JSON: {error}") from None
            if check is not None:
                [problem] = check([content])
                if problem is not None:
                    raise InvalidMessage(
                        f"the value does not fit schema {schema.id} of subject {subject[:300]!r}: {problem}"
                    )
            return header + content

        return serialize


class JsonDeserializer(SchemaDeserializer):
    """Deserializes JSON. Values that do not fit the schema they were written with, or ``reader_schema``, are rejected.

    ``decode`` replaces the default conversion to dicts and lists.
    """

    _kind: SchemaKind = "JSON"

    def __init__(
        self,
        schemas: AsyncSchemas | Schemas,
        reader_schema: SchemaGiven | None = None,
        *,
        validate: bool = True,
        decode: Callable[[bytes], Any] = from_json,
    ) -> None:
        super().__init__(schemas, reader_schema)
        self._validate = validate
        self._decode = decode

    def _build(self, schema: Schema, parsed: ParsedSchema, reader: ParsedSchema | None) -> Deserializer:
        decode = self._decode
        check = (reader or parsed).validator().check if self._validate else None
        fits = f"schema {schema.id}" if reader is None else "the reader's schema"

        def deserialize(value: bytes) -> Any:
            content = value[HEADER_BYTES:]
            if check is not None:
                [problem] = check([content])
                if problem is not None:
                    raise InvalidMessage(f"the value does not fit {fits}: {problem}")
            try:
                return decode(content)
            except GoQueueError:
                raise
            except Exception as error:
                raise InvalidMessage(f"the value of schema {schema.id} cannot be read as JSON: {error}") from None

        return deserialize
