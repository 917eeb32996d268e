"""Encoding of Spark columns to values in the registry's framing, in batches, in driver and Python workers."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa
from google.protobuf.message_factory import GetMessageClass

from goqueue.client.schemas.avro_serializers import AvroSerializer
from goqueue.client.schemas.protobuf_serializers import ProtobufSerializer
from goqueue.client.schemas.schema_serializer import registry_of
from goqueue.client.schemas.schemas import Schema, Schemas
from goqueue.model.errors import InvalidMessage, InvalidSchema
from goqueue.schemas.avro.avro_schema import AvroSchema
from goqueue.schemas.base import ParsedSchema
from goqueue.schemas.json.json_schema import JsonSchema
from goqueue.schemas.protobuf.protobuf_schema import ProtobufSchema
from goqueue.spark.registry.registry_avro import avro_node, change_before_write
from goqueue.spark.registry.registry_json import json_shape
from goqueue.spark.registry.registry_protobuf import protobuf_builder, protobuf_message
from goqueue.spark.registry.registry_types import value_type
from goqueue.spark.source.clients import client_for
from goqueue.wire.registry_framing import encode_schema_id

_CACHE_SIZE = 100


def encode_batch(brokers: tuple[str, ...], subject: str, schema: Schema, message: str, values: pa.Array) -> pa.Array:
    """Encode values with a schema, or its Protobuf ``message``; empty: the first.

    ``InvalidMessage`` names the first value that does not fit the schema, and its field.
    """
    return _encoder_for(client_for(brokers).schemas, subject, schema, message).encode(values)


class BatchEncoder:
    """Encodes batches of values with one schema."""

    def __init__(self, schemas: Schemas, subject: str, schema: Schema, message: str = "") -> None:
        registry, thread = registry_of(schemas)
        assert thread is not None
        parsed = thread.run(registry.parsed(schema))
        self._arrow = value_type(parsed, message)
        self._target = f"schema {schema.id} of subject {subject[:300]!r}"
        self._write = self._make_writer(schemas, subject, schema, parsed, message)

    def encode(self, values: pa.Array) -> pa.Array:
        """Encode the values. Null stays null, which is a tombstone."""
        try:
            cast = cast_to_schema(values, self._arrow, "")
        except InvalidMessage as error:
            raise InvalidMessage(f"the column does not fit {self._target}: {error}") from None
        return pa.array(self._write(to_rows(cast)), pa.binary())

    def _make_writer(
        self, schemas: Schemas, subject: str, schema: Schema, parsed: ParsedSchema, message: str
    ) -> Callable[[list[Any]], list[bytes | None]]:
        match parsed:
            case AvroSchema():
                change = change_before_write(avro_node(parsed))
                serialize = AvroSerializer(schemas, use_latest=True)._build(subject, schema, parsed)
                return _each(serialize if change is None else lambda row: serialize(change(row)))
            case ProtobufSchema():
                descriptor = protobuf_message(parsed, message)
                make, made = protobuf_builder(descriptor), GetMessageClass(descriptor)
                write = ProtobufSerializer(schemas, made, use_latest=True)._build(subject, schema, parsed)
                return _each(lambda row: write(self._message(make, row)))
            case JsonSchema():
                return self._json_writer(schema, parsed)
        raise InvalidSchema(f"schemas of kind {parsed.kind} cannot be written in Spark")

    def _message(self, make: Callable[[Any], Any], row: Any) -> Any:
        try:
            return make(row)
        except InvalidMessage as error:
            raise InvalidMessage(f"the value does not fit {self._target}: {error}") from None

    def _json_writer(self, schema: Schema, parsed: JsonSchema) -> Callable[[list[Any]], list[bytes | None]]:
        before, check = json_shape(parsed).before, parsed.validator().check
        header, encode = encode_schema_id(schema.id), msgspec.json.Encoder().encode

        def write(rows: list[Any]) -> list[bytes | None]:
            ready = rows if before is None else [None if row is None else before(row) for row in rows]
            contents = [None if row is None else encode(row) for row in ready]
            for problem in check([each for each in contents if each is not None]):
                if problem is not None:
                    raise InvalidMessage(f"the value does not fit {self._target}: {problem}")
            return [None if each is None else header + each for each in contents]

        return write


_encoder_for = lru_cache(maxsize=_CACHE_SIZE)(BatchEncoder)


def _each(serialize: Callable[[Any], bytes]) -> Callable[[list[Any]], list[bytes | None]]:
    return lambda rows: [None if row is None else serialize(row) for row in rows]


def to_rows(values: pa.Array) -> list[Any]:
    """The values as Python objects, with dicts for maps. Arrow can do that too, at a tenth of the speed."""
    rows: list[Any] = values.to_pylist()
    change = _with_dicts(values.type)
    return rows if change is None else [None if row is None else change(row) for row in rows]


def _with_dicts(arrow: pa.DataType) -> Callable[[Any], Any] | None:
    """A function that turns the maps in a non-null value into dicts; ``None`` if the type has no maps."""
    if pa.types.is_struct(arrow):
        return _struct_with_dicts({each.name: _with_dicts(each.type) for each in arrow})
    if pa.types.is_list(arrow):
        item = _with_dicts(arrow.value_type)
        return None if item is None else lambda row: [_unless_null(item, each) for each in row]
    if not pa.types.is_map(arrow):
        return None
    value = _with_dicts(arrow.item_type)
    return dict if value is None else lambda row: {key: _unless_null(value, each) for key, each in row}


def _unless_null(change: Callable[[Any], Any] | None, value: Any) -> Any:
    return value if value is None or change is None else change(value)


def _struct_with_dicts(parts: dict[str, Callable[[Any], Any] | None]) -> Callable[[Any], Any] | None:
    changes = [(name, change) for name, change in parts.items() if change is not None]

    def change(row: Any) -> Any:
        for name, each in changes:
            if row[name] is not None:
                row[name] = each(row[name])
        return row

    return change if changes else None


def cast_to_schema(values: pa.Array, wanted: pa.DataType, path: str) -> pa.Array:
    """Cast values to the schema's types: fields by name, numbers widened, dates and timestamps as numbers.

    A field of the column that the schema lacks is an error; a field that only the schema has gets its default.
    """
    given = values.type
    if pa.types.is_struct(wanted):
        return _cast_struct(values, wanted, path)
    if pa.types.is_list(wanted) and (pa.types.is_list(given) or pa.types.is_large_list(given)):
        flat = cast_to_schema(values.flatten(), wanted.value_type, f"{path}[]")
        # flatten() has left out the items of null lists.
        lengths = pa.compute.fill_null(pa.compute.list_value_length(values), 0)
        ends = pa.compute.cumulative_sum(lengths.cast(pa.int32()))
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
        return pa.ListArray.from_arrays(offsets, flat, mask=values.is_null())
    if pa.types.is_map(wanted) and pa.types.is_map(given):
        return _cast_map(values, wanted, path)
    if pa.types.is_nested(wanted) or pa.types.is_nested(given):
        raise _type_mismatch(path, given, wanted)
    try:
        if pa.types.is_timestamp(wanted) or pa.types.is_duration(wanted):
            if not (pa.types.is_timestamp(given) or pa.types.is_duration(given)):
                raise _type_mismatch(path, given, wanted)
            # Precision beyond the schema's unit is truncated.
            return values.cast(wanted, safe=False).cast(pa.int64())
        if _is_text(given) != _is_text(wanted) and not pa.types.is_null(given):
            raise _type_mismatch(path, given, wanted)
        found = values.cast(wanted)
        return found.cast(pa.int32()) if pa.types.is_date32(wanted) else found
    except pa.ArrowException as error:
        raise InvalidMessage(f"{path or 'the value'}: {error}") from None


def _is_text(arrow: pa.DataType) -> bool:
    """Whether the type is a string. Checked because Arrow would cast strings to numbers and back."""
    return bool(pa.types.is_string(arrow) or pa.types.is_large_string(arrow))


def _type_mismatch(path: str, given: pa.DataType, wanted: pa.DataType) -> InvalidMessage:
    return InvalidMessage(f"{path or 'the value'}: {given} is given, and {wanted} is wanted")


def _cast_struct(values: pa.Array, wanted: pa.DataType, path: str) -> pa.Array:
    if not pa.types.is_struct(values.type):
        raise _type_mismatch(path, values.type, wanted)
    known = {each.name: each for each in wanted}
    inside = f"{path}." if path else ""
    arrays, fields = [], []
    for index, each in enumerate(values.type):
        if each.name not in known:
            names = ", ".join(known) or "none"
            raise InvalidMessage(f"{inside}{each.name}: the schema has no such field; it has {names}")
        # field() applies the struct's validity: children of a null struct may hold arbitrary values.
        array = cast_to_schema(values.field(index), known[each.name].type, inside + each.name)
        arrays.append(array)
        fields.append(pa.field(each.name, array.type))
    if not fields:
        return values
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=values.is_null())


def _cast_map(values: pa.Array, wanted: pa.DataType, path: str) -> pa.Array:
    whole = values.take(pa.array(range(len(values)), pa.int64()))
    keys = cast_to_schema(whole.keys, wanted.key_type, f"{path}{{}}")
    items = cast_to_schema(whole.items, wanted.item_type, f"{path}{{}}")
    return pa.MapArray.from_arrays(whole.offsets, keys, items, mask=whole.is_null())
