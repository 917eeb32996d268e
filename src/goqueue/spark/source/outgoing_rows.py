"""Encodes record batches of a DataFrame as frames, routed to partitions.

Arrow assembles the frames of all rows at once. The only work per row is its checksum, and its headers or delay if it
has any.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c
from numpy.typing import NDArray
from pyspark.sql import types

from goqueue.model.errors import InvalidMessage, InvalidRequest, MessageTooLarge, PartitionNotFound
from goqueue.model.message import Priority
from goqueue.spark.source.outgoing_headers import packed_headers
from goqueue.wire.batch import HEADER_COLUMNS, MAX_BATCH_BYTES, FrameRun
from goqueue.wire.frame import CHECKSUM_AT, CHECKSUM_FROM, HEADER_SIZE, MAGIC, MAX_KEY_BYTES, VERSION, Flag
from goqueue.wire.key_hash import partition_of
from goqueue.wire.producer_frames import STAMP_BYTES

_TEXT_TYPES = (types.BinaryType, types.StringType)
_INTEGER_TYPES = (types.ByteType, types.ShortType, types.IntegerType, types.LongType)
_COLUMN_TYPES: dict[str, tuple[tuple[type[types.DataType], ...], str]] = {
    "key": (_TEXT_TYPES, "BINARY or STRING"),
    "value": (_TEXT_TYPES, "BINARY or STRING"),
    "headers": ((types.ArrayType, types.MapType), "ARRAY<STRUCT<name: STRING, value: BINARY>> or MAP<STRING, STRING>"),
    "topic": ((types.StringType,), "STRING"),
    "partition": (_INTEGER_TYPES, "INT"),
    "priority": ((*_INTEGER_TYPES, types.StringType), "INT (0 critical to 4 background) or STRING (its name)"),
    "timestamp": ((types.TimestampType,), "TIMESTAMP"),
    "delay": (
        (*_INTEGER_TYPES, types.FloatType, types.DoubleType, types.DecimalType, types.DayTimeIntervalType),
        "seconds, or INTERVAL DAY TO SECOND",
    ),
    "deliver_at": ((types.TimestampType,), "TIMESTAMP"),
}
COLUMNS = tuple(_COLUMN_TYPES)
_SLICE_BYTES = 32 << 20
"""Bytes of a record batch that are encoded at once."""
_MAGIC_NUMBER = int.from_bytes(MAGIC)
_MAX_FRAMES_BYTES = MAX_BATCH_BYTES - STAMP_BYTES - HEADER_SIZE
_NS_PER_US = 1_000
_MAX_NS = (1 << 63) - 1
_PRIORITIES = {each.name.lower(): int(each) for each in Priority}


class PartitionBatch(NamedTuple):
    """Frames sent to one partition as one batch."""

    topic: str
    partition: int
    run: FrameRun


def check_schema(schema: types.StructType, topic: str | None) -> None:
    """Raise ``InvalidRequest`` if the DataFrame's columns cannot be written."""
    names = schema.fieldNames()
    for field in schema:
        if field.name not in _COLUMN_TYPES:
            raise InvalidRequest(
                f"the sink has no column {field.name!r}; it takes {', '.join(COLUMNS)}. Put what you mean to send into "
                "value, such as to_json(struct(*)) AS value"
            )
        kinds, wanted = _COLUMN_TYPES[field.name]
        if not isinstance(field.dataType, kinds) or (field.name == "headers" and not _is_headers_type(field.dataType)):
            raise InvalidRequest(f"the column {field.name} is {field.dataType.simpleString()}; it must be {wanted}")
    if "value" not in names:
        raise InvalidRequest("the sink needs a column 'value' (BINARY or STRING)")
    if "topic" not in names and topic is None:
        raise InvalidRequest("say where to write to: the option topic, or a column 'topic'")
    if "topic" in names and topic is not None:
        raise InvalidRequest("there is a column 'topic' and an option topic as well; drop one of them")
    if "delay" in names and "deliver_at" in names:
        raise InvalidRequest("there are the columns delay and deliver_at; drop one of them")


def _is_headers_type(kind: types.DataType) -> bool:
    if isinstance(kind, types.MapType):
        return isinstance(kind.keyType, types.StringType) and isinstance(kind.valueType, _TEXT_TYPES)
    pair = kind.elementType if isinstance(kind, types.ArrayType) else None
    if not isinstance(pair, types.StructType) or sorted(pair.fieldNames()) != ["name", "value"]:
        return False
    return isinstance(pair["name"].dataType, types.StringType) and isinstance(pair["value"].dataType, _TEXT_TYPES)


