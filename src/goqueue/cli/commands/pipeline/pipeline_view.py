"""Formats pipelines: lists, plans, progress and summaries."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from goqueue.cli.terminal import tables
from goqueue.cli.terminal.output import Line
from goqueue.model.units import counted
from goqueue.observe.logs import escape
from goqueue.spark.pipelines.definitions.definition import Pipeline
from goqueue.spark.pipelines.definitions.settings import Settings
from goqueue.spark.pipelines.running.context import Context
from goqueue.spark.pipelines.running.progress import Progress
from goqueue.spark.pipelines.running.summary import Summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LINE_EVERY_S = 5.0
_DRAW_EVERY_S = 0.1


def list_lines(pipelines: Sequence[Pipeline]) -> Iterator[Line]:
    yield from tables.table(["pipeline", "what it does"], [[each.name, each.summary] for each in pipelines])


def settings_lines(pipeline: Pipeline) -> Iterator[Line]:
    yield [(pipeline.name, "bold"), (f"{tables.GAP}{escape(pipeline.summary)}", "")]
    rows = [
        [each.name, "must be set" if each.required else each.format(each.default) or "-", each.allowed(), each.doc]
        for each in pipeline.settings
    ]
    if rows:
        yield from tables.table(["setting", "unless set", "allowed", "what it is"], rows)
    else:
        yield [("nothing can be set on it", "dim")]


def pipeline_json(pipeline: Pipeline) -> dict[str, Any]:
    """The JSON output for one pipeline."""
    settings = [
        {
            "name": each.name,
            "kind": each.kind,
            "default": each.default,
            "required": each.required,
            "allowed": each.allowed(),
            "doc": each.doc,
        }
        for each in pipeline.settings
    ]
    return {"name": pipeline.name, "summary": pipeline.summary, "settings": settings}


def plan_lines(pipeline: Pipeline, settings: Settings, plan: Mapping[str, Any]) -> Iterator[Line]:
    yield [(pipeline.name, "bold"), (f"{tables.GAP}{escape(pipeline.summary)}".rstrip(), "")]
    width = max(map(len, plan), default=0)
    for title, steps in plan.items():
        many = isinstance(steps, list)
        for number, text in enumerate(steps if many else [steps]):
            label = title if number == 0 else ""
            label_number = f"{number + 1}. " if many else ""
            yield [(f"{tables.GAP}{label:{width}}{tables.GAP}", "dim"), (f"{label_number}{escape(str(text))}", "")]
    if settings:
        rows = [
            [name, settings.formatted(name) or "-", "set" if name in settings.given else "default"] for name in settings
        ]
        yield from tables.table(["setting", "value", "from"], rows)


def summary_lines(name: str, summary: Summary) -> Iterator[Line]:
    yield from tables.table([name, ""], [[title, _cell(value)] for title, value in summary.numbers.items()])
    for each in summary.tables:
        yield []
        yield [(each.title, "bold")]
        if each.rows:
            yield from tables.table(each.columns, [[_cell(cell) for cell in row] for row in each.rows])
        else:
            yield [("none", "dim")]
    if summary.files or summary.notes:
        yield []
    for file in summary.files:
        whole = file if "://" in file else str(Path(file).absolute())
        yield [("written: ", "dim"), (escape(whole), "")]
    for note in summary.notes:
        yield [(escape(note), "")]


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.4g}" if isinstance(value, float) and abs(value) < 1e4 else str(value)


class ProgressContext(Context):
    """Reports that Spark is starting, which takes long, and when it has started, so that the rest is the work
    itself."""

    def starting(self) -> None:
        self.tell(Progress(0, doing="starting Spark"))

    @cached_property
    def spark(self) -> SparkSession:
        session = super().spark
        if self.given_session is None:
            self.tell(Progress(0, doing="running"))
        return session


@contextmanager
def progress(name: str, out: TextIO) -> Iterator[Callable[[Progress], None]]:
    """A function that displays progress: on a terminal one line that is redrawn, elsewhere a line now and then."""
    if not out.isatty():
        yield _PlainProgress(name, out, time.monotonic)
        return
    from rich.console import Console

    # A duplicate of the terminal's descriptor: the original is redirected while Spark starts.
    with os.fdopen(os.dup(out.fileno()), "w", encoding="utf-8") as door:
        console = Console(file=door, highlight=False)
        status = console.status(f"{name}: starting", spinner="dots")
        last, doing = 0.0, ""

        def draw(report: Progress) -> None:
            nonlocal last, doing
            if report.doing != doing or time.monotonic() - last >= _DRAW_EVERY_S:
                last, doing = time.monotonic(), report.doing
                status.update(escape(progress_text(name, report)).replace("[", "\\["))

        with status:
            yield draw


class _PlainProgress:
    """Prints a line for the first report, for each new activity, and then every few seconds."""

    def __init__(self, name: str, out: TextIO, clock: Callable[[], float]) -> None:
        self._name = name
        self._out = out
        self._clock = clock
        self._last: float | None = None
        self._doing = ""

    def __call__(self, report: Progress) -> None:
        now = self._clock()
        begins = report.doing != self._doing and (report.done == 0 or not report.doing)
        if self._last is None or begins or now - self._last >= _LINE_EVERY_S:
            self._last = now
            self._doing = report.doing
            self._out.write(escape(progress_text(self._name, report)) + "\n")
            self._out.flush()


def progress_text(name: str, report: Progress) -> str:
    """Format progress as ``paid-orders: batch 3, 12,000 messages, 4,000/s, 100 behind``."""
    parts = [report.doing] if report.doing else []
    if report.batch is not None:
        parts.append(f"batch {report.batch}")
    if report.done or report.batch is not None:
        parts.append(counted(report.done, "message"))
    if report.rate:
        parts.append(f"{report.rate:,.0f}/s")
    if report.lag is not None:
        parts.append(f"{report.lag:,} behind")
    return f"{name}: {', '.join(parts)}"
