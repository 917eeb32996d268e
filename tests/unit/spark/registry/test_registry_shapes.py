"""JSON schemas and Protobuf messages as types of Spark, and values both ways, without a registry."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass

from goqueue.model.errors import InvalidMessage, InvalidSchema
from goqueue.schemas.json.json_schema import parse_json_schema
from goqueue.schemas.protobuf.protobuf_schema import ProtobufSchema, parse_protobuf
from goqueue.spark.registry.registry_encoding import cast_to_schema, to_rows
from goqueue.spark.registry.registry_json import JsonShape, json_shape
from goqueue.spark.registry.registry_protobuf import protobuf_builder, protobuf_columns, protobuf_message, protobuf_type
from goqueue.spark.registry.registry_types import spark_type


def shape(schema: object) -> JsonShape:
    return json_shape(parse_json_schema(json.dumps(schema), {}))


def shown(schema: object) -> str:
    return spark_type(shape(schema).arrow).simpleString()


def from_json(schema: object, *values: object) -> list[Any]:
    found = shape(schema)
    rows = [msgspec.json.decode(json.dumps(each), type=found.decoded) for each in values]
    rows = [row if row is None or found.after is None else found.after(row) for row in rows]
    array: list[Any] = pa.array(rows, found.arrow).to_pylist()
    return array


def to_json(schema: object, value: Any) -> Any:
    before = shape(schema).before
    return json.loads(msgspec.json.encode(value if before is None else before(value)))


def properties(**parts: object) -> dict[str, Any]:
    return {"type": "object", "properties": parts}


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        (properties(a={"type": "integer"}, b={"type": ["null", "number"]}), "struct<a:bigint,b:double>"),
        ({"properties": {"a": {"enum": ["x", "y", None]}, "b": {"const": True}}}, "struct<a:string,b:boolean>"),
        (properties(a={"type": "array", "items": {"type": "string"}}, b={"type": "array"}),
         "struct<a:array<string>,b:array<string>>"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "map<string,bigint>"),
        ({"type": "object"}, "string"),
        (True, "string"),
        ({"type": ["string", "integer"]}, "string"),
        (properties(a={"oneOf": [{"type": "null"}, {"type": "boolean"}]}), "struct<a:boolean>"),
        (properties(a={"anyOf": [{"type": "string"}, {"type": "boolean"}]}), "struct<a:string>"),
        ({"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}, "string"),
        ({"allOf": [properties(a={"type": "integer"}), {"$ref": "#/definitions/b"}],
          "definitions": {"b": properties(b={"type": "number"}, a={"type": "number"})}}, "struct<a:bigint,b:double>"),
        ({"definitions": {"n": properties(next={"$ref": "#/definitions/n"}, v={"type": "integer"})},
          "$ref": "#/definitions/n"}, "struct<next:string,v:bigint>"),
    ],
)  # fmt: skip
def test_a_json_schema_has_a_type_in_spark(schema: object, wanted: str) -> None:
    assert shown(schema) == wanted


def test_json_is_taken_as_far_as_it_is_described() -> None:
    schema = properties(
        id={"type": "integer"},
        any={},
        new={"type": "string", "default": "none"},
        wrong={"type": "integer", "default": "none"},
        free={"default": {"a": [1]}},
        inner=properties(x={"type": "number", "default": 1}),
        all={"type": "array", "items": {}},
    )
    first = {"id": 3, "any": {"k": [1, None]}, "more": 1, "inner": {}, "all": ["x", None, 1]}
    second = {"id": None, "any": None, "new": None, "wrong": 1, "free": "text", "inner": None, "all": None}
    assert from_json(schema, first, second, None) == [
        {"id": 3, "any": '{"k": [1, null]}', "new": "none", "wrong": None, "free": '{"a":[1]}', "inner": {"x": 1.0},
         "all": ['"x"', None, "1"]},
        {"id": None, "any": None, "new": None, "wrong": 1, "free": '"text"', "inner": None, "all": None},
        None,
    ]  # fmt: skip


def test_json_is_written_without_what_is_null_unless_it_must_be_there() -> None:
    schema = properties(a={"type": ["integer", "null"]}, b={"type": "string"}, c={}, d={"type": "array", "items": {}})
    schema["required"] = ["a"]
    row = {"a": None, "b": None, "c": '{"k": 1}', "d": ['"x"', "1"]}
    assert to_json(schema, row) == {"a": None, "c": {"k": 1}, "d": ["x", 1]}
    with pytest.raises(InvalidMessage, match="'no' is no JSON"):
        to_json(schema, {"c": "no"})


PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
message Order {
  enum Kind { NEW = 0; OLD = 1; }
  int32 id = 1;
  Kind kind = 2;
  repeated Line lines = 3;
  map<string, Line> by_name = 4;
  google.protobuf.Timestamp at = 5;
  google.protobuf.Duration took = 6;
  google.protobuf.Int64Value maybe = 7;
  google.protobuf.Struct free = 8;
  uint64 huge = 9;
  uint32 large = 10;
  repeated Kind kinds = 11;
  map<int32, Kind> kind_of = 12;
  optional string note = 13;
  oneof how { int32 cash = 14; string card = 15; }
  bytes raw = 16;
  Line one = 17;
}
message Line { string sku = 1; double price = 2; }
"""
AT = datetime(2026, 11, 15, 12, 30, 0, 250_000, tzinfo=UTC)
ORDER = {
    "id": -5,
    "kind": "OLD",
    "lines": [{"sku": "a", "price": 1.5}, {"sku": "", "price": 0.0}],
    "by_name": [("x", {"sku": "b", "price": 2.0})],
    "at": AT,
    "took": timedelta(seconds=-1, microseconds=5),
    "maybe": 7,
    "free": '{"a": [1.0, null]}',
    "huge": Decimal(2**64 - 1),
    "large": 2**32 - 1,
    "kinds": ["OLD", "7", "NEW"],
    "kind_of": [(3, "OLD")],
    "note": "",
    "cash": None,
    "card": "4711",
    "raw": b"\x00",
    "one": {"sku": "c", "price": 0.5},
}
EMPTY: dict[str, Any] = dict.fromkeys(ORDER) | {
    "id": 0, "kind": "NEW", "lines": [], "by_name": [], "huge": Decimal(0), "large": 0, "kinds": [], "kind_of": [],
    "raw": b"",
}  # fmt: skip


