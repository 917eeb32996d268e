from __future__ import annotations

import numpy as np
import pytest

from goqueue.observe.histogram import Histogram


def test_a_bound_belongs_to_the_range_below_it() -> None:
    histogram = Histogram((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.11, 1.0, 1.01):
        histogram.observe(seconds)
    assert histogram.counts == [2, 2, 1]
    assert histogram.total_s == pytest.approx(2.27)


def test_many_of_the_same_count_at_once() -> None:
    histogram = Histogram((0.1, 1.0))
    histogram.observe(0.5, 1_000)
    assert histogram.counts == [0, 1_000, 0]
    assert histogram.total_s == 500.0


def test_a_clock_that_went_back_counts_as_no_time() -> None:
    histogram = Histogram((0.1,))
    histogram.observe(-5.0)
    histogram.observe_all(np.array([-5.0, 0.2]))
    assert histogram.counts == [2, 1]
    assert histogram.total_s == pytest.approx(0.2)


def test_all_at_once_is_the_same_as_one_after_the_other() -> None:
    values = np.concatenate((np.geomspace(0.001, 20.0, 500), [0.1, 1.0]))
    single, together = Histogram((0.01, 0.1, 1.0)), Histogram((0.01, 0.1, 1.0))
    for value in values.tolist():
        single.observe(value)
    together.observe_all(values)
    assert together.counts == single.counts
    assert together.total_s == pytest.approx(single.total_s)


def test_what_was_taken_in_is_told_apart_from_what_there_was() -> None:
    histogram, other = Histogram((1.0,)), Histogram((1.0,))
    histogram.observe(0.5)
    other.observe(2.0, 3)
    copy = histogram.copy()
    histogram.add(other)
    assert (histogram.counts, copy.counts) == ([1, 3], [1, 0])
    since = histogram.since(copy)
    assert (since.counts, since.total_s) == (other.counts, other.total_s)
    # It has begun again.
    assert copy.since(histogram).counts == copy.counts


@pytest.mark.parametrize("bounds", [(), (1.0, 1.0), (2.0, 1.0)])
def test_bounds_that_do_not_rise_are_refused(bounds: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="bounds"):
        Histogram(bounds)
