"""Whatever happens over and over is written some times, then counted; and lines that belong to a trace say so."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from goqueue.model.logging import get_logger, tracing
from goqueue.observe import line_limit
from goqueue.observe.line_limit import LINES, WINDOW_S, LeftOut, LineLimit
from goqueue.observe.logs import LogHandler, configure, suppressed_lines

LOG = get_logger("goqueue.example")
OTHER = get_logger("goqueue.other")
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"


class Time:
    """Stands still until it is told to move; then whoever wanted to be called is."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def clock(self) -> float:
        return self.now

    def later(self, in_s: float, call: Callable[[], None]) -> None:
        self.calls.append((self.now + in_s, call))

    def pass_by(self, seconds: float) -> None:
        self.now += seconds
        due = [call for at, call in self.calls if at <= self.now]
        self.calls = [(at, call) for at, call in self.calls if at > self.now]
        for call in due:
            call()


class Log:
    """What was written, with time in the test's hands."""

    def __init__(self, time: Time) -> None:
        self.stream = io.StringIO()
        self.time = time
        configure("json", "debug", stream=self.stream, clock=time.clock, later=time.later)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]

    def events(self) -> list[str]:
        return [line["event"] for line in self.lines()]


@pytest.fixture
def log() -> Iterator[Log]:
    loggers = [logging.getLogger(name) for name in ("", "goqueue", "uvicorn", "uvicorn.error", "uvicorn.access")]
    before = [(logger, logger.level, logger.propagate, list(logger.handlers)) for logger in loggers]
    yield Log(Time())
    for logger, level, propagate, handlers in before:
        logger.setLevel(level)
        logger.propagate = propagate
        logger.handlers[:] = handlers


def test_an_event_that_comes_too_often_falls_silent_and_is_summed_up_when_the_time_is_over(log: Log) -> None:
    for number in range(LINES + 7):
        LOG.warning("disk is slow", number=number)
    assert [line["number"] for line in log.lines()] == list(range(LINES))
    log.time.pass_by(WINDOW_S)
    summary = log.lines()[-1]
    assert {name: summary[name] for name in ("level", "logger", "event", "of", "count")} == {
        "level": "warning",
        "logger": "goqueue.example",
        "event": "lines left out",
        "of": "disk is slow",
        "count": 7,
    }
    assert suppressed_lines() == 7


def test_after_its_silence_an_event_is_heard_again_and_summed_up_once(log: Log) -> None:
    for _ in range(LINES + 1):
        LOG.info("x")
    log.time.pass_by(WINDOW_S)
    LOG.info("x")
    log.time.pass_by(WINDOW_S)
    assert log.events() == ["x"] * LINES + ["lines left out", "x"]


def test_the_next_line_of_any_kind_brings_the_summary_if_nothing_else_does(log: Log) -> None:
    for _ in range(LINES + 1):
        LOG.info("x")
    log.time.calls.clear()
    log.time.pass_by(WINDOW_S)
    OTHER.info("y")
    assert log.events()[LINES:] == ["lines left out", "y"]


def test_as_many_lines_as_are_allowed_leave_no_summary_behind(log: Log) -> None:
    for _ in range(3):
        for _ in range(LINES):
            LOG.info("x")
        log.time.pass_by(WINDOW_S)
    assert log.events() == ["x"] * 3 * LINES
    assert suppressed_lines() == 0


def test_other_events_and_other_loggers_are_heard_meanwhile(log: Log) -> None:
    for _ in range(LINES + 1):
        LOG.info("x")
    LOG.info("y")
    OTHER.info("x")
    assert log.events()[LINES:] == ["y", "x"]


def test_errors_with_their_tracebacks_are_limited_as_well(log: Log) -> None:
    for _ in range(2 * LINES):
        LOG.error("failed", exc_info=ValueError("why"))
    log.time.pass_by(WINDOW_S)
    assert sum("exception" in line for line in log.lines()) == LINES
    assert (log.lines()[-1]["level"], log.lines()[-1]["count"]) == ("error", LINES)


def test_lines_of_a_library_that_differ_only_in_their_arguments_are_the_same_event(log: Log) -> None:
    for number in range(LINES + 5):
        logging.getLogger("somelib").warning("lost connection %d", number)
    log.time.pass_by(WINDOW_S)
    assert len(log.lines()) == LINES + 1
    assert (log.lines()[-1]["of"], log.lines()[-1]["count"]) == ("lost connection %d", 5)


def test_what_was_left_out_is_told_at_the_end_of_the_process(log: Log) -> None:
    for _ in range(LINES + 2):
        LOG.info("x")
    [handler] = [each for each in logging.getLogger().handlers if isinstance(each, LogHandler)]
    handler.close()
    assert log.lines()[-1]["count"] == 2


def test_without_a_thread_to_be_had_the_line_is_left_out_all_the_same(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    configure("json", "debug", stream=log.stream, clock=log.time.clock)
    for _ in range(LINES + 2):
        LOG.info("x")
    log.time.pass_by(WINDOW_S)
    OTHER.info("y")
    assert log.events()[LINES:] == ["lines left out", "y"]


def test_a_summary_comes_by_itself_in_real_time(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_limit, "WINDOW_S", 0.02)
    written = threading.Event()

    class Watched(io.StringIO):
        def write(self, text: str) -> int:
            if "lines left out" in text:
                written.set()
            return super().write(text)

    configure("json", "info", stream=Watched())
    while not suppressed_lines():
        LOG.info("x")
    assert written.wait(30)


def test_as_many_events_are_remembered_as_are_worth_it_and_none_is_forgotten_unsaid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(line_limit, "_MOST_EVENTS", 10)
    limit = LineLimit(lambda: 0.0)
    for _ in range(LINES + 3):
        limit.admits("l", "loud", logging.INFO)
    for number in range(1_000):
        assert limit.admits("l", f"event {number}", logging.INFO)
    assert len(limit._windows) == 10
    assert limit.ended() == [LeftOut("l", "loud", logging.INFO, 3)]
    assert limit.ended() == []


def test_threads_that_log_at_once_lose_no_count() -> None:
    limit = LineLimit(lambda: 0.0)
    admitted = []

    def many() -> None:
        admitted.append(sum(limit.admits("l", "x", logging.INFO) for _ in range(2_000)))

    threads = [threading.Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (sum(admitted), limit.suppressed) == (LINES, 8_000 - LINES)
    assert [each.count for each in limit.ended(all_of_them=True)] == [8_000 - LINES]


# Traces


def test_lines_written_inside_of_a_trace_carry_its_id_and_no_others_do(log: Log) -> None:
    LOG.info("before")
    with tracing(TRACE_ID):
        LOG.info("inside", topic="t")
        LOG.info("of another", trace_id="other")
        with tracing(""):
            LOG.info("still inside")
    LOG.info("after")
    assert [line.get("trace_id") for line in log.lines()] == [None, TRACE_ID, "other", TRACE_ID, None]


def test_a_console_line_shows_the_trace_id(log: Log) -> None:
    configure("console", "info", stream=log.stream)
    with tracing(TRACE_ID):
        LOG.info("inside")
    assert f"trace_id={TRACE_ID}" in log.stream.getvalue()
