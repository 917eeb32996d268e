"""Compatibility of JSON Schema arrays: whether the reader's schema allows all that the writer's allows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from goqueue.schemas.base import Incompatibility
from goqueue.schemas.json.json_compare_values import Reading, counts
from goqueue.schemas.json.json_nodes import Node
from goqueue.schemas.json.json_text import pointer
from goqueue.schemas.json.json_written import Written

_IN_PLACE = ("allOf", "anyOf", "oneOf", "if", "$ref", "$dynamicRef", "$recursiveRef", "dependentSchemas", "contains")


@dataclass(frozen=True, slots=True)
class _Items:
    """The schemas of a node for the items at the first indexes and for all others, with their keywords."""

    first: list[Node]
    rest: Node | None
    first_key: str
    rest_key: str

    def at(self, place: int) -> Node | None:
        found = self.first[place] if place < len(self.first) else self.rest
        return None if found is None or found.raw is True else found


def _items(node: Node) -> _Items:
    first, rest = node.many("prefixItems"), node.one("items")
    keys = "prefixItems", "items"
    if node.draft < 2020 and isinstance(node.get("items"), list):
        first, rest = node.many("items"), node.one("additionalItems")
        keys = "items", "additionalItems"
    if rest is None and node.one("unevaluatedItems") is not None and _stands_alone(node):
        rest, keys = node.one("unevaluatedItems"), (keys[0], "unevaluatedItems")
    return _Items(first, rest, *keys)


def _stands_alone(node: Node) -> bool:
    return all(node.get(each) is None for each in _IN_PLACE)


def arrays(reading: Reading, reader: Node, written: Written, path: str) -> Iterator[Incompatibility]:
    if "array" not in written.kinds:
        return
    now = _items(reader)
    before = [_items(node) for node in written.nodes]
    most = max(len(now.first), *(len(each.first) for each in before), 0) if before else len(now.first)
    reading.spend(most)
    for place in range(most):
        yield from _item(reading, now, before, place, path)
    yield from _rest(reading, now, before, most, path)
    yield from _unevaluated(reader, path)
    yield from counts("array", reader, written, path)
    yield from _unique(reader, written, path)
    yield from _contains(reading, reader, written, path)


def _item(reading: Reading, now: _Items, before: list[_Items], place: int, path: str) -> Iterator[Incompatibility]:
    wanted = now.at(place)
    if wanted is None:
        return
    given = tuple(each for one in before if (each := one.at(place)) is not None)
    if any(each.raw is False for each in given):
        return
    is_named = place < len(now.first)
    here = pointer(path, now.first_key, place) if is_named else pointer(path, now.rest_key)
    found = reading.compare(wanted, given, here)
    if not found:
        return
    if not is_named:
        if wanted.raw is False:
            yield Incompatibility(
                "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL",
                here,
                f"item {place} may have been written, and the schema allows no items that it does not list; keep it",
            )
            return
        yield Incompatibility(
            "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
            here,
            f"item {place} may have been written, and what the schema allows for other items does not cover it",
        )
    elif not any(place < len(each.first) for each in before):
        if not given:
            yield Incompatibility(
                "ITEM_ADDED_TO_OPEN_CONTENT_MODEL",
                here,
                f"anything may have been written as item {place}; give it no schema, or close the other schema",
            )
            return
        yield Incompatibility(
            "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
            here,
            f"what the other schema allows for items that it does not list may have been written as item {place}",
        )
    yield from found


def _rest(reading: Reading, now: _Items, before: list[_Items], most: int, path: str) -> Iterator[Incompatibility]:
    wanted = now.rest
    if wanted is None or wanted.raw is True:
        return
    given = tuple(each for one in before if (each := one.at(most)) is not None)
    if any(each.raw is False for each in given):
        return
    here = pointer(path, now.rest_key)
    found = reading.compare(wanted, given, here)
    if not found:
        return
    if wanted.raw is False:
        yield Incompatibility("ADDITIONAL_ITEMS_REMOVED", here, "more items may have been written; keep allowing them")
    elif given:
        yield from found
    elif now.first:
        yield Incompatibility(
            "ADDITIONAL_ITEMS_NARROWED", here, "any additional items may have been written; give them no schema"
        )
    else:
        yield Incompatibility("SCHEMA_ADDED", here, "any items may have been written; give them no schema")


def _unevaluated(reader: Node, path: str) -> Iterator[Incompatibility]:
    rest = reader.one("unevaluatedItems")
    if rest is not None and rest.raw is not True and not _stands_alone(reader):
        yield Incompatibility(
            "UNEVALUATED_ITEMS_REMOVED",
            pointer(path, "unevaluatedItems"),
            "which items this is about depends on the value, so the schema must be the same as before; leave it out",
        )


def _unique(reader: Node, written: Written, path: str) -> Iterator[Incompatibility]:
    if reader.get("uniqueItems") is not True or True in written.all_of("uniqueItems"):
        return
    if any(each <= 1 for each in written.numbers("maxItems")):
        return
    yield Incompatibility(
        "UNIQUE_ITEMS_ADDED", pointer(path, "uniqueItems"), "equal items may have been written; do not forbid them"
    )


def _contains(reading: Reading, reader: Node, written: Written, path: str) -> Iterator[Incompatibility]:
    wanted = reader.one("contains")
    if wanted is None:
        return
    least, most = _count(reader, "minContains", 1), _count(reader, "maxContains", None)
    assert least is not None
    given = [(node, each) for node in written.nodes if (each := node.one("contains")) is not None]
    if least > 0:
        enough = [
            (node, each) for node, each in given if not reading.compare(wanted, (each,), pointer(path, "contains"))
        ]
        counted = [_count(node, "minContains", 1) or 0 for node, _ in enough]
        if not any(each >= least for each in counted):
            rule = "MIN_CONTAINS_INCREASED" if enough else "SCHEMA_ADDED"
            yield Incompatibility(
                rule, pointer(path, "contains"), f"fewer than {least} such items may have been written; ask for fewer"
            )
    if most is not None:
        limits = [
            limit
            for node, each in given
            if (limit := _count(node, "maxContains", None)) is not None
            and not reading.compare(each, (wanted,), pointer(path, "contains"))
        ]
        if not any(each <= most for each in limits):
            yield Incompatibility(
                f"MAX_CONTAINS_{'DECREASED' if limits else 'ADDED'}",
                pointer(path, "maxContains"),
                f"more than {most} such items may have been written; allow as many as before",
            )


def _count(node: Node, keyword: str, default: float | None) -> float | None:
    found = node.get(keyword)
    return found if isinstance(found, int | float) else default
