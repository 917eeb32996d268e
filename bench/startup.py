"""How long a broker with a thousand partitions takes to be ready, after a clean stop and after being killed.

Time runs from the start of the process to the first 200 of ``/readyz``; none of the data is in the page cache.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection
from pathlib import Path

from bench.harness import Measured, broker_process, drop_from_page_cache, note, repeat, run_module, scratch_folder
from bench.in_process_broker import TOPIC

CLEAN = "startup_clean"
AFTER_KILL = "startup_after_kill"
_PARTITIONS = 1_000
_GIGABYTE = 1_000_000_000
_SIZE_VARIABLE = "GOQUEUE_BENCH_STARTUP_GB"
_DEFAULT_GB = "2"


def measure(wanted: Collection[str]) -> dict[str, Measured]:
    found: dict[str, Measured] = {}
    with scratch_folder() as folder:
        data = folder / "data"
        if AFTER_KILL in wanted:
            half = _total_bytes() // 2
            before = _fill(data, half, "close")
            behind = _fill(data, half, "kill")
            written = before + behind
            found[AFTER_KILL] = _measure_after_kill(data, written, behind)
        else:
            written = _fill(data, _total_bytes(), "close")
        if CLEAN in wanted:
            runs = repeat(CLEAN, lambda: _start(data, written), times=3, budget_s=20)
            found[CLEAN] = Measured(runs, _details())
    return found


def _total_bytes() -> int:
    given = os.environ.get(_SIZE_VARIABLE, _DEFAULT_GB)
    try:
        return int(float(given) * _GIGABYTE)
    except ValueError:
        raise ValueError(f"{_SIZE_VARIABLE} is {given!r}; it must be a number of gigabytes, such as 2") from None


def _details() -> dict[str, object]:
    return {"partitions": _PARTITIONS, "gigabytes": _total_bytes() / _GIGABYTE, "page_cache": "dropped"}


def _fill(data: Path, size_bytes: int, end: str) -> int:
    note(f"writing {size_bytes / _GIGABYTE:g} GB to {_PARTITIONS:,} partitions, then {end}")
    status = -signal.SIGKILL if end == "kill" else 0
    return int(run_module("bench.startup_writer", data, size_bytes, _PARTITIONS, end, status=status)["written_bytes"])


def _measure_after_kill(data: Path, written: int, behind: int) -> Measured:
    """A start scans ``behind`` bytes and leaves the logs as they are: with the old points back, so does the next."""
    checkpoint = data / "checkpoint"
    points = checkpoint.read_bytes()

    def once() -> float:
        checkpoint.write_bytes(points)
        return _start(data, written)

    runs = repeat(AFTER_KILL, once, times=3, budget_s=35)
    return Measured(runs, {**_details(), "behind_recovery_points_mb": behind / 1e6})


def _start(data: Path, written: int) -> float:
    drop_from_page_cache(data)
    with broker_process(data) as broker:
        held = broker.request("GET", f"/topics/{TOPIC}")["total_size_bytes"]
        if held != written:
            raise RuntimeError(f"the broker found {held} bytes again, {written} were written")
        return broker.ready_after_s
