"""Vectorized parsing of the headers of all frames of a run.

One step parses the first header of every frame, the next the second header of those that have two, and so on: the
number of steps is that of the frame with the most headers, whatever the number of frames.
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

_PRODUCER_NAME = np.frombuffer(PRODUCER.encode(), np.uint8)
_COUNT_BYTES = 2


class HeaderTable:
    """The user headers of each frame. The internal producer header is excluded: only the log uses it."""

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
        self._skip_producer_headers()

    def _u16(self, at: NDArray[np.int64]) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self._bytes[at].astype(np.int64) << 8 | self._bytes[at + 1]
        return found

    def _skip_producer_headers(self) -> None:
        """Skip the producer header, which comes first if there is one."""
        if not len(self._rows):
            return
        name_lengths = self._u16(self._at)
        alike = np.flatnonzero(name_lengths == len(_PRODUCER_NAME))
        if not len(alike):
            return
        names = self._bytes[self._at[alike, None] + 2 + np.arange(len(_PRODUCER_NAME))]
        stamped = alike[(names == _PRODUCER_NAME).all(axis=1)]
        values_at = self._at[stamped] + 2 + len(_PRODUCER_NAME)
        self._at[stamped] = values_at + 2 + self._u16(values_at)
        self._counts[stamped] -= 1
        left = self._counts > 0
        self._rows, self._at, self._counts = self._rows[left], self._at[left], self._counts[left]

    def indices_of(self, name: str) -> NDArray[np.int64]:
        """Indices, counted over the headers of all frames, of the headers with this name."""
        expected, edges = np.frombuffer(name.encode(), np.uint8), self.edges
        alike = np.flatnonzero(edges[:, 1] - edges[:, 0] == len(expected))
        names = self._bytes[edges[alike, :1] + np.arange(len(expected))]
        found: NDArray[np.int64] = alike[(names == expected).all(axis=1)]
        return found

    def rows_of(self, headers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row of the frame that each of these headers belongs to."""
        return np.repeat(self._rows, self._counts)[headers]

    def fixed_size_values(self, headers: NDArray[np.int64], size: int) -> NDArray[np.uint8] | None:
        """The values of these headers, one per row of the array; ``None`` if any has another size."""
        edges = self.edges[headers]
        if not len(edges) or (edges[:, 3] - edges[:, 2] != size).any():
            return None
        found: NDArray[np.uint8] = self._bytes[edges[:, 2:3] + np.arange(size)]
        return found

    def headers_of(self, row: int) -> Headers:
        """The headers of one frame, the producer header included."""
        _, _, start, end = self._bounds[row].tolist()
        return decode_headers(bytes(self._frames[start:end]))

    @cached_property
    def edges(self) -> NDArray[np.int32]:
        """One row per header, ordered by frame and position in it: start and end of its name and of its value."""
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
        """Each frame's headers as a list of (name, value)."""
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
