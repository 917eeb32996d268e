"""Steps: transformations of rows between source and sink, applied in order.

Each row carries two columns: ``_origin``, if dead letters may be written, with the message that the row was made from;
and after a ``decode``, ``_corrupt``, which is null unless the message could not be read. Steps preserve both; an
``sql`` step only keeps the columns that it selects, as ``SELECT *`` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from goqueue.model.fields import did_you_mean, shown
from goqueue.spark.pipelines.definitions.keys import parse_list, unknown_key
from goqueue.spark.pipelines.running.quality import OTHERWISE, Rule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORIGIN = "_origin"
CORRUPT = "_corrupt"
CARRIED = (ORIGIN, CORRUPT)
INPUT = "input"
KEEP = "keep"
"""Value of ``otherwise`` for ``decode`` in addition to those of rules: the value is null, the error in ``_corrupt``."""
_CORRUPT_RECORD = "_corrupt_record"
_KEYS: dict[str, tuple[str, ...]] = {
    "decode": ("column", "subject", "json", "otherwise"),
    "encode": ("column", "subject"),
    "watermark": ("column", "delay"),
}
KINDS = ("decode", "select", "add", "drop", "filter", "sql", "watermark", "encode")
_ROW_PRESERVING = ("decode", "encode", "add", "drop", "filter", "watermark", "select")
_ROW_CHANGING_SQL = re.compile(
    r"\b(explode|posexplode|inline|stack|json_tuple|variant_explode"
    r"|count|sum|avg|mean|min|max|first|last|collect_\w+|\w*_agg|approx_\w+|percentile\w*)(_outer)?\s*\(",
    re.IGNORECASE,
)
"""SQL functions that generate several rows from one, or aggregate many into one."""
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
    """One step: a kind with its argument, or a function from DataFrame to DataFrame."""

    kind: str
    argument: Any

    def describe(self) -> str:
        """The step as text, for the plan."""
        if callable(self.argument):
            doc = (self.argument.__doc__ or "").strip().partition("\n")[0]
            return f"{self.argument.__name__}{f': {doc}' if doc else ''}"
        if isinstance(self.argument, Mapping):
            return f"{self.kind} " + ", ".join(f"{key} {value}" for key, value in self.argument.items())
        if isinstance(self.argument, str):
            return f"{self.kind} {self.argument}"
        return f"{self.kind} {', '.join(self.argument)}"


def parse_steps(raw: object, problems: list[str]) -> tuple[Step, ...]:
    """Parse the steps of a pipeline; problems are added to ``problems``."""
    return tuple(parse_list(raw, "steps", 'filter: "amount > 0"', _step_problems, _step, problems))


def _step_problems(raw: object) -> Iterator[str]:
    if callable(raw):
        return
    if not isinstance(raw, Mapping) or len(raw) != 1:
        yield f'{shown(raw)} is not a step; a step is one of {", ".join(KINDS)}, such as filter: "amount > 0"'
        return
    kind, argument = next(iter(raw.items()))
    if kind not in KINDS:
        yield f"{kind}: no such step{did_you_mean(str(kind), KINDS) or '; there are ' + ', '.join(KINDS)}"
    elif not _is_valid_argument(kind, argument):
        yield f"{kind}: {shown(argument)} is not what belongs there; write it like {kind}: {_EXAMPLES[kind]}"
    elif kind in _KEYS:
        yield from (f"{kind}.{unknown_key(key, _KEYS[kind])}" for key in argument if key not in _KEYS[kind])
        yield from (
            f"{kind}.{key}: {shown(value)} is not a text" for key, value in argument.items() if not _is_text(value)
        )
        if kind == "decode" and ("subject" in argument) == ("json" in argument):
            yield "decode: it has one of subject (of the registry) and json (columns with their types)"
        elif kind == "decode" and argument.get("otherwise", KEEP) not in (*OTHERWISE, KEEP):
            error_struct = shown(argument["otherwise"])
            yield f"decode.otherwise: {error_struct} is not one of {', '.join(OTHERWISE)}, {KEEP}"
        elif kind == "encode" and "subject" not in argument:
            yield "encode: subject is missing; it names the schema in the registry"
        elif kind == "watermark" and set(argument) != {"column", "delay"}:
            yield f"watermark: it has a column and a delay, like {_EXAMPLES[kind]}"


def _is_valid_argument(kind: str, argument: object) -> bool:
    if kind in _KEYS:
        return isinstance(argument, Mapping)
    if kind == "add":
        return isinstance(argument, Mapping) and bool(argument) and all(map(_is_text, argument.values()))
    if kind in ("filter", "sql"):
        return _is_text(argument)
    return _is_text(argument) or (
        isinstance(argument, list | tuple) and bool(argument) and all(map(_is_text, argument))
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _step(raw: Any) -> Step:
    if callable(raw):
        return Step("function", raw)
    kind, argument = next(iter(raw.items()))
    if kind in ("select", "drop") and isinstance(argument, str):
        argument = [argument]
    return Step(kind, argument)


def is_row_preserving(steps: Sequence[Step]) -> bool:
    """Whether each input row becomes exactly one output row, unless a ``filter`` removes it."""
    for step in steps:
        if step.kind not in _ROW_PRESERVING:
            return False
        texts = step.argument.values() if step.kind == "add" else step.argument if step.kind == "select" else ()
        if any(_ROW_CHANGING_SQL.search(text) for text in texts):
            return False
    return True


def decode_rules(steps: Sequence[Step]) -> tuple[Rule, ...]:
    """The rule for messages that cannot be decoded: that of the last ``decode``, applied to all of them."""
    last = next((step for step in reversed(steps) if step.kind == "decode"), None)
    otherwise: Any = KEEP if last is None else last.argument.get("otherwise", "dead-letter")
    if last is None or otherwise == KEEP:
        return ()
    name = f"decode {last.argument.get('column', 'value')}"
    return (Rule(name, f"{CORRUPT} IS NULL", f"{CORRUPT}.error", otherwise),)


def apply_steps(rows: DataFrame, steps: Sequence[Step], brokers: str) -> DataFrame:
    """Apply all steps to the rows."""
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
    return _decode_or_encode(rows, step, brokers)


def _sql(rows: DataFrame, query: str) -> DataFrame:
    rows.createOrReplaceTempView(INPUT)
    try:
        return rows.sparkSession.sql(query)
    finally:
        rows.sparkSession.catalog.dropTempView(INPUT)


def _decode_or_encode(rows: DataFrame, step: Step, brokers: str) -> DataFrame:
    argument = step.argument
    column = argument.get("column", "value")
    if "json" in argument:
        from pyspark.sql import functions

        text, parsed = functions.col(column).cast("string"), f"_parsed_{column}"
        schema = f"{argument['json']}, {_CORRUPT_RECORD} STRING"
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT_RECORD}
        rows = rows.withColumn(parsed, functions.from_json(text, schema, options))
        error = functions.lit(f"{column} is not JSON of the kind {argument['json']}").alias("error")
        error_struct = functions.struct(error, functions.col(column).cast("binary").alias("bytes"))
        wrong = functions.when(functions.col(parsed)[_CORRUPT_RECORD].isNotNull(), error_struct)
        if CORRUPT in rows.columns:
            wrong = functions.coalesce(CORRUPT, wrong)
        rows = rows.withColumn(CORRUPT, wrong)
        return rows.withColumn(column, functions.col(parsed).dropFields(_CORRUPT_RECORD)).drop(parsed)
    from goqueue.spark.registry import schema_columns

    if step.kind == "decode":
        return schema_columns.decoded(rows, column, argument["subject"], brokers=brokers)
    return rows.withColumn(column, schema_columns.to_registry(rows[column], argument["subject"], brokers=brokers))
