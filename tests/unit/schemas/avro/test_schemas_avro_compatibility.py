"""Which Avro schema can read what another has written, rule by rule, and as the reference implementation sees it."""

from __future__ import annotations

import json
import time
import warnings
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.schemas.avro.avro_schema import AvroSchema, parse_avro

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
    from avro.schema import parse as parse_with_apache

FITS = ""


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, name: str = "E", **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F", **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **more}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def mapping(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


LIST = record(field("value", "int"), field("next", ["null", "R"]))
LONG_LIST = record(field("value", "long"), field("next", ["null", "R"]))
TREE = record(field("left", ["null", "R"]), field("right", ["null", "R"]), field("leaf", "string"))


@dataclass(frozen=True)
class Case:
    shows: str
    reader: Any
    writer: Any
    rule: str
    path: str = "/"
    apache: bool = True
    """Whether the Python package of Apache sees it as Java does, which is what registries do."""


CASES = [
    # Primitive types
    *(Case(f"{kind} reads itself", kind, kind, FITS) for kind in ("null", "boolean", "int", "long", "float", "double")),
    Case("string reads itself", "string", "string", FITS),
    Case("bytes reads itself", "bytes", "bytes", FITS),
    Case("an int is promoted to long", "long", "int", FITS),
    Case("an int is promoted to float", "float", "int", FITS),
    Case("an int is promoted to double", "double", "int", FITS),
    Case("a long is promoted to float", "float", "long", FITS),
    Case("a long is promoted to double", "double", "long", FITS),
    Case("a float is promoted to double", "double", "float", FITS),
    Case("bytes are read as string", "string", "bytes", FITS),
    Case("a string is read as bytes", "bytes", "string", FITS),
    Case("a long is not narrowed to int", "int", "long", "TYPE_MISMATCH"),
    Case("a float is not narrowed to long", "long", "float", "TYPE_MISMATCH"),
    Case("a double is not narrowed to float", "float", "double", "TYPE_MISMATCH"),
    Case("a string is no number", "int", "string", "TYPE_MISMATCH"),
    Case("a boolean is no number", "int", "boolean", "TYPE_MISMATCH"),
    Case("null is no string", "string", "null", "TYPE_MISMATCH"),
    Case(
        "a logical type is what it is written as",
        {"type": "long", "logicalType": "timestamp-millis"},
        {"type": "int", "logicalType": "date"},
        FITS,
    ),
    # Arrays and maps
    Case("an array reads itself", array("int"), array("int"), FITS),
    Case("items are promoted", array("long"), array("int"), FITS),
    Case("items are not narrowed", array("int"), array("long"), "TYPE_MISMATCH", "/items"),
    Case("a map reads itself", mapping("int"), mapping("int"), FITS),
    Case("values are promoted", mapping("double"), mapping("float"), FITS),
    Case("values are not narrowed", mapping("int"), mapping("string"), "TYPE_MISMATCH", "/values"),
    Case("an array is no map", array("int"), mapping("int"), "TYPE_MISMATCH"),
    Case("a map is no record", mapping("int"), record(field("a", "int")), "TYPE_MISMATCH"),
    Case(
        "what is wrong deep inside is told there",
        array(mapping(array("int"))),
        array(mapping(array("string"))),
        "TYPE_MISMATCH",
        "/items/values/items",
    ),
    # Fixed
    Case("a fixed reads itself", fixed(4), fixed(4), FITS),
    Case("a fixed keeps its size", fixed(4), fixed(8), "FIXED_SIZE_MISMATCH", "/size"),
    Case("a fixed keeps its name", fixed(4, "F"), fixed(4, "G"), "NAME_MISMATCH", "/name"),
    Case("a fixed is found by its alias", fixed(4, "F", aliases=["G"]), fixed(4, "G"), FITS),
    Case("a fixed is no bytes", "bytes", fixed(4), "TYPE_MISMATCH"),
    # Enums
    Case("an enum reads itself", enum("A", "B"), enum("A", "B"), FITS),
    Case("the order of symbols does not matter", enum("B", "A"), enum("A", "B"), FITS),
    Case("a reader may know more symbols", enum("A", "B", "C"), enum("A", "B"), FITS),
    Case("a symbol may not go", enum("A"), enum("A", "B"), "MISSING_ENUM_SYMBOLS", "/symbols"),
    Case("a default stands for symbols that went", enum("A", default="A"), enum("A", "B"), FITS),
    Case(
        "a default of the writer is no help", enum("A"), enum("A", "B", default="A"), "MISSING_ENUM_SYMBOLS", "/symbols"
    ),
    Case("an enum keeps its name", enum("A", name="E"), enum("A", name="G"), "NAME_MISMATCH", "/name"),
    Case("an enum is found by its alias", enum("A", aliases=["G"]), enum("A", name="G"), FITS),
    Case("an enum is no string", "string", enum("A"), "TYPE_MISMATCH"),
    Case("a string is no enum", enum("A"), "string", "TYPE_MISMATCH"),
    # Names
    Case("a namespace may change", {**record(), "namespace": "a"}, {**record(), "namespace": "b"}, FITS),
    Case("a record keeps its name", record(name="R"), record(name="S"), "NAME_MISMATCH", "/name"),
    Case("a record is found by its alias", record(name="R", aliases=["S"]), record(name="S"), FITS),
    # Java completes it; the Python package compares the text.
    Case(
        "an alias has the namespace of its type",
        record(name="a.R", aliases=["S"]),
        record(name="a.S"),
        FITS,
        apache=False,
    ),
    Case(
        "an alias of another namespace is another name",
        record(name="a.R", aliases=["S"]),
        record(name="b.S"),
        "NAME_MISMATCH",
        "/name",
    ),
    Case("a record is no string", "string", record(), "TYPE_MISMATCH"),
    # Fields
    Case("a record reads itself", record(field("a", "int")), record(field("a", "int")), FITS),
    Case(
        "a new field needs a default",
        record(field("a", "int"), field("b", "int")),
        record(field("a", "int")),
        "READER_FIELD_MISSING_DEFAULT_VALUE",
        "/fields/1",
    ),
    Case(
        "a new field with a default",
        record(field("a", "int"), field("b", "int", default=0)),
        record(field("a", "int")),
        FITS,
    ),
    Case("null is a default", record(field("b", ["null", "int"], default=None)), record(), FITS),
    Case(
        "a union with null is no default",
        record(field("b", ["null", "int"])),
        record(),
        "READER_FIELD_MISSING_DEFAULT_VALUE",
        "/fields/0",
    ),
    Case("a field may go", record(field("a", "int")), record(field("a", "int"), field("b", "int")), FITS),
    Case("all fields may go", record(), record(field("b", "int")), FITS),
    Case(
        "fields may change places",
        record(field("b", "int"), field("a", "int")),
        record(field("a", "int"), field("b", "int")),
        FITS,
    ),
    Case("a field is promoted", record(field("a", "double")), record(field("a", "int")), FITS),
    Case(
        "a field is not narrowed",
        record(field("a", "int")),
        record(field("a", "double")),
        "TYPE_MISMATCH",
        "/fields/0/type",
    ),
    Case(
        "a default is no help for another type",
        record(field("a", "int", default=0)),
        record(field("a", "string")),
        "TYPE_MISMATCH",
        "/fields/0/type",
    ),
    Case(
        "a field that was renamed is a new one",
        record(field("b", "int")),
        record(field("a", "int")),
        "READER_FIELD_MISSING_DEFAULT_VALUE",
        "/fields/0",
    ),
    Case("a field is found by its alias", record(field("b", "int", aliases=["a"])), record(field("a", "int")), FITS),
    Case(
        "a field found by its alias keeps its type",
        record(field("b", "int", aliases=["a"])),
        record(field("a", "string")),
        "TYPE_MISMATCH",
        "/fields/0/type",
    ),
    Case(
        "an alias of the writer is no help",
        record(field("b", "int")),
        record(field("a", "int", aliases=["b"])),
        "READER_FIELD_MISSING_DEFAULT_VALUE",
        "/fields/0",
    ),
    Case(
        "a name counts before an alias",
        record(field("a", "int", aliases=["b"])),
        record(field("b", "string"), field("a", "int")),
        FITS,
    ),
    Case(
        "the order attribute does not matter",
        record(field("a", "int", order="descending")),
        record(field("a", "int")),
        FITS,
    ),
    Case(
        "what is wrong in an inner record is told there",
        record(field("in", record(field("x", "int"), name="I"))),
        record(field("in", record(field("x", "string"), name="I"))),
        "TYPE_MISMATCH",
        "/fields/0/type/fields/0/type",
    ),
    Case(
        "an inner record keeps its name",
        record(field("in", record(name="I"))),
        record(field("in", record(name="J"))),
        "NAME_MISMATCH",
        "/fields/0/type/name",
    ),
    # Unions
    Case("a union reads itself", ["null", "int"], ["null", "int"], FITS),
    Case("branches may change places", ["int", "null"], ["null", "int"], FITS),
    Case("a branch may be added", ["null", "int", "string"], ["null", "int"], FITS),
    Case("a branch may not go", ["null"], ["null", "int"], "MISSING_UNION_BRANCH"),
    Case("a type becomes optional", ["null", "int"], "int", FITS),
    Case("an optional type stays so", "int", ["null", "int"], "TYPE_MISMATCH"),
    Case("a union of one is read as that", "int", ["int"], FITS),
    Case("every branch is promoted", "double", ["int", "float"], FITS),
    Case("a branch is promoted", ["null", "double"], ["null", "int"], FITS),
    Case("no branch reads it", ["null", "int"], "string", "MISSING_UNION_BRANCH"),
    Case("nothing was ever written", "int", [], FITS),
    Case("nothing can be read", [], "int", "MISSING_UNION_BRANCH"),
    Case("branches are found by name", [record(name="A"), record(name="B")], record(name="B"), FITS),
    Case("another name is another branch", ["null", record(name="A")], record(name="B"), "MISSING_UNION_BRANCH"),
    Case(
        "the branch of the same name must fit",
        ["null", record(field("x", "int"), name="A")],
        record(field("x", "string"), name="A"),
        "MISSING_UNION_BRANCH",
    ),
    Case(
        "another namespace will do where it fits",
        [record(field("x", "int"), name="a.R"), record(field("x", "string"), name="b.R")],
        record(field("x", "string"), name="c.R"),
        FITS,
    ),
    Case("a field becomes optional", record(field("a", ["null", "int"])), record(field("a", "int")), FITS),
    Case(
        "an optional field stays so",
        record(field("a", "int")),
        record(field("a", ["null", "int"])),
        "TYPE_MISMATCH",
        "/fields/0/type",
    ),
    Case(
        "a union in a field loses a branch",
        record(field("a", ["null"])),
        record(field("a", ["null", "int"])),
        "MISSING_UNION_BRANCH",
        "/fields/0/type",
    ),
    # Types in themselves
    Case("a list reads itself", LIST, LIST, FITS),
    Case("a list of promoted values", LONG_LIST, LIST, FITS),
    Case("a list of narrowed values", LIST, LONG_LIST, "TYPE_MISMATCH", "/fields/0/type"),
    Case("a tree that gets a field", record(*TREE["fields"], field("size", "int", default=0)), TREE, FITS),
    Case(
        "a tree that gets a field without a default",
        record(*TREE["fields"], field("size", "int")),
        TREE,
        "READER_FIELD_MISSING_DEFAULT_VALUE",
        "/fields/3",
    ),
]


