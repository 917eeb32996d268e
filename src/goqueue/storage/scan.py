"""Reading a segment from its bytes alone, believing nothing else: recovery and rebuilt indexes stand on this."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from struct import Struct

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from goqueue.storage.files import File
from goqueue.wire.frame import CHECKSUM_FROM, HEADER_SIZE, MAGIC, VERSION
from goqueue.wire.internal_headers import producer_stamp

_HEADER = Struct(">2sBBIqqBBHIH")
_START = MAGIC + bytes([VERSION])
_WINDOW = 4 << 20
_SEARCH_BUDGET = 512 << 20
"""Bytes that may be checksummed in search of a frame after damage: a payload full of forged headers ends the search."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes ``start`` to ``end`` of a segment that are no frames, with valid frames after them."""

    start: int
    end: int


@dataclass(slots=True)
class Scan:
    """What was found. ``end`` is where the last valid frame ends; what follows it is a torn tail."""

    end: int
    next_offset: int
    positions: array[int] = field(default_factory=lambda: array("I"))
    timestamps: array[int] = field(default_factory=lambda: array("q"))
    offsets: array[int] = field(default_factory=lambda: array("q"))
    damage: list[Damage] = field(default_factory=list)
    open_batch: int | None = None
    """Place (in ``positions``) of the first frame of a producer's batch whose end is missing."""

    def position_array(self) -> NDArray[np.uint32]:
        return np.array(self.positions, np.uint32)

    def drop_open_batch(self) -> None:
        """Forget the frames of a batch that is not there as a whole."""
        if self.open_batch is None:
            return
        self.end = self.positions[self.open_batch]
        self.next_offset = self.offsets[self.open_batch]
        for column in (self.positions, self.timestamps, self.offsets):
            del column[self.open_batch :]
        self.open_batch = None


class FrameScanner:
    """Walks over frames from ``start``. In a ``dense`` segment offsets must be consecutive, elsewhere only rise."""

    def __init__(self, file: File, *, dense: bool) -> None:
        self._file = file
        self._size = file.size()
        self._dense = dense
        self._window = b""
        self._window_at = 0
        self._search_budget = _SEARCH_BUDGET

    def scan(self, start: int, next_offset: int) -> Scan:
        found = Scan(start, next_offset)
        while True:
            self._walk(found)
            if found.end == self._size:
                break
            resume = self._next_valid(found)
            if resume is None:
                break
            found.damage.append(Damage(found.end, resume))
            found.end = resume
            # The offset after damage cannot be foretold; the frame there was checked by _next_valid.
            found.next_offset = self._offset_at(resume)
        return found

    def _walk(self, found: Scan) -> None:
        position, expected = found.end, found.next_offset
        batch_until = -1
        positions, timestamps, offsets = found.positions, found.timestamps, found.offsets
        unpack, dense = _HEADER.unpack_from, self._dense
        while position < self._size:
            view = self._at(position, HEADER_SIZE)
            if len(view) < HEADER_SIZE:
                break
            magic, version, flags, checksum, offset, timestamp, _, again, key, value, headers = unpack(view)
            size = HEADER_SIZE + key + value + headers
            if magic != MAGIC or version != VERSION or flags != again or position + size > self._size:
                break
            if offset < expected or (dense and offset != expected):
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
            position += size
            expected = offset + 1
            if expected >= batch_until:
                found.open_batch = None
        found.end, found.next_offset = position, expected

    def _at(self, position: int, size: int) -> memoryview:
        """What is at ``position``: at least ``size`` bytes, unless the file ends before."""
        into = position - self._window_at
        if into < 0 or into + size > len(self._window):
            self._window = self._file.read(position, max(size, _WINDOW))
            self._window_at, into = position, 0
        return memoryview(self._window)[into:]

    def _offset_at(self, position: int) -> int:
        return int(_HEADER.unpack_from(self._at(position, HEADER_SIZE))[4])

    def _next_valid(self, found: Scan) -> int | None:
        """The first valid frame beyond ``found.end`` with an offset that could stand there."""
        position = found.end + 1
        while position + HEADER_SIZE <= self._size:
            view = self._at(position, min(_WINDOW, self._size - position))
            candidate = self._search(view, position, found)
            if candidate is not None:
                return candidate
            position += max(1, len(view) - HEADER_SIZE + 1)
        return None

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
        if len(head) < HEADER_SIZE:
            return False
        _, _, flags, checksum, offset, _, _, again, key, value, headers = _HEADER.unpack(head)
        size = HEADER_SIZE + key + value + headers
        lost = (position - found.end) // HEADER_SIZE + 1
        if flags != again or position + size > self._size or offset < found.next_offset:
            return False
        if self._dense and offset > found.next_offset + lost:
            return False
        if size > self._search_budget:
            return False
        self._search_budget -= size
        return bool(crc32c(self._file.read(position + CHECKSUM_FROM, size - CHECKSUM_FROM)) == checksum)
