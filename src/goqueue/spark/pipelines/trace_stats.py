"""``trace-stats``: publish-to-ack latency by topic, group and hour, from trace files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from goqueue.model.names import check_group_name, check_topic_name
from goqueue.model.units import counted, parse_instant_ns
from goqueue.observe.trace_event import ACK, COMMITTED, PUBLISH
from goqueue.spark.pipelines.analysis.latencies import Ranges, latencies, round_to_digits
from goqueue.spark.pipelines.analysis.offset_blocks import BLOCK_BITS
from goqueue.spark.pipelines.analysis.trace_runs import COPIED, read_traces, trace_files
from goqueue.spark.pipelines.definitions.checks import file_problems, name_problems, raise_problems, time_problems
from goqueue.spark.pipelines.definitions.definition import Pipeline
from goqueue.spark.pipelines.definitions.problems import InvalidPipeline
from goqueue.spark.pipelines.definitions.settings import Setting, Settings
from goqueue.spark.pipelines.running.context import Context
from goqueue.spark.pipelines.running.progress import Progress
from goqueue.spark.pipelines.running.summary import Summary, Table
from goqueue.wire.trace_context import derived_trace_id

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_NANOS_PER_HOUR = 3_600 * 10**9
_NANOS_PER_MS = 1_000_000
_CHARTS = (".png", ".svg")
_MAX_PUBLISHED_TOGETHER = 3
"""Limit of slowest messages shown that were published together: they tend to be slow for the same reason."""
_SLOWEST = ["topic", "partition", "offset", "group", "published", "took ms", "messages", "trace"]
_PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_COLUMNS = ["topic", "group", "hour", "messages", "p50 ms", "p95 ms", "p99 ms", "max ms"]
_SCHEMA = (
    "topic STRING, `group` STRING, partition INT, first BIGINT, count BIGINT, "
    "begun_at BIGINT, latency_ns BIGINT, rounded_ns BIGINT, hour BIGINT"
)


def run(context: Context) -> Summary:
    settings = context.settings
    raise_problems(_problems(settings))
    files = trace_files(settings["path"])
    if not files:
        return Summary(numbers={"trace files": 0}, notes=[_no_files(settings["path"])])
    context.tell(Progress(0, doing=f"reading {counted(len(files), 'trace file')}"))
    events = read_traces(context.spark, files, [PUBLISH, COPIED, ACK, COMMITTED], settings["topics"])
    every = message_latencies(events)
    found = filter_latencies(every, settings["groups"], settings["since"], settings["until"]).persist()
    try:
        by_hour, overall = table_rows(percentiles(found).collect())
        worst = slowest(found, settings["slowest"])
    finally:
        found.unpersist()
    summary = Summary(
        numbers={"trace files": len(files), "messages acked": sum(row[2] for row in overall)},
        tables=[
            Table("publish to ack", [name for name in _COLUMNS if name != "hour"], overall),
            Table("publish to ack, by the hour of publishing (UTC)", _COLUMNS, by_hour),
            Table("the slowest", _SLOWEST, worst),
        ],
    )
    if settings["chart"]:
        from goqueue.spark.pipelines.analysis.chart import draw

        chart = str(Path(settings["chart"]).absolute())
        draw(chart, by_hour)
        summary.files.append(chart)
    if not overall:
        summary.notes.append("These traces tell of no message that was acked and is asked about.")
    return summary


def message_latencies(events: DataFrame) -> DataFrame:
    """Compute latencies from events: one row per run of messages with the same times, however long the run."""
    # A commit without a group is a transaction's: it acks no message.
    relevant = events.where(events["event"].isin(PUBLISH, COPIED) | (events["group"] != ""))
    return relevant.groupBy("topic", "partition", "block").applyInArrow(_block_latencies, _SCHEMA)


def filter_latencies(
    found: DataFrame, groups: Sequence[str] | None = None, since: str | None = None, until: str | None = None
) -> DataFrame:
    """Filter by groups, and by publishing time from ``since`` to before ``until``."""
    if groups:
        found = found.where(found["group"].isin(*groups))
    if since:
        found = found.where(found["begun_at"] >= parse_instant_ns(since))
    if until:
        found = found.where(found["begun_at"] < parse_instant_ns(until))
    return found


def percentiles(found: DataFrame) -> DataFrame:
    """Percentiles per topic, group and hour, and a row with a null hour for each topic and group in total."""
    from pyspark.sql import functions

    shares = ", ".join(map(str, _PERCENTILES.values()))
    return (
        found.rollup("topic", "group", "hour")
        .agg(
            functions.sum("count").alias("messages"),
            functions.expr(f"percentile(rounded_ns, array({shares}), count)").alias("percentiles"),
            functions.max("latency_ns").alias("max_ns"),
        )
        .where("`group` IS NOT NULL")
        .orderBy("topic", "group", "hour")
    )


def slowest(found: DataFrame, count: int) -> list[list[Any]]:
    """The messages with the highest latency, each with the trace id for ``goqueue trace``.

    Messages published together and acked together are one row, with the first message and their number; of messages
    published together only a few rows are listed.
    """
    from pyspark.sql import Window, functions

    published = ["topic", "partition", "group", "begun_at"]
    together = found.groupBy(*published, "latency_ns").agg(
        functions.min("first").alias("first"), functions.sum("count").alias("count")
    )
    slowest_first = Window.partitionBy(*published).orderBy(functions.desc("latency_ns"))
    runs = (
        together.withColumn("rank", functions.row_number().over(slowest_first))
        .where(functions.col("rank") <= _MAX_PUBLISHED_TOGETHER)
        .orderBy(functions.desc("latency_ns"), "topic", "partition", "first", "group")
        .limit(count)
    )
    return [_slowest_row(run) for run in runs.collect()]


def _slowest_row(run: Any) -> list[Any]:
    trace = derived_trace_id(run["topic"], run["partition"], run["first"])
    position = [run["topic"], run["partition"], run["first"], run["group"]]
    return [*position, _instant(run["begun_at"]), _ms(run["latency_ns"]), run["count"], trace]


def table_rows(rows: Sequence[Any]) -> tuple[list[list[Any]], list[list[Any]]]:
    """Convert the rows of ``percentiles`` to table rows: by hour, and totals over all hours."""
    by_hour: list[list[Any]] = []
    overall: list[list[Any]] = []
    for row in rows:
        numbers = [row["messages"], *(_ms(each) for each in (*row["percentiles"], row["max_ns"]))]
        if row["hour"] is None:
            overall.append([row["topic"], row["group"], *numbers])
        else:
            hour = datetime.fromtimestamp(row["hour"] * 3_600, UTC).strftime("%Y-%m-%d %H:00")
            by_hour.append([row["topic"], row["group"], hour, *numbers])
    return by_hour, overall


def _block_latencies(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
    import pyarrow as pa

    topic, partition, block = (each.as_py() for each in key)
    numbers = {name: table.column(name).to_numpy() for name in ("first", "end", "at", "seq")}
    events = np.array(table.column("event").to_pylist(), object)
    ranges = Ranges(
        **numbers,
        is_begin=(events == PUBLISH) | (events == COPIED),
        group=np.array(table.column("group").to_pylist(), object),
    )
    found = latencies(ranges, block << BLOCK_BITS)
    rows = len(found.first)
    return pa.table(
        {
            "topic": pa.array([topic] * rows, pa.string()),
            "group": pa.array(found.group, pa.string()),
            "partition": pa.array([partition] * rows, pa.int32()),
            "first": found.first,
            "count": found.size,
            "begun_at": found.begun_at,
            "latency_ns": found.latency_ns,
            "rounded_ns": round_to_digits(found.latency_ns),
            "hour": found.begun_at // _NANOS_PER_HOUR,
        }
    )


def _ms(nanoseconds: float) -> float:
    return round(nanoseconds / _NANOS_PER_MS, 3)


def _instant(nanoseconds: int) -> str:
    return datetime.fromtimestamp(nanoseconds / 10**9, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _no_files(path: str) -> str:
    return f"There are no trace files in {Path(path).absolute()}, neither in itself nor in its folder traces."


def _problems(settings: Settings) -> Iterator[str]:
    try:
        trace_files(settings["path"])
    except InvalidPipeline as error:
        yield str(error)
    yield from name_problems(settings, "topics", check_topic_name)
    yield from name_problems(settings, "groups", check_group_name)
    yield from time_problems(settings)
    chart = settings["chart"]
    if chart and not chart.lower().endswith(_CHARTS):
        yield f"chart: {chart} ends with neither of {' and '.join(_CHARTS)}, by which its kind is known"
    elif chart:
        yield from file_problems("chart", chart)


def plan(settings: Settings) -> dict[str, str]:
    raise_problems(_problems(settings))
    files, slow = trace_files(settings["path"]), settings["slowest"]
    found = f"{counted(len(files), 'trace file')} in {Path(files[0]).parent}, a task for each" if files else ""
    return {
        "source": found or _no_files(settings["path"]),
        "of": f"topics {settings.formatted('topics') or 'all'}, groups {settings.formatted('groups') or 'all'}",
        "result": f"p50, p95, p99 and max by topic, group and hour; the {counted(slow, 'slowest message')}",
        "chart": str(Path(settings["chart"]).absolute()) if settings["chart"] else "none",
    }


PIPELINE = Pipeline(
    name="trace-stats",
    summary="Publish-to-ack latency by topic, group and hour from trace files, the slowest messages, and a chart.",
    run=run,
    plan=plan,
    settings=[
        Setting("path", "The broker's data folder, or a folder of trace files copied from it.", required=True),
        Setting("topics", "Only these topics.", "names"),
        Setting("groups", "Only these groups.", "names"),
        Setting("since", "Only what was published at this instant or later.", "instant"),
        Setting("until", "Only what was published before this instant.", "instant"),
        Setting("slowest", "How many of the slowest messages to list.", "number", default=10, maximum=10_000),
        Setting("chart", "Where to draw a chart; the name ends with .png or .svg."),
    ],
)
