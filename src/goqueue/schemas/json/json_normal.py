"""Normal form of JSON schemas, in which equivalent schemas have the same text."""

from __future__ import annotations

from collections.abc import Mapping

from goqueue.schemas.json.json_nodes import DRAFT_URIS, ONE_SCHEMA, SCHEMA_LISTS, SCHEMA_MAPS, Node
from goqueue.schemas.json.json_text import same_text

_SETS = ("required", "enum", "type")
NO_LIMITS: Mapping[str, object] = {
    "minLength": 0, "minItems": 0, "minProperties": 0, "uniqueItems": False, "required": [], "dependentRequired": {},
    "properties": {}, "patternProperties": {},
}  # fmt: skip
"""Keywords that have no effect with these values."""


def normal(root: Node) -> object:
    """The schema with sets in order, single types outside lists, no keywords without effect, and its draft named."""
    found = _normal(root.raw)
    if isinstance(found, dict):
        found["$schema"] = DRAFT_URIS[root.draft]
    return found


def _normal(raw: object) -> object:
    if not isinstance(raw, dict):
        return raw
    made: dict[str, object] = {}
    for key, value in raw.items():
        if key in NO_LIMITS and same_text(value) == same_text(NO_LIMITS[key]):
            continue
        if key in ONE_SCHEMA and isinstance(value, dict):
            made[key] = _normal(value)
        elif (key in SCHEMA_LISTS or key == "items") and isinstance(value, list):
            made[key] = [_normal(each) for each in value]
        elif (key in SCHEMA_MAPS or key == "dependentRequired") and isinstance(value, dict):
            made[key] = {
                name: _in_order(each) if isinstance(each, list) else _normal(each) for name, each in value.items()
            }
        elif key in _SETS and isinstance(value, list):
            made[key] = _in_order(value)
        else:
            made[key] = value
    if isinstance(types := made.get("type"), list) and len(types) == 1:
        made["type"] = types[0]
    return made


def _in_order(values: list[object]) -> list[object]:
    by_text = {same_text(each): each for each in values}
    return [by_text[text] for text in sorted(by_text)]
