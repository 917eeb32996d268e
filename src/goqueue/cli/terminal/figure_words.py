"""Formats figures for people: about three significant digits, and a unit."""

from __future__ import annotations

import math
from collections.abc import Sequence

from goqueue.cli.terminal.times import duration
from goqueue.model.clock import NANOS_PER_SECOND

NOTHING = "-"
"""Shown where nothing was measured, which differs from zero."""
_BARS = "▁▂▃▄▅▆▇█"
_LARGE = 10_000.0


def count(number: float) -> str:
    """Format a count: ``0``, ``0.3``, ``12``, ``9,999``, ``12.3k``, ``4.56M``."""
    sign, number = ("-", -number) if number < 0 else ("", number)
    if 0 < number < 9.95 and number != int(number):
        return f"{sign}{number:.1f}" if number >= 0.05 else f"{sign}<0.1"
    if round(number) < _LARGE:
        return f"{sign}{number:,.0f}"
    for unit in ("k", "M", "G", "T"):
        number /= 1_000
        if number < 999.5:
            return f"{sign}{_digits(number)}{unit}"
    return f"{sign}{number:,.0f}T"


def size(number: float) -> str:
    """Format bytes in decimal units (1 KB is 1,000 B): ``0 B``, ``999 B``, ``12.3 KB``, ``4.56 GB``."""
    if number < 999.5:
        return f"{number:.0f} B"
    for unit in ("KB", "MB", "GB", "TB"):
        number /= 1_000
        if number < 999.5:
            return f"{_digits(number)} {unit}"
    return f"{number:,.0f} TB"


def seconds(span: float | None) -> str:
    """Format a duration: ``40 µs``, ``0.4 ms``, ``1.31 s``, ``3h12m``; ``very long`` above the histogram's last
    bound."""
    if span is None:
        return NOTHING
    if math.isinf(span):
        return "very long"
    if 0 < span < 0.000_1:
        return f"{span * 1_000_000:.0f} µs"
    return duration(round(span * NANOS_PER_SECOND))


def latency(span: float | None, *, is_at_least: bool) -> str:
    """Format a latency as ``seconds`` does; with ``is_at_least``, where only a lower bound is known, as ``>30.0 s``."""
    return f">{seconds(span)}" if is_at_least else seconds(span)


def sparkline(values: Sequence[float | None], width: int) -> str:
    """Draw the last ``width`` values as bars, scaled to the largest of them; unknown values are gaps."""
    visible = list(values)[-width:] if width > 0 else []
    most = max((value for value in visible if value is not None), default=0.0)
    bars = []
    for value in visible:
        if value is None:
            bars.append(" ")
        elif most <= 0:
            bars.append(_BARS[0])
        else:
            bars.append(_BARS[min(len(_BARS) - 1, int(value / most * len(_BARS)))])
    return "".join(bars).rjust(max(0, width))


def bar(share: float, width: int) -> str:
    """Draw a horizontal bar that fills ``share`` of ``width`` columns, to an eighth of a column."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[rest]


def _digits(number: float) -> str:
    if number < 9.995:
        return f"{number:.2f}"
    return f"{number:.1f}" if number < 99.95 else f"{number:.0f}"
