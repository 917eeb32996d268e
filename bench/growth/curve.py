"""Curves, and the axes that they belong to: what is measured, and how it may grow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

Unit = Literal["s", "bytes"]


@dataclass(frozen=True, slots=True)
class Point:
    """What was measured at one place of an axis: ``samples`` in the unit of their curve."""

    curve: str
    x: int
    samples: list[float]

    @property
    def value(self) -> float:
        return median(self.samples)


@dataclass(frozen=True, slots=True)
class Curve:
    """One cost along an axis. ``expected`` is the slope that it may have in a log-log plot: 0 is constant, 1 linear.

    Growing less is never wrong. ``tolerance`` is what noise may add to the slope of the whole; it may add twice as much
    to that of the last decade, which rests on two points.
    """

    key: str
    title: str
    expected: float
    tolerance: float = 0.15
    unit: Unit = "s"
    first: float | None = None
    """What the slope of the first decade may be, where less is expected of it than of the whole."""
    of_x: bool = False
    """Whether what is measured is a cost of ``x`` bytes, so that bytes a second can be told."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One thing that grows. ``measure`` yields the points of all curves, in the order of ``xs``."""

    key: str
    title: str
    x_title: str
    xs: Sequence[int]
    quick_xs: Sequence[int]
    curves: Sequence[Curve]
    measure: Callable[[Sequence[int]], Iterator[Point]]
    remark: str
    """What was done, in a sentence or two for the page."""


@dataclass(frozen=True, slots=True)
class Grown:
    """A curve with its points, by ``x``."""

    curve: Curve
    points: list[Point] = field(default_factory=list)

    @property
    def xs(self) -> list[int]:
        return [point.x for point in self.points]

    @property
    def values(self) -> list[float]:
        return [point.value for point in self.points]
