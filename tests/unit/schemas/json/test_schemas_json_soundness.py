"""What is called compatible must be: what fits the writer's schema fits the reader's."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from goqueue.model.errors import InvalidSchema
from goqueue.schemas.json.json_schema import JsonSchema, parse_json_schema

NAMES = ["a", "b", "xa"]
FEW = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))

documents: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 6) | st.sampled_from([0.5, 1.5, 2.0, -0.5]) | st.text("ax", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*NAMES, "c"]), inner, max_size=3),
    max_leaves=5,
)
ALL_KINDS: list[Any] = [
    None, True, False, -2, 0, 1, 2, 3, 4, 1.5, "", "a", "xa", "axa", [], [1], ["a", 1], [1, 1], [None, "a", 2],
    {}, {"a": 1}, {"a": "x", "b": None}, {"xa": "a"}, {"a": 1, "b": 2, "c": "x"}, {"b": [], "xa": 1},
]  # fmt: skip
values = st.none() | st.booleans() | st.integers(-1, 3) | st.sampled_from(["", "a", "x", 1.5, 2.0])
types = st.sampled_from(["null", "boolean", "object", "array", "number", "integer", "string"])
small = st.integers(0, 3)

_PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "type": types | st.lists(types, min_size=1, max_size=3, unique=True),
    "enum": st.lists(values, min_size=1, max_size=4, unique_by=json.dumps),
    "const": values,
    "minimum": st.integers(-2, 4),
    "maximum": st.integers(-2, 4),
    "exclusiveMinimum": st.integers(-2, 4),
    "exclusiveMaximum": st.sampled_from([-1, 0.5, 3]),
    "multipleOf": st.sampled_from([1, 2, 0.5, 3, 4]),
    "minLength": small,
    "maxLength": small,
    "pattern": st.sampled_from(["^a", "x", "a$"]),
    "minItems": small,
    "maxItems": small,
    "uniqueItems": st.booleans(),
    "minProperties": small,
    "maxProperties": small,
    "required": st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
    "dependentRequired": st.dictionaries(
        st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), max_size=2, unique=True), max_size=1
    ),
}


def keywords_with(part: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    keywords = dict(_PLAIN)
    some = st.lists(part, min_size=1, max_size=3)
    keywords |= {
        "properties": st.dictionaries(st.sampled_from(NAMES), part, max_size=3),
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "x", "a$"]), part, max_size=2),
        "additionalProperties": part,
        "propertyNames": part,
        "items": part,
        "prefixItems": some,
        "contains": part,
        "minContains": small,
        "maxContains": small,
        "anyOf": some,
        "allOf": some,
        "not": part,
        "if": part,
        "then": part,
        "else": part,
        "dependentSchemas": st.dictionaries(st.sampled_from(NAMES), part, max_size=1),
        "unevaluatedProperties": part,
        "unevaluatedItems": part,
        # Its branches exclude one another here: that several may fit is looked at no more than elsewhere.
        "oneOf": st.just([{"type": "string", "maxLength": 2}, {"type": "integer"}, {"type": "object"}])
        | st.just([{"type": "string"}, {"type": "number", "minimum": 1}, {"type": ["object", "null"]}]),
        "$ref": st.sampled_from(["#/$defs/one", "#/$defs/two"]),
    }
    return keywords


def _with_parts(part: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keywords = keywords_with(part)
    return st.lists(st.sampled_from(sorted(keywords)), max_size=4, unique=True).flatmap(
        lambda keys: st.fixed_dictionaries({key: keywords[key] for key in keys})
    )


leaves = st.booleans() | st.lists(st.sampled_from(sorted(_PLAIN)), max_size=2, unique=True).flatmap(
    lambda keys: st.fixed_dictionaries({key: _PLAIN[key] for key in keys})
)
parts = st.recursive(leaves, _with_parts, max_leaves=6)


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    made = draw(_with_parts(parts))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": {"one": draw(parts), "two": {"properties": {"a": {"$ref": "#"}}, "type": ["object", "integer"]}},
        **made,
    }


@st.composite
def changed(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two schemas that are near one another, which are compatible more often than any two are."""
    writer = draw(schemas())
    reader = json.loads(json.dumps(writer))
    other = draw(schemas())
    for _ in range(draw(st.integers(1, 3))):
        at: Any = reader
        while isinstance(at, dict) and draw(st.booleans()):
            inner = [each for each in at.values() if isinstance(each, dict) and each]
            if not inner:
                break
            at = draw(st.sampled_from(inner))
        if at and draw(st.booleans()):
            at.pop(draw(st.sampled_from(sorted(at))), None)
        elif at is reader and (keys := sorted(other.keys() - {"$defs"})):
            key = draw(st.sampled_from(keys))
            at[key] = other[key]
    reader["$schema"] = writer["$schema"]
    return writer, reader


