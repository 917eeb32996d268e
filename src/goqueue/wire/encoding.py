"""Encoding of many plain messages into frames at once, with headers written as columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat

import numpy as np
from crc32c import crc32c

from goqueue.model.message import Priority
from goqueue.wire.batch import HEADER_COLUMNS, FrameRun, put_headers
from goqueue.wire.frame import HEADER_SIZE, MAGIC, VERSION, encode_body_start

_ROOM = bytes(HEADER_SIZE)
_MAGIC_NUMBER = int.from_bytes(MAGIC)


def encode_values(
    values: Sequence[bytes], headers: bytes, timestamp_ns: int, priority: int = Priority.NORMAL, flags: int = 0
) -> FrameRun:
    """Encode each value as ``encode_frame`` does, without a key, into consecutive frames. Requires at least one value.

    Takes a tenth of the time per value; only the checksum is computed per value.
    """
    lengths = list(map(len, values))
    joined = bytearray(headers + _ROOM).join([b"", *values])
    if headers:
        # The join puts one copy of the headers before the first frame; it belongs after the last value.
        del joined[: len(headers)]
        joined += headers
    value_lengths = np.array(lengths, np.uint32)
    sizes = value_lengths + np.uint32(HEADER_SIZE + len(headers))
    positions = np.cumsum(sizes, dtype=np.uint32) - sizes
    columns = np.zeros(len(values), HEADER_COLUMNS)
    columns["magic"], columns["version"] = _MAGIC_NUMBER, VERSION
    columns["flags"] = columns["flags_again"] = flags
    columns["timestamp"], columns["priority"] = timestamp_ns, priority
    columns["value_length"], columns["headers_length"] = value_lengths, len(headers)
    # Up to the value, the bodies of messages of equal length are the same: that part of the checksum is computed once.
    begun = {
        length: crc32c(encode_body_start(timestamp_ns, priority, flags, 0, length, len(headers)))
        for length in set(lengths)
    }
    so_far: Iterator[int] = repeat(begun[lengths[0]]) if len(begun) == 1 else map(begun.__getitem__, lengths)
    sums = list(map(crc32c, values, so_far))
    columns["checksum"] = sums if not headers else [crc32c(headers, each) for each in sums]
    put_headers(joined, positions, columns)
    return FrameRun(memoryview(joined), positions)
