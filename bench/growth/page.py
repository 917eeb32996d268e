"""The page of a run: tables, pictures and what was found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from bench.growth import table, words
from bench.growth.curve import Axis, Grown
from bench.growth.plots import draw
from bench.growth.results import Results, Verdict

_FINDINGS = Path(__file__).with_name("findings.md")

_INTRODUCTION = """\
# Growth

What happens to the cost of each operation when there is more of something: messages, partitions, groups, bytes in a
message. The broker is a process of its own, the Python client another; topics have `fsync: interval`. Every figure is a
median of at least five samples.

A *slope* is the power of x that fits the curve best: 0 is constant, 1 is linear. Growing less than expected is fine;
more is marked **WORSE**. `make bench-growth` measures this again (minutes; `--quick` stops earlier), and all samples
are in [growth.json](growth.json)."""


def write_pages(axes: Sequence[Axis], results: Results, folder: Path) -> None:
    """``growth.md``, ``growth.json`` and the pictures of every axis that was measured."""
    folder.mkdir(parents=True, exist_ok=True)
    measured = [axis for axis in axes if results.grown(axis)]
    for axis in measured:
        draw(axis, results, folder)
    (folder / "growth.json").write_text(json.dumps(results.to_json(measured), indent=1) + "\n")
    (folder / "growth.md").write_text(page(measured, results))


def page(axes: Sequence[Axis], results: Results) -> str:
    verdicts = results.verdicts(axes)
    parts = [_INTRODUCTION, _conditions(results), "## Slopes", _slope_table(verdicts)]
    for axis in axes:
        parts += [f"## {axis.title}", axis.remark, _picture(axis), _value_table(axis, results.grown(axis))]
    parts += ["## What was found", _FINDINGS.read_text().strip()]
    return "\n\n".join(parts) + "\n"


def _conditions(results: Results) -> str:
    machine = results.machine
    return (
        f"Measured on {results.date}: {machine['processor']}, {machine['cpus']} processors, "
        f"{machine['memory_gib']:.0f} GiB, {machine['system']}, Python {machine['python']}; an fsync takes "
        f"{machine['disk_fsync_ms']} ms. The load average before was {machine['load_average_before']}."
    )


def _slope_table(verdicts: Sequence[Verdict]) -> str:
    return _markdown(table.TITLES, [(*row[:-1], f"**{row[-1]}**") for row in table.rows(verdicts)])


def _value_table(axis: Axis, curves: Sequence[Grown]) -> str:
    titles = [axis.x_title, *(grown.curve.title for grown in curves)]
    found: dict[int, list[str]] = {}
    for x in sorted({x for grown in curves for x in grown.xs}):
        found[x] = [words.count(x)]
        for grown in curves:
            at = [point.value for point in grown.points if point.x == x]
            shown = [words.amount(value, grown.curve.unit) for value in at]
            if grown.curve.of_x:
                shown = [f"{each} ({words.rate(x / value)})" for each, value in zip(shown, at, strict=True)]
            found[x].append("".join(shown))
    return _markdown(titles, list(found.values()))


def _picture(axis: Axis) -> str:
    return f"![{axis.title}: solid lines were measured, dashed ones have the expected slope](growth-{axis.key}.svg)"


def _markdown(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
