"""How the types of an OpenAPI document are written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reference_pages.markdown import anchor, code, link, sentences, table

Schema = dict[str, Any]

_REFERENCE = "#/components/schemas/"
_BOUNDS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {}",
    "maxItems": "at most {}",
}
_MOST_CHOICES = 12
"""More than these would fill a page; such a value's description says which there are."""
# The document has large numbers as floats.
_LARGEST = float(2**63 - 1)


def named(schema: Schema) -> str | None:
    """The name that a schema is kept under, if it refers to one."""
    reference: str = schema.get("$ref", "")
    return reference.removeprefix(_REFERENCE) or None


def type_of(schema: Schema) -> str:
    """What a value is, with links to the bodies that have a heading of their own."""
    if name := named(schema):
        return link(name, anchor(name))
    if "const" in schema:
        return code(str(schema["const"]))
    choices = [choice for choice in schema.get("enum", []) if choice is not None]
    if 0 < len(choices) <= _MOST_CHOICES:
        return " or ".join(code(str(choice)) for choice in choices)
    if parts := schema.get("oneOf") or schema.get("anyOf") or schema.get("allOf"):
        return " or ".join(type_of(part) for part in parts if part.get("type") != "null")
    return _plain_type(schema)


def _plain_type(schema: Schema) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(sorted(word for word in kind if word != "null"))
    if kind == "array":
        return f"list of {type_of(schema.get('items', {}))}"
    if kind == "object" and "additionalProperties" in schema:
        values = schema["additionalProperties"]
        return f"object, each value {type_of(values)}" if values else "object"
    if schema.get("format") == "binary":
        return "bytes"
    return str(kind or "anything")


def meaning(schema: Schema, description: str = "", *, is_asked: bool = True) -> str:
    """What a value means, its bounds and its default; and, of what is asked for, what it may look like."""
    parts = [sentences(description or schema.get("description", ""))]
    bounds = [words.format(_number(schema[key])) for key, words in _BOUNDS.items() if _tells(schema, key)]
    if bounds:
        parts.append(", ".join(bounds).capitalize() + ".")
    if is_asked and schema.get("examples"):
        parts.append(f"Such as {code(str(schema['examples'][0]))}.")
    default = schema.get("default")
    if default not in (None, [], {}, ""):
        written = code(str(default).lower() if isinstance(default, bool) else str(default))
        parts.append(f"{written} {'unless given' if is_asked else 'if absent'}.")
    return " ".join(part for part in parts if part)


def fields(schema: Schema, *, is_asked: bool) -> str:
    """The table of a body's fields: those that must be there first."""
    required = set(schema.get("required", []))
    properties: dict[str, Schema] = schema.get("properties", {})
    ordered = sorted(properties.items(), key=lambda field: field[0] not in required)
    rows = [
        (code(name), type_of(field), "" if name in required else "may be absent", meaning(field, is_asked=is_asked))
        for name, field in ordered
    ]
    return table(("Field", "Type", "", "Meaning"), rows)


def used_by(schema: Schema) -> Iterator[str]:
    """The names of all that a schema refers to."""
    if name := named(schema):
        yield name
    for value in schema.values():
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, dict):
                yield from used_by(part)


def _tells(schema: Schema, key: str) -> bool:
    """Whether a bound says more than how large a number can be at all."""
    return key in schema and float(schema[key]) < _LARGEST


def _number(value: float) -> str:
    return f"{int(value):,}" if float(value).is_integer() else str(value)
