"""The rules by which JSON schemas can read one another's data, one by one."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from goqueue.schemas.json.json_compatibility import MOST_WORK_IN_ALL, JsonReading
from goqueue.schemas.json.json_nodes import Node
from goqueue.schemas.json.json_schema import JsonSchema, parse_json_schema

S, I, N, NULL = {"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "null"}  # noqa: E741
LATEST = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


def schema(raw: object) -> JsonSchema:
    return parse_json_schema(json.dumps(raw), {})


def rules(writer: object, reader: object) -> list[str]:
    return [each.rule for each in schema(reader).cannot_read(schema(writer))]


def opened(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **more}


def closed(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return opened(properties, additionalProperties=False, **more)


def strings(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Partly open: any further property is a string."""
    return opened(properties, additionalProperties=S, **more)


def array(**more: Any) -> dict[str, Any]:
    return {"type": "array", **more}


COMPATIBLE: dict[str, tuple[Any, Any]] = {
    "words changed": ({**S, "title": "a", "description": "b"}, {**S, "title": "c", "default": "x"}),
    "TYPE_EXTENDED": (I, N),
    "anything is read": (S, {}),
    "anything is read by true": (S, True),
    "nothing was written": (False, S),
    "SUM_TYPE_EXTENDED by a list of types": (S, {"type": ["string", "null"]}),
    "a list of one type": ({"type": ["string"]}, S),
    "FORMAT is not looked at": (S, {**S, "format": "email"}),
    "MAX_LENGTH_INCREASED": ({**S, "maxLength": 3}, {**S, "maxLength": 4}),
    "MAX_LENGTH_REMOVED": ({**S, "maxLength": 3}, S),
    "MIN_LENGTH_DECREASED": ({**S, "minLength": 3}, {**S, "minLength": 2}),
    "MIN_LENGTH of none": (S, {**S, "minLength": 0}),
    "PATTERN_REMOVED": ({**S, "pattern": "^a"}, S),
    "MAXIMUM_INCREASED": ({**N, "maximum": 3}, {**N, "maximum": 4}),
    "MINIMUM_DECREASED": ({**N, "minimum": 3}, {**N, "minimum": 2}),
    "a limit for strings is none for numbers": (N, {**N, "maxLength": 3}),
    "EXCLUSIVE_MAXIMUM_INCREASED": ({**N, "exclusiveMaximum": 3}, {**N, "exclusiveMaximum": 4}),
    "an excluded limit of integers is the next integer": ({**I, "exclusiveMinimum": 0}, {**I, "minimum": 1}),
    "an excluded limit is within the same limit": ({**N, "exclusiveMinimum": 0}, {**N, "minimum": 0}),
    "MULTIPLE_OF_REDUCED": ({**N, "multipleOf": 10}, {**N, "multipleOf": 5}),
    "MULTIPLE_OF a tenth holds a hundredth": ({**N, "multipleOf": 0.1}, {**N, "multipleOf": 0.01}),
    "ENUM_ARRAY_EXTENDED": ({"enum": ["a", "b"]}, {"enum": ["c", "b", "a"]}),
    "an enum of strings is a string": ({"enum": ["a", "b"]}, {**S, "maxLength": 1}),
    "a const in an enum": ({"const": 1}, {"enum": [2, 1.0]}),
    "REQUIRED_ATTRIBUTE_REMOVED": (opened({"a": S}, required=["a"]), opened({"a": S})),
    "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED": (
        opened({"a": S}),
        opened({"a": {**S, "default": "x"}}, required=["a"]),
    ),
    "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL": (opened({"a": S}), opened({"a": S, "b": {}})),
    "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL": (opened({"a": S, "b": I}), opened({"a": S})),
    "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": (closed({"a": S}), closed({"a": S, "b": I})),
    "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL": (
        closed({"a": S}),
        closed({"a": S, "b": {**I, "default": 1}}, required=["b"]),
    ),
    "PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL": (closed({"a": S, "b": False}), closed({"a": S})),
    "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (strings({"a": S, "b": S}), strings({"a": S})),
    "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (strings({"a": S}), strings({"a": S, "b": S})),
    "removed and covered by a pattern": (
        closed({"a": S, "x1": I}),
        closed({"a": S}, patternProperties={"^x": I}),
    ),
    "ADDITIONAL_PROPERTIES_ADDED": (closed({"a": S}), opened({"a": S})),
    "ADDITIONAL_PROPERTIES_EXTENDED": (strings({"a": S}), opened({"a": S})),
    "a wider schema of additional properties": (opened({}, additionalProperties=I), opened({}, additionalProperties=N)),
    "MAX_PROPERTIES_INCREASED": (opened({}, maxProperties=1), opened({}, maxProperties=2)),
    "DEPENDENCY_ARRAY_NARROWED": (opened({}, dependencies={"a": ["b", "c"]}), opened({}, dependencies={"a": ["b"]})),
    "DEPENDENCY_SCHEMA_REMOVED": (opened({}, dependencies={"a": closed({})}), opened({})),
    "a dependency on what is required anyway": (opened({}, required=["b"]), opened({}, dependencies={"a": ["b"]})),
    "MAX_ITEMS_INCREASED": (array(maxItems=1), array(maxItems=2)),
    "UNIQUE_ITEMS_REMOVED": (array(uniqueItems=True), array()),
    "wider items": (array(items=I), array(items=N)),
    "ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL": (array(items=[S]), array(items=[S, {}])),
    "ITEM_ADDED_TO_CLOSED_CONTENT_MODEL": (
        array(items=[S], additionalItems=False),
        array(items=[S, I], additionalItems=False),
    ),
    "ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL": (array(items=[S, I]), array(items=[S])),
    "ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        array(items=[S], additionalItems=I),
        array(items=[S, N], additionalItems=I),
    ),
    "prefixItems are as items were": (array(items=[S, I]), {**LATEST, **array(prefixItems=[S, N])}),
    "SUM_TYPE_EXTENDED": ({"oneOf": [S, I]}, {"oneOf": [I, S, NULL]}),
    "SUM_TYPE_EXTENDED from no alternatives": (S, {"oneOf": [I, S]}),
    "COMBINED_TYPE_EXTENDED from oneOf to anyOf": ({"oneOf": [S, I]}, {"anyOf": [S, N]}),
    "COMBINED_TYPE_EXTENDED from allOf to anyOf": ({"allOf": [S, {"maxLength": 3}]}, {"anyOf": [S, I]}),
    "a single alternative": ({"anyOf": [S]}, S),
    "PRODUCT_TYPE_NARROWED": ({"allOf": [S, {"maxLength": 3}]}, {"allOf": [S]}),
    "allOf is as its parts together": (
        {"allOf": [closed({"a": S}), {"required": ["a"]}]},
        closed({"a": S}, required=["a"]),
    ),
    "a list of types is as alternatives": ({"type": ["string", "null"]}, {"anyOf": [S, NULL]}),
    "NOT_TYPE_NARROWED": ({"not": N}, {"not": I}),
    "what is forbidden has another type": (S, {**S, "not": I}),
    "the same condition": (
        {"if": S, "then": {"maxLength": 3}, "else": N},
        {"if": S, "then": {"maxLength": 4}, "else": N},
    ),
    "one reader's definition is another's part": (
        {"definitions": {"x": S}, **opened({"a": {"$ref": "#/definitions/x"}})},
        opened({"a": S}),
    ),
    "unevaluatedProperties know what allOf knows": (
        {**LATEST, **closed({"a": S, "b": I})},
        {**LATEST, "allOf": [{"properties": {"b": N}}], "properties": {"a": S}, "unevaluatedProperties": False},
    ),
    "propertyNames of a closed schema": (closed({"ab": S}), opened({"ab": S}, propertyNames={"maxLength": 2})),
    "contains a narrower": (array(contains=I), array(contains=N)),
    "another draft": (
        {"$schema": "http://json-schema.org/draft-04/schema#", **I, "minimum": 0, "exclusiveMinimum": True},
        {**LATEST, **I, "exclusiveMinimum": 0},
    ),
}

