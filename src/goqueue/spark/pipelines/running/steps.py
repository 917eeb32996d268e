"""Steps: what is done to the rows between the source and the sink, one after the other.

Two columns travel with each row: ``_origin``, where dead letters may be written, the message that the row was made of;
and after a ``decode``, ``_corrupt``, which is null unless the message could not be read. Steps keep them; an ``sql``
step keeps what it selects, as ``SELECT *`` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from goqueue.model.fields import did_you_mean, shown
from goqueue.spark.pipelines.definitions.keys import parsed_list, unknown_key
from goqueue.spark.pipelines.running.quality import OTHERWISE, Rule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORIGIN = "_origin"
CORRUPT = "_corrupt"
CARRIED = (ORIGIN, CORRUPT)
INPUT = "input"
KEEP = "keep"
"""What ``decode`` may do with what it cannot read, beside what rules may do: leave a null, and tell in ``_corrupt``."""
_CORRUPT_RECORD = "_corrupt_record"
_KEYS: dict[str, tuple[str, ...]] = {
    "decode": ("column", "subject", "json", "otherwise"),
    "encode": ("column", "subject"),
    "watermark": ("column", "delay"),
}
KINDS = ("decode", "select", "add", "drop", "filter", "sql", "watermark", "encode")
_ONE_FOR_ONE = ("decode", "encode", "add", "drop", "filter", "watermark", "select")
_NOT_ONE_FOR_ONE = re.compile(
    r"\b(explode|posexplode|inline|stack|json_tuple|variant_explode"
    r"|count|sum|avg|mean|min|max|first|last|collect_\w+|\w*_agg|approx_\w+|percentile\w*)(_outer)?\s*\(",
    re.IGNORECASE,
)
"""Functions of SQL that make several rows of one, or one of many."""
_EXAMPLES = {
    "decode": "{column: value, subject: orders-value} or {column: value, json: 'amount DOUBLE'}",
    "encode": "{column: value, subject: orders-value}",
    "watermark": "{column: timestamp, delay: 10 minutes}",
    "select": '["key", "value.amount AS amount"]',
    "add": "{day: to_date(timestamp)}",
    "drop": '["headers"]',
    "filter": '"amount > 0"',
    "sql": '"SELECT … FROM input"',
}


@dataclass(frozen=True, slots=True)
class Step:
    """One step: a kind and what is written behind it, or a function from rows to rows."""

    kind: str
    argument: Any

    def described(self) -> str:
        """In words, for the plan."""
        if callable(self.argument):
            doc = (self.argument.__doc__ or "").strip().partition("\n")[0]
            return f"{self.argument.__name__}{f': {doc}' if doc else ''}"
        if isinstance(self.argument, Mapping):
            return f"{self.kind} " + ", ".join(f"{key} {value}" for key, value in self.argument.items())
        if isinstance(self.argument, str):
            return f"{self.kind} {self.argument}"
        return f"{self.kind} {', '.join(self.argument)}"


def parse_steps(raw: object, problems: list[str]) -> tuple[Step, ...]:
    """The steps of a pipeline; what is wrong with them is added to ``problems``."""
    return tuple(parsed_list(raw, "steps", 'filter: "amount > 0"', _complaints, _step, problems))


def _complaints(raw: object) -> Iterator[str]:
    if callable(raw):
        return
    if not isinstance(raw, Mapping) or len(raw) != 1:
        yield f'{shown(raw)} is not a step; a step is one of {", ".join(KINDS)}, such as filter: "amount > 0"'
        return
    kind, argument = next(iter(raw.items()))
    if kind not in KINDS:
        yield f"{kind}: no such step{did_you_mean(str(kind), KINDS) or '; there are ' + ', '.join(KINDS)}"
    elif not _fits(kind, argument):
        yield f"{kind}: {shown(argument)} is not what belongs there; write it like {kind}: {_EXAMPLES[kind]}"
    elif kind in _KEYS:
        yield from (f"{kind}.{unknown_key(key, _KEYS[kind])}" for key in argument if key not in _KEYS[kind])
        yield from (
            f"{kind}.{key}: {shown(value)} is not a text" for key, value in argument.items() if not _text(value)
        )
        if kind == "decode" and ("subject" in argument) == ("json" in argument):
            yield "decode: it has one of subject (of the registry) and json (columns with their types)"
        elif kind == "decode" and argument.get("otherwise", KEEP) not in (*OTHERWISE, KEEP):
            told = shown(argument["otherwise"])
            yield f"decode.otherwise: {told} is not one of {', '.join(OTHERWISE)}, {KEEP}"
        elif kind == "encode" and "subject" not in argument:
            yield "encode: subject is missing; it names the schema in the registry"
        elif kind == "watermark" and set(argument) != {"column", "delay"}:
            yield f"watermark: it has a column and a delay, like {_EXAMPLES[kind]}"


def _fits(kind: str, argument: object) -> bool:
    if kind in _KEYS:
        return isinstance(argument, Mapping)
    if kind == "add":
        return isinstance(argument, Mapping) and bool(argument) and all(map(_text, argument.values()))
    if kind in ("filter", "sql"):
        return _text(argument)
    return _text(argument) or (isinstance(argument, list | tuple) and bool(argument) and all(map(_text, argument)))


def _text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _step(raw: Any) -> Step:
    if callable(raw):
        return Step("function", raw)
    kind, argument = next(iter(raw.items()))
    if kind in ("select", "drop") and isinstance(argument, str):
        argument = [argument]
    return Step(kind, argument)


def keep_each_row(steps: Sequence[Step]) -> bool:
    """Whether every row that a step takes is one row behind it, unless a ``filter`` leaves it out."""
    for step in steps:
        if step.kind not in _ONE_FOR_ONE:
            return False
        texts = step.argument.values() if step.kind == "add" else step.argument if step.kind == "select" else ()
        if any(_NOT_ONE_FOR_ONE.search(text) for text in texts):
            return False
    return True


def decode_rules(steps: Sequence[Step]) -> tuple[Rule, ...]:
    """What becomes of messages that cannot be read: the rule of the last ``decode``, for all of them."""
    last = next((step for step in reversed(steps) if step.kind == "decode"), None)
    otherwise: Any = KEEP if last is None else last.argument.get("otherwise", "dead-letter")
    if last is None or otherwise == KEEP:
        return ()
    name = f"decode {last.argument.get('column', 'value')}"
    return (Rule(name, f"{CORRUPT} IS NULL", f"{CORRUPT}.error", otherwise),)


def apply_steps(rows: DataFrame, steps: Sequence[Step], brokers: str) -> DataFrame:
    """The rows after all steps."""
    for step in steps:
        rows = _apply(rows, step, brokers)
    return rows


def _apply(rows: DataFrame, step: Step, brokers: str) -> DataFrame:
    argument = step.argument
    if step.kind == "function":
        made: DataFrame = argument(rows)
        return made
    if step.kind == "select":
        return rows.selectExpr(*argument, *(name for name in CARRIED if name in rows.columns))
    if step.kind == "add":
        from pyspark.sql import functions

        for name, expression in argument.items():
            rows = rows.withColumn(name, functions.expr(expression))
        return rows
    if step.kind == "drop":
        return rows.drop(*argument)
    if step.kind == "filter":
        return rows.where(argument)
    if step.kind == "sql":
        return _sql(rows, argument)
    if step.kind == "watermark":
        return rows.withWatermark(argument["column"], argument["delay"])
    return _coded(rows, step, brokers)


def _sql(rows: DataFrame, query: str) -> DataFrame:
    rows.createOrReplaceTempView(INPUT)
    try:
        return rows.sparkSession.sql(query)
    finally:
        rows.sparkSession.catalog.dropTempView(INPUT)


def _coded(rows: DataFrame, step: Step, brokers: str) -> DataFrame:
    argument = step.argument
    column = argument.get("column", "value")
    if "json" in argument:
        from pyspark.sql import functions

        text, parsed = functions.col(column).cast("string"), f"_parsed_{column}"
        schema = f"{argument['json']}, {_CORRUPT_RECORD} STRING"
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT_RECORD}
        rows = rows.withColumn(parsed, functions.from_json(text, schema, options))
        error = functions.lit(f"{column} is not JSON of the kind {argument['json']}").alias("error")
        told = functions.struct(error, functions.col(column).cast("binary").alias("bytes"))
        wrong = functions.when(functions.col(parsed)[_CORRUPT_RECORD].isNotNull(), told)
        if CORRUPT in rows.columns:
            wrong = functions.coalesce(CORRUPT, wrong)
        rows = rows.withColumn(CORRUPT, wrong)
        return rows.withColumn(column, functions.col(parsed).dropFields(_CORRUPT_RECORD)).drop(parsed)
    from goqueue.spark.registry import schema_columns

    if step.kind == "decode":
        return schema_columns.decoded(rows, column, argument["subject"], brokers=brokers)
    return schema_columns.encoded(rows, column, argument["subject"], brokers=brokers)
