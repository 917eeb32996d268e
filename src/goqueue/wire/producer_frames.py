"""Producer stamps in frames, and the control records that end transactions.

A stamp is the first header of the first frame of a batch. It holds the batch's producer, its position in the producer's
sequence, and its number of frames.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goqueue.model.errors import InvalidFrame
from goqueue.model.offset_runs import OffsetRuns
from goqueue.wire.batch import Columns, FrameRun, envelope, positions_in
from goqueue.wire.frame import (
    CHECKSUM_FROM,
    FLAGS_AT,
    HEADER_SIZE,
    MAX_HEADERS_BYTES,
    Flag,
    decode_headers,
    encode_frame,
    encode_headers,
)
from goqueue.wire.internal_headers import (
    COPY_OF,
    DEDUP_ID,
    PRODUCER,
    STAMP_SIZE,
    ProducerStamp,
    encode_producer,
    producer_stamp,
)

STAMP_BYTES = 40
"""Upper bound of the bytes that a stamp adds to the headers of a message."""
MAX_STAMPED_HEADERS_BYTES = MAX_HEADERS_BYTES - STAMP_BYTES
_NO_SEQUENCE = -1
_NAME_AT = 2
_ONE_HEADER = b"\0\1"
"""How headers begin of which there is one."""
_VALUE_LENGTH_OF_STAMP = slice(_NAME_AT + 2 + len(PRODUCER), _NAME_AT + 4 + len(PRODUCER))
_STAMP_START = np.frombuffer(len(PRODUCER).to_bytes(2) + PRODUCER.encode()[:6], ">u8")[0]
_ANY_DEDUP_ID = re.compile(re.escape(DEDUP_ID.encode()))
_OFFSET_AT = slice(8, 16)
_TIMESTAMP_AT = slice(16, 24)
_KEY_LENGTH_AT = slice(26, 28)
_VALUE_LENGTH_AT = slice(28, 32)
_TRANSACTIONAL = int(Flag.TRANSACTIONAL)


class Marker(NamedTuple):
    """Content of a control record: the commit or abort of a producer's transaction."""

    producer_id: int
    epoch: int
    is_commit: bool


def with_stamp(frame: bytes, stamp: ProducerStamp, more_flags: int = 0) -> bytes:
    """The frame with a stamp before its other headers."""
    headers_at = _headers_at(frame)
    headers = ((PRODUCER, encode_producer(stamp)), *decode_headers(frame[headers_at:]))
    return _rebuilt(frame, headers_at, encode_headers(headers), frame[FLAGS_AT] | more_flags)


def stamp_batch(frames: list[bytes], stamp: ProducerStamp) -> list[bytes]:
    """A producer's batch with its stamp."""
    return [with_stamp(frames[0], stamp), *frames[1:]]


def stamped_pieces(runs: Sequence[FrameRun], stamp: ProducerStamp) -> list[bytes | memoryview]:
    """The encoded batch of several runs with a stamp, in pieces: only the first frame is copied."""
    first = runs[0]
    end = int(first.positions[1]) if len(first) > 1 else len(first.frames)
    stamped = with_stamp(bytes(first.frames[:end]), stamp)
    positions = positions_in(runs) + np.uint32(len(stamped) - end)
    positions[0] = 0
    return envelope(positions, [stamped, first.frames[end:], *(run.frames for run in runs[1:])])


def stamp_of(frame: bytes) -> ProducerStamp | None:
    """The stamp of one frame, if present."""
    headers_at = _headers_at(frame)
    return producer_stamp(frame[headers_at:]) if headers_at < len(frame) else None


def stamped_places(run: FrameRun, columns: Columns) -> list[int]:
    """Indexes of frames whose headers begin like a stamp, without a loop over the frames."""
    places = np.flatnonzero(columns["headers_length"] >= _NAME_AT + 8)
    if not len(places):
        return []
    starts = run.ends()[places].astype(np.int64) - columns["headers_length"][places] + _NAME_AT
    # A damaged length may point anywhere.
    inside = starts >= run.positions[places].astype(np.int64) + HEADER_SIZE
    places, starts = places[inside], starts[inside]
    words = np.ndarray(len(run.frames) - 7, ">u8", run.frames, 0, (1,))
    found: list[int] = places[words[starts] == _STAMP_START].tolist()
    return found


def as_plain(frame: bytes) -> bytes:
    """The frame without stamp and transaction flag; its offset is unchanged."""
    headers_at = _headers_at(frame)
    headers = decode_headers(frame[headers_at:])
    if headers and headers[0][0] == PRODUCER:
        headers = headers[1:]
    return _rebuilt(frame, headers_at, encode_headers(headers), frame[FLAGS_AT] & ~_TRANSACTIONAL)


