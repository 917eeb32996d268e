"""What ``goqueue bench`` keeps of what it times, and how it shows it."""

from __future__ import annotations

import math

import pytest

from goqueue.cli.commands.bench.bench import shares_machine
from goqueue.cli.commands.bench.bench_stage import Stage, Timings
from goqueue.cli.commands.bench.bench_view import result_lines
from goqueue.cli.commands.bench.bench_work import Values
from goqueue.cli.terminal.output import plain_text

FACTS = {
    "server": "http://127.0.0.1:8080",
    "version": "0.1.0",
    "shares_machine": True,
    "topic": "t",
    "temporary_topic": True,
    "partitions": 3,
    "fsync": "always",
    "size_bytes": 100,
    "producers": 4,
    "batch": 500,
    "rate": None,
    "linger_ms": 5,
}


def timed(*milliseconds: float) -> Timings:
    times = Timings()
    for each in milliseconds:
        times.add(each / 1_000)
    return times


def test_percentiles_are_within_a_twentieth_of_what_was_timed() -> None:
    times = timed(*range(1, 1_001))
    for share, wanted_s in ((0.5, 0.5), (0.9, 0.9), (0.99, 0.99), (0.999, 0.999)):
        assert times.quantile(share) == pytest.approx(wanted_s, rel=0.05)
    assert times.longest_s == 1.0


def test_no_percentile_is_above_the_longest() -> None:
    times = timed(3.0)
    assert times.quantile(0.999) <= times.longest_s == 0.003


def test_ranges_have_everything_once_from_the_first_to_the_last() -> None:
    times = timed(0.9, 1.5, 1.5, 40.0)
    assert [(round(bound * 1_000, 6), count) for bound, count in times.ranges()] == [
        (1.0, 1),
        (2.0, 2),
        (5.0, 0),
        (10.0, 0),
        (20.0, 0),
        (50.0, 1),
    ]
    assert timed().ranges() == []
    times.add(5_000.0)
    assert times.ranges()[-1][0] == math.inf
    assert sum(count for _, count in times.ranges()) == 5


def test_the_result_shows_rates_percentiles_and_bars() -> None:
    stage = Stage("publish", 10, messages=2_000, size_bytes=200_000, took_s=0.5, is_done=True)
    for _ in range(9):
        stage.timed("a batch").add(0.0015)
    stage.timed("a batch").add(0.030)
    text = plain_text(result_lines(FACTS, [stage, Stage("consume", 10, took_s=1.0)]))
    assert "runs on the broker's machine" in text
    assert "3 partitions, fsync always, 100 bytes a message, 4 producers, batches of 500, as fast as it goes" in text
    lines = text.splitlines()
    assert ["publish", "2,000", "0.50", "s", "4,000", "0.40"] in [line.split() for line in lines]
    assert any(line.startswith("consume (stopped)") for line in lines)
    (full,) = [line.split() for line in lines if line.strip().startswith("up to 2 ms")]
    assert full[-4:] == ["█" * 40, "9", "90.0", "%"]
    (max_line,) = [line for line in lines if "p99.9" in line]
    assert max_line.endswith("max 30 ms")


def test_at_a_pace_it_says_so() -> None:
    text = plain_text(result_lines(FACTS | {"rate": 500.0, "shares_machine": False}, []))
    assert "500 messages a second, each sent by itself, linger 5 ms" in text
    assert "broker's machine" not in text


def test_messages_are_known_again_by_their_run() -> None:
    mine, others = Values(16), Values(40)
    assert [len(each.value(7)) for each in (mine, others)] == [16, 40]
    assert mine.number_in(mine.value(7)) == 7
    assert mine.number_in(others.value(7)) is None
    assert mine.number_in(b"short") is None and mine.number_in(None) is None


@pytest.mark.parametrize(
    ("server", "is_here"), [("http://127.0.0.1:8080", True), ("localhost:1", True), ("http://192.0.2.1:8080", False)]
)
def test_a_broker_on_this_machine_is_known(server: str, is_here: bool) -> None:
    assert shares_machine(server) is is_here
