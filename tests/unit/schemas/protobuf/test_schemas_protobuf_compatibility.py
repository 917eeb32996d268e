"""Which changes of a Protobuf schema Confluent's rules allow. Each case: what it shows, the writer's schema, the
reader's, and the rules that the change breaks (none: it is compatible)."""

from __future__ import annotations

import pytest

from goqueue.schemas.base import ParsedSchema
from goqueue.schemas.protobuf.protobuf_schema import parse_protobuf

P3 = 'syntax = "proto3"; '
P2 = 'syntax = "proto2"; '
EDITION = 'edition = "2023"; '


def m3(body: str) -> str:
    return f"{P3} message A {{ {body} }}"


def m2(body: str) -> str:
    return f"{P2} message A {{ {body} }}"


FIELDS = [
    ("the same schema", m3("int32 x = 1;"), m3("int32 x = 1;"), []),
    ("FIELD_ADDED", m3("int32 x = 1;"), m3("int32 x = 1; string y = 2;"), []),
    ("FIELD_REMOVED", m3("int32 x = 1; string y = 2;"), m3("int32 x = 1;"), []),
    ("FIELD_NAME_CHANGED", m3("int32 x = 1;"), m3("int32 other = 1;"), []),
    ("a new number is one field gone and one come", m3("int32 x = 1;"), m3("int32 x = 2;"), []),
    ("FIELD_SCALAR_KIND_CHANGED int to string", m3("int32 x = 1;"), m3("string x = 1;"), ["FIELD_SCALAR_KIND_CHANGED"]),
    ("int32 as int64", m3("int32 x = 1;"), m3("int64 x = 1;"), []),
    ("int64 as int32", m3("int64 x = 1;"), m3("int32 x = 1;"), []),
    ("uint32 as bool", m3("uint32 x = 1;"), m3("bool x = 1;"), []),
    ("bool as uint64", m3("bool x = 1;"), m3("uint64 x = 1;"), []),
    ("int32 as sint32", m3("int32 x = 1;"), m3("sint32 x = 1;"), ["FIELD_SCALAR_KIND_CHANGED"]),
    ("sint32 as sint64", m3("sint32 x = 1;"), m3("sint64 x = 1;"), []),
    ("fixed32 as sfixed32", m3("fixed32 x = 1;"), m3("sfixed32 x = 1;"), []),
    ("fixed64 as sfixed64", m3("fixed64 x = 1;"), m3("sfixed64 x = 1;"), []),
    ("fixed32 as fixed64", m3("fixed32 x = 1;"), m3("fixed64 x = 1;"), ["FIELD_SCALAR_KIND_CHANGED"]),
    ("fixed32 as int32", m3("fixed32 x = 1;"), m3("int32 x = 1;"), ["FIELD_SCALAR_KIND_CHANGED"]),
    ("fixed32 as float", m3("fixed32 x = 1;"), m3("float x = 1;"), ["FIELD_SCALAR_KIND_CHANGED"]),
    ("float as double", m3("float x = 1;"), m3("double x = 1;"), ["FIELD_SCALAR_KIND_CHANGED"]),
    ("string as bytes", m3("string x = 1;"), m3("bytes x = 1;"), []),
    ("bytes as string", m3("bytes x = 1;"), m3("string x = 1;"), []),
    ("int32 as enum", m3("int32 x = 1;"), m3("E x = 1; enum E { Z = 0; }"), []),
    ("enum as uint64", m3("E x = 1; enum E { Z = 0; }"), m3("uint64 x = 1;"), []),
    ("enum as sint32", m3("E x = 1; enum E { Z = 0; }"), m3("sint32 x = 1;"), ["FIELD_SCALAR_KIND_CHANGED"]),
    ("enum as another enum", m3("E x = 1; enum E { Z = 0; }"), m3("F x = 1; enum F { Y = 0; }"), []),
    ("FIELD_KIND_CHANGED to a message", m3("int32 x = 1;"), m3("A x = 1;"), ["FIELD_KIND_CHANGED"]),
    ("FIELD_KIND_CHANGED from a message", m3("A x = 1;"), m3("bytes x = 1;"), ["FIELD_KIND_CHANGED"]),
    ("FIELD_KIND_CHANGED from an enum", m3("E x = 1; enum E { Z = 0; }"), m3("A x = 1;"), ["FIELD_KIND_CHANGED"]),
    ("FIELD_KIND_CHANGED to a map", m3("A x = 1;"), m3("map<string, A> x = 1;"), ["FIELD_KIND_CHANGED"]),
    (
        "FIELD_KIND_CHANGED from a map",
        m3("map<string, A> x = 1;"),
        m3("repeated string x = 1;"),
        ["FIELD_KIND_CHANGED"],
    ),
    ("a map's values of the same kind", m3("map<string, int32> x = 1;"), m3("map<bytes_, int64> x = 1;"), []),
    (
        "a map's values of another kind",
        m3("map<string, int32> x = 1;"),
        m3("map<string, string> x = 1;"),
        ["FIELD_SCALAR_KIND_CHANGED"],
    ),
    (
        "a map's keys of another kind",
        m3("map<string, int32> x = 1;"),
        m3("map<int32, int32> x = 1;"),
        ["FIELD_SCALAR_KIND_CHANGED"],
    ),
    (
        "a map's values become messages",
        m3("map<string, int32> x = 1;"),
        m3("map<string, A> x = 1;"),
        ["FIELD_KIND_CHANGED"],
    ),
    ("a map is removed, with its entry", m3("int32 y = 2; map<string, A> x = 1;"), m3("int32 y = 2;"), []),
    ("a map has another name", m3("map<string, A> x = 1;"), m3("map<string, A> y = 1;"), []),
    ("a map's type is written otherwise", m3("map<string, A> x = 1;"), m3("map<string, .A> x = 1;"), []),
]
FIELDS = [(n, w, r.replace("bytes_", "string"), x) for n, w, r, x in FIELDS]

