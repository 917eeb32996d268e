"""Whether polling stays as fast, and memory small, when much lies in a queue and much is in flight."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from statistics import median
from typing import Any

from bench.harness import Measured, rounded, run_module, scratch_folder

GROWTH = "queue_growth"
IN_FLIGHT_BYTES = "queue_inflight_bytes"
_BACKLOG = 10_000_000
_GROUPS = 100
_IN_FLIGHT = 1_000_000


def measure(_wanted: Collection[str]) -> Mapping[str, Measured]:
    with scratch_folder() as folder:
        answer: dict[str, Any] = run_module(
            "bench.queue_growth_child", folder, _BACKLOG, _GROUPS, _IN_FLIGHT, timeout_s=300
        )
    before = median(answer["before_ms"])
    details = {"backlog": _BACKLOG, "groups": _GROUPS, "in_flight": _IN_FLIGHT, "poll_messages": 100}
    return {
        GROWTH: Measured(
            [each / before for each in answer["after_ms"]],
            {
                **details,
                "poll_ms_small": rounded(before),
                "poll_ms_large": rounded(median(answer["after_ms"])),
            },
        ),
        IN_FLIGHT_BYTES: Measured(
            [answer["bytes_per_message"]],
            {**details, "polled_one_by_one": rounded(answer["bytes_per_message_polled_alone"])},
        ),
    }
