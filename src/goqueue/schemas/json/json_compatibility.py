"""Compatibility of JSON schemas: whether every value that the writer's schema allows is allowed by the reader's.
Holds the comparison itself and the rules for combined schemas (``allOf``, ``anyOf``, ``oneOf``, ``not``, ``if``).
Whether a value also matches other branches of a ``oneOf`` is mostly not checked, as in other schema registries."""

from __future__ import annotations

from collections.abc import Iterator

import jsonschema_rs

from goqueue.schemas.base import TOO_COMPLEX, Incompatibility
from goqueue.schemas.json import json_compare_values as rules
from goqueue.schemas.json.json_compare_arrays import arrays
from goqueue.schemas.json.json_compare_objects import ObjectRules
from goqueue.schemas.json.json_engine import compile_alone
from goqueue.schemas.json.json_nodes import Document, Node
from goqueue.schemas.json.json_same import Sameness
from goqueue.schemas.json.json_text import pointer
from goqueue.schemas.json.json_written import Knowledge, Written, list_size

MOST_REASONS = 100
MOST_WORK = 100_000
"""Limit on the work of one comparison, in units of a few microseconds; one pair of schemas costs ten."""
_PAIR = 10
_PER_PART = 8
"""Additional work allowed for each node: a large schema is fine, but not one whose combinations multiply."""
MOST_WORK_IN_ALL = 500_000
"""Limit on the work of one comparison for schemas of any size: about two seconds."""
_MOST_DEPTH = 110

_OF_TYPE = {
    each: Document({"type": each}, 7, {}).root
    for each in ("null", "boolean", "object", "array", "string", "integer", "number")
}

_Pair = tuple[int, tuple[int, ...], frozenset[tuple[int, str]]]
_Used = frozenset[tuple[int, str]]
"""Choices (``anyOf``, ``oneOf``) of the writer's schemas that have been split already."""


class _TooComplex(Exception):
    """The comparison exceeded its limit on work."""


