"""Decoding of frames into messages, a run at a time, with as much work as possible done for the whole run."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import NamedTuple

import numpy as np

from goqueue.model.message import NO_HEADERS, Headers, Message
from goqueue.wire.batch import FrameRun, damaged_places, keep_frames
from goqueue.wire.frame import HEADER_SIZE, Flag, decode_headers
from goqueue.wire.internal_headers import PRODUCER

_NOT_PLAIN = np.uint8(Flag.TOMBSTONE | Flag.COMPRESSED)


class MessageColumns(NamedTuple):
    """Messages of a run as columns. A value common to all messages may be an endless repetition."""

    offsets: list[int]
    timestamps_ns: list[int]
    keys: Iterable[bytes | None]
    values: list[bytes]
    headers: Iterable[Headers]
    priorities: list[int]
    tombstones: Iterable[bool]
    compressed: Iterable[bool]
    is_plain: bool
    """Whether no message is a tombstone or compressed."""

    def messages(self) -> list[Message]:
        return list(map(Message, *self[:-1]))


def decode_columns(run: FrameRun) -> MessageColumns:
    """Decode frames that are known to be whole. A producer's stamp belongs to the log and is left out."""
    columns = run.columns()
    data = bytes(run.frames)
    flags = columns["flags"]
    key_starts = run.positions + np.uint32(HEADER_SIZE)
    value_starts = key_starts + columns["key_length"]
    value_ends = value_starts + columns["value_length"]
    values_at = value_starts.tolist()
    values = [data[start:end] for start, end in zip(values_at, value_ends.tolist(), strict=True)]
    keys: Iterable[bytes | None] = repeat(None)
    if columns["key_length"].any():
        keys = [data[start:end] or None for start, end in zip(key_starts.tolist(), values_at, strict=True)]
    headers: Iterable[Headers] = repeat(NO_HEADERS)
    if len(places := np.flatnonzero(columns["headers_length"])):
        found = [NO_HEADERS] * len(values)
        bounds = zip(places.tolist(), value_ends[places].tolist(), run.ends()[places].tolist(), strict=True)
        for place, start, end in bounds:
            found[place] = _shown_headers(data[start:end])
        headers = found
    tombstones: Iterable[bool] = repeat(False)
    compressed: Iterable[bool] = repeat(False)
    is_plain = not (flags & _NOT_PLAIN).any()
    if not is_plain:
        tombstones = (flags & np.uint8(Flag.TOMBSTONE) != 0).tolist()
        compressed = (flags & np.uint8(Flag.COMPRESSED) != 0).tolist()
    return MessageColumns(
        columns["offset"].tolist(),
        columns["timestamp"].tolist(),
        keys,
        values,
        headers,
        columns["priority"].tolist(),
        tombstones,
        compressed,
        is_plain,
    )


def plain_values(run: FrameRun) -> list[bytes] | None:
    """Values of frames that are known to be whole; ``None`` if any is compressed or absent."""
    columns = run.columns()
    if (columns["flags"] & _NOT_PLAIN).any():
        return None
    data = bytes(run.frames)
    starts = run.positions + np.uint32(HEADER_SIZE) + columns["key_length"]
    ends = starts + columns["value_length"]
    return [data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def decode_run(run: FrameRun, *, verify: bool = True) -> tuple[list[Message], list[int]]:
    """Decode every frame; returns the messages, and the indexes of damaged frames, which are left out."""
    damaged = damaged_places(run, run.columns()) if verify else []
    if damaged:
        keep = np.ones(len(run), np.bool_)
        keep[damaged] = False
        if not keep.any():
            return [], damaged
        run = keep_frames(run, keep)
    return decode_columns(run).messages(), damaged


def _shown_headers(packed: bytes) -> Headers:
    headers = decode_headers(packed)
    return headers[1:] if headers[0][0] == PRODUCER else headers