def parsed(raw: object) -> JsonSchema | None:
    try:
        return parse_json_schema(json.dumps(raw), {})
    except InvalidSchema:
        return None  # It refers to itself for the same value, or a change took away what is referred to.


def check(writer_raw: object, reader_raw: object, tried: list[Any]) -> None:
    writer, reader = parsed(writer_raw), parsed(reader_raw)
    if writer is None or reader is None or reader.cannot_read(writer):
        return
    texts = [json.dumps(each).encode() for each in tried]
    written = [text for text, wrong in zip(texts, writer.validator().check(texts), strict=True) if wrong is None]
    note(f"{json.dumps(writer_raw)} -> {json.dumps(reader_raw)}")
    assert [*zip(written, reader.validator().check(written), strict=True)] == [(text, None) for text in written]


@FEW
@given(changed(), st.lists(documents, min_size=8, max_size=12))
def test_what_fits_the_writer_fits_a_reader_that_is_near_and_called_compatible(
    pair: tuple[dict[str, Any], dict[str, Any]], tried: list[Any]
) -> None:
    check(*pair, tried)
    check(*reversed(pair), tried)


WRAPPED: list[tuple[Any, Any]] = [
    (lambda part: part, lambda value: value),
    (lambda part: {"properties": {"a": part}, "required": ["a"]}, lambda value: {"a": value}),
    (lambda part: {"additionalProperties": part}, lambda value: {"b": value}),
    (lambda part: {"type": "array", "items": part}, lambda value: [value]),
    (lambda part: {"anyOf": [part, {"type": "null"}]}, lambda value: value),
    (lambda part: {"not": {"not": part}}, lambda value: value),
    (lambda part: {"$defs": {"x": part}, "$ref": "#/$defs/x"}, lambda value: value),
]


@st.composite
def near(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any], list[Any]]:
    """Two schemas that differ in the values of one or two keywords somewhere, and values to try there."""
    keywords = keywords_with(leaves)
    both = draw(leaves.filter(lambda each: isinstance(each, dict)))
    writer, reader = dict(both), dict(both)
    for key in draw(st.lists(st.sampled_from(sorted(keywords.keys() - {"$ref"})), min_size=1, max_size=2, unique=True)):
        for made in (writer, reader):
            if draw(st.integers(0, 3)):
                made[key] = draw(keywords[key])
    wrap, wrap_value = draw(st.sampled_from(WRAPPED))
    draft = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    tried = [wrap_value(each) for each in [*ALL_KINDS, *draw(st.lists(documents, min_size=8, max_size=12))]]
    return {**draft, **wrap(writer)}, {**draft, **wrap(reader)}, tried


@settings(FEW, max_examples=400)
@given(near())
def test_what_fits_the_writer_fits_a_reader_that_differs_in_a_keyword(
    case: tuple[dict[str, Any], dict[str, Any], list[Any]],
) -> None:
    check(*case)


@FEW
@given(schemas())
def test_a_schema_reads_itself_however_it_is_written(raw: dict[str, Any]) -> None:
    first, again = parsed(raw), parsed(dict(reversed(raw.items())))
    if first is not None and again is not None:
        assert first.cannot_read(first) == []
        assert first.cannot_read(again) == []
        normal = parse_json_schema(first.normalized(), {})
        assert normal.cannot_read(first) == [] and first.cannot_read(normal) == []
