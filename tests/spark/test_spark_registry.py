"""Schemas of the registry in Spark: columns each way for every format, and what cannot be read."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, lit, struct, when

from goqueue.schemas.base import SchemaKind
from goqueue.spark.registry.schema_columns import decoded, from_registry, to_registry

AVRO = json.dumps(
    {
        "type": "record", "name": "Order", "fields": [
            {"name": "id", "type": "long"},
            {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "tags", "type": {"type": "map", "values": "string"}},
            {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
                {"name": "sku", "type": "string"}, {"name": "n", "type": ["null", "int"]}]}}},
            {"name": "either", "type": ["null", "string", "double"]},
        ],
    }
)  # fmt: skip
JSON = json.dumps(
    {
        "type": "object",
        "properties": {
            "id": {"type": "integer"}, "names": {"type": "array", "items": {"type": "string"}}, "any": {},
            "inner": {"type": "object", "additionalProperties": {"type": "number"}},
        },
    }
)  # fmt: skip
PROTOBUF = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
message Order {
  enum Kind { NEW = 0; OLD = 1; }
  int64 id = 1; Kind kind = 2; google.protobuf.Timestamp at = 3; google.protobuf.Duration took = 4;
  map<string, Part> parts = 5; repeated uint64 huge = 6; optional bytes raw = 7;
}
message Part { float weight = 1; }
"""
AT = datetime(2026, 11, 15, 12, 30, 0, 250_000)
FORMATS: list[tuple[SchemaKind, str, str, dict[str, Any]]] = [
    (
        "AVRO", AVRO,
        "id BIGINT, total DECIMAL(9,2), day DATE, at TIMESTAMP, tags MAP<STRING,STRING>, "
        "lines ARRAY<STRUCT<sku: STRING, n: INT>>, either STRUCT<member0: STRING, member1: DOUBLE>",
        {"id": 1, "total": Decimal("12.50"), "day": date(2026, 11, 15), "at": AT, "tags": {"a": "b"},
         "lines": [("x", 1), ("y", None)], "either": (None, 0.5)},
    ),
    (
        "JSON", JSON, "id BIGINT, names ARRAY<STRING>, any STRING, inner MAP<STRING,DOUBLE>",
        {"id": 1, "names": ["a", "b"], "any": '{"k":[1]}', "inner": {"x": 0.5}},
    ),
    (
        "PROTOBUF", PROTOBUF,
        "id BIGINT, kind STRING, at TIMESTAMP, took INTERVAL DAY TO SECOND, parts MAP<STRING,STRUCT<weight: FLOAT>>, "
        "huge ARRAY<DECIMAL(20,0)>, raw BINARY",
        {"id": 1, "kind": "OLD", "at": AT, "took": timedelta(hours=30), "parts": {"a": (0.5,)},
         "huge": [Decimal(2**64 - 1)], "raw": bytearray(b"\x00")},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "ddl", "row"), FORMATS, ids=[each[0] for each in FORMATS])
def test_a_struct_goes_to_bytes_and_comes_back(
    spark: SparkSession, broker: Any, kind: SchemaKind, text: str, ddl: str, row: dict[str, Any]
) -> None:
    rows = spark.createDataFrame([tuple(row.values())], ddl)
    value = to_registry(struct(*rows.columns), kind, brokers=broker.address, schema=text, kind=kind)
    written = rows.select(value.alias("value")).union(spark.createDataFrame([(None,)], "value BINARY"))
    found = written.select(from_registry("value", kind, brokers=broker.address).alias("order"))
    assert found.schema["order"].dataType == rows.schema
    first, second = (each["order"] for each in found.collect())
    assert first == rows.first()
    assert second is None


def test_what_cannot_be_read_lies_beside_the_others(spark: SparkSession, broker: Any) -> None:
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]})
    newer = json.dumps({"type": "record", "name": "R", "fields": [
        {"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": "none"}]})  # fmt: skip
    ids = spark.range(0, 4, 1, 1).select(
        "id", struct("id").alias("value"), when(col("id") == 1, lit(b"?")).alias("key")
    )
    column = to_registry("value", "mixed-value", brokers=broker.address, version="register", schema=schema)
    written = ids.withColumn("value", column)
    mixed = written.withColumn("value", when(col("id") == 2, lit(b"\x00\x00\x00")).otherwise(col("value")))
    broker.client.schemas.register("mixed-value", newer)
    of_keys = decoded(mixed, "key", "mixed-value", brokers=broker.address, into="read_key")
    found = decoded(of_keys, "value", "mixed-value", brokers=broker.address)
    assert found.columns == ["id", "value", "key", "read_key", "_corrupt"]
    # Each is read once for both of its columns.
    plan = found._jdf.queryExecution().executedPlan().toString()
    assert plan.count("from_registry(") == 2
    rows = {each["id"]: each for each in found.collect()}
    assert {key: each["value"] and each["value"].asDict() for key, each in rows.items()} == {
        0: {"id": 0, "note": "none"}, 1: {"id": 1, "note": "none"}, 2: None, 3: {"id": 3, "note": "none"},
    }  # fmt: skip
    wrong = {key: each["_corrupt"] for key, each in rows.items()}
    assert [key for key, each in wrong.items() if each is not None] == [1, 2]
    # What was wrong first stays.
    assert (bytes(wrong[1]["bytes"]), "this one has 1" in wrong[1]["error"]) == (b"?", True)
    assert (bytes(wrong[2]["bytes"]), "this one has 3" in wrong[2]["error"]) == (b"\x00\x00\x00", True)
    failing = mixed.select(from_registry("value", "mixed-value", brokers=broker.address, on_error="fail"))
    with pytest.raises(PythonException, match="InvalidMessage: value 2 of a batch of 4 cannot be read"):
        failing.collect()
