"""``goqueue dlq``: lists, shows and redrives dead letters."""

from __future__ import annotations

import re
import time
from typing import Annotated, Any

import typer

from goqueue.cli.commands.dlq import dlq_view
from goqueue.cli.connection.confirmation import confirmed
from goqueue.cli.connection.target import (
    BrokerOptions,
    TopicArgument,
    YesOption,
    complete_groups,
    on_broker,
    topic_argument,
)
from goqueue.cli.terminal.failures import EXIT_FAILED, EXIT_INTERRUPTED
from goqueue.cli.terminal.message_text import row_fields
from goqueue.cli.terminal.output import print_lines
from goqueue.cli.terminal.plain_help import command_group
from goqueue.cli.terminal.times import duration_ms, instant_ns, since_ns
from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.model.fields import shown
from goqueue.model.units import format_instant_ns, parse_duration_ms
from goqueue.observe.logs import escape

_EXAMPLES = """\b
Examples:
  goqueue dlq list                              which topics have dead letters, and why
  goqueue dlq list orders --since 2h
  goqueue dlq show orders 0 0                   one of them, with all that is known of it
  goqueue dlq redrive orders --group billing    send them back, after asking
"""
_LIST_EXAMPLES = """\b
Examples:
  goqueue dlq list
  goqueue dlq list orders
  goqueue dlq list orders --group billing --error "no such" --limit 20
  goqueue dlq list orders --since 2h --json
"""
_SHOW_EXAMPLES = """\b
Examples:
  goqueue dlq show orders 0 0
  goqueue dlq show orders.dlq 0 0 --json
"""
_REDRIVE_EXAMPLES = """\b
Redriven messages are recorded: repeating the command redrives nothing twice, and continues after a stop.

\b
Examples:
  goqueue dlq redrive orders --dry-run
  goqueue dlq redrive orders --message 0:0 --yes
  goqueue dlq redrive orders --group billing --error timeout --rate 50 --yes
  goqueue dlq redrive orders --since 1d --delay 10m --yes
"""
_MOST_LISTED = 10_000
_MOST_NAMED = 10_000
_REDRIVE_PAGE = 500
_MOST_DELAYED_MS = 3_650 * 86_400_000
_POSITION = re.compile(r"([0-9]{1,9})[:/]([0-9]{1,18})")

AnyTopicArgument = Annotated[
    str | None,
    topic_argument("The topic they come from, or the dead-letter topic. Without it: a summary of all topics."),
]
PartitionArgument = Annotated[int, typer.Argument(metavar="PARTITION", min=0, show_default=False)]
OffsetArgument = Annotated[int, typer.Argument(metavar="OFFSET", min=0, show_default=False)]
GroupOption = Annotated[
    str | None,
    typer.Option("--group", metavar="NAME", help="Only those of this group.", autocompletion=complete_groups),
]
ErrorOption = Annotated[
    str | None, typer.Option("--error", metavar="TEXT", help="Only those whose error contains this text.")
]
SinceOption = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Only those dead-lettered since: 2h (ago), or an instant.")
]
UntilOption = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Only those dead-lettered before: 2h (ago), or an instant."),
]
MessagesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--message", metavar="PARTITION:OFFSET", help="This one, by its position in the dead-letter topic; repeatable."
    ),
]
LimitOption = Annotated[
    int, typer.Option("--limit", min=1, max=_MOST_LISTED, metavar="N", help="How many lines at the most.")
]
RateOption = Annotated[
    float | None, typer.Option("--rate", min=0.1, max=1_000_000, metavar="N", help="At most this many per second.")
]
DelayOption = Annotated[
    str | None, typer.Option("--delay", metavar="TIME", help="Delay them in their topic by this long.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show how many there are.")]

app = command_group("List dead letters, and redrive them.", _EXAMPLES)


@app.command("list", epilog=_LIST_EXAMPLES, short_help="List a topic's dead letters, or the topics that have any.")
@on_broker
def list_letters(
    options: BrokerOptions,
    topic: AnyTopicArgument = None,
    group: GroupOption = None,
    error: ErrorOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = 50,
) -> int:
    """List a topic's dead letters. Without a topic: which topics have any, how many, from which group and why."""
    from goqueue.cli.commands.dlq import dlq_summary, dlq_view
    from goqueue.cli.commands.dlq.dlq_letters import fetch_pages, print_pages_json

    broker = options.broker()
    wanted = _filter_parameters(group, error, since, until)
    if topic is None:
        return dlq_summary.print_summary(broker, wanted, limit, as_json=options.as_json)
    if options.as_json:
        print_pages_json(fetch_pages(broker, topic, wanted, limit))
        return 0
    letters: list[dict[str, Any]] = []
    is_more = False
    for page in fetch_pages(broker, topic, wanted, limit):
        letters += map(row_fields, page.letters)
        is_more = page.is_more
    if letters:
        print_lines(dlq_view.letters_table(letters, time.time_ns()))
    else:
        typer.echo("no dead letter fits" if wanted else "no dead letters", err=True)
    if is_more:
        typer.echo("there are more; --limit shows more of them", err=True)
    return 0


