"""Columns of Spark to framed values, a batch at a time, in whatever process Spark does it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa
from google.protobuf.message_factory import GetMessageClass

from goqueue.client.schemas.avro_serializers import AvroSerializer
from goqueue.client.schemas.protobuf_serializers import ProtobufSerializer
from goqueue.client.schemas.schema_serializer import registry_of
from goqueue.client.schemas.schemas import Schema
from goqueue.client.schemas.sync_schemas import Schemas
from goqueue.model.errors import InvalidMessage, InvalidSchema
from goqueue.schemas.avro.avro_schema import AvroSchema
from goqueue.schemas.base import ParsedSchema
from goqueue.schemas.json.json_schema import JsonSchema
from goqueue.schemas.protobuf.protobuf_schema import ProtobufSchema
from goqueue.spark.registry.registry_avro import avro_node, to_written
from goqueue.spark.registry.registry_json import json_shape
from goqueue.spark.registry.registry_protobuf import protobuf_maker, protobuf_message
from goqueue.spark.registry.registry_types import value_type
from goqueue.spark.source.clients import client_for
from goqueue.wire.registry_framing import encode_schema_id

_KEPT = 100


@dataclass(frozen=True, slots=True)
class Writing:
    """What a worker has to know to write values; it travels there with the function."""

    brokers: tuple[str, ...]
    subject: str
    schema: Schema
    message: str
    """In Protobuf: which message of it. Empty: the first."""


def encode_batch(writing: Writing, values: pa.Array) -> pa.Array:
    """Values as bytes. ``InvalidMessage`` names the first that does not fit, and its field."""
    return _writer(client_for(writing.brokers).schemas, writing).write_batch(values)


@lru_cache(maxsize=_KEPT)
def _writer(schemas: Schemas, writing: Writing) -> BatchWriter:
    return BatchWriter(schemas, writing.subject, writing.schema, writing.message)


class BatchWriter:
    """Writes batches of values with one schema."""

    def __init__(self, schemas: Schemas, subject: str, schema: Schema, message: str = "") -> None:
        registry, thread = registry_of(schemas)
        assert thread is not None
        parsed = thread.run(registry.parsed(schema))
        self._arrow = value_type(parsed, message)
        self._whose = f"schema {schema.id} of subject {subject[:300]!r}"
        self._write = self._writer(schemas, subject, schema, parsed, message)

    def write_batch(self, values: pa.Array) -> pa.Array:
        """Null stays null: a tombstone."""
        try:
            fitting = fitted(values, self._arrow, "")
        except InvalidMessage as error:
            raise InvalidMessage(f"the column does not fit {self._whose}: {error}") from None
        return pa.array(self._write(rows_of(fitting)), pa.binary())

    def _writer(
        self, schemas: Schemas, subject: str, schema: Schema, parsed: ParsedSchema, message: str
    ) -> Callable[[list[Any]], list[bytes | None]]:
        match parsed:
            case AvroSchema():
                change = to_written(avro_node(parsed))
                serialize = AvroSerializer(schemas, use_latest=True)._build(subject, schema, parsed)
                return _each(serialize if change is None else lambda row: serialize(change(row)))
            case ProtobufSchema():
                descriptor = protobuf_message(parsed, message)
                make, made = protobuf_maker(descriptor), GetMessageClass(descriptor)
                write = ProtobufSerializer(schemas, made, use_latest=True)._build(subject, schema, parsed)
                return _each(lambda row: write(self._message(make, row)))
            case JsonSchema():
                return self._json_writer(schema, parsed)
        raise InvalidSchema(f"schemas of kind {parsed.kind} cannot be written in Spark")

    def _message(self, make: Callable[[Any], Any], row: Any) -> Any:
        try:
            return make(row)
        except InvalidMessage as error:
            raise InvalidMessage(f"the value does not fit {self._whose}: {error}") from None

    def _json_writer(self, schema: Schema, parsed: JsonSchema) -> Callable[[list[Any]], list[bytes | None]]:
        before, check = json_shape(parsed).before, parsed.validator().check
        header, encode = encode_schema_id(schema.id), msgspec.json.Encoder().encode

        def write(rows: list[Any]) -> list[bytes | None]:
            ready = rows if before is None else [None if row is None else before(row) for row in rows]
            contents = [None if row is None else encode(row) for row in ready]
            for problem in check([each for each in contents if each is not None]):
                if problem is not None:
                    raise InvalidMessage(f"the value does not fit {self._whose}: {problem}")
            return [None if each is None else header + each for each in contents]

        return write


def _each(serialize: Callable[[Any], bytes]) -> Callable[[list[Any]], list[bytes | None]]:
    return lambda rows: [None if row is None else serialize(row) for row in rows]


def rows_of(values: pa.Array) -> list[Any]:
    """As Python has them, with dicts for maps. Arrow does that too, at a tenth of the speed."""
    rows: list[Any] = values.to_pylist()
    change = _with_dicts(values.type)
    return rows if change is None else [None if row is None else change(row) for row in rows]


def _with_dicts(arrow: pa.DataType) -> Callable[[Any], Any] | None:
    """What makes dicts of the maps in a value that is not null; ``None`` if there are no maps."""
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


def fitted(values: pa.Array, wanted: pa.DataType, path: str) -> pa.Array:
    """The values as the schema has them: fields by name, narrower numbers wider, dates and timestamps as numbers.

    What the column has and the schema has not is an error; what only the schema has is left to its defaults.
    """
    given = values.type
    if pa.types.is_struct(wanted):
        return _fitted_struct(values, wanted, path)
    if pa.types.is_list(wanted) and (pa.types.is_list(given) or pa.types.is_large_list(given)):
        flat = fitted(values.flatten(), wanted.value_type, f"{path}[]")
        return _listed(values, flat)
    if pa.types.is_map(wanted) and pa.types.is_map(given):
        return _fitted_map(values, wanted, path)
    if pa.types.is_nested(wanted) or pa.types.is_nested(given):
        raise _misfit(path, given, wanted)
    try:
        if pa.types.is_timestamp(wanted) or pa.types.is_duration(wanted):
            if not (pa.types.is_timestamp(given) or pa.types.is_duration(given)):
                raise _misfit(path, given, wanted)
            # What is finer than the schema has it is cut off.
            return values.cast(wanted, safe=False).cast(pa.int64())
        if _is_text(given) != _is_text(wanted) and not pa.types.is_null(given):
            raise _misfit(path, given, wanted)
        found = values.cast(wanted)
        return found.cast(pa.int32()) if pa.types.is_date32(wanted) else found
    except pa.ArrowException as error:
        raise InvalidMessage(f"{path or 'the value'}: {error}") from None


def _is_text(arrow: pa.DataType) -> bool:
    """Arrow would make numbers of texts, and texts of numbers."""
    return bool(pa.types.is_string(arrow) or pa.types.is_large_string(arrow))


def _misfit(path: str, given: pa.DataType, wanted: pa.DataType) -> InvalidMessage:
    return InvalidMessage(f"{path or 'the value'}: {given} is given, and {wanted} is wanted")


def _fitted_struct(values: pa.Array, wanted: pa.DataType, path: str) -> pa.Array:
    if not pa.types.is_struct(values.type):
        raise _misfit(path, values.type, wanted)
    known = {each.name: each for each in wanted}
    inside = f"{path}." if path else ""
    arrays, fields = [], []
    for place, each in enumerate(values.type):
        if each.name not in known:
            names = ", ".join(known) or "none"
            raise InvalidMessage(f"{inside}{each.name}: the schema has no such field; it has {names}")
        # Without what stands where the whole struct is null, which may be anything.
        array = fitted(values.field(place), known[each.name].type, inside + each.name)
        arrays.append(array)
        fields.append(pa.field(each.name, array.type))
    if not fields:
        return values
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=values.is_null())


def _listed(values: pa.Array, flat: pa.Array) -> pa.Array:
    """Lists with other items. ``flatten`` has left out those of lists that are null."""
    lengths = pa.compute.fill_null(pa.compute.list_value_length(values), 0)
    return pa.ListArray.from_arrays(_offsets(lengths), flat, mask=values.is_null())


def _fitted_map(values: pa.Array, wanted: pa.DataType, path: str) -> pa.Array:
    whole = values.take(pa.array(range(len(values)), pa.int64()))
    keys = fitted(whole.keys, wanted.key_type, f"{path}{{}}")
    items = fitted(whole.items, wanted.item_type, f"{path}{{}}")
    return pa.MapArray.from_arrays(whole.offsets, keys, items, mask=whole.is_null())


def _offsets(lengths: pa.Array) -> pa.Array:
    ends = pa.compute.cumulative_sum(lengths.cast(pa.int32()))
    return pa.concat_arrays([pa.array([0], pa.int32()), ends])
