"""Type mapping: from a schema to Arrow, and from Arrow to Spark."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types

from goqueue.model.errors import InvalidSchema
from goqueue.schemas.avro.avro_schema import AvroSchema
from goqueue.schemas.base import ParsedSchema
from goqueue.schemas.json.json_schema import JsonSchema
from goqueue.schemas.protobuf.protobuf_schema import ProtobufSchema
from goqueue.spark.registry.registry_avro import avro_node, avro_type
from goqueue.spark.registry.registry_json import json_shape
from goqueue.spark.registry.registry_protobuf import protobuf_message, protobuf_type

_SPARK: dict[pa.DataType, types.DataType] = {
    pa.null(): types.NullType(),
    pa.bool_(): types.BooleanType(),
    pa.int32(): types.IntegerType(),
    pa.int64(): types.LongType(),
    pa.float32(): types.FloatType(),
    pa.float64(): types.DoubleType(),
    pa.binary(): types.BinaryType(),
    pa.string(): types.StringType(),
    pa.date32(): types.DateType(),
    pa.timestamp("us", "UTC"): types.TimestampType(),
    pa.timestamp("us"): types.TimestampNTZType(),
    pa.duration("us"): types.DayTimeIntervalType(),
}


def value_type(schema: ParsedSchema, message: str = "") -> pa.DataType:
    """The Arrow type of a schema's values as they are read. Timestamps may be in milliseconds, which Spark lacks."""
    match schema:
        case AvroSchema():
            return avro_type(avro_node(schema))
        case JsonSchema():
            return json_shape(schema).arrow
        case ProtobufSchema():
            return protobuf_type(protobuf_message(schema, message))
    raise InvalidSchema(f"schemas of kind {schema.kind} cannot be used in Spark")


def spark_arrow_type(arrow: pa.DataType) -> pa.DataType:
    """The Arrow type that Spark accepts for a schema's: timestamps in microseconds, else the same."""
    if pa.types.is_struct(arrow):
        return pa.struct([pa.field(each.name, spark_arrow_type(each.type)) for each in arrow])
    if pa.types.is_list(arrow):
        return pa.list_(pa.field("element", spark_arrow_type(arrow.value_type)))
    if pa.types.is_map(arrow):
        return pa.map_(spark_arrow_type(arrow.key_type), spark_arrow_type(arrow.item_type))
    return pa.timestamp("us", arrow.tz) if pa.types.is_timestamp(arrow) else arrow


def spark_type(arrow: pa.DataType) -> types.DataType:
    """The Spark type. Everything is nullable: values may have been written with another schema."""
    if pa.types.is_struct(arrow):
        return types.StructType([types.StructField(each.name, spark_type(each.type)) for each in arrow])
    if pa.types.is_list(arrow):
        return types.ArrayType(spark_type(arrow.value_type))
    if pa.types.is_map(arrow):
        return types.MapType(spark_type(arrow.key_type), spark_type(arrow.item_type))
    if pa.types.is_decimal(arrow):
        return types.DecimalType(arrow.precision, arrow.scale)
    return _SPARK[spark_arrow_type(arrow)]
