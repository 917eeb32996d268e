"""Avro schemas: what is one, which are the same, and which values fit."""

from __future__ import annotations

import json
import math
import time
from io import BytesIO
from typing import Any

import fastavro
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from goqueue.model.errors import InvalidSchema
from goqueue.schemas.avro.avro_schema import AvroSchema, parse_avro
from goqueue.schemas.avro.avro_walk import first_problem
from goqueue.schemas.base import MAX_NODES, MAX_SCHEMA_BYTES, References


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def parse(schema: Any, references: References | None = None) -> AvroSchema:
    return parse_avro(json.dumps(schema), references or {})


def enum_of(count: int, name: str = "E") -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": [f"s{number}" for number in range(count)]}


def refusal(schema: Any, references: References | None = None) -> str:
    with pytest.raises(InvalidSchema) as raised:
        parse_avro(schema if isinstance(schema, str) else json.dumps(schema), references or {})
    return str(raised.value)


# What is a schema


@pytest.mark.parametrize(
    "text", ["string", ' "int" ', '{"type": "null"}', '{"type": {"type": "array", "items": "int"}}']
)
def test_types_may_be_written_in_short(text: str) -> None:
    assert parse_avro(text, {}).kind == "AVRO"


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ("3", "/: 3 is no type"),
        ({}, "/: 'type' is missing"),
        ({"type": 3}, "/type: 3 is no type"),
        ("nothing", "no JSON"),
        ('"nothing"', "/: there is no type 'nothing'"),
        ({"type": "array"}, "/: array needs 'items'"),
        ({"type": "map", "values": "x"}, "/values: there is no type 'x'"),
        ({"type": "record", "name": "R"}, "/: record R needs 'fields'"),
        ({"type": "record", "fields": []}, "/: record needs a 'name'"),
        (record(name="a-b"), "/name: 'a-b' is no name"),
        (record(name="a..b"), "/name"),
        (record(namespace=3), "/namespace: 3 is no namespace"),
        (record(3), "/fields/0: 3 is no field"),
        (record({"type": "int"}), "/fields/0/name: None is no name"),
        (record({"name": "a"}), "/fields/0: field 'a' needs a 'type'"),
        (record(field("a", "int"), field("a", "int")), "/fields/1/name: field 'a' is there twice"),
        (record(field("a", ["int", "x"])), "/fields/0/type/1: there is no type 'x'"),
        (record(field("a", ["int", ["null"]])), "/fields/0/type/1: a union cannot stand in a union"),
        (["int", "int"], "/1: int is in the union already"),
        ([{"type": "array", "items": "int"}, {"type": "array", "items": "long"}], "/1: array is in the union already"),
        ([record(), record()], "/1/name: 'R' is defined already"),
        (record(name="int"), "/name: 'int' is defined already"),
        (record(aliases="x"), "/aliases"),
        ({"type": "enum", "name": "E"}, "/symbols: enum E needs 'symbols'"),
        ({"type": "enum", "name": "E", "symbols": ["a", "a"]}, "/symbols: a symbol of enum E is there twice"),
        ({"type": "enum", "name": "E", "symbols": ["a b"]}, "/symbols"),
        ({"type": "enum", "name": "E", "symbols": ["a"], "default": "b"}, "/default: 'b' is no symbol"),
        ({"type": "fixed", "name": "F"}, "/size"),
        ({"type": "fixed", "name": "F", "size": -1}, "/size"),
        ({"type": "fixed", "name": "F", "size": True}, "/size"),
        ({"type": "fixed", "name": "F", "size": 1.5}, "/size"),
        (record(field("a", "int", default="x")), "/fields/0/default: 'x' is no value of int"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(schema: Any, where: str) -> None:
    assert where in refusal(schema)


@pytest.mark.parametrize(
    ("kind", "default", "fits"),
    [
        ("null", None, True),
        ("null", "null", False),
        ("boolean", False, True),
        ("boolean", 0, False),
        ("int", 2**31 - 1, True),
        ("int", 2**31, False),
        ("int", True, False),
        ("int", 1.0, False),
        ("long", -(2**63), True),
        ("long", 2**63, False),
        ("float", 1, True),
        ("double", 1.5, True),
        ("double", "NaN", True),
        ("double", "x", False),
        ("string", "x", True),
        ("bytes", "\u00ff", True),
        ("string", None, False),
        (["null", "int"], None, True),
        (["null", "int"], 3, True),
        (["null", "int"], "x", False),
        ({"type": "array", "items": "int"}, [1, 2], True),
        ({"type": "array", "items": "int"}, [1, "x"], False),
        ({"type": "map", "values": "int"}, {"a": 1}, True),
        ({"type": "map", "values": "int"}, {"a": None}, False),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "A", True),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B", False),
        ({"type": "fixed", "name": "F", "size": 2}, "ab", True),
        ({"type": "fixed", "name": "F", "size": 2}, "a", False),
        (record(field("x", "int"), name="I"), {"x": 1}, True),
        (record(field("x", "int"), name="I"), {}, False),
        (record(field("x", "int", default=1), name="I"), {}, True),
        (record(name="I"), [], False),
    ],
)
def test_a_default_is_a_value_of_its_type(kind: Any, default: Any, fits: bool) -> None:
    schema = record(field("a", kind, default=default))
    if fits:
        assert parse(schema).validator().check([b""]) != []
    else:
        assert "/fields/0/default" in refusal(schema)


