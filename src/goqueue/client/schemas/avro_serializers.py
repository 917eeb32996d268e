"""Avro serializer and deserializer, in the registry's format: schema id, then the value."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any, Unpack

import fastavro
from fastavro.validation import ValidationError, validate

from goqueue.client.messages.serializers import Deserializer, Serializer
from goqueue.client.schemas.schema_deserializer import SchemaDeserializer
from goqueue.client.schemas.schema_serializer import SchemaSerializer, WhichSchema
from goqueue.client.schemas.schemas import AsyncSchemas, Schema, SchemaGiven, Schemas
from goqueue.model.errors import GoQueueError, InvalidMessage, InvalidSchema
from goqueue.model.fields import shown
from goqueue.schemas.avro.avro_schema import AvroSchema
from goqueue.schemas.avro.avro_types import Array, AvroType, Map, Record, Union, takes_no_bytes
from goqueue.schemas.avro.avro_walk import first_problem
from goqueue.schemas.base import ParsedSchema, SchemaKind
from goqueue.wire.registry_framing import HEADER_BYTES, encode_schema_id

_MAX_VALUE_DEPTH = 500
"""Largest nesting depth of records in a value."""
_SHOWN_REASONS = 5
_BYTES: tuple[object, ...] = ("bytes", {"type": "bytes"})
"""The schema is plain bytes. Such values have no length prefix, as with other registries' clients."""


class AvroSerializer(SchemaSerializer):
    """Serializes values as Avro: dicts for records, and Python's own types, as fastavro takes them.

    The schema is one of: a ``schema``, registered if it is missing, or required to be registered
    (``auto_register=False``); the subject's latest (``use_latest``), looked up again after ``latest_max_age``; or one
    ``version`` of the subject. ``validate`` checks each value strictly first: without it a number too large for an
    ``int`` passes, and excess decimal places are cut off.
    """

    _kind: SchemaKind = "AVRO"

    def __init__(
        self,
        schemas: AsyncSchemas | Schemas,
        schema: SchemaGiven | None = None,
        *,
        validate: bool = False,
        **which: Unpack[WhichSchema],
    ) -> None:
        super().__init__(schemas, schema, **which)
        self._validate = validate

    def _build(self, subject: str, schema: Schema, parsed: ParsedSchema) -> Serializer:
        assert isinstance(parsed, AvroSchema)
        header, compiled, write = encode_schema_id(schema.id), _compile(parsed), fastavro.schemaless_writer
        is_strict, checks_bounds = self._validate, _needs_bounds_check(parsed.root)

        def serialize(value: Any) -> bytes:
            if checks_bounds and _is_too_deep_to_encode(value):
                raise InvalidMessage(
                    f"the value is too deep for schema {schema.id} of subject {subject[:300]!r}: dicts and lists may "
                    f"lie in one another up to {_MAX_VALUE_DEPTH} deep"
                )
            out = BytesIO()
            out.write(header)
            try:
                if is_strict:
                    validate(value, compiled, raise_errors=True)
                write(out, compiled, value)
            except Exception as error:
                reason = _explain_misfit(value, compiled) or str(error)
                raise InvalidMessage(
                    f"the value does not fit schema {schema.id} of subject {subject[:300]!r}: {reason}"
                ) from None
            return out.getvalue()

        def prefix(value: Any) -> bytes:
            if not isinstance(value, bytes | bytearray | memoryview):
                raise InvalidMessage(f"a value of schema {schema.id} is bytes, not {type(value).__name__}")
            return header + bytes(value)

        return prefix if compiled in _BYTES else serialize


