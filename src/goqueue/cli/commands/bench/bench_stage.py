"""What ``goqueue bench`` is to do, and what it has measured. Nothing here grows with the number of messages."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

from goqueue.cli.figures.figure_spread import quantile
from goqueue.observe.histogram import Histogram

SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
_SHORTEST_S, _LONGEST_S, _STEP = 1e-6, 1_000.0, 1.05
_BOUNDS = tuple(
    _SHORTEST_S * _STEP**step for step in range(math.ceil(math.log(_LONGEST_S / _SHORTEST_S) / math.log(_STEP)))
)
"""Each five hundredths above the one before: so exact is what is told of them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """``messages`` or ``seconds`` say how much; a rate of ``None`` is as fast as it goes."""

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
    """How long a message that is sent by itself waits for others."""

    @property
    def paced_messages(self) -> int:
        """How many there are at a pace."""
        if self.messages is not None:
            return self.messages
        return max(1, round((self.seconds or 0.0) * (self.rate or 0.0)))


class Times:
    """How long things took: counted in narrow ranges, and the longest as it was."""

    def __init__(self) -> None:
        self.histogram = Histogram(_BOUNDS)
        self.count = 0
        self.longest_s = 0.0

    def add(self, seconds: float, count: int = 1) -> None:
        self.histogram.observe(seconds, count)
        self.count += count
        self.longest_s = max(self.longest_s, seconds)

    def quantile(self, share: float) -> float:
        """In seconds; never above the longest."""
        bounds = (*self.histogram.bounds, math.inf)
        return min(self.longest_s, quantile(bounds, self.histogram.counts, share) or 0.0)

    def ranges(self) -> list[tuple[float, int]]:
        """Upper bounds of one, two and five of each power of ten, and how many there were; from the first to the last.

        A narrow range that lies across a bound counts where its upper end is.
        """
        coarse = [round(digit * 10.0**power, 9) for power in range(-6, 4) for digit in (1, 2, 5)]
        counts = [0] * (len(coarse) + 1)
        at = 0
        for bound, count in zip((*self.histogram.bounds, math.inf), self.histogram.counts, strict=True):
            while at < len(coarse) and bound > coarse[at] * (1 + 1e-9):
                at += 1
            counts[at] += count
        used = [place for place, count in enumerate(counts) if count]
        if not used:
            return []
        return [((*coarse, math.inf)[place], counts[place]) for place in range(used[0], used[-1] + 1)]


@dataclass(slots=True)
class Stage:
    """A part of the work, while it goes on and when it has ended. Stopped half-way it still tells what was done."""

    name: str
    wanted: int | None
    """How many messages it is to move, if that is known."""
    messages: int = 0
    size_bytes: int = 0
    took_s: float = 0.0
    is_done: bool = False
    times: dict[str, Times] = field(default_factory=dict)
    """By what was timed."""
    remarks: list[str] = field(default_factory=list)
    _began: float = 0.0

    def begin(self) -> None:
        self._began = time.perf_counter()

    def end(self, *, is_done: bool) -> None:
        self.took_s = max(1e-9, time.perf_counter() - self._began)
        self.is_done = is_done

    def timed(self, what: str) -> Times:
        return self.times.setdefault(what, Times())

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
