"""Figures as a person reads them: three digits or so, and a unit."""

from __future__ import annotations

import math
from collections.abc import Sequence

from goqueue.cli.terminal.time_words import duration
from goqueue.model.ports import NANOS_PER_SECOND

NOTHING = "-"
"""Nothing was measured: that is not zero."""
_BARS = "▁▂▃▄▅▆▇█"
_LARGE = 10_000.0


def count(number: float) -> str:
    """``0``, ``0.3``, ``12``, ``9,999``, ``12.3k``, ``4.56M``."""
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
    """``0 B``, ``999 B``, ``12.3 KB``, ``4.56 GB``; a thousand each."""
    if number < 999.5:
        return f"{number:.0f} B"
    for unit in ("KB", "MB", "GB", "TB"):
        number /= 1_000
        if number < 999.5:
            return f"{_digits(number)} {unit}"
    return f"{number:,.0f} TB"


def seconds(span: float | None) -> str:
    """``40 µs``, ``0.4 ms``, ``1.31 s``, ``3h12m``; beyond what a histogram tells apart it is ``very long``."""
    if span is None:
        return NOTHING
    if math.isinf(span):
        return "very long"
    if 0 < span < 0.000_1:
        return f"{span * 1_000_000:.0f} µs"
    return duration(round(span * NANOS_PER_SECOND))


def latency(span: float | None, *, is_at_least: bool) -> str:
    """The same; ``>30.0 s`` if it is known only to be more than that."""
    return f">{seconds(span)}" if is_at_least else seconds(span)


def sparkline(values: Sequence[float | None], width: int) -> str:
    """The last ``width`` of them, as high as the largest is; a gap where nothing is known."""
    shown = list(values)[-width:] if width > 0 else []
    most = max((value for value in shown if value is not None), default=0.0)
    drawn = []
    for value in shown:
        if value is None:
            drawn.append(" ")
        elif most <= 0:
            drawn.append(_BARS[0])
        else:
            drawn.append(_BARS[min(len(_BARS) - 1, int(value / most * len(_BARS)))])
    return "".join(drawn).rjust(max(0, width))


def bar(share: float, width: int) -> str:
    """A part of a line, to an eighth of a letter."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[rest]


def _digits(number: float) -> str:
    if number < 9.995:
        return f"{number:.2f}"
    return f"{number:.1f}" if number < 99.95 else f"{number:.0f}"