class JsonReading:
    """One comparison. A pair of schemas that recurs while it is being compared is assumed to be compatible."""

    def __init__(self) -> None:
        self._left = MOST_WORK
        self._depth = 0
        self._known = Knowledge(self.spend)
        self._is_same = Sameness(self.spend).is_same
        self._found: dict[_Pair, list[Incompatibility]] = {}
        self._under_way: dict[_Pair, bool] = {}
        """Pairs being compared, with whether the pair recurred meanwhile."""
        self._kept: list[Node | tuple[Node, ...]] = []
        """Nodes are compared by identity, so none of them may be freed during the comparison."""
        self._patterns: dict[str, jsonschema_rs.Validator] = {}

    def cannot_read(self, reader: Node, writer: Node) -> list[Incompatibility]:
        self._left += _PER_PART * (reader.document.size + writer.document.size)
        self._left = min(self._left, MOST_WORK_IN_ALL)
        try:
            if self._is_same(reader, writer):
                return []
            return [*dict.fromkeys(self.compare(reader, (writer,), ""))][:MOST_REASONS]
        except (_TooComplex, RecursionError):
            return [
                Incompatibility(
                    TOO_COMPLEX,
                    "/",
                    "the schemas combine too many alternatives to be compared; use fewer within one another, or turn "
                    "the check off for this change",
                )
            ]

    def spend(self, units: int) -> None:
        self._left -= units
        if self._left < 0:
            raise _TooComplex

    def keep(self, node: Node) -> Node:
        self._kept.append(node)
        return node

    def pattern_matches(self, pattern: str, name: str) -> bool:
        self.spend(1)
        if pattern not in self._patterns:
            self._patterns[pattern] = compile_alone({"pattern": pattern}, 7)
        return self._patterns[pattern].is_valid(name)

    def compare(
        self, reader: Node, writers: tuple[Node, ...], path: str, used: _Used = frozenset()
    ) -> list[Incompatibility]:
        """Reasons why values that satisfy all of ``writers`` are not allowed by ``reader``."""
        if reader.raw is True or reader in writers:
            return []
        pair: _Pair = id(reader), tuple(sorted({id(each) for each in writers})), used
        if pair in self._found:
            return self._found[pair]
        if pair in self._under_way:
            self._under_way[pair] = True
            return []
        self.spend(_PAIR)
        self._kept.append((reader, *writers))
        self._under_way[pair] = False
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise _TooComplex
        before = len(self._found)
        found = self._compare(reader, writers, path, used)[:MOST_REASONS]
        self._depth -= 1
        if self._under_way.pop(pair) and found:
            # Results found meanwhile assumed that this pair is compatible, and it is not.
            for each in [*self._found][before:]:
                del self._found[each]
        self._found[pair] = found
        return found

    def _compare(self, reader: Node, writers: tuple[Node, ...], path: str, used: _Used) -> list[Incompatibility]:
        written = self._known.written(writers)
        if written.is_impossible:
            return []
        if reader.raw is False:
            return [Incompatibility("TYPE_CHANGED", path or "/", "values may have been written, and none is allowed")]
        found = self._rules(reader, written, writers, path, used)
        if not found or any(self._is_same(reader, each) for each in written.nodes):
            return []
        split = self._split(reader, written, used)
        if split is None:
            return found
        choice, branches = split
        in_branches: list[Incompatibility] = []
        for branch in branches:
            in_branches += self.compare(reader, (*written.nodes, *branch), path, used | {choice})
            if len(in_branches) > MOST_REASONS:
                break
        if not in_branches:
            return []
        # Rules about the schema as a whole come first, then the problems of single branches.
        whole = [each for each in found if each.rule in _OF_THE_WHOLE]
        return [*whole, *(each for each in in_branches if each not in whole)]

    def _split(
        self, reader: Node, written: Written, used: _Used
    ) -> tuple[tuple[int, str], list[tuple[Node, ...]]] | None:
        """A choice in the writer's schemas that can be compared branch by branch."""
        for node in written.nodes:
            for keyword in ("anyOf", "oneOf"):
                if (id(node), keyword) not in used and (branches := node.many(keyword)):
                    return (id(node), keyword), [(each,) for each in branches]
            if (id(node), "if") not in used and (condition := node.one("if")) is not None:
                holds = (condition, *([] if (then := node.one("then")) is None else [then]))
                return (id(node), "if"), [holds, () if (other := node.one("else")) is None else (other,)]
        combines = any(each.get(key) for each in self._known.flattened([reader]) for key in ("anyOf", "oneOf", "if"))
        kinds = written.kinds - {"fraction", "integer"}
        if written.kinds & {"fraction", "integer"}:
            kinds |= {"number" if "fraction" in written.kinds else "integer"}
        if combines and len(kinds) > 1 and (0, "type") not in used:
            return (0, "type"), [(_OF_TYPE[each],) for each in sorted(kinds)]
        return None

    def _rules(
        self, reader: Node, written: Written, writers: tuple[Node, ...], path: str, used: _Used
    ) -> list[Incompatibility]:
        found: list[Incompatibility] = []
        self.spend(list_size(reader))
        for target in reader.referred():
            found += self.compare(target, writers, path, used)
        types = [*rules.types(reader, written, path)]
        if types:
            return found + types
        found += rules.values(reader, written, path)
        found += rules.numbers(reader, written, path)
        found += rules.strings(reader, written, path)
        found += ObjectRules(self, reader, written, path).reasons()
        found += self._unevaluated(reader, written, writers, path)
        found += arrays(self, reader, written, path)
        found += self._all_of(reader, written, writers, path, used)
        found += self._alternatives(reader, written, writers, path, used)
        found += self._not(reader, written, path)
        found += self._condition(reader, written, path)
        return found

    def _unevaluated(
        self, reader: Node, written: Written, writers: tuple[Node, ...], path: str
    ) -> list[Incompatibility]:
        rest = reader.one("unevaluatedProperties")
        if rest is None or rest.raw is True or "object" not in written.kinds:
            return []
        if reader.get("additionalProperties") is not None:
            return []  # Every property is evaluated already.
        closing = self._known.closing(reader)
        found = None if closing is None else self.compare(closing, writers, path)
        if found == []:
            return []
        narrowed = "REMOVED" if rest.raw is False else "NARROWED"
        reason = Incompatibility(
            f"UNEVALUATED_PROPERTIES_{narrowed}",
            pointer(path, "unevaluatedProperties"),
            "properties that nothing else in the schema speaks of may have been written; keep allowing them",
        )
        return [reason, *(found or [])]

    def _all_of(
        self, reader: Node, written: Written, writers: tuple[Node, ...], path: str, used: _Used
    ) -> Iterator[Incompatibility]:
        parts = reader.many("allOf")
        found: list[Incompatibility] = []
        for place, part in enumerate(parts):
            found += self.compare(part, writers, pointer(path, "allOf", place), used)
        if not found:
            return
        before = [len(each) for each in written.all_of("allOf") if isinstance(each, list)]
        if before and max(before) < len(parts):
            yield Incompatibility(
                "PRODUCT_TYPE_EXTENDED",
                pointer(path, "allOf"),
                "more must hold than held for what was written; do not add to 'allOf'",
            )
        elif before:
            yield Incompatibility(
                "COMBINED_TYPE_SUBSCHEMAS_CHANGED",
                pointer(path, "allOf"),
                "a schema in 'allOf' does not allow all that was allowed; keep each at least as wide as it was",
            )
        yield from found

    def _alternatives(
        self, reader: Node, written: Written, writers: tuple[Node, ...], path: str, used: _Used
    ) -> Iterator[Incompatibility]:
        for keyword in ("anyOf", "oneOf"):
            branches = reader.many(keyword)
            if not branches:
                continue
            here = pointer(path, keyword)
            before = [each for key in ("anyOf", "oneOf") for each in written.all_of(key) if isinstance(each, list)]
            most = max(map(len, before), default=0)
            was_one = bool(written.all_of("oneOf"))
            if keyword == "oneOf" and len(branches) > 1 and most > 1 and not was_one:
                yield Incompatibility(
                    "COMBINED_TYPE_CHANGED",
                    here,
                    "what fits several schemas of an 'anyOf' may have been written, and 'oneOf' allows only one to "
                    "fit; use 'anyOf'",
                )
                continue
            fitting = 0
            closest: list[Incompatibility] = []
            for place, branch in enumerate(branches):
                found = self.compare(branch, writers, pointer(here, place), used)
                fitting += not found
                if found and found[0].rule != "TYPE_CHANGED" and not closest:
                    closest = found
                if fitting == (1 if keyword == "anyOf" else 2):
                    break
            if fitting == 1 or (fitting and was_one and self._matches_two_branches(written, writers, path, used)):
                continue
            yield _not_among(branches, most, fitting, here)
            yield from closest if not fitting else []

    def _matches_two_branches(self, written: Written, writers: tuple[Node, ...], path: str, used: _Used) -> bool:
        """Whether the writer's schema always satisfies two branches of its ``oneOf``, so that none was ever written."""
        for node in written.nodes:
            fitting = 0
            for branch in node.many("oneOf"):
                fitting += not self.compare(branch, writers, path, used)
                if fitting == 2:
                    return True
        return False

    def _not(self, reader: Node, written: Written, path: str) -> Iterator[Incompatibility]:
        forbidden = reader.one("not")
        if forbidden is None or not self._known.kinds(forbidden) & written.kinds:
            return
        for node in written.nodes:
            before = node.one("not")
            if before is not None and not self.compare(before, (forbidden,), pointer(path, "not")):
                return
        yield Incompatibility(
            "NOT_TYPE_EXTENDED",
            pointer(path, "not"),
            "what this forbids may have been written; forbid no more than was forbidden before",
        )

    def _condition(self, reader: Node, written: Written, path: str) -> Iterator[Incompatibility]:
        condition, then, other = reader.one("if"), reader.one("then"), reader.one("else")
        if condition is None or (then is None and other is None):
            return
        holds: list[Node] = [*written.nodes, condition]
        fails: list[Node] = [*written.nodes]
        for node in written.nodes:
            before = node.one("if")
            if before is not None and self._is_same(condition, before):
                holds += [] if (each := node.one("then")) is None else [each]
                fails += [] if (each := node.one("else")) is None else [each]
        found = [] if then is None else self.compare(then, tuple(holds), pointer(path, "then"))
        if other is not None:
            found = found + self.compare(other, tuple(fails), pointer(path, "else"))
        if found:
            yield Incompatibility(
                "CONDITION_CHANGED",
                pointer(path, "if"),
                "what was written need not fit what the condition asks for; keep 'if', and 'then' and 'else' as wide",
            )
            yield from found


_OF_THE_WHOLE = ("COMBINED_TYPE_CHANGED", "SUM_TYPE_NARROWED", "COMBINED_TYPE_SUBSCHEMAS_CHANGED")


def _not_among(branches: list[Node], before: int, fitting: int, here: str) -> Incompatibility:
    if fitting > 1:
        return Incompatibility(
            "COMBINED_TYPE_SUBSCHEMAS_CHANGED",
            here,
            "what was written fits more than one of the schemas, and 'oneOf' allows only one to fit; use 'anyOf'",
        )
    if before > len(branches):
        return Incompatibility(
            "SUM_TYPE_NARROWED", here, "there were more alternatives for what was written; keep each of them"
        )
    if before:
        return Incompatibility(
            "COMBINED_TYPE_SUBSCHEMAS_CHANGED",
            here,
            "an alternative of what was written fits none of these; keep each at least as wide as it was",
        )
    return Incompatibility(
        "TYPE_CHANGED", here, "what was written fits none of the alternatives as a whole; add one that allows it"
    )
