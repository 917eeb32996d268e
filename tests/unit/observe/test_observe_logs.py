"""What a log line looks like, and what it cannot be made to look like."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model.errors import InvalidRequest
from goqueue.model.logging import get_logger
from goqueue.observe.logs import ConsoleFormatter, JsonFormatter, LogHandler, configure

LOG = get_logger("goqueue.example")
TOUCHED = ("", "goqueue", "uvicorn", "uvicorn.error", "uvicorn.access")
COLOUR = "\x1b["


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in TOUCHED]
    before = [(logger, logger.level, logger.propagate, list(logger.handlers)) for logger in loggers]
    yield
    for logger, level, propagate, handlers in before:
        logger.setLevel(level)
        logger.propagate = propagate
        logger.handlers[:] = handlers


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


def record(event: str, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("goqueue.x", logging.INFO, __file__, 1, event, None, None)
    made.fields = fields
    return made


def json_line(stream: io.StringIO) -> dict[str, Any]:
    [line] = stream.getvalue().splitlines()
    parsed = json.loads(line)
    assert isinstance(parsed, dict)
    return parsed


def test_a_json_line_has_time_level_logger_event_then_fields(stream: io.StringIO) -> None:
    configure("json", "info", stream=stream)
    LOG.info("recovered partition", topic="x", cut_bytes=12)
    line = json_line(stream)
    assert list(line) == ["ts", "level", "logger", "event", "topic", "cut_bytes"]
    assert line["ts"].endswith("Z")
    assert datetime.fromisoformat(line["ts"]).tzinfo is not None
    assert (line["level"], line["logger"]) == ("info", "goqueue.example")
    assert (line["event"], line["topic"], line["cut_bytes"]) == ("recovered partition", "x", 12)


def test_a_field_cannot_replace_what_every_line_has(stream: io.StringIO) -> None:
    configure("json", "info", stream=stream)
    LOG.info("real", level="fake", event="fake", ts="fake", logger="fake", exception="fake")
    line = json_line(stream)
    assert (line["level"], line["event"], line["logger"]) == ("info", "real", "goqueue.example")
    assert (line["level_"], line["event_"], line["exception_"]) == ("fake", "fake", "fake")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None),
        (True, True),
        (1.5, 1.5),
        (float("nan"), "nan"),
        (b"a\xff", "a\\xff"),
        (Path("/d"), "/d"),
        ((1, "a"), [1, "a"]),
        ({"k": {1: b"v"}}, {"k": {"1": "v"}}),
        (1 << 20_000, hex(1 << 20_000)),
        (Unprintable(), "<Unprintable that cannot be shown>"),
        ("\ud800", "\ud800"),
    ],
    ids=["none", "flag", "float", "nan", "bytes", "path", "tuple", "mapping", "huge", "unprintable", "surrogate"],
)
def test_any_value_can_be_a_field_of_a_json_line(stream: io.StringIO, value: object, shown: object) -> None:
    configure("json", "info", stream=stream)
    LOG.info("x", value=value)
    assert json_line(stream)["value"] == shown


def test_a_value_that_holds_itself_is_cut_off(stream: io.StringIO) -> None:
    configure("json", "info", stream=stream)
    circle: list[object] = []
    circle.append(circle)
    LOG.info("x", value=circle)
    assert json_line(stream)["event"] == "x"


def test_an_exception_is_a_field_of_a_json_line(stream: io.StringIO) -> None:
    configure("json", "info", stream=stream)
    try:
        raise ValueError("a\nb")
    except ValueError:
        LOG.exception("failed", topic="x")
    line = json_line(stream)
    assert (line["level"], line["topic"]) == ("error", "x")
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith("ValueError: a\nb")


def test_an_exception_that_was_kept_can_be_logged_later(stream: io.StringIO) -> None:
    configure("json", "info", stream=stream)
    LOG.error("task failed", exc_info=ValueError("kept"), task="cleanup")
    assert json_line(stream)["exception"] == "ValueError: kept"


def test_an_event_is_never_a_format_string(stream: io.StringIO) -> None:
    configure("json", "info", stream=stream)
    LOG.warning("100% of %s")
    assert json_line(stream)["event"] == "100% of %s"


def test_a_console_line_has_time_level_event_and_fields_in_columns(stream: io.StringIO) -> None:
    configure("console", "info", stream=stream)
    LOG.info("recovered partition", topic="x", cut_bytes=12, note="a b", empty="", path='c:\\"d"')
    LOG.warning("slow")
    first, second = stream.getvalue().splitlines()
    assert re.match(r"\d\d:\d\d:\d\d\.\d{3} info    recovered partition  +topic=x cut_bytes=12 ", first)
    assert r'note="a b" empty="" path="c:\\\"d\""' in first
    assert first.index("topic=") == second.index("logger=")


def test_an_exception_follows_a_console_line_set_in_by_a_bar(stream: io.StringIO) -> None:
    configure("console", "info", stream=stream)
    LOG.error("failed", exc_info=ValueError("a\n12:00:00.000 info forged"))
    first, *rest = stream.getvalue().splitlines()
    assert " error   failed " in first
    assert rest == ["    | ValueError: a", "    | 12:00:00.000 info forged"]


@given(event=st.text(), name=st.text(min_size=1), value=st.one_of(st.text(), st.binary(), st.lists(st.text())))
def test_nothing_that_is_logged_can_forge_a_line(event: str, name: str, value: object) -> None:
    made = record(event, **{name: value})
    console = ConsoleFormatter(colour=False).format(made)
    assert console.isprintable()
    machine = JsonFormatter().format(made)
    assert machine.isprintable()
    assert json.loads(machine)["event"] == event


def test_a_terminal_gets_colour() -> None:
    terminal = Terminal()
    configure("console", "info", stream=terminal, environ={})
    LOG.info("x", forged="\x1b[31mred")
    assert COLOUR in terminal.getvalue()
    assert "\x1b[31mred" not in terminal.getvalue()


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_that_wants_no_colour_gets_none(environ: dict[str, str]) -> None:
    terminal = Terminal()
    configure("console", "info", stream=terminal, environ=environ)
    LOG.info("x", a=1)
    assert COLOUR not in terminal.getvalue()


def test_a_pipe_gets_no_colour(stream: io.StringIO) -> None:
    configure("console", "info", stream=stream, environ={})
    LOG.info("x", a=1)
    assert COLOUR not in stream.getvalue()


@pytest.mark.parametrize(
    ("level", "written"),
    [("debug", "diwe"), ("info", "iwe"), ("warning", "we"), ("error", "e")],
)
def test_lines_below_the_level_are_not_written(stream: io.StringIO, level: str, written: str) -> None:
    configure("json", level, stream=stream)
    LOG.debug("d")
    LOG.info("i")
    LOG.warning("w")
    LOG.error("e")
    events = [json.loads(line)["event"] for line in stream.getvalue().splitlines()]
    assert events == [each for each in "diwe" if each in written]


def test_libraries_are_heard_from_warning_up(stream: io.StringIO) -> None:
    configure("json", "debug", stream=stream)
    logging.getLogger("somelib").info("chatter")
    logging.getLogger("somelib").warning("trouble in %s", "b")
    assert json_line(stream)["event"] == "trouble in b"


def test_the_http_server_logs_the_same_way_and_its_access_log_is_off(stream: io.StringIO) -> None:
    own = io.StringIO()
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).addHandler(logging.StreamHandler(own))
    configure("json", "info", stream=stream)
    logging.getLogger("uvicorn.error").info("Started server process [%d]", 7)
    logging.getLogger("uvicorn.access").critical("GET /")
    line = json_line(stream)
    assert (line["logger"], line["event"]) == ("uvicorn", "Started server process [7]")
    assert own.getvalue() == ""


def test_configuring_again_replaces_the_handler_and_no_other(stream: io.StringIO) -> None:
    root = logging.getLogger()
    other = logging.NullHandler()
    root.addHandler(other)
    configure("json", "info", stream=io.StringIO())
    configure("json", "info", stream=stream)
    LOG.info("once")
    assert json_line(stream)["event"] == "once"
    assert other in root.handlers
    assert sum(isinstance(handler, LogHandler) for handler in root.handlers) == 1


def test_lines_go_to_standard_error_unless_told_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    configure("console", "info")
    LOG.info("hello")
    captured = capsys.readouterr()
    assert "hello" in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(("format", "level"), [("xml", "info"), ("json", "loud")])
def test_an_unknown_format_or_level_is_refused_before_anything_changes(format: str, level: str) -> None:
    before = list(logging.getLogger().handlers)
    with pytest.raises(InvalidRequest, match="use one of"):
        configure(format, level)
    assert logging.getLogger().handlers == before


def test_a_line_knows_who_wrote_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="goqueue.example"):
        LOG.info("x")
    assert caplog.records[0].funcName == "test_a_line_knows_who_wrote_it"
    assert logging.getLogger("goqueue.example").isEnabledFor(logging.ERROR)
