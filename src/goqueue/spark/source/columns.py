"""The source's columns, built from runs of frames with vectorized operations instead of row by row.

The positions of key, value and headers are computed for all frames at once; Arrow then slices them out of the buffer
that the frames were read into. Only compressed values are decompressed one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from goqueue.model.errors import CorruptData
from goqueue.spark.source.header_columns import HeaderTable
from goqueue.spark.source.trace_column import trace_ids
from goqueue.wire.batch import Columns, FrameRun, damaged_places, keep_frames
from goqueue.wire.compression import decompress
from goqueue.wire.frame import HEADER_SIZE, Flag

HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("name", pa.string()), pa.field("value", pa.binary())])))
TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": HEADERS,
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "priority": pa.int32(),
    "trace_id": pa.string(),
}
NAMES = tuple(TYPES)
MAX_DECOMPRESSED_BYTES = 64 << 20
"""The largest message size that a topic can be configured to accept."""
_BATCH_BYTES = 32 << 20
"""Approximate limit of the decompressed values in one record batch."""
_TOMBSTONE = np.uint8(Flag.TOMBSTONE)
_COMPRESSED = np.uint8(Flag.COMPRESSED)
_NS_PER_US = 1_000


class Decoder:
    """Converts one partition's frames to record batches with the requested columns."""

    def __init__(self, topic: str, partition: int, schema: pa.Schema, *, skip_damaged: bool = False) -> None:
        self._topic = topic
        self._partition = partition
        self._schema = schema
        self._skip_damaged = skip_damaged

    def decode(self, run: FrameRun) -> Iterator[pa.RecordBatch]:
        """Yield usually one batch; more if the values decompress to a lot, none if no message is left.

        A message that fails its checksum is never returned: it raises ``CorruptData``, or is skipped with
        ``skip_damaged``. The same holds for a value that cannot be decompressed, if ``value`` is requested.
        """
        columns = run.columns()
        damaged = damaged_places(run, columns)
        if damaged:
            if not self._skip_damaged:
                before = int(columns["offset"][damaged[0] - 1]) if damaged[0] else int(columns["offset"][0]) - 1
                raise CorruptData(
                    f"a message of {self._topic}/{self._partition} behind offset {before} fails its checksum; with "
                    "failOnDataLoss=false it is left out"
                )
            yield from self._without(run, damaged)
            return
        try:
            built = self._to_batch(run, columns)
        except _BatchTooLargeError:
            # Retry with each half. A single message is never too large.
            middle = len(run) // 2
            yield from self.decode(run.part(0, middle))
            yield from self.decode(run.part(middle, len(run)))
            return
        except _DecompressionError as error:
            if not self._skip_damaged:
                offset = int(columns["offset"][error.rows[0]])
                raise CorruptData(
                    f"the message at offset {offset} of {self._topic}/{self._partition}: {error}; with "
                    "failOnDataLoss=false it is left out"
                ) from None
            yield from self._without(run, error.rows)
            return
        yield built

    def _without(self, run: FrameRun, rows: list[int]) -> Iterator[pa.RecordBatch]:
        keep = np.ones(len(run), bool)
        keep[rows] = False
        if keep.any():
            yield from self.decode(keep_frames(run, keep))

    def _to_batch(self, run: FrameRun, columns: Columns) -> pa.RecordBatch:
        built = _Table(run, columns, self._topic, self._partition)
        # Spark expects exactly this type, names and nullability of nested fields included.
        arrays = [built.column(field.name).cast(field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _BatchTooLargeError(Exception):
    """The values of a run decompress to more than one record batch should hold."""


class _DecompressionError(Exception):
    """Values are marked as compressed but cannot be decompressed: their rows, and the reason for the first."""

    def __init__(self, rows: list[int], reason: str) -> None:
        super().__init__(reason)
        self.rows = rows


class _Table:
    """The frames of a run as columns; intermediate results shared by several columns are computed once."""

    def __init__(self, run: FrameRun, columns: Columns, topic: str, partition: int) -> None:
        self._run = run
        self._columns = columns
        self._topic = topic
        self._partition = partition
        self._buffer = pa.py_buffer(run.frames)

    def column(self, name: str) -> pa.Array:
        columns, count = self._columns, len(self._run)
        match name:
            case "key":
                return self._pieces_from(0, columns["key_length"] == 0)
            case "value":
                return self._value()
            case "headers":
                return self._header_table.lists()
            case "topic":
                return pa.repeat(pa.scalar(self._topic, pa.string()), count)
            case "partition":
                return pa.array(np.full(count, self._partition, np.int32))
            case "offset":
                return pa.array(columns["offset"].astype(np.int64))
            case "timestamp":
                microseconds = columns["timestamp"].astype(np.int64) // _NS_PER_US
                return pa.Array.from_buffers(TYPES["timestamp"], count, [None, pa.py_buffer(microseconds)])
            case "priority":
                return pa.array(columns["priority"].astype(np.int32))
        return trace_ids(self._topic, self._partition, columns["offset"].astype(np.int64), self._header_table)

    @cached_property
    def _bounds(self) -> NDArray[np.int32]:
        """Per frame: start positions of key, value and headers, and the end of the frame."""
        columns = self._columns
        bounds = np.empty((len(self._run), 4), np.int32)
        bounds[:, 0] = self._run.positions
        bounds[:, 0] += HEADER_SIZE
        bounds[:, 1] = bounds[:, 0] + columns["key_length"]
        bounds[:, 2] = bounds[:, 1] + columns["value_length"].astype(np.int32)
        bounds[:, 3] = self._run.ends()
        return bounds

    @cached_property
    def _pieces(self) -> pa.Array:
        """Key, value, headers and the gap to the next frame as consecutive elements: every fourth is of one kind."""
        bounds = self._bounds
        return pa.Array.from_buffers(pa.binary(), bounds.size - 1, [None, pa.py_buffer(bounds), self._buffer])

    def _pieces_from(self, first: int, missing: NDArray[np.bool_]) -> pa.Array:
        if missing.all():
            return pa.nulls(len(missing), pa.binary())
        indices = np.arange(first, self._bounds.size, 4, dtype=np.int32)
        return self._pieces.take(pa.array(indices, mask=missing if missing.any() else None))

    def _value(self) -> pa.Array:
        flags = self._columns["flags"]
        values = self._pieces_from(1, flags & _TOMBSTONE != 0)
        compressed = np.flatnonzero(flags & (_COMPRESSED | _TOMBSTONE) == _COMPRESSED)
        if not len(compressed):
            return values
        decompressed: list[bytes] = []
        failed: list[int] = []
        reason, size = "", 0
        for row in compressed.tolist():
            try:
                decompressed.append(decompress(values[row].as_py(), MAX_DECOMPRESSED_BYTES))
                size += len(decompressed[-1])
                if size > _BATCH_BYTES and len(self._run) > 1:
                    raise _BatchTooLargeError
            except CorruptData as error:
                reason = reason or str(error)
                failed.append(row)
        if failed:
            raise _DecompressionError(failed, reason)
        mask = np.zeros(len(values), bool)
        mask[compressed] = True
        return pc.replace_with_mask(values, pa.array(mask), pa.array(decompressed, pa.binary()))

    @cached_property
    def _header_table(self) -> HeaderTable:
        return HeaderTable(self._run, self._bounds, self._columns["headers_length"], self._buffer)
