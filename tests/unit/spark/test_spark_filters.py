"""What filters leave to be read holds every message that fits them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from goqueue.client.instants import to_nanoseconds
from goqueue.spark.positions import Bounds, Place, Range
from goqueue.spark.wanted import Wanted
from goqueue.spark.ways import Split

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
ENDS = {Place("a", 0): 30, Place("a", 1): 10, Place("b", 0): 20}
FITS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: lambda mine, wanted: mine == wanted,
    EqualNullSafe: lambda mine, wanted: mine == wanted,
    GreaterThan: lambda mine, wanted: mine > wanted,
    GreaterThanOrEqual: lambda mine, wanted: mine >= wanted,
    LessThan: lambda mine, wanted: mine < wanted,
    LessThanOrEqual: lambda mine, wanted: mine <= wanted,
    In: lambda mine, wanted: mine in wanted,
}


def moment(place: Place, offset: int) -> datetime:
    """Not in the order of offsets, as producers' clocks are not."""
    return BEGIN + timedelta(seconds=offset + (offset * 7 + place.partition) % 11)


class Topics:
    """A way to topics of which only the times are known."""

    def topics(self) -> list[str]:
        return ["a", "b"]

    def bounds(self, topics: Iterable[str]) -> dict[Place, Bounds]:
        return {place: Bounds(0, end) for place, end in ENDS.items() if place.topic in topics}

    def offset_at(self, place: Place, instant_ns: int) -> int:
        times = (to_nanoseconds(moment(place, offset)) for offset in range(ENDS[place]))
        return next((offset for offset, time in enumerate(times) if time >= instant_ns), ENDS[place])

    def split(self, part: Range) -> Split:
        raise AssertionError("nothing is read here")


values: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.sampled_from(["a", "b", "c"]),
    "partition": st.integers(0, 2),
    "offset": st.integers(-2, 32) | st.just((1 << 63) - 1),
    "timestamp": st.integers(-3, 45).map(lambda seconds: BEGIN + timedelta(seconds=seconds)),
}


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    name = draw(st.sampled_from(sorted(values)))
    kind = draw(st.sampled_from(sorted(FITS, key=lambda each: each.__name__)))
    if kind is In:
        return In((name,), tuple(draw(st.lists(values[name], max_size=3))))
    return kind((name,), draw(values[name]))  # type: ignore[call-arg]


@settings(max_examples=60, deadline=None)
@given(st.lists(filters(), max_size=4))
def test_every_message_that_fits_all_filters_is_still_read(given_: list[Any]) -> None:
    wanted = Wanted()
    for each in given_:
        wanted.add(each)
    whole = [Range(place, 0, end) for place, end in ENDS.items()]
    left = wanted.narrowed(whole, Topics())
    still_read = {(part.place, offset) for part in left for offset in range(part.low, part.high)}
    for place, end in ENDS.items():
        for offset in range(end):
            row = {
                "topic": place.topic,
                "partition": place.partition,
                "offset": offset,
                "timestamp": moment(place, offset),
            }
            if all(FITS[type(each)](row[each.attribute[0]], each.value) for each in given_):
                assert (place, offset) in still_read
    assert all(0 <= part.low < part.high <= ENDS[part.place] for part in left)


def narrowed(*given_: Filter) -> list[Range]:
    wanted = Wanted()
    for each in given_:
        wanted.add(each)
    return wanted.narrowed([Range(place, 0, end) for place, end in ENDS.items()], Topics())


def test_filters_leave_no_more_than_what_they_ask_for() -> None:
    assert narrowed(EqualTo(("topic",), "b"), GreaterThan(("offset",), 4), LessThanOrEqual(("offset",), 6)) == [
        Range(Place("b", 0), 5, 7)
    ]
    assert narrowed(In(("partition",), (1, 2)), EqualTo(("offset",), 3)) == [Range(Place("a", 1), 3, 4)]
    assert narrowed(In(("partition",), (0, 1)), EqualTo(("partition",), 1)) == [Range(Place("a", 1), 0, 10)]
    since = GreaterThanOrEqual(("timestamp",), BEGIN + timedelta(seconds=25))
    assert [part.low for part in narrowed(since)] == [17, 17]


def test_filters_on_anything_else_leave_everything() -> None:
    everything = narrowed()
    assert narrowed(IsNotNull(("offset",))) == everything
    assert narrowed(Not(EqualTo(("offset",), 3))) == everything
    assert narrowed(StringStartsWith(("topic",), "a")) == everything
    assert narrowed(EqualTo(("key",), b"a")) == everything
    # A field within a column is not the column.
    assert narrowed(EqualTo(("headers", "offset"), 3)) == everything
