"""One measured number, and whether it is good enough."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

Better = Literal["higher", "lower"]


@dataclass(frozen=True, slots=True)
class Measured:
    """What a bench found: the value of every repetition, and whatever helps to understand them."""

    runs: Sequence[float]
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Figure:
    """A measurement beside its target. The value is the median of the repetitions."""

    name: str
    unit: str
    target: float
    better: Better
    measured: Measured

    @property
    def value(self) -> float:
        return median(self.measured.runs)

    @property
    def ok(self) -> bool:
        return self.value >= self.target if self.better == "higher" else self.value <= self.target

    @property
    def spread(self) -> float:
        """How far apart the repetitions lie, as a share of the value."""
        runs = self.measured.runs
        return (max(runs) - min(runs)) / self.value if self.value else 0.0

    def line(self) -> str:
        """The figure as one line of JSON."""
        return json.dumps(
            {
                "bench": self.name,
                "value": rounded(self.value),
                "unit": self.unit,
                "target": self.target,
                "better": self.better,
                "ok": self.ok,
                "runs": [rounded(run) for run in self.measured.runs],
                "spread": rounded(self.spread),
                **self.measured.details,
                "cpus": os.cpu_count(),
                "load_average": rounded(os.getloadavg()[0]),
            }
        )


def rounded(number: float) -> float:
    """Four digits that mean something, or the whole part if that is longer."""
    return round(number) if abs(number) >= 1_000 else float(f"{number:.4g}")