def test_names_have_the_namespace_of_what_they_lie_in() -> None:
    inner = record(name="Inner")
    schema = parse(
        record(field("a", inner), field("b", "Inner"), field("c", "a.b.Inner"), name="Outer", namespace="a.b")
    )
    assert set(schema.named) == {"a.b.Outer", "a.b.Inner"}
    dotted = parse(record(field("a", inner), name="c.Outer", namespace="ignored"))
    assert set(dotted.named) == {"c.Outer", "c.Inner"}
    alone = parse(record(field("a", record(name="Inner", namespace="")), field("b", "Inner"), name="a.Outer"))
    assert set(alone.named) == {"a.Outer", "Inner"}


def test_a_type_may_lie_in_itself() -> None:
    node = record(field("next", ["null", "R"]), field("all", {"type": "array", "items": "R"}))
    assert parse(node).validator().check([b"\x00\x00", b"\x02\x00\x00\x00", b"\x02\x00\x00"]) == [
        None, None, "/all: number of items needs 1 bytes at byte 3, and 0 are left",
    ]  # fmt: skip


def chain_of(count: int) -> dict[str, Any]:
    """Records in one another by their names only, and then a list of the last."""
    kinds = [record(field("f", f"R{number - 1}" if number else "int"), name=f"R{number}") for number in range(count)]
    fields = [field(f"x{number}", ["null", each]) for number, each in enumerate(kinds)]
    return record(*fields, field("all", {"type": "array", "items": f"R{count - 1}"}), name="T")


def test_chains_of_records_are_bounded_also_through_names() -> None:
    """Each record costs a step for the same byte."""
    assert "more than 100 records that lie in one another" in refusal(chain_of(900))
    assert "more than 100 records that lie in one another" in refusal(chain_of(101))
    longest = parse(chain_of(100)).validator()
    assert longest.most_on_loop < 50 < parse(record(field("a", "int"))).validator().most_on_loop
    value = b"\x00" * 100 + b"\xc8\x01" + b"\x00" * 100 + b"\x00"
    assert longest.check([value]) == [None]
    # What lies behind a union, in an array or in itself is another matter.
    assert parse(record(field("next", ["null", "R"]), field("all", {"type": "array", "items": "R"})))
    apart = [record(field("f", ["null", f"R{at - 1}"] if at else "int"), name=f"R{at}") for at in range(300)]
    assert parse(record(*(field(f"x{at}", each) for at, each in enumerate(apart)), name="T"))


def test_chains_are_bounded_through_references_too() -> None:
    inner = parse(record(*(field(f"x{at}", each["type"]) for at, each in enumerate(chain_of(80)["fields"])), name="T"))
    outer = [record(field("f", f"O{at - 1}" if at else "R79"), name=f"O{at}") for at in range(30)]
    schema = record(*(field(f"x{at}", ["null", each]) for at, each in enumerate(outer)), name="U")
    assert "more than 100 records" in refusal(schema, {"inner": inner})


