"""``goqueue top``: a live view of a broker."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from goqueue.cli.connection.target import JsonOption, ServerOption, TimeoutOption, broker_at
from goqueue.cli.terminal import progress
from goqueue.cli.terminal.failures import EXIT_INTERRUPTED, EXIT_NO_BROKER, reported
from goqueue.cli.terminal.output import discard_output, print_lines
from goqueue.cli.terminal.times import duration_ms
from goqueue.model.errors import GoQueueError
from goqueue.model.units import format_instant_ns

if TYPE_CHECKING:
    from collections.abc import Callable

    from goqueue.cli.commands.stats.top_view import ScreenState, Unreachable
    from goqueue.cli.connection.broker_http import BrokerHttp
    from goqueue.cli.figures.broker_figures import Sample
    from goqueue.cli.figures.figure_rates import BrokerReading

EXAMPLES = """\b
Examples:
  goqueue top --count 1                       watch a broker; q ends it, or so many looks do
  goqueue top --every 500ms --count 1 | cat   a snapshot as text, for a script
  goqueue top --every 200ms --count 2 --json  the same as JSON; one object a line for every look
"""

_TIMEOUT = "5s"
_SHORTEST_MS, _LONGEST_MS = 100, 3_600_000
_MOST_LOOKS = 1_000_000
_LANES_SHARE = 0.05
"""The share of time that the broker may spend on computing lanes."""
_PLAIN_WIDTH = 100

EveryOption = Annotated[str, typer.Option("--every", metavar="TIME", help="The interval: 100ms to 1h.")]
CountOption = Annotated[
    int | None, typer.Option("--count", min=1, max=_MOST_LOOKS, metavar="N", help="End after this many readings.")
]


class Sampler:
    """Samples a broker repeatedly, and keeps the last sample, because rates are differences."""

    def __init__(self, broker: BrokerHttp) -> None:
        self._broker = broker
        self._last: Sample | None = None
        self._lanes_at = 0.0

    def take_sample(self) -> BrokerReading | Unreachable:
        """Take a sample. A failure is returned as ``Unreachable``; the next success is compared with the last one."""
        from goqueue.cli.commands.stats.top_view import Unreachable
        from goqueue.cli.figures.broker_figures import fetch_lanes, take_sample
        from goqueue.cli.figures.figure_rates import compute_reading

        try:
            now = take_sample(self._broker)
        except GoQueueError as error:
            return Unreachable(str(error), format_instant_ns(time.time_ns()))
        began = time.monotonic()
        if began >= self._lanes_at:
            lanes = fetch_lanes(self._broker)
            self._lanes_at = began + (time.monotonic() - began) / _LANES_SHARE
        else:
            lanes = None if self._last is None else self._last.lanes
        before, self._last = self._last, now.with_lanes(lanes)
        return compute_reading(before, self._last)


@reported
def top(
    every: EveryOption = "1s",
    count: CountOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
    timeout: TimeoutOption = _TIMEOUT,
) -> int:
    """Watch a broker: throughput, latency, lag, lanes, messages in flight.

    On a terminal this is a live screen; q or Ctrl-C ends it, s changes the order of groups. Elsewhere it prints a
    snapshot at each interval. Rates and latencies are those of the last interval, so the first reading comes after the
    first interval. If the broker becomes unreachable, it is tried again.
    """
    from goqueue.cli.commands.stats.top_view import ScreenState

    every_s = duration_ms("--every", every, least_ms=_SHORTEST_MS, most_ms=_LONGEST_MS) / 1_000
    broker = broker_at(server, timeout)
    sampler = Sampler(broker)
    screen = ScreenState(broker.server)
    # A broker that does not answer the first call may be a wrong address: fail instead of trying again.
    broker.get("/version")
    screen.update(sampler.take_sample())
    if sys.stdout.isatty() and not as_json:
        from rich.console import Console

        console = Console(highlight=False)
        if not console.is_dumb_terminal:
            from goqueue.cli.commands.stats.top_screen import show

            return show(screen, sampler.take_sample, every_s, count, console)
    try:
        return _print_readings(screen, sampler.take_sample, every_s, count, as_json=as_json)
    except BrokenPipeError:
        # The reader of the pipe has closed it.
        discard_output()
        return 0


def _print_readings(
    screen: ScreenState,
    look: Callable[[], BrokerReading | Unreachable],
    every_s: float,
    count: int | None,
    *,
    as_json: bool,
) -> int:
    printed = 0
    with progress.stoppable() as stop:
        while count is None or printed < count:
            # The interval starts when the last sample ends: after a slow one there would be no time left to measure.
            if stop.wait(every_s):
                return EXIT_INTERRUPTED
            screen.update(look())
            _print(screen, as_json=as_json, is_first=printed == 0)
            printed += 1
    return EXIT_NO_BROKER if screen.away else 0


def _print(screen: ScreenState, *, as_json: bool, is_first: bool) -> None:
    import msgspec

    from goqueue.cli.commands.stats.top_view import clock, screen_lines

    if as_json:
        away = {"at": screen.away_at, "away": screen.away, "away_since": screen.away_since}
        typer.echo(msgspec.json.encode(away if screen.away else screen.reading).decode())
        return
    if screen.away:
        typer.echo(f"no answer since {clock(screen.away_since)}, trying again: {screen.away}", err=True)
        return
    height = 1_000_000
    text = screen_lines(screen, _PLAIN_WIDTH, height)
    print_lines(text if is_first else [[], *text])
