"""Conversion of rows to messages: their topic, their columns, and the format of dead letters.

Valid rows and dead letters form one DataFrame with a column ``topic``, built in one pass: a single write publishes
both, so both are written exactly once or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from goqueue.spark.pipelines.definitions.problems import InvalidPipeline
from goqueue.spark.pipelines.running import quality
from goqueue.spark.pipelines.running.steps import CORRUPT, KEEP, ORIGIN

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from goqueue.spark.pipelines.definitions.flow import Flow, Sink

VERDICT = "_verdict"
COMPLAINT = "_complaint"
INTERNAL = (ORIGIN, CORRUPT, VERDICT, COMPLAINT)
OBSERVED = "quality"
MESSAGE_COLUMNS = ("key", "value", "headers", "priority", "timestamp", "delay", "deliver_at")
_POSITION_COLUMNS = ("topic", "partition", "offset", "trace_id")
"""The position of the message that a row was read from. Not written: the new message gets a position of its own."""
ORIGIN_COLUMNS = ("key", "value", "headers", "topic", "partition", "offset", "priority")
_HEADERS = "ARRAY<STRUCT<name: STRING, value: BINARY>>"
USER_HEADERS_SQL = "filter({0}, header -> NOT startswith(header.name, 'goqueue-'))"
"""SQL that removes reserved headers, which the broker accepts from no client."""


def with_origin(rows: DataFrame) -> DataFrame:
    """Add a column with the message as read, which steps preserve, for dead letters."""
    return rows.selectExpr("*", f"struct({', '.join(ORIGIN_COLUMNS)}) AS {ORIGIN}")


def apply_rules(rows: DataFrame, rules: Sequence[quality.Rule]) -> DataFrame:
    """Add to rows the number of the rule that they violate and its error text; a ``stop`` rule fails the run."""
    from pyspark.sql import functions

    if not rules:
        return rows
    if rules[0].condition.startswith(CORRUPT) and CORRUPT not in rows.columns:
        raise InvalidPipeline(
            f"a step leaves out the column {CORRUPT}, which tells what could not be decoded; select it too, or decode "
            f"with 'otherwise: {KEEP}' and filter: \"{CORRUPT} IS NULL\""
        )
    origin_text = "''"
    if ORIGIN in rows.columns:
        origin_text = (
            f"concat(' (', {ORIGIN}.topic, ', partition ', {ORIGIN}.partition, ', offset ', {ORIGIN}.offset, ')')"
        )
    rows = rows.withColumn(VERDICT, functions.expr(quality.verdict_sql(rules)))
    # Computed here, because the error text may use columns that the message will not have.
    rows = rows.withColumn(COMPLAINT, functions.expr(quality.complaint_sql(rules, VERDICT)))
    return rows.withColumn(VERDICT, functions.expr(quality.stop_sql(rules, VERDICT, COMPLAINT, origin_text)))


def rule_counts(rules: Sequence[quality.Rule]) -> list[Column]:
    """Metrics to observe on checked rows: their number, and the number of violations per rule."""
    from pyspark.sql import functions

    broken = [functions.count_if(functions.col(VERDICT) == number) for number in range(len(rules))]
    return [functions.count("*").alias("rows"), *(each.alias(f"rule_{n}") for n, each in enumerate(broken))]


def passing_rows(rows: DataFrame, rules: Sequence[quality.Rule], dead_letters: bool) -> DataFrame:
    """The valid rows, and with ``dead_letters`` also those that become dead letters."""
    if not rules:
        return rows
    return rows.where(f"{VERDICT} IS NULL" + (f" OR {_is_dead_letter(rules)}" if dead_letters else ""))


def _is_dead_letter(rules: Sequence[quality.Rule]) -> str:
    """SQL that is true for a row that violates a ``dead-letter`` rule, of which there is at least one."""
    dead = [str(number) for number, rule in enumerate(rules) if rule.otherwise == "dead-letter"]
    return f"{VERDICT} IN ({', '.join(dead)})"


def as_messages(rows: DataFrame, sink: Sink) -> DataFrame:
    """Convert rows to the columns of the sink.

    A column ``value`` that is a struct, an array or a map becomes JSON. Without a column ``value``, all columns that
    are no message columns form the value, as a JSON object.
    """
    from pyspark.sql import functions
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType

    internal = [name for name in INTERNAL if name in rows.columns]
    fields = [name for name in rows.columns if name not in (*MESSAGE_COLUMNS, *internal)]
    if "value" in rows.columns:
        value = functions.col("value")
        if isinstance(rows.schema["value"].dataType, StructType | ArrayType | MapType):
            value = functions.to_json(value)
        if wrong := [name for name in fields if name not in _POSITION_COLUMNS]:
            raise InvalidPipeline(
                f"{', '.join(wrong[:5])}: no column of a message; there are {', '.join(MESSAGE_COLUMNS)}. "
                "Drop what is not to be written; without a column value, the others become its JSON"
            )
    elif fields:
        value = functions.to_json(functions.struct(*fields))
    else:
        raise InvalidPipeline("no column is left to make a message of; select at least one, or keep value")
    made = [functions.col(name) for name in rows.columns if name in MESSAGE_COLUMNS and name not in ("value", "key")]
    if "key" in rows.columns:
        key = functions.col("key")
        made.append(key if isinstance(rows.schema["key"].dataType, BinaryType | StringType) else key.cast("string"))
    topic = functions.lit(sink.topic) if sink.topic_from is None else functions.expr(sink.topic_from).cast("string")
    messages = rows.select(value.alias("value"), *made, topic.alias("topic"), *internal)
    if "headers" in messages.columns and isinstance(messages.schema["headers"].dataType, ArrayType):
        return messages.withColumn("headers", functions.expr(USER_HEADERS_SQL.format("headers")))
    return messages


def with_dead_letters(messages: DataFrame, flow: Flow) -> DataFrame:
    """Turn messages with a verdict into dead letters; all rows have the same columns with the same types."""
    from pyspark.sql import functions

    headers = _dead_letter_headers(messages, flow)
    has_origin = ORIGIN in messages.columns
    own = f"{ORIGIN}.value" if has_origin else "value"
    is_dead = f"{VERDICT} IS NOT NULL"

    def either(dead: str, good: str, name: str) -> Column:
        return functions.expr(f"CASE WHEN {is_dead} THEN {dead} ELSE {good} END AS {name}")

    def good(name: str, kind: str) -> str:
        return f"CAST({name} AS {kind})" if name in messages.columns else f"CAST(NULL AS {kind})"

    topic = quality.topic_sql(flow.rules, VERDICT, flow.dead_letter_topic)
    made = [
        either(f"CAST({own} AS BINARY)", "CAST(value AS BINARY)", "value"),
        either(f"CAST({ORIGIN}.key AS BINARY)" if has_origin else good("key", "BINARY"), good("key", "BINARY"), "key"),
        either(_dead_headers(has_origin, headers), _good_headers(messages), "headers"),
        either(topic, "topic", "topic"),
    ]
    if has_origin or "priority" in messages.columns:
        dead = f"{ORIGIN}.priority" if has_origin else "NULL"
        made.append(either(dead, _good_priority(messages), "priority"))
    for name, kind in (("timestamp", "TIMESTAMP"), ("deliver_at", "TIMESTAMP")):
        if name in messages.columns:
            made.append(either("NULL", good(name, kind), name))
    if "delay" in messages.columns:
        made.append(either("NULL", "delay", "delay"))
    return messages.select(*made)


def only_dead_letters(rows: DataFrame, flow: Flow) -> DataFrame:
    """The dead letters among checked rows, for a sink that is no topic; a row without an origin is written as JSON."""
    from pyspark.sql import functions

    fields = [name for name in rows.columns if name not in INTERNAL]
    row = functions.to_json(functions.struct(*fields)).alias("value")
    internal = [name for name in INTERNAL if name in rows.columns]
    chosen = rows.where(_is_dead_letter(flow.rules)).select(row, functions.lit("").alias("topic"), *internal)
    return with_dead_letters(chosen, flow)


def _dead_letter_headers(messages: DataFrame, flow: Flow) -> str:
    values = {
        quality.HEADER_PIPELINE: quality.quoted(flow.name),
        quality.HEADER_RULE: quality.rule_name_sql(flow.rules, VERDICT),
        quality.HEADER_ERROR: COMPLAINT,
    }
    if ORIGIN in messages.columns:
        values |= {
            quality.HEADER_TOPIC: f"{ORIGIN}.topic",
            quality.HEADER_PARTITION: f"CAST({ORIGIN}.partition AS STRING)",
            quality.HEADER_OFFSET: f"CAST({ORIGIN}.offset AS STRING)",
        }
    headers = [
        f"named_struct('name', {quality.quoted(name)}, 'value', CAST({value} AS BINARY))"
        for name, value in values.items()
    ]
    return f"array({', '.join(headers)})"


def _dead_headers(has_origin: bool, headers: str) -> str:
    if not has_origin:
        return f"CAST({headers} AS {_HEADERS})"
    before = USER_HEADERS_SQL.format(f"coalesce({ORIGIN}.headers, array())")
    return f"CAST(concat({before}, {headers}) AS {_HEADERS})"


def _good_headers(messages: DataFrame) -> str:
    if "headers" not in messages.columns:
        return f"CAST(array() AS {_HEADERS})"
    from pyspark.sql.types import MapType

    if isinstance(messages.schema["headers"].dataType, MapType):
        pairs = "named_struct('name', CAST(pair.key AS STRING), 'value', CAST(pair.value AS BINARY))"
        return f"CAST(transform(map_entries(headers), pair -> {pairs}) AS {_HEADERS})"
    return f"CAST(headers AS {_HEADERS})"


def _good_priority(messages: DataFrame) -> str:
    if "priority" not in messages.columns:
        return "CAST(NULL AS INT)"
    from pyspark.sql.types import StringType

    if isinstance(messages.schema["priority"].dataType, StringType):
        names = "array('critical', 'high', 'normal', 'low', 'background')"
        return f"CAST(array_position({names}, lower(priority)) - 1 AS INT)"
    return "CAST(priority AS INT)"
