"""Structural equality of JSON schemas, ignoring annotations."""

from __future__ import annotations

from collections.abc import Callable

from goqueue.schemas.json.json_nodes import ONE_SCHEMA, SCHEMA_LISTS, Node
from goqueue.schemas.json.json_normal import NO_LIMITS
from goqueue.schemas.json.json_text import same_text
from goqueue.schemas.json.json_written import list_size

_PLAIN = frozenset({
    "const", "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "maxLength", "minLength",
    "pattern", "maxItems", "minItems", "uniqueItems", "maxContains", "minContains", "maxProperties", "minProperties",
    "contentEncoding", "contentMediaType",
})  # fmt: skip
_UNORDERED = frozenset({"type", "enum", "required"})
_NAMED = ("properties", "patternProperties", "dependentSchemas", "dependencies", "dependentRequired")


class Sameness:
    """Compares schemas in pairs. ``spend`` is called with units of work, and may raise to end the comparison."""

    def __init__(self, spend: Callable[[int], None]) -> None:
        self._spend = spend
        self._same: set[tuple[int, int]] = set()
        self._different: set[tuple[int, int]] = set()

    def is_same(self, one: Node, other: Node) -> bool:
        """Whether two schemas are equal: two nodes are equal if their subschemas are, through any number of cycles."""
        seen: set[tuple[int, int]] = set()
        waiting = [(one, other)]
        while waiting:
            left, right = waiting.pop()
            pair = id(left), id(right)
            if left is right or pair in seen or pair in self._same:
                continue
            seen.add(pair)
            self._spend(1 + list_size(left))
            parts = None if pair in self._different else _parts(left, right)
            if parts is None:
                self._different |= {pair, (id(one), id(other))}
                return False
            waiting += parts
        self._same |= seen
        return True


def _parts(one: Node, other: Node) -> list[tuple[Node, Node]] | None:
    """Pairs of subschemas that must be equal for both nodes to be equal; ``None`` if the nodes differ already."""
    if isinstance(one.raw, bool) or isinstance(other.raw, bool):
        return [] if one.raw == other.raw else None
    if one.draft != other.draft:
        return None
    # Most schemas have only a few of the keywords, so the others are not looked up.
    there = one.raw.keys() | other.raw.keys()
    if any(_text(one, key) != _text(other, key) for key in there & _PLAIN):
        return None
    if any(_sorted(one.get(key)) != _sorted(other.get(key)) for key in there & _UNORDERED):
        return None
    pairs: list[tuple[list[Node], list[Node]]] = [(one.referred(), other.referred())]
    pairs += ((_as_list(one.one(key)), _as_list(other.one(key))) for key in ONE_SCHEMA if key in there)
    pairs += ((one.many(key), other.many(key)) for key in (*SCHEMA_LISTS, "items") if key in there)
    for key in _NAMED:
        if key not in there:
            continue
        named, others = one.named(key), other.named(key)
        if named.keys() != others.keys() or _lists(one.get(key)) != _lists(other.get(key)):
            return None
        pairs.append(([named[name] for name in named], [others[name] for name in named]))
    if any(len(left) != len(right) for left, right in pairs):
        return None
    return [pair for left, right in pairs for pair in zip(left, right, strict=True)]


def _as_list(node: Node | None) -> list[Node]:
    return [] if node is None else [node]


def _text(node: Node, keyword: str) -> str | None:
    if not isinstance(node.raw, dict) or keyword not in node.raw or not node.knows(keyword):
        return None
    text = same_text(node.raw[keyword])
    return None if keyword in NO_LIMITS and text == same_text(NO_LIMITS[keyword]) else text


def _sorted(value: object) -> list[str] | None:
    if value is None or value == []:
        return None
    return sorted({same_text(each) for each in (value if isinstance(value, list) else [value])})


def _lists(value: object) -> dict[str, list[str] | None]:
    """Lists of names among the dependencies."""
    if not isinstance(value, dict):
        return {}
    return {key: _sorted(each) for key, each in value.items() if isinstance(each, list)}
