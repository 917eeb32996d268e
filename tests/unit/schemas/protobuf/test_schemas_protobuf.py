"""Protobuf schemas as a whole: identity, references, message indexes, payloads, and what hostile input meets."""

from __future__ import annotations

import base64
import random
import time

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.model.errors import InvalidSchema
from goqueue.schemas.base import MAX_DEPTH, MAX_NODES, MAX_SCHEMA_BYTES, Incompatibility
from goqueue.schemas.framed import framed_validator
from goqueue.schemas.protobuf.protobuf_schema import ProtobufSchema, parse_protobuf

P3 = 'syntax = "proto3"; '
ORDER = P3 + "package shop; message Order { string id = 1; int64 cents = 2; map<string, string> tags = 3; }"


def parse(text: str, **references: ProtobufSchema) -> ProtobufSchema:
    return parse_protobuf(text, {f"{name}.proto": schema for name, schema in references.items()})


def test_spacing_comments_and_ways_to_write_a_type_make_no_difference() -> None:
    one = parse(P3 + "package p; message A { /* x */ A a = 1; string s = 0x2; }")
    two = parse(P3 + '// hello\npackage p;\nmessage A {\n .p.A a=1;string s=2[json_name="s"];}\n\n')
    assert one.canonical() == two.canonical()
    assert one.kind == "PROTOBUF"


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("message A { int32 x = 1; int32 y = 2; }", "message A { int32 y = 2; int32 x = 1; }"),
        ("message A { oneof o { int32 x = 5; int32 y = 2; } }", "message A { oneof o { int32 y = 2; int32 x = 5; } }"),
        ("message A { reserved 1 to 3, 9; }", "message A { reserved 9, 3, 1; reserved 2; }"),
        ('message A { reserved "x", "y"; }', 'message A { reserved "y"; reserved "x"; }'),
        ("enum E { Z = 0; A = 1; B = 2; }", "enum E { Z = 0; B = 2; A = 1; }"),
        ("enum E { Z = 0; } enum D { Y = 0; }", "enum D { Y = 0; } enum E { Z = 0; }"),
        ("message A {} service S {} service R {}", "service R {} message A {} service S {}"),
        (
            'import "google/protobuf/any.proto"; import public "google/protobuf/empty.proto"; message A {}',
            'import public "google/protobuf/empty.proto"; import "google/protobuf/any.proto"; message A {}',
        ),
    ],
)
def test_the_order_of_what_has_no_order_is_normalized_away(one: str, two: str) -> None:
    assert parse(P3 + one).canonical() != parse(P3 + two).canonical()
    assert parse(P3 + one).normalized() == parse(P3 + two).normalized()


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("message A {} message B {}", "message B {} message A {}"),
        ("message A { message B {} message C {} }", "message A { message C {} message B {} }"),
        (
            "message A { message B {} map<string, string> m = 1; }",
            "message A { map<string, string> m = 1; message B {} }",
        ),
        ("message A { int32 x = 1; }", "message A { int32 y = 1; }"),
        ("message A { int32 x = 1; }", "message A { optional int32 x = 1; }"),
        ('message A { int32 x = 1 [json_name = "z"]; }', "message A { int32 x = 1; }"),
        ("message A { int32 x = 1; int32 y = 2; }", "message A { oneof o { int32 x = 1; int32 y = 2; } }"),
    ],
)
def test_what_means_something_stays_in_the_normalized_text(one: str, two: str) -> None:
    assert parse(P3 + one).normalized() != parse(P3 + two).normalized()


def test_the_first_value_of_an_enum_stays_first_since_it_is_the_default() -> None:
    schema = parse("enum E { B = 5; A = 1; } message M { optional E e = 1; }")
    assert parse(schema.normalized()).descriptor.enum_type[0].value[0].name == "B"


def test_the_normalized_text_is_a_schema_and_normal_itself() -> None:
    schema = parse(ORDER)
    assert parse(schema.normalized()).normalized() == schema.normalized()


def test_a_schema_comes_back_from_its_serialized_form() -> None:
    schema = parse(ORDER)
    file = FileDescriptorProto.FromString(base64.b64decode(schema.serialized()))
    assert file.package == "shop"
    assert parse(schema.serialized()).canonical() == schema.canonical()
    lines = "\n".join(schema.serialized()[at : at + 76] for at in range(0, len(schema.serialized()), 76))
    assert parse(lines).canonical() == schema.canonical()


