"""Decoding of values in the registry's framing to Arrow, in batches, in driver and Python workers.

Each value is read with the schema it was written with, which is fetched once, and resolved to the reader's schema. A
value that cannot be read does not affect the other values of its batch.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import msgspec
import pyarrow as pa
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from goqueue.client.messages.serializers import Deserializer
from goqueue.client.schemas.schema_deserializer import SchemaDeserializer
from goqueue.client.schemas.schemas import Schema, Schemas
from goqueue.model.errors import ClientError, GoQueueError, InvalidMessage, InvalidSchema
from goqueue.schemas.avro.avro_schema import AvroSchema
from goqueue.schemas.avro.avro_walk import first_problem
from goqueue.schemas.base import ParsedSchema
from goqueue.schemas.json.json_schema import JsonSchema
from goqueue.schemas.json.json_text import plain
from goqueue.schemas.protobuf.protobuf_schema import ProtobufSchema
from goqueue.spark.registry.registry_avro import avro_node, avro_type
from goqueue.spark.registry.registry_avro_reading import avro_reading
from goqueue.spark.registry.registry_json import json_shape
from goqueue.spark.registry.registry_protobuf import protobuf_columns, protobuf_message
from goqueue.spark.registry.registry_types import spark_arrow_type
from goqueue.spark.source.clients import client_for
from goqueue.wire.registry_framing import HEADER_BYTES, decode_message_indexes, parse_schema_id

OnError = Literal["null", "fail", "corrupt"]
CORRUPT = pa.struct([pa.field("error", pa.string()), pa.field("bytes", pa.binary())])
"""Type of the ``_corrupt`` column: why a value could not be read, and its bytes."""
_CACHE_SIZE = 100
_BARE_BYTES = {"type": "bytes"}
"""An Avro schema that is just bytes: serializers write its values as they are, without a length."""


def decode_batch(
    brokers: tuple[str, ...], schema: Schema, message: str, on_error: OnError, values: pa.Array
) -> pa.Array:
    """Decode values with the reader's schema, or its Protobuf ``message``; empty: the first.

    Transient errors such as ``BrokerUnavailable`` are raised, whatever ``on_error``.
    """
    return _decoder_for(client_for(brokers).schemas, schema, message).to_column(values, on_error)


class BatchDecoder(SchemaDeserializer):
    """Decodes batches of values to one reader's schema."""

    def __init__(self, schemas: Schemas, schema: Schema, message: str = "") -> None:
        self._kind = schema.kind
        super().__init__(schemas, schema)
        assert self._thread is not None and self._reader_schema is not None
        self._run = self._thread.run
        parsed = self._run(self._schemas.parsed(self._reader_schema))
        self._format = _format_of(parsed, message)
        self.arrow = spark_arrow_type(self._format.arrow)

    def to_column(self, values: pa.Array, on_error: OnError) -> pa.Array:
        """The decoded values as a Spark column; for ``corrupt``, a struct of the value and its error."""
        found, errors = self.decode(values)
        if errors and on_error == "fail":
            index, error = next(iter(errors.items()))
            raise InvalidMessage(f"value {index} of a batch of {len(values)} cannot be read: {error}")
        if on_error != "corrupt":
            return found
        raw = values.take(pa.array(errors, pa.int64())).to_pylist() if errors else []
        wrong: list[Any] = [None] * len(values)
        for (index, error), content in zip(errors.items(), raw, strict=True):
            wrong[index] = {"error": error, "bytes": content}
        return pa.StructArray.from_arrays([found, pa.array(wrong, CORRUPT)], names=["value", "_corrupt"])

    def decode(self, values: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        """The decoded values, null for those that cannot be read, and the errors of these by index."""
        raw: list[bytes | None] = values.cast(pa.binary()).to_pylist()
        self._fetch_schemas(raw)
        rows: list[Any] = []
        errors: dict[int, str] = {}
        decoders = self._decoders
        for value in raw:
            if value is None:
                rows.append(None)
                continue
            try:
                decode = decoders.peek(value[:HEADER_BYTES])
                rows.append(self._decoder(value)(value) if decode is None else decode(value))
            except ClientError:
                # The registry could not be reached, which is no error of the value.
                raise
            except Exception as error:
                errors[len(rows)] = str(error) or type(error).__name__
                rows.append(None)
        found = self._assemble(rows, 0, errors)
        return (found if found.type == self.arrow else found.cast(self.arrow)), dict(sorted(errors.items()))

    def _fetch_schemas(self, raw: list[bytes | None]) -> None:
        headers = {value[:HEADER_BYTES] for value in raw if value is not None}.difference(self._decoders)
        ids = [schema_id for each in headers if (schema_id := parse_schema_id(each)) is not None]
        if ids:
            self._run(self.learn(ids))

    def _assemble(self, rows: list[Any], first: int, errors: dict[int, str]) -> pa.Array:
        """Convert rows to Arrow. If Arrow refuses, bisect to find the rows that it refuses and record their errors."""
        try:
            return self._format.assemble(rows)
        except Exception as error:
            if len(rows) == 1:
                errors[first] = f"the value does not fit its type in Spark: {error}"
                return self._format.assemble([None])
        half = len(rows) // 2
        parts = [self._assemble(rows[:half], first, errors), self._assemble(rows[half:], first + half, errors)]
        return pa.concat_arrays(parts)

    def _build(self, schema: Schema, parsed: ParsedSchema, reader: ParsedSchema | None) -> Deserializer:
        try:
            return self._format.decoder(schema, parsed)
        except GoQueueError:
            raise
        except Exception as error:
            # A defect of a writer's schema must only affect values written with it.
            raise InvalidSchema(f"schema {schema.id} cannot be read with: {error}") from None


class _AvroFormat:
    def __init__(self, reader: AvroSchema) -> None:
        self._reader = reader
        self._node = avro_node(reader)
        self.arrow = avro_type(self._node)

    def decoder(self, schema: Schema, parsed: ParsedSchema) -> Deserializer:
        assert isinstance(parsed, AvroSchema)
        written = avro_node(parsed)
        if written == self._node == _BARE_BYTES:
            return lambda value: value[HEADER_BYTES:]
        step, root = avro_reading(written, self._node), parsed.root

        def decode(value: bytes) -> Any:
            try:
                found, at = step(value, HEADER_BYTES)
                if at == len(value):
                    return found
                reason = f"{len(value) - at} bytes are left over"
            except Exception as error:
                reason = str(error)
            problem = first_problem(root, value[HEADER_BYTES:]) or reason
            raise InvalidMessage(f"the value cannot be read with schema {schema.id}: {problem}")

        return decode

    def assemble(self, rows: list[Any]) -> pa.Array:
        return pa.array(rows, self.arrow)


class _JsonFormat:
    def __init__(self, reader: JsonSchema) -> None:
        shape = json_shape(reader)
        self.arrow = shape.arrow
        self._after = shape.after
        self._decode = msgspec.json.Decoder(shape.decoded).decode

    def decoder(self, schema: Schema, parsed: ParsedSchema) -> Deserializer:
        decode, after = self._decode, self._after

        def read(value: bytes) -> Any:
            try:
                found = decode(value[HEADER_BYTES:])
            except msgspec.MsgspecError as error:
                found = self._decode_integral_floats(value[HEADER_BYTES:], schema, error)
            try:
                return found if after is None or found is None else after(found)
            except ValueError as error:
                raise InvalidMessage(f"the value of schema {schema.id} cannot be read: {error}") from None

        return read

    def _decode_integral_floats(self, content: bytes, schema: Schema, error: msgspec.MsgspecError) -> Any:
        """Decode again with 1.0 as an integer, as JSON Schema allows. Rare, so tried only after a refusal."""
        try:
            return self._decode(msgspec.json.encode(plain(msgspec.json.decode(content))))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise InvalidMessage(f"the value of schema {schema.id} cannot be read: {error}") from None

    def assemble(self, rows: list[Any]) -> pa.Array:
        return pa.array(rows, self.arrow)


class _ProtobufFormat:
    def __init__(self, reader: ProtobufSchema, message: str) -> None:
        found = protobuf_message(reader, message)
        self._name = found.full_name
        self._class = GetMessageClass(found)
        self._empty = self._class()
        self._columns = protobuf_columns(found)
        self.arrow = self._columns([]).type

    def decoder(self, schema: Schema, parsed: ParsedSchema) -> Deserializer:
        assert isinstance(parsed, ProtobufSchema)
        parse, name = self._class.FromString, self._name
        known: dict[bytes, bool] = {}
        """First bytes behind the header that are known to select the wanted message: zero means the schema's first."""
        first = parsed.first_message()
        if first is not None and first.full_name == name:
            known[b"\x00"] = True

        def read(value: bytes) -> Any:
            if value[HEADER_BYTES : HEADER_BYTES + 1] in known:
                at = HEADER_BYTES + 1
            else:
                indexes, at = decode_message_indexes(value)
                found = parsed.message_at(indexes)
                if found is None or found.full_name != name:
                    is_what = "no message of its schema" if found is None else f"a {found.full_name}"
                    raise InvalidMessage(f"the value of schema {schema.id} is {is_what}; {name} is read here")
            try:
                return parse(value[at:])
            except DecodeError as error:
                raise InvalidMessage(f"the value is no {name} of schema {schema.id}: {error}") from None

        return read

    def assemble(self, rows: list[Any]) -> pa.Array:
        if None not in rows:
            return self._columns(rows)
        missing = [each is None for each in rows]
        found = self._columns([self._empty if each is None else each for each in rows])
        return pa.compute.if_else(pa.array(missing), pa.scalar(None, found.type), found)


_Format = _AvroFormat | _JsonFormat | _ProtobufFormat


def _format_of(reader: ParsedSchema, message: str) -> _Format:
    match reader:
        case AvroSchema():
            return _AvroFormat(reader)
        case JsonSchema():
            return _JsonFormat(reader)
        case ProtobufSchema():
            return _ProtobufFormat(reader, message)
    raise InvalidSchema(f"schemas of kind {reader.kind} cannot be read in Spark")


_decoder_for = lru_cache(maxsize=_CACHE_SIZE)(BatchDecoder)
"""Cached by the client's registry too, since another process has another one."""