LABELS = [
    (
        "FIELD_NUMERIC_LABEL_CHANGED to repeated",
        m3("optional int32 x = 1;"),
        m3("repeated int32 x = 1;"),
        ["FIELD_NUMERIC_LABEL_CHANGED"],
    ),
    (
        "FIELD_NUMERIC_LABEL_CHANGED from repeated",
        m3("repeated double x = 1;"),
        m3("optional double x = 1;"),
        ["FIELD_NUMERIC_LABEL_CHANGED"],
    ),
    (
        "FIELD_NUMERIC_LABEL_CHANGED to required",
        m2("optional int32 x = 1;"),
        m2("required int32 x = 1;"),
        ["FIELD_NUMERIC_LABEL_CHANGED"],
    ),
    (
        "FIELD_NUMERIC_LABEL_CHANGED of an enum",
        m2("optional E x = 1; enum E { Z = 0; }"),
        m2("repeated E x = 1; enum E { Z = 0; }"),
        ["FIELD_NUMERIC_LABEL_CHANGED"],
    ),
    ("no label says nothing about a label", m3("int32 x = 1;"), m3("repeated int32 x = 1;"), []),
    ("optional may be left out", m3("optional int32 x = 1;"), m3("int32 x = 1;"), []),
    ("FIELD_STRING_OR_BYTES_LABEL_CHANGED", m3("optional string x = 1;"), m3("repeated string x = 1;"), []),
    ("FIELD_STRING_OR_BYTES_LABEL_CHANGED back", m3("repeated bytes x = 1;"), m3("optional string x = 1;"), []),
    ("the label of a message", m3("optional A x = 1;"), m3("repeated A x = 1;"), []),
    ("an optional string becomes required", m2("optional string x = 1;"), m2("required string x = 1;"), []),
    (
        "REQUIRED_FIELD_ADDED",
        m2("optional int32 x = 1;"),
        m2("optional int32 x = 1; required int32 y = 2;"),
        ["REQUIRED_FIELD_ADDED"],
    ),
    (
        "REQUIRED_FIELD_REMOVED",
        m2("optional int32 x = 1; required int32 y = 2;"),
        m2("optional int32 x = 1;"),
        ["REQUIRED_FIELD_REMOVED"],
    ),
    ("a default changes", m2("optional int32 x = 1 [default = 1];"), m2("optional int32 x = 1 [default = 2];"), []),
    ("proto2 as proto3", m2("optional int32 x = 1;"), m3("int32 x = 1;"), []),
]

