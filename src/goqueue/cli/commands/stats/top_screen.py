"""Live screen on a terminal: sampling in a background thread, drawing and keys in front. Restores the terminal's
state."""

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

    from goqueue.cli.commands.stats.top_view import ScreenState, Unreachable
    from goqueue.cli.figures.figure_rates import BrokerReading

_KEYS = "q quits   s sorts groups"
_KEY_WAIT_S = 0.1
"""The delay until a key or a change of the window's size is noticed."""


def show(
    screen_state: ScreenState,
    look: Callable[[], BrokerReading | Unreachable],
    every_s: float,
    count: int | None,
    console: Console,
) -> int:
    """Run until ``q``, Ctrl-C, SIGTERM or ``count`` samples. Keys are handled while a slow sample is taken."""
    from rich.live import Live

    found: SimpleQueue[BrokerReading | Unreachable] = SimpleQueue()
    done = threading.Event()

    def keep_looking() -> None:
        while not done.wait(every_s):
            found.put(look())

    looks = 0
    last_state: tuple[object, ...] = ()
    with progress.stoppable() as stop, _keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        threading.Thread(target=keep_looking, daemon=True).start()
        try:
            while not stop.is_set():
                while not found.empty():
                    screen_state.update(found.get())
                    looks += 1
                # Polled, because a signal for the size would bring nothing more.
                state = (looks, console.size, screen_state.sort)
                if state != last_state:
                    live.update(_screen_text(screen_state, console), refresh=True)
                    last_state = state
                if count is not None and looks >= count:
                    return EXIT_NO_BROKER if screen_state.away else 0
                pressed = keys(_KEY_WAIT_S)
                if pressed in ("q", "Q", None):
                    return 0
                if pressed in ("s", "S"):
                    screen_state.sort_by_next()
            return EXIT_INTERRUPTED
        finally:
            done.set()


def _screen_text(screen_state: ScreenState, console: Console) -> Text:
    from rich.text import Text

    from goqueue.cli.commands.stats.top_view import screen_lines

    width, height = console.size
    lines = screen_lines(screen_state, width, height, keys=f"{_KEYS}: by {screen_state.sort}")
    return Text("\n", no_wrap=True, overflow="crop").join(Text.assemble(*line) for line in lines)


@contextmanager
def _keys() -> Iterator[Callable[[float], str | None]]:
    """A function that waits for a key: empty if none came, ``None`` if the terminal is gone.

    Keys arrive unbuffered and without echo. Ctrl-C still interrupts; Ctrl-Z is disabled, because it would leave a half
    drawn screen to the shell.
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