def marker_frame(marker: Marker, timestamp_ns: int) -> bytes:
    """The control record that ends a transaction in one partition."""
    flags = int(Flag.CONTROL | Flag.TRANSACTIONAL) | (int(Flag.COMMIT) if marker.is_commit else 0)
    stamp = ProducerStamp(marker.producer_id, marker.epoch, _NO_SEQUENCE, 1)
    return encode_frame(b"", b"", encode_headers(((PRODUCER, encode_producer(stamp)),)), timestamp_ns, flags=flags)


def read_marker(flags: int, stamp: ProducerStamp) -> Marker | None:
    """The end of a transaction that a stamped frame with these flags records; ``None`` if it is part of a batch."""
    if not flags & Flag.CONTROL or stamp.first_sequence != _NO_SEQUENCE:
        return None
    return Marker(stamp.producer_id, stamp.epoch, bool(flags & Flag.COMMIT))


def check_stamp(run: FrameRun, first_headers_bytes: int) -> tuple[ProducerStamp | None, bool]:
    """The stamp of a producer's batch, if present, and whether the first frame has any other header."""
    end = int(run.positions[1]) if len(run.positions) > 1 else len(run.frames)
    if not first_headers_bytes:
        return None, False
    packed = run.frames[end - first_headers_bytes : end]
    stamp = producer_stamp(packed)
    if stamp is None:
        return None, True
    if int.from_bytes(packed[_VALUE_LENGTH_OF_STAMP]) != STAMP_SIZE:
        raise InvalidFrame(f"the header {PRODUCER!r} of the batch has a value that is not of {STAMP_SIZE} bytes")
    if stamp.producer_id < 0 or stamp.epoch < 0 or stamp.first_sequence < 0:
        raise InvalidFrame(f"the header {PRODUCER!r} of the batch has a negative id, epoch or sequence")
    if stamp.message_count != len(run.positions):
        raise InvalidFrame(
            f"the header {PRODUCER!r} tells of {stamp.message_count} messages; the batch has {len(run.positions)}"
        )
    return stamp, first_headers_bytes != STAMP_BYTES or packed[:_NAME_AT] != _ONE_HEADER


def dedup_ids(run: FrameRun) -> dict[int, bytes]:
    """Dedup ids of checked frames, by index. A message copied by the broker has none."""
    return dict(each_dedup_id(run))


def each_dedup_id(run: FrameRun) -> Iterator[tuple[int, bytes]]:
    """The dedup ids one at a time, for callers that yield to other tasks in between."""
    match = _ANY_DEDUP_ID.search(run.frames)
    if match is None:
        return
    data = bytes(run.frames)
    ends = run.ends().tolist()
    headers_at = (run.ends() - run.columns()["headers_length"]).tolist()
    while match is not None:
        place = bisect_right(ends, match.start())
        end = ends[place]
        if match.start() < headers_at[place]:
            # The pattern may also occur in the value, any number of times.
            match = _ANY_DEDUP_ID.search(data, headers_at[place])
            continue
        try:
            headers = dict(decode_headers(data[headers_at[place] : end]))
        except InvalidFrame:
            # Possible only for unchecked frames.
            headers = {}
        if DEDUP_ID in headers and COPY_OF not in headers:
            yield place, headers[DEDUP_ID]
        match = _ANY_DEDUP_ID.search(data, end)


def aborted_among(aborted: OffsetRuns, run: FrameRun) -> NDArray[np.bool_] | None:
    """Mask of the aborted frames of a run; ``None`` if there are none."""
    first, last = run.offset_at(0), run.offset_at(-1)
    if not aborted.any_between(first, last + 1):
        return None
    if last - first == len(run) - 1:
        return aborted.mask_between(first, last + 1)
    return aborted.mask(run.columns()["offset"].astype(np.int64))


def _headers_at(frame: bytes) -> int:
    return HEADER_SIZE + int.from_bytes(frame[_KEY_LENGTH_AT]) + int.from_bytes(frame[_VALUE_LENGTH_AT])


def _rebuilt(frame: bytes, headers_at: int, headers: bytes, flags: int) -> bytes:
    key_end = HEADER_SIZE + int.from_bytes(frame[_KEY_LENGTH_AT])
    return encode_frame(
        frame[HEADER_SIZE:key_end],
        frame[key_end:headers_at],
        headers,
        int.from_bytes(frame[_TIMESTAMP_AT]),
        frame[CHECKSUM_FROM + 8],
        flags,
        int.from_bytes(frame[_OFFSET_AT]),
    )
