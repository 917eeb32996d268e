"""Operations on traces: what happened to messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from goqueue.broker.operations.caller import Caller
from goqueue.broker.operations.gate import Resource, ResourceOperations, operation
from goqueue.broker.tracing.trace_search import Criteria, LatencyFigures
from goqueue.broker.transactions.open_transactions import OpenTransaction
from goqueue.observe.trace import GroupStanding, Place, Step, Trace, TracePage, WaitsFor

__all__ = [
    "Criteria",
    "GroupStanding",
    "Place",
    "Step",
    "Trace",
    "TracePage",
    "TracesFound",
    "TransactionsByProducer",
    "WaitsFor",
]

TransactionsByProducer = Mapping[int, OpenTransaction]


@dataclass(frozen=True, slots=True)
class TracesFound:
    """Traces, and the open transactions, by producer id, that their messages may wait for."""

    page: TracePage
    open_transactions: TransactionsByProducer


@dataclass(frozen=True, slots=True)
class TracingStats:
    """How messages fare, and what tracing itself does."""

    latency: LatencyFigures
    sampling: float
    events: int
    events_in_memory: int
    file_bytes: int
    dropped: dict[str, int]
    exported: dict[str, int]


class TraceOperations(ResourceOperations):
    """A trace is put together when it is asked for."""

    @operation("traces.search", Resource.BROKER)
    async def search(self, caller: Caller, criteria: Criteria) -> TracesFound:
        """Messages that fit, the latest first."""
        page = await self._host.trace_search.search(criteria)
        return TracesFound(page, self._open_transactions(page.traces))

    @operation("traces.get", Resource.TRACE)
    async def get(self, caller: Caller, trace_id: str) -> TracesFound:
        """All that is known of one message and of its copies: a page of one trace."""
        found = await self._host.traces.by_id(trace_id)
        return TracesFound(TracePage([found], found.is_complete), self._open_transactions([found]))

    @operation("traces.stats", Resource.BROKER)
    async def stats(self, caller: Caller) -> TracingStats:
        """How long messages take, and how many events are kept."""
        latency = await self._host.trace_search.figures()
        tracing = self._host.tracing
        return TracingStats(
            latency,
            tracing.tracer.sampling,
            tracing.tracer.events,
            len(tracing.tracer.recent),
            0 if tracing.files is None else tracing.files.size_bytes,
            tracing.dropped(),
            tracing.exported(),
        )

    def _open_transactions(self, traces: Sequence[Trace]) -> TransactionsByProducer:
        if not any(each.waits_for for each in traces):
            return {}
        return {each.producer_id: each for each in self._host.transactions.coordinators.all_open()}
