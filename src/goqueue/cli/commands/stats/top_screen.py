"""A live screen on a terminal: looks in the background, keys and drawing in front, and a terminal left as it was."""

from __future__ import annotations

import os
import select
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING

from goqueue.cli.terminal import progress
from goqueue.cli.terminal.failures import EXIT_INTERRUPTED, EXIT_NO_BROKER

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from goqueue.cli.commands.stats.top_view import Away, Watched
    from goqueue.cli.figures.figure_rates import Reading

_KEYS = "q quits   s sorts groups"
_LOOK_AROUND_S = 0.1
"""How soon a key and a change of the window's size are seen."""


def show(
    watched: Watched, look: Callable[[], Reading | Away], every_s: float, count: int | None, console: Console
) -> int:
    """Until ``q``, Ctrl-C, SIGTERM or ``count`` looks. A look may take its time: keys are answered meanwhile."""
    from rich.live import Live

    found: SimpleQueue[Reading | Away] = SimpleQueue()
    done = threading.Event()

    def keep_looking() -> None:
        while not done.wait(every_s):
            found.put(look())

    looks = 0
    drawn: tuple[object, ...] = ()
    with progress.stoppable() as stop, _keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        threading.Thread(target=keep_looking, daemon=True).start()
        try:
            while not stop.is_set():
                while not found.empty():
                    watched.saw(found.get())
                    looks += 1
                # The size is asked for each time: a signal would tell no more.
                now = (looks, console.size, watched.sort)
                if now != drawn:
                    live.update(_picture(watched, console), refresh=True)
                    drawn = now
                if count is not None and looks >= count:
                    return EXIT_NO_BROKER if watched.away else 0
                pressed = keys(_LOOK_AROUND_S)
                if pressed in ("q", "Q", None):
                    return 0
                if pressed in ("s", "S"):
                    watched.sort_by_next()
            return EXIT_INTERRUPTED
        finally:
            done.set()


def _picture(watched: Watched, console: Console) -> Text:
    from rich.text import Text

    from goqueue.cli.commands.stats.top_view import drawn

    width, height = console.size
    lines = drawn(watched, width, height, keys=f"{_KEYS}: by {watched.sort}")
    return Text("\n", no_wrap=True, overflow="crop").join(Text.assemble(*line) for line in lines)


@contextmanager
def _keys() -> Iterator[Callable[[float], str | None]]:
    """A function that waits for a key: empty if none came, ``None`` when the terminal is gone.

    Keys come one by one and are not shown. Ctrl-C stays what it is; Ctrl-Z would leave the screen to the shell half
    drawn, and does nothing.
    """
    if not sys.stdin.isatty():

        def wait(seconds: float) -> str | None:
            time.sleep(seconds)
            return ""

        yield wait
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def pressed(seconds: float) -> str | None:
        ready, _, _ = select.select([terminal], [], [], seconds)
        if not ready:
            return ""
        try:
            return os.read(terminal, 1).decode(errors="replace") or None
        except OSError:
            return None

    try:
        tty.setcbreak(terminal)
        ours = termios.tcgetattr(terminal)
        ours[6][termios.VSUSP] = b"\0"
        termios.tcsetattr(terminal, termios.TCSADRAIN, ours)
        yield pressed
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
