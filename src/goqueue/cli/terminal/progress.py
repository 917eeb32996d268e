"""Progress bars for long work, and stopping it between two steps.

A bar is drawn only on a terminal, and on standard error, so that results can be piped while it is shown.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event

from goqueue.cli.terminal import figure_words

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_CHECK_EVERY_S = 0.05


class Bar:
    """A progress bar; this one shows nothing."""

    def advance(self, amount: int = 1) -> None:
        pass

    def expect(self, total: int) -> None:
        """Set the total, as far as it is known now."""


@contextmanager
def progress_bar(
    title: str, total: int | None = None, unit: str = "messages", *, is_enabled: bool = True
) -> Iterator[Bar]:
    """Show a progress bar for the duration of the block. Without ``total`` it shows the count and the rate."""
    if not is_enabled or not sys.stderr.isatty():
        yield Bar()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TextColumn, TimeRemainingColumn
    from rich.text import Text

    def amount(number: float) -> str:
        return figure_words.size(number) if unit == "bytes" else f"{int(number):,}"

    def speed(number: float) -> str:
        return figure_words.size(number) if unit == "bytes" else f"{number:,.0f} {unit}"

    class Rate(TextColumn):
        def render(self, task: Task) -> Text:
            total = "" if task.total is None else f" of {amount(task.total)}"
            rate = "" if not task.speed else f", {speed(task.speed)}/s"
            return Text(f"{amount(task.completed)}{total}{rate}")

    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), Rate(""), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total)

        class Drawn(Bar):
            def advance(self, amount: int = 1) -> None:
                progress.advance(task, amount)

            def expect(self, total: int) -> None:
                progress.update(task, total=total)

        yield Drawn()


def print_notice(text: str) -> None:
    """Print a line on standard error. It uses ``sys.stderr``, which a progress bar redirects to print above itself;
    ``typer.echo`` would write into the bar."""
    sys.stderr.write(f"{text}\n")


class Stop(Event):
    """An event set by a signal handler. ``wait`` takes no lock, because the signal may arrive during it in the same
    thread."""

    def wait(self, timeout: float | None = None) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.is_set():
            left = _CHECK_EVERY_S if deadline is None else deadline - time.monotonic()
            if left <= 0:
                break
            time.sleep(min(left, _CHECK_EVERY_S))
        return self.is_set()


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Set an event on Ctrl-C or SIGTERM, which the work checks between two steps; a second signal raises
    ``KeyboardInterrupt``.

    Use it in the main thread only.
    """
    stop = Stop()

    def on_signal(*_: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    with handling_stop_signals(on_signal):
        yield stop


@contextmanager
def handling_stop_signals(handler: Callable[..., None]) -> Iterator[None]:
    """Call ``handler`` on Ctrl-C and SIGTERM in this block. Use it in the main thread only."""
    before = {number: signal.signal(number, handler) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