INCOMPATIBLE: dict[str, tuple[Any, Any, str, str]] = {
    "another type": (S, I, "TYPE_CHANGED", "/type"),
    "a type where there was none": ({}, S, "TYPE_CHANGED", "/type"),
    "nothing allowed any more": (S, False, "TYPE_CHANGED", "/"),
    "number to integer": (N, I, "TYPE_NARROWED", "/type"),
    "a type less": (
        {"type": ["string", "integer", "null"]},
        {"type": ["string", "null"]},
        "SUM_TYPE_NARROWED",
        "/type",
    ),
    "no null any more": ({"type": ["string", "null"]}, S, "TYPE_CHANGED", "/type"),
    "maxLength added": (S, {**S, "maxLength": 3}, "MAX_LENGTH_ADDED", "/maxLength"),
    "maxLength less": ({**S, "maxLength": 4}, {**S, "maxLength": 3}, "MAX_LENGTH_DECREASED", "/maxLength"),
    "minLength added": (S, {**S, "minLength": 3}, "MIN_LENGTH_ADDED", "/minLength"),
    "minLength more": ({**S, "minLength": 2}, {**S, "minLength": 3}, "MIN_LENGTH_INCREASED", "/minLength"),
    "pattern added": (S, {**S, "pattern": "a"}, "PATTERN_ADDED", "/pattern"),
    "pattern changed": ({**S, "pattern": "b"}, {**S, "pattern": "a"}, "PATTERN_CHANGED", "/pattern"),
    "maximum added": (N, {**N, "maximum": 3}, "MAXIMUM_ADDED", "/maximum"),
    "maximum less": ({**N, "maximum": 4}, {**N, "maximum": 3}, "MAXIMUM_DECREASED", "/maximum"),
    "minimum added": (N, {**N, "minimum": 3}, "MINIMUM_ADDED", "/minimum"),
    "minimum more": ({**N, "minimum": 2}, {**N, "minimum": 3}, "MINIMUM_INCREASED", "/minimum"),
    "exclusiveMaximum added": (N, {**N, "exclusiveMaximum": 3}, "EXCLUSIVE_MAXIMUM_ADDED", "/exclusiveMaximum"),
    "exclusiveMinimum more": (
        {**N, "exclusiveMinimum": 2},
        {**N, "exclusiveMinimum": 3},
        "EXCLUSIVE_MINIMUM_INCREASED",
        "/exclusiveMinimum",
    ),
    "multipleOf added": (N, {**N, "multipleOf": 3}, "MULTIPLE_OF_ADDED", "/multipleOf"),
    "multipleOf expanded": ({**N, "multipleOf": 3}, {**N, "multipleOf": 6}, "MULTIPLE_OF_EXPANDED", "/multipleOf"),
    "multipleOf changed": ({**N, "multipleOf": 3}, {**N, "multipleOf": 4}, "MULTIPLE_OF_CHANGED", "/multipleOf"),
    "a value less": ({"enum": ["a", "b"]}, {"enum": ["a"]}, "ENUM_ARRAY_NARROWED", "/enum"),
    "other values": ({"enum": ["a", "b"]}, {"enum": ["a", "c"]}, "ENUM_ARRAY_CHANGED", "/enum"),
    "true is not 1": ({"enum": [True]}, {"enum": [1]}, "ENUM_ARRAY_CHANGED", "/enum"),
    "an enum where there was none": (S, {"enum": ["a"]}, "TYPE_CHANGED", "/enum"),
    "another const": ({"const": 1}, {"const": 2}, "CONST_CHANGED", "/const"),
    "a const where there was none": (I, {"const": 2}, "CONST_ADDED", "/const"),
    "content encoded": (S, {**S, "contentEncoding": "base64"}, "CONTENT_CHANGED", "/contentEncoding"),
    "required": (opened({"a": S}), opened({"a": S}, required=["a"]), "REQUIRED_ATTRIBUTE_ADDED", "/required/a"),
    "added to an open one": (opened({}), opened({"b": I}), "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", "/properties/b"),
    "required and added empty to an open one": (
        opened({}),
        opened({"b": {}}, required=["b"]),
        "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
        "/properties/b",
    ),
    "required and added to a closed one": (
        closed({}),
        closed({"b": I}, required=["b"]),
        "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
        "/properties/b",
    ),
    "removed from a closed one": (
        closed({"a/b": S}),
        closed({}),
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "/properties/a~1b",
    ),
    "removed and not covered": (
        strings({"b": I}),
        strings({}),
        "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "/properties/b",
    ),
    "added and not covered": (
        strings({}),
        strings({"b": I}),
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "/properties/b",
    ),
    "a pattern does not cover": (
        opened({}, patternProperties={"^b": S}),
        opened({"b1": I}),
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "/properties/b1",
    ),
    "closed": (opened({}), closed({}), "ADDITIONAL_PROPERTIES_REMOVED", "/additionalProperties"),
    "partly closed": (opened({}), strings({}), "ADDITIONAL_PROPERTIES_NARROWED", "/additionalProperties"),
    "other additional properties": (
        strings({}),
        opened({}, additionalProperties=I),
        "TYPE_CHANGED",
        "/additionalProperties/type",
    ),
    "a property's type": (opened({"a": S}), opened({"a": I}), "TYPE_CHANGED", "/properties/a/type"),
    "a pattern added": (
        opened({}),
        opened({}, patternProperties={"^a": S}),
        "PATTERN_PROPERTY_ADDED",
        "/patternProperties/^a",
    ),
    "a pattern's schema": (
        opened({}, patternProperties={"^a": I}),
        opened({}, patternProperties={"^a": S}),
        "PATTERN_PROPERTY_CHANGED",
        "/patternProperties/^a",
    ),
    "maxProperties added": (opened({}), opened({}, maxProperties=1), "MAX_PROPERTIES_ADDED", "/maxProperties"),
    "minProperties more": (
        opened({}, minProperties=1),
        opened({}, minProperties=2),
        "MIN_PROPERTIES_INCREASED",
        "/minProperties",
    ),
    "dependency added": (
        opened({}),
        opened({}, dependencies={"a": ["b"]}),
        "DEPENDENCY_ARRAY_ADDED",
        "/dependencies/a",
    ),
    "dependency extended": (
        opened({}, dependencies={"a": ["b"]}),
        opened({}, dependencies={"a": ["b", "c"]}),
        "DEPENDENCY_ARRAY_EXTENDED",
        "/dependencies/a",
    ),
    "dependency changed": (
        opened({}, dependencies={"a": ["b"]}),
        opened({}, dependencies={"a": ["c"]}),
        "DEPENDENCY_ARRAY_CHANGED",
        "/dependencies/a",
    ),
    "schema dependency added": (
        opened({}),
        opened({}, dependencies={"a": {"required": ["b"]}}),
        "DEPENDENCY_SCHEMA_ADDED",
        "/dependencies/a",
    ),
    "names of properties": (
        opened({}),
        opened({}, propertyNames={"maxLength": 2}),
        "MAX_LENGTH_ADDED",
        "/propertyNames/maxLength",
    ),
    "unevaluated properties": (
        {**LATEST, **opened({"a": S})},
        {**LATEST, **opened({"a": S}, unevaluatedProperties=False)},
        "UNEVALUATED_PROPERTIES_REMOVED",
        "/unevaluatedProperties",
    ),
    "items": (array(), array(items=S), "SCHEMA_ADDED", "/items"),
    "items of another type": (array(items=I), array(items=S), "TYPE_CHANGED", "/items/type"),
    "item added to an open one": (
        array(items=[S]),
        array(items=[S, I]),
        "ITEM_ADDED_TO_OPEN_CONTENT_MODEL",
        "/items/1",
    ),
    "item added and not covered": (
        array(items=[S], additionalItems=S),
        array(items=[S, I]),
        "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "/items/1",
    ),
    "item removed from a closed one": (
        array(items=[S, I], additionalItems=False),
        array(items=[S], additionalItems=False),
        "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "/additionalItems",
    ),
    "item removed and not covered": (
        array(items=[S, I], additionalItems=S),
        array(items=[S], additionalItems=S),
        "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "/additionalItems",
    ),
    "no additional items": (
        array(items=[S]),
        array(items=[S], additionalItems=False),
        "ADDITIONAL_ITEMS_REMOVED",
        "/additionalItems",
    ),
    "narrower additional items": (
        array(items=[S]),
        array(items=[S], additionalItems=S),
        "ADDITIONAL_ITEMS_NARROWED",
        "/additionalItems",
    ),
    "maxItems added": (array(), array(maxItems=1), "MAX_ITEMS_ADDED", "/maxItems"),
    "minItems more": (array(minItems=1), array(minItems=2), "MIN_ITEMS_INCREASED", "/minItems"),
    "uniqueItems": (array(), array(uniqueItems=True), "UNIQUE_ITEMS_ADDED", "/uniqueItems"),
    "contains": (array(), array(contains=S), "SCHEMA_ADDED", "/contains"),
    "minContains": (
        {**LATEST, **array(contains=S)},
        {**LATEST, **array(contains=S, minContains=2)},
        "MIN_CONTAINS_INCREASED",
        "/contains",
    ),
    "maxContains": (
        {**LATEST, **array(contains=S)},
        {**LATEST, **array(contains=S, maxContains=2)},
        "MAX_CONTAINS_ADDED",
        "/maxContains",
    ),
    "an alternative less": ({"oneOf": [S, I, NULL]}, {"oneOf": [S, I]}, "SUM_TYPE_NARROWED", "/oneOf"),
    "an alternative changed": ({"oneOf": [S, I]}, {"oneOf": [S, NULL]}, "COMBINED_TYPE_SUBSCHEMAS_CHANGED", "/oneOf"),
    "anyOf to oneOf": ({"anyOf": [S, I]}, {"oneOf": [S, I]}, "COMBINED_TYPE_CHANGED", "/oneOf"),
    "two alternatives fit": (I, {"oneOf": [N, I]}, "COMBINED_TYPE_SUBSCHEMAS_CHANGED", "/oneOf"),
    "no alternative fits": (NULL, {"anyOf": [S, I]}, "TYPE_CHANGED", "/anyOf"),
    "alternatives to one": ({"anyOf": [S, I]}, S, "TYPE_CHANGED", "/type"),
    "allOf extended": ({"allOf": [S]}, {"allOf": [S, {"maxLength": 3}]}, "PRODUCT_TYPE_EXTENDED", "/allOf"),
    "allOf changed": ({"allOf": [S]}, {"allOf": [I]}, "COMBINED_TYPE_SUBSCHEMAS_CHANGED", "/allOf"),
    "forbids more": ({"not": I}, {"not": N}, "NOT_TYPE_EXTENDED", "/not"),
    "forbids": ({}, {"not": N}, "NOT_TYPE_EXTENDED", "/not"),
    "condition": (S, {**S, "if": {"maxLength": 3}, "then": {"minLength": 1}}, "CONDITION_CHANGED", "/if"),
}


