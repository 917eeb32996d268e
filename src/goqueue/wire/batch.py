"""Batches: frames sent together, with a table of their positions.

With the table, broker and readers process headers as numpy columns instead of going from frame to frame.

On the wire: magic ``GB`` (2), version (1), zero (1), count (4), bytes of frames (4), count positions (4 each, relative
to the first frame's first byte), frames; all big-endian.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from goqueue.model.errors import InvalidFrame
from goqueue.model.message import HIDDEN
from goqueue.wire.frame import CHECKSUM_FROM, FLAGS_AT, HEADER_SIZE, INVISIBLE, MAGIC, PRIORITY_AT, VERSION
from goqueue.wire.internal_headers import ProducerStamp

MAX_BATCH_BYTES = 1 << 20
"""Limit on the bytes of frames in a batch, unless it is a single message."""

ENVELOPE = Struct(">2sBBII")
ENVELOPE_MAGIC = b"GB"
WIRE_POSITION = np.dtype(">u4")
Positions = NDArray[np.uint32]
Columns = NDArray[Any]
Lanes = int | NDArray[np.uint8]
"""The lane of each frame (``HIDDEN`` for frames that are invisible to readers), or one lane common to all."""

HEADER_COLUMNS = np.dtype(
    [
        ("magic", ">u2"),
        ("version", "u1"),
        ("flags", "u1"),
        ("checksum", ">u4"),
        ("offset", ">i8"),
        ("timestamp", ">i8"),
        ("priority", "u1"),
        ("flags_again", "u1"),
        ("key_length", ">u2"),
        ("value_length", ">u4"),
        ("headers_length", ">u2"),
    ]
)
_HEADER_BYTES = np.dtype((np.void, HEADER_SIZE))
_OFFSET_AT = 8
_OFFSET = Struct(">q")
_MAGIC_NUMBER = int.from_bytes(MAGIC)
_ONE: Positions = np.zeros(1, np.uint32)
_ONE.flags.writeable = False
_ONE_ON_THE_WIRE = bytes(4)
_SMALL_FRAME_BYTES = 500


@dataclass(frozen=True, slots=True)
class FrameRun:
    """Consecutive whole frames, not decoded. ``positions`` are relative to the first frame."""

    frames: memoryview
    positions: Positions
    misplaced: tuple[int, ...] = ()
    """Offsets of frames whose stored offset was wrong when they were read from a log. Their checksums fail now."""

    @staticmethod
    def of_one(frame: bytes) -> FrameRun:
        return FrameRun(memoryview(frame), _ONE)

    def __len__(self) -> int:
        return len(self.positions)

    def columns(self) -> Columns:
        """Headers of all frames as one structured array."""
        return header_columns(self.frames, self.positions)

    def flags(self) -> NDArray[np.uint8]:
        """Flags of all frames, at a tenth of the cost of all columns."""
        found: NDArray[np.uint8] = np.frombuffer(self.frames, np.uint8)[self.positions + np.uint32(FLAGS_AT)]
        return found

    def said_offsets(self) -> NDArray[np.int64]:
        """Offsets stored in the frames, in the frames' byte order."""
        positions, step = self.positions, len(self.frames) // len(self.positions)
        if (
            positions[-1] == step * (len(positions) - 1)
            and (positions == np.arange(0, step * len(positions), step, dtype=np.uint32)).all()
        ):
            # Frames of equal size, the common case, need no gathering, which halves the time.
            return np.ndarray(len(positions), np.int64, self.frames, _OFFSET_AT, (step,))
        every = np.ndarray(len(self.frames) - _OFFSET_AT - 7, np.int64, self.frames, _OFFSET_AT, (1,))
        return every[positions]

    def offset_at(self, place: int) -> int:
        """Offset stored in the frame at an index."""
        found: int = _OFFSET.unpack_from(self.frames, int(self.positions[place]) + _OFFSET_AT)[0]
        return found

    def ends(self) -> Positions:
        return np.append(self.positions[1:], np.uint32(len(self.frames)))

    def part(self, first: int, end: int) -> FrameRun:
        """The frames from index ``first`` up to, but not including, ``end``."""
        if first == 0 and end == len(self.positions):
            return self
        if first >= end:
            return FrameRun(self.frames[:0], self.positions[:0])
        low = self.positions[first]
        high = self.positions[end] if end < len(self.positions) else len(self.frames)
        return FrameRun(self.frames[low:high], self.positions[first:end] - low)

    def pieces(self) -> list[bytes | memoryview]:
        """The encoded batch that ``parse_batch`` reads, in pieces."""
        return envelope(self.positions, [self.frames])

    def to_wire(self) -> bytes:
        return b"".join(self.pieces())


