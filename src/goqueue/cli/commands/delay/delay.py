"""``goqueue delay``: lists, reschedules and cancels delayed messages."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goqueue.cli.commands.delay import delay_view
from goqueue.cli.connection.confirmation import confirmed
from goqueue.cli.connection.target import BrokerOptions, TopicArgument, YesOption, on_broker
from goqueue.cli.terminal import progress
from goqueue.cli.terminal.failures import EXIT_FAILED, EXIT_INTERRUPTED
from goqueue.cli.terminal.message_text import row_fields
from goqueue.cli.terminal.output import JsonList, print_json, print_lines
from goqueue.cli.terminal.plain_help import command_group
from goqueue.cli.terminal.times import duration_ms, instant_ns
from goqueue.model.errors import GoQueueError
from goqueue.model.fields import shown
from goqueue.model.units import format_instant_ns
from goqueue.observe.logs import escape

if TYPE_CHECKING:
    from goqueue.cli.commands.delay.delay_calls import Position
    from goqueue.cli.connection.broker_http import BrokerHttp

_EXAMPLES = """\b
Examples:
  goqueue delay list orders                        what waits, the next due first
  goqueue delay list orders --limit 100 --json
  goqueue delay cancel orders --all --yes          take back all that waits
"""
_RESCHEDULE_EXAMPLES = """\b
Examples:
  goqueue delay reschedule orders 0 17 --delay 2h
  goqueue delay reschedule orders 0 17 --at "2026-01-31 12:00"
"""
_CANCEL_EXAMPLES = """\b
Messages that are named are taken back without asking; --all asks first.

\b
Examples:
  goqueue delay cancel orders 0 17                 one message, by its partition and offset
  goqueue delay cancel orders 0 17 2 40            and another one
  goqueue delay cancel orders --all --yes
