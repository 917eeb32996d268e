"""One thing that happened to one message, as tracing systems know it."""

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
    """Ids are in lower-case hexadecimal; ``parent_id`` is empty for the first span of a trace."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    kind: SpanKind = "internal"
    error: str = ""
    """Why it failed; empty if it did not."""
    attributes: dict[str, Attribute] = field(default_factory=dict)


class SpansDropped(Exception):
    """Some of the spans that an exporter was given did not get there; the others did."""

    def __init__(self, count: int, reason: str) -> None:
        super().__init__(reason)
        self.count = count


class SpanExporter(Protocol):
    """Somewhere that spans go. Called in a thread of its own; ``export`` is never called by two threads at once."""

    def export(self, spans: list[Span]) -> None:
        """Raise whatever keeps them from getting there: those spans are counted as dropped.

        ``SpansDropped`` says how many of them, any other exception means all.
        """

    def close(self) -> None:
        """May come from another thread while ``export`` runs: whatever that one waits for, it should end."""


def sendable(value: Attribute) -> Attribute:
    """``value`` as every tracing system takes it: an integer of 64 bits, or a text that UTF-8 can hold."""
    if isinstance(value, int):
        # Python refuses to write out an integer of thousands of digits, except in hexadecimal.
        return value if _INT64.start <= value < _INT64.stop else hex(value)
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()


def sendable_text(text: str) -> str:
    return str(sendable(text))


@cache
def service_version() -> str:
    """Of the installed package, for tracing systems to show."""
    try:
        return version(SERVICE)
    except PackageNotFoundError:
        return "unknown"
