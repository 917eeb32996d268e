"""What a run found: plain data that goes to JSON and comes back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bench.figure import rounded
from bench.growth.curve import Axis, Grown, Point
from bench.growth.slopes import Slopes, slopes


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one curve grew."""

    axis: Axis
    grown: Grown
    slopes: Slopes

    @property
    def is_worse(self) -> bool:
        return self.slopes.is_worse_than(self.grown.curve)


@dataclass(frozen=True, slots=True)
class Results:
    """A whole run: by axis, the points of all its curves."""

    date: str
    machine: dict[str, Any]
    points: dict[str, list[Point]]

    def grown(self, axis: Axis) -> list[Grown]:
        """The curves of an axis that have points; none if it was not measured."""
        points = self.points.get(axis.key, [])
        curves = [
            Grown(curve, sorted((each for each in points if each.curve == curve.key), key=lambda point: point.x))
            for curve in axis.curves
        ]
        return [curve for curve in curves if curve.points]

    def verdicts(self, axes: Iterable[Axis]) -> list[Verdict]:
        """Of the curves with two points or more."""
        return [
            Verdict(axis, grown, slopes(grown)) for axis in axes for grown in self.grown(axis) if len(grown.points) > 1
        ]

    def to_json(self, axes: Iterable[Axis]) -> dict[str, Any]:
        """With what was expected and what it comes to, for who reads it."""
        found: dict[str, Any] = {"date": self.date, "machine": self.machine, "curves": []}
        by_curve = {(each.axis.key, each.grown.curve.key): each for each in self.verdicts(axes)}
        for axis in axes:
            for grown in self.grown(axis):
                verdict = by_curve.get((axis.key, grown.curve.key))
                found["curves"].append(
                    {
                        "axis": axis.key,
                        "curve": grown.curve.key,
                        "title": grown.curve.title,
                        "unit": grown.curve.unit,
                        "expected_slope": grown.curve.expected,
                        **({} if verdict is None else _judged(verdict)),
                        "points": [
                            {"x": point.x, "median": point.value, "samples": point.samples} for point in grown.points
                        ],
                    }
                )
        return found

    @staticmethod
    def from_json(data: dict[str, Any]) -> Results:
        """What is derived is derived again."""
        points: dict[str, list[Point]] = {}
        for curve in data["curves"]:
            of_axis = points.setdefault(curve["axis"], [])
            of_axis += [Point(curve["curve"], each["x"], each["samples"]) for each in curve["points"]]
        return Results(data["date"], data["machine"], points)


def _judged(verdict: Verdict) -> dict[str, Any]:
    found = {"whole": verdict.slopes.whole, "first_decade": verdict.slopes.first, "last_decade": verdict.slopes.last}
    return {
        "slopes": {name: None if each is None else rounded(each) for name, each in found.items()},
        "ok": not verdict.is_worse,
    }
