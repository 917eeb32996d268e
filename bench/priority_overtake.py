"""How long the next poll takes to bring a critical message that lies behind millions of background ones."""

from __future__ import annotations

from bench.harness import Measured, rounded, run_module, scratch_folder

_BACKLOG = 5_000_000


def measure() -> Measured:
    with scratch_folder() as folder:
        answer = run_module("bench.priority_overtake_child", folder, _BACKLOG, timeout_s=300)
    details = {"backlog": _BACKLOG, "poll_messages": 100, "first_poll_ms": rounded(answer["first_ms"])}
    return Measured(answer["worst_ms"], {**details, "median_ms": [rounded(each) for each in answer["median_ms"]]})
