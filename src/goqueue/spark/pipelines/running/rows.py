"""From rows to messages: where each goes, and what a dead letter looks like.

Good rows and dead letters are one DataFrame with a column ``topic``, made in one pass: one write publishes both,
so both are there exactly once or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from goqueue.spark.pipelines.definitions.problems import InvalidPipeline
from goqueue.spark.pipelines.running.quality import (
    HEADER_ERROR,
    HEADER_OFFSET,
    HEADER_PARTITION,
    HEADER_PIPELINE,
    HEADER_RULE,
    HEADER_TOPIC,
    Rule,
    complaint_sql,
    quoted,
    rule_name_sql,
    stop_sql,
    topic_sql,
    verdict_sql,
)
from goqueue.spark.pipelines.running.steps import CORRUPT, KEEP, ORIGIN

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from goqueue.spark.pipelines.definitions.flow import Flow, Sink

VERDICT = "_verdict"
COMPLAINT = "_complaint"
INTERNAL = (ORIGIN, CORRUPT, VERDICT, COMPLAINT)
OBSERVED = "quality"
MESSAGE_COLUMNS = ("key", "value", "headers", "priority", "timestamp", "delay", "deliver_at")
_PLACE = ("topic", "partition", "offset", "trace_id")
"""These tell where a message came from. They are not written with it: it gets a place of its own."""
ORIGIN_COLUMNS = ("key", "value", "headers", "topic", "partition", "offset", "priority")
_HEADERS = "ARRAY<STRUCT<name: STRING, value: BINARY>>"
NOT_OURS = "filter({0}, header -> NOT startswith(header.name, 'goqueue-'))"
"""Names that begin so belong to the broker, which refuses them from others."""


def with_origin(rows: DataFrame) -> DataFrame:
    """Messages with a column that steps leave alone: what was read, for a dead letter."""
    from pyspark.sql import functions

    return rows.withColumn(ORIGIN, functions.struct(*ORIGIN_COLUMNS))


def judged(rows: DataFrame, rules: Sequence[Rule]) -> DataFrame:
    """Rows with the number of the rule that they break and what is wrong; one whose rule says stop fails the run."""
    from pyspark.sql import functions

    if not rules:
        return rows
    if rules[0].condition.startswith(CORRUPT) and CORRUPT not in rows.columns:
        raise InvalidPipeline(
            f"a step leaves out the column {CORRUPT}, which tells what could not be decoded; select it too, or decode "
            f"with 'otherwise: {KEEP}' and filter: \"{CORRUPT} IS NULL\""
        )
    place = "''"
    if ORIGIN in rows.columns:
        place = f"concat(' (', {ORIGIN}.topic, ', partition ', {ORIGIN}.partition, ', offset ', {ORIGIN}.offset, ')')"
    rows = rows.withColumn(VERDICT, functions.expr(verdict_sql(rules)))
    # Here, because what it tells of may be no column of the message.
    rows = rows.withColumn(COMPLAINT, functions.expr(complaint_sql(rules, VERDICT)))
    return rows.withColumn(VERDICT, functions.expr(stop_sql(rules, VERDICT, COMPLAINT, place)))


def counts(rules: Sequence[Rule]) -> list[Column]:
    """What is to be observed of judged rows: how many there are, and how many break each rule."""
    from pyspark.sql import functions

    broken = [functions.count_if(functions.col(VERDICT) == number) for number in range(len(rules))]
    return [functions.count("*").alias("rows"), *(each.alias(f"rule_{n}") for n, each in enumerate(broken))]


def kept(rows: DataFrame, rules: Sequence[Rule], dead_letters: bool) -> DataFrame:
    """Judged rows that go on: the good ones, and with ``dead_letters`` those that become one."""
    from pyspark.sql import functions

    verdict = functions.col(VERDICT)
    dead = [number for number, rule in enumerate(rules) if rule.otherwise == "dead-letter"]
    if dead_letters and dead:
        return rows.where(verdict.isNull() | verdict.isin(dead))
    return rows.where(verdict.isNull())


def as_messages(rows: DataFrame, sink: Sink) -> DataFrame:
    """Rows as the sink takes them.

    A column ``value`` that is a struct, an array or a map becomes JSON. Without one, all columns that are no part of
    a message are its value, as a JSON object.
    """
    from pyspark.sql import functions
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType

    internal = [name for name in INTERNAL if name in rows.columns]
    fields = [name for name in rows.columns if name not in (*MESSAGE_COLUMNS, *internal)]
    if "value" in rows.columns:
        value = functions.col("value")
        if isinstance(rows.schema["value"].dataType, StructType | ArrayType | MapType):
            value = functions.to_json(value)
        if wrong := [name for name in fields if name not in _PLACE]:
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
        return messages.withColumn("headers", functions.expr(NOT_OURS.format("headers")))
    return messages


def with_dead_letters(messages: DataFrame, flow: Flow) -> DataFrame:
    """Messages where those with a verdict are dead letters; all have the same columns, with the same types."""
    from pyspark.sql import functions

    told = _told(messages, flow)
    has_origin = ORIGIN in messages.columns
    own = f"{ORIGIN}.value" if has_origin else "value"
    is_dead = f"{VERDICT} IS NOT NULL"

    def either(dead: str, good: str, name: str) -> Column:
        return functions.expr(f"CASE WHEN {is_dead} THEN {dead} ELSE {good} END AS {name}")

    def good(name: str, kind: str) -> str:
        return f"CAST({name} AS {kind})" if name in messages.columns else f"CAST(NULL AS {kind})"

    topic = topic_sql(flow.rules, VERDICT, flow.dead_letter_topic)
    made = [
        either(f"CAST({own} AS BINARY)", "CAST(value AS BINARY)", "value"),
        either(f"CAST({ORIGIN}.key AS BINARY)" if has_origin else good("key", "BINARY"), good("key", "BINARY"), "key"),
        either(_dead_headers(has_origin, told), _good_headers(messages), "headers"),
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
    """The dead letters of judged rows, for a sink that is no topic; without an origin, a row is told as JSON."""
    from pyspark.sql import functions

    dead = [number for number, rule in enumerate(flow.rules) if rule.otherwise == "dead-letter"]
    fields = [name for name in rows.columns if name not in INTERNAL]
    row = functions.to_json(functions.struct(*fields)).alias("value")
    internal = [name for name in INTERNAL if name in rows.columns]
    chosen = rows.where(functions.col(VERDICT).isin(dead)).select(row, functions.lit("").alias("topic"), *internal)
    return with_dead_letters(chosen, flow)


def _told(messages: DataFrame, flow: Flow) -> str:
    told = {
        HEADER_PIPELINE: quoted(flow.name),
        HEADER_RULE: rule_name_sql(flow.rules, VERDICT),
        HEADER_ERROR: COMPLAINT,
    }
    if ORIGIN in messages.columns:
        told |= {
            HEADER_TOPIC: f"{ORIGIN}.topic",
            HEADER_PARTITION: f"CAST({ORIGIN}.partition AS STRING)",
            HEADER_OFFSET: f"CAST({ORIGIN}.offset AS STRING)",
        }
    headers = [
        f"named_struct('name', {quoted(name)}, 'value', CAST({value} AS BINARY))" for name, value in told.items()
    ]
    return f"array({', '.join(headers)})"


def _dead_headers(has_origin: bool, told: str) -> str:
    if not has_origin:
        return f"CAST({told} AS {_HEADERS})"
    before = NOT_OURS.format(f"coalesce({ORIGIN}.headers, array())")
    return f"CAST(concat({before}, {told}) AS {_HEADERS})"


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