@pytest.mark.parametrize("name", COMPATIBLE)
def test_a_compatible_change(name: str) -> None:
    writer, reader = COMPATIBLE[name]
    assert rules(writer, reader) == []


@pytest.mark.parametrize("name", INCOMPATIBLE)
def test_an_incompatible_change(name: str) -> None:
    writer, reader, rule, path = INCOMPATIBLE[name]
    found = schema(reader).cannot_read(schema(writer))
    assert (found[0].rule, found[0].path) == (rule, path)
    assert len(found[0].message) > 20


def test_every_rule_is_shown_in_both_directions() -> None:
    assert len(COMPATIBLE) + len(INCOMPATIBLE) >= 60


@pytest.mark.parametrize(
    ("writer", "reader", "fits"),
    [
        ([I], [I, N], False),
        ([I, S], [I, N, S], False),
        ([opened({"a": I})], [opened({"a": I}), opened({"b": S})], True),
        ([closed({"a": I})], [closed({"a": I}), opened({"a": N})], False),
        ([I, S], [I, S, NULL], True),
        # An integer fits both of the writer's schemas, so that none was ever written.
        ([I, N, {**S, "maxLength": 1}], [I, N, S], True),
        ([I, N], [I, N, S], True),
    ],
)
def test_what_fits_one_of_several_must_not_fit_two_of_them(writer: list[Any], reader: list[Any], fits: bool) -> None:
    found = rules({"oneOf": writer}, {"oneOf": reader})
    assert (not found) == fits
    assert fits or "COMBINED_TYPE_SUBSCHEMAS_CHANGED" in found


