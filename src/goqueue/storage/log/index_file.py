"""The three files beside a segment: where each frame begins, when, and in which lane.

All are checkpoints: everything in them can be found again by scanning the segment. While a segment is active they
grow with it; when it is sealed each gets a footer (magic, entry count, the log's size, CRC32C of the entries), by which
a reader knows that the file is whole and belongs to this very log file.

- ``.index``: the position of every frame, four bytes each. One entry a message rather than one every few kilobytes:
  any offset is found with one read, and readers get their table of positions for nothing. Where offsets are left out,
  as compaction does, the offset of every frame follows, eight bytes each, before a footer with a magic of its own.
- ``.timeindex``: an entry about every 4 KB of log: the largest timestamp so far, the broker's time of the append, and
  the last offset that both cover. The running maximum makes the first message at or after an instant a binary search.
- ``.lanes``: an entry where the lane is another than that of the frame before: the frame's place in the segment, and
  the lane. A segment of one lane has one. When it is sealed an entry of no lane ends the last run.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from goqueue.storage.files.files import File

INDEX_MAGIC = b"GQIX"
GAPS_MAGIC = b"GQIG"
"""Of an index that tells offsets as well."""
TIME_MAGIC = b"GQTX"
LANE_MAGIC = b"GQLN"
POSITION = np.dtype(">u4")
OFFSET = np.dtype(">i8")
TIME_ENTRY = np.dtype([("max_timestamp", ">i8"), ("append_time", ">i8"), ("last_offset", ">i8")])
LANE_ENTRY = np.dtype([("place", ">u4"), ("lane", "u1")])
one_position = Struct(">I").pack
"""The entry of a single frame in the index of positions."""
time_entry = Struct(">3q").pack
"""A single entry of the time index: largest timestamp, time of the append, last offset."""
_FOOTER = Struct(">4sIQI")
_OFFSET_AT = 8
_CHUNK = 1 << 20
_BYTES_PER_ENTRY = 4_096


def read_positions(file: File, first: int, count: int) -> NDArray[np.uint32]:
    """Entries ``first`` to ``first + count``, or as many as there are."""
    data = file.read(first * POSITION.itemsize, count * POSITION.itemsize)
    return np.frombuffer(data, POSITION, len(data) // POSITION.itemsize).astype(np.uint32)


def said_offset(log: File, index: File, place: int) -> int:
    """What the frame at ``place`` says of its offset. No checksum covers that, so it is to be believed only where
    nothing else tells it."""
    position = int(read_positions(index, place, 1)[0])
    return int.from_bytes(log.read(position + _OFFSET_AT, OFFSET.itemsize))


def offset_bytes(offsets: NDArray[np.int64]) -> bytes:
    return offsets.astype(OFFSET).tobytes()


def read_offsets(file: File, entries: int, first: int, count: int) -> NDArray[np.int64]:
    """The offsets of ``count`` frames from ``first`` on, from an index of so many entries that tells them."""
    at = entries * POSITION.itemsize + first * OFFSET.itemsize
    return np.frombuffer(file.read(at, count * OFFSET.itemsize), OFFSET).astype(np.int64)


def tells_offsets(file: File, entries: int) -> bool:
    """Of an index that is known to have so many entries and a footer."""
    return entries > 0 and file.size() == entries * (POSITION.itemsize + OFFSET.itemsize) + _FOOTER.size


def indexed_count(file: File, log_size: int) -> int | None:
    """How many frames a sealed segment's index tells of; ``None`` as for ``verified_count``."""
    count = verified_count(file, INDEX_MAGIC, POSITION.itemsize, log_size)
    if count is None:
        count = verified_count(file, GAPS_MAGIC, POSITION.itemsize + OFFSET.itemsize, log_size)
    return count


