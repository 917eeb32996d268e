"""The headers of all frames of a run, found one position at a time for all frames at once.

The first header of every frame is looked at, then the second of those that have two, and so on: as many steps as the
frame with the most headers has, whatever the number of frames.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goqueue.model.message import Headers
from goqueue.wire.batch import FrameRun
from goqueue.wire.frame import decode_headers
from goqueue.wire.internal_headers import PRODUCER

_STAMP = np.frombuffer(PRODUCER.encode(), np.uint8)
_COUNT_BYTES = 2


class HeaderTable:
    """Which frames have headers of their own, and what they are. A producer's stamp is none: it is the log's affair."""

    def __init__(
        self, run: FrameRun, bounds: NDArray[np.int32], lengths: NDArray[np.uint16], buffer: pa.Buffer
    ) -> None:
        self._size = len(run)
        self._bytes = np.frombuffer(run.frames, np.uint8)
        self._frames = run.frames
        self._buffer = buffer
        self._bounds = bounds
        self._rows = np.flatnonzero(lengths)
        self._at = bounds[self._rows, 2].astype(np.int64)
        self._counts = self._u16(self._at)
        self._at += _COUNT_BYTES
        self._leave_out_stamps()

    def _u16(self, at: NDArray[np.int64]) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self._bytes[at].astype(np.int64) << 8 | self._bytes[at + 1]
        return found

    def _leave_out_stamps(self) -> None:
        """A stamp stands first; it is stepped over."""
        if not len(self._rows):
            return
        name_lengths = self._u16(self._at)
        alike = np.flatnonzero(name_lengths == len(_STAMP))
        if not len(alike):
            return
        names = self._bytes[self._at[alike, None] + 2 + np.arange(len(_STAMP))]
        stamped = alike[(names == _STAMP).all(axis=1)]
        values_at = self._at[stamped] + 2 + len(_STAMP)
        self._at[stamped] = values_at + 2 + self._u16(values_at)
        self._counts[stamped] -= 1
        left = self._counts > 0
        self._rows, self._at, self._counts = self._rows[left], self._at[left], self._counts[left]

    def named(self, name: str) -> NDArray[np.int64]:
        """Which headers, counted over all frames, have this name."""
        wanted, edges = np.frombuffer(name.encode(), np.uint8), self.edges
        alike = np.flatnonzero(edges[:, 1] - edges[:, 0] == len(wanted))
        names = self._bytes[edges[alike, :1] + np.arange(len(wanted))]
        found: NDArray[np.int64] = alike[(names == wanted).all(axis=1)]
        return found

    def row_of(self, headers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places of the frames that these belong to."""
        return np.repeat(self._rows, self._counts)[headers]

    def values_of(self, headers: NDArray[np.int64], size: int) -> NDArray[np.uint8] | None:
        """The values of these, one a line; ``None`` if any is not of this size."""
        edges = self.edges[headers]
        if not len(edges) or (edges[:, 3] - edges[:, 2] != size).any():
            return None
        found: NDArray[np.uint8] = self._bytes[edges[:, 2:3] + np.arange(size)]
        return found

    def of_row(self, row: int) -> Headers:
        """The headers of one frame, a stamp included."""
        _, _, start, end = self._bounds[row].tolist()
        return decode_headers(bytes(self._frames[start:end]))

    @cached_property
    def edges(self) -> NDArray[np.int32]:
        """One line for each header, by frame and then by order: where its name and its value begin and end."""
        lines: list[NDArray[np.int64]] = []
        rows, at, left = np.arange(len(self._rows)), self._at.copy(), self._counts.copy()
        while len(rows):
            line = np.empty((len(rows), 5), np.int64)
            line[:, 0] = rows
            line[:, 1] = at + 2
            line[:, 2] = line[:, 1] + self._u16(at)
            line[:, 3] = line[:, 2] + 2
            line[:, 4] = line[:, 3] + self._u16(line[:, 2])
            lines.append(line)
            left -= 1
            more = left > 0
            rows, at, left = rows[more], line[more, 4], left[more]
        if not lines:
            return np.empty((0, 4), np.int32)
        found = np.concatenate(lines)
        if len(lines) > 1:
            found = found[np.argsort(found[:, 0], kind="stable")]
        return np.ascontiguousarray(found[:, 1:], np.int32)

    def lists(self) -> pa.Array:
        """A list of (name, value) for each frame."""
        counts = np.zeros(self._size + 1, np.int32)
        counts[self._rows + 1] = self._counts
        edges = self.edges
        count = len(edges)
        if count:
            pieces = pa.Array.from_buffers(pa.binary(), edges.size - 1, [None, pa.py_buffer(edges), self._buffer])
            names = pieces.take(pa.array(np.arange(0, edges.size, 4, dtype=np.int32))).cast(pa.string())
            values = pieces.take(pa.array(np.arange(2, edges.size, 4, dtype=np.int32)))
        else:
            names, values = pa.array([], pa.string()), pa.array([], pa.binary())
        pairs = pa.StructArray.from_arrays([names, values], names=["name", "value"])
        return pa.ListArray.from_arrays(pa.array(np.cumsum(counts, dtype=np.int32)), pairs)
