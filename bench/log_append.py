"""How fast a log takes batches, from a client's bytes on: parse, verify, append."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import uvloop

from bench.harness import Measured, fsync_ms, repeat, rounded, scratch_folder
from bench.log_under_test import SYNC_INTERVAL_S, LogUnderTest, open_log_synced_by_interval, open_log_under_test
from bench.workload import BATCH_MESSAGES, VALUE_BYTES, wire_batches

_MESSAGES = 2_000_000
_WARM_UP_MESSAGES = 300_000
_WRITERS = 4
_SHAPE = {"messages_per_run": _MESSAGES, "value_bytes": VALUE_BYTES, "batch_messages": BATCH_MESSAGES}


def measure_interval() -> Measured:
    """Nobody waits for the disk; every second what was written is made durable."""
    wires = wire_batches()
    final_syncs_ms: list[float] = []

    def once(messages: int = _MESSAGES) -> float:
        with scratch_folder() as folder:
            rate, final_sync_ms = uvloop.run(_append_by_interval(folder, wires, messages // BATCH_MESSAGES))
        final_syncs_ms.append(rounded(final_sync_ms))
        return rate

    once(_WARM_UP_MESSAGES)
    final_syncs_ms.clear()
    runs = repeat("log_append_interval", once)
    details = {**_SHAPE, "fsync": "interval", "interval_s": SYNC_INTERVAL_S, "sync_after_run_ms": final_syncs_ms}
    return Measured(runs, details)


def measure_always() -> Measured:
    """Every batch is on the disk before its writer goes on."""
    wires = wire_batches()
    rounds: list[int] = []
    disk_ms: list[float] = []

    def once(messages: int = _MESSAGES) -> float:
        with scratch_folder() as folder:
            disk_ms.append(rounded(fsync_ms(folder)))
            rate, commit_rounds = uvloop.run(_append_durably(folder, wires, messages // BATCH_MESSAGES))
        rounds.append(commit_rounds)
        return rate

    once(_WARM_UP_MESSAGES)
    rounds.clear()
    disk_ms.clear()
    runs = repeat("log_append_always", once)
    details = {**_SHAPE, "fsync": "always", "writers": _WRITERS, "fsync_rounds": rounds, "disk_fsync_ms": disk_ms}
    return Measured(runs, details)


async def _append_by_interval(folder: Path, wires: list[bytes], batches: int) -> tuple[float, float]:
    async with open_log_synced_by_interval(folder) as under:
        started = time.perf_counter()
        for number in range(batches):
            under.publish(wires[number % len(wires)])
            await asyncio.sleep(0)
        elapsed = time.perf_counter() - started
        before_sync = time.perf_counter()
        await under.commits.sync([under.log])
        return batches * BATCH_MESSAGES / elapsed, (time.perf_counter() - before_sync) * 1_000


async def _append_durably(folder: Path, wires: list[bytes], batches: int) -> tuple[float, int]:
    async with open_log_under_test(folder) as under:
        started = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(_WRITERS):
                group.create_task(_write_durably(under, wires, batches // _WRITERS))
        elapsed = time.perf_counter() - started
        return under.log.end_offset / elapsed, under.commits.rounds


async def _write_durably(under: LogUnderTest, wires: list[bytes], batches: int) -> None:
    for number in range(batches):
        end_offset = under.publish(wires[number % len(wires)])
        await under.commits.reached(under.log, end_offset)
