from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from doubles.patience import in_time
from doubles.trace_spans import some_spans

from goqueue.observe.export_thread import MAX_BATCH, ExportFigures, ExportThread
from goqueue.observe.spans import Span, SpansDropped

LONG_S = 30.0


class Sink:
    """Takes spans, one batch whenever ``gate`` lets it, or fails."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.gate = threading.Event()
        if is_open:
            self.gate.set()
        self.entered = threading.Event()
        self.batches: list[list[Span]] = []
        self.error: Exception | None = None
        self.closed = 0

    def export(self, spans: list[Span]) -> None:
        self.entered.set()
        assert self.gate.wait(LONG_S)
        if self.error is not None:
            raise self.error
        self.batches.append(spans)

    def close(self) -> None:
        self.closed += 1
        self.gate.set()


@contextmanager
def exporting(sink: Sink, **options: object) -> Iterator[ExportThread]:
    thread = ExportThread(sink, "sink", **options)  # type: ignore[arg-type]
    try:
        yield thread
    finally:
        sink.gate.set()
        thread.close(LONG_S)


def worker() -> threading.Thread | None:
    return next((thread for thread in threading.enumerate() if thread.name == "goqueue-export-sink"), None)


def test_spans_arrive_in_order_and_in_batches_of_at_most_512() -> None:
    sink, spans = Sink(is_open=False), some_spans(1_300)
    with exporting(sink) as thread:
        thread.offer(spans[:1])
        assert sink.entered.wait(LONG_S)
        thread.offer(spans[1:])
        sink.gate.set()
        thread.close(LONG_S)
    assert [span for batch in sink.batches for span in batch] == spans
    assert [len(batch) for batch in sink.batches] == [1, MAX_BATCH, MAX_BATCH, 275]
    assert thread.figures() == ExportFigures(1_300, 0, 0)
    assert sink.closed == 1


def test_what_does_not_fit_is_dropped_and_counted_at_once() -> None:
    sink = Sink(is_open=False)
    with exporting(sink, max_spans=100) as thread:
        thread.offer(some_spans(1))
        assert sink.entered.wait(LONG_S)
        thread.offer(some_spans(250))
        assert thread.figures() == ExportFigures(0, 151, 100)
        thread.offer(some_spans(3))
        assert thread.figures().dropped == 154
        sink.gate.set()
        thread.close(LONG_S)
        assert thread.figures() == ExportFigures(100, 154, 0)


def test_offering_nothing_is_nothing() -> None:
    with exporting(Sink()) as thread:
        thread.offer([])
        assert thread.figures() == ExportFigures(0, 0, 0)


def test_what_an_exporter_fails_on_is_dropped_and_the_next_batch_is_tried() -> None:
    sink = Sink()
    sink.error = OSError("refused")
    with exporting(sink) as thread:
        thread.offer(some_spans(10))
        wait_for_none_waiting(thread)
        assert thread.figures() == ExportFigures(0, 10, 0)
        sink.error = None
        thread.offer(some_spans(5))
        wait_for_none_waiting(thread)
        assert thread.figures() == ExportFigures(5, 10, 0)


def test_an_exporter_can_drop_some_of_a_batch() -> None:
    sink = Sink()
    sink.error = SpansDropped(3, "too large")
    with exporting(sink) as thread:
        thread.offer(some_spans(10))
        wait_for_none_waiting(thread)
        assert thread.figures() == ExportFigures(7, 3, 0)


def test_drops_are_logged_once_a_minute_with_their_number(caplog: pytest.LogCaptureFixture) -> None:
    class Refusing(Sink):
        now = 100.0

        def export(self, spans: list[Span]) -> None:
            if len(spans) == 4:
                self.now += 61
            raise OSError("refused\nforged")

    sink = Refusing()
    with caplog.at_level(logging.WARNING), exporting(sink, clock=lambda: sink.now) as thread:
        for count in (1, 2, 3, 4, 5):
            thread.offer(some_spans(count))
            wait_for_none_waiting(thread)
        thread.close(LONG_S)
    assert dropped_in_log(caplog) == [1, 2 + 3 + 4, 5], "at once, after a minute, and at the end"
    fields = caplog.records[0].fields  # type: ignore[attr-defined]
    assert fields["exporter"] == "sink"
    assert fields["reason"] == "OSError: refused\nforged"


def test_spans_that_do_not_fit_are_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    sink = Sink()
    with caplog.at_level(logging.WARNING), exporting(sink, max_spans=2) as thread:
        thread.offer(some_spans(10))
        thread.close(LONG_S)
    assert dropped_in_log(caplog) == [8]


def test_closing_does_not_wait_for_an_exporter_that_hangs_and_frees_it(caplog: pytest.LogCaptureFixture) -> None:
    sink = Sink(is_open=False)
    thread = ExportThread(sink, "sink")
    thread.offer(some_spans(1))
    assert sink.entered.wait(LONG_S)
    thread.offer(some_spans(1_000))
    hanging = worker()
    assert hanging is not None
    assert not hanging.daemon
    with in_time(30), caplog.at_level(logging.WARNING):
        thread.close(0.05)
    assert thread.figures() == ExportFigures(0, 1_001, 0)
    assert dropped_in_log(caplog) == [1_001]
    hanging.join(LONG_S)
    assert not hanging.is_alive(), "closing the exporter lets its export end"
    assert thread.figures() == ExportFigures(0, 1_001, 0), "nothing is counted twice"
    thread.close(LONG_S)
    assert sink.closed == 1


def test_what_is_offered_after_closing_is_dropped() -> None:
    with exporting(Sink()) as thread:
        thread.close(LONG_S)
        thread.offer(some_spans(7))
        assert thread.figures() == ExportFigures(0, 7, 0)


def test_an_exporter_that_cannot_be_closed_is_no_reason_to_fail(caplog: pytest.LogCaptureFixture) -> None:
    class Stubborn(Sink):
        def close(self) -> None:
            raise OSError("no")

    thread = ExportThread(Stubborn(), "sink")
    thread.close(LONG_S)
    assert worker() is None
    assert "could not close a span exporter" in caplog.text


def test_every_span_is_counted_once_whoever_offers_it() -> None:
    sink = Sink()
    spans = some_spans(50)
    with exporting(sink, max_spans=600) as thread:
        offering = [
            threading.Thread(target=lambda: [thread.offer(spans) for _ in range(100)] and None) for _ in range(4)
        ]
        for one in offering:
            one.start()
        for one in offering:
            one.join(LONG_S)
        thread.close(LONG_S)
        figures = thread.figures()
    assert figures.exported + figures.dropped == 4 * 100 * 50
    assert figures.exported == sum(map(len, sink.batches))


FORGOTTEN = """
from goqueue.observe.export_thread import ExportThread
class Nowhere:
    def export(self, spans): pass
    def close(self): pass
ExportThread(Nowhere(), "forgotten")
print("end", flush=True)
"""


def test_a_process_that_does_not_close_it_ends_nevertheless() -> None:
    done = subprocess.run([sys.executable, "-c", FORGOTTEN], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def wait_for(condition: object) -> None:
    deadline = time.monotonic() + LONG_S
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.001)


def wait_for_none_waiting(thread: ExportThread) -> None:
    wait_for(lambda: thread.figures().waiting == 0)


def dropped_in_log(caplog: pytest.LogCaptureFixture) -> list[int]:
    return [record.fields["dropped"] for record in caplog.records if "dropped" in getattr(record, "fields", {})]
