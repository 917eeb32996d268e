"""What a group sees of frames: which of them are hidden from it or have expired, and their keys."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.read import find_damaged_frames
from goqueue.delivery.queue import Queue
from goqueue.delivery.selection import Candidates, expired_indexes
from goqueue.model.errors import InvalidFrame
from goqueue.model.message import Headers
from goqueue.model.offset_runs import OffsetRuns
from goqueue.wire.batch import Columns, FrameRun
from goqueue.wire.frame import HEADER_SIZE, INVISIBLE, decode_headers
from goqueue.wire.internal_headers import FOR_GROUP, RESERVED_PREFIX, TTL, parse_ttl_ms

_SYSTEM = RESERVED_PREFIX.encode()


@dataclass(frozen=True, slots=True)
class GroupView:
    """What a group sees of a partition as of now."""

    group: str
    now_ns: int
    ttl_ms: int | None
    aborted: OffsetRuns
    """Records of transactions that were aborted, which no group sees."""


def candidates(queue: Queue, partition: Partition, run: FrameRun, upto: int, view: GroupView) -> Candidates:
    """``run`` is what a lane has from its cursor on to before ``upto``."""
    columns = run.columns()
    damaged = find_damaged_frames(partition, run, columns)
    hidden, expired = _hidden_and_expired(run, columns, view)
    keys = None if queue.keys is None else keys_of(run)
    return Candidates(columns["offset"].tolist(), upto, hidden | damaged, expired, keys)


def expired_frames(run: FrameRun, view: GroupView) -> set[int]:
    """Indexes of the frames whose time to live is over; none of them is hidden."""
    return _hidden_and_expired(run, run.columns(), view)[1]


def passed_by(run: FrameRun, view: GroupView) -> tuple[set[int], set[int]]:
    """Frames that a stream does not show: the system's own and what was redriven for another group; what expired."""
    hidden, expired = _hidden_and_expired(run, run.columns(), view)
    return hidden, expired - hidden


def _hidden_and_expired(run: FrameRun, columns: Columns, view: GroupView) -> tuple[set[int], set[int]]:
    """Indexes of frames that this group is not to see, and of those whose time to live is over."""
    hidden: set[int] = set()
    if columns["flags"].any():
        hidden |= set(np.flatnonzero(columns["flags"] & np.uint8(INVISIBLE)).tolist())
    if len(view.aborted) and (aborted := view.aborted.mask(columns["offset"].astype(np.int64))) is not None:
        hidden |= set(np.flatnonzero(aborted).tolist())
    own_ttls: list[tuple[int, int]] = []
    if columns["headers_length"].any():
        own_ttls = _look_at_headers(run, columns, view.group, hidden)
    if view.ttl_ms is None and not own_ttls:
        return hidden, set()
    return hidden, expired_indexes(columns["timestamp"], own_ttls, view.ttl_ms, view.now_ns)


def _look_at_headers(run: FrameRun, columns: Columns, group: str, hidden: set[int]) -> list[tuple[int, int]]:
    """Hide frames that are meant for another group; return index and time to live of those that have one."""
    own_ttls: list[tuple[int, int]] = []
    ends, lengths = run.ends(), columns["headers_length"]
    for index in np.flatnonzero(lengths).tolist():
        end = int(ends[index])
        packed = bytes(run.frames[end - int(lengths[index]) : end])
        if index in hidden or _SYSTEM not in packed:
            continue
        for name, value in _headers(packed):
            if name == FOR_GROUP and value != group.encode():
                hidden.add(index)
            elif name == TTL and (ttl_ms := parse_ttl_ms(value)) is not None:
                own_ttls.append((index, ttl_ms))
    return own_ttls


def _headers(packed: bytes) -> Headers:
    try:
        return decode_headers(packed)
    except InvalidFrame:
        return ()


def keys_of(run: FrameRun) -> list[bytes]:
    """The key of every frame; empty for none."""
    starts = run.positions + np.uint32(HEADER_SIZE)
    ends = starts + run.columns()["key_length"]
    return [bytes(run.frames[start:end]) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
