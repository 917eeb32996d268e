"""``audit``: proves that every committed message of a topic was delivered to a group and acked, or tells where it is.

The order of looking makes it a proof while the broker works: first how far the log goes, then what the group counts as
done, then everything else, then once more what is done. A message below that end has its place in the first state;
whatever the group was done with then must be explained by what was read later; and whatever was acked by the time the
traces were read must be done in the second state.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goqueue.model.ids import check_group_name, check_topic_name
from goqueue.spark.pipelines.analysis.trace_runs import COPIED, read_traces, trace_files
from goqueue.spark.pipelines.auditing.audit_evidence import (
    OF_ANYONE,
    OF_THE_GROUP,
    judged,
    of_letters,
    of_log,
    of_rows,
    of_traces,
)
from goqueue.spark.pipelines.auditing.audit_kinds import ANY_LANE, Fate, Kind, Knowledge, rows_of
from goqueue.spark.pipelines.auditing.audit_subject import Subject, latest_ends, missing_in, of_broker, on_disk
from goqueue.spark.pipelines.auditing.audit_verdict import Unaccounted, Verdict, told
from goqueue.spark.pipelines.auditing.group_state import GroupState, Row, group_state
from goqueue.spark.pipelines.definitions.checks import name_problems
from goqueue.spark.pipelines.definitions.definition import Pipeline
from goqueue.spark.pipelines.definitions.problems import InvalidPipeline, PipelineFailed
from goqueue.spark.pipelines.definitions.settings import Setting, Settings
from goqueue.spark.pipelines.running.context import Context
from goqueue.spark.pipelines.running.progress import Progress
from goqueue.spark.pipelines.running.summary import Summary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from goqueue.client.sync import Client

_MORE_LOOKS = 2
_BETWEEN_LOOKS_S = 0.5
"""Traces are written a moment after what they tell of."""
_MOST_DELAYED = 100_000
_EVERY_EVENT = [*OF_ANYONE, *OF_THE_GROUP]
_BEGINNINGS = (Kind.CONSUMED, Kind.COMMITTED, Kind.SKIPPED, Kind.VOIDED, Kind.EXPIRED)


def run(context: Context) -> Summary:
    _check(context.settings)
    verdict = look(context)
    for _ in range(_MORE_LOOKS):
        # What was found may only have been on its way from one state to the next; what is not accounted for stays so.
        if not verdict.missing or context.settings["offline"] or context.stopping.wait(_BETWEEN_LOOKS_S):
            break
        verdict = look(context).and_before(verdict)
    return told(verdict, context.settings["topic"], context.settings["show"])


def look(context: Context) -> Verdict:
    """Gather everything that is known, and judge by it."""
    settings, spark = context.settings, context.spark
    topic, group, path = settings["topic"], settings["group"], settings["path"]
    verdict = Verdict()
    with ExitStack() as stack:
        client = None if settings["offline"] else stack.enter_context(context.client())
        subject = on_disk(Path(path), topic) if client is None else of_broker(client, topic, path)
        verdict.notes += subject.notes
        context.tell(Progress(0, doing=f"reading where group {group} is"))
        state = group_state(Path(path), group, subject.topic_id) if path else None
        rows = state.rows() if state is not None else _committed(client, group, topic, verdict)
        if not rows:
            raise PipelineFailed(f"group {group!r} has never read topic {topic!r}, so there is nothing to prove")
        starts = _setting(client, group, state, "start")
        delayed = _delayed(client, topic) if path else None
        rows += delayed or []
        context.tell(Progress(0, doing=f"reading {topic}, its dead letters and traces"))
        gathered = _gathered(context, subject, state)
        if state is not None:
            # Read now, and once, not when it is judged: the group's second state is to be the later one.
            stack.callback(gathered.persist().unpersist)
            gathered.count()
            later = group_state(Path(path), group, subject.topic_id)
            rows += later.rows(Kind.DONE_LATER)
            rows += _before(gathered, state) if starts == "latest" else []
            verdict.unaccounted += _ahead(state, subject.ends if client is None else latest_ends(client, topic))
        evidence = gathered.unionByName(of_rows(spark, rows))
        knows = Knowledge(state is not None, subject.has_letters, delayed is not None, subject.is_whole)
        found = within(judged(evidence, knows), subject.ends).collect()
        if any(row["fate"] == Fate.LETTER_MISSING for row in found):
            elsewhere = subject.add_letters(_copied_to(context))
            if elsewhere:
                evidence = evidence.unionByName(_letters(context, subject, state, elsewhere))
                knows = knows._replace(has_letters=subject.has_letters)
                found = within(judged(evidence, knows), subject.ends).collect()
    verdict.add(_proved(found, subject))
    return verdict


def within(found: DataFrame, ends: dict[int, int]) -> DataFrame:
    """Runs of the same fate as far as they lie below the ends: what came later is not judged."""
    from pyspark.sql import functions

    limits = functions.create_map(*(functions.lit(each) for pair in ends.items() for each in pair))
    size = functions.least(functions.col("size"), limits[functions.col("partition")] - functions.col("first"))
    return found.withColumn("size", size).where("size > 0").orderBy("partition", "first")


def _gathered(context: Context, subject: Subject, state: GroupState | None) -> DataFrame:
    """What Spark reads: the log, dead letters, and traces."""
    settings = context.settings
    ends = json.dumps({subject.topic: {str(number): end for number, end in subject.ends.items()}})
    messages = _read(context, [subject.topic], "partition,offset,priority,headers", endingPosition=ends)
    found = of_log(messages, settings["group"])
    if subject.letters:
        found = found.unionByName(_letters(context, subject, state, subject.letters))
    if state is None:
        return found
    traces = read_traces(context.spark, trace_files(settings["path"]), _EVERY_EVENT, [subject.topic])
    known = of_traces(traces, settings["group"], state.group.created_at_ns, subject.created_at_ns)
    return found.unionByName(known)


def _letters(context: Context, subject: Subject, state: GroupState | None, topics: list[str]) -> DataFrame:
    identity = "%" if state is None else state.group.identity
    letters = _read(context, topics, "headers")
    return of_letters(letters, subject.topic, context.settings["group"], f"{identity}/{subject.topic_id}")


def _read(context: Context, topics: list[str], columns: str, **more: str) -> DataFrame:
    # What is damaged or gone is a finding of an audit, and must not end it.
    options = {"topics": ",".join(topics), "columns": columns, "failOnDataLoss": "false", **more}
    if context.settings["path"]:
        options["path"] = context.settings["path"]
    if not context.settings["offline"]:
        options["brokers"] = context.brokers
    return context.spark.read.format("goqueue").options(**options).load()


def _copied_to(context: Context) -> list[str]:
    """Where the group's dead letters went, by the traces: the topic for them may have been another then."""
    copies = read_traces(context.spark, trace_files(context.settings["path"]), [COPIED])
    ours = copies.where(copies["group"] == context.settings["group"]).select("topic").distinct()
    return sorted(row["topic"] for row in ours.collect())