def parse(schema: Any) -> AvroSchema:
    return parse_avro(json.dumps(schema), {})


def apache_says_it_fits(reader: Any, writer: Any) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = ReaderWriterCompatibilityChecker().get_compatibility(
            parse_with_apache(json.dumps(reader)), parse_with_apache(json.dumps(writer))
        )
    return bool(result.compatibility is SchemaCompatibilityType.compatible)


def test_there_are_enough_cases_and_each_shows_something_else() -> None:
    assert len({case.shows for case in CASES}) == len(CASES) >= 60


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.shows)
def test_compatibility(case: Case) -> None:
    found = parse(case.reader).cannot_read(parse(case.writer))
    assert [(each.rule, each.path) for each in found[:1]] == ([(case.rule, case.path)] if case.rule else [])
    assert all(each.message for each in found)


@pytest.mark.parametrize("case", [case for case in CASES if case.writer], ids=lambda case: case.shows)
def test_the_reference_implementation_agrees(case: Case) -> None:
    """Where it knows the rule; a case says so if it does not."""
    assert (apache_says_it_fits(case.reader, case.writer) == (not case.rule)) == case.apache


def test_a_refusal_says_what_would_be_compatible() -> None:
    messages = {
        "READER_FIELD_MISSING_DEFAULT_VALUE": "give it a default",
        "TYPE_MISMATCH": "that reads int only",
        "MISSING_ENUM_SYMBOLS": "keep them, or give the enum a default",
        "MISSING_UNION_BRANCH": "add one",
        "FIXED_SIZE_MISMATCH": "keep the size",
        "NAME_MISMATCH": "keep the name, or add the old one as an alias",
    }
    for rule, advice in messages.items():
        case = next(case for case in CASES if case.rule == rule and case.reader != "long")
        found = parse(case.reader).cannot_read(parse(case.writer))[0]
        assert advice in found.message or rule == "TYPE_MISMATCH", found


