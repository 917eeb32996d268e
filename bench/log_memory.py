"""How much memory a broker needs that holds ten million messages and is read at random."""

from __future__ import annotations

from typing import Any

from bench.harness import Measured, repeat, run_module, scratch_folder
from bench.workload import VALUE_BYTES

_MESSAGES = 10_000_000
_MEGABYTE = 1_000_000


def measure() -> Measured:
    answers: list[dict[str, Any]] = []

    def once() -> float:
        with scratch_folder() as folder:
            answers.append(run_module("bench.memory_child", folder, _MESSAGES))
        return float(answers[-1]["peak_bytes"]) / _MEGABYTE

    runs = repeat("log_memory", once, times=2, budget_s=40)
    return Measured(
        runs,
        {
            "messages": _MESSAGES,
            "value_bytes": VALUE_BYTES,
            "fsync": "interval",
            "random_reads": answers[-1]["reads"],
            "before_mb": answers[-1]["before_bytes"] / _MEGABYTE,
            "log_mb": answers[-1]["log_bytes"] / _MEGABYTE,
            "source": "VmHWM of a process of its own, its interpreter included",
        },
    )