class AvroDeserializer(SchemaDeserializer):
    """Deserializes Avro with the schema that the value was written with, and resolves it to ``reader_schema`` if
    given."""

    _kind: SchemaKind = "AVRO"

    def _build(self, schema: Schema, parsed: ParsedSchema, reader: ParsedSchema | None) -> Deserializer:
        assert isinstance(parsed, AvroSchema)
        assert reader is None or isinstance(reader, AvroSchema)
        written = _compile(parsed)
        wanted = None if reader is None else _compile(reader)
        if written in _BYTES and (reader is None or wanted in _BYTES):
            return lambda value: value[HEADER_BYTES:]
        root, read = parsed.root, fastavro.schemaless_reader
        checks_bounds = _needs_bounds_check(root)

        def decode_error(value: bytes, error: Exception | None) -> InvalidMessage:
            problem = first_problem(root, value[HEADER_BYTES:])
            if problem is None and reader is not None:
                reasons = reader.cannot_read(parsed)
                problem = "; ".join(
                    f"the reader's schema does not fit, {each.rule} at {each.path}: {each.message}"
                    for each in reasons[:_SHOWN_REASONS]
                )
            return InvalidMessage(f"the value cannot be read with schema {schema.id}: {problem or error}")

        def deserialize(value: bytes) -> Any:
            if checks_bounds and (problem := first_problem(root, value[HEADER_BYTES:], _MAX_VALUE_DEPTH)):
                raise InvalidMessage(f"the value cannot be read with schema {schema.id}: {problem}")
            source = BytesIO(value)
            source.seek(HEADER_BYTES)
            try:
                found = read(source, written, wanted)
            except Exception as error:
                raise decode_error(value, error) from None
            if source.tell() != len(value):
                raise decode_error(value, None)
            return found

        return deserialize


def _compile(schema: AvroSchema) -> Any:
    """The schema in fastavro's form, with all its references."""
    try:
        return fastavro.parse_schema(json.loads(schema.resolved()), _ignore_default_error=True)
    except GoQueueError:
        raise
    except Exception as error:
        raise InvalidSchema(f"the schema cannot be used: {error}") from None


def _explain_misfit(value: Any, compiled: Any) -> str | None:
    """Where and why a value does not fit the schema."""
    try:
        validate(value, compiled, raise_errors=True)
    except ValidationError as error:
        wanted: dict[tuple[str, str], list[str]] = {}
        for each in error.errors:
            wanted.setdefault((each.field or "/", shown(each.datum)), []).append(_kind_text(each.schema))
        return "; ".join(
            f"{path}: {datum} is no {' or '.join(kinds)}"
            for (path, datum), kinds in list(wanted.items())[:_SHOWN_REASONS]
        )
    except Exception as error:
        return str(error) or type(error).__name__
    return None


def _kind_text(schema: Any) -> str:
    if isinstance(schema, dict):
        return " ".join(str(schema[key]) for key in ("type", "name") if isinstance(schema.get(key), str))
    return str(schema)[:100]


def _needs_bounds_check(root: AvroType) -> bool:
    """Whether values of this schema could exhaust memory or the stack, so that they are walked before use.

    A few bytes can stand for a huge value: an array of items that take no bytes, or deeply nested recursive types.
    fastavro accepts any number of such items, and overflows its stack on deep nesting, which ends the process.
    """
    return _is_unbounded(root, set(), set())


def _is_unbounded(avro_type: AvroType, enclosing: set[int], seen: set[int]) -> bool:
    match avro_type:
        case Array(items):
            return takes_no_bytes(items) or _is_unbounded(items, enclosing, seen)
        case Map(values):
            return _is_unbounded(values, enclosing, seen)
        case Union(branches):
            return any(_is_unbounded(each, enclosing, seen) for each in branches)
        case Record() if id(avro_type) in enclosing:
            return True
        case Record() if id(avro_type) not in seen:
            seen.add(id(avro_type))
            enclosing.add(id(avro_type))
            found = any(_is_unbounded(each.type, enclosing, seen) for each in avro_type.fields)
            enclosing.discard(id(avro_type))
            return found
    return False


def _is_too_deep_to_encode(value: Any) -> bool:
    """Whether dicts and lists of a value to be encoded are nested too deep."""
    pending = [(value, 1)]
    while pending:
        part, depth = pending.pop()
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list | tuple) else ()
        if depth > _MAX_VALUE_DEPTH and inner:
            return True
        pending += ((each, depth + 1) for each in inner if isinstance(each, dict | list | tuple))
    return False
