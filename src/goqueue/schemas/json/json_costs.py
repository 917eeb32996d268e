"""Validation cost of a JSON schema per part of a value, computed when the schema is parsed.

The validating library holds the interpreter while it checks a value, so its work must be bounded in advance: the number
of keywords of the schema that can apply to the same part of a value, times the number of parts of the value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from goqueue.schemas.json.json_graph import SchemaGraph
from goqueue.schemas.json.json_nodes import Node

# Work is counted in units of about ten nanoseconds.
_DECODED_BYTE = 2
_MATCHED_BYTE = 0.4
"""Cost per byte, for each regular expression."""
_PATTERN_OF_NAMES = 4
"""Cost per member whose name is matched against a pattern."""
_BYTES_OF_A_PART = 2
"""Smallest size of a part of a value: a comma or a bracket, and at least one byte of content."""
_KEYWORDS: Mapping[str, int] = {
    "properties": 10, "multipleOf": 65, "uniqueItems": 7, "additionalProperties": 5, "propertyNames": 5, "pattern": 5,
    "unevaluatedProperties": 40, "unevaluatedItems": 40, "$ref": 5, "$dynamicRef": 20, "$recursiveRef": 20,
    "required": 5,
}  # fmt: skip
_COMPARED_PART = 15
"""Cost of comparing an array or an object, for each part of the value."""
_Weight = Callable[[Node], float]
_BY_EACH_NAME = ("dependencies", "dependentRequired", "dependentSchemas")


@dataclass(frozen=True, slots=True)
class Costs:
    """Validation costs of a schema, in units of work."""

    once: float
    """Cost per value."""
    part: float
    """Upper bound of the cost per part of a value, at any depth."""
    byte: float
    """Upper bound of the cost per byte of a value."""

    def most_parts(self, work: float, size: int) -> int:
        """Number of parts that a value of ``size`` bytes may have without costing more than ``work``."""
        return int(max(0.0, work - self.once - self.byte * size) / max(self.part, 0.001))

    def most_bytes(self, work: float) -> int:
        """Size up to which every value costs no more than ``work``."""
        return int(max(0.0, work - self.once) / (self.part / _BYTES_OF_A_PART + self.byte + _DECODED_BYTE))


def parts_of(value: bytes) -> int:
    """Upper bound of the number of parts of a value: its members, its items and itself."""
    return 1 + value.count(b",") + value.count(b"[") + value.count(b"{")


def costs_of(graph: SchemaGraph) -> Costs:
    """Upper bounds of a schema's costs, over every combination of keywords that can apply together."""
    once, part = _Sums(graph, _own, _for_members).of_root()
    patterns_once, patterns = _Sums(graph, _patterns, _patterns_of_names).of_root()
    return Costs(once, part, _MATCHED_BYTE * max(patterns_once, patterns))


class _Sums:
    """Sums of a weight over all nodes that apply to the value itself, and over all that apply to one part of it."""

    def __init__(self, graph: SchemaGraph, own: _Weight, for_members: _Weight) -> None:
        self._graph = graph
        self._own = {id(node): own(node) for node in graph.nodes}
        self._for_members = {id(node): for_members(node) for node in graph.nodes}
        self._here: dict[int, float] = {}
        self._beneath: dict[int, float] = {}
        for node in graph.nodes:
            self._sum_same_value(node)
        for circle in graph.circles:
            self._sum_parts(circle)

    def of_root(self) -> tuple[float, float]:
        root = id(self._graph.root)
        return self._here[root], self._beneath[root]

    def _sum_same_value(self, start: Node) -> None:
        """Sum the nodes that apply to the same value. These edges have no cycles; that was checked before."""
        stack = [(start, False)]
        while stack:
            node, is_ready = stack.pop()
            key = id(node)
            if key in self._here:
                continue
            targets = [to for way, to in self._graph.edges[key] if way == "here"]
            if is_ready:
                self._here[key] = self._own[key] + sum(self._here[id(to)] for to in targets)
            else:
                stack.append((node, True))
                stack += ((to, False) for to in targets)

    def _sum_parts(self, circle: list[Node]) -> None:
        """Sum the nodes that apply to one part of a value. The nodes of a cycle apply to it together: each once,
        since the library caches its result for a part, or only those of one node if each node has a single edge that
        stays in the cycle."""
        inside = {id(node) for node in circle}
        total = 0.0
        for node in circle:
            onward = {"member": 0.0, "item": 0.0}
            for way, to in self._graph.edges[id(node)]:
                if id(to) in inside:
                    continue
                most = max(self._here[id(to)], self._beneath[id(to)])
                if way in onward:
                    onward[way] = max(onward[way], most)
                else:
                    total += self._beneath[id(to)] if way == "here" else most
            total += max(onward.values()) + self._for_members[id(node)]
        if self._graph.is_circle(circle[0]):
            if self._graph.goes_on_once(circle):
                total += max(self._here[key] for key in inside)
            else:
                total += sum(self._own[key] for key in inside) + sum(
                    self._here[id(to)]
                    for key in inside
                    for way, to in self._graph.edges[key]
                    if way == "here" and id(to) not in inside
                )
        for key in inside:
            self._beneath[key] = total


def _own(node: Node) -> float:
    work = 1.0
    for keyword in node.raw if isinstance(node.raw, dict) else ():
        given = node.get(keyword)
        if keyword == "const":
            work += _compared(given)
        elif keyword == "enum" and isinstance(given, list):
            # Strings alone are looked up in a hash table.
            work += 1 if all(isinstance(each, str) for each in given) else sum(map(_compared, given))
        elif keyword in _BY_EACH_NAME and isinstance(given, dict):
            work += 2 * len(given)
        elif given is not None:
            work += _KEYWORDS.get(keyword, 1)
    return work


def _compared(given: object) -> float:
    return _COMPARED_PART if isinstance(given, dict | list) else 1


def _for_members(node: Node) -> float:
    return _PATTERN_OF_NAMES * len(node.named("patternProperties"))


def _patterns(node: Node) -> float:
    return 1 if isinstance(node.get("pattern"), str) else 0


def _patterns_of_names(node: Node) -> float:
    return len(node.named("patternProperties"))
