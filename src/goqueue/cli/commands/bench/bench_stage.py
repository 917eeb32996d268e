"""The plan and the results of ``goqueue bench``. Memory does not grow with the number of messages."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

from goqueue.cli.figures.figure_spread import Distribution
from goqueue.observe.histogram import Histogram

SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
_SHORTEST_S, _LONGEST_S, _STEP = 1e-6, 1_000.0, 1.05
_BOUNDS = tuple(
    _SHORTEST_S * _STEP**step for step in range(math.ceil(math.log(_LONGEST_S / _SHORTEST_S) / math.log(_STEP)))
)
"""Each bound is 5 % above the one before, which is the accuracy of the quantiles."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. ``messages`` or ``seconds`` limits it; a rate of ``None`` means full speed."""

    topic: str
    is_temporary: bool
    mode: str
    messages: int | None
    seconds: float | None
    size_bytes: int
    batch: int
    producers: int
    rate: float | None
    linger_ms: int
    """How long a message sent by itself waits for others in its batch."""

    @property
    def paced_messages(self) -> int:
        """The number of messages of a run with a rate."""
        if self.messages is not None:
            return self.messages
        return max(1, round((self.seconds or 0.0) * (self.rate or 0.0)))


class Timings:
    """Durations in a histogram with narrow buckets, and the exact maximum."""

    def __init__(self) -> None:
        self.histogram = Histogram(_BOUNDS)
        self.count = 0
        self.longest_s = 0.0

    def add(self, seconds: float, count: int = 1) -> None:
        self.histogram.observe(seconds, count)
        self.count += count
        self.longest_s = max(self.longest_s, seconds)

    def quantile(self, share: float) -> float:
        """In seconds; never above the maximum."""
        bounds = (*self.histogram.bounds, math.inf)
        return min(self.longest_s, Distribution(bounds, self.histogram.counts).quantile(share) or 0.0)

    def ranges(self) -> list[tuple[float, int]]:
        """Counts in coarse buckets with bounds of 1, 2 and 5 times powers of ten; from the first to the last that is
        not empty.

        A narrow bucket across a coarse bound counts where its upper end is.
        """
        coarse = [round(digit * 10.0**power, 9) for power in range(-6, 4) for digit in (1, 2, 5)]
        counts = [0] * (len(coarse) + 1)
        at = 0
        for bound, count in zip((*self.histogram.bounds, math.inf), self.histogram.counts, strict=True):
            while at < len(coarse) and bound > coarse[at] * (1 + 1e-9):
                at += 1
            counts[at] += count
        used = [index for index, count in enumerate(counts) if count]
        if not used:
            return []
        return [((*coarse, math.inf)[index], counts[index]) for index in range(used[0], used[-1] + 1)]


@dataclass(slots=True)
class Stage:
    """One stage of a run, in progress or ended. A stage that was stopped still reports what was done."""

    name: str
    wanted: int | None
    """The number of messages to move, if known."""
    messages: int = 0
    size_bytes: int = 0
    took_s: float = 0.0
    is_done: bool = False
    times: dict[str, Timings] = field(default_factory=dict)
    """Keyed by what was timed."""
    remarks: list[str] = field(default_factory=list)
    _began: float = 0.0

    def begin(self) -> None:
        self._began = time.perf_counter()

    def end(self, *, is_done: bool) -> None:
        self.took_s = max(1e-9, time.perf_counter() - self._began)
        self.is_done = is_done

    def timed(self, what: str) -> Timings:
        return self.times.setdefault(what, Timings())

    @property
    def messages_per_s(self) -> float:
        return self.messages / self.took_s if self.took_s else 0.0

    @property
    def bytes_per_s(self) -> float:
        return self.size_bytes / self.took_s if self.took_s else 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "stage": self.name,
            "finished": self.is_done,
            "messages": self.messages,
            "bytes": self.size_bytes,
            "seconds": round(self.took_s, 6),
            "messages_per_s": round(self.messages_per_s, 1),
            "bytes_per_s": round(self.bytes_per_s, 1),
            "latency": [
                {
                    "of": what,
                    "count": times.count,
                    **{f"{name}_ms": round(times.quantile(share) * 1_000, 4) for name, share in SHARES.items()},
                    "max_ms": round(times.longest_s * 1_000, 4),
                    "ranges": [
                        {"up_to_ms": None if math.isinf(bound) else round(bound * 1_000, 6), "count": count}
                        for bound, count in times.ranges()
                    ],
                }
                for what, times in self.times.items()
                if times.count
            ],
            "remarks": self.remarks,
        }