def test_a_schema_imports_its_references_by_name() -> None:
    inner = parse(P3 + "package i; message Inner { int32 x = 1; }")
    middle = parse(P3 + 'import public "inner.proto"; message Middle { i.Inner inner = 1; }', inner=inner)
    outer = parse(P3 + 'import "middle.proto"; message Outer { Middle m = 1; i.Inner i = 2; }', middle=middle)
    assert list(outer.files) == ["inner.proto", "middle.proto"]
    assert outer.message_named("i.Inner") is not None
    assert outer.message_named("i.Missing") is None


def test_a_reference_of_a_reference_need_not_be_named_again() -> None:
    inner = parse(P3 + "message Inner {}")
    middle = parse(P3 + 'import "inner.proto"; message Middle { Inner i = 1; }', inner=inner)
    assert parse(P3 + 'import "inner.proto"; message Outer { Inner i = 1; }', middle=middle).files


def test_a_name_that_is_not_imported_publicly_cannot_be_used() -> None:
    inner = parse(P3 + "message Inner {}")
    middle = parse(P3 + 'import "inner.proto"; message Middle { Inner i = 1; }', inner=inner)
    with pytest.raises(InvalidSchema, match="Inner is not defined"):
        parse(P3 + 'import "middle.proto"; message Outer { Inner i = 1; }', middle=middle)


def test_references_that_bring_different_files_of_one_name_are_refused() -> None:
    left = parse(P3 + 'import "c.proto"; message L { C c = 1; }', c=parse(P3 + "message C {}"))
    right = parse(P3 + 'import "c.proto"; message R { C c = 1; }', c=parse(P3 + "message C { int32 x = 1; }"))
    both = P3 + 'import "left.proto"; import "right.proto"; message A {}'
    with pytest.raises(InvalidSchema, match="different schemas"):
        parse(both, left=left, right=right)
    same = parse(P3 + 'import "c.proto"; message R { C c = 1; }', c=parse(P3 + "message C {}"))
    assert parse(both, left=left, right=same).files


def test_a_reference_of_another_kind_is_refused() -> None:
    class Other:
        kind = "AVRO"

    with pytest.raises(InvalidSchema, match="another kind, AVRO"):
        parse_protobuf('import "x"; message A {}', {"x": Other()})  # type: ignore[dict-item]


def test_a_schema_cannot_read_data_of_another_kind() -> None:
    class Other:
        kind = "AVRO"

    (reason,) = parse(ORDER).cannot_read(Other())  # type: ignore[arg-type]
    assert isinstance(reason, Incompatibility)
    assert reason.rule == "TYPE_MISMATCH"


