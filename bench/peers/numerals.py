"""Numbers for people: as many digits as repetitions agree on, no more."""

from __future__ import annotations

from bench.peers.summary import Runs

_DIGITS = 3
_FEW = 10
_WHOLE = 100
_WHOLE_IN_CHARTS = 10_000
_MILLION = 1e6
NOTHING = "–"


def significant(number: float) -> str:
    """Three digits that mean something: 1,230,000, 12.3, 0.123."""
    if number == 0:
        return "0"
    kept = float(f"{number:.{_DIGITS}g}")
    if abs(kept) >= 1:
        return f"{kept:,.{max(_DIGITS - len(str(int(abs(kept)))), 0)}f}"
    # Less than a microsecond is below what the clocks tell.
    return f"{kept:.3f}"


def with_spread(found: Runs | None) -> str:
    """The median ± half of the range, if there are several."""
    if found is None:
        return NOTHING
    if len(found.values) == 1:
        return significant(found.median)
    half = float(f"{found.half_range:.2g}")
    return f"{significant(found.median)} ± {f'{half:,.0f}' if found.median >= _WHOLE else significant(half)}"


def short(number: float) -> str:
    """For a label in a chart: 1.23 M, 312 k, 2,850."""
    if number >= _WHOLE_IN_CHARTS:
        return f"{number / 1e6:.3g} M" if number >= _MILLION else f"{number / 1e3:.3g} k"
    return f"{float(f'{number:.3g}'):,.0f}"


def ratio(times: float) -> str:
    """How many times as good: 12.3×, 1.84×, 0.61×."""
    return f"{times:,.2f}×" if times < _FEW else f"{significant(times)}×"


def counted(number: int, thing: str) -> str:
    """1 repetition, 5 repetitions."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
