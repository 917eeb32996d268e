"""Compatibility of JSON Schema types, enumerated values, numbers and strings: whether every value that the writer's
schema allows is allowed by the reader's."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Protocol

from goqueue.model.fields import shown
from goqueue.schemas.base import Incompatibility
from goqueue.schemas.json import json_written as facts
from goqueue.schemas.json.json_engine import compile_alone
from goqueue.schemas.json.json_nodes import Node
from goqueue.schemas.json.json_text import pointer, same_text

COUNTS = {
    "string": {"maxLength": "MAX_LENGTH", "minLength": "MIN_LENGTH"},
    "array": {"maxItems": "MAX_ITEMS", "minItems": "MIN_ITEMS"},
    "object": {"maxProperties": "MAX_PROPERTIES", "minProperties": "MIN_PROPERTIES"},
}


class Reading(Protocol):
    """The running comparison, as the rules use it."""

    def compare(self, reader: Node, writers: tuple[Node, ...], path: str) -> list[Incompatibility]: ...

    def spend(self, units: int) -> None:
        """Count units of work; ends the comparison beyond its limit."""

    def keep(self, node: Node) -> Node:
        """Keep a reference to a node that belongs to no document, so that its identity stays unique."""

    def pattern_matches(self, pattern: str, name: str) -> bool: ...


def types(reader: Node, written: facts.Written, path: str) -> Iterator[Incompatibility]:
    wanted = reader.get("type")
    if wanted is None:
        return
    missing = written.kinds - facts.kinds_of_type(wanted)
    if not missing:
        return
    here = pointer(path, "type")
    was, now = facts.shown_kinds(written.kinds), facts.shown_kinds(facts.kinds_of_type(wanted))
    if missing == {"fraction"} and "integer" in facts.kinds_of_type(wanted):
        yield Incompatibility(
            "TYPE_NARROWED", here, f"a number may have been written, only {now} can be read; allow 'number'"
        )
    elif (
        isinstance(wanted, list) and len(wanted) > 1 and any(isinstance(each, list) for each in written.all_of("type"))
    ):
        yield Incompatibility(
            "SUM_TYPE_NARROWED", here, f"{was} may have been written, only {now} can be read; keep every type"
        )
    else:
        yield Incompatibility("TYPE_CHANGED", here, f"{was} may have been written, {now} is to be read; keep the type")


def values(reader: Node, written: facts.Written, path: str) -> Iterator[Incompatibility]:
    allowed = facts.listed_values(reader)
    if allowed is None:
        return
    keyword = "enum" if reader.get("enum") is not None else "const"
    here = pointer(path, keyword)
    if written.values is None:
        rule = "TYPE_CHANGED" if keyword == "enum" else "CONST_ADDED"
        yield Incompatibility(rule, here, "other values than those listed may have been written; leave the list out")
        return
    texts = {same_text(each) for each in allowed}
    missing = [each for each in written.values if same_text(each) not in texts]
    if not missing:
        return
    rule = "CONST_CHANGED"
    if keyword == "enum":
        before = {same_text(each) for each in written.values}
        rule = "ENUM_ARRAY_NARROWED" if texts <= before else "ENUM_ARRAY_CHANGED"
    listed = ", ".join(shown(each) for each in missing[:5])
    yield Incompatibility(rule, here, f"{listed} may have been written and cannot be read; keep every value")


def numbers(reader: Node, written: facts.Written, path: str) -> Iterator[Incompatibility]:
    if not written.kinds & {"integer", "fraction"}:
        return
    whole = "fraction" not in written.kinds
    for keyword, moved, upwards in (("minimum", "INCREASED", True), ("maximum", "DECREASED", False)):
        given = written.tightest(keyword, upwards=upwards)
        for limit in facts.limits(reader, keyword):
            if not _is_within(limit, given, whole, upwards=upwards) and not _fit(reader, written, keyword):
                yield _limit_reason(keyword, moved, limit, written, path)
    yield from _multiples(reader, written, path)


def _is_within(wanted: facts.Limit, given: facts.Limit | None, whole: bool, *, upwards: bool) -> bool:
    if given is None:
        return False
    if whole:
        inner, outer = facts.next_integer(given, upwards=upwards), facts.next_integer(wanted, upwards=upwards)
        return inner >= outer if upwards else inner <= outer
    if given.value == wanted.value:
        return given.is_excluded or not wanted.is_excluded
    return given.value > wanted.value if upwards else given.value < wanted.value


def _limit_reason(keyword: str, moved: str, limit: facts.Limit, written: facts.Written, path: str) -> Incompatibility:
    name = keyword
    if limit.is_excluded:
        name = f"exclusive{keyword.capitalize()}"
    stem = f"{'EXCLUSIVE_' if limit.is_excluded else ''}{keyword.upper()}"
    had = bool(written.numbers(name) or (limit.is_excluded and written.numbers(keyword)))
    more = "below" if keyword == "minimum" else "above"
    return Incompatibility(
        f"{stem}_{moved if had else 'ADDED'}",
        pointer(path, name),
        f"numbers {more} {shown(limit.value)} may have been written; keep the limit as it was, or leave it out",
    )


def _multiples(reader: Node, written: facts.Written, path: str) -> Iterator[Incompatibility]:
    wanted = reader.get("multipleOf")
    if not isinstance(wanted, int | float) or isinstance(wanted, bool):
        return
    given = written.numbers("multipleOf")
    if "fraction" not in written.kinds:
        given = [*given, 1]
    step = _exact(wanted)
    if any(_exact(each) % step == 0 for each in given) or _fit(reader, written, "multipleOf"):
        return
    before = written.numbers("multipleOf")
    if not before:
        rule = "MULTIPLE_OF_ADDED"
    else:
        rule = "MULTIPLE_OF_EXPANDED" if step % _exact(before[0]) == 0 else "MULTIPLE_OF_CHANGED"
    yield Incompatibility(
        rule,
        pointer(path, "multipleOf"),
        f"other numbers than multiples of {shown(wanted)} may have been written; keep the step, or a divisor of it",
    )


def _exact(number: float) -> Fraction:
    """The exact value of the decimal notation: 0.1 is one tenth."""
    return Fraction(number) if isinstance(number, int) else Fraction(repr(number))


def strings(reader: Node, written: facts.Written, path: str) -> Iterator[Incompatibility]:
    if "string" not in written.kinds:
        return
    yield from counts("string", reader, written, path)
    pattern = reader.get("pattern")
    if isinstance(pattern, str) and pattern not in (given := written.all_of("pattern")):
        if _fit(reader, written, "pattern"):
            return
        yield Incompatibility(
            "PATTERN_CHANGED" if given else "PATTERN_ADDED",
            pointer(path, "pattern"),
            f"strings that do not match {shown(pattern)} may have been written; keep the pattern, or leave it out",
        )
    for keyword in ("contentEncoding", "contentMediaType"):
        content = reader.get(keyword)
        if isinstance(content, str) and content not in written.all_of(keyword):
            yield Incompatibility(
                "CONTENT_CHANGED",
                pointer(path, keyword),
                f"strings that are no {shown(content)} may have been written; leave {keyword!r} as it was",
            )


def counts(kind: str, reader: Node, written: facts.Written, path: str) -> Iterator[Incompatibility]:
    """Compare the limits on lengths and on the numbers of items and properties."""
    for keyword, stem in COUNTS[kind].items():
        wanted = reader.get(keyword)
        if not isinstance(wanted, int | float):
            continue
        given = written.numbers(keyword)
        upwards = keyword.startswith("min")
        if upwards and wanted <= 0:
            continue
        if any(each >= wanted if upwards else each <= wanted for each in given) or _fit(reader, written, keyword):
            continue
        moved = "INCREASED" if upwards else "DECREASED"
        less = "less" if upwards else "more"
        yield Incompatibility(
            f"{stem}_{moved if given else 'ADDED'}",
            pointer(path, keyword),
            f"{less} than {shown(wanted)} may have been written; keep the limit as it was, or leave it out",
        )


def _fit(reader: Node, written: facts.Written, keyword: str) -> bool:
    """Whether every possible value, if these are known, satisfies one keyword of the reader."""
    if written.values is None or not isinstance(reader.raw, dict):
        return False
    excluding = f"exclusive{keyword.capitalize()}"
    alone: dict[str, Any] = {key: reader.raw[key] for key in (keyword, excluding) if key in reader.raw}
    check = compile_alone(alone, reader.draft)
    return all(check.is_valid(each) for each in written.values)