def test_all_reasons_are_told_each_once() -> None:
    reader = record(field("a", "int"), field("b", "int"), field("c", LIST | {"name": "L"}), field("d", "L"))
    writer = record(field("a", "string"), field("c", LONG_LIST | {"name": "L"}), field("d", "L"))
    reader["fields"][2]["type"]["fields"][1]["type"] = ["null", "L"]
    writer["fields"][1]["type"]["fields"][1]["type"] = ["null", "L"]
    assert [(each.rule, each.path) for each in parse(reader).cannot_read(parse(writer))] == [
        ("TYPE_MISMATCH", "/fields/0/type"),
        ("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/1"),
        ("TYPE_MISMATCH", "/fields/2/type/fields/0/type"),
    ]


def test_at_most_a_hundred_reasons_are_told() -> None:
    many = record(*(field(f"f{number}", "int") for number in range(500)))
    assert len(parse(many).cannot_read(parse(record()))) == 100


def test_what_fits_only_if_another_type_does_is_looked_at_again() -> None:
    """``B`` reads ``B`` if ``A`` reads ``A``, and is looked at before that turns out to be wrong."""

    inner = record(field("a", ["null", "A"]), name="B")
    old = record(field("b", ["null", inner]), field("x", "string"), name="A")
    new = record(field("b", ["null", inner]), field("x", "int"), name="A")
    same = record(field("x", "string"), name="other.A")
    reader = record(field("first", [new, same]), field("then", ["null", "B"]))
    writer = record(field("first", old), field("then", ["null", "B"]))
    found = parse(reader).cannot_read(parse(writer))
    assert [(each.rule, each.path) for each in found] == [
        ("MISSING_UNION_BRANCH", "/fields/1/type"),
        ("MISSING_UNION_BRANCH", "/fields/1/type/1/fields/0/type"),
        ("TYPE_MISMATCH", "/fields/1/type/1/fields/0/type/1/fields/1/type"),
    ]