@dataclass(frozen=True, slots=True)
class CheckedBatch:
    """Frames that passed all checks and are ready for offsets and appending.

    Only ``verify_batch`` and ``join_frames`` create one, so unchecked frames never reach a log.
    """

    frames: bytearray
    positions: Positions
    max_timestamp_ns: int
    lanes: Lanes
    producer: ProducerStamp | None = None
    """Stamp of the producer, if it is idempotent."""
    has_headers: bool = True
    """Whether any message has headers of its own; true if not known."""

    def __len__(self) -> int:
        return len(self.positions)

    def to_wire(self) -> bytes:
        return FrameRun(memoryview(self.frames), self.positions).to_wire()

    def stamp(self, first_offset: int) -> None:
        """Write consecutive offsets into the frames, in place."""
        if len(self.positions) == 1:
            _OFFSET.pack_into(self.frames, _OFFSET_AT, first_offset)
            return
        offsets = np.ndarray(len(self.frames) - _OFFSET_AT - 7, ">i8", self.frames, _OFFSET_AT, (1,))
        offsets[self.positions] = np.arange(first_offset, first_offset + len(self.positions))


def envelope(positions: Positions, frames: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """The encoded batch for frames in several pieces: the envelope's header, then the pieces."""
    head = ENVELOPE.pack(ENVELOPE_MAGIC, VERSION, 0, len(positions), sum(map(len, frames)))
    table = _ONE_ON_THE_WIRE if len(positions) == 1 else positions.astype(WIRE_POSITION).tobytes()
    return [head, table, *frames]


def header_columns(frames: bytes | bytearray | memoryview, positions: Positions) -> Columns:
    """Gather headers by position. Every position must leave space for a whole header."""
    # Read as plain bytes: numpy copies structured items field by field, which takes ten times as long.
    every_byte = np.ndarray(len(frames) - HEADER_SIZE + 1, _HEADER_BYTES, frames, 0, (1,))
    return every_byte[positions].view(HEADER_COLUMNS)


def put_headers(frames: bytearray, positions: Positions, columns: Columns) -> None:
    """Write headers to the frames' positions, in place; the inverse of ``header_columns``."""
    every_byte = np.ndarray(len(frames) - HEADER_SIZE + 1, _HEADER_BYTES, frames, 0, (1,))
    every_byte[positions] = columns.view(_HEADER_BYTES)


def join_frames(frames: list[bytes], max_timestamp_ns: int) -> CheckedBatch:
    """A batch of frames that this process encoded itself."""
    if len(frames) == 1:
        only = frames[0]
        lane = HIDDEN if only[FLAGS_AT] & INVISIBLE else only[PRIORITY_AT]
        return CheckedBatch(bytearray(only), np.zeros(1, np.uint32), max_timestamp_ns, lane)
    lengths = np.fromiter(map(len, frames), np.uint32, len(frames))
    positions = np.zeros(len(frames), np.uint32)
    np.cumsum(lengths[:-1], out=positions[1:])
    joined = bytearray().join(frames)
    return CheckedBatch(joined, positions, max_timestamp_ns, lanes_in(joined, positions))


def lanes_in(frames: bytearray, positions: Positions) -> Lanes:
    """Lanes of the frames at these positions."""
    every_byte = np.frombuffer(frames, np.uint8)
    return lanes_of(every_byte[positions + np.uint32(PRIORITY_AT)], every_byte[positions + np.uint32(FLAGS_AT)])


def lanes_of(priorities: NDArray[np.uint8], flags: NDArray[np.uint8] | None) -> Lanes:
    """Lanes by two columns of the frames' headers; ``None`` stands for no flags."""
    if flags is not None and flags.any() and (hidden := flags & np.uint8(INVISIBLE) != 0).any():
        priorities = np.where(hidden, np.uint8(HIDDEN), priorities)
    first = int(priorities[0])
    return first if (priorities == first).all() else np.ascontiguousarray(priorities)


def parse_batch(data: bytes | bytearray | memoryview) -> FrameRun:
    """Parse one batch. The contents of frames are not checked; ``verify_batch`` does that."""
    view = memoryview(data)
    if len(view) < ENVELOPE.size:
        raise InvalidFrame(f"a batch of {len(view)} bytes is shorter than its envelope ({ENVELOPE.size} bytes)")
    magic, version, zero, count, size = ENVELOPE.unpack_from(view)
    if magic != ENVELOPE_MAGIC or version != VERSION or zero != 0:
        raise InvalidFrame("a batch begins with 'GB', version 1 and a zero byte; this does not")
    table_end = ENVELOPE.size + 4 * count
    if table_end + size != len(view):
        raise InvalidFrame(
            f"the envelope tells of {count} frames in {size} bytes, {table_end + size} with the table; "
            f"the body has {len(view)}"
        )
    if count == 1 and size >= HEADER_SIZE and view[ENVELOPE.size : table_end] == _ONE_ON_THE_WIRE:
        # A single frame needs no table, which would take most of the time of publishing it.
        return FrameRun(view[table_end:], _ONE)
    positions = np.frombuffer(view[ENVELOPE.size : table_end], WIRE_POSITION).astype(np.uint32)
    frames = view[table_end:]
    if count == 0 or (size > MAX_BATCH_BYTES and count > 1):
        raise InvalidFrame(f"a batch holds 1 message or more, in at most {MAX_BATCH_BYTES} bytes unless it is one")
    lengths = np.diff(positions.astype(np.int64), append=size)
    if positions[0] != 0 or lengths.min() < HEADER_SIZE:
        raise InvalidFrame("the table of positions must begin at 0 and leave room for a header between two frames")
    return FrameRun(frames, positions)


def check_layout(run: FrameRun) -> Columns:
    """Check magic, version, lengths and checksum of every frame, and return the columns. The error names the first
    frame that is not whole."""
    columns = run.columns()
    for bad, what in _layout_faults(run, columns):
        if bad.any():
            raise InvalidFrame(f"message {int(bad.argmax())} of the batch {what}")
    return columns


def is_whole(run: FrameRun, columns: Columns) -> bool:
    """Whether ``check_layout`` passes, without the reason for a failure."""
    return not any(bad.any() for bad, _ in _layout_faults(run, columns))


def damaged_places(run: FrameRun, columns: Columns) -> list[int]:
    """Indexes of frames that are not whole."""
    faults = [bad for bad, _ in _layout_faults(run, columns)]
    if not any(bad.any() for bad in faults):
        return []
    return [int(place) for place in np.flatnonzero(np.logical_or.reduce(faults))]


def select_frames(run: FrameRun, places: Sequence[int] | NDArray[np.int64]) -> FrameRun:
    """The frames at these ascending indexes as a run of their own; adjacent frames are copied as one piece."""
    if len(places) == len(run):
        return run
    if int(places[-1]) - int(places[0]) == len(places) - 1:
        return run.part(int(places[0]), int(places[-1]) + 1)
    at = np.asarray(places, np.int64)
    starts, ends = run.positions[at].astype(np.int64), run.ends()[at].astype(np.int64)
    breaks = np.flatnonzero(np.diff(at) != 1) + 1
    firsts, lasts = starts[np.append(0, breaks)].tolist(), ends[np.append(breaks, len(at)) - 1].tolist()
    frames = run.frames
    joined = b"".join([frames[start:end] for start, end in zip(firsts, lasts, strict=True)])
    lengths = ends - starts
    return FrameRun(memoryview(joined), (np.cumsum(lengths) - lengths).astype(np.uint32))


def keep_frames(run: FrameRun, keep: NDArray[np.bool_]) -> FrameRun:
    """The frames selected by a mask, at least one, as a run of their own."""
    changes = np.flatnonzero(keep[1:] != keep[:-1]) + 1
    edges = np.concatenate(([0] if keep[0] else [], changes, [len(keep)] if keep[-1] else [])).astype(np.int64)
    begins, ends = edges[::2], edges[1::2]
    if len(begins) == 1:
        return run.part(int(begins[0]), int(ends[0]))
    bounds = np.append(run.positions, np.uint32(len(run.frames))).astype(np.int64)
    lows, highs = bounds[begins], bounds[ends]
    sizes = highs - lows
    frames = run.frames
    # Adjacent frames are copied as one piece.
    joined = b"".join([frames[low:high] for low, high in zip(lows.tolist(), highs.tolist(), strict=True)])
    moved = np.repeat(lows - (np.cumsum(sizes) - sizes), ends - begins)
    return FrameRun(memoryview(joined), (run.positions[keep] - moved).astype(np.uint32))


def join_runs(runs: list[FrameRun]) -> FrameRun:
    """Several runs as one."""
    if len(runs) == 1:
        return runs[0]
    return FrameRun(memoryview(b"".join(run.frames for run in runs)), positions_in(runs))


def positions_in(runs: Sequence[FrameRun]) -> Positions:
    """Positions of the frames of several runs, once these are concatenated."""
    if len(runs) == 1:
        return runs[0].positions
    starts = np.cumsum([0, *(len(run.frames) for run in runs[:-1])]).astype(np.uint32)
    if all(len(run.positions) == 1 for run in runs):
        return starts
    return np.concatenate([run.positions + start for run, start in zip(runs, starts, strict=True)])


def _layout_faults(run: FrameRun, columns: Columns) -> list[tuple[NDArray[np.bool_], str]]:
    ends = run.ends()
    sizes = columns["key_length"].astype(np.int64) + columns["value_length"] + columns["headers_length"] + HEADER_SIZE
    return [
        (columns["magic"] != _MAGIC_NUMBER, "does not begin with 'GQ'"),
        (columns["version"] != VERSION, f"has a version other than {VERSION}"),
        (sizes != ends - run.positions.astype(np.int64), "has lengths that do not add up to its size"),
        (checksums(run, ends) != columns["checksum"], "does not match its checksum"),
        (columns["flags"] != columns["flags_again"], "has two copies of its flags that differ"),
    ]


def checksums(run: FrameRun, ends: Positions) -> NDArray[np.uint32]:
    starts = (run.positions + np.uint32(CHECKSUM_FROM)).tolist()
    # A copy of small frames is faster than a view of them, since slicing bytes takes less time than slicing a view.
    frames = bytes(run.frames) if len(run.frames) < _SMALL_FRAME_BYTES * len(run) else run.frames
    computed = [crc32c(frames[start:end]) for start, end in zip(starts, ends.tolist(), strict=True)]
    return np.array(computed, np.uint32)
