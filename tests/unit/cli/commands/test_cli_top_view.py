"""What ``goqueue top`` draws: at any size of the screen, with any names."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from rich.cells import cell_len

from goqueue.cli.commands.stats.top_view import HISTORY, SORTS, ScreenState, Unreachable, clock, screen_lines
from goqueue.cli.figures.figure_rates import BrokerReading, GroupReading, Latency, Rates, TopicReading
from goqueue.cli.terminal.output import plain_text

RATES = Rates(1.0, 1_234.0, 250_000.0, 900.0, 3.0, 800.0, 0.0, 10.0, 2_000.0, 40.0, 12.0)


def group(name: str, lag: int = 0, **more: object) -> GroupReading:
    given: dict[str, object] = {
        "in_flight": 0,
        "retry": 0,
        "members": 1,
        "lag_change_per_s": 0.0,
        "delivered_per_s": 0.0,
        "end_to_end": Latency(0.001, 0.01),
    }
    return GroupReading(group=name, lag=lag, **(given | more))  # type: ignore[arg-type]


def now(**changes: object) -> BrokerReading:
    given: dict[str, object] = {
        "at": "2026-01-31T12:00:00.5Z",
        "version": "0.1.0",
        "ready": True,
        "uptime_s": 61.0,
        "restarted": False,
        "look_s": 0.002,
        "rates": RATES,
        "publish": Latency(0.001, 0.004),
        "end_to_end": Latency(0.01, 0.5),
        "fsync": Latency(0.0007, 0.003),
        "loop_delay": Latency(0.0005, 0.001),
        "lag": 50,
        "in_flight": 7,
        "retry": 1,
        "delayed": 2,
        "transactions": 1,
        "oldest_transaction_s": 3.0,
        "failed_partitions": 0,
        "damaged_messages": 0,
        "memory_bytes": 90_000_000,
        "disk_free_bytes": 72_000_000_000,
        "disk_min_free_bytes": 268_435_456,
        "connections": {"http": 1, "grpc": 2},
        "lanes": {"critical": 0, "high": 1, "normal": 40, "low": 0, "background": 0},
        "lanes_of_partitions": None,
        "partitions": 3,
        "topics": [TopicReading("orders", 1_234.0, 250_000.0)],
        "groups": [group("billing", 40), group("audit", 10)],
    }
    return BrokerReading(**(given | changes))  # type: ignore[arg-type]


def watched(*found: BrokerReading | Unreachable) -> ScreenState:
    made = ScreenState("http://127.0.0.1:8080")
    for each in found:
        made.update(each)
    return made


def crowd(count: int) -> list[GroupReading]:
    return [group(f"group-{number:03}", count - number) for number in range(count)]


@pytest.mark.parametrize("width", [1, 10, 40, 80, 200])
@pytest.mark.parametrize("height", [1, 2, 10, 24, 60])
def test_no_line_is_too_wide_and_there_are_never_too_many(width: int, height: int) -> None:
    names = [group("名前" * 40, 5, lag_change_per_s=-12_345.6), group("x" * 200), *crowd(100)]
    topics = [TopicReading("話題" * 60, 5.0, 6.0), *(TopicReading(f"t{number}", 1.0, 1.0) for number in range(50))]
    seen = watched(now(), now(groups=names, topics=topics), Unreachable("no broker " * 40, "2026-01-31T12:00:01Z"))
    lines = screen_lines(seen, width, height, keys="q quits")
    assert len(lines) <= height
    assert all(cell_len(plain_text([line])) <= width for line in lines)


def test_everything_that_matters_is_on_a_screen_of_80_by_24() -> None:
    text = plain_text(screen_lines(watched(now(), now()), 80, 24, keys="q quits"))
    for wanted in (
        "published", "1,234", "250 KB", "delivered", "900", "acked", "end to end", "500 ms", "fsync", "40 rounds/s",
        "loop delay", "in flight 7", "given back 1", "again/s 3", "delayed 2", "normal 40",
        "transactions 1 (oldest 3.00 s)", "cpu 12 %", "memory 90.0 MB", "disk free 72.0 GB",
        "billing", "audit", "orders", "q quits", "ready", "up 1m01s",
    ):  # fmt: skip
        assert wanted in text, wanted
    assert text.splitlines()[-1] == "q quits"


def test_on_40_columns_nothing_is_cut_and_the_state_is_seen() -> None:
    lines = plain_text(screen_lines(watched(now(), now()), 40, 24)).splitlines()
    assert lines[:2] == [
        "goqueue top  http://127.0.0.1:8080",
        f"0.1.0  up 1m01s  ready  {clock('2026-01-31T12:00:00')}",
    ]
    (fsync,) = [line for line in lines if line.startswith("fsync")]
    assert fsync.split() == ["fsync", "0.7", "ms", "3.0", "ms"]
    assert any(
        line.endswith("40 rounds/s") for line in plain_text(screen_lines(watched(now(), now()), 60, 24)).splitlines()
    )


def test_figures_that_do_not_fit_a_line_go_into_the_next() -> None:
    text = plain_text(
        screen_lines(watched(now(lag=123_456_789, in_flight=123_456, retry=54_321, delayed=98_765)), 50, 40)
    )
    for wanted in ("lag 123M", "in flight 123k", "given back 54.3k", "delayed 98.8k", "background 0", "connections 3"):
        assert wanted in text, wanted


def test_groups_that_do_not_fit_are_counted() -> None:
    lines = plain_text(screen_lines(watched(now(groups=crowd(30), topics=[])), 80, 24, keys="q quits")).splitlines()
    shown = [line for line in lines if line.startswith("group-")]
    assert len(lines) == 24
    assert lines[-2] == f"{30 - len(shown)} more"
    assert shown[0].split()[:2] == ["group-000", "30"]


def test_topics_keep_some_room_beside_many_groups() -> None:
    topics = [TopicReading(f"topic-{number}", 100.0 - number, 1.0) for number in range(20)]
    text = plain_text(screen_lines(watched(now(groups=crowd(30), topics=topics)), 80, 40, keys="q quits"))
    assert "topic-0" in text and "group-000" in text


@pytest.mark.parametrize(
    ("sort", "first"), [("lag", "behind"), ("out/s", "quick"), ("in flight", "busy"), ("name", "alone")]
)
def test_groups_are_sorted_as_asked(sort: str, first: str) -> None:
    groups = [group("alone"), group("behind", 9), group("quick", delivered_per_s=5.0), group("busy", in_flight=3)]
    seen = watched(now(groups=groups))
    while seen.sort != sort:
        seen.sort_by_next()
    lines = plain_text(screen_lines(seen, 80, 40)).splitlines()
    titles = next(place for place, line in enumerate(lines) if line.startswith("group "))
    assert lines[titles + 1].split()[0] == first


def test_sorting_comes_round() -> None:
    seen = watched()
    for _ in SORTS:
        seen.sort_by_next()
    assert seen.sort == "lag"


def test_a_broker_that_is_away_is_said_to_be_and_its_last_figures_stay() -> None:
    seen = watched(
        now(),
        Unreachable("no broker can be reached", "2026-01-31T12:00:01Z"),
        Unreachable("it is still not there", "2026-01-31T12:00:02.5Z"),
    )
    text = plain_text(screen_lines(seen, 100, 24))
    assert "AWAY" in text and "billing" in text
    since = datetime(2026, 1, 31, 12, 0, 1, tzinfo=UTC).astimezone().strftime("%H:%M:%S")
    assert f"no answer since {since}, trying again: it is still not there" in text
    seen.update(now(restarted=True, rates=None))
    text = plain_text(screen_lines(seen, 100, 24))
    assert "AWAY" not in text and "it began again" in text
    assert list(seen.history["published"]) == [1_234.0, None, None, None]


def test_nothing_that_others_named_can_draw_on_the_screen() -> None:
    evil = "\x1b[2Jgone\r\n"
    seen = watched(now(groups=[group(evil)], topics=[TopicReading(evil, 1.0, 1.0)], version=evil))
    seen.update(Unreachable(evil, "2026-01-31T12:00:00Z"))
    assert not any(set(text) & {"\x1b", "\r", "\n"} for line in screen_lines(seen, 120, 40) for text, _ in line)


def test_trouble_is_shown_in_the_first_line() -> None:
    seen = watched(now(ready=False, failed_partitions=2, damaged_messages=3, look_s=0.25))
    head = plain_text(screen_lines(seen, 200, 1))
    assert "NOT READY  2 partitions failed  3 messages damaged" in head
    assert head.endswith("a look takes 250 ms")


def test_what_waits_in_lanes_says_of_how_many_partitions_it_is() -> None:
    assert "waiting in 1,000 partitions: critical 0" in plain_text(
        screen_lines(watched(now(lanes_of_partitions=1_000, partitions=5_000)), 120, 40)
    )
    assert "waiting by lane: -" in plain_text(screen_lines(watched(now(lanes=None)), 120, 40))


def test_what_took_longer_than_can_be_told_is_shown_as_more_than_that() -> None:
    slow = Latency(0.01, 30.0, p99_is_at_least=True)
    seen = watched(now(), now(publish=slow, groups=[group("billing", 40, end_to_end=slow)]))
    rows = [line.split() for line in plain_text(screen_lines(seen, 80, 40, keys="q quits")).splitlines()]
    assert any(row[:5] == ["publish", "10", "ms", ">30.0", "s"] for row in rows)
    assert any(row[0] == "billing" and row[-2:] == [">30.0", "s"] for row in rows)


def test_history_does_not_grow_for_ever() -> None:
    seen = watched(*(now() for _ in range(HISTORY + 50)))
    assert {len(values) for values in seen.history.values()} == {HISTORY}