# Pairs made by chance

NAMES = st.sampled_from("ABC")
FIELD_NAMES = st.sampled_from("abc")
PRIMITIVES = st.sampled_from(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])
DEFAULTS: dict[Any, Any] = {
    "null": None, "boolean": True, "int": 1, "long": 1, "float": 1.5, "double": 1.5, "bytes": "x", "string": "x",
}  # fmt: skip


@st.composite
def types(draw: st.DrawFn, depth: int, defined: set[str]) -> Any:
    """A type in which names are defined before they are used, once each."""
    kinds = ["primitive"] * 3 + (["array", "map", "union", "record", "enum", "fixed"] if depth else [])
    kind = draw(st.sampled_from([*kinds, *(["name"] if defined else [])]))
    if kind == "name":
        return draw(st.sampled_from(sorted(defined)))
    if kind == "array":
        return array(draw(types(depth - 1, defined)))
    if kind == "map":
        return mapping(draw(types(depth - 1, defined)))
    if kind == "union":
        return draw(unions(depth, defined))
    if kind in ("record", "enum", "fixed"):
        free = sorted(set("ABC") - defined)
        if free:
            return draw(named(kind, draw(st.sampled_from(free)), depth, defined))
    return draw(PRIMITIVES)


@st.composite
def unions(draw: st.DrawFn, depth: int, defined: set[str]) -> Any:
    found: list[Any] = []
    marks: set[str] = set()
    for _ in range(draw(st.integers(1, 3))):
        known = set(defined)
        each = draw(types(depth - 1, known))
        mark = each.get("name", each["type"]) if isinstance(each, dict) else each
        if not isinstance(each, list) and mark not in marks:
            found.append(each)
            marks.add(mark)
            defined |= known
    return found or ["null"]