ONEOFS = [
    ("ONEOF_ADDED", m3("int32 x = 1;"), m3("int32 x = 1; oneof o { int32 y = 2; }"), []),
    ("one field moves into a new oneof", m3("int32 x = 1;"), m3("oneof o { int32 x = 1; int32 y = 2; }"), []),
    (
        "MULTIPLE_FIELDS_MOVED_TO_ONEOF",
        m3("int32 x = 1; int32 y = 2;"),
        m3("oneof o { int32 x = 1; int32 y = 2; }"),
        ["MULTIPLE_FIELDS_MOVED_TO_ONEOF"],
    ),
    (
        "FIELD_MOVED_TO_EXISTING_ONEOF",
        m3("int32 x = 1; oneof o { int32 y = 2; }"),
        m3("oneof o { int32 x = 1; int32 y = 2; }"),
        ["FIELD_MOVED_TO_EXISTING_ONEOF"],
    ),
    (
        "two oneofs become one",
        m3("oneof o { int32 x = 1; } oneof p { int32 y = 2; }"),
        m3("oneof o { int32 x = 1; int32 y = 2; }"),
        ["FIELD_MOVED_TO_EXISTING_ONEOF"],
    ),
    ("ONEOF_FIELD_ADDED", m3("oneof o { int32 x = 1; }"), m3("oneof o { int32 x = 1; int32 y = 2; }"), []),
    (
        "ONEOF_FIELD_REMOVED",
        m3("oneof o { int32 x = 1; int32 y = 2; }"),
        m3("oneof o { int32 x = 1; }"),
        ["ONEOF_FIELD_REMOVED"],
    ),
    (
        "ONEOF_FIELD_REMOVED though the oneof is gone",
        m3("oneof o { int32 x = 1; int32 y = 2; }"),
        m3("int32 x = 1;"),
        ["ONEOF_FIELD_REMOVED"],
    ),
    (
        "ONEOF_REMOVED with all its fields",
        m3("int32 z = 3; oneof o { int32 x = 1; int32 y = 2; }"),
        m3("int32 z = 3;"),
        [],
    ),
    (
        "ONEOF_FIELD_MOVED_TO_TOP_LEVEL",
        m3("oneof o { int32 x = 1; int32 y = 2; }"),
        m3("int32 x = 1; int32 y = 2;"),
        [],
    ),
    (
        "a oneof has another name",
        m3("oneof o { int32 x = 1; int32 y = 2; }"),
        m3("oneof p { int32 x = 1; int32 y = 2; }"),
        [],
    ),
    (
        "a field changes in a oneof with another name",
        m3("oneof o { int32 x = 1; }"),
        m3("oneof p { string x = 1; }"),
        ["FIELD_SCALAR_KIND_CHANGED"],
    ),
    (
        "a field changes on its way out of a oneof",
        m3("oneof o { int32 x = 1; }"),
        m3("A x = 1;"),
        ["FIELD_KIND_CHANGED"],
    ),
    (
        "the oneof behind a proto3 optional is none",
        m3("optional int32 x = 1; optional int32 y = 2;"),
        m3("int32 x = 1;"),
        [],
    ),
    (
        "optional fields move into a oneof",
        m3("optional int32 x = 1; optional int32 y = 2;"),
        m3("oneof o { int32 x = 1; int32 y = 2; }"),
        ["MULTIPLE_FIELDS_MOVED_TO_ONEOF"],
    ),
]

