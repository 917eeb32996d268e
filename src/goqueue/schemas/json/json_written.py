"""Facts that hold for every value allowed by a set of JSON schemas together: types, enumerated values, limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from goqueue.schemas.json.json_nodes import Node
from goqueue.schemas.json.json_text import same_text

KINDS = frozenset({"null", "boolean", "object", "array", "string", "integer", "fraction"})
"""Disjoint types of values. A number is an integer or a fraction."""
_MOST_NODES = 1_000
_BESIDES = ("anyOf", "oneOf", "if", "dependentSchemas", "dependencies", "$dynamicRef", "$recursiveRef")


def kinds_of_type(types: object) -> frozenset[str]:
    """Kinds that the ``type`` keyword allows."""
    if types is None:
        return KINDS
    found: set[str] = set()
    for each in types if isinstance(types, list) else [types]:
        found |= {"integer", "fraction"} if each == "number" else {str(each)}
    return frozenset(found)


def kind_of_value(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case dict():
            return "object"
        case list():
            return "array"
        case float():
            return "integer" if value.is_integer() else "fraction"
    return "integer"


def shown_kinds(kinds: Iterable[str]) -> str:
    """Kinds as text for messages."""
    left = set(kinds)
    if left == KINDS:
        return "any type"
    if "fraction" in left:
        left = (left - {"integer", "fraction"}) | {"number"}
    return ", ".join(sorted(left)) or "no type"


@dataclass(frozen=True, slots=True)
class Limit:
    """A lower or upper limit of numbers."""

    value: float
    is_excluded: bool = False


@dataclass(slots=True)
class Written:
    """A set of schemas that all apply to a value, and what follows from them together."""

    nodes: list[Node]
    """The schemas with their references and their ``allOf`` branches, each once."""
    kinds: frozenset[str]
    values: list[object] | None
    """Every possible value, if these are known."""
    is_impossible: bool = False

    def all_of(self, keyword: str) -> list[object]:
        return [value for node in self.nodes if (value := node.get(keyword)) is not None]

    def numbers(self, keyword: str) -> list[float]:
        return [each for each in self.all_of(keyword) if isinstance(each, int | float) and not isinstance(each, bool)]

    def tightest(self, keyword: str, *, upwards: bool) -> Limit | None:
        """The tightest of the limits of numbers, ``minimum`` (``upwards``) or ``maximum``."""
        found = (limit for node in self.nodes for limit in limits(node, keyword))
        return max(found, key=lambda each: (each.value if upwards else -each.value, each.is_excluded), default=None)


def limits(node: Node, keyword: str) -> list[Limit]:
    """The limits that ``minimum`` or ``maximum`` sets, and its exclusive form."""
    plain, excluded = node.get(keyword), node.get(f"exclusive{keyword.capitalize()}")
    found = []
    if isinstance(plain, int | float):
        # In draft 4, the other keyword is a flag that makes this limit exclusive.
        found.append(Limit(plain, excluded is True))
    if isinstance(excluded, int | float) and not isinstance(excluded, bool):
        found.append(Limit(excluded, is_excluded=True))
    return found


def next_reference(node: Node) -> Node | None:
    """Target of the node's ``$ref``."""
    text = node.get("$ref")
    return node.document.resolve(node, text) if isinstance(text, str) else None


def _reference_targets(node: Node) -> list[Node]:
    return [] if (found := next_reference(node)) is None else [found]


def closing_node(node: Node) -> Node | None:
    """A synthetic node that expresses ``unevaluatedProperties`` as ``additionalProperties``, listing every property
    name known to the node and its subschemas. ``None`` if the keyword is absent, or if its effect depends on the
    value."""
    rest = node.get("unevaluatedProperties")
    if rest is None or rest is True:
        return None
    names: dict[str, object] = {}
    patterns: dict[str, object] = {}
    within, waiting = {id(node)}, [node]
    while waiting:
        each = waiting.pop()
        if any(each.get(keyword) is not None for keyword in _BESIDES) or len(within) > _MOST_NODES:
            return None
        if each.get("additionalProperties") is not None:
            return None
        if each is not node and each.get("unevaluatedProperties") is not None:
            return None
        names |= dict.fromkeys(each.named("properties"), True)
        patterns |= dict.fromkeys(each.named("patternProperties"), True)
        for part in [*each.many("allOf"), *_reference_targets(each)]:
            if id(part) not in within:
                within.add(id(part))
                waiting.append(part)
    raw = {"properties": names, "patternProperties": patterns, "additionalProperties": rest}
    return made(raw, node)