def test_any_value_is_checked_in_bounded_time() -> None:
    """Whether it fits or not, with as many records in one another as there can be, and with one that has no end."""
    validator = parse(chain_of(100)).validator()
    head, items = b"\x00" * 100 + b"\xd0\x0f", b"\x00" * 1_000
    started = time.process_time()
    assert validator.check([head + items + b"\x00"]) == [None]
    [left_over, no_end, too_large] = validator.check([head + items + b"\x00x", head + items * 10, head + items * 1_000])
    assert left_over == "1 bytes are left over behind the value"
    assert no_end is not None
    assert too_large is not None and "too costly for a value of this size, 1000102 bytes" in too_large
    assert None not in parse(record(field("a", "R"))).validator().check([b""] * 50)
    assert time.process_time() - started < 4
    deep = parse(record(field("next", ["null", "R"]))).validator()
    [found] = deep.check([b"\x02" * 500_000])
    assert found is not None and "too large to find out where" in found
    assert time.process_time() - started < 6


def test_records_with_several_fields_are_not_costly() -> None:
    kinds: Any = "int"
    for depth in range(20):
        kinds = record(field("a", kinds), field("b", "long"), name=f"D{depth}")
    validator = parse({"type": "array", "items": kinds}).validator()
    items = 40_000
    assert validator.check([b"\x80\xf1\x04" + b"\x00" * 21 * items + b"\x00"]) == [None]
    assert validator.most_on_loop > 1_000


def test_a_default_may_be_of_the_record_around_it() -> None:
    assert "/fields/0/default" in refusal(record(field("in", ["R", "null"], default={}), field("x", "int")))
    fits = record(field("in", ["null", "R"], default={"in": None, "x": 1}), field("x", "int"))
    assert parse(fits)
    assert "/fields/0/default: {'in': None} is no value of union of null, record R" in refusal(
        record(field("in", ["null", "R"], default={"in": None}), field("x", "int"))
    )


# Which are the same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"type":"string"}', '"string"'),
        ('{ "type" : "array" ,\n "items":"int"}', '{"items":"int","type":"array"}'),
        ('{"type":"record","name":"R","namespace":"a","fields":[]}', '{"type":"record","fields":[],"name":"a.R"}'),
        (
            '{"type":"record","name":"R","fields":[{"type":{"type":"int"},"name":"a"}]}',
            '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}',
        ),
        (
            '{"type":"record","name":"R","x":{"b":1,"a":[{"d":1,"c":2}]},"fields":[]}',
            '{"type":"record","name":"R","fields":[],"x":{"a":[{"c":2,"d":1}],"b":1}}',
        ),
        ('"\\u0069nt"', '"int"'),
        (
            '{"type":"record","name":"a.R","fields":[{"name":"n","type":["null","R"]}]}',
            '{"type":"record","name":"a.R","fields":[{"name":"n","type":["null","a.R"]}]}',
        ),
    ],
)
def test_what_only_looks_different_is_the_same(one: str, other: str) -> None:
    assert parse_avro(one, {}).canonical() == parse_avro(other, {}).canonical()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("int", "long"),
        (["null", "int"], ["int", "null"]),
        (record(), record(doc="told")),
        (record(), record(namespace="a")),
        (record(field("a", "int")), record(field("a", "int", default=1))),
        (record(field("a", "int"), field("b", "int")), record(field("b", "int"), field("a", "int"))),
        ({"type": "int", "logicalType": "date"}, "int"),
        (record(aliases=["A"]), record(aliases=["B"])),
        (
            record(field("a", record(name="I", namespace="")), name="n.R"),
            record(field("a", record(name="I")), name="n.R"),
        ),
    ],
)
def test_what_means_something_else_is_not_the_same(one: Any, other: Any) -> None:
    assert parse(one).canonical() != parse(other).canonical()


def test_the_canonical_text_is_the_same_schema() -> None:
    schema = record(
        field("in", record(field("again", ["null", "a.Outer"]), name="Inner", namespace="")),
        field("b", "Inner"),
        field("c", {"type": "fixed", "name": "x.F", "size": 3}, doc="ü"),
        name="Outer",
        namespace="a",
    )
    parsed = parse(schema)
    again = parse_avro(parsed.normalized(), {})
    assert again.canonical() == parsed.canonical()
    assert set(again.named) == set(parsed.named) == {"a.Outer", "Inner", "x.F"}


