"""``audit``: proves that every committed message of a topic was delivered to a group and acked, or reports its state.

The order of reading makes it a proof while the broker runs: first the log end, then the group's done offsets, then all
other evidence, then the done offsets again. Each message below the log end is covered by the first state; what was done
in it must be explained by the evidence read later; and what was acked by the time the traces were read must be done in
the second state.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goqueue.model.names import check_group_name, check_topic_name
from goqueue.spark.pipelines.analysis.trace_runs import COPIED, read_traces, trace_files
from goqueue.spark.pipelines.auditing.audit_evidence import (
    GROUP_EVENTS,
    TOPIC_EVENTS,
    driver_evidence,
    judge,
    letter_evidence,
    log_evidence,
    trace_evidence,
)
from goqueue.spark.pipelines.auditing.audit_kinds import Fate, Kind, Knowledge, whole_range
from goqueue.spark.pipelines.auditing.audit_subject import (
    Subject,
    latest_ends,
    missing_records,
    subject_from_broker,
    subject_from_folder,
)
from goqueue.spark.pipelines.auditing.audit_verdict import Unaccounted, Verdict, to_summary
from goqueue.spark.pipelines.auditing.group_state import GroupState, Row, group_state
from goqueue.spark.pipelines.definitions.checks import name_problems, raise_problems
from goqueue.spark.pipelines.definitions.definition import Pipeline
from goqueue.spark.pipelines.definitions.problems import InvalidPipeline, PipelineFailed
from goqueue.spark.pipelines.definitions.settings import Setting, Settings
from goqueue.spark.pipelines.running.context import Context
from goqueue.spark.pipelines.running.progress import Progress
from goqueue.spark.pipelines.running.summary import Summary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from goqueue.client.sync import Client

_RECHECKS = 2
_RECHECK_INTERVAL_S = 0.5
"""Wait before a recheck: traces are written a moment after the events that they record."""
_MAX_DELAYED = 100_000
_EVERY_EVENT = [*TOPIC_EVENTS, *GROUP_EVENTS]
_FIRST_CONTACT_KINDS = (Kind.CONSUMED, Kind.COMMITTED, Kind.SKIPPED, Kind.VOIDED, Kind.EXPIRED)


def run(context: Context) -> Summary:
    _check(context.settings)
    verdict = audit_once(context)
    for _ in range(_RECHECKS):
        # A message may have been in transition between two states; one that is really unaccounted for stays so.
        if not verdict.missing or context.settings["offline"] or context.stopping.wait(_RECHECK_INTERVAL_S):
            break
        verdict = audit_once(context).keep_confirmed(verdict)
    return to_summary(verdict, context.settings["topic"], context.settings["show"])


def audit_once(context: Context) -> Verdict:
    """Read all evidence once and determine the fate of each message."""
    settings, spark = context.settings, context.spark
    topic, group, path = settings["topic"], settings["group"], settings["path"]
    verdict = Verdict()
    with ExitStack() as stack:
        client = None if settings["offline"] else stack.enter_context(context.client())
        subject = subject_from_folder(Path(path), topic) if client is None else subject_from_broker(client, topic, path)
        verdict.notes += subject.notes
        context.tell(Progress(0, doing=f"reading where group {group} is"))
        state = group_state(Path(path), group, subject.topic_id) if path else None
        rows = state.rows() if state is not None else _committed_offsets(client, group, topic, verdict)
        if not rows:
            raise PipelineFailed(f"group {group!r} has never read topic {topic!r}, so there is nothing to prove")
        starts = _group_setting(client, group, state, "start")
        delayed = _delayed_messages(client, topic) if path else None
        rows += delayed or []
        context.tell(Progress(0, doing=f"reading {topic}, its dead letters and traces"))
        from_spark = _read_evidence(context, subject, state)
        if state is not None:
            # Materialize the evidence now, not when it is judged: the group's second state must be read after it.
            stack.callback(from_spark.persist().unpersist)
            from_spark.count()
            later = group_state(Path(path), group, subject.topic_id)
            rows += later.rows(Kind.DONE_LATER)
            rows += _before_group(from_spark, state) if starts == "latest" else []
            verdict.unaccounted += _beyond_log_end(
                state, subject.ends if client is None else latest_ends(client, topic)
            )
        evidence = from_spark.unionByName(driver_evidence(spark, rows))
        knowledge = Knowledge(state is not None, subject.has_letters, delayed is not None, subject.is_whole)
        found = clip_to_ends(judge(evidence, knowledge), subject.ends).collect()
        if any(row["fate"] == Fate.LETTER_MISSING for row in found):
            elsewhere = subject.add_letters(_topics_of_copies(context))
            if elsewhere:
                evidence = evidence.unionByName(_read_letter_evidence(context, subject, state, elsewhere))
                knowledge = knowledge._replace(has_letters=subject.has_letters)
                found = clip_to_ends(judge(evidence, knowledge), subject.ends).collect()
    verdict.add(_confirm_gone(found, subject))
    return verdict


def clip_to_ends(found: DataFrame, ends: dict[int, int]) -> DataFrame:
    """Runs of the same fate, clipped to the log ends: messages that came later are not judged."""
    from pyspark.sql import functions

    limits = functions.create_map(*(functions.lit(each) for pair in ends.items() for each in pair))
    size = functions.least(functions.col("size"), limits[functions.col("partition")] - functions.col("first"))
    return found.withColumn("size", size).where("size > 0").orderBy("partition", "first")


def _read_evidence(context: Context, subject: Subject, state: GroupState | None) -> DataFrame:
    """The evidence that Spark reads: log, dead letters and traces."""
    settings = context.settings
    ends = json.dumps({subject.topic: {str(number): end for number, end in subject.ends.items()}})
    messages = _read(context, [subject.topic], "partition,offset,priority,headers", endingPosition=ends)
    found = log_evidence(messages, settings["group"])
    if subject.letters:
        found = found.unionByName(_read_letter_evidence(context, subject, state, subject.letters))
    if state is None:
        return found
    traces = read_traces(context.spark, trace_files(settings["path"]), _EVERY_EVENT, [subject.topic])
    known = trace_evidence(traces, settings["group"], state.group.created_at_ns, subject.created_at_ns)
    return found.unionByName(known)


def _read_letter_evidence(context: Context, subject: Subject, state: GroupState | None, topics: list[str]) -> DataFrame:
    identity = "%" if state is None else state.group.identity
    letters = _read(context, topics, "headers")
    return letter_evidence(letters, subject.topic, context.settings["group"], f"{identity}/{subject.topic_id}")


def _read(context: Context, topics: list[str], columns: str, **more: str) -> DataFrame:
    # Damaged or missing messages are findings of an audit and must not fail it.
    options = {"topics": ",".join(topics), "columns": columns, "failOnDataLoss": "false", **more}
    if context.settings["path"]:
        options["path"] = context.settings["path"]
    if not context.settings["offline"]:
        options["brokers"] = context.brokers
    return context.spark.read.format("goqueue").options(**options).load()


def _topics_of_copies(context: Context) -> list[str]:
    """The topics that the group's dead letters went to, by the traces: the setting may have been another then."""
    copies = read_traces(context.spark, trace_files(context.settings["path"]), [COPIED])
    ours = copies.where(copies["group"] == context.settings["group"]).select("topic").distinct()
    return sorted(row["topic"] for row in ours.collect())


