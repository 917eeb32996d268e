"""Numbers as people read them."""

from __future__ import annotations

from bench.growth.curve import Unit

_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_BYTES = ((1e9, "GB"), (1e6, "MB"), (1e3, "KB"), (1.0, "B"))


def amount(value: float, unit: Unit) -> str:
    """``0.00123`` seconds is ``1.23 ms``."""
    steps = _SECONDS if unit == "s" else _BYTES
    size, name = next((step for step in steps if value >= step[0] * 0.9995), steps[-1])
    return f"{value / size:.3g} {name}"


def rate(bytes_per_s: float) -> str:
    return f"{amount(bytes_per_s, 'bytes')}/s"


def count(x: float) -> str:
    """``10_000`` is ``10,000``."""
    return f"{x:,.0f}"


def slope(value: float | None) -> str:
    """Two digits; without a minus where it is none."""
    return "" if value is None else f"{round(value, 2) + 0.0:.2f}"
