"""Quality rules: a condition that each row must meet, and what happens to a row that does not.

Rules are compiled to SQL, so the JVM checks them without a detour through Python. A null passes every rule except
``not_null``, as with a CHECK in SQL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from goqueue.model.errors import GoQueueError
from goqueue.model.fields import did_you_mean, shown
from goqueue.model.names import check_topic_name
from goqueue.spark.pipelines.definitions.keys import parse_list, unknown_key

Otherwise = Literal["drop", "dead-letter", "stop"]
KINDS = ("not_null", "range", "regex", "expression")
OTHERWISE: tuple[Otherwise, ...] = ("drop", "dead-letter", "stop")
_KEYS = {
    "not_null": ("not_null",),
    "range": ("range", "min", "max"),
    "regex": ("regex", "pattern"),
    "expression": ("expression",),
}
_COMMON = ("otherwise", "name", "topic")

HEADER_PIPELINE = "pipeline"
HEADER_RULE = "pipeline-rule"
HEADER_ERROR = "pipeline-error"
HEADER_TOPIC = "pipeline-origin-topic"
HEADER_PARTITION = "pipeline-origin-partition"
HEADER_OFFSET = "pipeline-origin-offset"
STOP_MARK = "goqueue-rule-broken: "
"""Marks the message of a rule that stops the run, to find it inside Spark's error text."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A quality rule. ``condition`` is SQL that is true for a valid row; ``complaint`` is SQL of the error text."""

    name: str
    condition: str
    complaint: str
    otherwise: Otherwise
    topic: str | None = None
    """The topic of its dead letters; None: the pipeline's dead-letter topic."""


def parse_rules(raw: object, problems: list[str]) -> tuple[Rule, ...]:
    """Parse the rules of a pipeline; problems are added to ``problems``."""
    rules = parse_list(raw, "quality", "{not_null: amount, otherwise: drop}", _rule_problems, _rule, problems)
    names = [rule.name for rule in rules]
    problems += [
        f"quality: two rules are called {shown(name)}; give one a name of its own, 'name: …'"
        for name in sorted({name for name in names if names.count(name) > 1})
    ]
    return tuple(rules)


def _rule_problems(raw: object) -> Iterator[str]:
    if not isinstance(raw, Mapping):
        yield f"{shown(raw)} is not a rule; write {{not_null: amount, otherwise: drop}}"
        return
    kinds = [kind for kind in KINDS if kind in raw]
    if len(kinds) != 1:
        guess = next((did_you_mean(str(key), KINDS) for key in raw if key not in _COMMON), "")
        yield f"a rule has one of {', '.join(KINDS)}; this one has {' and '.join(kinds) or 'none'}{guess}"
        return
    kind = kinds[0]
    yield from (unknown_key(key, (*_KEYS[kind], *_COMMON)) for key in raw if key not in (*_KEYS[kind], *_COMMON))
    if not isinstance(raw[kind], str) or not raw[kind].strip():
        what = "SQL that is true for a good row" if kind == "expression" else "the name of a column"
        yield f"{kind}: {shown(raw[kind])} is not {what}"
    if raw.get("otherwise") not in OTHERWISE:
        given = f"it is {shown(raw['otherwise'])}" if "otherwise" in raw else "it is missing"
        yield f"otherwise: {given}; it says what becomes of a row that breaks the rule: {', '.join(OTHERWISE)}"
    if kind == "range":
        yield from _range_problems(raw)
    if kind == "regex" and (not isinstance(raw.get("pattern"), str) or not raw["pattern"]):
        yield "pattern: it is missing; write a regular expression such as '^[a-z]+$'"
    if "topic" in raw and raw.get("otherwise") != "dead-letter":
        yield "topic: only a rule with 'otherwise: dead-letter' has one"
    for key in ("name", "topic"):
        if key in raw and (not isinstance(raw[key], str) or not raw[key]):
            yield f"{key}: {shown(raw[key])} is not a name"
        elif key == "topic" and key in raw:
            try:
                check_topic_name(raw[key])
            except GoQueueError as error:
                yield f"{key}: {error}"


