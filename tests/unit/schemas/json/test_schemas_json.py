"""Reading JSON schemas, what they are identified by, and checking messages with them."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.model.errors import InvalidSchema
from goqueue.schemas.avro.avro_schema import parse_avro
from goqueue.schemas.json.json_schema import JsonSchema, parse_json_schema

I = {"type": "integer"}  # noqa: E741
LATEST = "https://json-schema.org/draft/2020-12/schema"
S: dict[str, Any] = {"type": "string"}


def parse(raw: object, **references: JsonSchema) -> JsonSchema:
    return parse_json_schema(json.dumps(raw), references)


def problem(schema: JsonSchema, value: object) -> str | None:
    return schema.validator().check([json.dumps(value).encode()])[0]


def nested(depth: int) -> dict[str, Any]:
    made: dict[str, Any] = dict(S)
    for _ in range(depth):
        made = {"properties": {"a": made}}
    return made


def doubling(levels: int) -> dict[str, Any]:
    parts: dict[str, Any] = {
        f"d{level}": {"anyOf": [{"$ref": f"#/definitions/d{level + 1}"}] * 2} for level in range(levels)
    }
    return {"definitions": {**parts, f"d{levels}": S}, "$ref": "#/definitions/d0"}


WRONG: dict[str, tuple[str, str]] = {
    "no JSON": ("{", "no JSON"),
    "NaN": ('{"minimum": NaN}', "no JSON"),
    "a number that is too large": ('{"minimum": 1e999}', "out of range"),
    "half a pair": ('{"title": "\ud800"}', "half of a pair"),
    "an escaped half of a pair": ('{"title": "\\ud800"}', "no JSON"),
    "a list": ("[]", "no schema"),
    "a type that is none": ('{"properties": {"a/b": {"type": "text"}}}', "/properties/a~1b/type"),
    "a limit that is none": ('{"maxLength": -1}', "/maxLength"),
    "an unknown draft": ('{"$schema": "http://json-schema.org/draft-03/schema#"}', "/$schema"),
    "a part of another draft": (f'{{"properties": {{"a": {{"$schema": "{LATEST}"}}}}}}', "/properties/a/$schema"),
    "a regular expression that is none": ('{"pattern": "(a"}', "/pattern"),
    "regular expressions that are too long": (json.dumps({"pattern": "(a|b)*" * 80_000}), "32768 are allowed"),
    "regular expressions that are too long together": (
        json.dumps({"patternProperties": {f"{at}{'a' * 300}": True for at in range(110)}}),
        "in all; 32768 are allowed",
    ),
    "a regular expression that is too large": ('{"pattern": "((a{100}){100}){100}"}', "/pattern"),
    "a reference to nothing": ('{"properties": {"a": {"$ref": "#/definitions/x"}}}', "'#/definitions/x'"),
    "a reference to no schema": ('{"required": ["a"], "items": {"$ref": "#/required"}}', "'#/required'"),
    "a reference to the network": ('{"$ref": "http://127.0.0.1:9/x.json"}', "'http://127.0.0.1:9/x.json'"),
    "a reference to a file": ('{"$ref": "file:///etc/hostname"}', "'file:///etc/hostname'"),
    "a reference to another schema": ('{"items": {"$ref": "other.json"}}', "'other.json'"),
    "no end": ('{"$ref": "#"}', "without end"),
    "no end by a detour": ('{"anyOf": [{"allOf": [{"$ref": "#"}]}]}', "without end"),
    "too deep": (json.dumps(nested(150)), "deep"),
    "far too deep": ('{"a":' * 100_000, "deep"),
    "deep values": ('{"const": ' + "[" * 500 + "]" * 500 + "}", "deep"),
    "too large": ('{"title": "' + "x" * (1 << 20) + '"}', "bytes"),
    "alternatives that multiply": (json.dumps(doubling(60)), "multiply"),
    "too many regular expressions": (
        json.dumps({"anyOf": [{"pattern": f"(a{{50}}){{50}}{each}"} for each in range(2_000)]}),
        "regular expressions",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_with_its_place(name: str) -> None:
    text, said = WRONG[name]
    started = time.process_time()
    with pytest.raises(InvalidSchema) as caught:
        parse_json_schema(text, {})
    assert said in str(caught.value)
    assert len(str(caught.value)) < 500
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    ("schema", "draft"),
    [
        ({}, 7),
        (True, 7),
        ({"$schema": "http://json-schema.org/draft-04/schema#"}, 4),
        ({"$schema": "http://json-schema.org/draft-06/schema"}, 6),
        ({"$schema": "https://json-schema.org/draft-07/schema#"}, 7),
        ({"$schema": "https://json-schema.org/draft/2019-09/schema"}, 2019),
        ({"$schema": LATEST}, 2020),
    ],
)
def test_the_draft_is_told_by_the_schema_and_is_7_otherwise(schema: object, draft: int) -> None:
    assert parse(schema).document.draft == draft


def test_a_draft_decides_what_a_keyword_means() -> None:
    assert problem(parse({"$schema": LATEST, "prefixItems": [S]}), [1]) is not None
    assert problem(parse({"prefixItems": [S]}), [1]) is None
    old = parse({"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": True})
    assert problem(old, 1) is not None and problem(old, 2) is None


def test_the_canonical_text_is_the_same_for_what_only_looks_different() -> None:
    one = parse_json_schema(
        '{"type": "object", "minProperties": 1.0, "properties": {"b": {}, "a": {"const": 1e2}}}', {}
    )
    other = parse_json_schema('{"properties":{"a":{"const":100},"b":{}},"minProperties":1,"type":"object"}', {})
    assert one.canonical() == other.canonical()
    assert json.loads(one.canonical())["properties"]["a"] == {"const": 100}
    assert one.canonical() != parse({"type": ["object"], "minProperties": 1}).canonical()


def test_the_normalized_text_is_the_same_for_what_is_only_said_differently() -> None:
    one = parse(
        {
            "type": ["object"],
            "required": ["b", "a"],
            "properties": {"a": {"enum": [2, 1], "minLength": 0}, "required": {"type": ["string", "null"]}},
            "dependencies": {"a": ["c", "b"]},
        }
    )
    other = parse(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "required": ["a", "b"],
            "properties": {"a": {"enum": [1.0, 2]}, "required": {"type": ["null", "string"]}},
            "dependencies": {"a": ["b", "c"]},
        }
    )
    assert one.canonical() != other.canonical()
    assert one.normalized() == other.normalized()


def test_order_is_kept_where_it_means_something() -> None:
    assert parse({"items": [S, {}]}).normalized() != parse({"items": [{}, S]}).normalized()
    assert parse({"const": ["b", "a"]}).normalized() != parse({"const": ["a", "b"]}).normalized()
    assert (
        parse({"default": {"required": ["b", "a"]}}).normalized()
        != parse({"default": {"required": ["a", "b"]}}).normalized()
    )


def test_a_schema_refers_to_others_by_name_and_by_id() -> None:
    city = parse({"$id": "http://example.com/city.json", "definitions": {"name": S}, **S})
    by_name = parse_json_schema('{"items": {"$ref": "city.json"}}', {"city.json": city})
    by_id = parse_json_schema('{"items": {"$ref": "http://example.com/city.json"}}', {"any": city})
    relative = parse_json_schema(
        '{"$id": "http://example.com/a/b.json", "items": {"$ref": "c.json#/definitions/name"}}', {"c.json": city}
    )
    for each in (by_name, by_id, relative):
        assert problem(each, ["x"]) is None
        assert problem(each, [1]) == '/0: the value is not of type "string"'
        assert each.cannot_read(parse({"items": {"type": "integer"}}))[0].rule == "TYPE_CHANGED"
        assert each.cannot_read(parse({"items": S})) == []


def test_references_of_references_are_followed() -> None:
    street = parse(S)
    city = parse_json_schema('{"properties": {"street": {"$ref": "street.json"}}}', {"street.json": street})
    person = parse_json_schema('{"properties": {"city": {"$ref": "geo/city.json"}}}', {"geo/city.json": city})
    assert problem(person, {"city": {"street": 1}}) == '/city/street: the value is not of type "string"'
    assert problem(person, {"city": {"street": "x"}}) is None
    with pytest.raises(InvalidSchema, match=r"street\.json"):
        parse_json_schema('{"items": [{"$ref": "city.json"}, {"$ref": "street.json"}]}', {"city.json": city})


def test_a_name_cannot_stand_for_two_schemas() -> None:
    inner = parse_json_schema('{"items": {"$ref": "x"}}', {"x": parse(S)})
    with pytest.raises(InvalidSchema, match="two different schemas"):
        parse_json_schema('{"items": [{"$ref": "x"}, {"$ref": "y"}]}', {"x": parse({"type": "null"}), "y": inner})


def test_a_reference_keeps_its_own_draft() -> None:
    old = parse({"items": [S]})
    new = parse_json_schema(f'{{"$schema": "{LATEST}", "$ref": "old"}}', {"old": old})
    assert problem(new, [1]) is not None and problem(new, ["x", 1]) is None


def test_a_json_schema_refers_to_json_schemas_only() -> None:
    with pytest.raises(InvalidSchema, match="AVRO"):
        parse_json_schema("{}", {"x": parse_avro('"string"', {})})


def test_parts_are_referred_to_by_id_and_anchor() -> None:
    parts = {"x": {"$id": "part.json", **S}, "y": {"$anchor": "why", "type": "integer"}}
    schema = parse(
        {"$schema": LATEST, "$id": "http://example.com/root.json", "$defs": parts,
         "properties": {"a": {"$ref": "part.json"}, "b": {"$ref": "#why"}}}
    )  # fmt: skip
    assert problem(schema, {"a": 1}) is not None and problem(schema, {"b": "x"}) is not None
    assert problem(schema, {"a": "x", "b": 1}) is None


ORDER = parse({"type": "object", "required": ["id"], "additionalProperties": False,
               "properties": {"id": {"type": "integer"}, "tags": {"items": S}, "a/b": {"enum": [1, 2]}}})  # fmt: skip


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b'{"id": 1}', None),
        (b'{"id": 123456789012345678901234567890}', None),
        (b'{"id": "x", "id": 1}', None),
        (b'{"id": "x"}', '/id: the value is not of type "integer"'),
        (b'{"id": 1, "tags": ["a", 2]}', '/tags/1: the value is not of type "string"'),
        (b'{"id": 1, "a/b": 3}', "/a~1b: the value is not one of 1 or 2"),
        (b"{}", '/: "id" is a required property'),
        (b"", "no JSON"),
        (b'{"id": 1', "no JSON"),
        (b'{"id": 1} 2', "no JSON"),
        (b'{"id": 1, "tags": ["\xff"]}', "no JSON"),
        (b'{"id": NaN}', "no JSON"),
        (b'{"id": 1e999}', "no JSON"),
        (b"[" * 100_000, "too deep"),
    ],
)
def test_a_message_is_checked_and_what_is_wrong_is_said_with_its_place(value: bytes, said: str | None) -> None:
    (found,) = ORDER.validator().check([value])
    assert found is None if said is None else found is not None and said in found


def test_each_message_of_a_batch_has_its_answer() -> None:
    assert [each is None for each in ORDER.validator().check([b'{"id":1}', b"{", b'{"id":2}'])] == [True, False, True]


def test_messages_about_long_values_and_names_stay_short() -> None:
    values = [json.dumps(each).encode() for each in ({"id": "x" * 10_000}, {"id": 1, "y" * 10_000: 1}, ["z" * 10_000])]
    for found in ORDER.validator().check(values):
        assert found is not None and len(found) < 600 and "xxx" not in found and "zzz" not in found


def test_a_message_that_would_take_long_to_explain_is_refused_without() -> None:
    parts = {"properties": {"a": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}, "type": "object"}
    value: Any = 1
    for _ in range(60):
        value = {"a": value}
    started = time.process_time()
    assert problem(parse(parts), value) == (
        "the value does not fit the schema; with this schema it would take too long to find where"
    )
    many = parse({"anyOf": [{"items": S}, {"items": {"type": "null"}}]})
    found = problem(many, list(range(100_000)))
    assert found is not None and "does not fit" in found
    assert problem(parse({"items": S}), list(range(100_000))) == '/0: the value is not of type "string"'
    assert time.process_time() - started < 2


def arrays_of(items: dict[str, Any]) -> dict[str, Any]:
    return {"$schema": LATEST, "type": "array", "items": items}


NAMES = {f"p{number}": ["x"] for number in range(2_000)}
COSTLY: dict[str, tuple[dict[str, Any], Any]] = {
    "alternatives": (arrays_of({"anyOf": [{"const": f"x{number}"} for number in range(900)]}), "x899"),
    "alternatives within one another": (
        arrays_of({"anyOf": [arrays_of({"anyOf": [{"minimum": at} for at in range(30)]}) for _ in range(30)]}), [0],
    ),
    "a list of objects": (arrays_of({"enum": [{"a": number} for number in range(2_000)]}), {"a": 1_999}),
    "divisors": (arrays_of({"allOf": [{"multipleOf": 1.5} for _ in range(500)]}), 3),
    "names that need others": (arrays_of({"dependentRequired": NAMES}), {}),
    "patterns of long texts": (arrays_of({"allOf": [{"pattern": f"^(a|b{at})*$"} for at in range(200)]}), "a" * 50_000),
    "patterns of names": (
        arrays_of({"patternProperties": {f"a.*{at}$": True for at in range(400)}}), {f"a{at}": 1 for at in range(99)},
    ),
    "many ways back to itself": ({"items": {"anyOf": [{"$ref": "#"}] * 100 + [I]}, "type": "array"}, [[1], [1]]),
}  # fmt: skip


@pytest.mark.parametrize("name", COSTLY)
def test_a_value_takes_little_time_or_is_refused_for_its_size(name: str) -> None:
    """While one is checked nobody else can run. It is also not refused long before that."""
    raw, item = COSTLY[name]
    schema = parse(raw)
    each = json.dumps(item, separators=(",", ":")).encode()
    most_s, outcomes = 0.0, []
    size = 1 << 20
    while size > len(each):
        value = b"[" + b",".join([each] * (size // len(each))) + b"]"
        started = time.thread_time()
        [found] = schema.validator().check([value])
        most_s = max(most_s, time.thread_time() - started)
        outcomes.append(found)
        if len(value) <= schema.validator().most_on_loop:
            assert time.thread_time() - started < 0.02
        size //= 2
    assert outcomes[0] is not None and "too costly for a value of this size" in outcomes[0]
    assert "this size" not in str(outcomes[-1])
    assert most_s < 0.3


def test_schemas_that_people_write_are_cheap_enough_for_large_values() -> None:
    line_of = {
        "type": "object", "required": ["sku"],
        "properties": {"sku": {"type": "string", "pattern": "^[A-Z0-9-]{3,20}$"}, "cents": {"type": "integer"},
                       "of": {"type": "array", "items": {"$ref": "#/definitions/line"}}},
    }  # fmt: skip
    order = {
        "type": "object", "required": ["id", "state"], "additionalProperties": False,
        "properties": {
            "id": {"type": "integer", "minimum": 1}, "state": {"oneOf": [{"const": each} for each in "abcdefgh"]},
            "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
        },
    }  # fmt: skip
    line = {"sku": "ABC-123", "cents": 12345, "of": [{"sku": "DEF-456"}]}
    validator = parse({"type": "array", "items": order, "definitions": {"line": line_of}}).validator()
    value = json.dumps([{"id": 1, "state": "h", "lines": [line] * 5}] * 3_000).encode()
    assert len(value) > 1_000_000
    assert validator.check([value, value.replace(b"ABC", b"abc")]) == [
        None, "the value does not fit the schema; with this schema it would take too long to find where",
    ]  # fmt: skip
    assert validator.most_on_loop > 1_000


def test_a_schema_that_costs_too_much_for_any_value_is_refused() -> None:
    with pytest.raises(InvalidSchema, match="too costly: too many of its keywords"):
        parse({"$schema": LATEST, "$defs": {"a": {"dependentRequired": NAMES}}, "allOf": [{"$ref": "#/$defs/a"}] * 40})
    with pytest.raises(InvalidSchema, match="multiply to more than 1000"):
        parse({"anyOf": [{"const": number} for number in range(1_001)]})


def test_a_hostile_regular_expression_is_given_up() -> None:
    started = time.process_time()
    assert problem(parse({"pattern": "^(?=a)(a+)+\\1$"}), "a" * 5_000 + "!") is not None
    assert problem(parse({"pattern": "(x+x+)+y"}), "x" * 50_000) is not None
    assert time.process_time() - started < 1


def test_a_schema_of_a_mebibyte_is_read_in_bounded_time() -> None:
    parts = {f"property{place}": {"type": "string", "maxLength": place} for place in range(17_000)}
    started = time.process_time()
    schema = parse({"type": "object", "properties": parts})
    assert time.process_time() - started < 3
    assert problem(schema, {"property9": "x" * 10}) is not None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
keywords = st.sampled_from(
    ["$ref", "$id", "$schema", "$anchor", "$dynamicRef", "$recursiveRef", "type", "enum", "const", "items", "required",
     "properties", "patternProperties", "additionalProperties", "dependencies", "anyOf", "not", "if", "then", "pattern",
     "minimum", "multipleOf", "maxLength", "contains", "definitions", "$defs", "unevaluatedProperties", "prefixItems"]
)  # fmt: skip
words = st.sampled_from(
    ["#", "#/definitions/a", "a", "string", "^a", "http://x/y", LATEST, "#a", "%", "//[", "urn:a:b"]
)
almost_schemas = st.recursive(
    json_values | words | st.sampled_from([S, True, {"$ref": "#"}]),
    lambda inner: st.dictionaries(
        keywords, inner | st.lists(inner, max_size=3) | st.dictionaries(words, inner), max_size=4
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(almost_schemas, json_values)
def test_anything_is_a_schema_or_is_refused_as_one(raw: object, value: object) -> None:
    try:
        schema = parse_json_schema(json.dumps(raw), {})
    except InvalidSchema:
        return
    assert schema.cannot_read(schema) == []
    assert schema.cannot_read(parse_json_schema(schema.normalized(), {})) == []
    assert parse_json_schema(schema.canonical(), {}).canonical() == schema.canonical()
    schema.cannot_read(parse(S))
    parse(S).cannot_read(schema)
    problem(schema, value)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=50), st.binary(max_size=50))
def test_any_text_and_any_bytes_are_answered(text: str, value: bytes) -> None:
    ORDER.validator().check([value])
    try:
        parse_json_schema(text, {})
    except InvalidSchema:
        return