"""
_MOST = 1_000
_PAGE = 1_000
_MOST_NAMED = 1_000
_LONGEST_MS = 170 * 365 * 86_400_000
_NUMBER = re.compile(r"[0-9]{1,18}")

LimitOption = Annotated[
    int, typer.Option("--limit", min=1, max=_MOST, metavar="N", help="How many messages at the most.")
]
PlacesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="PARTITION OFFSET", help="Which messages, as 'list' shows them.", show_default=False),
]
PartitionArgument = Annotated[int, typer.Argument(metavar="PARTITION", min=0, show_default=False)]
OffsetArgument = Annotated[int, typer.Argument(metavar="OFFSET", min=0, show_default=False)]
AllOption = Annotated[bool, typer.Option("--all", help="All delayed messages of the topic.")]
DelayOption = Annotated[str | None, typer.Option("--delay", metavar="TIME", help="Deliver it this long from now,")]
AtOption = Annotated[
    str | None, typer.Option("--at", metavar="INSTANT", help="or at 2026-01-31T12:00:00 (local time, or with a zone).")
]

app = command_group("List delayed messages, reschedule or cancel them.", _EXAMPLES)


@app.command("list")
@on_broker
def list_delayed(options: BrokerOptions, topic: TopicArgument, limit: LimitOption = 20) -> int:
    """List the delayed messages of a topic, the next due first."""
    from goqueue.cli.commands.delay.delay_calls import fetch_values

    broker = options.broker()
    answer = broker.send("GET", ["topics", topic, "delayed"], {"limit": limit})
    listed, total = answer["messages"], answer["total"]
    document = JsonList("messages")
    rows: list[dict[str, Any]] = []
    seen = 0
    with (
        progress.stoppable() as stop,
        progress.progress_bar("looking", len(listed), is_enabled=not options.as_json) as bar,
    ):
        try:
            for batch in fetch_values(broker, topic, listed, stop):
                if options.as_json:
                    document.add(batch)
                else:
                    rows += map(row_fields, batch)
                seen += len(batch)
                bar.advance(len(batch))
        except GoQueueError:
            if document.is_begun:
                document.end({"total": total})
            raise
    if options.as_json:
        document.end({"total": total})
    elif rows:
        print_lines(delay_view.delayed_table(rows, time.time_ns()))
    elif not listed:
        typer.echo("nothing waits", err=True)
    if seen < len(listed):
        typer.echo("stopped; there are more", err=True)
        return EXIT_INTERRUPTED
    if total > seen and not options.as_json:
        typer.echo(f"{total - seen:,} more; --limit shows more of them", err=True)
    return 0


@app.command(epilog=_CANCEL_EXAMPLES)
@on_broker
def cancel(
    options: BrokerOptions,
    topic: TopicArgument,
    places: PlacesArgument = None,
    everything: AllOption = False,
    yes: YesOption = False,
) -> int:
    """Cancel delayed messages: they are never delivered."""
    broker = options.broker()
    if everything:
        if places:
            raise typer.BadParameter("all of them, or those that are named; not both", param_hint="--all")
        return _cancel_all(options, broker, topic, yes)
    return _cancel_named(broker, topic, _parse_positions(places or []), as_json=options.as_json)


@app.command(epilog=_RESCHEDULE_EXAMPLES)
@on_broker
def reschedule(
    options: BrokerOptions,
    topic: TopicArgument,
    partition: PartitionArgument,
    offset: OffsetArgument,
    delay: DelayOption = None,
    at: AtOption = None,
) -> int:
    """Reschedule a delayed message, to an earlier or later time."""
    from goqueue.cli.commands.delay.delay_calls import delayed_path

    if (delay is None) == (at is None):
        raise typer.BadParameter("say when it is to be seen: --delay TIME or --at INSTANT")
    if delay is not None:
        body = {"delay": f"{duration_ms('--delay', delay, most_ms=_LONGEST_MS)}ms"}
    else:
        body = {"deliverAt": format_instant_ns(instant_ns("--at", at or ""))}
    moved = options.broker().send("PATCH", delayed_path(topic, partition, offset), body=body)
    return options.show(moved, f"it is due {delay_view.due_text(moved['deliver_at'], time.time_ns())}")


def _parse_positions(texts: list[str]) -> list[Position]:
    """Parse pairs of a partition and an offset."""
    if not texts or len(texts) % 2:
        raise typer.BadParameter(
            "name messages by partition and offset, such as 0 17, or take --all", param_hint="PARTITION OFFSET"
        )
    for text in texts:
        if not _NUMBER.fullmatch(text):
            raise typer.BadParameter(f"{shown(text)} is not a number from 0 on", param_hint="PARTITION OFFSET")
    if len(texts) > 2 * _MOST_NAMED:
        raise typer.BadParameter(f"at most {_MOST_NAMED} messages at a time", param_hint="PARTITION OFFSET")
    numbers = [int(text) for text in texts]
    return list(dict.fromkeys(zip(numbers[::2], numbers[1::2], strict=True)))


def _cancel_named(broker: BrokerHttp, topic: str, positions: list[Position], *, as_json: bool) -> int:
    """Cancel messages by offset. Missing ones are reported and the others cancelled; an unknown partition fails
    first."""
    from goqueue.cli.commands.delay.delay_calls import cancel_each, check_partitions, raise_failure

    check_partitions(broker, topic, positions)
    done: list[tuple[Position, GoQueueError | None]] = []
    with (
        progress.stoppable() as stop,
        progress.progress_bar("taking back", len(positions), is_enabled=not as_json) as bar,
    ):
        for batch in cancel_each(broker, topic, positions, stop):
            done += batch
            bar.advance(len(batch))
    if len(positions) == 1 and done and done[0][1] is not None:
        raise done[0][1]
    good = sum(1 for _, error in done if error is None)
    if as_json:
        print_json({"cancelled": good, "results": [delay_view.outcome_json(*each) for each in done]})
    else:
        if good < len(done):
            print_lines(delay_view.failures_table(done))
        typer.echo(f"{good} taken back")
    raise_failure([error for _, error in done])
    if len(done) < len(positions):
        typer.echo(f"stopped; {len(positions) - len(done)} wait as before", err=True)
        return EXIT_INTERRUPTED
    return EXIT_FAILED if good < len(done) else 0


def _cancel_all(options: BrokerOptions, broker: BrokerHttp, topic: str, yes: bool) -> int:
    from goqueue.cli.commands.delay.delay_calls import cancel_each, raise_failure

    total = broker.send("GET", ["topics", topic, "delayed"], {"limit": 1})["total"]
    if total and not confirmed(f"Take back all {total:,} messages that wait in {escape(topic)}?", yes, options):
        return EXIT_FAILED
    good = 0
    failure: GoQueueError | None = None
    with (
        progress.stoppable() as stop,
        progress.progress_bar("taking back", total, is_enabled=not options.as_json) as bar,
    ):
        try:
            for positions in _pending_pages(broker, topic):
                for batch in cancel_each(broker, topic, positions, stop):
                    good += sum(1 for _, error in batch if error is None)
                    bar.advance(len(batch))
                    raise_failure([error for _, error in batch])
                if stop.is_set():
                    break
        except GoQueueError as error:
            failure = error
        was_stopped = stop.is_set()
    if options.as_json:
        print_json({"cancelled": good})
    else:
        typer.echo(f"{good:,} taken back" if total else "nothing waits", err=not total)
    if failure is not None:
        typer.echo("it broke off; the same command goes on with the rest", err=True)
        raise failure
    if was_stopped:
        typer.echo("stopped; the rest waits as before, and the same command goes on with it", err=True)
        return EXIT_INTERRUPTED
    return 0


def _pending_pages(broker: BrokerHttp, topic: str) -> Iterator[list[Position]]:
    """Positions of the delayed messages page by page, the next due first."""
    after = ""
    while True:
        parameters: dict[str, str | int] = {"limit": _PAGE} | ({"after": after} if after else {})
        page = broker.send("GET", ["topics", topic, "delayed"], parameters)
        yield [(each["partition"], each["offset"]) for each in page["messages"]]
        after = page.get("next", "")
        if not after:
            return
