"""Reading a segment from its bytes alone, believing nothing else: recovery and rebuilt indexes stand on this."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from itertools import pairwise
from struct import Struct
from struct import error as StructError  # noqa: N812

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from goqueue.model.message import HIDDEN, Priority
from goqueue.storage.files.files import File
from goqueue.storage.log.index_file import read_positions
from goqueue.storage.log.lane_index import lane_column
from goqueue.wire.batch import FrameRun, is_whole
from goqueue.wire.frame import CHECKSUM_AT, CHECKSUM_FROM, HEADER_SIZE, INVISIBLE, MAGIC, VERSION
from goqueue.wire.internal_headers import PRODUCER, producer_stamp

_HEADER = Struct(">2sBBIqqBBHIH")
_START = MAGIC + bytes([VERSION])
_WINDOW = 4 << 20
_RUN_FRAMES = 8_192
_SECTOR = 512
_MOST_FOR_ONE_BIT = 4 << 10
"""In as many bytes a flipped bit is looked for: with many it would be found where there is none (1 in 130,000 here)."""
_LENGTHS_FROM, _LENGTHS = 26, Struct(">HIH")
_INVISIBLE = int(INVISIBLE)
_LANE_OF = bytes(priority if priority < HIDDEN else Priority.NORMAL for priority in range(256))
MOST_OFFSETS = 1 << 62
_SEARCH_BUDGET = 512 << 20
"""Bytes that may be checksummed in search of a frame after damage: a payload full of forged headers ends the search."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes ``start`` to ``end`` of a segment that are no frames."""

    start: int
    end: int
    first_offset: int = 0
    end_offset: int = 0
    """The offsets that they had, up to but without this one."""
    is_lost: bool = False
    """Whether they had been written. Else a power loss may have kept them from the disk: nobody was told of them."""


@dataclass(slots=True)
class Scan:
    """What was found. ``end`` is where the last valid frame ends; what follows it is a torn tail."""

    end: int
    next_offset: int
    positions: array[int] = field(default_factory=lambda: array("I"))
    timestamps: array[int] = field(default_factory=lambda: array("q"))
    offsets: array[int] = field(default_factory=lambda: array("q"))
    lanes: array[int] = field(default_factory=lambda: array("B"))
    damage: list[Damage] = field(default_factory=list)
    open_batch: int | None = None
    """Place (in ``positions``) of the first frame of a producer's batch whose end is missing."""

    def position_array(self) -> NDArray[np.uint32]:
        return np.array(self.positions, np.uint32)

    def lane_array(self) -> NDArray[np.uint8]:
        return np.array(self.lanes, np.uint8)

    def drop_open_batch(self) -> None:
        """Forget the frames of a batch that is not there as a whole."""
        if self.open_batch is None:
            return
        self.end = self.positions[self.open_batch]
        self.next_offset = self.offsets[self.open_batch]
        for column in (self.positions, self.timestamps, self.offsets, self.lanes):
            del column[self.open_batch :]
        self.open_batch = None


