"""Avro values read with another schema, against fastavro and against what the broker takes for a value."""

from __future__ import annotations

import json
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.model.errors import InvalidSchema
from goqueue.schemas.avro.avro_schema import parse_avro
from goqueue.spark.registry.registry_avro import avro_node, avro_type
from goqueue.spark.registry.registry_avro_reading import Unreadable, avro_reading
from goqueue.spark.registry.registry_types import spark_arrow_type, spark_type

WRITTEN = {
    "type": "record", "name": "Order", "namespace": "shop", "aliases": ["Purchase"],
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "gone", "type": ["null", {"type": "array", "items": "string"}]},
        {"name": "who", "type": "string"},
        {"name": "ratio", "type": "float"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD", "ODD"]}},
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line",
            "fields": [{"name": "sku", "type": "bytes"}, {"name": "n", "type": "long"}],
        }}},
        {"name": "tags", "type": {"type": "map", "values": ["null", "boolean"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "either", "type": ["null", "long", "string", "Kind", "Line"]},
    ],
}  # fmt: skip
READ = {
    "type": "record", "name": "Order", "namespace": "shop",
    "fields": [
        {"name": "note", "type": "string", "default": "none"},
        {"name": "id", "type": "long"},
        {"name": "customer", "aliases": ["who"], "type": "string"},
        {"name": "ratio", "type": ["null", "double"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["OTHER", "NEW", "OLD"],
                                  "default": "OTHER"}},
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line", "fields": [
                {"name": "n", "type": "double"}, {"name": "mark", "type": "bytes", "default": "\u00ff"},
            ],
        }}},
        {"name": "tags", "type": {"type": "map", "values": ["boolean", "null"]}},
        {"name": "hash", "type": "Hash"},
    ],
}  # fmt: skip
READ["fields"][-1]["type"] = {"type": "fixed", "name": "Hash", "size": 4}  # type: ignore[index]

orders = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**31), 2**31 - 1),
        "gone": st.none() | st.lists(st.text("ab\u00e9\u20ac\U0001f600", max_size=5), max_size=3),
        "who": st.text("ab\u00e9\u20ac\U0001f600", max_size=200),
        "ratio": st.floats(width=32, allow_nan=False),
        "kind": st.sampled_from(["NEW", "OLD", "ODD"]),
        "lines": st.lists(
            st.fixed_dictionaries({"sku": st.binary(max_size=9), "n": st.integers(-(2**63), 2**63 - 1)}), max_size=3
        ),
        "tags": st.dictionaries(st.text("ab\u00e9\u20ac\U0001f600", max_size=4), st.none() | st.booleans(), max_size=3),
        "hash": st.binary(min_size=4, max_size=4),
        "either": st.none()
        | st.integers(0, 9)
        | st.text("ab\u00e9\u20ac\U0001f600", max_size=3)
        | st.just(("shop.Kind", "OLD"))
        | st.just(("shop.Line", {"sku": b"x", "n": 1})),
    }
)


def node(schema: object) -> Any:
    return avro_node(parse_avro(json.dumps(schema), {}))


def written(schema: object, value: object) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def read(writer: object, reader: object, value: object) -> Any:
    content = written(writer, value)
    found, at = avro_reading(node(writer), node(reader))(content, 0)
    assert at == len(content)
    return found


SAME, EVOLVED = avro_reading(node(WRITTEN), node(WRITTEN)), avro_reading(node(WRITTEN), node(READ))
PARSED_WRITTEN, PARSED_READ = fastavro.parse_schema(WRITTEN), fastavro.parse_schema(READ)
CHECK = parse_avro(json.dumps(WRITTEN), {}).validator().check


@given(orders)
@settings(max_examples=30, deadline=None)
def test_a_value_is_read_as_fastavro_reads_it_with_either_schema(order: dict[str, Any]) -> None:
    content = written(WRITTEN, order)
    same = fastavro.schemaless_reader(BytesIO(content), PARSED_WRITTEN, None)
    found, at = SAME(content, 0)
    either = found.pop("either")
    assert at == len(content)
    assert (None if either is None else [*either.values()]) == (
        None if same["either"] is None else [same.pop("either")]
    )
    assert found == {name: same[name] for name in found}
    evolved, at = EVOLVED(content, 0)
    wanted: Any = fastavro.schemaless_reader(BytesIO(content), PARSED_WRITTEN, PARSED_READ)
    for line in wanted["lines"]:
        # fastavro has the default as it stands in the JSON.
        line["mark"] = b"\xff"
    assert (evolved, at) == (wanted, len(content))
    pa.array([evolved], avro_type(node(READ)))


@given(orders, st.integers(0, 10_000), st.integers(0, 255))
@settings(max_examples=30, deadline=None)
def test_bytes_are_read_if_and_only_if_the_broker_takes_them_for_a_value(order: Any, at: int, byte: int) -> None:
    damaged = bytearray(written(WRITTEN, order))
    damaged[at % len(damaged)] = byte
    [problem] = CHECK([bytes(damaged)])
    try:
        found, end = SAME(bytes(damaged), 0)
        pa.array([found], avro_type(node(WRITTEN)))
        reads = end == len(damaged)
    except Exception:
        reads = False
    assert reads == (problem is None), problem