def _range_problems(raw: Mapping[str, Any]) -> Iterator[str]:
    bounds = [raw[key] for key in ("min", "max") if raw.get(key) is not None]
    if not bounds:
        yield "a range has min, max or both"
    wrong = [each for each in bounds if isinstance(each, bool) or not isinstance(each, int | float | str)]
    yield from (f"{shown(each)} is neither a number nor a text" for each in wrong)
    if len(bounds) == 2 and not wrong and type(bounds[0]) is type(bounds[1]) and bounds[0] > bounds[1]:
        yield f"min is {shown(bounds[0])} and max is {shown(bounds[1])}; min must not be more than max"


def _rule(raw: Mapping[str, Any]) -> Rule:
    kind = next(kind for kind in KINDS if kind in raw)
    of = str(raw[kind]).strip()
    value = f"coalesce(left(CAST({of} AS STRING), 100), 'null')"
    if kind == "not_null":
        condition, complaint = f"({of}) IS NOT NULL", quoted(f"{of} is null")
    elif kind == "range":
        low, high = raw.get("min"), raw.get("max")
        parts = [f"({of}) >= {_literal(low)}"] if low is not None else []
        parts += [f"({of}) <= {_literal(high)}"] if high is not None else []
        condition = " AND ".join(parts)
        bounds = f"{low if low is not None else ''}..{high if high is not None else ''}"
        complaint = f"concat({quoted(f'{of} is not within {bounds}: ')}, {value})"
    elif kind == "regex":
        condition = f"CAST({of} AS STRING) RLIKE {quoted(raw['pattern'])}"
        message = f"{of} does not match {raw['pattern']}: "
        complaint = f"concat({quoted(message)}, {value})"
    else:
        condition, complaint = f"({of})", quoted(f"this does not hold: {of}")
    return Rule(raw.get("name") or f"{kind} {of}", condition, complaint, raw["otherwise"], raw.get("topic"))


def verdict_sql(rules: Sequence[Rule]) -> str:
    """SQL of the number of the first rule that a row violates, null for a valid row."""
    cases = " ".join(f"WHEN NOT coalesce({rule.condition}, true) THEN {number}" for number, rule in enumerate(rules))
    return f"CASE {cases} END"


def complaint_sql(rules: Sequence[Rule], verdict: str) -> str:
    """SQL of the error text of a row whose verdict is in the column ``verdict``."""
    return _by_rule(verdict, [rule.complaint for rule in rules])


def rule_name_sql(rules: Sequence[Rule], verdict: str) -> str:
    return _by_rule(verdict, [quoted(rule.name) for rule in rules])


def topic_sql(rules: Sequence[Rule], verdict: str, default: str) -> str:
    """SQL of the topic of a dead letter."""
    return _by_rule(verdict, [quoted(rule.topic or default) for rule in rules])


def stop_sql(rules: Sequence[Rule], verdict: str, complaint: str, place: str) -> str:
    """SQL that fails the batch for a row that violates a ``stop`` rule, and is the verdict for every other row.

    ``complaint`` is SQL of the error text, ``place`` is SQL of a text that names the origin of the row.
    """
    stopping = [number for number, rule in enumerate(rules) if rule.otherwise == "stop"]
    if not stopping:
        return verdict
    message = f"concat({quoted(STOP_MARK)}, {rule_name_sql(rules, verdict)}, ': ', {complaint}, {place})"
    numbers = ", ".join(map(str, stopping))
    return f"CASE WHEN {verdict} IN ({numbers}) THEN CAST(raise_error({message}) AS INT) ELSE {verdict} END"


def quoted(text: str) -> str:
    """A text as a Spark SQL literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _literal(value: object) -> str:
    return quoted(value) if isinstance(value, str) else repr(value)


def _by_rule(verdict: str, texts: Sequence[str]) -> str:
    cases = " ".join(f"WHEN {number} THEN {text}" for number, text in enumerate(texts))
    return f"CASE {verdict} {cases} END"
