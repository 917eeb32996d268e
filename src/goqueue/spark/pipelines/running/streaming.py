"""Runs streaming queries: tells how far they are, adds up what they counted, ends them between two micro-batches."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol

from goqueue.model.errors import GoQueueError
from goqueue.model.logging import get_logger
from goqueue.spark.pipelines.running.checkpoint_identity import begun_batch, local_folder
from goqueue.spark.pipelines.running.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

log = get_logger(__name__)

AVAILABLE_NOW = "available-now"
Until = Callable[[Mapping[str, Any]], bool]
_LOOK_EVERY_S = 0.1
_FINISH_WITHIN_S = 300.0
"""A micro-batch that takes longer than this is interrupted by a stop; the next run does it again."""


@dataclass(slots=True)
class Totals:
    """What a query did in this run."""

    messages: int = 0
    batches: int = 0
    seconds: float = 0.0
    stopped: bool = False
    """True if it was told to end before it was done."""
    observed: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The numbers of ``df.observe(name, …)``, added up over the batches: ``{name: {metric: sum}}``."""
    waiting: int = 0
    """Rows of state that the query holds at its end: windows that are not closed yet."""
    again: int | None = None
    """A batch that an earlier run had begun, and maybe written: it is counted here, and written once."""

    def notes(self) -> list[str]:
        """What should be told beside the numbers."""
        told = []
        if self.again is not None:
            told.append(
                f"batch {self.again} was begun by an earlier run and is counted here; what of it was written before "
                "is not written again"
            )
        if self.stopped:
            told.append("stopped before the end, between two micro-batches; the next run goes on from there")
        return told


class QueryContext(Protocol):
    """The run that queries belong to."""

    brokers: str

    @property
    def stopping(self) -> Event:
        """Set when the run is to end."""

    @property
    def tell(self) -> Callable[[Progress], None]:
        """Reports progress."""

    @property
    def told_group(self) -> str | None:
        """The group whose offsets follow the queries, if there is one."""

    def keep_claim(self) -> None:
        """Write into the checkpoint what it is for."""


class Watch:
    """Adds up the progress reports of one query. A report may be seen many times, and is counted once.

    A query that waits reports too, under the number that its next batch will have; the report of the batch itself
    replaces that one.
    """

    def __init__(self) -> None:
        self.totals = Totals()
        self.latest: Mapping[str, Any] = {}
        self.first: int | None = None
        """The first batch that read or counted anything."""
        self._pending: tuple[int, Mapping[str, Any]] | None = None

    @property
    def batch(self) -> int | None:
        """The last batch that is reported."""
        return None if self._pending is None else self._pending[0]

    def take(self, report: Mapping[str, Any]) -> bool:
        """Whether there was anything new in it."""
        number = int(report["batchId"])
        if self._pending is not None:
            seen, before = self._pending
            if number < seen or (number == seen and report["timestamp"] == before["timestamp"]):
                return False
            if number > seen:
                self._count(before)
        self._pending = (number, report)
        self.latest = report
        return True

    def finished(self) -> Totals:
        """The sums, once no more reports come."""
        if self._pending is not None:
            self._count(self._pending[1])
            self._pending = None
        return self.totals

    @property
    def messages(self) -> int:
        """So far, the report that came last included."""
        return self.totals.messages + (int(self._pending[1].get("numInputRows") or 0) if self._pending else 0)

    def _count(self, report: Mapping[str, Any]) -> None:
        rows = int(report.get("numInputRows") or 0)
        self.totals.messages += rows
        self.totals.batches += 1 if rows else 0
        observed = report.get("observedMetrics") or {}
        # A batch may read nothing and yet write windows that were due.
        if self.first is None and (rows or any(value for each in observed.values() for value in each.values())):
            self.first = int(report["batchId"])
        self.totals.waiting = sum(int(each.get("numRowsTotal") or 0) for each in report.get("stateOperators") or ())
        for name, metrics in observed.items():
            sums = self.totals.observed.setdefault(name, {})
            for metric, value in metrics.items():
                sums[metric] = value if value is None or sums.get(metric) is None else sums[metric] + value


def lag_of(report: Mapping[str, Any]) -> int | None:
    """How many messages the sources had beyond what was read; None if a source does not tell offsets as ours does."""
    total = 0
    for source in report.get("sources") or ():
        latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
        if latest is None or end is None:
            return None
        for topic, partitions in latest.items():
            for partition, offset in partitions.items():
                total += max(0, offset - end.get(topic, {}).get(partition, 0))
    return total


