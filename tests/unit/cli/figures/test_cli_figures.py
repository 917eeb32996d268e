"""Figures: read from text, compared between two looks, and told in words."""

from __future__ import annotations

import math

import msgspec
import pytest

from goqueue.cli.figures import figure_text
from goqueue.cli.figures.broker_figures import _METRICS, LaneCounts, Sample
from goqueue.cli.figures.figure_rates import compute_reading
from goqueue.cli.figures.figure_spread import distribution_between
from goqueue.cli.figures.figure_text import Series, UnexpectedMetrics, parse_metrics
from goqueue.cli.terminal import figure_words
from goqueue.observe.exposition import Family, Figures, labelled, render
from goqueue.observe.histogram import Histogram


def series_of(*lines: str) -> dict[str, Series]:
    return parse_metrics("\n".join(lines), _METRICS)


def look(at_s: float, *lines: str, lanes: LaneCounts | None = None) -> Sample:
    return Sample(at_s, 1_000.0 + at_s, 0.001, series_of("goqueue_ready 1", *lines), lanes)


def published(topic: str, count: int) -> str:
    return f'goqueue_messages_published_total{{topic="{topic}",lane="normal"}} {count}'


# The text


@pytest.mark.parametrize("openmetrics", [True, False])
def test_what_a_broker_writes_is_read_back(openmetrics: bool) -> None:
    nasty = 'a"b\\c\nd,e="f"} 7'
    family = Family("goqueue_group_members", "gauge", "Members.", ("group",))
    histogram_family = Family("goqueue_fsync_seconds", "histogram", "How long.")
    figures = Figures()
    figures.add(family.name, 3, labelled(["group"], [nasty]))
    histogram = Histogram([0.1, 1.0])
    histogram.observe(0.05, 4)
    histogram.observe(9.0)
    figures.add_histogram(histogram_family.name, histogram)
    text = "".join(render([family, histogram_family], figures, openmetrics=openmetrics))
    found = parse_metrics(text, [family.name, "goqueue_fsync_seconds_bucket", "goqueue_fsync_seconds_count"])
    assert found == {
        family.name: {(("group", nasty),): 3.0},
        "goqueue_fsync_seconds_bucket": {(("le", "0.1"),): 4.0, (("le", "1.0"),): 4.0, (("le", "+Inf"),): 5.0},
        "goqueue_fsync_seconds_count": {(): 5.0},
    }


def test_only_what_is_wanted_is_looked_at() -> None:
    assert parse_metrics("other{ this is no text of figures\nwanted 2.5 1700000000\n\n# wanted 3", ["wanted"]) == {
        "wanted": {(): 2.5}
    }


@pytest.mark.parametrize("line", ['wanted{a="b" 1', "wanted", "wanted much", 'wanted{a="b"}', 'wanted{a="b\\"} 1'])
def test_a_line_that_cannot_be_read_is_named(line: str) -> None:
    with pytest.raises(UnexpectedMetrics, match="cannot be read"):
        parse_metrics(line, ["wanted"])


def test_what_is_no_finite_number_is_left_out() -> None:
    assert parse_metrics('wanted{a="1"} NaN\nwanted{a="2"} +Inf\nwanted{a="3"} 4', ["wanted"])["wanted"] == {
        (("a", "3"),): 4.0
    }


def test_no_more_is_read_than_the_limits_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure_text, "MOST_SERIES", 2)
    with pytest.raises(UnexpectedMetrics, match="more than 2 figures"):
        parse_metrics("\n".join(f'wanted{{a="{number}"}} 1' for number in range(3)), ["wanted"])
    monkeypatch.setattr(figure_text, "MOST_BYTES", 10)
    with pytest.raises(UnexpectedMetrics, match="at most 10"):
        parse_metrics("wanted 100000", ["wanted"])


# Between two looks


