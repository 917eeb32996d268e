"""The slopes of all curves, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from bench.growth import words
from bench.growth.results import Verdict
from bench.report import note

TITLES = ("axis", "curve", "expected", "found", "first decade", "last decade", "from", "to", "")


def rows(verdicts: Sequence[Verdict]) -> list[tuple[str, ...]]:
    return [_row(each) for each in verdicts]


def _row(verdict: Verdict) -> tuple[str, ...]:
    grown, slopes = verdict.grown, verdict.slopes
    ends = [words.amount(value, grown.curve.unit) for value in (grown.values[0], grown.values[-1])]
    return (
        verdict.axis.key,
        grown.curve.title,
        f"≤ {grown.curve.expected:g}",
        words.slope(slopes.whole),
        words.slope(slopes.first),
        words.slope(slopes.last),
        *ends,
        "WORSE" if verdict.is_worse else "ok",
    )


def print_table(verdicts: Sequence[Verdict]) -> None:
    shown = [TITLES, *rows(verdicts)]
    widths = [max(len(row[column]) for row in shown) for column in range(len(TITLES))]
    note("")
    for row in shown:
        note("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
