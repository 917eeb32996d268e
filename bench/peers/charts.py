"""A run as pictures: bars of throughput, and what share of the messages waited how long at most."""

from __future__ import annotations

import math
import re
import textwrap
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.peers.numerals import short
from bench.peers.results import SHARES, Results, Subject
from bench.peers.summary import RATE, RATED, WAITED, Asked, runs
from bench.peers.work import Durability, Work

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

_COLOURS = {
    "goqueue": "#3949ab",
    "kafka": "#767676",
    "nats": "#009e73",
    "rabbitmq_quorum": "#e69f00",
    "rabbitmq_stream": "#d55e00",
    "redis": "#cc79a7",
}
"""Told apart by people who do not see all colours. Lines differ in their dashes as well."""
_DASHES = {
    "goqueue": "-",
    "kafka": (0, (5, 2)),
    "nats": (0, (1, 1)),
    "rabbitmq_quorum": (0, (4, 1, 1, 1)),
    "rabbitmq_stream": (0, (6, 1, 1, 1, 1, 1)),
    "redis": (0, (3, 1)),
}
_OTHER_COLOUR = "#56b4e9"
_TEXT = "#24292f"
_QUIET = "#6e7781"
_GRID = "#d8dee4"
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "goqueue",
    "svg.fonttype": "path",
    "font.size": 12,
    "text.color": _TEXT,
    "axes.labelcolor": _TEXT,
    "axes.edgecolor": _QUIET,
    "xtick.color": _TEXT,
    "ytick.color": _TEXT,
}
_WIDTH_IN = 13.0
_DPI = 110
_LABEL_CHARACTERS = 38
_PNG_COLOURS = 96
_LONG_NUMBER = re.compile(r"-?\d+\.\d{4,}")
_SHORTEST_MS = 0.01
_SHOWN_SHARE = 0.999
_SHARE_TICKS = (0.0, 0.5, 0.9, 0.99, 0.999)
_ABOUT = {
    Work.SINGLE: "until the acknowledgement",
    Work.LATENCY: "from when it was due to be sent to its arrival",
    Work.DELAY: "later than asked for",
}


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture that was written twice: ``name.svg`` and ``name.png``."""

    name: str
    durability: Durability
    title: str


def draw_charts(results: Results, into: Path) -> list[Chart]:
    """Write them all; the same results give the same bytes. Needs matplotlib."""
    import matplotlib as mpl

    charts: list[Chart] = []
    with mpl.rc_context(_STYLE):
        for durability in results.durabilities:
            plain = durability.replace(" ", "-")
            if rated := _done(results, durability, RATED):
                title = f"Throughput, {durability}"
                charts.append(Chart(f"throughput-{plain}", durability, title))
                _write(_bars(results, durability, rated, title), into / charts[-1].name)
            if waited := _done(results, durability, WAITED):
                title = f"Waits, {durability}"
                charts.append(Chart(f"waits-{plain}", durability, title))
                _write(_curves(results, durability, waited, title), into / charts[-1].name)
    return charts


def _done(results: Results, durability: Durability, works: tuple[Work, ...]) -> list[Work]:
    done = {piece.work for piece in results.pieces if piece.durability is durability}
    return [work for work in works if work in done]


def _write(figure: Figure, path: Path) -> None:
    from PIL import Image

    # Once for both: finding places for everything takes longer than drawing it.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    written = BytesIO()
    figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    path.with_suffix(".svg").write_text(_smaller(written.getvalue().decode()))
    written = BytesIO()
    figure.savefig(written, format="png", dpi=_DPI)
    # A few dozen colours are enough for flat areas and the edges of letters, and take a third of the room.
    Image.open(written).convert("RGB").quantize(_PNG_COLOURS).save(path.with_suffix(".png"), optimize=True)


def _smaller(svg: str) -> str:
    """The same picture in two thirds of the room: hundredths of a point are as fine as any screen shows."""
    svg = re.sub(r"<!DOCTYPE.*?>\s*|<metadata>.*?</metadata>\s*|<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(
        r'( d| x| y|transform)="(?!scale)[^"]*"',
        lambda found: _LONG_NUMBER.sub(lambda number: f"{float(number[0]):.2f}", found[0]),
        svg,
    )
    # Groups need no names, letters only short ones, and marks of axes bring their style along.
    svg = re.sub(r'<g id="[^"]*"', "<g", svg).replace("DejaVuSans", "f")
    svg = re.sub(r'(<use xlink:href="#m[^>]*?) style="[^"]*"', r"\1", svg)
    return "\n".join(line.strip() for line in svg.splitlines()) + "\n"


def _panels(rows: int, columns: int, height_in: float, title: str) -> tuple[Figure, list[list[Axes]]]:
    # Without pyplot: nothing is global, and no screen is looked for.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08, wspace=0.03, hspace=0.04)
    figure = Figure(figsize=(_WIDTH_IN, height_in), facecolor="white", layout=layout)
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=16, fontweight="bold")
    axes = figure.subplots(rows, columns, squeeze=False)
    for each in axes.flat:
        each.spines[["top", "right"]].set_visible(False)
        each.set_axisbelow(True)
    return figure, axes.tolist()


def _bars(results: Results, durability: Durability, works: list[Work], title: str) -> Figure:
    subjects = results.measured(durability)
    sizes = results.sizes
    height_in = 1.5 + len(sizes) * (1.15 + 0.4 * len(subjects))
    figure, axes = _panels(len(sizes), len(works), height_in, f"{title}: messages a second, more is better")
    for row, size in enumerate(sizes):
        for column, work in enumerate(works):
            panel = axes[row][column]
            _bar_panel(panel, results, subjects, Asked(durability, work, size))
            panel.set_title(f"{work}\n{size:,} B", fontsize=13)
            panel.set_yticks(range(len(subjects)), [each.name for each in subjects] if column == 0 else [])
            panel.tick_params(axis="y", length=0, labelsize=13)
    figure.supxlabel("Bars: the median. Thin lines: from the lowest to the highest repetition.", fontsize=11)
    return figure


def _bar_panel(panel: Axes, results: Results, subjects: list[Subject], asked: Asked) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    longest = 0.0
    for place, subject in enumerate(subjects):
        found = runs(results, subject.key, asked, RATE)
        if found is None:
            panel.text(0, place, "  not measured", va="center", fontsize=11, color=_QUIET, style="italic")
            continue
        low, high = min(found.values), max(found.values)
        longest = max(longest, high)
        panel.barh(place, found.median, height=0.68, color=_COLOURS.get(subject.key, _OTHER_COLOUR))
        for width, colour in ((3.4, "white"), (1.4, _TEXT)):
            panel.plot([low, high], [place, place], color=colour, linewidth=width, solid_capstyle="butt")
        weight = "bold" if subject.key == "goqueue" else "normal"
        panel.annotate(
            short(found.median),
            (high, place),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=12,
            fontweight=weight,
        )
    # Room for the labels behind the bars; bars begin at 0, so that their lengths compare.
    panel.set_xlim(0, (longest or 1) * 1.36)
    panel.set_ylim(len(subjects) - 0.5, -0.5)
    panel.xaxis.set_major_locator(MaxNLocator(3))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda rate, _: short(rate) if rate else "0"))
    panel.tick_params(axis="x", labelsize=11)
    panel.grid(axis="x", color=_GRID, linewidth=0.8)


def _curves(results: Results, durability: Durability, works: list[Work], title: str) -> Figure:
    from matplotlib.lines import Line2D

    subjects = results.measured(durability)
    sizes = results.sizes
    heading = f"{title}: what share of the messages waited so long at most, further left is better"
    figure, axes = _panels(len(sizes), len(works), 1.6 + 3.4 * len(sizes), heading)
    for column, work in enumerate(works):
        for row, size in enumerate(sizes):
            panel = axes[row][column]
            _curve_panel(panel, results, subjects, Asked(durability, work, size))
            panel.set_title(f"{work}, {size:,} B", fontsize=13)
            if row == len(sizes) - 1:
                panel.set_xlabel(f"ms {_ABOUT[work]}\n{_absent(results, subjects, durability, work)}", fontsize=12)
        _share_x([axes[row][column] for row in range(len(sizes))])
    figure.legend(
        handles=[Line2D([], [], label=each.name, **_line(each.key)) for each in subjects],
        loc="outside lower center",
        ncols=max(len(subjects), 1),
        frameon=False,
        fontsize=13,
        handlelength=3,
    )
    return figure


def _absent(results: Results, subjects: list[Subject], durability: Durability, work: Work) -> str:
    done = {piece.system for piece in results.pieces if (piece.durability, piece.work) == (durability, work)}
    names = [subject.name for subject in subjects if subject.key not in done]
    return textwrap.fill(f"(not measured: {', '.join(names)})", _LABEL_CHARACTERS) if names else ""


def _line(system: str) -> dict[str, Any]:
    return {
        "color": _COLOURS.get(system, _OTHER_COLOUR),
        "linestyle": _DASHES.get(system, "-"),
        "linewidth": 2.8 if system == "goqueue" else 2.0,
        "zorder": 3 if system == "goqueue" else 2,
    }


def _curve_panel(panel: Axes, results: Results, subjects: list[Subject], asked: Asked) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

    shares = [share for share in SHARES if share <= _SHOWN_SHARE]
    for subject in subjects:
        pieces = results.of(subject.key, asked.durability, asked.work, asked.size)
        if not pieces:
            continue
        waits = [max(median(piece.wait_ms(share) for piece in pieces), _SHORTEST_MS) for share in shares]
        panel.plot(waits, shares, **_line(subject.key))
    panel.set_xscale("log")
    # As much room for the slowest tenth as for the nine before it, and for the slowest hundredth again.
    panel.set_yscale("function", functions=(_stretched, _unstretched))
    panel.set_ylim(0, _SHOWN_SHARE)
    panel.yaxis.set_major_locator(FixedLocator(_SHARE_TICKS))
    panel.yaxis.set_minor_locator(NullLocator())
    panel.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share * 100:.4g} %"))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda wait, _: f"{wait:g}"))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.tick_params(labelsize=12)
    panel.grid(color=_GRID, linewidth=0.8)


def _share_x(panels: list[Axes]) -> None:
    """Panels of one kind of work have one scale of whole decades: sizes are compared by looking down."""
    low = math.floor(math.log10(min(panel.dataLim.x0 for panel in panels)))
    high = math.ceil(math.log10(max(panel.dataLim.x1 for panel in panels)))
    for panel in panels:
        panel.set_xlim(10.0**low, 10.0 ** max(high, low + 1))


def _stretched(share: NDArray[np.float64]) -> NDArray[np.float64]:
    return -np.log10(np.maximum(1 - np.asarray(share), 1e-6))


def _unstretched(height: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 - 10.0 ** -np.asarray(height)