class FrameScanner:
    """Walks over frames from ``start``.

    In a ``dense`` segment offsets must be consecutive, elsewhere they rise. All lie under ``below``.
    """

    def __init__(self, file: File, *, dense: bool, below: int = MOST_OFFSETS) -> None:
        self._file = file
        self._size = file.size()
        self._dense = dense
        self._below = below
        self._window = b""
        self._window_at = 0
        self._search_budget = _SEARCH_BUDGET

    def scan(
        self, start: int, next_offset: int, index: File | None = None, place: int = 0, *, durable_to: int = 0
    ) -> Scan:
        """Find every frame from ``start`` on. An ``index``, whose entry ``place`` is ``start``, speeds it up.

        Everything before the byte ``durable_to`` is known to have been on the disk.
        """
        found = Scan(start, next_offset)
        if index is not None:
            self._take_indexed(found, index, place)
        while True:
            batch_until = self._walk(found)
            if found.end == self._size:
                break
            damaged_from, first_offset, behind = found.end, found.next_offset, found.next_offset + 1
            written_to, resume = self._written_to(damaged_from), self._next_valid(found, damaged_from)
            if written_to is None and resume is not None and self._has_one_wrong_length(damaged_from, resume):
                written_to = resume
            was_durable = damaged_from < durable_to
            is_lost = was_durable or written_to is not None
            if was_durable:
                # The whole batch was there, so no producer will send it again: what is left of it counts.
                found.open_batch = None
            if found.open_batch is not None:
                # A torn write took a part of a batch, which is there as a whole or not at all: the rest goes with it.
                found.drop_open_batch()
                first_offset, found.next_offset = found.next_offset, batch_until
                resume = self._next_valid(found, damaged_from)
                found.next_offset = first_offset
            if resume is not None:
                # The offset after damage cannot be foretold; the frame there was checked by _next_valid.
                behind = self._offset_at(resume)
            elif written_to is not None:
                resume = written_to
                if resume == self._size and not self._dense and self._below < MOST_OFFSETS:
                    # It was any of those that are left.
                    behind = self._below
            else:
                break
            found.damage.append(Damage(found.end, resume, first_offset, behind, is_lost))
            found.end, found.next_offset = resume, behind
        return found

    def _written_to(self, start: int) -> int | None:
        """Where a frame ends that is not valid and was written whole: something has changed it since.

        A write that was torn looks otherwise. It is short; or what is missing of it reads as zeros, from its beginning,
        up to its end, or over whole sectors. ``None``: so does this one. A message may have such zeros of its own; then
        its checksum tells, which fits, or would if one bit were another.
        """
        view = self._at(start, HEADER_SIZE)
        if len(view) < HEADER_SIZE:
            return None
        begins_well = view[: len(_START)] == _START
        claimed: int = start + HEADER_SIZE + sum(_LENGTHS.unpack_from(view, _LENGTHS_FROM))
        if claimed != self._size and self._has_one_wrong_length(start, self._size):
            return self._size
        is_there = claimed == self._size or (begins_well and claimed < self._size)
        if not is_there or not (self._has_no_holes(start, claimed) or self._has_one_wrong_bit(start, claimed)):
            return None
        return claimed

    def _has_no_holes(self, start: int, end: int) -> bool:
        data = self._at(start, end - start)[: end - start]
        if not data[0] or not data[-1]:
            return False
        edges = [0, *range(_SECTOR - start % _SECTOR, len(data), _SECTOR), len(data)]
        return all(any(data[low:high]) for low, high in pairwise(edges))

    def _has_one_wrong_bit(self, start: int, end: int) -> bool:
        """Whether what lies there is a frame by its checksum, but for one bit, or for what no checksum covers."""
        size = end - start
        if size > self._search_budget:
            return False
        self._search_budget -= size
        frame = self._at(start, size)[:size]
        # What is missing at the beginning is missing here.
        if not frame[0]:
            return False
        difference = crc32c(frame[CHECKSUM_FROM:]) ^ int.from_bytes(frame[CHECKSUM_AT : CHECKSUM_AT + 4])
        if difference.bit_count() <= 1:
            # Nothing, or the checksum itself.
            return True
        at = flipped_at(size - CHECKSUM_FROM, difference) if size <= _MOST_FOR_ONE_BIT else None
        # A byte that reads as zero may be missing.
        return at is not None and frame[CHECKSUM_FROM + at] != 0

    def _has_one_wrong_length(self, start: int, end: int) -> bool:
        """Whether what lies there is a frame by its checksum, once one of its lengths is made to fit."""
        size = end - start
        # What is missing at the beginning is missing here; what is missing behind it fails the checksum.
        if size > self._search_budget or not self._at(start, 1)[0]:
            return False
        self._search_budget -= size
        frame = bytearray(self._at(start, size)[:size])
        checksum = int.from_bytes(frame[CHECKSUM_AT : CHECKSUM_AT + 4])
        lengths = _LENGTHS.unpack_from(frame, _LENGTHS_FROM)
        for which in range(len(lengths)):
            fitting = list(lengths)
            fitting[which] += size - HEADER_SIZE - sum(lengths)
            try:
                _LENGTHS.pack_into(frame, _LENGTHS_FROM, *fitting)
            except StructError:
                continue
            if crc32c(frame[CHECKSUM_FROM:]) == checksum:
                return True
        return False

    def _take_indexed(self, found: Scan, index: File, place: int) -> None:
        """Whole runs that an index points out, four times faster than walking. It is believed in nothing.

        Stops at the first run that is not flawless, or that an idempotent producer may have written: walking goes on.
        """
        while len(positions := read_positions(index, place, _RUN_FRAMES + 1)) > 1 and positions[0] == found.end:
            count = int(np.searchsorted(positions, found.end + _WINDOW)) - 1
            if count < 1 or (np.diff(positions[: count + 1].astype(np.int64)) < HEADER_SIZE).any():
                return
            data = memoryview(self._file.read(found.end, int(positions[count]) - found.end))
            run = FrameRun(data, positions[:count] - positions[0])
            if len(data) != positions[count] - positions[0] or not self._is_flawless(run, found.next_offset):
                return
            columns = run.columns()
            found.positions.frombytes(positions[:count].tobytes())
            found.timestamps.frombytes(columns["timestamp"].astype(np.int64).tobytes())
            found.offsets.frombytes(columns["offset"].astype(np.int64).tobytes())
            found.lanes.frombytes(lane_column(columns).tobytes())
            found.end, found.next_offset = int(positions[count]), found.next_offset + count
            place += count

    def _is_flawless(self, run: FrameRun, next_offset: int) -> bool:
        columns = run.columns()
        expected = np.arange(next_offset, next_offset + len(run))
        return (
            is_whole(run, columns)
            and bool((columns["offset"] == expected).all())
            and next_offset + len(run) <= self._below
            and PRODUCER.encode() not in bytes(run.frames)
        )

    def _walk(self, found: Scan) -> int:
        """Go on while frames are valid. Returns where the batch ends that was begun last."""
        position, expected = found.end, found.next_offset
        batch_until = -1
        positions, timestamps, offsets, lanes = found.positions, found.timestamps, found.offsets, found.lanes
        unpack, dense = _HEADER.unpack_from, self._dense
        while position < self._size:
            view = self._at(position, HEADER_SIZE)
            if len(view) < HEADER_SIZE:
                break
            magic, version, flags, checksum, offset, timestamp, priority, again, key, value, headers = unpack(view)
            size = HEADER_SIZE + key + value + headers
            if magic != MAGIC or version != VERSION or flags != again or position + size > self._size:
                break
            if not expected <= offset < self._below or (
                offset > expected and (dense or self._is_astray(position + size, expected, offset))
            ):
                break
            if len(view) < size:
                view = self._at(position, size)
            if crc32c(view[CHECKSUM_FROM:size]) != checksum:
                break
            if headers and (stamp := producer_stamp(view[size - headers : size])) is not None:
                found.open_batch, batch_until = len(positions), offset + stamp.message_count
            positions.append(position)
            timestamps.append(timestamp)
            offsets.append(offset)
            lanes.append(HIDDEN if flags & _INVISIBLE else _LANE_OF[priority])
            position += size
            expected = offset + 1
            if expected >= batch_until:
                found.open_batch = None
        found.end, found.next_offset = position, expected
        return batch_until

    def _is_astray(self, following: int, expected: int, offset: int) -> bool:
        """Whether an offset that jumps ahead is itself damaged (no checksum covers it): those that follow lie below."""
        below = 0
        for _ in range(2):
            view = self._at(following, HEADER_SIZE)
            if len(view) < HEADER_SIZE:
                break
            magic, version, flags, _, next_offset, _, _, again, key, value, headers = _HEADER.unpack_from(view)
            if magic != MAGIC or version != VERSION or flags != again:
                break
            if not expected <= next_offset <= offset:
                return False
            below += 1
            following += HEADER_SIZE + key + value + headers
        return below > 0

    def _at(self, position: int, size: int) -> memoryview:
        """What is at ``position``: at least ``size`` bytes, unless the file ends before."""
        into = position - self._window_at
        if into < 0 or into + size > len(self._window):
            self._window = self._file.read(position, max(size, _WINDOW))
            self._window_at, into = position, 0
        return memoryview(self._window)[into:]

    def _offset_at(self, position: int) -> int:
        return int(_HEADER.unpack_from(self._at(position, HEADER_SIZE))[4])

    def _next_valid(self, found: Scan, damaged_from: int) -> int | None:
        """The first valid frame beyond ``damaged_from`` with an offset that could stand there."""
        claimed = self._claimed_end(damaged_from)
        if claimed == self._size:
            return None
        if claimed is not None and self._could_be_frame(claimed, found):
            return claimed
        # A frame that goes beyond the file is most likely torn, and what looks like frames in it is its value. Only if
        # they lead exactly to the file's end was it the length that was damaged.
        torn = claimed is not None and claimed > self._size
        position = damaged_from + 1
        while position + HEADER_SIZE <= self._size:
            view = self._at(position, min(_WINDOW, self._size - position))
            candidate = self._search(view, position, found)
            if candidate is not None:
                return candidate if not torn or self._leads_to_the_end(candidate) else None
            position += max(1, len(view) - HEADER_SIZE + 1)
        return None

    def _claimed_end(self, position: int) -> int | None:
        """Where a damaged frame ends by its own word. Looked at first: what it holds may itself look like frames."""
        view = self._at(position, HEADER_SIZE)
        if len(view) < HEADER_SIZE:
            return None
        magic, version, *_, key, value, headers = _HEADER.unpack_from(view)
        return position + HEADER_SIZE + key + value + headers if (magic, version) == (MAGIC, VERSION) else None

    def _leads_to_the_end(self, position: int | None) -> bool:
        while position is not None and position < self._size:
            position = self._claimed_end(position)
        return position == self._size

    def _search(self, view: memoryview, base: int, found: Scan) -> int | None:
        data = bytes(view)
        at = data.find(_START)
        while at >= 0:
            position = base + at
            if self._could_be_frame(position, found):
                return position
            at = data.find(_START, at + 1)
        return None

    def _could_be_frame(self, position: int, found: Scan) -> bool:
        head = self._file.read(position, HEADER_SIZE)
        if len(head) < HEADER_SIZE or not head.startswith(_START):
            return False
        _, _, flags, checksum, offset, _, _, again, key, value, headers = _HEADER.unpack(head)
        size = HEADER_SIZE + key + value + headers
        lost = (position - found.end) // HEADER_SIZE + 1
        if flags != again or position + size > self._size or not found.next_offset <= offset < self._below:
            return False
        if self._dense and offset > found.next_offset + lost:
            return False
        if size > self._search_budget:
            return False
        self._search_budget -= size
        return bool(crc32c(self._file.read(position + CHECKSUM_FROM, size - CHECKSUM_FROM)) == checksum)


_POLYNOMIAL = 0x82F63B78
"""Of CRC32C: the tables find the one bit by which bytes differ from what their checksum was made of."""


def _step(state: int) -> int:
    for _ in range(8):
        state = state >> 1 ^ (_POLYNOMIAL if state & 1 else 0)
    return state


_TABLE = [_step(byte) for byte in range(256)]
_BACK = {entry >> 24: byte for byte, entry in enumerate(_TABLE)}
_ONE_BIT = {_TABLE[1 << bit] for bit in range(8)}


def flipped_at(size: int, difference: int) -> int | None:
    """In which of ``size`` bytes one flipped bit makes this ``difference`` (the exclusive or of two checksums)."""
    for place in range(size - 1, -1, -1):
        if difference in _ONE_BIT:
            return place
        # What it was before another byte came behind.
        byte = _BACK[difference >> 24]
        difference = (difference ^ _TABLE[byte]) << 8 & 0xFFFFFFFF | byte
    return None