def whole_index(positions: NDArray[Any], offsets: NDArray[np.int64], base: int, log_size: int) -> bytes:
    """The content of the index of a sealed segment that begins at ``base``."""
    packed = positions.astype(POSITION).tobytes()
    if not has_gaps(offsets, base):
        return packed + footer(INDEX_MAGIC, len(positions), log_size, crc32c(packed))
    packed += offset_bytes(offsets)
    return packed + footer(GAPS_MAGIC, len(positions), log_size, crc32c(packed))


def has_gaps(offsets: NDArray[np.int64], base: int) -> bool:
    """Whether any offset is left out between ``base`` and the last of these, which rise."""
    return len(offsets) > 0 and int(offsets[-1]) - base >= len(offsets)


def time_entries(
    timestamps: NDArray[np.int64], offsets: NDArray[np.int64], floor_ns: int, append_time_ns: int, log_size: int
) -> NDArray[np.void]:
    """Entries for frames that are there already, as densely as appending them would have made; the last is covered."""
    highest = np.maximum(np.maximum.accumulate(timestamps), floor_ns)
    step = max(1, len(highest) * _BYTES_PER_ENTRY // max(1, log_size))
    chosen = np.append(np.arange(step - 1, len(highest) - 1, step), len(highest) - 1)
    entries = np.empty(len(chosen), TIME_ENTRY)
    entries["max_timestamp"] = highest[chosen]
    entries["append_time"] = append_time_ns
    entries["last_offset"] = offsets[chosen]
    return entries


def with_footer(magic: bytes, entries: NDArray[Any], log_size: int) -> bytes:
    """The whole content of a sealed segment's index file."""
    packed = entries.tobytes()
    return packed + footer(magic, len(entries), log_size, crc32c(packed))


def read_entries(file: File, entry: np.dtype[Any], count: int) -> NDArray[Any]:
    """The first ``count`` entries of an index file of any kind, or as many as there are."""
    data = file.read(0, count * entry.itemsize)
    return np.frombuffer(data, entry, len(data) // entry.itemsize)


def begins_with(file: File, entry: np.dtype[Any], count: int, checksum: int) -> bool:
    """Whether the file has at least ``count`` entries, and the first of them have this checksum."""
    size = count * entry.itemsize
    return file.size() >= size and checksum_of(file, size) == checksum


def footer(magic: bytes, count: int, log_size: int, checksum: int) -> bytes:
    return _FOOTER.pack(magic, count, log_size, checksum)


def end_with(file: File, position: int, ending: bytes) -> None:
    """Write what the file ends with."""
    file.write(position, ending)
    file.truncate(position + len(ending))


def checksum_of(file: File, size: int) -> int:
    """CRC32C of the first ``size`` bytes."""
    checksum = 0
    for position in range(0, size, _CHUNK):
        checksum = crc32c(file.read(position, min(_CHUNK, size - position)), checksum)
    return checksum


def entries_of_size(file: File, entry_size: int, size: int) -> int:
    """How many entries a file of that size holds, with a footer or without one; nothing is verified."""
    at = size - _FOOTER.size
    if at >= 0:
        magic, count, _, _ = _FOOTER.unpack(file.read(at, _FOOTER.size))
        if magic == GAPS_MAGIC:
            entry_size += OFFSET.itemsize
        if count * entry_size == at:
            return int(count)
    return size // entry_size


def claimed_log_size(file: File) -> int | None:
    """Of which size the log was when a file was closed, by its own footer; ``None`` if it has none."""
    at = file.size() - _FOOTER.size
    return int(_FOOTER.unpack(file.read(at, _FOOTER.size))[2]) if at >= 0 else None


def verified_count(file: File, magic: bytes, entry_size: int, log_size: int) -> int | None:
    """How many entries a sealed segment's file holds, or ``None`` if it is missing its footer, damaged or another's."""
    size = file.size()
    at = size - _FOOTER.size
    if at < 0:
        return None
    found_magic, count, found_log_size, checksum = _FOOTER.unpack(file.read(at, _FOOTER.size))
    if found_magic != magic or found_log_size != log_size or count * entry_size != at:
        return None
    return count if checksum_of(file, at) == checksum else None