def proto(text: str = PROTO) -> ProtobufSchema:
    return parse_protobuf(text, {})


def test_a_message_has_a_type_in_spark() -> None:
    line = "struct<sku:string,price:double>"
    assert spark_type(protobuf_type(protobuf_message(proto(), ""))).simpleString() == (
        f"struct<id:int,kind:string,lines:array<{line}>,by_name:map<string,{line}>,at:timestamp,"
        "took:interval day to second,maybe:bigint,free:string,huge:decimal(20,0),large:bigint,kinds:array<string>,"
        f"kind_of:map<int,string>,note:string,cash:int,card:string,raw:binary,one:{line}>"
    )
    assert (
        protobuf_message(proto(), "Line").full_name == protobuf_message(proto(), "shop.Line").full_name == "shop.Line"
    )
    with pytest.raises(InvalidSchema, match=r"no message 'Pear'; it has shop\.Line, shop\.Order"):
        protobuf_message(proto(), "Pear")
    with pytest.raises(InvalidSchema, match=r"\.next: N lies within itself"):
        protobuf_type(protobuf_message(proto('syntax = "proto3"; message N { N next = 1; }'), ""))


def test_messages_become_columns_and_rows_become_messages() -> None:
    message = protobuf_message(proto(), "")
    wanted = pa.array([ORDER, EMPTY], protobuf_type(message))
    rows = to_rows(cast_to_schema(wanted, wanted.type, ""))
    messages = [protobuf_builder(message)(row) for row in rows]
    assert messages[1] == GetMessageClass(message)()
    found = protobuf_columns(message)([type(each).FromString(each.SerializeToString()) for each in messages])
    assert found.type == wanted.type
    assert found.to_pylist() == wanted.to_pylist()


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"id": 1, "kind": "PINK"}, 'kind: unknown enum label "PINK"'),
        ({"lines": [{"sku": "a"}, {"sku": 3}]}, "lines.sku: "),
        ({"large": 2**33}, "large: Value out of range"),
        ({"free": "no"}, "free: Failed to load JSON"),
        ({"one": {"price": "x"}}, "one.price: "),
    ],
)
def test_the_field_that_does_not_fit_a_message_is_named(row: Any, reason: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        protobuf_builder(protobuf_message(proto(), ""))(row)
    assert str(caught.value).startswith(reason)


def test_a_default_of_proto2_is_read_where_nothing_was_written() -> None:
    message = protobuf_message(
        proto('syntax = "proto2"; message A { optional int32 n = 1 [default = 4]; optional int32 m = 2; }'), ""
    )
    assert protobuf_columns(message)([GetMessageClass(message)()]).to_pylist() == [{"n": 4, "m": None}]


def struct(**fields: pa.DataType) -> pa.DataType:
    return pa.struct(list(fields.items()))


def test_a_column_is_made_to_fit() -> None:
    wanted = struct(a=pa.int32(), d=pa.date32(), t=pa.timestamp("ms", "UTC"), l=pa.list_(struct(x=pa.float64())),
                    m=pa.map_(pa.string(), pa.int64()), left=pa.string())  # fmt: skip
    given = struct(t=pa.timestamp("us", "UTC"), a=pa.int64(), d=pa.date32(), l=pa.list_(struct(x=pa.float32())),
                   m=pa.map_(pa.string(), pa.int32()))  # fmt: skip
    row = {"t": AT, "a": 3, "d": AT.date(), "l": [{"x": 0.5}, None], "m": [("k", 1)]}
    rows = [row, None, row | {"l": None, "m": None}, row | {"l": [], "t": None}]
    found = cast_to_schema(pa.array([None, *rows], given).slice(1), wanted, "").to_pylist()
    first = {"t": int(AT.timestamp() * 1_000), "a": 3, "d": 20_772, "l": [{"x": 0.5}, None], "m": [("k", 1)]}
    assert found == [first, None, first | {"l": None, "m": None}, first | {"l": [], "t": None}]


def test_maps_are_dicts_wherever_they_lie() -> None:
    numbers = pa.map_(pa.string(), pa.int64())
    arrow = struct(m=pa.map_(pa.string(), pa.list_(numbers)), n=numbers, x=pa.int64())
    row = {"m": [("a", [[("k", 1)], None]), ("b", None)], "n": [], "x": 1}
    found = to_rows(pa.array([row, None, {"m": None, "n": None, "x": None}], arrow))
    assert found == [
        {"m": {"a": [{"k": 1}, None], "b": None}, "n": {}, "x": 1},
        None,
        {"m": None, "n": None, "x": None},
    ]


@pytest.mark.parametrize(
    ("values", "given", "wanted", "reason"),
    [
        ([{"a": {"b": 2**40}}], struct(a=struct(b=pa.int64())), struct(a=struct(b=pa.int32())), r"a\.b: Integer value"),
        ([{"a": ["x"]}], struct(a=pa.list_(pa.string())), struct(a=pa.list_(pa.int32())), r"a\[\]: string is given"),
        (
            [{"z": 1}],
            struct(z=pa.int64()),
            struct(a=pa.int64(), b=pa.int64()),
            "z: the schema has no such field.* a, b",
        ),
        ([1], pa.int64(), struct(a=pa.int64()), "the value: int64 is given, and struct"),
        ([{"t": 1}], struct(t=pa.int64()), struct(t=pa.timestamp("us")), "t: int64 is given"),
        ([{"s": 1}], struct(s=pa.int64()), struct(s=pa.string()), "s: int64 is given, and string is wanted"),
    ],
)
def test_a_column_that_does_not_fit_is_refused_by_its_field(values: Any, given: Any, wanted: Any, reason: str) -> None:
    with pytest.raises(InvalidMessage, match=reason):
        cast_to_schema(pa.array(values, given), wanted, "")