@st.composite
def named(draw: st.DrawFn, kind: str, name: str, depth: int, defined: set[str]) -> Any:
    if kind == "fixed":
        defined.add(name)
        return fixed(draw(st.integers(1, 2)), name)
    if kind == "enum":
        defined.add(name)
        symbols = draw(st.lists(st.sampled_from("XYZ"), min_size=1, unique=True))
        default = {"default": symbols[0]} if draw(st.booleans()) else {}
        return enum(*symbols, name=name, **default)
    # A record may lie in itself, in a union that has an end.
    made = record(name=name)
    defined.add(name)
    for each in draw(st.lists(FIELD_NAMES, unique=True)):
        kind_of = draw(types(depth - 1, defined))
        if isinstance(kind_of, str) and kind_of in defined:
            kind_of = ["null", kind_of]
        has_default = isinstance(kind_of, str) and draw(st.booleans())
        made["fields"].append(field(each, kind_of, **({"default": DEFAULTS[kind_of]} if has_default else {})))
    return made


schemas = st.builds(set).flatmap(lambda defined: types(3, defined))


@settings(max_examples=300, deadline=None)
@given(schemas)
def test_every_schema_reads_itself(schema: Any) -> None:
    parsed = parse(schema)
    assert parsed.cannot_read(parsed) == []
    # Not by being the same text.
    other = parse({"type": "array", "items": schema, "note": 1})
    assert parse({"type": "array", "items": schema}).cannot_read(other) == []


@settings(max_examples=250, deadline=None)
@given(schemas, schemas)
def test_the_reference_implementation_agrees_on_pairs_made_by_chance(reader: Any, writer: Any) -> None:
    fits = parse(reader).cannot_read(parse(writer)) == []
    assert apache_says_it_fits(reader, writer) == fits


# Bounded time


def test_chains_of_any_length_are_compared() -> None:
    def chain(last: str) -> AvroSchema:
        links = [
            record(field("x", ["null", f"R{number - 1}"] if number else last), name=f"R{number}")
            for number in range(3_000)
        ]
        return parse(links)

    began = time.monotonic()
    assert chain("long").cannot_read(chain("int")) == []
    assert "TYPE_MISMATCH" in {each.rule for each in chain("int").cannot_read(chain("long"))}
    assert time.monotonic() - began < 30


def test_many_types_of_one_name_do_not_take_forever() -> None:
    def many(kind: str) -> AvroSchema:
        return parse([record(field("x", kind), name=f"n{number}.R") for number in range(700)])

    began = time.monotonic()
    [found] = many("int").cannot_read(many("string"))
    assert found.rule == "TOO_COMPLEX"
    assert time.monotonic() - began < 30


def test_large_enums_and_unions_are_compared_quickly() -> None:
    began = time.monotonic()
    symbols = [f"s{number}" for number in range(50_000)]
    assert parse(enum(*symbols)).cannot_read(parse(enum(*reversed(symbols)))) == []
    union = [fixed(1, f"F{number}") for number in range(10_000)]
    assert parse(union).cannot_read(parse(union[::-1])) == []
    assert time.monotonic() - began < 30
