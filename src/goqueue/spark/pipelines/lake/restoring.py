"""Implementation of ``restore`` and ``backfill``, which differ only in defaults.

``restore`` creates the topic if it does not exist and refuses one that has messages; ``backfill`` adds to an existing
topic. Key, value, headers, priority and timestamp are restored, and the partition too if the topic has as many as when
it was archived. Timestamps are truncated to microseconds, Spark's precision. Headers whose names begin with
``goqueue-`` are the broker's own and are dropped. Offsets are new.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from goqueue.model.errors import TopicNotFound
from goqueue.model.units import parse_instant_ns
from goqueue.spark.pipelines.definitions.checks import check_names
from goqueue.spark.pipelines.definitions.definition import Pipeline
from goqueue.spark.pipelines.definitions.problems import InvalidPipeline, PipelineFailed
from goqueue.spark.pipelines.definitions.settings import Setting, Settings
from goqueue.spark.pipelines.lake.lake import Lake, lake_folder
from goqueue.spark.pipelines.lake.lake_job import Job, JobFile, Step, files_between, plan_steps
from goqueue.spark.pipelines.lake.lake_tables import find_lake
from goqueue.spark.pipelines.running.context import Context
from goqueue.spark.pipelines.running.progress import Progress
from goqueue.spark.pipelines.running.rows import USER_HEADERS_SQL
from goqueue.spark.pipelines.running.summary import Summary, per_second

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from goqueue.client.connection.topics import TopicInfo
    from goqueue.client.sync import Client

_STEP_MESSAGES = 1_000_000
_STEP_SECONDS = 5
"""With a rate limit, a step has as many messages as may be sent in this time."""
_HEADERS = f"{USER_HEADERS_SQL.format('headers')} AS headers"
_OBSERVED = "restored"
_CHANGEABLE_SETTINGS = ("rate", "into_filled", "lake")
"""Settings that may differ between runs of one job."""

_SETTINGS = [
    Setting("lake", "The folder of the lake that 'archive' has written.", required=True),
    Setting("topic", "The topic that was archived.", required=True),
    Setting("to", "The topic to write to; unless set, the one that was archived."),
    Setting("since", "Only messages of this instant or later.", "instant"),
    Setting("until", "Only messages before this instant.", "instant"),
    Setting("job", "Doing a job again does nothing. Give it another name to do it once more.", default="1"),
]


def pipeline(name: str, summary: str, settings: Sequence[Setting], *, into_new: bool) -> Pipeline:
    """Define one of the two pipelines, with additional settings."""
    return Pipeline(
        name=name,
        summary=summary,
        run=partial(_run, into_new=into_new),
        plan=partial(_plan, into_new=into_new),
        checkpoint=f"./checkpoints/{name}",
        settings=[*_SETTINGS, *settings],
    )


def _run(context: Context, *, into_new: bool) -> Summary:
    _check(context.settings)
    lake = find_lake(lake_folder(context.settings["lake"]))
    with lake.reading(), context.client() as client:
        return _Run(context, lake, client, into_new).run()


class _Run:
    def __init__(self, context: Context, lake: Lake, client: Client, into_new: bool) -> None:
        self._context = context
        self._settings = context.settings
        self._lake = lake
        self._client = client
        self._into_new = into_new
        self._topic: str = self._settings["topic"]
        self._target: str = self._settings["to"] or self._topic
        self._files = lake.files(self._topic)
        self._rate: float | None = self._settings.get("rate")
        self._filter: str | None = self._settings.get("filter")

    def run(self) -> Summary:
        if self._topic not in self._lake.topics():
            there_are = ", ".join(self._lake.topics()[:20]) or "none"
            raise PipelineFailed(
                f"topic {self._topic!r} is not in the lake {self._lake.folder}; there are: {there_are}"
            )
        target = self._target_topic()
        fixed = [(name, self._settings[name]) for name in sorted(self._settings) if name not in _CHANGEABLE_SETTINGS]
        identity = [self._context.name, self._lake.folder, target.id, *fixed]
        file = JobFile(self._context.local_checkpoint(), identity)
        job = file.read()
        summary = Summary()
        if job is None:
            self._check_empty(target)
            files = files_between(self._files, self._instant_us("since"), self._instant_us("until"))
            limit = int(self._rate * _STEP_SECONDS) if self._rate is not None else _STEP_MESSAGES
            max_messages = max(1, min(_STEP_MESSAGES, limit))
            job = Job(f"{self._context.name}/{uuid.uuid4().hex}", plan_steps(files, max_messages))
            file.write(job)
        elif job.is_finished:
            summary.notes.append(
                f"This job was done before: {job.messages} messages are in topic {self._target}. To do it once more, "
                "give it another name: --set job=2"
            )
        before, began = job.messages, time.monotonic()
        self._run_steps(job, file, target)
        seconds = time.monotonic() - began
        written = job.messages - before
        summary.numbers = {"messages written": written, "steps": f"{job.done} of {len(job.steps)}"}
        summary.numbers |= {"seconds": round(seconds, 1), "messages per second": per_second(written, seconds)}
        if not job.is_finished:
            summary.notes.append("Stopped before the end; the next run goes on from there.")
        if len(target.partitions) != self._lake.partitions(self._topic):
            summary.notes.append(
                f"Topic {self._target} has another number of partitions than {self._topic} had: messages went where "
                "their keys say."
            )
        return summary

    def _target_topic(self) -> TopicInfo:
        try:
            return self._client.describe_topic(self._target)
        except TopicNotFound:
            if not self._into_new:
                raise
        self._client.create_topic(self._target, partitions=max(1, self._lake.partitions(self._topic)))
        return self._client.describe_topic(self._target)

    def _check_empty(self, target: TopicInfo) -> None:
        messages = sum(each.latest_offset - each.earliest_offset for each in target.partitions)
        if messages and self._into_new and not self._settings["into_filled"]:
            raise PipelineFailed(
                f"topic {self._target!r} is not empty (about {messages} messages); restore to another one (to=…), or "
                "say that it is meant: into_filled=true"
            )

    def _instant_us(self, name: str) -> int | None:
        return parse_instant_ns(self._settings[name]) // 1_000 if self._settings[name] else None

    def _run_steps(self, job: Job, file: JobFile, target: TopicInfo) -> None:
        same_partitions = len(target.partitions) == self._lake.partitions(self._topic)
        due = time.monotonic()
        while not job.is_finished and not self._context.stopping.is_set():
            wait_s = due - time.monotonic()
            if wait_s > 0 and self._context.stopping.wait(wait_s):
                return
            due = max(due, time.monotonic() - _STEP_SECONDS)
            count = self._write(job.steps[job.done], job.key_of(job.done), same_partitions)
            job.messages += count
            job.done += 1
            file.write(job)
            due += count / self._rate if self._rate else 0
            self._context.tell(Progress(job.messages, doing=f"step {job.done} of {len(job.steps)}"))

    def _write(self, step: Step, key: str, same_partitions: bool) -> int:
        """Write the messages of a step and return their number. Each partition is written by one task, in order."""
        from pyspark.sql import Observation, functions

        observation = Observation(_OBSERVED)
        rows = self._rows(step).repartition("partition").sortWithinPartitions("partition", "offset")
        columns = ["key", "value", _HEADERS, "priority", "timestamp", *(["partition"] if same_partitions else [])]
        messages = rows.selectExpr(*columns).observe(observation, functions.count("*").alias("messages"))
        self._context.write(messages, topic=self._target, commitKey=key)
        return int(observation.get["messages"])

    def _rows(self, step: Step) -> DataFrame:
        paths = [str(self._lake.path_of(file)) for file in step.files(self._files)]
        reader = self._context.spark.read.option("mergeSchema", "true") if self._filter else self._context.spark.read
        rows = reader.parquet(*paths).where(step.condition())
        for name, sign in (("since", ">="), ("until", "<")):
            instant = self._instant_us(name)
            if instant is not None:
                rows = rows.where(f"timestamp {sign} timestamp_micros({instant})")
        return rows.where(self._filter) if self._filter else rows


def _check(settings: Settings) -> None:
    check_names(settings, "topic", "to")
    folder = lake_folder(settings["lake"])
    if not folder.is_dir():
        raise InvalidPipeline(f"lake: {folder} is no folder; name the one that 'archive' has written to")
    if settings["since"] and settings["until"]:
        since, until = parse_instant_ns(settings["since"]), parse_instant_ns(settings["until"])
        if since >= until:
            raise InvalidPipeline(f"since ({settings['since']}) is not before until ({settings['until']})")


def _plan(settings: Settings, *, into_new: bool) -> dict[str, str]:
    _check(settings)
    times = "".join(f", {name} {settings[name]}" for name in ("since", "until") if settings[name])
    only = f", only where {settings['filter']}" if settings.get("filter") else ""
    rate = f", at most {settings['rate']:g} messages a second" if settings.get("rate") else ""
    target = settings["to"] or settings["topic"]
    how = "made if it is not there" if into_new else "which must be there"
    empty = "" if not into_new or settings["into_filled"] else "; it must be empty"
    return {
        "source": f"topic {settings['topic']} in the lake {Path(settings['lake'])}{times}{only}",
        "sink": f"topic {target}, {how}{empty}; exactly once{rate}",
    }
