from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from doubles.trace_spans import PARENT_ID, SPAN_ID, TRACE_ID, a_span, some_spans

from goqueue.observe.stdout import StdoutExporter


def test_a_span_is_a_json_object_on_a_line_of_its_own() -> None:
    stream = io.StringIO()
    StdoutExporter(stream).export([a_span(error="refused"), a_span(parent_id="")])
    first, second = stream.getvalue().splitlines()
    assert json.loads(first) == {
        "name": "publish orders",
        "trace_id": TRACE_ID,
        "span_id": SPAN_ID,
        "parent_id": PARENT_ID,
        "kind": "producer",
        "start_ns": 1_700_000_000_123_456_789,
        "end_ns": 1_700_000_000_223_456_789,
        "error": "refused",
        "attributes": {"messaging.system": "goqueue", "messaging.goqueue.offset": 42},
    }
    assert json.loads(second)["parent_id"] == ""


HOSTILE = 'a\nb\r\x1b[2J\x00\x85\u2028\u2029\u202e\ud800"}\n{"name":"forged"}'


def test_nothing_in_a_span_can_forge_a_line() -> None:
    stream = io.StringIO()
    StdoutExporter(stream).export(
        [a_span(name=HOSTILE, error=HOSTILE, attributes={HOSTILE: HOSTILE, "n": 1 << 20_000})]
    )
    text = stream.getvalue()
    assert text.isascii()
    assert text.endswith("\n")
    assert text[:-1].isprintable()
    line = json.loads(text)
    shown = HOSTILE.replace("\ud800", "\\ud800")
    assert line["name"] == line["error"] == line["attributes"][shown] == shown
    assert line["attributes"]["n"] == hex(1 << 20_000)


def test_a_file_gets_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "spans"
    with path.open("w") as stream:
        StdoutExporter(stream).export(some_spans(1_000))
    lines = path.read_text().splitlines()
    assert [int(json.loads(line)["span_id"], 16) for line in lines] == list(range(1, 1_001))


def test_standard_output_is_where_it_goes_by_default(capfd: pytest.CaptureFixture[str]) -> None:
    StdoutExporter().export([a_span()])
    assert json.loads(capfd.readouterr().out)["name"] == "publish orders"


def test_a_pipe_that_is_closed_at_the_other_end_is_an_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream, pytest.raises(BrokenPipeError):
        StdoutExporter(stream).export([a_span()])


def test_a_stream_that_is_closed_is_an_error(tmp_path: Path) -> None:
    with (tmp_path / "spans").open("w") as stream:
        exporter = StdoutExporter(stream)
    with pytest.raises(OSError, match="closed"):
        exporter.export([a_span()])


def test_a_pipe_that_nobody_reads_is_an_error_in_time_and_no_line_is_torn() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading) as reader, os.fdopen(writing, "w") as stream:
        exporter = StdoutExporter(stream, timeout_s=0.05)
        with pytest.raises(TimeoutError):
            exporter.export(some_spans(2_000))
        with pytest.raises(TimeoutError):
            exporter.export([a_span(name="refused")])
        lines = [json.loads(reader.readline()) for _ in range(2_000)]
        exporter.close()
    assert [int(line["span_id"], 16) for line in lines] == list(range(1, 2_001))


UNREAD = """
import sys
from goqueue.observe.export_thread import ExportThread
from goqueue.observe.spans import Span
from goqueue.observe.stdout import StdoutExporter

thread = ExportThread(StdoutExporter(), "stdout")
thread.offer([Span("x" * 1_000, "1" * 32, "2" * 16, "", 1, 2)] * 1_000)
thread.close(0.1)
print(thread.figures().dropped, file=sys.stderr)
"""


def test_a_process_whose_output_nobody_reads_ends_nevertheless() -> None:
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", UNREAD], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.wait(30) == 0
    finally:
        process.kill()
        out, errors = process.communicate()
    assert out
    assert errors.splitlines()[-1] == "1000"