def test_a_long_list_of_alternatives_can_be_compared() -> None:
    """Each of the one is compared with each of the other, as far as it has to be."""
    alternatives = [opened({"kind": {"const": f"k{number}"}}, required=["kind"]) for number in range(60)]
    assert rules({"oneOf": alternatives}, {"oneOf": [*alternatives, I]}) == []


def test_reasons_inside_parts_are_told_behind_the_rule_that_names_them() -> None:
    assert rules({"allOf": [S]}, {"allOf": [S, {"maxLength": 3}]}) == ["PRODUCT_TYPE_EXTENDED", "MAX_LENGTH_ADDED"]


def tree(value: dict[str, Any], **more: Any) -> dict[str, Any]:
    node = opened({"value": value, "children": array(items={"$ref": "#/definitions/node"})}, **more)
    return {"definitions": {"node": node}, "$ref": "#/definitions/node"}


def test_recursive_schemas_are_compared_to_the_end() -> None:
    assert rules(tree(I), tree(N)) == []
    assert rules(tree(N), tree(I))[0] == "TYPE_NARROWED"
    assert rules(tree(N, required=["value"]), tree(N)) == []


def test_what_rested_on_a_pair_that_does_not_fit_is_not_kept() -> None:
    """The first alternative fails only after its inner part was found to fit on the strength of it."""
    writer = {"definitions": {"n": closed({"next": {"$ref": "#/definitions/n"}, "v": N})}, "$ref": "#/definitions/n"}
    narrow = closed({"next": {"$ref": "#/definitions/narrow"}, "v": I})
    reader = {
        "definitions": {"narrow": narrow, "wide": closed({"next": {"$ref": "#/definitions/narrow"}, "v": N})},
        "anyOf": [{"$ref": "#/definitions/narrow"}, {"$ref": "#/definitions/wide"}],
    }
    assert rules(writer, reader) != []


