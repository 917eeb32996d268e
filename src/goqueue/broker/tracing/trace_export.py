"""Tracing at work: events go to files and, as spans, to tracing systems; nobody waits for either."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from goqueue.broker.partitions.topic import Topic
from goqueue.broker.tracing.span_builder import SpanBuilder
from goqueue.model.clock import NANOS_PER_SECOND, Clock
from goqueue.model.config import TraceConfig
from goqueue.model.logging import get_logger
from goqueue.model.runs import size_of
from goqueue.observe import trace_event as kinds
from goqueue.observe.export_thread import ExportThread
from goqueue.observe.exporters import FILE, exporter_names, span_exporters
from goqueue.observe.trace_event import TraceEvent
from goqueue.observe.trace_files import TraceFiles
from goqueue.observe.tracer import Numbered, Tracer
from goqueue.storage.files.files import Files

log = get_logger(__name__)

_WRITE_EVERY_S = 0.2
_CLEAN_EVERY_NS = 60 * NANOS_PER_SECOND
_CLOSE_EXPORTERS_S = 2.0


class TraceExport:
    """Owns the task that writes and the threads that export.

    Files that cannot be used or written are no reason for anything else to stop: what they tell is not the truth that
    the broker works with. What is not written for that, or because ``is_disk_full`` says so, is counted.
    """

    def __init__(
        self,
        config: TraceConfig,
        files: Files,
        folder: Path,
        clock: Clock,
        node_id: str,
        topic: Callable[[str], Topic],
        is_disk_full: Callable[[], bool] = lambda: False,
    ) -> None:
        wanted = exporter_names(config.exporters) if config.sampling else []
        self._span_exporters = span_exporters(config, node_id) if config.sampling else []
        self.exporters: dict[str, ExportThread] = {}
        self.trouble = ""
        """Why events are not written to files, while they are not."""
        self._wants_files = FILE in wanted
        self._is_disk_full = is_disk_full
        self.files = self._opened(config, files, folder, clock) if self._wants_files else None
        self.tracer = Tracer(
            config.sampling, config.memory_events, keeps_pending=bool(self.files or self._span_exporters)
        )
        self.unwritten = 0
        self._unmade = 0
        self._spans = SpanBuilder(topic, config.export_per_second) if self._span_exporters else None
        self._task: asyncio.Task[None] | None = None
        self._clock = clock
        self._cleaned_ns: int | None = None
        self._stopping = asyncio.Event()

    def _opened(self, config: TraceConfig, files: Files, folder: Path, clock: Clock) -> TraceFiles | None:
        try:
            return TraceFiles(
                files, folder, config.file_bytes, config.retention_bytes, config.retention_ms, clock.now_ns
            )
        except OSError as error:
            self.trouble = f"{folder} cannot be used ({_reason(error)}); see to it, then restart the broker"
            log.error("the folder of traces cannot be used, none are written", folder=str(folder), error=_reason(error))
            return None

    def start(self) -> None:
        self.exporters = {name: ExportThread(each, name) for name, each in self._span_exporters}
        if self.files is not None or self.exporters:
            self._task = asyncio.create_task(self._run(), name="write traces")

    async def stop(self) -> None:
        """Write what there is; exporters get a moment for theirs. Also if it was never started."""
        self._stopping.set()
        if self._task is not None:
            await self._task
        for name, thread in self.exporters.items():
            await asyncio.to_thread(thread.close, _CLOSE_EXPORTERS_S)
            log.debug("exporter closed", exporter=name)
        if not self.exporters:
            self._close_unused()

    def _close_unused(self) -> None:
        """Exporters that no thread was begun for, because the broker's start failed."""
        for name, exporter in self._span_exporters:
            try:
                exporter.close()
            except Exception as error:
                log.warning("could not close a span exporter", exc_info=error, exporter=name)

    def dropped(self) -> dict[str, int]:
        """What did not get there, by exporter: events of files, spans of the others."""
        found = {}
        if self._wants_files:
            found[FILE] = self.tracer.events if self.files is None else self.unwritten + self.tracer.unwritten
        unmade = self._unmade + (0 if self._spans is None else self._spans.dropped)
        for name, thread in self.exporters.items():
            found[name] = thread.figures().dropped + unmade
        return found

    def exported(self) -> dict[str, int]:
        return {name: thread.figures().exported for name, thread in self.exporters.items()}

    async def _run(self) -> None:
        is_last = False
        while not is_last:
            with suppress(TimeoutError):
                async with asyncio.timeout(_WRITE_EVERY_S):
                    await self._stopping.wait()
            # What is noted during a write that began before the end is written after it.
            is_last = self._stopping.is_set()
            if self.tracer.pending:
                pending = self.tracer.take_pending()
                # Whatever fails, it must not be the end of tracing, nor keep the others from their part.
                try:
                    await self._write(pending)
                finally:
                    self.tracer.written()
                await self._export(pending.events)
            await self._clean()

    async def _write(self, pending: Numbered) -> None:
        events = pending.events
        if self.files is None:
            return
        try:
            if self._is_disk_full():
                # The room that is left is for messages; that there is little of it is told elsewhere.
                self.unwritten += len(events)
                return
            await asyncio.to_thread(self.files.write, events, pending.first)
            self.trouble = ""
        except Exception as error:
            self.unwritten += len(events)
            self.trouble = f"events cannot be written ({_reason(error)}); see to the reason: it is tried again"
            log.error("traces cannot be written", error=_reason(error), events=len(events), exc_info=_unexpected(error))

    async def _export(self, events: list[TraceEvent]) -> None:
        if self._spans is None:
            return
        try:
            spans = await self._spans.spans_of(_as_seen(events))
            for thread in self.exporters.values():
                thread.offer(spans)
        except Exception as error:
            self._unmade += sum(size_of(event.offsets) for event in events)
            log.error("spans could not be handed on", exc_info=error)

    async def _clean(self) -> None:
        """Also where nothing is written, files become too old."""
        now_ns = self._clock.monotonic_ns()
        if self.files is None or (self._cleaned_ns is not None and now_ns - self._cleaned_ns <= _CLEAN_EVERY_NS):
            return
        self._cleaned_ns = now_ns
        try:
            await asyncio.to_thread(self.files.clean)
        except Exception as error:
            log.error("old trace files could not be deleted, it will be tried again", exc_info=error)


def _as_seen(events: Iterable[TraceEvent]) -> Iterator[TraceEvent]:
    """As tracing systems are told: what a transaction wrote is published when it is committed, else not at all."""
    for event in events:
        if kinds.is_in_transaction(event.event, event.reason):
            continue
        if event.event == kinds.COMMITTED and not event.group:
            yield msgspec.structs.replace(event, event=kinds.PUBLISH)
        else:
            yield event


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def _unexpected(error: Exception) -> Exception | None:
    """What a disk does at times needs no account of where it happened."""
    return None if isinstance(error, OSError) else error
