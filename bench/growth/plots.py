"""One picture for each axis, both scales logarithmic: a slope of 1 is a line that rises by a decade in a decade."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.growth import words
from bench.growth.curve import Axis, Grown
from bench.growth.results import Results
from bench.growth.slopes import slopes

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c6d00", "#56b4e9")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_PANEL_INCHES = 5.2
_HEIGHT_INCHES = 4.6
_SUFFIXES = (".svg", ".png")
_TITLES = {"s": "time", "bytes": "memory"}


def draw(axis: Axis, results: Results, folder: Path) -> list[Path]:
    """``growth-AXIS.svg`` and ``.png``: a panel for each unit, and one for bytes a second where that can be told."""
    # Not pyplot: that keeps every figure, and may look for a screen.
    import matplotlib
    from matplotlib.figure import Figure

    curves = results.grown(axis)
    panels: list[tuple[list[Grown], Callable[[Any, Sequence[Grown]], None]]] = []
    for unit in ("s", "bytes"):
        of_unit = [each for each in curves if each.curve.unit == unit]
        if of_unit:
            panels.append((of_unit, _costs))
    of_x = [each for each in curves if each.curve.of_x]
    if of_x:
        panels.append((of_x, _rates))
    paths = [folder / f"growth-{axis.key}{suffix}" for suffix in _SUFFIXES]
    # The same data makes the same file.
    with matplotlib.rc_context({"svg.hashsalt": axis.key, "font.size": 10}):
        figure = Figure(figsize=(_PANEL_INCHES * len(panels), _HEIGHT_INCHES), layout="constrained")
        figure.suptitle(axis.title, fontsize=13)
        axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for panel, (shown, draw_panel) in zip(axes, panels, strict=True):
            draw_panel(panel, shown)
            _dress(panel, axis, has_references=draw_panel is _costs)
        for path in paths:
            figure.savefig(path, dpi=130, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths


def _costs(panel: Any, curves: Sequence[Grown]) -> None:
    unit = curves[0].curve.unit
    for number, grown in enumerate(curves):
        label = grown.curve.title
        if len(grown.points) > 1:
            label += f": slope {words.slope(slopes(grown).whole)}"
        _line(panel, number, grown.xs, grown.values, label)
        xs, reference = _reference(grown)
        panel.plot(xs, reference, "--", color=_COLOURS[number], linewidth=1, alpha=0.6)
    panel.set_ylabel(_TITLES[unit])
    _scale(panel, lambda value: words.amount(value, unit))


def _rates(panel: Any, curves: Sequence[Grown]) -> None:
    for number, grown in enumerate(curves):
        rates = [x / value for x, value in zip(grown.xs, grown.values, strict=True)]
        _line(panel, number, grown.xs, rates, grown.curve.title.partition(",")[0])
    panel.set_ylabel("throughput")
    _scale(panel, words.rate)


def _line(panel: Any, number: int, xs: Sequence[int], values: Sequence[float], label: str) -> None:
    panel.plot(xs, values, color=_COLOURS[number], marker=_MARKERS[number], markersize=5, linewidth=1.8, label=label)


def _reference(grown: Grown) -> tuple[list[int], list[float]]:
    """The slope that was expected. A constant begins where the curve does; what may grow ends where it does."""
    xs, values, expected = grown.xs, grown.values, grown.curve.expected
    place = -1 if expected > 0 else 0
    return xs, [values[place] * (x / xs[place]) ** expected for x in xs]


def _scale(panel: Any, shown: Callable[[float], str]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    panel.set_yscale("log")
    low, high = panel.get_ylim()
    # Never so narrow that a difference of nothing looks like much.
    if high / low < 100:
        middle = (low * high) ** 0.5
        low, high = middle / 10, middle * 10
    panel.set_ylim(low, high)
    panel.yaxis.set_major_locator(LogLocator(numticks=12))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _place: shown(value)))
    panel.yaxis.set_minor_formatter(NullFormatter())


def _dress(panel: Any, axis: Axis, *, has_references: bool) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    panel.set_xscale("log")
    panel.set_xlabel(axis.x_title)
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _place: words.count(value)))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.grid(visible=True, which="major", alpha=0.3)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.16),
        frameon=False,
        fontsize=9,
        title="dashed: the expected slope" if has_references else None,
        title_fontsize=9,
    )
