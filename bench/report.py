"""What a run says: figures on standard output for programs, everything else on standard error for people."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bench.figure import Figure, rounded


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def print_figure(figure: Figure) -> None:
    print(figure.line(), flush=True)


def print_summary(figures: Sequence[Figure]) -> None:
    """A table of all figures."""
    rows = [("bench", "value", "unit", "target", "ok")]
    rows += [
        (
            figure.name,
            f"{rounded(figure.value):,}",
            figure.unit,
            f"{'>=' if figure.better == 'higher' else '<='} {figure.target:,}",
            "ok" if figure.ok else "MISSED",
        )
        for figure in figures
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    note("")
    for row in rows:
        note("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
