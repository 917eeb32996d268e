"""``goqueue top``: a broker at work, second by second.

What draws and what asks is imported when it is needed: asking for the version must not load it.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from goqueue.cli.connection.target import JsonOption, ServerOption, TimeoutOption, broker_at
from goqueue.cli.terminal.failures import EXIT_INTERRUPTED, EXIT_NO_BROKER, reported

if TYPE_CHECKING:
    from collections.abc import Callable

    from goqueue.cli.commands.stats.top_view import Away, Watched
    from goqueue.cli.connection.broker_http import BrokerHttp
    from goqueue.cli.figures.broker_figures import Look
    from goqueue.cli.figures.figure_rates import Reading

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
"""So much of the time the broker may be busy with what waits in lanes."""
_PLAIN_WIDTH = 100

EveryOption = Annotated[str, typer.Option("--every", metavar="TIME", help="How often to look: 100ms to 1h.")]
CountOption = Annotated[
    int | None, typer.Option("--count", min=1, max=_MOST_LOOKS, metavar="N", help="End after so many readings.")
]


class Watcher:
    """Looks at a broker again and again, and keeps the look before: rates are differences."""

    def __init__(self, broker: BrokerHttp) -> None:
        self._broker = broker
        self._last: Look | None = None
        self._lanes_at = 0.0

    def look(self) -> Reading | Away:
        """A broker that does not answer is away; the next look that succeeds goes on from the last one that did."""
        from goqueue.cli.commands.stats.top_view import Away
        from goqueue.cli.figures.broker_figures import lanes_of, look_at
        from goqueue.cli.figures.figure_rates import reading
        from goqueue.model.errors import GoQueueError
        from goqueue.model.units import format_instant_ns

        try:
            now = look_at(self._broker)
        except GoQueueError as error:
            return Away(str(error), format_instant_ns(time.time_ns()))
        began = time.monotonic()
        if began >= self._lanes_at:
            lanes = lanes_of(self._broker)
            self._lanes_at = began + (time.monotonic() - began) / _LANES_SHARE
        else:
            lanes = None if self._last is None else self._last.lanes
        before, self._last = self._last, now.with_lanes(lanes)
        return reading(before, self._last)


@reported
def top(
    every: EveryOption = "1s",
    count: CountOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
    timeout: TimeoutOption = _TIMEOUT,
) -> int:
    """Watch a broker: throughput, latency, lag, lanes, what is in flight.

    On a terminal this is a screen that is drawn anew; q or Ctrl-C ends it, s sorts groups by something else. Elsewhere
    it prints a snapshot for every look. Rates and latencies are those between two looks, so the first reading comes
    after the first interval. A broker that goes away is waited for.
    """
    from goqueue.cli.commands.stats.top_view import Watched
    from goqueue.cli.terminal.message_output import forget_output
    from goqueue.cli.terminal.times import duration_ms

    every_s = duration_ms("--every", every, least_ms=_SHORTEST_MS, most_ms=_LONGEST_MS) / 1_000
    broker = broker_at(server, timeout)
    watcher = Watcher(broker)
    watched = Watched(broker.server)
    # Whoever is not there from the beginning was perhaps called by a wrong name: no use in waiting for that.
    broker.get("/version")
    watched.saw(watcher.look())
    if sys.stdout.isatty() and not as_json:
        from rich.console import Console

        console = Console(highlight=False)
        if not console.is_dumb_terminal:
            from goqueue.cli.commands.stats.top_screen import show

            return show(watched, watcher.look, every_s, count, console)
    try:
        return _print_readings(watched, watcher.look, every_s, count, as_json=as_json)
    except BrokenPipeError:
        # Whoever reads has seen enough.
        forget_output()
        return 0


def _print_readings(
    watched: Watched, look: Callable[[], Reading | Away], every_s: float, count: int | None, *, as_json: bool
) -> int:
    from goqueue.cli.terminal import progress

    printed = 0
    with progress.stoppable() as stop:
        while count is None or printed < count:
            # From the end of the look before: a slow one would else be followed by one that has no time to measure in.
            if stop.wait(every_s):
                return EXIT_INTERRUPTED
            watched.saw(look())
            _print(watched, as_json=as_json, is_first=printed == 0)
            printed += 1
    return EXIT_NO_BROKER if watched.away else 0


def _print(watched: Watched, *, as_json: bool, is_first: bool) -> None:
    import msgspec

    from goqueue.cli.commands.stats.top_view import clock, drawn
    from goqueue.cli.terminal import styled_lines

    if as_json:
        away = {"at": watched.away_at, "away": watched.away, "away_since": watched.away_since}
        typer.echo(msgspec.json.encode(away if watched.away else watched.reading).decode())
        return
    if watched.away:
        typer.echo(f"no answer since {clock(watched.away_since)}, trying again: {watched.away}", err=True)
        return
    height = 1_000_000
    text = drawn(watched, _PLAIN_WIDTH, height)
    styled_lines.put(text if is_first else [[], *text])