def test_alternatives_within_alternatives_end_in_bounded_time() -> None:
    def nested(depth: int, leaf: dict[str, Any]) -> dict[str, Any]:
        made = leaf
        for level in range(depth):
            made = {"anyOf": [opened({f"p{level}{side}": made}, required=[f"p{level}{side}"]) for side in range(4)]}
        return made

    started = time.process_time()
    found = schema(nested(4, I)).cannot_read(schema(nested(4, N)))
    assert found and time.process_time() - started < 5


def test_a_comparison_ends_after_a_number_of_steps_however_large_the_schemas_are() -> None:
    def tagged(more: int) -> dict[str, Any]:
        fields = {f"p{at}": {"type": "string", "minLength": at + more} for at in range(20)}
        return {"oneOf": [{"type": "object", "properties": {"k": {"const": f"v{at}"}, **fields}} for at in range(490)]}

    steps = 0

    class Counted(JsonReading):
        def spend(self, units: int) -> None:
            nonlocal steps
            steps += units
            super().spend(units)

    [found] = Counted().cannot_read(schema(tagged(1)).document.root, schema(tagged(0)).document.root)
    assert found.rule == "TOO_COMPLEX"
    assert steps <= MOST_WORK_IN_ALL + 1_000


def test_large_schemas_that_do_not_multiply_are_compared() -> None:
    def flat(longest: int) -> dict[str, Any]:
        return {"properties": {f"f{at}": {"type": "string", "maxLength": longest} for at in range(15_000)}}

    assert rules(flat(5), flat(6)) == []
    assert set(rules(flat(6), flat(5))) == {"MAX_LENGTH_DECREASED"}


