"""Thread that exports spans from a bounded queue, so that a slow tracing system blocks nothing else."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from goqueue.model.logging import get_logger
from goqueue.observe.spans import Span, SpanExporter, SpansDropped

log = get_logger(__name__)

MAX_BATCH: Final = 512
_LOG_EVERY_S: Final = 60.0
_LOOK_ROUND_S: Final = 1.0


class ExportFigures(NamedTuple):
    """Counts of spans: every span offered is exported, dropped, or waiting."""

    exported: int
    dropped: int
    waiting: int


class ExportThread:
    """Accepts spans without blocking and passes them to ``exporter`` in batches. Spans beyond the queue's limit are
    dropped and counted.

    The thread ends with ``close``, or on exit of the process without ``close``. It is no daemon thread, so that no
    export is cut off; an exporter's calls must therefore end at some time, at the latest when the exporter is closed.
    """

    def __init__(
        self, exporter: SpanExporter, name: str, max_spans: int = 10_000, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._exporter = exporter
        self._name = name
        self._max_spans = max_spans
        self._clock = clock
        # All attributes below are guarded by this lock.
        self._changed = threading.Condition()
        self._waiting: deque[Span] = deque()
        self._in_flight = 0
        self._exported = 0
        self._dropped = 0
        self._dropped_logged = 0
        self._logged_at: float | None = None
        self._is_closing = False
        self._is_abandoned = False
        self._thread = threading.Thread(target=self._run, name=f"goqueue-export-{name}", daemon=False)
        self._thread.start()

    def offer(self, spans: Sequence[Span]) -> None:
        """Enqueue spans; never waits for the exporter."""
        with self._changed:
            room = 0 if self._is_closing else self._max_spans - len(self._waiting) - self._in_flight
            taken = min(len(spans), max(0, room))
            self._waiting.extend(spans if taken == len(spans) else islice(spans, taken))
            self._dropped += len(spans) - taken
            if taken:
                self._changed.notify_all()

    def figures(self) -> ExportFigures:
        with self._changed:
            return ExportFigures(self._exported, self._dropped, len(self._waiting) + self._in_flight)

    def close(self, timeout_s: float) -> None:
        """Export the queue for up to ``timeout_s``, then count the rest as dropped. Returns in either case."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join(max(0.0, timeout_s))
        with self._changed:
            if self._is_abandoned or not self._thread.is_alive():
                return
            dropped_before = self._dropped_logged
            self._abandon()
            dropped = self._dropped - dropped_before
        log.warning("gave up exporting spans", exporter=self._name, timeout_s=timeout_s, dropped=dropped)
        # Closing may end an export that hangs. It may hang as well, so it is not waited for.
        threading.Thread(target=self._close_exporter, name=f"goqueue-export-{self._name}-end", daemon=True).start()

    def _abandon(self) -> None:
        self._is_closing = self._is_abandoned = True
        self._dropped += len(self._waiting) + self._in_flight
        self._dropped_logged = self._dropped
        self._waiting.clear()
        self._in_flight = 0

    def _run(self) -> None:
        while batch := self._next_batch():
            reason = self._export(batch)
            self._log_dropped(reason)
        self._log_dropped("", at_the_end=True)
        if not self._is_abandoned:
            self._close_exporter()

    def _next_batch(self) -> list[Span]:
        """The next batch; empty at the end."""
        with self._changed:
            while not self._waiting and not self._is_closing and threading.main_thread().is_alive():
                self._changed.wait(_LOOK_ROUND_S)
            if not threading.main_thread().is_alive():
                # The process is exiting without ``close`` and waits for this thread.
                self._abandon()
            batch = [self._waiting.popleft() for _ in range(min(MAX_BATCH, len(self._waiting)))]
            self._in_flight = len(batch)
            return batch

    def _export(self, batch: list[Span]) -> str:
        """Export a batch; returns the reason if spans were dropped, else an empty string."""
        dropped, reason = 0, ""
        try:
            self._exporter.export(batch)
        except SpansDropped as error:
            dropped, reason = min(error.count, len(batch)), str(error)
        except Exception as error:
            dropped, reason = len(batch), f"{type(error).__name__}: {error}"
        with self._changed:
            # An abandoned batch was counted as dropped already.
            if not self._is_abandoned:
                self._exported += len(batch) - dropped
                self._dropped += dropped
                self._in_flight = 0
        return reason

    def _log_dropped(self, reason: str, *, at_the_end: bool = False) -> None:
        """Log at most once a minute how many spans were dropped since the last such line."""
        now = self._clock()
        with self._changed:
            count = self._dropped - self._dropped_logged
            is_soon = self._logged_at is not None and now - self._logged_at < _LOG_EVERY_S
            if not count or (is_soon and not at_the_end):
                return
            self._dropped_logged = self._dropped
            self._logged_at = now
        log.warning("dropped spans", exporter=self._name, dropped=count, reason=reason or "more were offered than fit")

    def _close_exporter(self) -> None:
        try:
            self._exporter.close()
        except Exception as error:
            log.warning("could not close a span exporter", exc_info=error, exporter=self._name)
