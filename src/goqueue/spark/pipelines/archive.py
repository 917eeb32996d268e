"""``archive``: writes topics to a lake, partitioned by topic and day, exactly once.

``lake`` (Parquet) and ``lake_tables`` (Delta, Iceberg) describe why this holds after a kill. Each topic with a subject
in the registry is read by a separate query, because its files have different columns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from goqueue.model.errors import GoQueueError
from goqueue.model.names import INTERNAL_PREFIX
from goqueue.spark.pipelines.definitions.checks import check_names
from goqueue.spark.pipelines.definitions.definition import Pipeline
from goqueue.spark.pipelines.definitions.problems import InvalidPipeline, PipelineFailed
from goqueue.spark.pipelines.definitions.settings import Setting, Settings
from goqueue.spark.pipelines.lake.lake import lake_folder, topic_recreated
from goqueue.spark.pipelines.lake.lake_compaction import compact, days_to_compact
from goqueue.spark.pipelines.lake.lake_files import staged_files
from goqueue.spark.pipelines.lake.lake_log import Ends, LakeFile, TopicMark
from goqueue.spark.pipelines.lake.lake_tables import FORMATS, open_lake
from goqueue.spark.pipelines.running.context import Context
from goqueue.spark.pipelines.running.progress import Progress
from goqueue.spark.pipelines.running.summary import Summary, Table, per_second

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from goqueue.client.connection.topics import TopicInfo

_DAY = "date_from_unix_date(CAST(floor(unix_micros(timestamp) / 86400000000) AS INT)) AS day"
"""The day in UTC, whatever the session's time zone."""
_OPEN_FILES = 64
"""Files that a task writes concurrently; with more topics and days than this, Spark sorts the rows first."""
_COMPACT_WHILE_RUNNING = 32
"""Number of a day's small files at which a continuous run compacts the day."""
_WRITE_CONF = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.maxConcurrentOutputFileWriters": str(_OPEN_FILES),
}


def run(context: Context) -> Summary:
    _check(context.settings)
    archive = _Archive(context)
    with archive.lake.writing():
        try:
            return archive.run()
        finally:
            archive.close()


