"""Durations, sizes and instants."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model.errors import InvalidRequest
from goqueue.model.units import (
    format_duration_ms,
    format_instant_ns,
    format_size_bytes,
    parse_duration_ms,
    parse_instant_ns,
    parse_size_bytes,
)

MAX_INSTANT_NS = (1 << 63) - 1


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("250ms", 250), ("30s", 30_000), ("1h30m", 5_400_000), ("7d", 604_800_000), ("1.5s", 1_500), (" 2m ", 120_000)],
)
def test_a_duration_is_read_with_its_units(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "5", "-5s", "5 s", "s", "1h30", "1y", "1e3s", "٣s", ".5s", "5s\nx"])
def test_what_is_not_a_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidRequest, match="write it like '250ms'"):
        parse_duration_ms(text)


@given(st.integers(min_value=0, max_value=10**22))
def test_a_duration_survives_being_written_and_read(milliseconds: int) -> None:
    assert parse_duration_ms(format_duration_ms(milliseconds)) == milliseconds


def test_a_duration_is_written_in_its_shortest_form() -> None:
    assert [format_duration_ms(each) for each in (0, 1, 1_000, 5_400_000, 86_400_001)] == [
        "0s",
        "1ms",
        "1s",
        "1h30m",
        "1d1ms",
    ]


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("4096", 4096), ("64MiB", 64 << 20), ("1gb", 10**9), ("1.5 KiB", 1536), ("2TiB", 2 << 40), ("7B", 7)],
)
def test_a_size_is_read_with_its_unit(text: str, size: int) -> None:
    assert parse_size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "-1", "MiB", "1XB", "1 Mi B", "1e9", "0x10", "1MiB\n1"])
def test_what_is_not_a_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidRequest, match="write it like '4096'"):
        parse_size_bytes(text)


@given(st.integers(min_value=0, max_value=10**18 - 1))
def test_a_size_survives_being_written_and_read(size: int) -> None:
    assert parse_size_bytes(format_size_bytes(size)) == size


def test_a_size_is_written_in_the_largest_unit_that_is_exact() -> None:
    assert [format_size_bytes(each) for each in (0, 1023, 1024, 3 << 20, 1 << 30, 5 << 40)] == [
        "0",
        "1023",
        "1KiB",
        "3MiB",
        "1GiB",
        "5TiB",
    ]


@given(st.integers(min_value=-MAX_INSTANT_NS - 1, max_value=MAX_INSTANT_NS))
def test_an_instant_survives_being_written_and_read(instant_ns: int) -> None:
    assert parse_instant_ns(format_instant_ns(instant_ns)) == instant_ns


@given(st.datetimes(min_value=datetime(1678, 1, 2), max_value=datetime(2261, 12, 30), timezones=st.timezones()))
def test_an_instant_of_any_zone_is_the_same_moment(moment: datetime) -> None:
    whole = moment.replace(microsecond=0)
    offset = whole.utcoffset()
    assert offset is not None
    if offset.total_seconds() % 60:
        return
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    expected = (whole.astimezone(UTC) - epoch) // (datetime.resolution * 1_000_000)
    assert parse_instant_ns(whole.isoformat()) == expected * 10**9


def test_an_instant_keeps_its_nanoseconds() -> None:
    assert parse_instant_ns("1970-01-01T00:00:01.000000001Z") == 1_000_000_001
    assert parse_instant_ns("1970-01-01T00:00:00.1234567899Z") == 123_456_789
    assert format_instant_ns(1_500_000_000) == "1970-01-01T00:00:01.5Z"
    assert format_instant_ns(-1) == "1969-12-31T23:59:59.999999999Z"


@pytest.mark.parametrize("text", ["1970-01-01t01:00:00+01:00", "1970-01-01 00:00:00z", "1969-12-31T19:00:00-05:00"])
def test_an_instant_may_be_written_as_rfc_3339_allows(text: str) -> None:
    assert parse_instant_ns(text) == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-01-31",
        "2026-01-31T12:00:00",
        "2026-01-31.5T12:00:00Z",
        "2026-01-31T12:00:00,5Z",
        "2026-W05-6T12:00:00Z",
        "20260131T120000Z",
        "2026-01-31T12:00:00+05:30:00.5",
        "2026-02-30T12:00:00Z",
        "2026-01-31T25:00:00Z",
        "2026-01-31T12:00:00+24:00",
        "2026-01-31T12:00:00Z\n",
        "٢٠٢٦-01-31T12:00:00Z",
    ],
)
def test_what_is_not_an_instant_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidRequest, match="write it like '2026-01-31T12:00:00Z'"):
        parse_instant_ns(text)


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00+05:00"])
def test_an_instant_that_does_not_fit_in_64_bits_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="out of range"):
        parse_instant_ns(text)


@given(st.text(max_size=60))
def test_no_text_makes_a_parser_fail_otherwise(text: str) -> None:
    for parse in (parse_duration_ms, parse_size_bytes, parse_instant_ns):
        try:
            assert isinstance(parse(text), int)
        except InvalidRequest as error:
            assert str(error).isprintable()
