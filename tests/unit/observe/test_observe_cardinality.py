from __future__ import annotations

import pytest

from goqueue.observe.cardinality import OverflowTotals, SeriesBudget
from goqueue.observe.exposition import Figures
from goqueue.observe.histogram import Histogram


def shown(rest: OverflowTotals) -> str:
    figures = Figures()
    rest.add_to(figures)
    return "".join(figures.lines("x_total"))


def test_whoever_has_a_place_keeps_it_while_others_come() -> None:
    places = SeriesBudget(2)
    assert [places.take(who) for who in ("b", "c", "a", "b", "c", "a")] == [1, 1, 0, 1, 1, 0]


def test_a_place_is_free_again_when_its_owner_is_gone() -> None:
    places = SeriesBudget(2)
    places.take("a")
    places.take("b")
    places.keep({"b", "c"})
    assert [places.take(who) for who in ("c", "b", "d")] == [1, 1, 0]


def test_someone_who_wants_several_gets_as_many_as_are_left() -> None:
    places = SeriesBudget(5)
    assert places.take("a", 3) == 3
    assert places.take("b", 4) == 2
    places.keep({"b"})
    assert places.left == 3
    assert places.take("b", 4) == 4


def test_the_rest_is_a_sum_that_follows_its_parts() -> None:
    rest = OverflowTotals()
    rest.count("a", "x_total", 't="u"', 5)
    rest.count("b", "x_total", 't="u"', 7)
    assert shown(rest) == 'x_total{t="u"} 12\n'
    rest.count("a", "x_total", 't="u"', 6)
    rest.count("b", "x_total", 't="u"', 7)
    assert shown(rest) == 'x_total{t="u"} 13\n'


def test_the_rest_does_not_go_down_when_one_of_it_is_gone_or_begins_again() -> None:
    rest = OverflowTotals()
    rest.count("a", "x_total", 't="u"', 5)
    rest.count("b", "x_total", 't="u"', 7)
    shown(rest)
    rest.count("b", "x_total", 't="u"', 2)
    assert shown(rest) == 'x_total{t="u"} 14\n'
    assert shown(rest) == 'x_total{t="u"} 14\n'
    # It was away, so it is new.
    rest.count("a", "x_total", 't="u"', 5)
    assert shown(rest) == 'x_total{t="u"} 19\n'


def test_a_round_that_was_cut_short_counts_nothing_twice() -> None:
    rest = OverflowTotals()
    rest.count("a", "x_total", 't="u"', 5)
    rest.count("a", "x_total", 't="u"', 6)
    assert shown(rest) == 'x_total{t="u"} 6\n'


def test_histograms_of_the_rest_are_added_up_once() -> None:
    rest, histogram = OverflowTotals(), Histogram((1.0,))
    for _ in range(3):
        histogram.observe(0.5, 2)
        rest.observe("a", "x_seconds", 'g="h"', histogram)
        rest.observe("b", "x_seconds", 'g="h"', histogram)
        figures = Figures()
        rest.add_to(figures)
    assert figures.lines("x_seconds") == [
        'x_seconds_bucket{g="h",le="1.0"} 12\n',
        'x_seconds_bucket{g="h",le="+Inf"} 12\n',
        'x_seconds_count{g="h"} 12\n',
        'x_seconds_sum{g="h"} 6.0\n',
    ]


def test_the_time_that_the_rest_took_never_goes_down() -> None:
    rest = OverflowTotals()
    histograms = [Histogram((1.0,)) for _ in range(40)]
    for number, each in enumerate(histograms):
        each.observe(0.001 / (number + 3), 3)
    totals = []
    for turn in range(200):
        histograms[turn % 40].observe(1e-7 * turn)
        for who, each in enumerate(histograms):
            rest.observe(who, "x_seconds", 'g="h"', each)
        figures = Figures()
        rest.add_to(figures)
        (line,) = (each for each in figures.lines("x_seconds") if "_sum" in each)
        totals.append(float(line.split()[-1]))
    assert totals == sorted(totals)
    assert totals[-1] == pytest.approx(sum(each.total_s for each in histograms))


def test_a_histogram_that_begins_again_is_added_to_what_there_was() -> None:
    rest, figures = OverflowTotals(), Figures()
    for seconds, times in ((0.5, 4), (2.0, 1)):
        histogram = Histogram((1.0,))
        histogram.observe(seconds, times)
        rest.observe("a", "x_seconds", 'g="h"', histogram)
    rest.add_to(figures)
    assert figures.lines("x_seconds") == [
        'x_seconds_bucket{g="h",le="1.0"} 4\n',
        'x_seconds_bucket{g="h",le="+Inf"} 5\n',
        'x_seconds_count{g="h"} 5\n',
        'x_seconds_sum{g="h"} 4.0\n',
    ]
