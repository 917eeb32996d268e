"""Frames of delayed messages: what a producer may send, what becomes of it, and what firing makes of it."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from doubles.messages import START_NS, stamp_header
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.model.errors import GoQueueError, InvalidFrame, InvalidMessage, MessageTooLarge
from goqueue.model.message import HIDDEN, Headers
from goqueue.wire.batch import CheckedBatch, FrameRun, check_layout, join_frames
from goqueue.wire.decoding import decode_run
from goqueue.wire.delayed import (
    DUE_HEADER_SIZE,
    MAX_DELAY_NS,
    cancel_frame,
    delay_checks,
    due_header,
    due_times,
    fire,
    fired_origin,
    is_only_due,
    read_control,
    reschedule_frame,
    set_due_times,
)
from goqueue.wire.frame import Flag, decode_headers, encode_frame, encode_headers
from goqueue.wire.internal_headers import DELAYED_OFFSET, DELAYED_TIMESTAMP, DUE_AT, DUE_IN, PRODUCER, TTL

NOW = START_NS
LATEST = NOW + 10**18
DELAYED = int(Flag.DELAYED)
PLAIN = encode_frame(b"k", b"v", encode_headers((("a", b"b"),)), NOW)

headers_of = st.lists(
    st.tuples(st.text(max_size=6), st.binary(max_size=20)).filter(lambda header: not header[0].startswith("goqueue")),
    max_size=3,
).map(tuple)


def run_of(*frames: bytes) -> FrameRun:
    batch = join_frames(list(frames), NOW)
    return FrameRun(memoryview(bytes(batch.frames)), batch.positions)


def run_in(batch: CheckedBatch) -> FrameRun:
    return FrameRun(memoryview(batch.frames), batch.positions)


def frames_in(run: FrameRun) -> list[bytes]:
    return [
        bytes(run.frames[start:end]) for start, end in zip(run.positions.tolist(), run.ends().tolist(), strict=True)
    ]


def delayed(
    due_ns: int, *, relative: bool = False, headers: Headers = (), flags: int = 0, value: bytes = b"v"
) -> bytes:
    packed = encode_headers((*headers, due_header(due_ns, relative=relative)))
    return encode_frame(b"k", value, packed, NOW, 3, DELAYED | flags)


def check(*frames: bytes) -> None:
    run = run_of(*frames)
    deque(delay_checks(run, run.columns(), run.ends()), 0)


def test_the_last_bytes_of_a_delayed_frame_are_its_due_header() -> None:
    frame = delayed(12)
    assert frame[-DUE_HEADER_SIZE:] == b"\0\x0egoqueue-due-at\0\x08" + (12).to_bytes(8)
    assert len(DUE_AT) == len(DUE_IN) == 14


def test_due_times_are_read_where_they_are_asked_for() -> None:
    run = run_of(delayed(5), PLAIN, delayed(2**62), delayed(0))
    assert due_times(run, np.array([0, 2, 3])).tolist() == [5, 2**62, 0]
    assert due_times(run, np.array([3])).tolist() == [0]


# What a producer may send


@pytest.mark.parametrize(
    "frame",
    [
        PLAIN,
        delayed(0),
        delayed(2**63 - 1),
        delayed(0, relative=True),
        delayed(MAX_DELAY_NS, relative=True, headers=(("a", b"b"),)),
        delayed(1, headers=((TTL, b"5"), ("goqueue-due", b""))),
        encode_frame(b"", b"about goqueue-due-at", encode_headers((("a", b"goqueue-due-in"),)), NOW),
        delayed(1, headers=(("a", b"x" * (0xFFFF - 100 - 2 - 5 - DUE_HEADER_SIZE)),)),
    ],
)
def test_delays_that_are_allowed(frame: bytes) -> None:
    check(frame)
    check(PLAIN, frame, PLAIN)


NO_TIME = "its last header, and no other"
AT, IN = due_header(7), due_header(7, relative=True)


@pytest.mark.parametrize(
    ("headers", "flags", "error", "text"),
    [
        ((), DELAYED, InvalidFrame, NO_TIME),
        ((("a", b"b"),), DELAYED, InvalidFrame, NO_TIME),
        ((AT, ("a", b"b")), DELAYED, InvalidFrame, NO_TIME),
        ((AT, AT), DELAYED, InvalidFrame, NO_TIME),
        ((IN, AT), DELAYED, InvalidFrame, NO_TIME),
        ((("a", encode_headers((AT,))),), DELAYED, InvalidFrame, NO_TIME),
        (((DUE_AT, b"\0" * 7),), DELAYED, InvalidFrame, NO_TIME),
        (((DUE_AT, b"\0" * 9),), DELAYED, InvalidFrame, NO_TIME),
        ((("goqueue-due-xt", b"\0" * 8),), DELAYED, InvalidFrame, NO_TIME),
        ((due_header(-1),), DELAYED, InvalidFrame, "-1 nanoseconds in 'goqueue-due-at'; times from 1970 on"),
        ((due_header(-1, relative=True),), DELAYED, InvalidFrame, "-1 nanoseconds in 'goqueue-due-in'; 0 to"),
        ((due_header(MAX_DELAY_NS + 1, relative=True),), DELAYED, InvalidFrame, "200 years"),
        ((("a", b""), due_header(MAX_DELAY_NS + 1, relative=True)), DELAYED, InvalidFrame, "200 years"),
        ((AT,), 0, InvalidFrame, "'goqueue-due-at' but not the flag delayed"),
        ((IN, ("a", b"b")), 0, InvalidFrame, "'goqueue-due-in' but not the flag delayed"),
        ((("a", b"x" * (0xFFFF - 99 - 2 - 5 - 26)), AT), DELAYED, MessageTooLarge, "65436 bytes.*may have 65435"),
    ],
)
def test_delays_that_are_not_allowed(headers: Headers, flags: int, error: type[GoQueueError], text: str) -> None:
    bad = encode_frame(b"k", b"v", encode_headers(headers), NOW, flags=flags)
    for place, frames in enumerate([(bad, PLAIN), (PLAIN, bad), (PLAIN, delayed(5), bad)]):
        with pytest.raises(error, match=f"message {place} of the batch .*{text}"):
            check(*frames)


@pytest.mark.parametrize("flags", [0, DELAYED])
def test_headers_that_cannot_be_read_are_refused_by_place(flags: int) -> None:
    bad = encode_frame(b"k", b"v", b"\0\x09" + encode_headers((AT,))[2:], NOW, flags=flags)
    with pytest.raises(InvalidFrame, match="message 1 of the batch: the headers"):
        check(PLAIN, bad)


# What becomes of it


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["plain", "at", "in"]),
            st.integers(-3, 3) | st.integers(0, 10**18),
            st.binary(max_size=5),
            st.binary(max_size=40),
            headers_of,
            st.integers(0, 4),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_a_settled_batch_is_as_if_it_had_been_encoded_so(
    sent: list[tuple[str, int, bytes, bytes, Headers, int]],
) -> None:
    given_frames, expected, places, dues = [], [], [], []
    for place, (kind, delay_ns, key, value, headers, priority) in enumerate(sent):
        if kind == "in":
            delay_ns = abs(delay_ns)
        is_delayed = kind != "plain"
        due_ns = NOW + delay_ns
        own = (due_header(delay_ns if kind == "in" else due_ns, relative=kind == "in"),) if is_delayed else ()
        flags = DELAYED if is_delayed else 0
        given_frames.append(encode_frame(key, value, encode_headers((*headers, *own)), NOW, priority, flags))
        if is_delayed and due_ns > NOW:
            places.append(place)
            dues.append(due_ns)
            packed = encode_headers((*headers, due_header(due_ns)))
            expected.append(encode_frame(key, value, packed, NOW, priority, DELAYED))
        else:
            expected.append(encode_frame(key, value, encode_headers(headers), NOW, priority))
    run = run_of(*given_frames)
    deque(delay_checks(run, run.columns(), run.ends()), 0)
    batch = join_frames(given_frames, NOW)
    settled, settled_places, settled_dues = set_due_times(batch, NOW, LATEST)
    assert frames_in(run_in(settled)) == expected
    check_layout(run_in(settled))
    assert (settled_places.tolist(), settled_dues.tolist()) == (places, dues)
    assert due_times(run_in(settled), settled_places).tolist() == dues
    lanes = join_frames(expected, NOW).lanes
    assert np.array_equal(settled.lanes, lanes)
    assert isinstance(settled.lanes, int) == isinstance(lanes, int)
    assert settled.max_timestamp_ns == NOW


def test_a_batch_is_settled_in_place_where_nothing_becomes_shorter() -> None:
    batch = join_frames([PLAIN, delayed(10, relative=True)], NOW)
    assert set_due_times(batch, NOW, LATEST)[0] is batch
    batch = join_frames([PLAIN, PLAIN], NOW)
    settled, places, dues = set_due_times(batch, NOW, LATEST)
    assert settled is batch
    assert len(places) == len(dues) == 0


def test_control_records_are_hidden_but_not_delayed() -> None:
    batch = join_frames([cancel_frame(3, NOW), cancel_frame(4, NOW)], NOW)
    assert batch.lanes == HIDDEN
    settled, places, _ = set_due_times(batch, NOW, LATEST)
    assert settled is batch
    assert not len(places)


@pytest.mark.parametrize("relative", [False, True])
def test_what_is_due_too_late_is_refused_and_nothing_is_changed(relative: bool) -> None:
    late_ns = 10**18 + 1 if relative else LATEST + 1
    batch = join_frames([delayed(5, relative=True), PLAIN, delayed(late_ns, relative=relative)], NOW)
    before = bytes(batch.frames)
    with pytest.raises(InvalidMessage, match="message 2 of the batch is due at 2055-07-24T00:00:00Z; the latest"):
        set_due_times(batch, NOW, LATEST)
    assert batch.frames == before
    in_time = join_frames([delayed(late_ns - 1, relative=relative)], NOW)
    assert set_due_times(in_time, NOW, LATEST)[2].tolist() == [LATEST]


def test_a_delay_of_any_allowed_length_does_not_overflow() -> None:
    batch = join_frames([delayed(MAX_DELAY_NS, relative=True), delayed(2**63 - 1)], NOW)
    assert set_due_times(batch, NOW, 2**63 - 1)[2].tolist() == [NOW + MAX_DELAY_NS, 2**63 - 1]


# What firing makes of it


@settings(max_examples=60, deadline=None)
@given(
    st.binary(max_size=5),
    st.binary(max_size=40),
    headers_of,
    st.integers(0, 2**62),
    st.integers(0, 2**62),
    st.sampled_from([0, int(Flag.COMPRESSED), int(Flag.TOMBSTONE)]),
    st.booleans(),
)
def test_a_fired_message_is_the_original_with_another_time(
    key: bytes, value: bytes, headers: Headers, timestamp_ns: int, offset: int, flags: int, is_stamped: bool
) -> None:
    own = decode_headers(stamp_header(1)) if is_stamped else ()
    packed = encode_headers((*own, *headers, due_header(NOW)))
    original = encode_frame(key, value, packed, timestamp_ns, 4, flags | DELAYED, offset)
    told = ((DELAYED_TIMESTAMP, b"%d" % timestamp_ns), (DELAYED_OFFSET, b"%d" % offset))
    expected = encode_headers((*headers, *told))
    visible = encode_frame(key, value, expected, NOW + 5, 4, flags | int(Flag.FIRED))
    assert fire([original, memoryview(original)], [offset, offset], NOW + 5) == ([visible, visible], [timestamp_ns] * 2)
    assert fired_origin(expected) == offset
    messages, damaged = decode_run(run_of(visible))
    assert not damaged
    assert (messages[0].key, messages[0].value, messages[0].headers) == (key or None, value, (*headers, *told))


def test_the_largest_headers_of_a_delayed_message_leave_room_to_fire() -> None:
    original = delayed(1, headers=(("a", b"x" * (0xFFFF - 100 - 2 - 5 - DUE_HEADER_SIZE)),))
    check(original)
    ((visible,), _) = fire([original], [2**63 - 1], 2**63 - 1)
    messages, damaged = decode_run(run_of(visible))
    assert not damaged
    assert [name for name, _ in messages[0].headers] == ["a", DELAYED_TIMESTAMP, DELAYED_OFFSET]


def test_only_a_producers_stamp_that_stands_first_is_left_out() -> None:
    original = delayed(1, headers=(("a", PRODUCER.encode()), ("b", b"")))
    ((visible,), _) = fire([original], [9], NOW)
    assert [name for name, _ in decode_run(run_of(visible))[0][0].headers][:2] == ["a", "b"]


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("a", b"b"),),
        ((DELAYED_OFFSET, b"5"), ("a", b"b")),
        ((DELAYED_OFFSET, b""),),
        ((DELAYED_OFFSET, b"x"),),
        ((DELAYED_OFFSET, b"-5"),),
        ((DELAYED_OFFSET, b"1" * 20),),
        (("x" + DELAYED_OFFSET, b"5"),),
        (("a", b"\0\x16" + DELAYED_OFFSET.encode() + b"\0\x095"),),
    ],
)
def test_other_headers_name_no_origin(headers: Headers) -> None:
    assert fired_origin(encode_headers(headers)) is None


def test_the_origin_is_what_the_last_header_says() -> None:
    packed = encode_headers(
        ((DELAYED_OFFSET, b"4"), ("a", encode_headers(((DELAYED_OFFSET, b"5"),))), (DELAYED_OFFSET, b"6"))
    )
    assert fired_origin(packed) == 6


# Records that change the time


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (cancel_frame(0, NOW), ("cancel", 0, None)),
        (cancel_frame(2**62, NOW), ("cancel", 2**62, None)),
        (reschedule_frame(77, LATEST, NOW), ("reschedule", 77, LATEST)),
    ],
)
def test_control_records_say_what_they_were_made_for(frame: bytes, said: tuple[str, int, int | None]) -> None:
    run = run_of(frame)
    assert run.columns()["flags"].tolist() == [int(Flag.CONTROL)]
    messages, damaged = decode_run(run)
    assert not damaged
    assert messages[0].key is None
    assert messages[0].timestamp_ns == NOW
    assert read_control(messages[0].value, messages[0].headers) == said
    assert fired_origin(encode_headers(messages[0].headers)) == said[1]


OFFSET = (DELAYED_OFFSET, b"5")


@pytest.mark.parametrize(
    ("value", "headers"),
    [
        (b"other", (OFFSET,)),
        (b"cancel", ()),
        (b"cancel", ((DELAYED_OFFSET, b"five"),)),
        (b"cancel", (AT, OFFSET)),
        (b"reschedule", (OFFSET,)),
        (b"reschedule", (OFFSET, AT)),
        (b"reschedule", (IN, OFFSET)),
        (b"reschedule", ((DUE_AT, b"short"), OFFSET)),
        (b"reschedule", (AT, (DELAYED_OFFSET, b"five"))),
    ],
)
def test_other_control_records_say_nothing_of_delays(value: bytes, headers: Headers) -> None:
    assert read_control(value, headers) is None


@pytest.mark.parametrize("is_stamped", [True, False])
@pytest.mark.parametrize("name", [DUE_AT, DUE_IN])
def test_headers_are_known_to_hold_the_due_time_alone_without_decoding_them(name: str, is_stamped: bool) -> None:
    due = (name, (5).to_bytes(8))
    stamp = decode_headers(stamp_header(1)) if is_stamped else ()
    packed = encode_headers((*stamp, due))
    assert is_only_due(packed, may_be_stamped=True)
    assert is_only_due(packed, may_be_stamped=False) == (not is_stamped)
    assert not is_only_due(encode_headers((*stamp, ("a", b""), due)), may_be_stamped=True)
    assert not is_only_due(encode_headers((*stamp, due, due)), may_be_stamped=True)
