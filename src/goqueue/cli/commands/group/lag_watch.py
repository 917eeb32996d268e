"""Prints the lag of a group at intervals."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
import typer

from goqueue.cli.terminal import progress
from goqueue.cli.terminal.failures import EXIT_INTERRUPTED
from goqueue.model.errors import GoQueueError

FetchLag = Callable[[], list[dict[str, Any]]]
_WIDTH = 12


def watch(fetch_lag: FetchLag, pause_s: float, *, as_json: bool) -> int:
    """Print a line at each interval, until interrupted. ``change`` is the change of the lag per second.

    If the broker becomes unreachable, that is printed and it is tried again; a failure of the first call is raised.
    """
    last: tuple[float, int] | None = None
    with progress.stoppable() as stop:
        if not as_json:
            titles = ["time", "lag", "in flight", "given back", "change/s"]
            typer.echo("  ".join(title.ljust(_WIDTH) for title in titles).rstrip())
        while not stop.is_set():
            try:
                found, now = fetch_lag(), time.monotonic()
            except GoQueueError as error:
                if last is None or not error.retriable:
                    raise
                _print_unreachable(str(error), as_json=as_json)
                stop.wait(pause_s)
                continue
            lag, in_flight, waiting = (sum(each[name] for each in found) for name in ("lag", "in_flight", "waiting"))
            change = None if last is None else (lag - last[1]) / max(now - last[0], 1e-9)
            last = now, lag
            moment = datetime.now().astimezone()
            if as_json:
                record = {"time": moment.isoformat(), "lag": lag, "in_flight": in_flight, "waiting": waiting}
                typer.echo(msgspec.json.encode({**record, "change_per_second": change}))
            else:
                change_text = "" if change is None else f"{change:+,.1f}"
                cells = [moment.strftime("%H:%M:%S"), f"{lag:,}", f"{in_flight:,}", f"{waiting:,}", change_text]
                typer.echo("  ".join(cell.ljust(_WIDTH) for cell in cells).rstrip())
            stop.wait(pause_s)
    return EXIT_INTERRUPTED


def _print_unreachable(why: str, *, as_json: bool) -> None:
    moment = datetime.now().astimezone()
    if as_json:
        typer.echo(msgspec.json.encode({"time": moment.isoformat(), "away": why}))
    else:
        typer.echo(f"no answer at {moment:%H:%M:%S}, trying again: {why}", err=True)