def test_too_complex_is_a_reason() -> None:
    choices = [{"anyOf": [{"properties": {f"p{i}": {"maxLength": j}}} for j in range(1, 5)]} for i in range(12)]
    other = [{"anyOf": [{"properties": {f"p{i}": {"maxLength": j}}} for j in range(4)]} for i in range(12)]
    assert rules({"allOf": choices}, {"not": {"not": {"allOf": other}}, "anyOf": [{"allOf": other}, S]}) == [
        "TOO_COMPLEX"
    ]


def test_at_most_a_hundred_reasons() -> None:
    many = {f"p{place}": S for place in range(500)}
    assert len(rules(opened(many), opened(dict.fromkeys(many, I)))) == 100


def test_large_schemas_are_compared_quickly() -> None:
    many = {f"p{place}": {**S, "maxLength": place} for place in range(10_000)}
    old, new = schema(closed(many)), schema(closed({**many, "more": I}))
    started = time.process_time()
    assert new.cannot_read(old) == []
    assert [each.rule for each in old.cannot_read(new)] == ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"]
    assert time.process_time() - started < 3


def test_versions_that_say_the_same_are_told_by_the_keywords_that_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new version is compared with hundreds of earlier ones, and most parts have one of forty keywords."""
    fields = {f"p{place}": S for place in range(100)}
    old, new = (schema(opened(fields, description=text)) for text in ("one", "another"))
    assert new.cannot_read(old) == []
    asked = 0
    get = Node.get

    def counted(self: Node, keyword: str) -> object:
        nonlocal asked
        asked += 1
        return get(self, keyword)

    monkeypatch.setattr(Node, "get", counted)
    assert new.cannot_read(old) == []
    assert 0 < asked <= 5 * len(fields)