def made(raw: dict[str, object], like: Node) -> Node:
    """A synthetic node, which is part of no document's text."""
    return Node(raw, like.document, like.base, like.path)


class Knowledge:
    """Cache of facts about schemas. ``spend`` is called with units of work, and may raise to end the comparison."""

    def __init__(self, spend: Callable[[int], None]) -> None:
        self._spend = spend
        self._kinds: dict[int, frozenset[str]] = {}
        self._closing: dict[int, Node | None] = {}
        self._written: dict[tuple[int, ...], tuple[Written, tuple[Node, ...]]] = {}

    def written(self, nodes: tuple[Node, ...]) -> Written:
        key = tuple(id(each) for each in nodes)
        found = self._written.get(key)
        if found is None:
            found = self._written[key] = self._compute(nodes), nodes
        return found[0]

    def closing(self, node: Node) -> Node | None:
        if id(node) not in self._closing:
            self._closing[id(node)] = closing_node(node)
        return self._closing[id(node)]

    def flattened(self, nodes: Iterable[Node]) -> list[Node]:
        """The nodes with their references and their ``allOf`` branches, each once, and with the nodes that express
        their ``unevaluatedProperties``."""
        found: list[Node] = []
        seen: set[int] = set()
        waiting = list(nodes)[::-1]
        while waiting and len(found) < _MOST_NODES:
            node = waiting.pop()
            if node.raw is True or id(node) in seen:
                continue
            seen.add(id(node))
            found.append(node)
            more = [*node.many("allOf"), *_reference_targets(node)]
            if (closing := self.closing(node)) is not None:
                more.append(closing)
            waiting += more[::-1]
        return found

    def _compute(self, given: tuple[Node, ...]) -> Written:
        nodes = self.flattened(given)
        self._spend(len(nodes) + sum(list_size(each) for each in nodes))
        kinds = KINDS
        for each in nodes:
            kinds &= self.kinds(each)
        values = _common_values(nodes)
        if values is None and kinds <= {"null", "boolean"}:
            values = [*([None] if "null" in kinds else []), *([True, False] if "boolean" in kinds else [])]
        if values is not None:
            values = [each for each in values if kind_of_value(each) in kinds]
            kinds &= {kind_of_value(each) for each in values}
        return Written(nodes, kinds, values, is_impossible=not kinds)

    def kinds(self, node: Node) -> frozenset[str]:
        """Superset of the kinds of values that a schema allows."""
        if isinstance(node.raw, bool):
            return KINDS if node.raw else frozenset()
        if id(node) in self._kinds:
            return self._kinds[id(node)]
        self._spend(1)
        self._kinds[id(node)] = KINDS  # Value for a recursive schema, until its kinds are known.
        found = kinds_of_type(node.get("type"))
        listed = listed_values(node)
        if listed is not None:
            found &= {kind_of_value(each) for each in listed}
        for each in [*node.many("allOf"), *_reference_targets(node)]:
            found &= self.kinds(each)
        for keyword in ("anyOf", "oneOf"):
            if branches := node.many(keyword):
                found &= frozenset().union(*(self.kinds(each) for each in branches))
        self._kinds[id(node)] = found
        return found


def listed_values(node: Node) -> list[object] | None:
    """Values that ``enum`` and ``const`` allow."""
    listed = node.get("enum")
    found = listed if isinstance(listed, list) else None
    if isinstance(node.raw, dict) and "const" in node.raw and node.knows("const"):
        const = node.raw["const"]
        if found is None or same_text(const) in {same_text(each) for each in found}:
            return [const]
        return []
    return found


def list_size(node: Node) -> int:
    listed = node.get("enum")
    return len(listed) if isinstance(listed, list) else 0


def _common_values(nodes: list[Node]) -> list[object] | None:
    common: dict[str, object] | None = None
    for node in nodes:
        listed = listed_values(node)
        if listed is not None:
            texts = {same_text(each): each for each in listed}
            common = texts if common is None else {key: common[key] for key in common if key in texts}
    return None if common is None else list(common.values())


def next_integer(limit: Limit, *, upwards: bool) -> int:
    """The nearest integer within a limit."""
    nearest = math.ceil(limit.value) if upwards else math.floor(limit.value)
    if limit.is_excluded and nearest == limit.value:
        nearest += 1 if upwards else -1
    return nearest
