"""How fast a log is read back, from the page cache."""

from __future__ import annotations

import time
from collections.abc import Iterator

import uvloop

from bench.harness import Measured, note, repeat, scratch_folder
from bench.log_under_test import LogUnderTest, open_log_under_test
from bench.workload import BATCH_MESSAGES, VALUE_BYTES, wire_batches
from goqueue.storage.log.log import Log
from goqueue.wire.batch import FrameRun
from goqueue.wire.decoding import decode_run

_MESSAGES = 1_000_000
_READ_BYTES = 1 << 20
_FRAME_PASSES = 10
_MEGABYTE = 1_000_000
_SHAPE = {"messages": _MESSAGES, "value_bytes": VALUE_BYTES, "read_bytes": _READ_BYTES, "page_cache": "warm"}


def measure_frames() -> Measured:
    """Frames as they lie, undecoded."""

    async def work() -> Measured:
        with scratch_folder() as folder:
            async with open_log_under_test(folder) as under:
                await _fill(under)
                runs = repeat("log_read_frames", lambda: _frame_rate(under.log), times=7)
                return Measured(runs, {**_SHAPE, "passes_per_run": _FRAME_PASSES})

    return uvloop.run(work())


def measure_messages() -> Measured:
    """Messages, every checksum verified."""

    async def work() -> Measured:
        with scratch_folder() as folder:
            async with open_log_under_test(folder) as under:
                await _fill(under)
                return Measured(repeat("log_read_messages", lambda: _message_rate(under.log)), dict(_SHAPE))

    return uvloop.run(work())


async def _fill(under: LogUnderTest) -> None:
    note(f"writing {_MESSAGES:,} messages to read")
    wires = wire_batches()
    for number in range(_MESSAGES // BATCH_MESSAGES):
        under.publish(wires[number % len(wires)])
    await under.commits.sync([under.log])
    _frame_rate(under.log)


def _runs(log: Log) -> Iterator[FrameRun]:
    offset = 0
    while (found := log.locate(offset, _READ_BYTES)) is not None:
        yield found.load()
        offset = found.next_offset


def _frame_rate(log: Log) -> float:
    size = messages = 0
    started = time.perf_counter()
    for _ in range(_FRAME_PASSES):
        for run in _runs(log):
            size += len(run.frames)
            messages += len(run)
    elapsed = time.perf_counter() - started
    if messages != _FRAME_PASSES * _MESSAGES:
        raise RuntimeError(f"read {messages} messages, {_FRAME_PASSES} times {_MESSAGES} were written")
    return size / _MEGABYTE / elapsed


def _message_rate(log: Log) -> float:
    count = 0
    started = time.perf_counter()
    for run in _runs(log):
        messages, damaged = decode_run(run)
        if damaged:
            raise RuntimeError(f"{len(damaged)} messages fail their checksum")
        count += len(messages)
    elapsed = time.perf_counter() - started
    if count != _MESSAGES:
        raise RuntimeError(f"read {count} messages, {_MESSAGES} were written")
    return count / elapsed
