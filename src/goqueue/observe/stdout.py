"""Span exporter to standard output, one JSON object per line."""

from __future__ import annotations

import io
import json
import os
import sys
from typing import Final, TextIO

from goqueue.observe.bounded_calls import BoundedCalls
from goqueue.observe.spans import Span, sendable, sendable_text

_TIMEOUT_S: Final = 5.0


class StdoutExporter:
    """Writes spans to ``stream`` (standard output) as ASCII without control characters, so that no value can forge a
    line.

    A closed pipe, or a reader that does not read, raises ``OSError``.
    """

    def __init__(self, stream: TextIO | None = None, *, timeout_s: float = _TIMEOUT_S) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._timeout_s = timeout_s
        self._calls = BoundedCalls("stdout")

    def export(self, spans: list[Span]) -> None:
        lines = "".join(line_of(span) + "\n" for span in spans)
        # Writing to a pipe that is not read blocks forever.
        self._calls.call(lambda: self._write(lines), self._timeout_s)

    def close(self) -> None:
        """The stream stays open, since it belongs to the caller."""
        self._calls.give_up()

    def _write(self, lines: str) -> None:
        try:
            file = self._stream.fileno()
        except (io.UnsupportedOperation, AttributeError):
            self._stream.write(lines)
            self._stream.flush()
            return
        except ValueError as error:
            raise OSError(f"the stream is closed: {error}") from None
        # Bypasses the stream's buffer: a write that hangs would hold its lock when the process flushes it at exit.
        rest = memoryview(lines.encode("ascii"))
        while rest:
            rest = rest[os.write(file, rest) :]


def line_of(span: Span) -> str:
    """One JSON object, without the line ending."""
    fields = {
        "name": sendable_text(span.name),
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "parent_id": span.parent_id,
        "kind": span.kind,
        "start_ns": span.start_ns,
        "end_ns": span.end_ns,
        "error": sendable_text(span.error),
        "attributes": {sendable_text(key): sendable(value) for key, value in span.attributes.items()},
    }
    return json.dumps(fields, ensure_ascii=True, separators=(",", ":"))