def test_bounds_hold_through_references() -> None:
    half = P3 + "".join(f"enum E{n} {{ V{n} = 0; }}" for n in range(MAX_NODES // 4 + 1))
    left, right = parse(half), parse(half.replace("enum E", "enum F").replace("V", "W"))
    with pytest.raises(InvalidSchema, match="more than 100000 parts"):
        parse(P3 + 'import "left.proto"; import "right.proto"; message A {}', left=left, right=right)


def test_a_chain_of_imports_has_an_end() -> None:
    schema = parse(P3 + "message M0 {}")
    for number in range(1, MAX_DEPTH + 1):
        schema = parse(
            P3 + f'import "last.proto"; message M{number} {{}}'.replace("last", f"m{number}"), **{f"m{number}": schema}
        )
    with pytest.raises(InvalidSchema, match="levels deep"):
        parse(P3 + 'import "m.proto"; message Last {}', m=schema)


def test_messages_are_found_by_their_indexes() -> None:
    schema = parse(P3 + "package p; message A {} message B { map<string, B> m = 1; message C { message D {} } }")

    def name(*indexes: int) -> str | None:
        found = schema.message_at(indexes)
        return found.full_name if found else None

    assert name(0) == "p.A"
    assert name(1) == "p.B"
    assert name(1, 0) == "p.B.MEntry"  # the entry of a map has a place too
    assert name(1, 1, 0) == "p.B.C.D"
    assert [name(), name(2), name(-1), name(0, 0), name(1, 1, 0, 0)] == [None] * 5
    first = schema.first_message()
    assert first is not None
    assert first.full_name == "p.A"
    assert parse(P3 + "enum E { Z = 0; }").first_message() is None


@pytest.mark.parametrize(
    ("framed", "told"),
    [
        (b"\x00", "A: required but missing: a"),
        (b"\x02\x00\x08\x01", None),
        (b"\x02\x02", "B: required but missing: b"),
        (b"\x04\x02\x00", "B.C: required but missing: c"),
        (b"\x04\x02\x00\x08\x01", None),
        (b"\x02\x80\x02", "the schema has no such message"),
        (b"", "ends before it has told which message"),
        (b"\x04\x02", "ends before it has told which message"),
        (b"\x01", "by -1 places"),
        (b"\x02\x01", "by the place -1"),
        (b"\xff\xff\xff\xff\xff\xff", "more than 5 bytes"),
        (b"\xfe\x0f", "by 1023 places"),
    ],
)
def test_a_framed_payload_is_one_of_the_message_that_it_tells(framed: bytes, told: str | None) -> None:
    schema = parse(
        "message A { required int32 a = 1; } message B { required int32 b = 1; message C { required int32 c = 1; } }"
    )
    [found] = framed_validator(schema).check([framed])
    assert found is None if told is None else found is not None and told in found


def test_payloads_of_the_first_message_are_checked() -> None:
    schema = parse(ORDER)
    made = GetMessageClass(schema.message_at([0]))(id="7", cents=12, tags={"a": "b"}).SerializeToString()
    unknown_field = made + b"\xf8\x01\x05"
    bad = [made[:-1], b"\x0a\x02\xff\xfe", b"\xff", b"\x0a\xff\xff\xff\xff\x0f"]
    results = schema.validator().check([made, b"", unknown_field, *bad])
    assert results[:3] == [None, None, None]
    assert all(result is not None and result.startswith("shop.Order: ") for result in results[3:])
    assert schema.validator().check([]) == []


def test_text_that_is_not_utf_8_is_said_to_be_that() -> None:
    (result,) = parse(ORDER).validator().check([b"\x0a\x02\xff\xfe"])
    assert result is not None
    assert "UTF-8" in result
    # The strings of proto2 are not checked by protobuf, and neither are bytes.
    assert parse("message A { optional string s = 1; }").validator().check([b"\x0a\x02\xff\xfe"]) == [None]


def test_missing_required_fields_are_named_with_their_path() -> None:
    schema = parse("message A { required int32 id = 1; repeated B list = 2; } message B { required string name = 1; }")
    results = schema.validator().check([b"\x08\x01", b"", b"\x08\x01\x12\x03\x0a\x01x\x12\x00"])
    assert results == [None, "A: required but missing: id", "A: required but missing: list[1].name"]


def test_required_fields_of_an_extension_and_of_many_fields_are_found() -> None:
    many = parse("message A { " + "".join(f"required int32 f{n} = {n};" for n in range(1, 10)) + "}")
    (result,) = many.validator().check([b""])
    assert result == "A: required but missing: f1, f2, f3, f4, f5 and more"
    edition = parse('edition = "2023"; message A { int32 x = 1 [features.field_presence = LEGACY_REQUIRED]; }')
    assert edition.validator().check([b""]) == ["A: required but missing: x"]


def test_missing_fields_are_told_wherever_they_lie() -> None:
    schema = parse(
        "message A { extensions 100; map<string, B> by_name = 1; optional B one = 2; optional group G = 3 "
        "{ required int32 g = 1; } map<string, string> plain = 4; } message B { required string name = 1; } "
        "extend A { optional B more = 100; }"
    )
    values = [b"\x0a\x05\x0a\x01k\x12\x00", b"\x12\x00", b"\x1b\x1c", b"\xa2\x06\x00", b"\x22\x03\x0a\x01k\x12\x00"]
    paths = ["by_name[k].name", "one.name", "g.g", "(more).name", "one.name"]
    assert schema.validator().check(values) == [f"A: required but missing: {path}" for path in paths]


def test_a_value_that_misses_very_much_is_refused_with_little_work() -> None:
    """Each of the messages in it lacks sixty fields with long names: all their paths together are half a gigabyte."""
    names = "".join(f"required int32 {'x' * 300}{number} = {number};" for number in range(1, 61))
    validator = parse("message A { repeated B b = 1; } message B { " + names + "}").validator()
    almost = parse("message A { repeated B b = 1; } message B { required int32 x = 1; }").validator()
    started = time.process_time()
    [found] = validator.check([b"\x0a\x00" * 20_000])
    assert found is not None and found.count("b[0].xxx") == 5 and found.endswith(" and more")
    assert almost.check([b"\x0a\x02\x08\x00" * 50_000 + b"\x0a\x00"]) == [
        "A: required but missing: a field of one of the many messages in it"
    ]
    assert time.process_time() - started < 0.5


def test_a_value_that_would_take_very_much_memory_is_refused() -> None:
    """A message takes as much memory as all of its fields, and two bytes of a value make one."""
    fields = "".join(f"string f{number} = {number};" for number in range(1, 4_001))
    schema = parse(P3 + "message A { repeated B b = 1; } message B { " + fields + "}")
    for validator, head in ((schema.validator(), b""), (framed_validator(schema), b"\x00")):
        assert validator.most_on_loop < 200
        [found, fits] = validator.check([head + b"\x0a\x00" * 50_000, head + b"\x0a\x00" * 50])
        assert found is not None and "too costly for a value of this size, 100000 bytes" in found
        assert fits is None
    plain = parse(P3 + "message A { repeated B b = 1; } message B { string x = 1; }").validator()
    assert plain.check([b"\x0a\x00" * 500_000]) == [None]
    alone = parse(P3 + "message B { " + fields + "}").validator()
    assert alone.check([b"\x0a\x00" * 500_000]) == [None]
    assert parse(P3 + "message A { repeated A b = 1; " + fields.replace("f1 = 1", "f1 = 5000") + "}").validator().check(
        [b"\x0a\x00" * 50_000]
    ) != [None]


def test_payloads_of_a_message_that_indexes_name_are_checked() -> None:
    schema = parse("message A {} message B { message C { required int32 x = 1; } }")
    assert schema.validator_for(schema.message_at([1, 0])).check([b"\x08\x01", b""]) == [
        None,
        "B.C: required but missing: x",
    ]
    assert schema.validator_for(schema.message_at([9])).check([b""]) != [None]


def test_a_schema_without_messages_accepts_no_payload() -> None:
    assert (
        parse(P3 + "enum E { Z = 0; }").validator().check([b"", b""])
        == ["the schema declares no message, so no payload can be one"] * 2
    )


@given(st.lists(st.binary(max_size=60), max_size=20))
@settings(max_examples=60, deadline=None)
def test_no_bytes_make_the_validator_raise(values: list[bytes]) -> None:
    results = parse(ORDER).validator().check(values)
    assert len(results) == len(values)


def test_a_recursive_payload_deeper_than_protobuf_allows_is_refused() -> None:
    value = b""
    for _ in range(200):
        size = len(value)
        value = b"\x0a" + (bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])) + value
    (result,) = parse(P3 + "message A { A a = 1; }").validator().check([value])
    assert result is not None


