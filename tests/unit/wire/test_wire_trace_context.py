"""Trace ids: what a producer says in W3C's words, and what is computed for a message that names none."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model.message import Headers
from goqueue.wire.frame import MAX_HEADERS_BYTES, encode_headers
from goqueue.wire.internal_headers import DELAYED_OFFSET, TRACE
from goqueue.wire.trace_context import (
    DerivedPlace,
    TraceParent,
    derived_span_id,
    derived_trace_id,
    in_trace,
    is_trace_id,
    parse_traceparent,
    place_of,
    topic_mark,
    trace_headers,
    trace_id_of,
    traceparent_in,
)

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN_ID = "00f067aa0ba902b7"
PARENT = f"00-{TRACE_ID}-{SPAN_ID}-01".encode()
SPAN_HEADERS: Headers = (("traceparent", PARENT),)

topics = st.from_regex(r"[A-Za-z0-9._-]{1,200}", fullmatch=True)
partitions = st.integers(0, (1 << 24) - 1)
offsets = st.integers(0, (1 << 63) - 1)
hexadecimal = st.text("0123456789abcdef")
almost = st.builds(
    lambda *parts: "-".join(parts).encode(),
    st.sampled_from(["00", "01", "ff", "0", "zz"]),
    st.sampled_from([TRACE_ID, "0" * 32, TRACE_ID.upper(), TRACE_ID[:-1]]) | hexadecimal,
    st.sampled_from([SPAN_ID, "0" * 16, SPAN_ID + "0"]) | hexadecimal,
    st.sampled_from(["00", "01", "ff", "1", "01-more", "01-"]),
)
headers = st.lists(
    st.tuples(
        st.sampled_from(["traceparent", TRACE, DELAYED_OFFSET, "other"]),
        st.binary(max_size=40) | almost | offsets.map(lambda offset: b"%d" % offset),
    ),
    max_size=4,
).map(tuple)


@pytest.mark.parametrize(
    ("value", "flags"),
    [
        (PARENT, 1),
        (f"00-{TRACE_ID}-{SPAN_ID}-00".encode(), 0),
        (f"00-{TRACE_ID}-{SPAN_ID}-ff".encode(), 0xFF),
        (f"01-{TRACE_ID}-{SPAN_ID}-01".encode(), 1),
        (f"cc-{TRACE_ID}-{SPAN_ID}-01-what-comes-one-day".encode(), 1),
        (f"cc-{TRACE_ID}-{SPAN_ID}-01-".encode(), 1),
    ],
)
def test_what_the_standard_allows_is_understood(value: bytes, flags: int) -> None:
    assert parse_traceparent(value) == TraceParent(TRACE_ID, SPAN_ID, flags)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"nonsense",
        PARENT.upper(),
        b"ff" + PARENT[2:],
        f"00-{'0' * 32}-{SPAN_ID}-01".encode(),
        f"00-{TRACE_ID}-{'0' * 16}-01".encode(),
        PARENT + b"-more",
        PARENT + b"0",
        PARENT + b"\n",
        b" " + PARENT,
        PARENT[:-1],
        PARENT.replace(b"-", b"_"),
        f"00-{TRACE_ID[:-1]}-{SPAN_ID}-01".encode(),
        f"00-{TRACE_ID}0-{SPAN_ID}-01".encode(),
        f"00-{TRACE_ID}-{SPAN_ID[:-1]}-01".encode(),
        f"0-{TRACE_ID}-{SPAN_ID}-01".encode(),
        f"cc-{TRACE_ID}-{SPAN_ID}-01.more".encode(),
        f"cc-{TRACE_ID}-{SPAN_ID}-01-{'x' * 512}".encode(),
    ],
)
def test_what_the_standard_tells_receivers_to_ignore_is_ignored(value: bytes) -> None:
    assert parse_traceparent(value) is None
    assert trace_id_of((("traceparent", value),), "t", 0, 7) == derived_trace_id("t", 0, 7)


@given(st.binary(max_size=80) | almost)
def test_whatever_a_producer_writes_is_either_understood_or_ignored(value: bytes) -> None:
    parent = parse_traceparent(value)
    if parent is not None:
        assert value[2:].startswith(str(parent).encode()[2:])
        assert is_trace_id(parent.trace_id)
        assert parent.is_sampled == bool(parent.flags & 1)
        assert parse_traceparent(str(parent).encode()) == parent


@given(headers, topics, partitions, offsets)
def test_every_message_has_a_trace_id_whatever_its_headers(
    found: Headers, topic: str, partition: int, offset: int
) -> None:
    trace_id = trace_id_of(found, topic, partition, offset)
    assert re.fullmatch("[0-9a-f]{32}", trace_id)
    assert trace_id != "0" * 32


def test_the_first_header_of_the_name_counts() -> None:
    second = ("traceparent", PARENT.replace(b"4bf9", b"0000"))
    assert traceparent_in((("x", b""), *SPAN_HEADERS, second)) == TraceParent(TRACE_ID, SPAN_ID, 1)
    assert traceparent_in((("traceparent", b"nonsense"), *SPAN_HEADERS)) is None


@given(topics, partitions, offsets)
def test_a_computed_trace_id_tells_the_place_that_it_was_computed_from(topic: str, partition: int, offset: int) -> None:
    trace_id = derived_trace_id(topic, partition, offset)
    assert is_trace_id(trace_id)
    assert place_of(trace_id) == DerivedPlace(topic_mark(topic), partition, offset)


def test_computed_trace_ids_stay_what_they_are_across_versions() -> None:
    """They are not stored: another formula would give every message that lies in a log another trace."""
    assert derived_trace_id("orders", 3, 17) == "1c168adb00000003e2731f33ec5fa14e"


def test_messages_next_to_each_other_have_ids_that_differ_all_over() -> None:
    """Samplers look at the last bytes, as a number between nothing and all of them."""
    last = [int(derived_trace_id("orders", 0, offset)[16:], 16) / (1 << 64) for offset in range(10_000)]
    assert len(set(last)) == len(last)
    assert 900 < sum(each < 0.1 for each in last) < 1_100


def test_copies_stay_in_the_trace_of_what_they_were_copied_from() -> None:
    fired = ((DELAYED_OFFSET, b"5"),)
    assert trace_id_of(fired, "orders", 1, 9) == derived_trace_id("orders", 1, 5)
    dead = (*fired, (TRACE, TRACE_ID.encode()))
    assert trace_id_of(dead, "orders.dlq", 0, 2) == TRACE_ID
    assert trace_id_of(((TRACE, b"0" * 32),), "t", 0, 2) == derived_trace_id("t", 0, 2)
    other = ("traceparent", PARENT.replace(b"4bf9", b"4bf8"))
    assert trace_id_of((*dead, other), "orders.dlq", 0, 2) == TRACE_ID.replace("4bf9", "4bf8")


@given(st.lists(st.text() | st.integers(), max_size=4))
def test_a_computed_span_id_is_the_same_for_whoever_knows_the_same(parts: list[str | int]) -> None:
    span_id = derived_span_id(TRACE_ID, *parts)
    assert re.fullmatch("[0-9a-f]{16}", span_id)
    assert span_id != "0" * 16
    assert span_id == derived_span_id(TRACE_ID, *parts) != derived_span_id(TRACE_ID, *parts, "more")


# The headers that carry a trace


@pytest.mark.parametrize("state", [b"", b"x" * 513])
def test_a_state_that_is_empty_or_too_long_is_left_out(state: bytes) -> None:
    parent = TraceParent(TRACE_ID, SPAN_ID, 1)
    assert trace_headers(parent, state) == SPAN_HEADERS
    assert trace_headers(parent, b"shop=7") == (*SPAN_HEADERS, ("tracestate", b"shop=7"))


def test_a_message_keeps_its_own_trace() -> None:
    other: Headers = (("a", b"1"), ("traceparent", b"its own affair"))
    assert in_trace(other, SPAN_HEADERS) == other
    assert in_trace((("a", b"1"),), SPAN_HEADERS) == (("a", b"1"), *SPAN_HEADERS)
    assert in_trace((), SPAN_HEADERS) == SPAN_HEADERS


@given(st.integers(0, 12), st.integers(1, 70), st.integers(0, MAX_HEADERS_BYTES))
def test_headers_that_can_be_stored_can_be_stored_with_a_trace(many: int, letters: int, size: int) -> None:
    small = tuple(("ö" * letters, b"") for _ in range(many * 1_000))
    own: Headers = (*small, ("value", b"x" * size))
    packed = sum(2 * letters + 4 for _ in small) + len("value") + 4 + size + 2
    if packed <= MAX_HEADERS_BYTES:
        traced = in_trace(own, (*SPAN_HEADERS, ("tracestate", b"s" * 512)))
        assert len(encode_headers(traced)) <= MAX_HEADERS_BYTES
        assert traced[: len(own)] == own