A = "message A { int32 x = 1; } "
B = "message B { int32 x = 1; } "
TYPES = [
    ("PACKAGE_CHANGED", P3 + "package p; " + A, P3 + "package q; " + A, ["PACKAGE_CHANGED"]),
    ("PACKAGE_CHANGED to none", P3 + "package p; " + A, P3 + A, ["PACKAGE_CHANGED"]),
    (
        "PACKAGE_CHANGED with types of its own",
        P3 + "package p; message A { A a = 1; B b = 2; message B {} }",
        P3 + "package q; message A { A a = 1; B b = 2; message B {} }",
        ["PACKAGE_CHANGED"],
    ),
    ("MESSAGE_ADDED", P3 + A, P3 + A + B, []),
    ("MESSAGE_REMOVED", P3 + A + B, P3 + A, ["MESSAGE_REMOVED"]),
    ("MESSAGE_REMOVED nested", m3("message N {}"), m3(""), ["MESSAGE_REMOVED"]),
    (
        "MESSAGE_REMOVED is said once for a tree",
        P3 + A + "message B { message C { message D {} } }",
        P3 + A,
        ["MESSAGE_REMOVED"],
    ),
    ("MESSAGE_MOVED", P3 + A + B, P3 + B + A, []),
    ("a message moves into another", P3 + A + B, P3 + "message A { int32 x = 1; " + B + "}", ["MESSAGE_REMOVED"]),
    ("ENUM_ADDED", P3 + A, P3 + A + "enum E { Z = 0; }", []),
    ("ENUM_REMOVED", P3 + A + "enum E { Z = 0; }", P3 + A, []),
    ("ENUM_CONST_ADDED", P3 + "enum E { Z = 0; }", P3 + "enum E { Z = 0; Y = 1; }", []),
    ("ENUM_CONST_REMOVED", P3 + "enum E { Z = 0; Y = 1; }", P3 + "enum E { Z = 0; }", []),
    ("ENUM_CONST_CHANGED", P3 + "enum E { Z = 0; Y = 1; }", P3 + "enum E { Z = 0; X = 1; }", []),
    (
        "FIELD_NAMED_TYPE_CHANGED",
        P3 + A + B + "message C { A f = 1; }",
        P3 + A + B + "message C { B f = 1; }",
        ["FIELD_NAMED_TYPE_CHANGED"],
    ),
    (
        "FIELD_NAMED_TYPE_CHANGED in a map",
        P3 + A + B + "message C { map<string, A> f = 1; }",
        P3 + A + B + "message C { map<string, B> f = 1; }",
        ["FIELD_NAMED_TYPE_CHANGED"],
    ),
    (
        "a type is written otherwise",
        P3 + "package p; message A { A f = 1; }",
        P3 + "package p; message A { .p.A f = 1; }",
        [],
    ),
    (
        "a nested message changes",
        m3("N n = 1; message N { int32 x = 1; }"),
        m3("N n = 1; message N { string x = 1; }"),
        ["FIELD_SCALAR_KIND_CHANGED"],
    ),
    ("a recursive message", m3("A a = 1; repeated A more = 2;"), m3("A a = 1; repeated A more = 2; int32 x = 3;"), []),
    ("options and services do not matter", P3 + A, P3 + 'option java_package = "p"; ' + A + "service S {}", []),
    (
        "reserved numbers do not matter",
        m3("int32 x = 1; int32 y = 2;"),
        m3('int32 x = 1; reserved 2; reserved "y";'),
        [],
    ),
    ("extensions do not matter", m2("extensions 5;"), m2("extensions 5; extend A { optional int32 x = 5; }"), []),
    (
        "a group is not encoded as a message of its name is",
        m2("optional group G = 1 {}"),
        m2("optional G g = 1; message G {}"),
        ["FIELD_KIND_CHANGED"],
    ),
    (
        "a message is not encoded as a group of its name is",
        m2("optional G g = 1; message G {}"),
        m2("optional group G = 1 {}"),
        ["FIELD_KIND_CHANGED"],
    ),
    (
        "a group as a message that an edition encodes alike",
        m2("optional group G = 1 {}"),
        EDITION + "message A { message G {} G g = 1 [features.message_encoding = DELIMITED]; }",
        [],
    ),
    (
        "a delimited message as one behind its length",
        EDITION + "message A { B b = 1 [features.message_encoding = DELIMITED]; } message B {}",
        EDITION + "message A { B b = 1; } message B {}",
        ["FIELD_KIND_CHANGED"],
    ),
    (
        "a message behind its length as a delimited one, of the whole file",
        EDITION + "message A { B b = 1; map<string, B> m = 2; } message B {}",
        EDITION
        + "option features.message_encoding = DELIMITED; message A { B b = 1; map<string, B> m = 2; } message B {}",
        ["FIELD_KIND_CHANGED"],
    ),
    (
        "a field that an edition requires is new",
        EDITION + "message A {}",
        EDITION + "message A { int32 x = 1 [features.field_presence = LEGACY_REQUIRED]; }",
        ["REQUIRED_FIELD_ADDED"],
    ),
    (
        "a field that an edition requires is gone",
        EDITION + "message A { int32 x = 1 [features.field_presence = LEGACY_REQUIRED]; }",
        EDITION + "message A {}",
        ["REQUIRED_FIELD_REMOVED"],
    ),
    (
        "two changes are two reasons",
        m3("int32 x = 1; int32 y = 2;"),
        m3("string x = 1; A y = 2;"),
        ["FIELD_SCALAR_KIND_CHANGED", "FIELD_KIND_CHANGED"],
    ),
]
CASES = FIELDS + LABELS + ONEOFS + TYPES