VOCABULARY = (
    'syntax = "proto3" ; package import message enum oneof map < > { } [ ] ( ) , . - 1 2 0x7 1.5 "a" A B int32 string '
    "option reserved extensions extend optional repeated required to max service rpc returns stream deprecated true "
    'default group json_name "google/protobuf/descriptor.proto" google protobuf FieldOptions features edition "2023" '
    "/* */ // \n \\ é \ud800"
)
WORDS = VOCABULARY.split(" ")


@given(st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join) | st.text(max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_text_is_a_schema_or_an_invalid_one(text: str) -> None:
    try:
        schema = parse(text)
    except InvalidSchema:
        return
    assert schema.cannot_read(parse(schema.canonical())) == []


def test_a_text_that_was_damaged_is_a_schema_or_an_invalid_one() -> None:
    chance = random.Random(7)
    text = (
        ORDER
        + " enum E { option allow_alias = true; A = 0; B = 0 [deprecated = true]; }"
        + " service S { rpc R (Order) returns (Order); }"
    )
    for _ in range(1500):
        at, length = chance.randrange(len(text)), chance.randrange(1, 8)
        damaged = text[:at] + chance.choice(["", chance.choice(WORDS), text[at : at + 20]]) + text[at + length :]
        try:
            parse(damaged).canonical()
        except InvalidSchema:
            continue


def test_a_descriptor_that_was_damaged_is_a_schema_or_an_invalid_one() -> None:
    chance = random.Random(8)
    whole = base64.b64decode(parse(ORDER).serialized())
    parsed = 0
    for _ in range(1500):
        damaged = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            schema = parse(base64.b64encode(damaged).decode())
        except InvalidSchema:
            continue
        parsed += 1
        assert parse(schema.canonical()).canonical() == schema.canonical()
        assert schema.cannot_read(schema) == []
    assert parsed


NUMBERS = st.integers(1, 40)
SCALARS = st.sampled_from(["int32", "sint64", "bool", "string", "bytes", "double", "M0", "E", "map<string, M1>"])
BODIES = st.dictionaries(NUMBERS, SCALARS, max_size=8).map(
    lambda fields: "".join(f"{kind} f{number} = {number};" for number, kind in fields.items())
)


@given(st.lists(BODIES, min_size=2, max_size=4))
@settings(max_examples=80, deadline=None)
def test_a_random_schema_reads_itself_and_keeps_its_identity(bodies: list[str]) -> None:
    schema = parse(P3 + "enum E { Z = 0; }" + "".join(f"message M{n} {{ {body} }}" for n, body in enumerate(bodies)))
    assert schema.cannot_read(schema) == []
    assert parse(schema.serialized()).canonical() == schema.canonical()
    assert parse(schema.normalized()).normalized() == schema.normalized()
    assert parse(schema.normalized()).cannot_read(schema) == []


HOSTILE = {
    "deep messages": P3 + "message A {" * 80_000,
    "deep options": P3 + "option features = {" + "{" * 900_000,
    "an endless comment": P3 + "/* " + "* /" * 300_000,
    "an endless string": P3 + 'option java_package = "' + "a" * 1_000_000,
    "a long package": P3 + "package " + ".".join("a" * 400_000) + ";",
    "a long name": P3 + "message " + "a" * 1_000_000 + " {}",
    "long names in one another": P3 + "".join(f"message {'a' * 30_000} {{" for _ in range(30)),
    "a huge number": P3 + "message A { int32 x = " + "9" * 1_000_000 + "; }",
    "an option set often": P3 + 'option java_package = "a";' * 40_000,
    "too many parts": "message A { extensions " + ",".join(str(n) for n in range(1, 110_000)) + "; }",
    "too large": " " * (MAX_SCHEMA_BYTES + 1),
    "nothing": " \n ",
    "half a character": P3 + 'option java_package = "\ud800";',
    "no base64": "A" * 1_000_001,
    "base64 of something else": base64.b64encode(random.Random(1).randbytes(700_000)).decode(),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_input_is_refused_quickly(name: str) -> None:
    begin = time.process_time()
    with pytest.raises(InvalidSchema) as caught:
        parse(HOSTILE[name])
    assert time.process_time() - begin < 2.0
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("digits", [350, 900_000])
def test_a_default_that_is_too_large_for_any_number_is_infinite(digits: int) -> None:
    schema = parse(f"message A {{ optional double x = 1 [default = {'9' * digits}]; }}")
    assert schema.descriptor.message_type[0].field[0].default_value == "inf"


def test_a_descriptor_cannot_smuggle_text_into_the_schema() -> None:
    file = FileDescriptorProto(name="x", syntax="proto3")
    file.message_type.add(name="A {} message B")
    with pytest.raises(InvalidSchema, match="is not a name"):
        parse(base64.b64encode(file.SerializeToString()).decode())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda file: file.message_type[0].field.add(name="y", number=9), "no type"),
        (lambda file: file.message_type[0].field.add(name="y", number=9, type=11), "no type"),
        (lambda file: file.message_type[0].field.add(name="y", number=9, type=5, oneof_index=4), "oneof"),
        (lambda file: file.message_type[0].field.add(name="y", number=9, type=10, type_name=".A"), "groups"),
        (lambda file: file.message_type[0].nested_type.add(name="E").options.__setattr__("map_entry", True), "map"),
        (lambda file: file.public_dependency.append(3), "public or weak"),
        (lambda file: file.__setattr__("syntax", "proto9"), "unknown syntax"),
        (lambda file: file.dependency.append("nope.proto"), "add a reference"),
        (lambda file: file.message_type[0].field.add(name="y", number=9, type_name="Nope"), "not defined"),
    ],
)
def test_a_wrong_descriptor_is_refused(change: object, reason: str) -> None:
    file = FileDescriptorProto(name="x", syntax="proto3")
    file.message_type.add(name="A")
    change(file)  # type: ignore[operator]
    with pytest.raises(InvalidSchema, match=reason):
        parse(base64.b64encode(file.SerializeToString()).decode())
