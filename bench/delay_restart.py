"""How long a broker with a million delayed messages takes to be ready, and what each of them takes of its memory.

Time runs from the start of the process to the first 200 of ``/readyz``; none of the data is in the page cache.
"""

from __future__ import annotations

import signal
from collections.abc import Collection
from pathlib import Path

from bench.harness import Measured, broker_process, drop_from_page_cache, note, rounded, run_module, scratch_folder

SECONDS = "delay_restart_seconds"
MEMORY = "delay_memory_bytes"
_PENDING = 1_000_000
_RUNS = 3


def measure(_wanted: Collection[str]) -> dict[str, Measured]:
    with scratch_folder() as folder:
        killed, closed = folder / "killed", folder / "closed"
        memory = _fill(killed, "kill")
        _fill(closed, "close")
        after_kill = [_start(killed, f"after a kill, run {number + 1} of {_RUNS}") for number in range(_RUNS)]
        after_close = [_start(closed, f"after a stop, run {number + 1} of {_RUNS}") for number in range(_RUNS)]
    details: dict[str, object] = {"pending": _PENDING, "page_cache": "dropped"}
    return {
        SECONDS: Measured(after_kill, {**details, "after_clean_stop_s": [rounded(each) for each in after_close]}),
        MEMORY: Measured([memory], details),
    }


def _fill(data: Path, end: str) -> float:
    note(f"writing {_PENDING:,} delayed messages, then {end}")
    status = -signal.SIGKILL if end == "kill" else 0
    return float(run_module("bench.delay_writer", data, _PENDING, end, status=status)["bytes_per_message"])


def _start(data: Path, label: str) -> float:
    drop_from_page_cache(data)
    with broker_process(data) as broker:
        pending = broker.request("GET", "/delay/stats")["pending_count"]
        if pending != _PENDING:
            raise RuntimeError(f"the broker knows of {pending} delayed messages, {_PENDING} were written")
        note(f"{SECONDS}: {label}: {rounded(broker.ready_after_s)}")
        ready_after_s = broker.ready_after_s
        # Killed: a stop would write down what the next start is to find out.
        broker.kill()
    return ready_after_s
