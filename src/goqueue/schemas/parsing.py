"""Entry point for parsing schemas of every format. The code of a format is imported when its first schema is parsed."""

from __future__ import annotations

from goqueue.model.errors import InvalidSchema
from goqueue.model.fields import shown
from goqueue.schemas.base import KINDS, ParsedSchema, References, SchemaKind


def schema_kind(text: str | None) -> SchemaKind:
    """Schema kind by its name; Avro if no name is given, as in other schema registries."""
    for kind in KINDS:
        if text is None or text.upper() == kind:
            return kind
    raise InvalidSchema(f"{shown(text)} is no kind of schema; {', '.join(KINDS)} are")


def parse_schema(kind: SchemaKind, text: str, references: References, *, is_registered: bool = False) -> ParsedSchema:
    """Parse a schema; ``InvalidSchema`` says where it is wrong.

    With ``is_registered``, limits that were introduced after the schema could have been registered do not apply.
    """
    if kind == "AVRO":
        from goqueue.schemas.avro.avro_schema import parse_avro

        return parse_avro(text, references)
    if kind == "JSON":
        from goqueue.schemas.json.json_schema import parse_json_schema

        return parse_json_schema(text, references, is_registered=is_registered)
    from goqueue.schemas.protobuf.protobuf_schema import parse_protobuf

    return parse_protobuf(text, references)


def formatted(schema: ParsedSchema, text: str, wanted: str) -> str:
    """The schema as ``resolved`` (Avro) or ``serialized`` (Protobuf); the text itself for any other format or kind."""
    if wanted == "serialized" and schema.kind == "PROTOBUF":
        from goqueue.schemas.protobuf.protobuf_schema import ProtobufSchema

        assert isinstance(schema, ProtobufSchema)
        return schema.serialized()
    if wanted == "resolved" and schema.kind == "AVRO":
        from goqueue.schemas.avro.avro_schema import AvroSchema

        assert isinstance(schema, AvroSchema)
        return schema.resolved()
    return text