class Encoder:
    """Encodes record batches as batches per partition. ``partitions_of`` returns a topic's number of partitions."""

    def __init__(self, topic: str | None, partitions_of: Callable[[str], int]) -> None:
        self._topic = topic
        self._partitions_of = partitions_of
        self._keyless_partition = time.time_ns() % 1_000_003
        """Counter that spreads messages without a key over partitions in rotation, one partition per slice. It starts
        at random, so that tasks do not all begin with the first partition."""

    def encode(self, batch: pa.RecordBatch) -> Iterator[PartitionBatch]:
        if not batch.num_rows:
            return
        rows = max(1, batch.num_rows * _SLICE_BYTES // max(_SLICE_BYTES, batch.nbytes))
        for start in range(0, batch.num_rows, rows):
            yield from self._encode(_Rows(batch.slice(start, rows)))

    def _encode(self, rows: _Rows) -> Iterator[PartitionBatch]:
        for topic, indices in self._by_topic(rows):
            chosen = rows if indices is None else rows.take(indices)
            frames = chosen.frames()
            numbers = self._route(topic, chosen)
            if len(set(numbers.tolist()) if len(numbers) < 1_000 else np.unique(numbers)) > 1:
                order = np.argsort(numbers, kind="stable")
                frames, numbers = frames.take(pa.array(order)), numbers[order]
            yield from _partition_batches(topic, numbers, frames)

    def _by_topic(self, rows: _Rows) -> Iterator[tuple[str, NDArray[np.int64] | None]]:
        named = rows.column("topic")
        if named is None:
            assert self._topic is not None
            yield self._topic, None
            return
        if named.null_count:
            raise InvalidMessage("the column topic is null in a row; every message needs one")
        names = named.dictionary_encode()
        indices = names.indices.to_numpy(zero_copy_only=False)
        topics = names.dictionary.to_pylist()
        for number, topic in enumerate(topics):
            yield topic, None if len(topics) == 1 else np.flatnonzero(indices == number)

    def _route(self, topic: str, rows: _Rows) -> NDArray[np.int64]:
        count = self._partitions_of(topic)
        given = rows.column("partition")
        keyless = self._keyless_partition % count
        self._keyless_partition += 1
        if rows.has_keys:
            keys = rows.key.dictionary_encode()
            by_key = [partition_of(key, count) if key else keyless for key in keys.dictionary.to_pylist()]
            numbers: NDArray[np.int64] = np.array(by_key, np.int64)[keys.indices.to_numpy(zero_copy_only=False)]
        else:
            numbers = np.full(len(rows), keyless, np.int64)
        if given is not None:
            requested = given.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
            wrong = (requested >= count) | ((requested < 0) & given.is_valid().to_numpy(zero_copy_only=False))
            if wrong.any():
                raise PartitionNotFound(
                    f"topic {topic!r} has partitions 0 to {count - 1}; there is no partition {requested[wrong][0]}"
                )
            numbers = np.where(requested >= 0, requested, numbers)
        return numbers


def _partition_batches(topic: str, numbers: NDArray[np.int64], frames: pa.Array) -> Iterator[PartitionBatch]:
    """Cut frames into batches where the partition changes or a batch would get too large, and write checksums."""
    edges = np.frombuffer(frames.buffers()[1], np.int32)[frames.offset : frames.offset + len(frames) + 1].astype(
        np.int64
    )
    data = bytearray(memoryview(frames.buffers()[2])[int(edges[0]) : int(edges[-1])])
    edges -= edges[0]
    view = memoryview(data)
    bounds = edges.tolist()
    sums = [crc32c(view[start + CHECKSUM_FROM : end]) for start, end in pairwise(bounds)]
    every = np.ndarray(len(data) - CHECKSUM_AT - 3, ">u4", data, CHECKSUM_AT, (1,))
    every[edges[:-1]] = np.array(sums, np.uint32)
    changes = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    for low, high in pairwise(changes):
        first = low
        while first < high:
            fitting = int(np.searchsorted(edges, edges[first] + _MAX_FRAMES_BYTES, side="right")) - 1
            end = min(high, max(first + 1, fitting))
            positions = (edges[first:end] - edges[first]).astype(np.uint32)
            yield PartitionBatch(
                topic, int(numbers[low]), FrameRun(memoryview(bytes(view[bounds[first] : bounds[end]])), positions)
            )
            first = end


class _Rows:
    """A slice of a record batch, with its columns converted as frames need them."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self.key = _binary(self.column("key"), len(self))
        self.has_keys = "key" in batch.schema.names

    def __len__(self) -> int:
        count: int = self._batch.num_rows
        return count

    def column(self, name: str) -> pa.Array | None:
        found = self._batch.schema.get_field_index(name)
        return None if found < 0 else self._batch.column(found)

    def take(self, indices: NDArray[np.int64]) -> _Rows:
        return _Rows(self._batch.take(pa.array(indices)))

    def frames(self) -> pa.Array:
        """The encoded frames, without checksums."""
        count = len(self)
        given = self.column("value")
        value = _binary(given, count)
        assert given is not None
        header = np.zeros(count, HEADER_COLUMNS)
        flags = np.full(count, int(Flag.TRANSACTIONAL), np.uint8)
        key_lengths, value_lengths = _lengths(self.key), _lengths(value)
        self._refuse_empty_keys(key_lengths)
        if given.null_count:
            missing = given.is_null().to_numpy(zero_copy_only=False)
            if (missing & (key_lengths == 0)).any():
                raise InvalidMessage("a row has neither value nor key; a null value is a tombstone and needs a key")
            flags[missing] |= int(Flag.TOMBSTONE)
        if key_lengths.max() > MAX_KEY_BYTES:
            raise MessageTooLarge(f"a key has {key_lengths.max()} bytes; {MAX_KEY_BYTES} are allowed")
        headers, delayed = packed_headers(
            self.column("headers"), self.column("delay"), self.column("deliver_at"), count
        )
        if delayed is not None:
            flags[delayed] |= int(Flag.DELAYED)
        header["magic"], header["version"] = _MAGIC_NUMBER, VERSION
        header["flags"] = header["flags_again"] = flags
        header["timestamp"] = self._timestamps()
        header["priority"] = self._priorities()
        header["key_length"], header["value_length"] = key_lengths, value_lengths
        pieces = [_fixed_size_binary(header), self.key, value]
        if headers is not None:
            header["headers_length"] = _lengths(headers)
            pieces = [_fixed_size_binary(header), self.key, value, headers]
        try:
            return pc.binary_join_element_wise(*pieces, b"")
        except pa.ArrowInvalid as error:
            raise MessageTooLarge(f"the messages of one batch are too large together: {error}") from None

    def _refuse_empty_keys(self, lengths: NDArray[np.int64]) -> None:
        """A frame cannot hold an empty key: readers would get null, and routing would treat it as a missing key."""
        given = self.column("key")
        if given is not None and len(lengths) - np.count_nonzero(lengths) > given.null_count:
            raise InvalidMessage("a key is empty, which cannot be told from no key; use null: nullif(key, '')")

    def _timestamps(self) -> NDArray[np.int64] | int:
        given = self.column("timestamp")
        now_ns = time.time_ns()
        if given is None:
            return now_ns
        moments = given.cast(pa.int64()).fill_null(now_ns // _NS_PER_US).to_numpy(zero_copy_only=False)
        if (moments < 0).any() or (moments > _MAX_NS // _NS_PER_US).any():
            raise InvalidMessage("a timestamp lies before 1970, or after what 64 bits of nanoseconds hold")
        found: NDArray[np.int64] = moments * _NS_PER_US
        return found

    def _priorities(self) -> NDArray[np.int64] | int:
        given = self.column("priority")
        if given is None:
            return int(Priority.NORMAL)
        if not pa.types.is_integer(given.type):
            given = pa.array([_priority(name) for name in given.to_pylist()], pa.int64())
        found: NDArray[np.int64] = given.cast(pa.int64()).fill_null(int(Priority.NORMAL)).to_numpy(zero_copy_only=False)
        wrong = found[(found < 0) | (found > max(_PRIORITIES.values()))]
        if len(wrong):
            raise InvalidMessage(f"a priority is {wrong[0]}; there are 0 (critical) to 4 (background)")
        return found


def _priority(name: str | None) -> int | None:
    if name is None:
        return None
    if name.lower() not in _PRIORITIES:
        raise InvalidMessage(f"a priority is {name[:40]!r}; there are {', '.join(_PRIORITIES)}")
    return _PRIORITIES[name.lower()]


def _binary(column: pa.Array | None, count: int) -> pa.Array:
    """The column as binary, with empty values for null."""
    if column is None:
        return pa.repeat(pa.scalar(b"", pa.binary()), count)
    return column.cast(pa.binary()).fill_null(b"")


def _lengths(column: pa.Array) -> NDArray[np.int64]:
    found: NDArray[np.int64] = pc.binary_length(column).to_numpy(zero_copy_only=False)
    return found


def _fixed_size_binary(header: NDArray[np.void]) -> pa.Array:
    """Frame headers as a binary array; all have the same size."""
    kind = pa.binary(HEADER_SIZE)
    return pa.Array.from_buffers(kind, len(header), [None, pa.py_buffer(header.tobytes())]).cast(pa.binary())