def buckets(*counts: tuple[str, int], group: str = "") -> list[str]:
    of_group = f'group="{group}",' if group else ""
    name = "goqueue_end_to_end_seconds" if group else "goqueue_publish_seconds"
    return [f'{name}_bucket{{{of_group}le="{bound}"}} {count}' for bound, count in counts]


def test_rates_are_differences_by_the_time_that_passed() -> None:
    now = compute_reading(
        look(10.0, published("orders", 100), 'goqueue_published_bytes_total{topic="orders"} 1000'),
        look(12.0, published("orders", 150), 'goqueue_published_bytes_total{topic="orders"} 3000'),
    )
    assert now.rates is not None
    assert (now.rates.over_s, now.rates.published, now.rates.published_bytes) == (2.0, 25.0, 1_000.0)
    assert [(each.topic, each.published_per_s) for each in now.topics] == [("orders", 25.0)]


def test_a_first_look_has_no_rates_and_no_latency() -> None:
    now = compute_reading(None, look(1.0, published("orders", 100), *buckets(("0.1", 5), ("+Inf", 5))))
    assert now.rates is None and now.publish.p50_s is None and not now.restarted


def test_a_topic_that_was_deleted_takes_nothing_from_the_others() -> None:
    now = compute_reading(
        look(0.0, published("a", 1_000), published("b", 10)), look(1.0, published("b", 30), published("c", 5))
    )
    assert now.rates is not None
    assert now.rates.published == 25.0
    assert {each.topic: each.published_per_s for each in now.topics} == {"b": 20.0, "c": 5.0}


def test_a_topic_that_was_made_again_counts_from_zero() -> None:
    now = compute_reading(look(0.0, published("a", 1_000)), look(1.0, published("a", 7)))
    assert now.rates is not None and now.rates.published == 7.0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("process_start_time_seconds 1000", "process_start_time_seconds 2000"),
        ("process_cpu_seconds_total 9", "process_cpu_seconds_total 1"),
        ("goqueue_fsync_rounds_total 9", "goqueue_fsync_rounds_total 8"),
    ],
)
def test_a_broker_that_began_again_has_no_rates_for_one_look(before: str, after: str) -> None:
    first, second = look(0.0, before, published("a", 1_000)), look(1.0, after, published("a", 50))
    now = compute_reading(first, second)
    assert now.restarted and now.rates is None
    later = compute_reading(second, look(2.0, after, published("a", 60)))
    assert not later.restarted and later.rates is not None and later.rates.published == 10.0


def test_latency_is_of_what_happened_between_the_looks_only() -> None:
    before = look(0.0, *buckets(("0.1", 0), ("1.0", 900), ("+Inf", 900)))
    now = compute_reading(before, look(1.0, *buckets(("0.1", 100), ("1.0", 1_000), ("+Inf", 1_000))))
    assert now.publish.p50_s == pytest.approx(0.05)
    assert now.publish.p99_s == pytest.approx(0.099)


def test_what_lies_above_the_last_bound_is_infinite() -> None:
    spread = distribution_between({}, series_of(*buckets(("0.1", 1), ("+Inf", 10)))["goqueue_publish_seconds_bucket"])
    assert sum(spread.counts) == 10
    assert math.isinf(spread.quantile(0.99) or 0)
    assert spread.quantile(0.05) == pytest.approx(0.05)


def test_beyond_the_last_bound_a_latency_is_at_least_that_and_not_nothing() -> None:
    before = look(0.0, *buckets(("0.1", 0), ("30.0", 0), ("+Inf", 0)), *buckets(("30.0", 0), ("+Inf", 0), group="g"))
    after = look(
        1.0,
        'goqueue_group_members{group="g"} 1',
        *buckets(("0.1", 6), ("30.0", 6), ("+Inf", 10)),
        *buckets(("30.0", 0), ("+Inf", 10), group="g"),
    )
    found = msgspec.json.decode(msgspec.json.encode(compute_reading(before, after)))
    assert found["publish"]["p99_s"] == 30.0 and found["publish"]["p99_is_at_least"] is True
    assert 0 < found["publish"]["p50_s"] < 0.1 and found["publish"]["p50_is_at_least"] is False
    assert found["groups"][0]["end_to_end"]["p99_s"] == 30.0
    assert found["groups"][0]["end_to_end"]["p50_is_at_least"] is True
    assert found["fsync"] == {"p50_s": None, "p99_s": None, "p50_is_at_least": False, "p99_is_at_least": False}


