"""Reading by offset: in order, never beyond the high watermark, waiting for messages if asked to."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np

from goqueue.broker.partitions.partition import Partition
from goqueue.model.message import Message
from goqueue.wire.batch import Columns, FrameRun, damaged_places, keep_frames
from goqueue.wire.decoding import decode_run
from goqueue.wire.frame import INVISIBLE
from goqueue.wire.producer_frames import aborted_among

_MESSAGES_AT_A_STRETCH = 2_000
_BYTES_AT_A_STRETCH = 64 << 10
"""Of headers: these may be empty, and then it is thousands."""

UNBOUNDED = 1 << 30
_INVISIBLE = np.uint8(INVISIBLE)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much one read may answer with, and how long it may wait for something to answer with."""

    max_bytes: int
    max_messages: int = UNBOUNDED
    wait_ms: int = 0
    uncommitted: bool = False
    """Whether to show what open transactions have written, and what aborted ones have."""


@dataclass(frozen=True, slots=True)
class FramesRead:
    """Frames as they lie in the log; ``run`` is ``None`` when there are none."""

    run: FrameRun | None
    next_offset: int
    high_watermark: int
    stable_end: int


@dataclass(frozen=True, slots=True)
class MessagesRead:
    """Decoded messages, and where to go on."""

    messages: list[Message]
    next_offset: int
    high_watermark: int
    damaged: list[int]
    """Offsets of messages that fail their checksum and were left out."""
    size_bytes: int = 0
    """Of the frames that they are decoded from."""
    stable_end: int = 0


def start_of(partition: Partition, offset: int | None, from_time_ns: int | None) -> int:
    """Where a read begins: at an offset, at an instant, or at the earliest message.

    Offset 0 means 'from the beginning', also when retention has moved the beginning; any other offset that is gone
    is an error, so that nobody loses messages without noticing.
    """
    if from_time_ns is not None:
        return min(partition.log.offset_at(from_time_ns), partition.high_watermark)
    return offset or partition.log.start_offset


async def read_frames(partition: Partition, offset: int, bounds: Bounds) -> FramesRead:
    """What is there from ``offset`` on, in one piece."""
    run, next_offset = await _read_visible(partition, offset, bounds)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + bounds.wait_ms / 1_000
    while run is None and (left_ms := int((deadline - loop.time()) * 1_000)) > 0:
        if not await wait_for_any([(partition, next_offset)], left_ms, uncommitted=bounds.uncommitted):
            break
        # What came may all be delayed, and nothing to show yet.
        run, next_offset = await _read_visible(partition, next_offset, bounds)
        if partition.closed or partition.stopping:
            break
    return FramesRead(run, next_offset, partition.high_watermark, partition.stable_end)


async def _read_visible(partition: Partition, offset: int, bounds: Bounds) -> tuple[FrameRun | None, int]:
    """Without what no reader sees: control and delayed records, and those of transactions that were not committed."""
    while True:
        if bounds.uncommitted:
            limit = partition.high_watermark
        else:
            offset = partition.next_visible(offset)
            limit = partition.stable_end
        # As of now: a compaction that ends while the old files are read forgets what it has removed.
        aborted = partition.producers.state.aborted
        run, next_offset = await partition.read(offset, bounds.max_bytes, bounds.max_messages, limit)
        if run is None:
            return None, next_offset
        hidden = run.flags() & _INVISIBLE != 0
        if not bounds.uncommitted and len(aborted):
            among = aborted_among(aborted, run)
            hidden = hidden if among is None else hidden | among
        if not hidden.any():
            return run, next_offset
        if not hidden.all():
            return keep_frames(run, ~hidden), next_offset
        offset = next_offset


async def read_messages(partition: Partition, offset: int, bounds: Bounds) -> MessagesRead:
    """Like ``read_frames``, over as many segments as it takes to fill the bounds."""
    messages: list[Message] = []
    left_out: list[int] = []
    left_bytes, left_messages, wait_ms = bounds.max_bytes, bounds.max_messages, bounds.wait_ms
    while left_messages > 0 and (left_bytes > 0 or not messages):
        here = Bounds(left_bytes, left_messages, wait_ms, bounds.uncommitted)
        found = await read_frames(partition, offset, here)
        if found.run is None:
            offset = found.next_offset
            break
        if messages and len(found.run.frames) > left_bytes:
            break
        offset, wait_ms = found.next_offset, 0
        more, damaged = await decoded(found.run)
        if damaged:
            left_out += found.run.columns()["offset"][damaged].tolist()
            partition.note_damage(left_out)
        messages += more
        left_bytes -= len(found.run.frames)
        left_messages -= len(found.run)
    size_bytes = bounds.max_bytes - left_bytes
    return MessagesRead(messages, offset, partition.high_watermark, left_out, size_bytes, partition.stable_end)


async def decoded(run: FrameRun) -> tuple[list[Message], list[int]]:
    """As ``decode_run``, giving way to others meanwhile: there may be thousands of messages, or of headers."""
    if len(run) <= _MESSAGES_AT_A_STRETCH and len(run.frames) <= _BYTES_AT_A_STRETCH:
        return decode_run(run)
    messages: list[Message] = []
    damaged: list[int] = []
    ends = np.cumsum(run.columns()["headers_length"])
    first = 0
    while first < len(run):
        before = int(ends[first - 1]) if first else 0
        end = max(first + 1, int(np.searchsorted(ends, before + _BYTES_AT_A_STRETCH, side="right")))
        end = min(end, first + _MESSAGES_AT_A_STRETCH)
        more, places = decode_run(run.part(first, end))
        messages += more
        damaged += [first + place for place in places]
        first = end
        await asyncio.sleep(0)
    return messages, damaged


def find_damaged_frames(partition: Partition, run: FrameRun, columns: Columns) -> set[int]:
    """Frames that fail their checksum; the partition knows of them from now on. Their offsets are right: a log knows
    them by position."""
    damaged = damaged_places(run, columns)
    if damaged:
        partition.note_damage(columns["offset"][damaged].tolist())
    return set(damaged)


async def wait_for_any(places: list[tuple[Partition, int]], wait_ms: int, *, uncommitted: bool = False) -> bool:
    """Return True as soon as one of the partitions has something at or after its offset, or never will have; False
    after ``wait_ms``."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_ms / 1_000
    # Not everything that wakes is news: an fsync under 'interval' adds nothing to what readers see already.
    while not any(partition.has_news(offset, uncommitted=uncommitted) for partition, offset in places):
        waiter: asyncio.Future[None] = loop.create_future()
        for partition, _ in places:
            partition.add_waiter(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                await waiter
        except TimeoutError:
            return False
        finally:
            for partition, _ in places:
                partition.remove_waiter(waiter)
    return True