@app.command(epilog=_SHOW_EXAMPLES, short_help="Show one dead letter in full.")
@on_broker
def show(options: BrokerOptions, topic: TopicArgument, partition: PartitionArgument, offset: OffsetArgument) -> int:
    """Show one dead letter: its value, where it came from, which group dead-lettered it and why."""
    from goqueue.cli.commands.dlq.dlq_letters import fetch_letter

    dlq_topic, letter = fetch_letter(options.broker(), topic, partition, offset)
    lines = dlq_view.letter_lines(dlq_topic, letter, time.time_ns())
    return options.show({"dlq_topic": dlq_topic, **letter}, lines)


@app.command(epilog=_REDRIVE_EXAMPLES, short_help="Redrive dead letters to the topics they came from.")
@on_broker
def redrive(
    options: BrokerOptions,
    topic: TopicArgument,
    group: GroupOption = None,
    error: ErrorOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    message: MessagesOption = None,
    rate: RateOption = None,
    delay: DelayOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> int:
    """Redrive dead letters to the topics they came from, for the group that dead-lettered them. Each is redriven
    once."""
    from goqueue.cli.commands.dlq.dlq_letters import DRY_RUN_PAGE, RedriveCounts, check_exist, redrive_all

    body: dict[str, object] = {**_filter_parameters(group, error, since, until)}
    if message:
        body["messages"] = _parse_positions(message, "--message")
    if rate is not None:
        body["rate"] = rate
    if delay is not None:
        body["delay"] = f"{duration_ms('--delay', delay, most_ms=_MOST_DELAYED_MS)}ms"
    broker = options.broker()
    would = RedriveCounts()
    is_checked = not message or check_exist(broker, topic, _parse_positions(message, "--message"))
    if not is_checked or not redrive_all(
        broker, topic, {**body, "dry_run": True}, DRY_RUN_PAGE, would, what="counting"
    ):
        typer.echo("stopped before anything was sent back", err=True)
        return EXIT_INTERRUPTED
    if not (would.matched or would.already or would.unreachable):
        typer.echo("nothing to send back", err=True)
    if dry_run:
        return options.show(would, dlq_view.dry_run_table(would))
    did = RedriveCounts()
    failure: GoQueueError | None = None
    if would.matched:
        where = ", ".join(f"{escape(name)} ({count:,})" for name, count in sorted(would.by_topic.items())[:5])
        if not confirmed(f"Send {_letters_text(would.matched)} back to {where}?", yes, options):
            return EXIT_FAILED
        try:
            is_whole = redrive_all(broker, topic, body, _page_size(rate), did, what="sending back", total=would.matched)
        except GoQueueError as error:
            failure, is_whole = error, False
    else:
        did, is_whole = would, True
    options.show(did, dlq_view.redriven_text(did))
    if failure is not None:
        typer.echo("it broke off; some more may have gone back, and the same command goes on with the rest", err=True)
        raise failure
    if not is_whole:
        typer.echo("stopped; the rest is where it was, and the same command goes on with it", err=True)
        return EXIT_INTERRUPTED
    return 0


def _page_size(rate: float | None) -> int:
    """The page size: one second's work, so that a stop takes effect soon."""
    return _REDRIVE_PAGE if rate is None else max(1, min(_REDRIVE_PAGE, int(rate)))


def _letters_text(count: int) -> str:
    return "one dead letter" if count == 1 else f"{count:,} dead letters"


def _filter_parameters(group: str | None, error: str | None, since: str | None, until: str | None) -> dict[str, str]:
    """The filter as the broker takes it, in a query or in a body."""
    wanted = {
        "group": group,
        "error": error,
        "since": since and _parse_time("--since", since),
        "until": until and _parse_time("--until", until),
    }
    return {name: text for name, text in wanted.items() if text is not None}


def _parse_time(option: str, text: str) -> str:
    """Parse an instant, or a duration back from now."""
    try:
        parse_duration_ms(text)
    except InvalidRequest:
        return format_instant_ns(instant_ns(option, text))
    return format_instant_ns(min(since_ns(option, text), time.time_ns()))


def _parse_position(text: str, option: str) -> tuple[int, int]:
    """Parse a partition and an offset."""
    found = _POSITION.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"{shown(text)} is no place; write PARTITION:OFFSET, such as 0:17", param_hint=option)
    return int(found[1]), int(found[2])


def _parse_positions(texts: list[str], option: str) -> list[dict[str, int]]:
    """Parse positions, each once, into the form of a redrive request."""
    if len(texts) > _MOST_NAMED:
        raise typer.BadParameter(f"{len(texts)} messages; at most {_MOST_NAMED} at a time", param_hint=option)
    return [
        {"partition": partition, "offset": offset}
        for partition, offset in dict.fromkeys(_parse_position(text, option) for text in texts)
    ]
