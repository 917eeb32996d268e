"""Chart of latencies over time: one panel per topic and group, one line per percentile.

With data of a single hour, percentiles are drawn as bars instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from goqueue.model.units import counted
from goqueue.spark.pipelines.definitions.problems import PipelineFailed

_MAX_PANELS = 6
_LINES = {"p50": ("#1b7f5c", "-"), "p95": ("#d98e04", "-"), "p99": ("#c0392b", "-"), "max": ("#7f8c8d", ":")}
_MIN_MS = 0.001
"""Lower limit of values, because a logarithmic scale has no zero."""

Panels = dict[tuple[str, str], list[list[Any]]]
"""By topic and group, per hour: the hour, the number of messages, and a value for each of ``_LINES``."""


def draw(path: str, rows: Sequence[Sequence[Any]]) -> None:
    """Draw the chart. ``rows``: topic, group, hour, messages, p50, p95, p99 and max in milliseconds."""
    # Not pyplot, which keeps every figure and may require a display.
    from matplotlib.figure import Figure

    panels = busiest(rows)
    hours = {line[0] for lines in panels.values() for line in lines}
    height = 1.2 + (1.8 if len(hours) == 1 else 2.8) * max(1, len(panels))
    figure = Figure(figsize=(10, height), layout="constrained")
    axes = figure.subplots(max(1, len(panels)), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    if len(hours) == 1:
        (hour,) = hours
        when = f"{hour:%Y-%m-%d, %H:%M} to {hour + timedelta(hours=1):%H:%M}"
        figure.suptitle(f"Publish-to-ack latency of what was published {when} (UTC)", fontsize=14)
        _bars(axes, panels)
    else:
        figure.suptitle("Publish-to-ack latency by hour of publishing (UTC)", fontsize=14)
        _lines(axes, panels)
    for axis, ((topic, group), lines) in zip(axes, panels.items(), strict=False):
        messages = counted(sum(line[1] for line in lines), "message")
        axis.set_title(f"topic {topic}, group {group}: {messages}", fontsize=11, loc="left")
    if not panels:
        axes[0].text(0.5, 0.5, "no message was acked", ha="center", va="center", transform=axes[0].transAxes)
        axes[0].set_axis_off()
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise PipelineFailed(f"chart: {path} cannot be written: {error}") from None


def _lines(axes: Any, panels: Panels) -> None:
    """Draw lines over the hours, on a logarithmic scale shared by all panels."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    every = [line[0] for lines in panels.values() for line in lines]
    values = [max(each, _MIN_MS) for lines in panels.values() for line in lines for each in line[2:]]
    # A minimum range, so that tiny differences do not look large.
    heights = (min(values, default=1) / 1.5, max(values, default=1) * 1.5)
    for axis, lines in zip(axes, panels.values(), strict=False):
        hours = [line[0] for line in lines]
        for column, (name, (colour, style)) in enumerate(_LINES.items(), start=2):
            heights_at = [max(line[column], _MIN_MS) for line in lines]
            axis.plot(hours, heights_at, style, color=colour, label=name, marker="o", markersize=4, linewidth=1.6)
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
        axis.yaxis.set_major_formatter(FuncFormatter(_format_ms))
        axis.yaxis.set_minor_formatter(NullFormatter())
        axis.set_ylabel("latency")
        axis.grid(visible=True, which="major", alpha=0.3)
        axis.set_ylim(*heights)
        margin = timedelta(minutes=30)
        axis.set_xlim(min(every) - margin, max(every) + margin)
        locator = AutoDateLocator(minticks=2, maxticks=12)  # type: ignore[no-untyped-call]
        axis.xaxis.set_major_locator(locator)
        axis.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    axes[-1].set_xlabel("hour (UTC)")


def _bars(axes: Any, panels: Panels) -> None:
    """Draw bars from zero, labelled with their values, since short ones are hard to read."""
    from matplotlib.ticker import FuncFormatter

    longest = max(line[-1] for lines in panels.values() for line in lines)
    for axis, ((_, *numbers),) in zip(axes, panels.values(), strict=False):
        bars = axis.barh(list(_LINES), numbers[1:], color=[colour for colour, _ in _LINES.values()], height=0.65)
        axis.bar_label(bars, labels=[_format_ms(float(f"{each:.4g}"), 0) for each in numbers[1:]], padding=4)
        axis.xaxis.set_major_formatter(FuncFormatter(_format_ms))
        axis.set_xlim(0, max(longest, _MIN_MS) * 1.12)
        axis.grid(visible=True, axis="x", alpha=0.3)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    # The y axis is shared by all panels, so invert it only once.
    axes[0].invert_yaxis()
    axes[-1].set_xlabel("latency")


def busiest(rows: Sequence[Sequence[Any]]) -> Panels:
    """The panels of the topics and groups with the most messages."""
    panels: Panels = {}
    for topic, group, hour, *numbers in rows:
        panels.setdefault((topic, group), []).append([datetime.strptime(hour, "%Y-%m-%d %H:%M"), *numbers])
    most = sorted(panels, key=lambda each: -sum(line[1] for line in panels[each]))[:_MAX_PANELS]
    return {each: panels[each] for each in sorted(most)}


def _format_ms(milliseconds: float, _: int) -> str:
    if milliseconds == 0:
        return "0"
    if milliseconds >= 1_000:
        return f"{milliseconds / 1_000:g} s"
    return f"{milliseconds:g} ms" if milliseconds >= 1 else f"{milliseconds * 1_000:g} µs"
