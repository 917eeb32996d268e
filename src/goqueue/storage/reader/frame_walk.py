"""Walk over all frames and damaged ranges of one file, for inspection by people.

Works beside a running broker and on files that recovery has quarantined: the file is read as it is now, without
trusting indexes, and not changed.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from goqueue.storage.files.files import File
from goqueue.storage.log.scan import Damage, FrameScanner
from goqueue.storage.reader.reader_files import DISK
from goqueue.wire.batch import header_columns
from goqueue.wire.frame import HEADER_SIZE

_BASE = re.compile(r"(\d{20})\.")


class WalkedFrame(NamedTuple):
    """One whole frame."""

    offset: int
    position: int
    size: int
    timestamp_ns: int
    priority: int
    flags: int
    key: bytes
    value: bytes
    headers: bytes


class NoFrames(NamedTuple):
    """A range of bytes without valid frames; ``is_end`` if it ends the file."""

    position: int
    size: int
    is_end: bool


def walk(path: Path, from_offset: int = 0) -> Iterator[WalkedFrame | NoFrames]:
    """All frames and damaged ranges of a file, from the first frame at or after an offset."""
    match = _BASE.match(path.name)
    file = DISK.open(path)
    size = file.size()
    index_path = path.with_suffix(".index")
    index = DISK.open(index_path) if path.suffix == ".log" and index_path.exists() else None
    base = int(match[1]) if match and path.suffix == ".log" else 0
    # Every valid frame is shown, even of an incomplete batch.
    found = FrameScanner(file, dense=False).scan(0, base, index, durable_to=size)
    damage = [*found.damage, *([Damage(found.end, size)] if found.end < size else [])]
    place = bisect_left(found.offsets, from_offset)
    begin = found.positions[place] if place < len(found.positions) else found.end
    damage = [each for each in damage if each.start >= begin or not place]
    for each in damage:
        until = bisect_left(found.positions, each.start)
        yield from _frames(file, found.positions[place:until])
        place = max(place, until)
        yield NoFrames(each.start, each.end - each.start, each.end == size)
    yield from _frames(file, found.positions[place:])


def _frames(file: File, positions: Sequence[int]) -> Iterator[WalkedFrame]:
    for position in positions:
        columns = header_columns(file.read(position, HEADER_SIZE), np.zeros(1, np.uint32))[0]
        key, value, headers = (int(columns[f"{each}_length"]) for each in ("key", "value", "headers"))
        body = file.read(position + HEADER_SIZE, key + value + headers)
        yield WalkedFrame(
            int(columns["offset"]),
            position,
            HEADER_SIZE + len(body),
            int(columns["timestamp"]),
            int(columns["priority"]),
            int(columns["flags"]),
            body[:key],
            body[key : key + value],
            body[key + value :],
        )
