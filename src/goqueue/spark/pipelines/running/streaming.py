"""Runner of streaming queries: reports progress, sums their metrics, and stops them between two micro-batches."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol

from goqueue.model.errors import GoQueueError
from goqueue.model.logging import get_logger
from goqueue.spark.pipelines.running.checkpoint_identity import local_folder, unfinished_batch
from goqueue.spark.pipelines.running.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

log = get_logger(__name__)

AVAILABLE_NOW = "available-now"
Until = Callable[[Mapping[str, Any]], bool]
_POLL_INTERVAL_S = 0.1
_STOP_TIMEOUT_S = 300.0
"""A stop interrupts a micro-batch that takes longer than this; the next run repeats it."""


@dataclass(slots=True)
class Totals:
    """The totals of a query in this run."""

    messages: int = 0
    batches: int = 0
    seconds: float = 0.0
    stopped: bool = False
    """Whether it was stopped before it was finished."""
    observed: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The metrics of ``df.observe(name, …)``, summed over the batches: ``{name: {metric: sum}}``."""
    waiting: int = 0
    """Rows of state that the query holds at its end, such as windows that are not closed yet."""
    again: int | None = None
    """A batch that an earlier run had started and may have written: it is counted here, but written only once."""

    def notes(self) -> list[str]:
        """Notes for the summary."""
        notes = []
        if self.again is not None:
            notes.append(
                f"batch {self.again} was begun by an earlier run and is counted here; what of it was written before "
                "is not written again"
            )
        if self.stopped:
            notes.append("stopped before the end, between two micro-batches; the next run goes on from there")
        return notes


class QueryContext(Protocol):
    """The part of a run's context that queries need."""

    brokers: str
    stopping: Event
    lag_group: str | None

    def tell(self, progress: Progress, /) -> None: ...

    def keep_claim(self) -> None: ...


class ReportCounter:
    """Sums the progress reports of one query. A report may be added many times and is counted once.

    An idle query reports too, under the number of its next batch; the report of that batch replaces it.
    """

    def __init__(self) -> None:
        self.totals = Totals()
        self.latest: Mapping[str, Any] = {}
        self.first: int | None = None
        """The first batch with input rows or non-zero observed metrics."""
        self._pending: tuple[int, Mapping[str, Any]] | None = None

    @property
    def batch(self) -> int | None:
        """The last reported batch."""
        return None if self._pending is None else self._pending[0]

    def add(self, report: Mapping[str, Any]) -> bool:
        """Add a report; return whether it was new."""
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

    def finish(self) -> Totals:
        """Count the last report and return the totals, after all reports were added."""
        if self._pending is not None:
            self._count(self._pending[1])
            self._pending = None
        return self.totals

    @property
    def messages(self) -> int:
        """Messages so far, including the latest report."""
        return self.totals.messages + (int(self._pending[1].get("numInputRows") or 0) if self._pending else 0)

    def _count(self, report: Mapping[str, Any]) -> None:
        rows = int(report.get("numInputRows") or 0)
        self.totals.messages += rows
        self.totals.batches += 1 if rows else 0
        observed = report.get("observedMetrics") or {}
        # A batch without input may still write windows that the watermark has closed.
        if self.first is None and (rows or any(value for each in observed.values() for value in each.values())):
            self.first = int(report["batchId"])
        self.totals.waiting = sum(int(each.get("numRowsTotal") or 0) for each in report.get("stateOperators") or ())
        for name, metrics in observed.items():
            sums = self.totals.observed.setdefault(name, {})
            for metric, value in metrics.items():
                sums[metric] = value if value is None or sums.get(metric) is None else sums[metric] + value


def lag_of(report: Mapping[str, Any]) -> int | None:
    """The messages that the sources have beyond the offsets read; None if a source has other kinds of offsets."""
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
    """The end offsets of queries. If two report the same partition, the first one counts."""
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