# References


def test_a_schema_uses_the_types_of_those_that_it_refers_to() -> None:
    city = parse(record(field("name", "string"), name="geo.City"))
    address = parse(record(field("city", "geo.City"), name="geo.Address"), {"city": city})
    order = parse(record(field("to", "geo.Address"), field("from", "geo.City"), name="Order"), {"address": address})
    assert order.validator().check([b"\x02a\x02b", b"\x02a"])[0] is None
    resolved = json.loads(order.resolved())
    assert resolved["fields"][0]["type"]["fields"][0]["type"]["name"] == "geo.City"
    assert resolved["fields"][1]["type"] == "geo.City"
    assert set(parse(resolved).named) == set(order.named)
    other = parse(record(field("name", "bytes"), name="geo.City"))
    changed = parse(record(field("city", "geo.City"), name="geo.Address"), {"city": other})
    newer = parse(record(field("to", "geo.Address"), field("from", "geo.City"), name="Order"), {"address": changed})
    assert newer.canonical() == order.canonical()
    assert newer.cannot_read(order) == []


def test_a_schema_and_one_that_it_refers_to_are_not_the_same_in_exchange() -> None:
    one, other = record(field("x", "int"), name="One"), record(field("x", "string"), name="Other")
    first = parse(one, {"other": parse(other)})
    second = parse(other, {"one": parse(one)})
    assert first.sizes == second.sizes
    assert [each.rule for each in first.cannot_read(second)] != []
    assert first.cannot_read(parse(one, {"other": parse(other)})) == []


def test_references_that_do_not_agree_are_refused() -> None:
    one = parse(record(field("x", "int"), name="C"))
    other = parse(record(field("x", "string"), name="C"))
    assert "'b' defines 'C' in another way" in refusal(record(field("c", "C")), {"a": one, "b": other})
    assert "'C' is defined already" in refusal(record(name="C"), {"a": one})
    again = parse(record(field("x", "int"), name="C", aliases=[]) | {"aliases": []})
    assert "in another way" in refusal(record(field("c", "C")), {"a": one, "b": again})
    assert parse(record(field("c", "C")), {"a": one, "b": parse(record(field("x", "int"), name="C"))})


def test_the_bounds_hold_through_references() -> None:
    big, more = parse(enum_of(60_000, "E")), parse(enum_of(60_000, "G"))
    assert "more than 100000 parts" in refusal(record(), {"a": big, "b": more})
    assert "more than 100000 parts" in refusal(enum_of(60_000, "G"), {"a": big})
    assert parse(record(), {"a": big, "again": big})


# Values


