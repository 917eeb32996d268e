"""What ``/metrics`` shows of a broker: counted where things happen, put together when someone asks.

Asking looks at every partition and every group, in stretches of two milliseconds, so that nobody waits for all of it.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable
from typing import Protocol

from goqueue.broker.metrics.group_metrics import GroupMetrics
from goqueue.broker.metrics.health import Examined
from goqueue.broker.metrics.metric_families import FAMILIES
from goqueue.broker.metrics.topic_metrics import TopicMetrics
from goqueue.broker.runtime.time_slices import TimeSlice
from goqueue.broker.transactions.open_transactions import State
from goqueue.model.clock import NANOS_PER_SECOND
from goqueue.model.config import Config
from goqueue.observe.exposition import Figures, labelled, render
from goqueue.observe.histogram import Histogram
from goqueue.observe.logs import suppressed_lines
from goqueue.observe.process import LoopDelay, ProcessFigures, gc_collections, process_figures
from goqueue.observe.requests import Requests
from goqueue.version import __version__

_WRITE_BOUNDS_S = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0
)  # fmt: skip


class Watched(Examined, Protocol):
    """What is needed of a broker beyond what its health needs."""

    config: Config

    def problems(self) -> dict[str, str]: ...

    def fsync_rounds(self) -> int: ...

    def known_batches(self) -> int: ...


class Metrics:
    """Made with the broker, so that servers can count from their beginning. Whoever starts it must stop it."""

    def __init__(self, broker: Watched) -> None:
        self._broker = broker
        self.http = Requests("http")
        self.grpc = Requests("grpc")
        self.native = Requests("native")
        self.connections: dict[str, Callable[[], int]] = {}
        """By api: asked for how many are open."""
        self.publish = Histogram(_WRITE_BOUNDS_S)
        self.fsync = Histogram(_WRITE_BOUNDS_S)
        self.loop_delay = LoopDelay()
        self._topics = TopicMetrics(broker.config.metrics)
        self._groups = GroupMetrics(broker.config.metrics, self._topics)
        self._one_at_a_time = asyncio.Lock()

    def start(self) -> None:
        self.loop_delay.start()

    async def stop(self) -> None:
        await self.loop_delay.stop()

    async def scrape(self, *, openmetrics: bool) -> bytes:
        """All figures as text."""
        async with self._one_at_a_time:
            # Listing open files takes long if there are many.
            process = await asyncio.to_thread(process_figures)
            stretch = TimeSlice()
            figures = Figures()
            await self._collect(figures, stretch)
            _add_process(process, figures)
            pieces = []
            for piece in render(FAMILIES, figures, openmetrics=openmetrics):
                pieces.append(piece.encode())
                if stretch.is_over:
                    await stretch.rest()
            return b"".join(pieces)

    async def _collect(self, figures: Figures, stretch: TimeSlice) -> None:
        topics = list(self._broker.running_topics())
        await self._topics.admit(topics, stretch)
        await self._topics.collect(topics, figures, stretch)
        await self._groups.collect(self._broker.groups.shards, figures, stretch)
        figures.add("goqueue_topics", len(topics))
        self._add_broker(figures)
        self._add_delays(figures)
        self._add_transactions(figures)
        self._add_traces(figures)
        figures.add("goqueue_log_lines_suppressed_total", suppressed_lines())
        figures.add_histogram("goqueue_publish_seconds", self.publish)
        figures.add_histogram("goqueue_fsync_seconds", self.fsync)
        figures.add_histogram("goqueue_event_loop_delay_seconds", self.loop_delay.histogram)
        for requests in (self.http, self.grpc, self.native):
            requests.add_to(figures)

    def _add_broker(self, figures: Figures) -> None:
        broker = self._broker
        about = labelled(("version", "python"), (__version__, platform.python_version()))
        figures.add("goqueue_build_info", 1, about)
        is_ready = not broker.problems()
        figures.add("goqueue_ready", int(is_ready))
        # Asked for its problems, the broker has looked at the disk.
        figures.add("goqueue_disk_free_bytes", broker.disk.free_bytes)
        figures.add("goqueue_disk_min_free_bytes", broker.config.storage.min_free_bytes)
        figures.add("goqueue_failed_partitions", self._topics.failed)
        figures.add("goqueue_damaged_messages", self._topics.damaged)
        figures.add("goqueue_fsync_rounds_total", broker.fsync_rounds())
        for api, count in self.connections.items():
            figures.add("goqueue_connections", count(), labelled(("api",), (api,)))

    def _add_traces(self, figures: Figures) -> None:
        tracing = self._broker.tracing
        figures.add("goqueue_trace_events_total", tracing.tracer.events)
        figures.add("goqueue_trace_file_bytes", 0 if tracing.files is None else tracing.files.size_bytes)
        for sink, count in tracing.dropped().items():
            figures.add("goqueue_trace_dropped_total", count, labelled(("sink",), (sink,)))
        for sink, count in tracing.exported().items():
            figures.add("goqueue_trace_spans_exported_total", count, labelled(("sink",), (sink,)))

    def _add_delays(self, figures: Figures) -> None:
        delays = self._broker.delays
        tally = delays.tally
        figures.add("goqueue_delayed_messages", delays.pending)
        figures.add("goqueue_delayed_fired_total", tally.delivered)
        figures.add("goqueue_delayed_cancelled_total", tally.cancelled)
        figures.add("goqueue_delayed_rescheduled_total", tally.rescheduled)
        figures.add_histogram("goqueue_delay_error_seconds", tally.error)

    def _add_transactions(self, figures: Figures) -> None:
        transactions, now_ns = self._broker.transactions, self._broker.clock.now_ns()
        tally = transactions.tally
        by_state = dict.fromkeys(State, 0)
        oldest_ns, overdue = now_ns, 0
        # Ten thousand may be open: all is counted in one go.
        for each in transactions.coordinators.all_open():
            by_state[each.state] += 1
            oldest_ns = min(oldest_ns, each.started_ns)
            overdue += each.deadline_ns <= now_ns
        for state, count in by_state.items():
            figures.add("goqueue_transactions", count, labelled(("state",), (state,)))
        figures.add("goqueue_oldest_transaction_seconds", (now_ns - oldest_ns) / NANOS_PER_SECOND)
        figures.add("goqueue_transactions_overdue", overdue)
        figures.add("goqueue_transactions_held_up", len(transactions.held_up()))
        figures.add("goqueue_transactions_begun_total", tally.begun)
        figures.add("goqueue_transactions_committed_total", tally.committed)
        figures.add("goqueue_transactions_aborted_total", tally.aborted)
        figures.add("goqueue_transactions_timed_out_total", tally.timed_out)
        figures.add_histogram("goqueue_transaction_seconds", tally.durations)
        figures.add("goqueue_known_producers", self._topics.producers)
        figures.add("goqueue_producers_fenced_total", transactions.producers.fenced)
        figures.add("goqueue_known_batches_total", self._broker.known_batches())
        figures.add("goqueue_known_dedup_ids", self._topics.dedup_ids)


def _add_process(process: ProcessFigures, figures: Figures) -> None:
    known = {
        "process_cpu_seconds_total": process.cpu_s,
        "process_resident_memory_bytes": process.resident_bytes,
        "process_virtual_memory_bytes": process.virtual_bytes,
        "process_open_fds": process.open_fds,
        "process_max_fds": process.max_fds,
        "process_start_time_seconds": process.started_s,
    }
    for name, value in known.items():
        if value is not None:
            figures.add(name, value)
    for generation, count in enumerate(gc_collections()):
        figures.add("python_gc_collections_total", count, labelled(("generation",), (generation,)))
