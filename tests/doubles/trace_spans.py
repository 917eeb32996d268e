"""Spans to export."""

from __future__ import annotations

from typing import Any

from goqueue.observe.spans import Span

TRACE_ID = "f0e1d2c3b4a5968778695a4b3c2d1e0f"
SPAN_ID = "fedcba9876543210"
PARENT_ID = "8000000000000001"


def a_span(**changes: Any) -> Span:
    fields: dict[str, Any] = {
        "name": "publish orders",
        "trace_id": TRACE_ID,
        "span_id": SPAN_ID,
        "parent_id": PARENT_ID,
        "start_ns": 1_700_000_000_123_456_789,
        "end_ns": 1_700_000_000_223_456_789,
        "kind": "producer",
        "attributes": {"messaging.system": "goqueue", "messaging.goqueue.offset": 42},
    }
    return Span(**(fields | changes))


def some_spans(count: int, **changes: Any) -> list[Span]:
    """Each with a span id of its own, beginning with 1."""
    return [a_span(span_id=f"{number:016x}", **changes) for number in range(1, count + 1)]