def encoded(schema: Any, value: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


EVERYTHING = record(
    field("null", "null"), field("yes", "boolean"), field("int", "int"), field("long", "long"), field("float", "float"),
    field("double", "double"), field("bytes", "bytes"), field("string", "string"),
    field("list", {"type": "array", "items": "string"}), field("map", {"type": "map", "values": "long"}),
    field("enum", {"type": "enum", "name": "E", "symbols": ["A", "B"]}),
    field("fixed", {"type": "fixed", "name": "F", "size": 3}), field("union", ["null", "string", "E"]),
)  # fmt: skip
A_VALUE = {
    "null": None, "yes": True, "int": -(2**31), "long": 2**63 - 1, "float": 1.5, "double": -2.5, "bytes": b"\xff",
    "string": "ü", "list": ["a", ""], "map": {"k": 1}, "enum": "B", "fixed": b"abc", "union": "x",
}  # fmt: skip


def test_a_value_of_every_type_fits() -> None:
    value = encoded(EVERYTHING, A_VALUE)
    validator = parse(EVERYTHING).validator()
    assert validator.check([value]) == [None]
    assert validator.check([value[:at] for at in range(len(value))]).count(None) == 0
    assert validator.check([value + b"\x00"]) == ["1 bytes are left over behind the value"]


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        ("boolean", b"\x02", "/: a boolean is 0 or 1"),
        ("int", b"\xff\xff\xff\xff\x1f", "/: the int at byte 0 is too large"),
        ("int", b"\xff\xff\xff\xff\xff\x01", "/: the int at byte 0 has more than 5 bytes"),
        ("long", b"\xff" * 9 + b"\x02", "/: the long at byte 0 is too large"),
        ("long", b"\xff" * 30, "/: the long at byte 0 has more than 10 bytes"),
        ("string", b"\x02\xff", "/: the string at byte 1 is not UTF-8"),
        ("string", b"\x03abc", "/: string needs -2 bytes"),
        ("bytes", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "/: bytes needs 9223372036854775807 bytes"),
        ("double", b"\x00", "/: double needs 8 bytes at byte 0, and 1 are left"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x01", "/: -1 is no symbol of enum E"),
        ({"type": "enum", "name": "E", "symbols": []}, b"\x00", "/: 0 is no symbol"),
        (["null", "int"], b"\x01\x02", "/: -1 is no branch of the union"),
        (["null", "int"], b"\x04", "/: 2 is no branch of the union; there are 0 to 1"),
        ({"type": "array", "items": "int"}, b"\x04\x02", "/1: int needs 1 bytes"),
        ({"type": "map", "values": "int"}, b"\x02\x02a", "/0: int needs 1 bytes"),
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\x0f\x00", "items that take no bytes"),
        (record(field("a", record(field("b", "int"), name="I"))), b"", "/a/b: int needs 1 bytes"),
        (record(field("a", "R")), b"", "without an end"),
        ({"type": "string", "logicalType": "uuid"}, b"\x02x", "/: b'x' is no UUID"),
        ({"type": "int", "logicalType": "time-millis"}, b"\x01", "/: -1 is no time-millis"),
        ({"type": "long", "logicalType": "time-micros"}, b"\x80\xc0\xea\xac\x87\x50", "no time-micros"),
    ],
)
def test_what_is_wrong_with_a_value_is_told_with_its_place(schema: Any, value: bytes, problem: str) -> None:
    [found] = parse(schema).validator().check([value])
    assert found is not None
    assert problem in found


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string", "logicalType": "uuid"}, b"\x4812345678-1234-5678-1234-567812345678"),
        ({"type": "int", "logicalType": "time-millis"}, b"\x02"),
        ({"type": "int", "logicalType": "date"}, b"\xfe\xff\xff\xff\x0f"),
        ({"type": "long", "logicalType": "timestamp-micros"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, b"\x04\x01\x02"),
        ({"type": "bytes", "logicalType": "decimal", "precision": -4}, b"\x00"),
        ({"type": "int", "logicalType": "unheard-of"}, b"\x00"),
        ({"type": "int", "logicalType": "uuid"}, b"\x00"),
        ({"type": "array", "items": "null"}, b"\x04\x00"),
        ({"type": "array", "items": "int"}, b"\x03\x04\x02\x02\x00"),
        (record(), b""),
    ],
)
def test_these_fit(schema: Any, value: bytes) -> None:
    """Dates that only some languages can represent are dates; a logical type that makes no sense is none."""
    assert parse(schema).validator().check([value]) == [None]


def test_values_of_any_depth_and_size_are_checked() -> None:
    validator = parse(record(field("next", ["null", "R"]))).validator()
    began = time.monotonic()
    assert validator.check([b"\x02" * 50_000 + b"\x00"]) == [None]
    [found] = validator.check([b"\x02" * 50_000])
    assert found is not None
    assert found.startswith("/…/next")
    assert time.monotonic() - began < 30


def test_nothing_is_counted_that_takes_no_bytes() -> None:
    kinds: Any = "null"
    for depth in range(60):
        kinds = record(field("a", kinds), *([field("b", f"D{depth - 1}")] if depth else []), name=f"D{depth}")
    assert parse({"type": "array", "items": kinds}).validator().check([b"\x04\x00", b""])[0] is None


VALUES = st.fixed_dictionaries(
    {
        "null": st.none(), "yes": st.booleans(), "int": st.integers(-(2**31), 2**31 - 1),
        "long": st.integers(-(2**63), 2**63 - 1), "float": st.floats(width=32), "double": st.floats(),
        "bytes": st.binary(), "string": st.text(), "list": st.lists(st.text()),
        "map": st.dictionaries(st.text(), st.integers(-(2**63), 2**63 - 1)), "enum": st.sampled_from("AB"),
        "fixed": st.binary(min_size=3, max_size=3), "union": st.none() | st.text(),
    }
)  # fmt: skip
EVERYTHING_PARSED = parse(EVERYTHING)


