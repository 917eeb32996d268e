"""The codec for any bytes: what goes in comes out, and what could not have gone in is refused."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import numpy as np
import pytest
from doubles.frame_oracle import frame_problem
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.model.errors import GoQueueError, InvalidFrame, InvalidMessage
from goqueue.model.message import Headers
from goqueue.wire.batch import ENVELOPE, FrameRun, join_frames, parse_batch
from goqueue.wire.decoding import decode_run
from goqueue.wire.frame import HEADER_SIZE, decode_headers, encode_frame, encode_headers
from goqueue.wire.internal_headers import PRODUCER, ProducerStamp, encode_producer, producer_stamp
from goqueue.wire.verify import FrameRules, verify_batch

RULES = FrameRules(max_value_bytes=1 << 20, latest_timestamp_ns=(1 << 63) - 1)
quick = settings(max_examples=150, deadline=None)

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
headers = st.lists(st.tuples(names, st.binary(max_size=20)), max_size=5).map(tuple)
frames = st.builds(
    lambda key, value, fields, timestamp, priority, flags, offset: encode_frame(
        key, value, encode_headers(fields), timestamp, priority, flags, offset
    ),
    st.binary(max_size=30),
    st.binary(max_size=200),
    headers,
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(0, 255),
    st.integers(0, 255),
    st.integers(-(1 << 63), (1 << 63) - 1),
)
sendable = st.builds(
    lambda key, value, fields, timestamp: encode_frame(key, value, encode_headers(fields), timestamp),
    st.binary(max_size=30),
    st.binary(max_size=200),
    headers.filter(lambda fields: not any(name.startswith("goqueue-") for name, _ in fields)),
    st.integers(0, (1 << 63) - 1),
)


def run_of(made: list[bytes]) -> FrameRun:
    batch = join_frames(made, 0)
    return FrameRun(memoryview(batch.frames), batch.positions)


@quick
@given(headers)
def test_headers_come_back_as_they_were(fields: Headers) -> None:
    assert decode_headers(encode_headers(fields)) == fields


def test_a_header_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidMessage):
        encode_headers((("\ud800", b""),))


@quick
@given(st.binary(max_size=60))
def test_packed_headers_are_refused_or_mean_one_thing(packed: bytes) -> None:
    with suppress(InvalidFrame):
        assert encode_headers(decode_headers(packed)) == packed


@quick
@given(headers, st.binary(min_size=1, max_size=5))
def test_headers_with_anything_behind_them_are_refused(fields: Headers, more: bytes) -> None:
    if fields:
        with pytest.raises(InvalidFrame):
            decode_headers(encode_headers(fields) + more)


@quick
@given(
    st.binary(max_size=30),
    st.binary(max_size=200),
    headers,
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(0, 255),
    st.integers(0, 127),
)
def test_a_message_comes_back_as_it_was(
    key: bytes, value: bytes, fields: Headers, timestamp: int, priority: int, offset: int
) -> None:
    frame = encode_frame(key, value, encode_headers(fields), timestamp, priority, 0, offset)
    assert frame_problem(memoryview(frame)) is None
    (message,), damaged = decode_run(run_of([frame]))
    assert damaged == []
    assert (message.key or b"", message.value, message.headers) == (key, value, fields)
    assert (message.timestamp_ns, message.priority, message.offset) == (timestamp, priority, offset)


@quick
@given(st.lists(frames, min_size=1, max_size=6))
def test_an_envelope_comes_back_as_it_was(made: list[bytes]) -> None:
    run = run_of(made)
    again = parse_batch(run.to_wire())
    assert bytes(again.frames) == b"".join(made)
    assert again.positions.tolist() == run.positions.tolist()


@quick
@given(st.lists(sendable, min_size=1, max_size=6))
def test_what_a_producer_encodes_is_taken_whole(made: list[bytes]) -> None:
    batch = verify_batch(parse_batch(run_of(made).to_wire()), RULES)
    assert bytes(batch.frames) == b"".join(made)


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_are_refused_properly(data: bytes) -> None:
    for read in (lambda: verify_batch(parse_batch(data), RULES), lambda: decode_headers(data)):
        with suppress(GoQueueError):
            read()


@settings(max_examples=400, deadline=None)
@given(
    st.lists(sendable, min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=4),
    st.integers(-3, 3),
)
def test_a_changed_batch_is_refused_properly_or_every_frame_of_it_is_right(
    made: list[bytes], changes: list[tuple[int, int]], growth: int
) -> None:
    data = bytearray(run_of(made).to_wire())
    for place, value in changes:
        data[place % len(data)] = value
    data = data[:growth] if growth < 0 else data + bytes(growth)
    try:
        run = parse_batch(data)
        batch = verify_batch(run, RULES)
    except GoQueueError:
        return
    starts = [*batch.positions.tolist(), len(batch.frames)]
    for start, end in pairwise(starts):
        assert frame_problem(memoryview(batch.frames)[start:end]) is None


@settings(max_examples=300, deadline=None)
@given(st.lists(frames, min_size=1, max_size=4), st.integers(0, 1 << 16), st.integers(1, 255))
def test_decoding_leaves_out_what_is_damaged_and_nothing_else(made: list[bytes], place: int, change: int) -> None:
    run = run_of(made)
    data = bytearray(run.frames)
    data[place % len(data)] ^= change
    starts = [*run.positions.tolist(), len(data)]
    wrong = [
        number
        for number, (start, end) in enumerate(pairwise(starts))
        if frame_problem(memoryview(data)[start:end]) is not None
    ]
    messages, damaged = decode_run(FrameRun(memoryview(data), run.positions))
    assert damaged == wrong
    assert len(messages) == len(made) - len(wrong)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, (1 << 32) - 1), max_size=5), st.binary(max_size=200), st.integers(-1, 1))
def test_any_table_of_positions_is_refused_properly_or_leaves_room_for_headers(
    table: list[int], body: bytes, lie: int
) -> None:
    head = ENVELOPE.pack(b"GB", 1, 0, max(0, len(table) + lie), len(body))
    try:
        run = parse_batch(head + np.array(table, ">u4").tobytes() + body)
    except InvalidFrame:
        return
    assert all(
        end - start >= HEADER_SIZE for start, end in zip(run.positions.tolist(), run.ends().tolist(), strict=True)
    )
    decode_run(run)


@quick
@given(
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(-(1 << 15), (1 << 15) - 1),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.integers(0, (1 << 32) - 1),
    headers,
)
def test_a_producers_stamp_is_found_where_it_stands(
    who: int, epoch: int, first: int, count: int, more: Headers
) -> None:
    stamp = ProducerStamp(who, epoch, first, count)
    assert producer_stamp(encode_headers(((PRODUCER, encode_producer(stamp)), *more))) == stamp


@quick
@given(st.binary(max_size=60))
def test_a_producers_stamp_is_looked_for_in_any_bytes(packed: bytes) -> None:
    producer_stamp(packed)
