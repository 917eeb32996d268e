"""Alternative output formats of a schema's text: ``resolved`` and ``serialized``."""

from __future__ import annotations

from goqueue.schemas.base import ParsedSchema


def formatted(schema: ParsedSchema, text: str, wanted: str) -> str:
    """The schema as ``resolved`` (Avro) or ``serialized`` (Protobuf); the text unchanged for any other format or
    kind."""
    if wanted == "serialized" and schema.kind == "PROTOBUF":
        from goqueue.schemas.protobuf.protobuf_schema import ProtobufSchema

        assert isinstance(schema, ProtobufSchema)
        return schema.serialized()
    if wanted == "resolved" and schema.kind == "AVRO":
        from goqueue.schemas.avro.avro_schema import AvroSchema

        assert isinstance(schema, AvroSchema)
        return schema.resolved()
    return text