@settings(max_examples=150, deadline=None)
@given(VALUES)
def test_whatever_another_implementation_writes_fits(value: dict[str, Any]) -> None:
    assert EVERYTHING_PARSED.validator().check([encoded(EVERYTHING, value)]) == [None]


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60))
def test_the_check_and_the_walk_agree_and_others_can_read_what_fits(value: bytes) -> None:
    """The first is quick, the second tells why; anything that fits can be decoded."""
    for schema, parsed in SMALL:
        [found] = parsed.validator().check([value])
        assert found == first_problem(parsed.root, value)
        if found is None:
            fastavro.schemaless_reader(BytesIO(value), fastavro.parse_schema(schema), None)


SMALL: list[tuple[Any, AvroSchema]] = [
    (schema, parse(schema))
    for schema in (
        "long", "string", {"type": "array", "items": ["null", "int"]}, {"type": "map", "values": "boolean"},
        record(field("a", "int"), field("b", ["null", "R"])), {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]},
    )
]  # fmt: skip


# Whatever comes

KEYS = ["type", "name", "namespace", "fields", "items", "values", "symbols", "size", "default", "aliases"]
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from(["record", "enum", "fixed", "array", "map", "int", "null", "R"]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(KEYS), inner, max_size=6,
    ),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=500, deadline=1_000)
@example({"name": None, "type": {"type": "int"}})
@example({"name": "a", "type": {"name": "b", "type": {"type": "int"}}})
@given(ANY_JSON)
def test_any_json_is_a_schema_or_is_refused(value: Any) -> None:
    try:
        parsed = parse_avro(json.dumps(value), {})
    except InvalidSchema:
        return
    assert parse_avro(parsed.canonical(), {}).canonical() == parsed.canonical()
    assert parsed.cannot_read(parsed) == []
    assert len(parsed.validator().check([b"", b"\x00", b"\xff" * 20])) == 3
    assert parsed.resolved()


@settings(max_examples=200, deadline=1_000)
@given(st.text())
def test_any_text_is_a_schema_or_is_refused(text: str) -> None:
    try:
        parse_avro(text, {})
    except InvalidSchema as error:
        assert str(error)


def exponential_default() -> Any:
    value: Any = {"f": 3}
    for _ in range(40):
        value = {"f": value}
    inner = record(field("f", [record(field("f", ["A", "B"]), name="B"), "A"]), name="A")
    return record(field("a", inner, default=value))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"type":' * 100_000,
        '{"type":"array","items":' * 150 + '"int"' + "}" * 150,
        json.dumps(enum_of(MAX_NODES), separators=(",", ":")),
        json.dumps(["null"] * 200_000),
        json.dumps(record(*(field(f"f{number}", "int") for number in range(MAX_NODES)))),
        '"' + "x" * MAX_SCHEMA_BYTES,
        json.dumps(record(doc="x")).replace('"x"', '"\\ud800"'),
        '"\ud800"',
        json.dumps(record(x=math.nan)),
        '{"type":"record","name":"R","fields":[],"x":1e999}',
        '{"type":"record","name":"R","fields":[],"x":' + "1" * 5_000 + "}",
        json.dumps(exponential_default()),
        json.dumps(record(name="x" * 2_000)),
        '{"type":"record","name":"R","fields":[],"x":' + "[" * 5_000 + "]" * 5_000 + "}",
    ],
    ids=range(15),
)
def test_what_is_huge_or_hostile_is_refused_quickly(text: str) -> None:
    began = time.monotonic()
    assert len(refusal(text)) < 1_000
    assert time.monotonic() - began < 30


def test_the_largest_schemas_are_read_in_a_while() -> None:
    symbols = enum_of(MAX_NODES - 1)
    fields = record(*(field(f"f{number}", "int") for number in range(20_000)), doc="x" * 400_000)
    began = time.monotonic()
    for schema in (symbols, fields):
        parsed = parse_avro(json.dumps(schema, separators=(",", ":")), {})
        assert parsed.validator().check([b""]) != [None]
    assert time.monotonic() - began < 30