@pytest.mark.parametrize(("shows", "writer", "reader", "rules"), CASES, ids=[case[0] for case in CASES])
def test_a_change_breaks_these_rules(shows: str, writer: str, reader: str, rules: list[str]) -> None:
    found = parse_protobuf(reader, {}).cannot_read(parse_protobuf(writer, {}))
    assert [reason.rule for reason in found] == rules


@pytest.mark.parametrize("text", sorted({text for case in CASES for text in case[1:3]}))
def test_every_schema_can_read_itself(text: str) -> None:
    schema = parse_protobuf(text, {})
    assert schema.cannot_read(parse_protobuf(schema.normalized(), {})) == []


def test_the_table_is_large_enough_and_shows_both_outcomes() -> None:
    assert len(CASES) >= 60
    assert sum(1 for case in CASES if case[3]) >= 25


GOOGLE = P3 + "package home; message Home { int32 device = 1; message Room { Part part = 1; } Room room = 2; } "
PART = "message Part { int32 size = 1; }"


def using(home: str, package: str = "home", name: str = "home.proto") -> ParsedSchema:
    references = {name: parse_protobuf(home, {})}
    text = f'{P3} import "{name}"; message A {{ .{package}.Home home = 1; .{package}.Home.Room room = 2; }}'
    return parse_protobuf(text, references)


def test_an_imported_message_is_compared_as_far_as_it_is_used() -> None:
    old = using(GOOGLE + PART)
    assert using(GOOGLE + PART + "message Unused {}").cannot_read(old) == []
    assert old.cannot_read(using(GOOGLE + PART + "message Unused {}")) == []
    reasons = using(GOOGLE + PART.replace("int32", "string")).cannot_read(old)
    assert ("FIELD_SCALAR_KIND_CHANGED", "#/Part/1") in {(r.rule, r.path) for r in reasons}
    # Everything that leads to the changed message, however far away, cannot be read either.
    assert {r.path for r in reasons if r.rule == "FIELD_NAMED_TYPE_CHANGED"} == {
        "#/A/1",
        "#/A/2",
        "#/Home/2",
        "#/Home/Room/1",
    }


def test_an_imported_message_may_come_from_another_file_and_package() -> None:
    old = using(GOOGLE + PART)
    assert (
        using((GOOGLE + PART).replace("package home", "package house"), "house", "house.proto").cannot_read(old) == []
    )


def test_a_message_that_moves_into_an_import_is_removed_here() -> None:
    own = parse_protobuf(P3 + "message A { Home home = 1; } message Home { int32 device = 1; }", {})
    home = parse_protobuf(P3 + "package home; message Home { int32 device = 1; }", {})
    imported = parse_protobuf(P3 + 'import "h"; message A { home.Home home = 1; }', {"h": home})
    assert [r.rule for r in imported.cannot_read(own)] == ["MESSAGE_REMOVED"]
    assert own.cannot_read(imported) == []


def test_a_reason_says_where_and_what_would_be_compatible() -> None:
    (reason,) = parse_protobuf(m3("oneof o { string total = 7; }"), {}).cannot_read(
        parse_protobuf(m3("int32 total = 7;"), {})
    )
    assert reason.path == "#/A/o/7"
    assert "total was int32 and is string" in reason.message
    assert "int64" in reason.message


def test_there_are_at_most_a_hundred_reasons() -> None:
    old = parse_protobuf(m3("".join(f"int32 f{n} = {n};" for n in range(1, 500))), {})
    new = parse_protobuf(m3("".join(f"string f{n} = {n};" for n in range(1, 500))), {})
    assert len(new.cannot_read(old)) == 100


def test_a_long_chain_of_imported_messages_is_compared() -> None:
    chain = "".join(f"message M{n} {{ M{n + 1} next = 1; }}" for n in range(5000))
    old = parse_protobuf(
        P3 + 'import "c"; message A { M0 m = 1; }',
        {"c": parse_protobuf(P3 + chain + "message M5000 { int32 x = 1; }", {})},
    )
    new = parse_protobuf(
        P3 + 'import "c"; message A { M0 m = 1; }',
        {"c": parse_protobuf(P3 + chain + "message M5000 { string x = 1; }", {})},
    )
    assert new.cannot_read(old)[0].rule == "FIELD_SCALAR_KIND_CHANGED"
    assert len(new.cannot_read(old)) == 100
    assert old.cannot_read(old) == []
