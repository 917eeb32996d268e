"""Spans as tracing systems define them: one event of one message."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Literal, Protocol

SpanKind = Literal["producer", "consumer", "internal"]
Attribute = str | int

SERVICE = "goqueue"
_INT64 = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True, slots=True)
class Span:
    """A span. Ids are in lower-case hexadecimal; ``parent_id`` is empty for the first span of a trace."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    kind: SpanKind = "internal"
    error: str = ""
    """Reason of a failure; empty if there was none."""
    attributes: dict[str, Attribute] = field(default_factory=dict)


class SpansDropped(Exception):
    """Some spans of a batch were not exported; the others were."""

    def __init__(self, count: int, reason: str) -> None:
        super().__init__(reason)
        self.count = count


class SpanExporter(Protocol):
    """A destination for spans. Called in a thread of its own; ``export`` is never called by two threads at once."""

    def export(self, spans: list[Span]) -> None:
        """Export spans; raises if that fails, and those spans are counted as dropped.

        ``SpansDropped`` states their number; any other exception means all of them.
        """

    def close(self) -> None:
        """May be called from another thread while ``export`` runs, and should end any wait in it."""


def sendable(value: Attribute) -> Attribute:
    """``value`` in a form that every tracing system accepts: a 64-bit integer, or text that can be encoded as UTF-8."""
    if isinstance(value, int):
        # Python refuses to format integers of thousands of digits, except in hexadecimal.
        return value if _INT64.start <= value < _INT64.stop else hex(value)
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()


def sendable_text(text: str) -> str:
    return str(sendable(text))


@cache
def service_version() -> str:
    """Version of the installed package, for display in tracing systems."""
    try:
        return version(SERVICE)
    except PackageNotFoundError:
        return "unknown"