def run_queries(
    context: QueryContext, writers: Sequence[tuple[DataStreamWriter, str]], trigger: str, until: Until | None = None
) -> list[Totals]:
    """Run queries concurrently until all have ended. The progress reported is that of the first.

    ``until`` is called with the latest report of the first query; if it returns true, all are stopped. If a query
    fails, the others finish their micro-batch, and its error is raised.
    """
    began = time.monotonic()
    queries: list[StreamingQuery] = []
    counters = [ReportCounter() for _ in writers]
    folders = [local_folder(checkpoint) for _, checkpoint in writers]
    unfinished = [None if folder is None else unfinished_batch(folder) for folder in folders]
    when: dict[str, Any] = {"availableNow": True} if trigger == AVAILABLE_NOW else {"processingTime": trigger}
    stopped = False
    try:
        for writer, checkpoint in writers:
            if context.stopping.is_set():
                break
            context.keep_claim()
            queries.append(writer.trigger(**when).option("checkpointLocation", checkpoint).start())
        while any(query.isActive for query in queries):
            context.stopping.wait(_POLL_INTERVAL_S)
            are_new = [_add_reports(query, counter) for query, counter in zip(queries, counters, strict=False)]
            if are_new[0]:
                _report_progress(context, counters[0])
            if context.stopping.is_set() or any(query.exception() for query in queries):
                stopped = context.stopping.is_set()
                break
            if until is not None and counters[0].latest and until(counters[0].latest):
                break
    finally:
        _stop_queries(queries, counters)
        _publish_offsets(context, counters)
    _report_progress(context, counters[0])
    for query in queries:
        if (error := query.exception()) is not None:
            raise error
    totals = [counter.finish() for counter in counters]
    for each, counter, before in zip(totals, counters, unfinished, strict=True):
        each.again = before if before is not None and before == counter.first else None
    for each in totals[: len(queries)]:
        each.seconds = time.monotonic() - began
        each.stopped = stopped
    return totals


def _report_progress(context: QueryContext, counter: ReportCounter) -> None:
    if counter.latest:
        rate = float(counter.latest.get("processedRowsPerSecond") or 0)
        context.tell(Progress(counter.messages, rate, counter.batch, lag_of(counter.latest)))


def _publish_offsets(context: QueryContext, counters: Sequence[ReportCounter]) -> None:
    """Publish the end offsets to the group. A source only learns that a batch is done when the next one is planned,
    so the last batch would be missing."""
    ends = ends_of([counter.latest for counter in counters])
    if context.lag_group is None or not ends:
        return
    from goqueue.spark.source.group_mirror import GroupMirror
    from goqueue.spark.source.options import source_options
    from goqueue.spark.source.positions import from_json

    options = {"brokers": context.brokers, "topics": ",".join(ends), "group": context.lag_group}
    try:
        GroupMirror(source_options(options)).publish(from_json(ends), at_once=True)
    except GoQueueError as error:
        log.warning("how far a query is could not be told to its group", group=context.lag_group, error=str(error))


def _add_reports(query: StreamingQuery, counter: ReportCounter) -> bool:
    latest = query.lastProgress
    if latest is None:
        return False
    before = counter.batch
    if before is None or latest.batchId > before + 1:
        # Several batches since the last poll; Spark keeps the last hundred reports.
        for report in query.recentProgress:
            counter.add(json.loads(report.json))
        return True
    return counter.add(json.loads(latest.json))


def _stop_queries(queries: Sequence[StreamingQuery], counters: Sequence[ReportCounter]) -> None:
    """Let each query finish its current micro-batch, then stop it.

    ``stop`` interrupts a running batch. So wait until a new batch is reported or none is running. The batch that has
    started after that one is interrupted right at its start, and the next run repeats it.
    """
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    for query in queries:
        before = _last_report_id(query)
        while query.isActive and query.status["isTriggerActive"] and _last_report_id(query) == before:
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_INTERVAL_S / 4)
    for query, counter in zip(queries, counters, strict=False):
        if query.isActive:
            query.stop()
        _add_reports(query, counter)


def _last_report_id(query: StreamingQuery) -> tuple[Any, Any]:
    latest = query.lastProgress
    return (None, None) if latest is None else (latest.batchId, latest.timestamp)
