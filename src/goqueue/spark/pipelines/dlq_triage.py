"""``dlq-triage``: groups dead letters by kind of error, with examples, and redrives selected ones."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from math import ceil
from typing import TYPE_CHECKING, Any, cast

from goqueue.client.admin.groups import RedriveReport
from goqueue.client.connection.instants import from_nanoseconds
from goqueue.model.fields import did_you_mean
from goqueue.model.names import check_group_name, check_topic_name
from goqueue.model.units import counted, parse_instant_ns
from goqueue.spark.pipelines.analysis.dead_letter_table import dead_letter_topic, parse_letters
from goqueue.spark.pipelines.analysis.error_kinds import kind_column
from goqueue.spark.pipelines.definitions.checks import name_problems, raise_problems, time_problems
from goqueue.spark.pipelines.definitions.definition import Pipeline
from goqueue.spark.pipelines.definitions.settings import Setting, Settings
from goqueue.spark.pipelines.running.context import Context
from goqueue.spark.pipelines.running.progress import Progress
from goqueue.spark.pipelines.running.summary import Summary, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from goqueue.client.admin.groups import DeadLetter
    from goqueue.client.sync import Client

ALL = "all"
_SHOWN_BYTES = 60
_REDRIVE_BATCH = 50_000
_REDRIVE_BATCH_S = 30.0
"""With a rate limit, approximate duration of one redrive request; between requests the run can be stopped."""
_MAX_DELAY_MS = 36_500 * 86_400_000
_BY = ("kind", "origin_topic", "group", "hour")


def run(context: Context) -> Summary:
    settings = context.settings
    raise_problems(_problems(settings))
    with context.client() as client:
        # Query the broker first, since starting Spark takes long.
        name = _letters_topic(client, settings)
        before = client.redrive(settings["topic"], dry_run=True, **_client_filters(settings))
        if not before.matched + before.already + before.unreachable:
            return Summary(numbers={"dead letters": 0}, notes=[_why_none(client, settings)])
        context.tell(Progress(0, doing=f"reading {name}"))
        found = apply_filters(letter_columns(context.read(topics=name)), settings, name).persist()
        try:
            kinds = count_by_kind(found).collect()
            summary = Summary(
                numbers={"dead letters": sum(row["letters"] for row in kinds), "redriven before": before.already},
                tables=[_kinds_table(kinds), _examples_table(examples(found, settings["examples"]).collect())],
            )
            if settings["redrive"] and kinds:
                wanted = select_letters(found, settings["redrive"], {row["kind"] for row in kinds})
                # Exactly those that were read and grouped; dead letters written since are left to the next run.
                positions = wanted.select("partition", "offset").orderBy("partition", "offset").toLocalIterator()
                redrive(context, client, positions, summary)
        finally:
            found.unpersist()
    return summary


def letter_columns(letters: DataFrame) -> DataFrame:
    """The columns of each dead letter: kind of error, origin, position, and the start of key and value."""
    from pyspark.sql import functions

    def start(name: str) -> Any:
        return functions.substring(name, 1, _SHOWN_BYTES).cast("string").alias(name)

    letters = parse_letters(letters).withColumns({"kind": kind_column(functions.col("error"))})
    return letters.withColumn("hour", functions.date_trunc("hour", "timestamp")).select(
        *_BY, "error", "topic", "partition", "offset", "timestamp", "deliveries", "origin_partition", "origin_offset",
        start("key"), start("value"),
    )  # fmt: skip


def apply_filters(found: DataFrame, settings: Settings, name: str) -> DataFrame:
    """Filter by topic (a dead-letter topic may hold letters of several topics), group and time."""
    if settings["topic"] != name:
        found = found.where(found["origin_topic"] == settings["topic"])
    if settings["group"]:
        found = found.where(found["group"] == settings["group"])
    for setting, sign in (("since", ">="), ("until", "<")):
        if settings[setting]:
            found = found.where(f"timestamp {sign} timestamp_micros({parse_instant_ns(settings[setting]) // 1_000})")
    return found


def count_by_kind(found: DataFrame) -> DataFrame:
    """Count dead letters by kind of error, topic, group and hour, in descending order."""
    from pyspark.sql import functions

    return (
        found.groupBy(*_BY)
        .agg(
            functions.count("*").alias("letters"),
            functions.min("timestamp").alias("first_seen"),
            functions.max("timestamp").alias("last_seen"),
            functions.max("deliveries").alias("most_deliveries"),
        )
        .orderBy(functions.desc("letters"), *_BY)
    )


def examples(found: DataFrame, count: int) -> DataFrame:
    """The latest ``count`` dead letters of each kind of error, topic and group."""
    from pyspark.sql import Window, functions

    latest = Window.partitionBy("kind", "origin_topic", "group").orderBy(
        functions.desc("timestamp"), "partition", "offset"
    )
    return (
        found.withColumn("rank", functions.row_number().over(latest))
        .where(functions.col("rank") <= count)
        .orderBy("kind", "origin_topic", "group", "rank")
    )


def select_letters(found: DataFrame, wanted: str, kinds: set[str]) -> DataFrame:
    """Select dead letters: all, those of a kind of error as shown in the table, or those whose error has the text."""
    if wanted == ALL:
        return found
    return found.where(found["kind"] == wanted if wanted in kinds else found["error"].contains(wanted))


def redrive(context: Context, client: Client, positions: Iterator[Any], summary: Summary) -> None:
    """Redrive the dead letters at these positions and add the counts to the summary; in a dry run, only count."""
    settings = context.settings
    is_dry, rate = settings["dry_run"], settings["rate"]
    doing = "looking at what would be redriven" if is_dry else "redriving"
    batch_size = min(_REDRIVE_BATCH, ceil(rate * _REDRIVE_BATCH_S)) if rate and not is_dry else _REDRIVE_BATCH
    options = {"rate": rate, "dry_run": is_dry}
    if settings["delay"]:
        options["delay"] = timedelta(milliseconds=settings["delay"])
    reports: list[RedriveReport] = []
    context.tell(Progress(0, doing=doing))
    while not context.stopping.is_set() and (batch := list(islice(positions, batch_size))):
        # Only the position of each letter is sent.
        letters = cast("list[DeadLetter]", batch)
        reports.append(client.redrive(settings["topic"], letters=letters, **options))
        context.tell(Progress(sum(each.matched if is_dry else each.redriven for each in reports), doing=doing))
    numbers = summary.numbers
    numbers["chosen for redrive"] = sum(each.matched + each.already + each.unreachable for each in reports)
    numbers["redriven"] = sum(each.redriven for each in reports)
    if is_dry:
        numbers["would be redriven"] = sum(each.matched for each in reports)
    numbers["chosen, but redriven before"] = sum(each.already for each in reports)
    numbers["unreachable"] = sum(each.unreachable for each in reports)
    if not numbers["chosen for redrive"] and not context.stopping.is_set():
        summary.notes.append(f"No dead letter has the error {settings['redrive']!r}: neither its kind nor part of it.")


def _letters_topic(client: Client, settings: Settings) -> str:
    """The topic that holds the dead letters, if there are any."""
    topic = settings["topic"]
    name = dead_letter_topic(topic, client.describe_topic(topic))
    first = next(client.dead_letters(topic, **_client_filters(settings)), None)
    # A topic that others use as dead-letter topic holds letters of other origins, whatever its name.
    return topic if first is not None and first.origin_topic != topic else name


def _client_filters(settings: Settings) -> dict[str, Any]:
    """The filters on group and time as arguments of the client."""
    times = {name: settings[name] and from_nanoseconds(parse_instant_ns(settings[name])) for name in ("since", "until")}
    return {"group": settings["group"], **times}


def _why_none(client: Client, settings: Settings) -> str:
    topic, group = settings["topic"], settings["group"]
    times = " in this time" if settings["since"] or settings["until"] else ""
    if not group:
        return f"Topic {topic} has no dead letters{times}."
    groups = client.list_groups()
    stranger = "" if group in groups else f"; there is no such group now{did_you_mean(group, groups)}"
    note = f"Topic {topic} has no dead letters of group {group}{times}{stranger}"
    return note if note.endswith("?") else f"{note}."


def _kinds_table(rows: list[Any]) -> Table:
    columns = ["error", "topic", "group", "hour", "letters", "first seen", "last seen", "deliveries"]
    cells = [
        [
            *(row["kind"], row["origin_topic"], row["group"] or None, _instant(row["hour"]), row["letters"]),
            *(_instant(row["first_seen"]), _instant(row["last_seen"]), row["most_deliveries"]),
        ]
        for row in rows
    ]
    return Table("dead letters by error", columns, cells)


def _examples_table(rows: list[Any]) -> Table:
    columns = ["error", "dead letter", "was", "group", "key", "value", "in full"]
    cells = [
        [
            *(row["kind"], f"{row['topic']}/{row['partition']}/{row['offset']}"),
            f"{row['origin_topic']}/{row['origin_partition']}/{row['origin_offset']}",
            *(row["group"] or None, row["key"], row["value"], row["error"]),
        ]
        for row in rows
    ]
    return Table("examples, the latest first", columns, cells)


def _instant(moment: datetime) -> str:
    # In a session with another time zone than UTC, Spark returns naive local times.
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _problems(settings: Settings) -> Iterator[str]:
    yield from name_problems(settings, "topic", check_topic_name)
    yield from name_problems(settings, "group", check_group_name)
    yield from time_problems(settings)
    for name in ("rate", "delay", "dry_run"):
        if name in settings.given and not settings["redrive"]:
            yield f"{name}: it is about redriving; say which dead letters with redrive=, such as redrive={ALL}"


def plan(settings: Settings) -> dict[str, str]:
    raise_problems(_problems(settings))
    wanted, how = settings["redrive"], "would be sent back" if settings["dry_run"] else "are sent back"
    whose = f"those of group {settings['group']}" if settings["group"] else "those of every group"
    times = [f"{name} {settings[name]}" for name in ("since", "until") if settings[name]]
    which = "all" if wanted == ALL else f"those with the error {wanted!r}"
    rate = f", at most {settings['rate']:g} a second" if settings["rate"] else ""
    return {
        "source": f"dead letters of topic {settings['topic']}, {', '.join([whose, *times])}",
        "result": f"counts by error, topic, group and hour; {counted(settings['examples'], 'example')} of each",
        "redrive": f"{which} {how}{rate}" if wanted else "none",
    }


PIPELINE = Pipeline(
    name="dlq-triage",
    summary="Dead letters by error, topic, group and hour, with examples; and a redrive of the chosen ones.",
    run=run,
    plan=plan,
    settings=[
        Setting("topic", "Whose dead letters; or a dead-letter topic itself, for all that are in it.", required=True),
        Setting("group", "Only what this group gave up."),
        Setting("since", "Only what died at this instant or later.", "instant"),
        Setting("until", "Only what died before this instant.", "instant"),
        Setting("examples", "How many examples to show of each error.", "number", default=2, maximum=1_000),
        Setting("redrive", f"What to send back: {ALL}, an error as the table has it, or part of an error's text."),
        Setting("rate", "How many to send back in a second at most.", "ratio", minimum=0.01, maximum=1_000_000),
        Setting("delay", "How long what is sent back waits before anyone sees it.", "duration", maximum=_MAX_DELAY_MS),
        Setting("dry_run", "Tell what would be sent back, and send nothing.", "flag", default=False),
    ],
)