def test_groups_have_their_own_latency_and_the_largest_lag_comes_first() -> None:
    def of(lag: int, quick: int, slow: int) -> list[str]:
        return [
            'goqueue_group_lag_messages{group="small",topic="t",partition="0"} 1',
            f'goqueue_group_lag_messages{{group="large",topic="t",partition="0"}} {lag}',
            f'goqueue_group_lag_messages{{group="large",topic="t",partition="1"}} {lag}',
            'goqueue_group_members{group="idle"} 0',
            *buckets(("0.1", quick), ("1.0", quick), ("+Inf", quick), group="small"),
            *buckets(("0.1", 0), ("1.0", slow), ("+Inf", slow), group="large"),
        ]

    now = compute_reading(look(0.0, *of(10, 0, 0)), look(1.0, *of(20, 10, 10)))
    assert [(each.group, each.lag, each.lag_change_per_s) for each in now.groups] == [
        ("large", 40, 20.0),
        ("small", 1, 0.0),
        ("idle", 0, None),
    ]
    large, small, idle = (each.end_to_end.p50_s for each in now.groups)
    assert (large, small, idle) == (pytest.approx(0.55), pytest.approx(0.05), None)
    assert now.lag == 41


def test_a_look_at_one_topic_leaves_the_others_out() -> None:
    found = look(
        0.0,
        'goqueue_group_lag_messages{group="a",topic="orders",partition="0"} 3',
        'goqueue_group_lag_messages{group="b",topic="clicks",partition="0"} 5',
        'goqueue_group_members{group="a"} 1',
        'goqueue_group_members{group="b"} 2',
        "goqueue_delayed_messages 4",
    )
    now = compute_reading(None, found.of_topic("orders"))
    assert [(each.group, each.lag, each.members) for each in now.groups] == [("a", 3, 1)]
    assert now.delayed == 4


# Words


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (0, "0"), (0.04, "<0.1"), (0.3, "0.3"), (7, "7"), (9_999, "9,999"), (12_345, "12.3k"), (999_600, "1.00M"),
        (-2_852, "-2,852"), (4.56e6, "4.56M"), (2e15, "2,000T"),
    ],
)  # fmt: skip
def test_counts_are_short(number: float, told: str) -> None:
    assert figure_words.count(number) == told


@pytest.mark.parametrize(("number", "told"), [(0, "0 B"), (999, "999 B"), (1_234, "1.23 KB"), (72.2e9, "72.2 GB")])
def test_sizes_have_a_unit(number: float, told: str) -> None:
    assert figure_words.size(number) == told


@pytest.mark.parametrize(
    ("span", "told"), [(None, "-"), (math.inf, "very long"), (0.00004, "40 µs"), (0.0004, "0.4 ms"), (1.31, "1.31 s")]
)
def test_times_have_a_unit(span: float | None, told: str) -> None:
    assert figure_words.seconds(span) == told


def test_a_sparkline_is_as_wide_as_it_may_be_and_shows_gaps() -> None:
    assert figure_words.sparkline([0, None, 4, 8], 6) == "  ▁ ▅█"
    assert figure_words.sparkline([1, 2, 3, 4], 2) == "▇█"
    assert figure_words.sparkline([0, 0], 2) == "▁▁"
    assert figure_words.sparkline([1], 0) == ""


def test_a_bar_is_drawn_to_an_eighth() -> None:
    assert figure_words.bar(0.5, 4) == "██"
    assert figure_words.bar(1 / 32, 4) == "▏"
    assert figure_words.bar(7.0, 4) == "████"
