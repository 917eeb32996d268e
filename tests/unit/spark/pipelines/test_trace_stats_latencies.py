"""Latencies from ranges of offsets, against one message at a time; and what trace files say, read as ranges."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import numpy as np
import pytest

from goqueue.model.errors import InvalidRequest
from goqueue.observe.trace_event import ACK, COMMITTED, DLQ, FIRED, PUBLISH
from goqueue.spark.pipelines.analysis.chart import busiest, draw
from goqueue.spark.pipelines.analysis.latencies import Ranges, latencies, round_to_digits
from goqueue.spark.pipelines.analysis.offset_blocks import BLOCK, MAX_RANGE_OFFSETS, cut_into_blocks
from goqueue.spark.pipelines.analysis.trace_runs import (
    COPIED,
    EventFilter,
    Run,
    parse_lines,
    read_file,
    to_batch,
    trace_files,
)
from goqueue.spark.pipelines.definitions.settings import Settings
from goqueue.spark.pipelines.running.context import Context
from goqueue.spark.pipelines.trace_stats import PIPELINE, plan, run

_EVERYTHING = EventFilter(frozenset({PUBLISH, ACK, COMMITTED, COPIED}))


def _ranges(rows: list[tuple[int, int, int, bool, str]]) -> Ranges:
    """Each of: first, end, at, whether it is a publishing, group. They happened in this order."""
    first, end, at, is_begin, group = zip(*rows, strict=True)
    return Ranges(
        np.array(first, np.int64),
        np.array(end, np.int64),
        np.array(at, np.int64),
        np.arange(len(rows), dtype=np.int64),
        np.array(is_begin, np.bool_),
        np.array(group, object),
    )


def _by_offset(ranges: Ranges, base: int = 0) -> dict[tuple[str, int], tuple[int, int]]:
    """When each message was published and how long it took, by group and offset."""
    found = latencies(ranges, base)
    return {
        (group, offset): (begun_at, took)
        for group, first, size, begun_at, took in zip(*found, strict=True)
        for offset in range(first, first + size)
    }


def test_ranges_that_overlap_in_part_are_joined() -> None:
    found = latencies(_ranges([(0, 10, 100, True, ""), (10, 20, 200, True, ""), (5, 15, 1_000, False, "g")]), 0)
    assert [(each[1], each[2], each[4]) for each in zip(*found, strict=True)] == [(5, 5, 900), (10, 5, 800)]


def test_the_first_ack_after_the_last_publishing_counts() -> None:
    again = [(0, 1, 10, True, ""), (0, 1, 11, False, "g"), (0, 1, 50, True, ""), (0, 1, 60, False, "g")]
    later = [*again, (0, 1, 90, False, "g")]
    assert _by_offset(_ranges(later)) == {("g", 0): (50, 10)}


def test_a_message_that_was_not_acked_or_whose_publishing_is_not_known_has_no_latency() -> None:
    assert _by_offset(_ranges([(0, 5, 10, True, ""), (7, 9, 20, False, "g")])) == {}


def test_a_clock_that_was_set_back_makes_nothing_negative() -> None:
    assert _by_offset(_ranges([(0, 1, 100, True, ""), (0, 1, 90, False, "g")])) == {("g", 0): (100, 0)}


@pytest.mark.parametrize("seed", range(5))
def test_ranges_and_one_message_at_a_time_give_the_same(seed: int) -> None:
    chance = random.Random(seed)
    base = 3 * BLOCK
    rows = []
    for at in range(200):
        first = base + chance.randrange(500)
        is_begin = chance.random() < 0.4
        rows.append((first, first + chance.randrange(1, 60), at, is_begin, "" if is_begin else chance.choice("ab")))
    begun: dict[int, int] = {}
    expected: dict[tuple[str, int], tuple[int, int]] = {}
    for first, end, at, is_begin, group in rows:
        for offset in range(first, end):
            if is_begin:
                begun[offset] = at
                for each in "ab":
                    expected.pop((each, offset), None)
            elif offset in begun:
                expected.setdefault((group, offset), (begun[offset], at - begun[offset]))
    assert _by_offset(_ranges(rows), base) == expected


def test_ranges_are_cut_at_blocks_and_nothing_is_lost() -> None:
    first, end = np.array([5, BLOCK - 1, 7 * BLOCK]), np.array([6, 3 * BLOCK + 2, 8 * BLOCK])
    which, block, low, high = cut_into_blocks(first, end)
    assert which.tolist() == [0, 1, 1, 1, 1, 2]
    assert block.tolist() == [0, 0, 1, 2, 3, 7]
    assert ((low // BLOCK == block) & ((high - 1) // BLOCK == block)).all()
    assert np.bincount(which, high - low).tolist() == (end - first).tolist()


def test_latencies_keep_four_digits() -> None:
    assert round_to_digits(np.array([0, 7, 9_999, 12_345, 123_456_789])).tolist() == [0, 7, 9_999, 12_340, 123_400_000]


def _line(event: str, offsets: object, **more: object) -> bytes:
    return json.dumps({"place": "orders/3", "at": 5, "event": event, "offsets": offsets, **more}).encode() + b"\n"


def _told(runs: list[Run]) -> list[tuple[str, int, str, int, int, int]]:
    return [(run.topic, run.partition, run.event, run.seq, run.first, run.end) for run in runs]


def test_lines_become_ranges_and_copies_begin_where_they_lie() -> None:
    lines = [
        _line(PUBLISH, [4, 6, 9, 10]),
        _line("consume", [4, 6]),
        _line(ACK, "17:5", group="g"),
        _line(FIRED, [4, 6], to="orders/3", first_copy=40),
        _line(DLQ, [9, 10], to="orders.dlq/1", first_copy=2, group="g"),
    ]
    assert _told(parse_lines(lines, 100, _EVERYTHING)) == [
        ("orders", 3, PUBLISH, 100, 4, 6),
        ("orders", 3, PUBLISH, 100, 9, 10),
        ("orders", 3, ACK, 102, 17, 18),
        ("orders", 3, ACK, 102, 19, 20),
        ("orders", 3, COPIED, 103, 40, 42),
        ("orders.dlq", 1, COPIED, 104, 2, 3),
    ]


def test_topics_that_are_not_asked_for_have_no_rows() -> None:
    wanted = EventFilter(frozenset({PUBLISH, COPIED}), frozenset({"orders.dlq"}))
    lines = [_line(PUBLISH, [0, 1]), _line(DLQ, [0, 1], to="orders.dlq/1", first_copy=2)]
    assert _told(parse_lines(lines, 0, wanted)) == [("orders.dlq", 1, COPIED, 1, 2, 3)]


def test_damaged_lines_are_passed_over() -> None:
    whole = _line(PUBLISH, [1, 2])
    broken = [
        whole[:30],
        _line(PUBLISH, [1]),
        _line(PUBLISH, "x:y"),
        _line(PUBLISH, [5, 2]),
        _line(PUBLISH, [0, MAX_RANGE_OFFSETS + 1]),
        whole.replace(b"orders/3", b"orders/x"),
    ]
    assert _told(parse_lines([*broken, whole], 0, _EVERYTHING)) == [("orders", 3, PUBLISH, len(broken), 1, 2)]


def test_a_file_is_read_whole_and_one_that_is_gone_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "traces" / "1.jsonl"
    path.parent.mkdir()
    path.write_bytes(_line(PUBLISH, [0, 2 * BLOCK]) * 3)
    assert trace_files(str(tmp_path)) == trace_files(str(path.parent)) == [str(path)]
    (runs,) = read_file(str(path), 2, _EVERYTHING)
    assert [run.seq for run in runs] == [2 << 40, (2 << 40) + 1, (2 << 40) + 2]
    assert to_batch(runs).num_rows == 6
    assert list(read_file(str(tmp_path / "gone.jsonl"), 0, _EVERYTHING)) == []
    with pytest.raises(InvalidRequest, match="no folder"):
        trace_files(str(tmp_path / "nowhere"))


def _planned(data: Path, **given: object) -> dict[str, str]:
    return plan(Settings(PIPELINE.settings, {"path": str(data), **given}))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"chart": "chart.gif"}, r"chart: .*\.png and \.svg"),
        ({"chart": "{tmp}/traces/../folder.png"}, r"chart: .* is a folder; name a file in it"),
        ({"chart": "{tmp}/traces/1.jsonl/some/chart.png"}, r"chart: .* cannot be written: .*1\.jsonl is no folder"),
        ({"path": "{tmp}/nowhere"}, r"path: .*nowhere is no folder"),
        ({"path": "{tmp}/traces/1.jsonl"}, r"path: .*1\.jsonl is no folder"),
        ({"topics": "orders,bad/name!"}, r"topics: .*'bad/name!' is not allowed"),
        ({"groups": "bad name"}, r"groups: .*'bad name' is not allowed"),
        ({"since": "2026-01-31T12:00:00Z", "until": "2026-01-31T12:00:00Z"}, "until: .* nothing lies between"),
    ],
)
def test_what_cannot_run_is_not_planned(tmp_path: Path, given: dict[str, str], told: str) -> None:
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "1.jsonl").touch()
    with pytest.raises(InvalidRequest, match=told):
        _planned(tmp_path, **{name: value.replace("{tmp}", str(tmp_path)) for name, value in given.items()})


def test_a_plan_tells_how_many_files_there_are_and_where_the_chart_will_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    traces = tmp_path / "data" / "traces"
    traces.mkdir(parents=True)
    assert "no trace files" in _planned(Path("data"))["source"]
    (traces / "1.jsonl").touch()
    told = _planned(Path("data"), slowest=1, chart="new/chart.svg")
    assert told["source"] == f"1 trace file in {traces}, a task for each"
    assert told["result"].endswith("the 1 slowest message")
    assert told["chart"] == str(tmp_path / "new" / "chart.svg")
    (traces / "2.jsonl").touch()
    assert _planned(Path("data"))["source"].startswith("2 trace files in ")


def test_without_trace_files_spark_is_not_started(tmp_path: Path) -> None:
    context = Context("trace-stats", Settings(PIPELINE.settings, {"path": str(tmp_path)}), "", "", master="none")
    summary = run(context)
    assert summary.numbers == {"trace files": 0}
    assert str(tmp_path) in summary.notes[0]
    assert "spark" not in vars(context)


def test_a_chart_shows_the_busiest_with_title_units_and_legend(tmp_path: Path) -> None:
    rows = [["orders", f"g{n}", f"2026-01-31 {hour:02}:00", 10 + n, 0.0, 2, 3, 4] for n in range(9) for hour in (3, 4)]
    assert list(busiest(rows)) == [("orders", f"g{n}") for n in range(3, 9)]
    draw(str(tmp_path / "some" / "chart.svg"), rows[:2])
    # Letters are drawn as lines; what they spell stands beside them.
    text = (tmp_path / "some" / "chart.svg").read_text()
    for each in ("Publish-to-ack latency", "topic orders, group g0: 20 messages", "p50", "p99", "max", "1 ms", "UTC"):
        assert re.search(f"<!-- .*{each}.* -->", text), each


def test_a_chart_of_one_hour_has_bars_that_say_their_numbers(tmp_path: Path) -> None:
    rows = [
        ["orders", "billing", "2026-01-31 23:00", 6_000, 812.4, 4_021.7, 5_210.5, 5_300.123],
        ["orders", "mail", "2026-01-31 23:00", 1, 0.0, 0.412, 20, 20],
    ]
    draw(str(tmp_path / "chart.svg"), rows)
    text = (tmp_path / "chart.svg").read_text()
    bars = ["812.4 ms", "4.022 s", "5.21 s", "5.3 s", "412 µs", "20 ms"]
    for each in ("2026-01-31, 23:00 to 00:00", "group mail: 1 message", "p50", "p95", "p99", "max", *bars):
        assert re.search(f"<!-- .*{re.escape(each)}.* -->", text), each
    draw(str(tmp_path / "none.svg"), [])
    assert "no message was acked" in (tmp_path / "none.svg").read_text()
