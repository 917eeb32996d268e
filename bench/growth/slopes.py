"""How steep a curve is in a log-log plot, and whether that is what was expected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.growth.curve import Curve, Grown

_DECADE = 10.0
_ROUNDING = 1.001
"""Places that are meant to be a decade apart may miss it by a little."""


@dataclass(frozen=True, slots=True)
class Slopes:
    """Of the whole curve by least squares, and of its two ends. ``None`` where there are not two points."""

    whole: float
    first: float | None
    last: float | None

    def is_worse_than(self, curve: Curve) -> bool:
        """Whether any of them is steeper than the curve may be."""
        if self.whole > curve.expected + curve.tolerance:
            return True
        if self.last is not None and self.last > curve.expected + 2 * curve.tolerance:
            return True
        return self.first is not None and curve.first is not None and self.first > curve.first + 2 * curve.tolerance


def slope(xs: Sequence[float], values: Sequence[float]) -> float:
    """The power of x that fits best."""
    if len(xs) < 2 or len(xs) != len(values) or min(*xs, *values) <= 0:
        raise ValueError(f"a slope needs two points or more, all of them above zero: {list(xs)}, {list(values)}")
    fitted, _ = np.polyfit(np.log10(xs), np.log10(values), 1)
    return float(fitted)


def slopes(grown: Grown) -> Slopes:
    """Of a curve with two points or more."""
    xs, values = grown.xs, grown.values
    first = [place for place, x in enumerate(xs) if x <= xs[0] * _DECADE * _ROUNDING]
    last = [place for place, x in enumerate(xs) if x * _DECADE * _ROUNDING >= xs[-1]]
    return Slopes(slope(xs, values), _of(first, xs, values), _of(last, xs, values))


def _of(places: Sequence[int], xs: Sequence[float], values: Sequence[float]) -> float | None:
    if len(places) < 2:
        return None
    return slope([xs[place] for place in places], [values[place] for place in places])
