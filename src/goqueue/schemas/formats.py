"""The other ways in which clients ask for a schema's text."""

from __future__ import annotations

from goqueue.schemas.base import ParsedSchema


def formatted(schema: ParsedSchema, text: str, wanted: str) -> str:
    """``resolved`` and ``serialized`` as far as the kind has them; the text itself for anything else."""
    if wanted == "serialized" and schema.kind == "PROTOBUF":
        from goqueue.schemas.protobuf.protobuf_schema import ProtobufSchema

        assert isinstance(schema, ProtobufSchema)
        return schema.serialized()
    if wanted == "resolved" and schema.kind == "AVRO":
        from goqueue.schemas.avro.avro_schema import AvroSchema

        assert isinstance(schema, AvroSchema)
        return schema.resolved()
    return text
