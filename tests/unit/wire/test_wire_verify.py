"""What a producer may send, and what the error says if it may not."""

from __future__ import annotations

import pytest
from doubles.messages import START_NS, stamp_header

from goqueue.model.errors import (
    GoQueueError,
    InvalidFrame,
    InvalidMessage,
    MessageTooLarge,
    TimestampOutOfRange,
)
from goqueue.wire.batch import FrameRun, join_frames, parse_batch
from goqueue.wire.decoding import decode_run
from goqueue.wire.frame import Flag, encode_frame, encode_headers
from goqueue.wire.verify import FrameRules, verify_batch

RULES = FrameRules(max_value_bytes=100, latest_timestamp_ns=START_NS + 10)
GOOD = encode_frame(b"k", b"v", b"", START_NS)


def run_of(*frames: bytes) -> FrameRun:
    batch = join_frames(list(frames), START_NS)
    return parse_batch(FrameRun(memoryview(batch.frames), batch.positions).to_wire())


@pytest.mark.parametrize(
    ("frame", "error", "text"),
    [
        (encode_frame(b"", b"x" * 101, b"", START_NS), MessageTooLarge, "101 bytes"),
        (encode_frame(b"", b"v", b"", START_NS, priority=5), InvalidFrame, "priority 5"),
        (encode_frame(b"", b"v", b"", START_NS + 11), TimestampOutOfRange, "too far ahead"),
        (encode_frame(b"", b"v", b"", -1), TimestampOutOfRange, "before 1970"),
        (encode_frame(b"", b"v", b"", START_NS, flags=Flag.CONTROL), InvalidFrame, "flags 0x08"),
        (encode_frame(b"", b"v", b"", START_NS, flags=Flag.COMMIT), InvalidFrame, "flags 0x10"),
        (encode_frame(b"", b"v", b"", START_NS, flags=2), InvalidFrame, "flags 0x02"),
        (encode_frame(b"", b"v", b"", START_NS, flags=128), InvalidFrame, "flags 0x80"),
        (encode_frame(b"", b"v", b"", START_NS, flags=Flag.DELAYED), InvalidFrame, "goqueue-due-at"),
        (encode_frame(b"", b"v", b"", START_NS, flags=Flag.TRANSACTIONAL), InvalidFrame, "transactional"),
        (encode_frame(b"k", b"v", b"", START_NS, flags=Flag.TOMBSTONE), InvalidFrame, "tombstone"),
        (encode_frame(b"", b"", b"", START_NS, flags=Flag.TOMBSTONE), InvalidFrame, "tombstone"),
        (encode_frame(b"", b"v", b"\x00", START_NS), InvalidFrame, "headers"),
        (encode_frame(b"", b"v", b"\x00\x00", START_NS), InvalidFrame, "headers"),
        (encode_frame(b"", b"v", b"\x00\x01\x00\x01\xff\x00\x00", START_NS), InvalidFrame, "UTF-8"),
        (encode_frame(b"", b"v", encode_headers((("goqueue-x", b""),)), START_NS), InvalidFrame, "goqueue-x"),
        (encode_frame(b"", b"v", stamp_header(1), START_NS), InvalidFrame, "goqueue-producer"),
    ],
)
def test_a_message_that_is_not_allowed_is_named(frame: bytes, error: type[GoQueueError], text: str) -> None:
    with pytest.raises(error, match="message 1 of the batch") as caught:
        verify_batch(run_of(GOOD, frame, GOOD), RULES)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "frame",
    [
        encode_frame(b"", b"x" * 100, b"", START_NS + 10),
        encode_frame(b"", b"", b"", 0, priority=4),
        encode_frame(b"k", b"", b"", START_NS, flags=Flag.TOMBSTONE),
        encode_frame(b"", b"v", encode_headers((("about", b"goqueue-x"), ("", b""))), START_NS, flags=Flag.COMPRESSED),
    ],
)
def test_a_message_at_the_bounds_is_taken(frame: bytes) -> None:
    assert len(verify_batch(run_of(GOOD, frame), RULES)) == 2


def test_a_compacted_topic_needs_keys() -> None:
    rules = FrameRules(100, START_NS, needs_key=True)
    with pytest.raises(InvalidMessage, match="no key"):
        verify_batch(run_of(GOOD, encode_frame(b"", b"v", b"", START_NS)), rules)


def test_stamping_changes_offsets_and_nothing_else() -> None:
    batch = verify_batch(run_of(GOOD, GOOD, GOOD), RULES)
    batch.stamp(1 << 40)
    messages, damaged = decode_run(FrameRun(memoryview(batch.frames), batch.positions))
    assert damaged == []
    assert [message.offset for message in messages] == [1 << 40, (1 << 40) + 1, (1 << 40) + 2]
    assert {(message.key, message.value) for message in messages} == {(b"k", b"v")}


def test_a_checked_batch_does_not_share_bytes_with_what_was_received() -> None:
    received = bytearray(run_of(GOOD).to_wire())
    batch = verify_batch(parse_batch(received), RULES)
    received[-1] ^= 1
    assert bytes(batch.frames) == GOOD
