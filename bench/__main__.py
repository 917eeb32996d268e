"""``python -m bench``: run the named benches in the given order, or all of them."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from bench.figure import Figure, Measured
from bench.registry import BENCHES, GROUPS
from bench.report import note, print_figure, print_summary

_USAGE_ERROR = 2
_TERMINATED = 128 + signal.SIGTERM


def main(arguments: Sequence[str] | None = None) -> int:
    """0: everything was measured (targets met or not); 1: a bench failed; 2: no such bench."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure GoQueue. One JSON line a figure.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to measure; everything if none is named")
    parser.add_argument("--list", action="store_true", help="list what can be measured")
    options = parser.parse_args(arguments)
    if options.list:
        _print_list()
        return 0
    chosen = [name for given in options.names for name in GROUPS.get(given, (given,))]
    unknown = [name for name in chosen if name not in BENCHES]
    if unknown:
        note(f"no such bench: {', '.join(map(_with_guess, unknown))}; see python -m bench --list")
        return _USAGE_ERROR
    # A terminated run must end as an interrupted one does: folders removed, processes stopped.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(_TERMINATED))
    names = chosen or list(BENCHES)
    figures = []
    for figure in _figures(names):
        print_figure(figure)
        figures.append(figure)
    if len(names) > 1:
        print_summary(figures)
    return 0 if len(figures) == len(names) else 1


def _figures(names: list[str]) -> Iterator[Figure]:
    """Measure in order. What one run measures besides is kept for when its name comes up."""
    kept: dict[str, Measured] = {}
    failed: set[object] = set()
    for place, name in enumerate(names):
        bench = BENCHES[name]
        if name not in kept and bench.measure not in failed:
            note(f"{name}: {bench.description}")
            # What the bench before has left to be written must not burden this one.
            os.sync()
            try:
                kept |= bench.measure(set(names[place:]))
            except Exception:
                failed.add(bench.measure)
                note(traceback.format_exc())
        if name in kept:
            yield bench.figure(kept.pop(name))
        else:
            note(f"{name}: failed")


def _with_guess(name: str) -> str:
    nearest = get_close_matches(name, BENCHES, n=1)
    return f"{name!r} (did you mean {nearest[0]!r}?)" if nearest else repr(name)


def _print_list() -> None:
    width = max(map(len, BENCHES))
    for bench in BENCHES.values():
        sign = ">=" if bench.better == "higher" else "<="
        print(f"{bench.name:{width}}  {bench.description} ({sign} {bench.target:,} {bench.unit})")


if __name__ == "__main__":
    sys.exit(main())
