"""How far long work is: a bar on a terminal, nothing in a pipe. And how it is stopped: between two pieces of it.

The bar is drawn on standard error, so that results can be piped while it is shown.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType
from typing import Protocol

_LOOK_EVERY_S = 0.05


class Bar(Protocol):
    """Work that goes on."""

    def advance(self, amount: int = 1) -> None: ...

    def expect(self, total: int) -> None:
        """So much there is in all, by what is known now."""


class _NoBar:
    def advance(self, amount: int = 1) -> None:
        pass

    def expect(self, total: int) -> None:
        pass


@contextmanager
def shown(what: str, total: int | None = None, unit: str = "messages", *, is_wanted: bool = True) -> Iterator[Bar]:
    """``total`` is None if nobody knows how much there is: then the count and the rate are shown."""
    if not is_wanted or not sys.stderr.isatty():
        yield _NoBar()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TextColumn, TimeRemainingColumn
    from rich.text import Text

    from goqueue.cli.terminal import figure_words as words

    def amount(number: float) -> str:
        return words.size(number) if unit == "bytes" else f"{int(number):,}"

    def speed(number: float) -> str:
        return words.size(number) if unit == "bytes" else f"{number:,.0f} {unit}"

    class Rate(TextColumn):
        def render(self, task: Task) -> Text:
            total = "" if task.total is None else f" of {amount(task.total)}"
            rate = "" if not task.speed else f", {speed(task.speed)}/s"
            return Text(f"{amount(task.completed)}{total}{rate}")

    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), Rate(""), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)

        class Drawn:
            def advance(self, amount: int = 1) -> None:
                progress.advance(task, amount)

            def expect(self, total: int) -> None:
                progress.update(task, total=total)

        yield Drawn()


def remark(text: str) -> None:
    """A line on standard error; above the bar if one is shown, which ``sys.stderr`` knows of and typer does not."""
    sys.stderr.write(f"{text}\n")


class Stop(Event):
    """Set by a signal. Waiting for it takes no lock: the signal may come in the middle of that, in the same thread."""

    def wait(self, timeout: float | None = None) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.is_set():
            left = _LOOK_EVERY_S if deadline is None else deadline - time.monotonic()
            if left <= 0:
                break
            time.sleep(min(left, _LOOK_EVERY_S))
        return self.is_set()


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Ctrl-C and SIGTERM set the event; whoever works looks at it between two pieces. The second one ends it at once.

    To be used in the main thread.
    """
    stop = Stop()

    def told(number: int, _: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, told) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