def _proved(found: list[Any], subject: Subject) -> Iterator[Any]:
    """With only those gone of which the partition's files have nothing: readers do not see every record."""
    for row in found:
        if row["fate"] != Fate.GONE:
            yield row
        elif subject.folder is not None:
            folder = subject.folder / str(row["partition"])
            for first, end in missing_in(folder, row["first"], row["first"] + row["size"]):
                yield {**row.asDict(), "first": first, "size": end - first}


def _committed(client: Client | None, group: str, topic: str, verdict: Verdict) -> list[Row]:
    """Without the folder: what the broker tells of the group."""
    assert client is not None
    partitions = [each for each in client.describe_group(group).partitions if each.topic == topic]
    verdict.lag = sum(each.lag for each in partitions)
    return [
        (each.partition, *row)
        for each in partitions
        for row in rows_of(Kind.DONE, [(ANY_LANE, 0, each.committed)])
    ]  # fmt: skip


def _setting(client: Client | None, group: str, state: GroupState | None, name: str) -> Any:
    """In effect; without a broker, what was set for the group itself."""
    if client is not None:
        return client.describe_group(group).settings.get(name)
    return None if state is None else {**state.group.fixed, **state.group.overrides}.get(name)


def _delayed(client: Client | None, topic: str) -> list[Row] | None:
    """What waits for its time; ``None`` if nobody can tell, or it is too much to be told one by one."""
    if client is None:
        return None
    found = list(islice(client.delayed(topic), _MOST_DELAYED + 1))
    if len(found) > _MOST_DELAYED:
        return None
    return [
        (each.partition, *row)
        for each in found
        for row in rows_of(Kind.WAITING, [(ANY_LANE, each.offset, each.offset + 1)])
    ]


def _before(gathered: DataFrame, state: GroupState) -> list[Row]:
    """Of a group that began at the end of a log: everything before the first that it ever had to do with."""
    kinds = ", ".join(str(int(kind)) for kind in _BEGINNINGS)
    first = gathered.where(f"kind IN ({kinds})").groupBy("partition").min("first").collect()
    begun = {row["partition"]: row["min(first)"] for row in first}
    return [
        (number, *row)
        for number, each in state.partitions.items()
        if each.start is None
        for row in rows_of(Kind.BEFORE, [(ANY_LANE, 0, begun.get(number, each.queue.committed))])
    ]


def _ahead(state: GroupState, ends: dict[int, int]) -> Iterator[Unaccounted]:
    for number, each in state.partitions.items():
        end, front = ends.get(number, 0), each.queue.front
        if front > end:
            yield Unaccounted(number, end, front - end, f"the group is at offset {front}, but the log ends at {end}")


def _check(settings: Settings) -> None:
    problems = [
        *name_problems(settings, "topic", check_topic_name),
        *name_problems(settings, "group", check_group_name),
    ]
    if settings["path"] and not Path(settings["path"]).is_dir():
        problems.append(f"path: {Path(settings['path']).absolute()} is no folder; name the broker's data folder")
    if problems:
        raise InvalidPipeline("; ".join(problems))
    if settings["offline"] and not settings["path"]:
        raise InvalidPipeline("offline: there is nothing to read without a broker unless path= names a data folder")


def plan(settings: Settings) -> dict[str, str]:
    _check(settings)
    path = settings["path"]
    whole = f"the group's journal and the traces in {path}" if path else "the offsets that the broker tells"
    return {
        "subject": f"topic {settings['topic']}, group {settings['group']}",
        "evidence": f"the log, its dead letters, {whole}",
        "broker": "none: nothing may be using the folder" if settings["offline"] else "says how far the log goes",
        "result": "how many messages have which fate, and which are not accounted for",
    }


PIPELINE = Pipeline(
    name="audit",
    summary="Proves that every committed message of a topic was delivered to a group and acked, or tells where it is.",
    run=run,
    plan=plan,
    settings=[
        Setting("topic", "Whose messages.", required=True),
        Setting("group", "Which group is to have got them.", required=True),
        Setting("path", "The broker's data folder: its journals and traces make it a proof."),
        Setting("offline", "No broker is running; everything is read from path.", "flag", default=False),
        Setting("show", "How many unaccounted messages to list.", "number", default=100, minimum=1, maximum=1_000_000),
    ],
)
