"""``rollup``: counts, sums and percentiles of a topic's messages in time windows, to a topic, to a table, or both.

All of it runs in the JVM. A window is written once, when the watermark has passed its end; until then it is kept in
the checkpoint, also between runs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from goqueue.model.units import counted, format_duration_ms
from goqueue.spark.pipelines.definitions.checks import check_names
from goqueue.spark.pipelines.definitions.definition import Pipeline
from goqueue.spark.pipelines.definitions.flow import trigger_problem
from goqueue.spark.pipelines.definitions.problems import InvalidPipeline
from goqueue.spark.pipelines.definitions.settings import Setting, Settings
from goqueue.spark.pipelines.running.context import Context
from goqueue.spark.pipelines.running.quality import quoted
from goqueue.spark.pipelines.running.streaming import AVAILABLE_NOW, run_queries
from goqueue.spark.pipelines.running.summary import Summary

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_KEY = "key"
_PATH = re.compile(r"\$(\.[A-Za-z_][A-Za-z0-9_]*|\[\d+\])+")
_OBSERVED = "rollup"
_WRITTEN = "windows"
_DAY_MS = 86_400_000
_WITH_NULLS = "map('ignoreNullFields', 'false')"


def run(context: Context) -> Summary:
    """Run one query per target of the windows."""
    settings = context.settings
    check(settings)
    context.claim()
    # Before Spark starts, so that an unreachable broker or a missing topic is reported at once.
    partitions = context.partitions_of(settings["topic"])
    if settings["to"] is not None:
        context.make_topics([settings["to"]], partitions)
    writers = []
    if settings["to"] is not None:
        windows = _windows(context)
        message = windows.selectExpr(f"{key_sql(settings)} AS key", f"to_json(struct(*), {_WITH_NULLS}) AS value")
        checkpoint = f"{context.checkpoint}/topic"
        writers.append((context.write_stream(message, topic=settings["to"]).outputMode("append"), checkpoint))
    if settings["table"] is not None:
        from pyspark.sql import functions

        rows = _windows(context, grouped=not writers).withColumn("day", functions.to_date("start"))
        files = rows.writeStream.format("parquet").partitionBy("day")
        files = files.option("path", settings["table"]).outputMode("append")
        writers.append((files, f"{context.checkpoint}/table"))
    totals = run_queries(context, writers, settings["trigger"])[0]
    observed = totals.observed.get(_OBSERVED, {})
    numbers: dict[str, Any] = {"messages read": totals.messages}
    titles = {"without_time": "without a time"}
    titles |= {name_of(each): f"without a number at {each}" for each in settings["of"]}
    numbers |= {title: observed.get(name) or 0 for name, title in titles.items()}
    numbers |= {
        "windows written": totals.observed.get(_WRITTEN, {}).get("windows") or 0,
        "batches": totals.batches,
        "seconds": round(totals.seconds, 1),
    }
    summary = Summary(numbers, files=[settings["table"]] if settings["table"] else [])
    if totals.waiting:
        waiting = counted(totals.waiting, "window waits", "windows wait")
        late = format_duration_ms(settings["late"])
        summary.notes.append(f"{waiting}: each is written once there is a message that is later than its end by {late}")
    summary.notes += totals.notes()
    return summary


def _windows(context: Context, grouped: bool = True) -> DataFrame:
    """The aggregated windows: one row per window and group of values."""
    from pyspark.sql import functions

    settings = context.settings
    rows = context.read_stream(
        grouped=grouped, topics=settings["topic"], startingPosition=settings["start"], columns="key,value,timestamp"
    )
    at = f"try_cast({field_sql(settings['time'])} AS TIMESTAMP)" if settings["time"] else "timestamp"
    rows = rows.selectExpr(
        f"{at} AS at",
        *(f"{by_sql(each)} AS {name_of(each)}" for each in settings["by"]),
        *(f"try_cast({field_sql(each)} AS DOUBLE) AS {name_of(each)}" for each in settings["of"]),
    )
    counted_columns = {"at": "without_time", **{name: name for name in map(name_of, settings["of"])}}
    missing = [functions.count_if(functions.col(name).isNull()).alias(to) for name, to in counted_columns.items()]
    slide = settings["slide"] or settings["window"]
    window = functions.window("at", f"{settings['window']} milliseconds", f"{slide} milliseconds")
    return (
        rows.observe(_OBSERVED, *missing)
        .withWatermark("at", f"{settings['late']} milliseconds")
        .groupBy(window, *(name_of(each) for each in settings["by"]))
        .agg(*_aggregates(settings))
        .select("window.start", "window.end", "*")
        .drop("window")
        .observe(_WRITTEN, functions.count("*").alias("windows"))
    )


def _aggregates(settings: Settings) -> list[Column]:
    from pyspark.sql import functions

    made = [functions.count("*").alias("count")]
    shares = [float(each) for each in settings["percentiles"]]
    for each in settings["of"]:
        name = name_of(each)
        made += [getattr(functions, kind)(name).alias(f"{name}_{kind}") for kind in ("sum", "avg", "min", "max")]
        made += [functions.percentile_approx(name, share).alias(f"{name}_{percentile(share)}") for share in shares]
    return made


def field_sql(path: str) -> str:
    """SQL of a field of a JSON value."""
    return f"get_json_object(CAST(value AS STRING), {quoted(path)})"


def key_sql(settings: Settings) -> str:
    """SQL of a window's key, as JSON: its start and its grouping values.

    Keys are unique per window, so a compacted topic keeps all windows.
    """
    names = ", ".join(["start", *(name_of(each) for each in settings["by"])])
    return f"to_json(struct({names}), {_WITH_NULLS})"


def by_sql(what: str) -> str:
    return "CAST(key AS STRING)" if what == _KEY else field_sql(what)


def name_of(what: str) -> str:
    """The column of a JSON path: ``$.order.amount`` -> ``order_amount``."""
    return what if what == _KEY else re.sub(r"[.\[\]]+", "_", what.removeprefix("$")).strip("_")


def percentile(share: float) -> str:
    """``0.5`` -> ``p50``, ``0.999`` -> ``p99_9``."""
    return f"p{share * 100:.10g}".replace(".", "_")


def check(settings: Settings) -> None:
    """Raise if the settings are invalid, before anything is read."""
    check_names(settings, "topic", "to")
    if settings["to"] is None and settings["table"] is None:
        raise InvalidPipeline("say where windows are to go: to (a topic), table (a folder), or both")
    wrong = [each for each in settings["by"] if each != _KEY and not _PATH.fullmatch(each)]
    wrong += [each for each in settings["of"] if not _PATH.fullmatch(each)]
    wrong += [settings["time"]] if settings["time"] and not _PATH.fullmatch(settings["time"]) else []
    if wrong:
        raise InvalidPipeline(f"{wrong[0]} is not a path into a JSON value; write it like $.order.amount")
    names = ["at", "start", "end", "count", *(name_of(each) for each in (*settings["by"], *settings["of"]))]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidPipeline(f"two columns would be called {twice[0]}; group by it, or count it, but not both")
    for each in settings["percentiles"]:
        try:
            good = 0 < float(each) < 1
        except ValueError:
            good = False
        if not good:
            raise InvalidPipeline(f"percentiles: {each} is not a share between 0 and 1, such as 0.95")
    if wrong_trigger := trigger_problem(settings["trigger"], batch=False):
        raise InvalidPipeline(wrong_trigger)
    if settings["slide"] and settings["slide"] > settings["window"]:
        raise InvalidPipeline("slide is longer than window, so messages between two windows would be in none")


def plan(settings: Settings) -> dict[str, Any]:
    """Describe what a run would do."""
    check(settings)
    to = [f"topic {settings['to']}, made if it is not there"] if settings["to"] else []
    to += [f"parquet files in {settings['table']}, partitioned by day"] if settings["table"] else []
    of = [f"{kind} of {each}" for each in settings["of"] for kind in ("sum", "avg", "min", "max")]
    of += [f"{percentile(float(share))} of {each}" for each in settings["of"] for share in settings["percentiles"]]
    return {
        "source": f"topic {settings['topic']} from {settings['start']}",
        "windows": f"of {settings.formatted('window')} by {settings['time'] or 'the timestamp'}, "
        f"closed {settings.formatted('late')} after their end",
        "by": settings.formatted("by") or "nothing: one row a window",
        "counts": ["how many", *of],
        "sink": "; and ".join(to) + "; exactly once",
    }


PIPELINE = Pipeline(
    name="rollup",
    summary="Counts, sums and percentiles in windows of time, to a topic or a table.",
    run=run,
    plan=plan,
    checkpoint="./checkpoints/rollup/${topic}-${window}",
    settings=[
        Setting("topic", "The topic to read.", required=True),
        Setting("to", "The topic for the windows, as JSON; made if it is not there."),
        Setting("table", "The folder for the windows, as Parquet files partitioned by day."),
        Setting("start", "Where to begin: earliest, latest, an instant, or offsets as JSON.", default="earliest"),
        Setting("window", "How long a window is.", "duration", default=60_000, minimum=1_000, maximum=366 * _DAY_MS),
        Setting(
            "slide",
            "How far apart windows begin; unless set, they do not overlap.",
            "duration",
            minimum=1_000,
            maximum=366 * _DAY_MS,
        ),
        Setting(
            "late", "How late a message may be.", "duration", default=60_000, maximum=366 * _DAY_MS, may_change=True
        ),
        Setting("time", "The path of the time in a JSON value; unless set, the message's timestamp."),
        Setting("by", "What to group by: key, and paths into a JSON value ($.country).", "names", default=()),
        Setting(
            "of", "Paths of numbers in a JSON value ($.amount): sum, avg, min, max, percentiles.", "names", default=()
        ),
        Setting("percentiles", "Which percentiles, as shares.", "names", default=("0.5", "0.95", "0.99")),
        Setting(
            "trigger",
            "available-now: what is there; an interval such as 10 seconds: until it is stopped.",
            default=AVAILABLE_NOW,
            may_change=True,
        ),
    ],
)
