"""``python -m bench.growth``: how cost grows; slopes are printed, pages and pictures go to ``docs/benchmarks``."""

from __future__ import annotations

import argparse
import datetime
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.growth import backlog, delayed, groups, members, partitions, sizes, starts, waiting, words
from bench.growth.curve import Axis, Point
from bench.growth.page import write_pages
from bench.growth.results import Results
from bench.growth.table import print_table
from bench.peers.machine import machine
from bench.report import note

AXES: dict[str, Axis] = {
    each.AXIS.key: each.AXIS for each in (backlog, partitions, groups, sizes, members, waiting, delayed, starts)
}
_FOLDER = Path(__file__).resolve().parents[2] / "docs" / "benchmarks"
_TERMINATED = 128 + signal.SIGTERM


def main(arguments: Sequence[str] | None = None) -> int:
    """0: everything grows as expected; 1: something is worse."""
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description="How cost grows with what there is.")
    parser.add_argument("--axes", nargs="+", choices=list(AXES), default=list(AXES), metavar="AXIS")
    parser.add_argument("--quick", action="store_true", help="stop at a hundredth or so of each axis")
    parser.add_argument("--into", type=Path, default=_FOLDER, help="where the page, pictures and data go")
    parser.add_argument("--draw", type=Path, metavar="JSON", help="measure nothing, write the page of an earlier run")
    options = parser.parse_args(arguments)
    axes = [AXES[key] for key in options.axes]
    if options.draw:
        results = Results.from_json(json.loads(options.draw.read_text()))
    else:
        results = _measure(axes, quick=options.quick)
    verdicts = results.verdicts(axes)
    print_table(verdicts)
    write_pages(axes, results, options.into)
    note(f"written to {options.into}")
    return int(any(each.is_worse for each in verdicts))


def _measure(axes: Sequence[Axis], *, quick: bool) -> Results:
    # Brokers end with this program, and folders are removed.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(_TERMINATED))
    # Once, before anything runs that would show in it.
    state = machine()
    points: dict[str, list[Point]] = {}
    for axis in axes:
        began = time.perf_counter()
        of_axis = points.setdefault(axis.key, [])
        titles = {curve.key: curve for curve in axis.curves}
        for point in axis.measure(axis.quick_xs if quick else axis.xs):
            of_axis.append(point)
            curve = titles[point.curve]
            note(f"{axis.key} {words.count(point.x)}: {curve.title}: {words.amount(point.value, curve.unit)}")
        note(f"{axis.key} took {time.perf_counter() - began:.0f} s")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return Results(today, state, points)


if __name__ == "__main__":
    sys.exit(main())
