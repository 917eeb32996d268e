"""Batches and messages for tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from goqueue.model.message import Message
from goqueue.storage.log.log import Log
from goqueue.wire.batch import CheckedBatch, FrameRun, join_frames
from goqueue.wire.decoding import decode_run
from goqueue.wire.frame import Flag, encode_frame, encode_headers
from goqueue.wire.internal_headers import PRODUCER, ProducerStamp, encode_producer

OpenLog = Callable[..., Log]
"""Opens a test's log as a process does that starts after the last one was killed."""
START_NS = 1_700_000_000_000_000_000


class Ticking:
    """A clock that moves by one microsecond whenever it is looked at, or as it is told."""

    def __init__(self, now_ns: int = START_NS) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        self.now_ns += 1_000
        return self.now_ns


def read_run(
    log: Log, offset: int, max_bytes: int, max_messages: int = 1 << 30, limit: int | None = None
) -> FrameRun | None:
    """Frames from the first at or after ``offset``, below ``limit``; ``None`` if there is none yet."""
    found = log.locate(offset, max_bytes, max_messages, limit)
    return found.load() if found else None


def stamp_header(count: int, first_sequence: int = 0) -> bytes:
    """The packed headers of the first message of a producer's batch."""
    return encode_headers(((PRODUCER, encode_producer(ProducerStamp(7, 0, first_sequence, count))),))


def batch_of(
    values: Sequence[bytes],
    *,
    keys: Sequence[bytes] | None = None,
    timestamps: Sequence[int] | None = None,
    stamped: bool = False,
) -> CheckedBatch:
    """Messages with these values. A value of ``b""`` with a key is a tombstone; ``stamped`` makes them one unit."""
    keys = keys or [b""] * len(values)
    timestamps = timestamps or [START_NS + place for place in range(len(values))]
    frames = []
    for place, (key, value, timestamp) in enumerate(zip(keys, values, timestamps, strict=True)):
        headers = stamp_header(len(values)) if stamped and place == 0 else b""
        flags = int(Flag.TOMBSTONE) if key and not value else 0
        frames.append(encode_frame(key, value, headers, timestamp, flags=flags))
    return join_frames(frames, max(timestamps))


def read_all(log: Log, *, max_bytes: int = 1 << 20) -> list[Message]:
    """Every message from the start to the end, damaged ones left out."""
    found: list[Message] = []
    offset = log.start_offset
    while (run := read_run(log, offset, max_bytes)) is not None:
        messages, _ = decode_run(run)
        found += messages
        offset = int(run.columns()["offset"][-1]) + 1
    return found


def values_of(log: Log) -> list[bytes]:
    return [message.value for message in read_all(log)]