def ends_of(reports: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """How far queries have got. Where two tell of the same partition, the first counts."""
    ends: dict[str, dict[str, int]] = {}
    for report in reports:
        for source in report.get("sources") or ():
            for topic, partitions in (_offsets(source.get("endOffset")) or {}).items():
                ends[topic] = {**partitions, **ends.get(topic, {})}
    return ends


def _offsets(raw: Any) -> dict[str, dict[str, int]] | None:
    try:
        offsets = json.loads(raw) if isinstance(raw, str) else raw
        return {
            topic: {number: int(at) for number, at in each.items() if number.isdecimal()}
            for topic, each in offsets.items()
        }
    except (ValueError, TypeError, AttributeError):
        return None


def run_query(
    context: QueryContext, writer: DataStreamWriter, trigger: str, checkpoint: str, until: Until | None = None
) -> Totals:
    """See ``Context.run_query``."""
    return run_queries(context, [(writer, checkpoint)], trigger, until)[0]


def run_queries(
    context: QueryContext,
    writers: Sequence[tuple[DataStreamWriter, str]],
    trigger: str,
    until: Until | None = None,
) -> list[Totals]:
    """Run queries side by side until all have ended; the progress that is told is that of the first.

    ``until`` is asked about the first's latest report; with true, all end. If one fails, the others finish their
    micro-batch and its error is raised.
    """
    began = time.monotonic()
    queries: list[StreamingQuery] = []
    watches = [Watch() for _ in writers]
    begun = [_begun_batch(checkpoint) for _, checkpoint in writers]
    stopped = False
    try:
        for writer, checkpoint in writers:
            if context.stopping.is_set():
                break
            context.keep_claim()
            queries.append(_triggered(writer, trigger).option("checkpointLocation", checkpoint).start())
        while any(query.isActive for query in queries):
            context.stopping.wait(_LOOK_EVERY_S)
            _look(context, queries, watches)
            if context.stopping.is_set() or any(query.exception() for query in queries):
                stopped = context.stopping.is_set()
                break
            if until is not None and watches[0].latest and until(watches[0].latest):
                break
    finally:
        _end(queries, watches)
        _tell_group(context, watches)
    _tell(context, watches[0])
    for query in queries:
        if (error := query.exception()) is not None:
            raise error
    totals = [watch.finished() for watch in watches]
    for each, watch, before in zip(totals, watches, begun, strict=True):
        each.again = before if before is not None and before == watch.first else None
    for each in totals[: len(queries)]:
        each.seconds = time.monotonic() - began
        each.stopped = stopped
    return totals


def _triggered(writer: DataStreamWriter, trigger: str) -> DataStreamWriter:
    return writer.trigger(availableNow=True) if trigger == AVAILABLE_NOW else writer.trigger(processingTime=trigger)


def _look(context: QueryContext, queries: Sequence[StreamingQuery], watches: Sequence[Watch]) -> None:
    news = False
    for number, (query, watch) in enumerate(zip(queries, watches, strict=False)):
        is_new = _take_reports(query, watch)
        news = news or (is_new and number == 0)
    if news:
        _tell(context, watches[0])


def _tell(context: QueryContext, watch: Watch) -> None:
    if watch.latest:
        rate = float(watch.latest.get("processedRowsPerSecond") or 0)
        context.tell(Progress(watch.messages, rate, watch.batch, lag_of(watch.latest)))


def _begun_batch(checkpoint: str) -> int | None:
    folder = local_folder(checkpoint)
    return None if folder is None else begun_batch(folder)


def _tell_group(context: QueryContext, watches: Sequence[Watch]) -> None:
    """The last batch is done, and nobody else says so: a source learns that from the batch behind it."""
    ends = ends_of([watch.latest for watch in watches])
    if context.told_group is None or not ends:
        return
    from goqueue.spark.source.group_mirror import GroupMirror
    from goqueue.spark.source.options import source_options
    from goqueue.spark.source.positions import from_json

    told = {"brokers": context.brokers, "topics": ",".join(ends), "group": context.told_group}
    try:
        GroupMirror(source_options(told)).publish(from_json(ends), at_once=True)
    except GoQueueError as error:
        log.warning("how far a query is could not be told to its group", group=context.told_group, error=str(error))


def _take_reports(query: StreamingQuery, watch: Watch) -> bool:
    latest = query.lastProgress
    if latest is None:
        return False
    before = watch.batch
    if before is None or latest.batchId > before + 1:
        # Batches were quicker than we look; Spark keeps the last hundred reports.
        for report in query.recentProgress:
            watch.take(json.loads(report.json))
        return True
    return watch.take(json.loads(latest.json))


def _end(queries: Sequence[StreamingQuery], watches: Sequence[Watch]) -> None:
    """Let each finish the micro-batch that it is in, then stop it.

    A stop interrupts whatever runs. So wait until a batch is reported that had not been, or none is running. What
    has begun behind it by then is interrupted at its very beginning, and is done by the next run.
    """
    deadline = time.monotonic() + _FINISH_WITHIN_S
    for query in queries:
        before = _reported(query)
        while query.isActive and query.status["isTriggerActive"] and _reported(query) == before:
            if time.monotonic() > deadline:
                break
            time.sleep(_LOOK_EVERY_S / 4)
    for query, watch in zip(queries, watches, strict=False):
        if query.isActive:
            query.stop()
        _take_reports(query, watch)


def _reported(query: StreamingQuery) -> tuple[Any, Any]:
    latest = query.lastProgress
    return (None, None) if latest is None else (latest.batchId, latest.timestamp)