def _confirm_gone(found: list[Any], subject: Subject) -> Iterator[Any]:
    """Keep the fate GONE only for offsets without a record in the partition's files: readers do not see all records."""
    for row in found:
        if row["fate"] != Fate.GONE:
            yield row
        elif subject.folder is not None:
            folder = subject.folder / str(row["partition"])
            for first, end in missing_records(folder, row["first"], row["first"] + row["size"]):
                yield {**row.asDict(), "first": first, "size": end - first}


def _committed_offsets(client: Client | None, group: str, topic: str, verdict: Verdict) -> list[Row]:
    """The group's done offsets by the broker, if there is no data folder."""
    assert client is not None
    partitions = [each for each in client.describe_group(group).partitions if each.topic == topic]
    verdict.lag = sum(each.lag for each in partitions)
    return [row for each in partitions for row in whole_range(each.partition, Kind.DONE, 0, each.committed)]


def _group_setting(client: Client | None, group: str, state: GroupState | None, name: str) -> Any:
    """The effective value of a group setting; without a broker, the value set for the group itself."""
    if client is not None:
        return client.describe_group(group).settings.get(name)
    return None if state is None else {**state.group.fixed, **state.group.overrides}.get(name)


def _delayed_messages(client: Client | None, topic: str) -> list[Row] | None:
    """The pending delayed messages; ``None`` without a broker, or if there are too many to list."""
    if client is None:
        return None
    found = list(islice(client.delayed(topic), _MAX_DELAYED + 1))
    if len(found) > _MAX_DELAYED:
        return None
    return [row for each in found for row in whole_range(each.partition, Kind.WAITING, each.offset, each.offset + 1)]


def _before_group(from_spark: DataFrame, state: GroupState) -> list[Row]:
    """For a group that started at the log end: everything before the first message that it had contact with."""
    kinds = ", ".join(str(int(kind)) for kind in _FIRST_CONTACT_KINDS)
    first = from_spark.where(f"kind IN ({kinds})").groupBy("partition").min("first").collect()
    begun = {row["partition"]: row["min(first)"] for row in first}
    return [
        row
        for number, each in state.partitions.items()
        if each.start is None
        for row in whole_range(number, Kind.BEFORE, 0, begun.get(number, each.queue.committed))
    ]


def _beyond_log_end(state: GroupState, ends: dict[int, int]) -> Iterator[Unaccounted]:
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
    raise_problems(problems)
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