class _Archive:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._settings = context.settings
        self.lake = open_lake(self._settings["format"], lake_folder(self._settings["lake"]))
        self._commit_lock = Lock()
        """Serializes commits to the lake: queries run concurrently."""
        self._added: list[LakeFile] = []
        self._notes: list[str] = []
        self._checkpoints: list[str] = []

    def run(self) -> Summary:
        from goqueue.spark.pipelines.running.streaming import AVAILABLE_NOW, run_queries

        context, settings = self._context, self._settings
        with context.client() as client:
            infos = {name: client.describe_topic(name) for name in self._names(client.list_topics())}
            subjects = set(client.schemas.subjects()) if settings["decode"] else set()
        if not infos:
            self._notes.append(f"No topic fits the pattern {settings['pattern']}.")
        self._marks = {name: TopicMark(info.id, len(info.partitions)) for name, info in infos.items()}
        starts, self._log_starts = starts_of(infos, self.lake.ends(self._marks))
        self._rows_per_file = max(1_000, settings["file_size"] // _message_size(infos))
        groups = {f"{name}-value": [name] for name in infos if f"{name}-value" in subjects}
        others = [name for name in infos if f"{name}-value" not in subjects]
        writers = [self._query(names, starts, subject) for subject, names in groups.items()]
        if others:
            writers.insert(0, self._query(others, starts, None))
        every = settings["every"]
        trigger = f"{every} milliseconds" if every else AVAILABLE_NOW
        try:
            totals = run_queries(context, writers, trigger) if writers else []
        except Exception:
            self._raise_if_recreated()
            raise
        if any(each.stopped for each in totals):
            self._notes.append("Stopped before the end; the next run goes on from there.")
        merged = self._compact(2) if not context.stopping.is_set() else 0
        return self._summary(max((each.seconds for each in totals), default=0.0), merged)

    def close(self) -> None:
        for staged in self._checkpoints:
            self.lake.discard(staged)

    def _names(self, existing: list[str]) -> list[str]:
        pattern = self._settings["pattern"]
        if pattern is None:
            return list(dict.fromkeys(self._settings["topics"]))
        fits = re.compile(pattern).fullmatch
        return [name for name in existing if fits(name) and not name.startswith(INTERNAL_PREFIX)]

    def _query(self, names: list[str], starts: Ends, subject: str | None) -> tuple[Any, str]:
        context, settings = self._context, self._settings
        start = {name: starts[name] for name in names if name in starts}
        options: dict[str, Any] = {
            "topics": ",".join(names),
            "startingPosition": json.dumps(start) if start else "earliest",
            "maxMessagesPerTrigger": settings["batch_messages"],
            "failOnDataLoss": str(settings["fail_on_data_loss"]).lower(),
        }
        if settings["path"]:
            options["path"] = settings["path"]
        messages = context.read_stream(**options)
        if subject is not None:
            messages = _decode_values(messages, subject, context.brokers)
        # The checkpoint is for this run only: the lake itself records how far it goes.
        staged, checkpoint = self.lake.new_stage()
        self._checkpoints.append(staged)
        return messages.writeStream.foreachBatch(lambda batch, _: self._add(batch)), str(checkpoint)

    def _add(self, batch: DataFrame) -> None:
        staged, folder = self.lake.new_stage()
        _configure(batch.sparkSession)
        rows, by = batch.selectExpr("*", _DAY), ("topic", "day")
        if self.lake.keeps_columns:
            rows, by = rows.selectExpr("*", "topic AS _topic", "day AS _day"), ("_topic", "_day")
        try:
            (
                rows.write.partitionBy(*by)
                .option("compression", self._settings["compression"])
                .option("maxRecordsPerFile", self._rows_per_file)
                .parquet(str(folder))
            )
            with self._commit_lock:
                files = staged_files(folder, staged)
                if files:
                    marks = {file.topic: self._marks[file.topic] for file in files}
                    self._check_not_recreated(marks)
                    log_starts = {topic: self._log_starts.pop(topic) for topic in marks if topic in self._log_starts}
                    self.lake.add(staged, files, marks, log_starts)
                    self._added += files
                if self._settings["every"]:
                    self._compact(_COMPACT_WHILE_RUNNING)
        finally:
            self.lake.discard(staged)

    def _raise_if_recreated(self) -> None:
        """Raise the lake's error for a recreated topic instead of the source's, whose advice does not fit a lake."""
        try:
            self._check_not_recreated(self._marks)
        except PipelineFailed:
            raise
        except GoQueueError:
            return

    def _check_not_recreated(self, marks: Mapping[str, TopicMark]) -> None:
        """Raise if a topic was deleted and recreated: what was read so far belongs to the old one."""
        with self._context.client() as client:
            for name, mark in marks.items():
                if client.describe_topic(name).id != mark.id:
                    raise topic_recreated(name, self.lake.folder)

    def _compact(self, at_least: int) -> int:
        """Compact days with ``at_least`` so many small files; return the number of files that were merged."""
        lake = self.lake
        if not self._settings["compact"] or not lake.can_compact:
            return 0
        merged = 0
        for plan in days_to_compact(lake.state.files.values(), self._settings["file_size"], at_least=at_least):
            if self._context.stopping.is_set():
                break
            self._context.tell(Progress(self._rows, doing="merging small files"))
            spark = self._context.spark.newSession()
            _configure(spark)
            if not compact(spark, lake, plan, self._settings["compression"]):
                self._notes.append("Small files were left as they are, because somebody restores from the lake.")
                break
            merged += sum(len(files) for files in plan.merges)
        return merged

    @property
    def _rows(self) -> int:
        return sum(file.rows for file in self._added)

    def _summary(self, seconds: float, merged: int) -> Summary:
        by_topic: dict[str, list[int]] = {}
        for file in self._added:
            sums = by_topic.setdefault(file.topic, [0, 0, 0])
            sums[0] += file.rows
            sums[1] += 1
            sums[2] += file.size_bytes
        rows = [[topic, *sums] for topic, sums in sorted(by_topic.items())]
        return Summary(
            numbers={
                "messages archived": self._rows,
                "files written": len(self._added),
                "small files merged": merged,
                "seconds": round(seconds, 1),
                "messages per second": per_second(self._rows, seconds),
            },
            tables=[Table("by topic", ["topic", "messages", "files", "bytes"], rows)],
            files=[str(self.lake.folder)],
            notes=self._notes,
        )


def _configure(spark: SparkSession) -> None:
    for name, value in _WRITE_CONF.items():
        spark.conf.set(name, value)


def _decode_values(messages: DataFrame, subject: str, brokers: str) -> DataFrame:
    """Add a column ``decoded`` with the subject's schema, and ``_corrupt`` with the error of an unreadable value."""
    from goqueue.spark.registry.schema_columns import CORRUPT_COLUMN, decoded

    read = decoded(messages, "value", subject, brokers=brokers, into="decoded")
    return read.withColumn(CORRUPT_COLUMN, read[CORRUPT_COLUMN]["error"])


def starts_of(infos: Mapping[str, TopicInfo], ends: Ends) -> tuple[Ends, Ends]:
    """The offsets where a run starts reading (the ends of the lake), and the log starts of topics new to the lake.

    Together they cover every partition, so that messages removed by retention between two runs are always reported.
    """
    starts: Ends = {}
    log_starts: Ends = {}
    for name, info in infos.items():
        earliest = {number: part.earliest_offset for number, part in enumerate(info.partitions)}
        if ends.get(name):
            # Partitions added since start at 0, which the source assumes; given explicitly if messages are gone there.
            starts[name] = {number: 0 for number, first in earliest.items() if first} | ends[name]
        else:
            log_starts[name] = earliest
    return starts, log_starts


def _message_size(infos: dict[str, TopicInfo]) -> int:
    """Average message size in bytes by the broker's statistics. Files are smaller than that, due to compression."""
    parts = [part for info in infos.values() for part in info.partitions]
    messages = sum(part.latest_offset - part.earliest_offset for part in parts)
    return max(1, sum(part.size_bytes for part in parts) // max(1, messages))


def _check(settings: Settings) -> None:
    check_names(settings, "topics")
    if settings["path"] and not Path(settings["path"]).is_dir():
        raise InvalidPipeline(f"path: {Path(settings['path']).absolute()} is no folder; name the broker's data folder")
    if bool(settings["topics"]) == bool(settings["pattern"]):
        raise InvalidPipeline("say what to archive: topics=orders,refunds or pattern='orders-.*'")
    if settings["pattern"]:
        try:
            re.compile(settings["pattern"])
        except re.error as error:
            raise InvalidPipeline(f"pattern: {settings['pattern']!r} is no regular expression: {error}") from None
    lake_folder(settings["lake"])


def plan(settings: Settings) -> dict[str, str]:
    _check(settings)
    what = f"topics {settings.formatted('topics')}" if settings["topics"] else f"topics like {settings['pattern']}"
    transport = f", from the files in {settings['path']}" if settings["path"] else ""
    every = settings.formatted("every")
    described = {
        "source": f"{what}, from where the lake ends{transport}",
        "sink": f"{settings['format']} files in {settings['lake']}, by topic and day, exactly once",
        "trigger": f"every {every}, until it is stopped" if every else "reads what is there, then ends",
    }
    if settings["decode"]:
        described["columns"] = "those of the source; for topics with a subject (TOPIC-value) also decoded and _corrupt"
    if settings["compact"] and settings["format"] == "parquet":
        described["compaction"] = f"small files of a day are merged to {settings.formatted('file_size')}"
    return described


PIPELINE = Pipeline(
    name="archive",
    summary="Topics to a lake of files by topic and day, exactly once.",
    run=run,
    plan=plan,
    settings=[
        Setting("topics", "Which topics.", "names"),
        Setting("pattern", "Instead: topics whose whole name fits this regular expression when the run begins."),
        Setting("lake", "The folder of the lake; every worker must see it.", required=True),
        Setting("format", "What kind of lake.", "choice", default="parquet", choices=FORMATS),
        Setting("every", "Go on until stopped, with a batch this often.", "duration", minimum=100),
        Setting("batch_messages", "At most so many messages in a batch.", "number", default=4_000_000, minimum=1),
        Setting("path", "Read from the files of this data folder, beside the broker that is using it."),
        Setting("decode", "Add the columns of a topic's schema, if it has one.", "flag", default=True),
        Setting("file_size", "About how large files shall be.", "size", 128 << 20, minimum=1 << 16, maximum=1 << 40),
        Setting("compact", "Merge small files (Parquet).", "flag", default=True),
        Setting("compression", "Of the files.", "choice", "zstd", choices=("zstd", "snappy", "gzip", "none")),
        Setting("fail_on_data_loss", "Fail if retention was faster than the archive.", "flag", default=True),
    ],
)