@pytest.mark.parametrize(
    ("writer", "reader", "value", "wanted"),
    [
        ("int", "double", 3, 3.0),
        ("string", "bytes", "é", "é".encode()),
        ("bytes", "string", b"abc", "abc"),
        ("int", ["null", "string", "long"], 3, {"member1": 3}),
        (["null", "int"], "long", 3, 3),
        (["int", "long"], ["int", "long"], 3, 3),
        (["int", "string"], ["null", "string", "int"], 3, {"member1": 3}),
        (["int", "string"], ["null", "string", "int"], "x", {"member0": "x"}),
        ({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 3},) * 2
        + (Decimal("-12345678901234567890123456789012345.678"),) * 2,
        ("bytes", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, b"\xff", Decimal("-0.01")),
    ],
)
def test_types_widen_and_unions_grow(writer: object, reader: object, value: object, wanted: object) -> None:
    assert read(writer, reader, value) == wanted


def record(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields), **more}


def test_fields_that_were_not_written_have_their_defaults_as_values() -> None:
    fields: list[dict[str, Any]] = [
        {"name": "b", "type": "bytes", "default": "\u00fe"},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}, "default": "\t"},
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 5},
        {"name": "u", "type": ["null", "string", "int"], "default": None},
        {"name": "v", "type": ["string", "int"], "default": "x"},
        {"name": "m", "type": {"type": "map", "values": "float"}, "default": {"k": 1}},
        {"name": "r", "type": record({"name": "z", "type": "int", "default": 4}, name="Q"), "default": {}},
    ]
    found = read(record(), record(*fields), {})
    wanted = {"b": b"\xfe", "d": Decimal("0.9"), "t": 5, "u": None, "v": {"member0": "x"}, "m": {"k": 1.0}}
    assert found == wanted | {"r": {"z": 4}}
    assert pa.array([found], avro_type(node(record(*fields)))).field("t")[0].as_py().microsecond == 5000


@pytest.mark.parametrize(
    ("writer", "reader", "value", "reason"),
    [
        ("string", "int", "x", "string was written, which cannot be read as int"),
        (["int", "string"], "int", "x", "string was written, which cannot be read as int"),
        (record(), record({"name": "must", "type": "int"}), {}, "field 'must' was not written, and has no default"),
        (record(), record(name="Other"), {}, "record R was written, which cannot be read as record Other"),
        ("int", ["null", "string"], 1, "int was written, which is no branch of a union of null, string"),
    ],
)
def test_what_the_reader_cannot_take_is_told(writer: object, reader: object, value: object, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        read(writer, reader, value)


def test_a_record_that_was_called_otherwise_is_known_by_its_alias() -> None:
    writer = record({"name": "a", "type": "int"}, name="old.Name")
    assert read(writer, record({"name": "a", "type": "int"}, name="new.Order", aliases=["old.Name"]), {"a": 1}) == {
        "a": 1
    }


def test_what_only_the_writer_has_may_lie_within_itself() -> None:
    tree = {"type": "record", "name": "Tree", "fields": [{"name": "more", "type": {"type": "array", "items": "Tree"}}]}
    writer = record({"name": "t", "type": tree}, {"name": "a", "type": "int"})
    assert read(writer, record({"name": "a", "type": "int"}), {"t": {"more": [{"more": []}]}, "a": 4}) == {"a": 4}
    with pytest.raises(InvalidSchema, match=r"\.t\.more\[\]: Tree lies within itself"):
        avro_type(node(writer))


def test_few_bytes_do_not_become_items_without_end() -> None:
    many = written("long", 10**12) + written("long", 0)
    with pytest.raises(Unreadable, match="1000000000000 items are more than a value of"):
        avro_reading(node({"type": "array", "items": "null"}), node({"type": "array", "items": "null"}))(many, 0)


def test_types_are_those_of_spark() -> None:
    fields = [
        {"name": "d", "type": {"type": "int", "logicalType": "date"}},
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "l", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "u", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "p", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
        {"name": "w", "type": ["float", "double", "null"]},
        {"name": "e", "type": ["null", "int", {"type": "map", "values": {"type": "array", "items": "float"}}]},
        {"name": "h", "type": {"type": "long", "logicalType": "time-micros"}},
    ]
    found = avro_type(node(record(*fields)))
    assert spark_type(found).simpleString() == (
        "struct<d:date,t:timestamp,l:timestamp_ntz,u:string,p:decimal(9,2),w:double,"
        "e:struct<member0:int,member1:map<string,array<float>>>,h:bigint>"
    )
    assert spark_arrow_type(found).field("t").type == pa.timestamp("us", "UTC")
    with pytest.raises(InvalidSchema, match="a decimal of 39 digits"):
        avro_type(node({"type": "bytes", "logicalType": "decimal", "precision": 39}))
