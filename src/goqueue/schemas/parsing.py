"""One way in for every kind of schema. What a kind needs is loaded when its first schema comes."""

from __future__ import annotations

from goqueue.model.errors import InvalidSchema
from goqueue.model.fields import shown
from goqueue.schemas.base import KINDS, ParsedSchema, References, SchemaKind


def schema_kind(text: str | None) -> SchemaKind:
    """By its name; Avro if none is given, as registries have it."""
    for kind in KINDS:
        if text is None or text.upper() == kind:
            return kind
    raise InvalidSchema(f"{shown(text)} is no kind of schema; {', '.join(KINDS)} are")


def parse_schema(kind: SchemaKind, text: str, references: References, *, is_registered: bool = False) -> ParsedSchema:
    """Read a schema; ``InvalidSchema`` says where it is wrong.

    One that ``is_registered`` was accepted by the bounds of its time, which may have been wider.
    """
    if kind == "AVRO":
        from goqueue.schemas.avro.avro_schema import parse_avro

        return parse_avro(text, references)
    if kind == "JSON":
        from goqueue.schemas.json.json_schema import parse_json_schema

        return parse_json_schema(text, references, is_registered=is_registered)
    from goqueue.schemas.protobuf.protobuf_schema import parse_protobuf

    return parse_protobuf(text, references)
