"""``goqueue produce``: publishes messages from arguments, lines, files and JSONL."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from goqueue.cli.connection.target import BrokerOptions, TopicArgument, complete_lanes, on_broker, resolve_broker
from goqueue.cli.terminal import interrupts, progress, times
from goqueue.cli.terminal.failures import EXIT_INTERRUPTED, EXIT_PROBLEMS
from goqueue.cli.terminal.output import print_json, write_text
from goqueue.model.errors import InvalidMessage, PartitionNotFound
from goqueue.model.fields import shown
from goqueue.model.message import parse_priority

if TYPE_CHECKING:
    from goqueue.cli.commands.produce.produce_input import Block, Source
    from goqueue.cli.commands.produce.produce_rows import Chunk, Defaults, Parse
    from goqueue.cli.commands.produce.produce_send import Tally
    from goqueue.client.messages.outgoing_message import Sent
    from goqueue.client.sync import Client

EXAMPLES = """\b
Examples:
  goqueue produce orders "2 tickets"                     one message
  goqueue produce orders one two three --key ada         three, of one key
  goqueue produce orders < lines.txt                     each line
  seq 1000 | goqueue produce clicks --rate 2000          no more than 2,000 a second
  goqueue produce orders --file orders.jsonl --jsonl     with keys, headers, lanes and delays of their own
  echo "ada:2 tickets" | goqueue produce orders --key-separator :
  goqueue produce orders "tea is ready" --delay 5m --priority high --header shop=north
  goqueue consume orders --json | goqueue produce clicks --jsonl --ignore-partition
"""
_MOST_BAD_TOLD = 10
_MOST_PARTITIONS_TOLD = 16
_MAX_FILE_BYTES = 20 << 20
_MAX_RATE = 10_000_000
_MAX_PARTITION = (1 << 31) - 1
_LONGEST_SEPARATOR = 100
_MAY_BE_STORED = (
    "from there on some may be stored already: sent again, those are there twice, unless they have a dedup_id (--jsonl)"
)


ValuesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="VALUE", help="The messages; - or none reads lines of standard input.", show_default=False),
]
FileOption = Annotated[
    list[str] | None, typer.Option("--file", metavar="FILE", help="Publish each line of the file. Repeatable.")
]
JsonlOption = Annotated[
    bool, typer.Option("--jsonl", help="Lines are JSON objects: value, key, headers, priority, delay, deliver_at, …")
]
WholeOption = Annotated[bool, typer.Option("--whole", help="Each file, or all of standard input, is one message.")]
SeparatorOption = Annotated[
    str | None,
    typer.Option("--key-separator", metavar="TEXT", help=r"Splits each line into key and value; \t is a tab."),
]
KeyOption = Annotated[str | None, typer.Option("--key", "-k", metavar="KEY", help="The key of all messages.")]
HeaderOption = Annotated[
    list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header of all messages. Repeatable.")
]
PriorityOption = Annotated[
    str,
    typer.Option(
        "--priority", metavar="LANE", help="critical, high, normal, low or background.", autocompletion=complete_lanes
    ),
]
PartitionOption = Annotated[
    int | None,
    typer.Option("--partition", "-p", min=0, max=_MAX_PARTITION, metavar="N", help="The partition of all messages."),
]
IgnoreOption = Annotated[
    bool, typer.Option("--ignore-partition", help="With --jsonl: ignore the partition field; keys decide.")
]
DelayOption = Annotated[str | None, typer.Option("--delay", metavar="TIME", help="Deliver them after this delay.")]
DeliverAtOption = Annotated[
    str | None,
    typer.Option("--deliver-at", metavar="INSTANT", help="Deliver them at this instant, such as 2030-01-31T12:00."),
]
TtlOption = Annotated[str | None, typer.Option("--ttl", metavar="TIME", help="Groups skip them after this long.")]
RateOption = Annotated[
    int | None, typer.Option("--rate", min=1, max=_MAX_RATE, metavar="N", help="At most this many messages a second.")
]
AcksOption = Annotated[
    Literal["none", "leader", "all"], typer.Option("--acks", help="When a message counts as stored.")
]
SkipBadOption = Annotated[
    bool, typer.Option("--skip-bad", help="Skip lines that are not valid messages; status 5 if there were any.")
]
OffsetsOption = Annotated[bool, typer.Option("--print-offsets", help="Print partition and offset of each message.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing on success.")]


@on_broker
def produce(
    options: BrokerOptions,
    topic: TopicArgument,
    values: ValuesArgument = None,
    file: FileOption = None,
    jsonl: JsonlOption = False,
    whole: WholeOption = False,
    key_separator: SeparatorOption = None,
    key: KeyOption = None,
    header: HeaderOption = None,
    priority: PriorityOption = "normal",
    partition: PartitionOption = None,
    ignore_partition: IgnoreOption = False,
    delay: DelayOption = None,
    deliver_at: DeliverAtOption = None,
    ttl: TtlOption = None,
    rate: RateOption = None,
    acks: AcksOption = "all",
    skip_bad: SkipBadOption = False,
    print_offsets: OffsetsOption = False,
    quiet: QuietOption = False,
) -> int:
    """Publish messages: from arguments, lines of standard input, files, or JSONL. Prints how many are stored."""
    # Nothing has been sent yet: Ctrl-C can exit at once, and says so.
    interrupts.exit_on_interrupt()
    _refuse_together(
        [("--jsonl", jsonl), ("--whole", whole), ("--key-separator", key_separator is not None)],
        [("--json", options.as_json), ("--print-offsets", print_offsets)],
        [("--delay", delay is not None), ("--deliver-at", deliver_at is not None)],
        [("--key", key is not None), ("--key-separator", key_separator is not None)],
        [("VALUE", bool(values)), ("--file", bool(file))],
    )
    from goqueue.cli.commands.produce import produce_rows
    from goqueue.cli.commands.produce.produce_input import total_size
    from goqueue.cli.commands.produce.produce_send import Pace, Sender, Tally
    from goqueue.cli.connection.wait_notice import OutageNotices

    defaults = produce_rows.Defaults(
        None if key is None else os.fsencode(key),
        tuple(_header(each) for each in header or []),
        partition,
        _lane(priority),
        None if delay is None else timedelta(milliseconds=times.duration_ms("--delay", delay)),
        None if deliver_at is None else times.instant_ns("--deliver-at", deliver_at),
        None if ttl is None else timedelta(milliseconds=times.duration_ms("--ttl", ttl, least_ms=1)),
    )
    if jsonl:
        parse: Parse | None = produce_rows.json_parser(defaults, ignore_partition=ignore_partition)
    elif key_separator is not None:
        parse = produce_rows.key_parser(defaults, _separator(key_separator))
    else:
        parse = produce_rows.plain_parser(defaults)
    sources = _sources(values, file)
    if whole and not sources:
        raise typer.BadParameter("--whole is about files and standard input; a VALUE is a message as it is")
    blocks = partial(_blocks, sources, values or [])
    tally, skipped = Tally(), _SkippedLines()
    waiting = OutageNotices(
        resolve_broker(options.server).server,
        options.timeout,
        is_enabled=sys.stderr.isatty() or not (quiet or options.as_json),
    )
    stop = Event()
    try:
        with ExitStack() as opened:
            # Check the broker before reading: input that cannot be stored should not be consumed.
            with waiting.while_calling("nothing was sent yet"):
                client = opened.enter_context(options.client())
                _check(client, topic, partition)
            interrupts.raise_again()
            stop = opened.enter_context(progress.stoppable())
            total = total_size(sources) if sources and not whole else None
            # No bar while input is typed: it would overwrite the line.
            shows_bar = (
                bool(sources) and not quiet and not (print_offsets and sys.stdout.isatty()) and not _is_typed(sources)
            )
            with (
                client.producer(acks=acks, delivery_timeout_ms=options.timeout) as producer,
                progress.progress_bar(
                    topic, total, "messages" if total is None else "bytes", is_enabled=shows_bar
                ) as bar,
            ):
                on_stored = _print_offsets if print_offsets else _ignore_stored
                delivery = Sender(
                    topic, producer, Pace(rate), waiting, skip_bad, bar, total is not None, on_stored, skipped.add
                )
                if whole:
                    chunks = _whole_files(sources, defaults, stop)
                else:
                    chunks = produce_rows.chunks(blocks(stop), parse, skip_bad=skip_bad)
                delivery.run(chunks, tally, stop)
    finally:
        skipped.print_rest()
        if tally.has_begun:
            _print_result(topic, tally, as_json=options.as_json, quiet=quiet, is_interrupted=stop.is_set(), whole=whole)
    if stop.is_set():
        return EXIT_INTERRUPTED
    return EXIT_PROBLEMS if tally.bad else 0


class _SkippedLines:
    """Prints the first skipped lines, and the number of the others."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, problem: str) -> None:
        self._count += 1
        if self._count <= _MOST_BAD_TOLD:
            progress.print_notice(f"left out: {problem}")

    def print_rest(self) -> None:
        if self._count > _MOST_BAD_TOLD:
            typer.echo(f"left out: {self._count - _MOST_BAD_TOLD:,} more", err=True)


def _refuse_together(*several: list[tuple[str, bool]]) -> None:
    for options in several:
        given = [name for name, is_given in options if is_given]
        if len(given) > 1:
            raise typer.BadParameter(f"{' and '.join(given)} do not go together; use one of them")


def _sources(values: list[str] | None, files: list[str] | None) -> list[Source]:
    """The files or standard input to read; empty if the messages are arguments."""
    from goqueue.cli.commands.produce.produce_input import STANDARD_INPUT, Source, check_readable

    if files:
        sources = [Source(path) for path in files]
        check_readable(sources)
        return sources
    if values and values != [STANDARD_INPUT]:
        return []
    if not values and (sys.stdin is None or sys.stdin.isatty()):
        raise typer.BadParameter("there is nothing to send; give values, --file FILE, or - to type lines")
    return [Source(STANDARD_INPUT)]


def _is_typed(sources: Sequence[Source]) -> bool:
    from goqueue.cli.commands.produce.produce_input import STANDARD_INPUT

    return sys.stdin is not None and sys.stdin.isatty() and any(each.path == STANDARD_INPUT for each in sources)


def _blocks(sources: Sequence[Source], values: Sequence[str], stop: Event) -> Iterator[Block]:
    from goqueue.cli.commands.produce.produce_input import Block, blocks

    if not sources:
        yield Block("", 1, [os.fsencode(value) for value in values], 0)
    for source in sources:
        yield from blocks(source, stop)


def _whole_files(sources: Sequence[Source], defaults: Defaults, stop: Event) -> Iterator[Chunk]:
    from goqueue.cli.commands.produce.produce_input import read_whole
    from goqueue.cli.commands.produce.produce_rows import Chunk

    for source in sources:
        content = read_whole(source, _MAX_FILE_BYTES, stop)
        yield Chunk(source.name, [defaults.message(content)], [1], len(content), is_whole=True)


def _check(client: Client, topic: str, partition: int | None) -> None:
    """Check that the topic exists and has this partition."""
    count = len(client.describe_topic(topic).partitions)
    if partition is not None and partition >= count:
        numbers = f"0 to {count - 1}" if count > 1 else "0"
        raise PartitionNotFound(
            f"topic {topic} has {count} partition{'s' * (count != 1)}, {numbers}; there is no {partition}"
        )


def _lane(text: str) -> int:
    try:
        return int(parse_priority(int(text) if text.isdecimal() and len(text) < 3 else text))
    except InvalidMessage as error:
        raise typer.BadParameter(str(error), param_hint="--priority") from None


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"{shown(text)} is not NAME=VALUE", param_hint="--header")
    return name, os.fsencode(value)


def _separator(text: str) -> str:
    found = text.replace("\\t", "\t")
    if not 1 <= len(found) <= _LONGEST_SEPARATOR or "\n" in found:
        raise typer.BadParameter(
            f"it has 1 to {_LONGEST_SEPARATOR} letters, and no end of a line", param_hint="--key-separator"
        )
    return found


def _ignore_stored(_: Sequence[Sent]) -> None:
    pass


def _print_offsets(stored: Sequence[Sent]) -> None:
    """Print positions at once: what is printed is stored, whatever happens next."""
    if stored:
        write_text("".join([f"{each.partition} {each.offset}\n" for each in stored]))


def _print_result(topic: str, tally: Tally, *, as_json: bool, quiet: bool, is_interrupted: bool, whole: bool) -> None:
    if as_json:
        print_json(
            {
                "topic": topic,
                "stored": tally.stored,
                "delayed": tally.delayed,
                "duplicates": tally.duplicates,
                "bad": tally.bad,
                "partitions": {str(number): count for number, count in sorted(tally.by_partition.items())},
                "seconds": round(tally.seconds, 3),
                "stopped_before": tally.stopped_before,
            }
        )
    if is_interrupted:
        typer.echo("interrupted", err=True)
    if tally.stopped_before and (tally.in_topic or tally.may_be_stored_after or is_interrupted):
        typer.echo(f"the first that is not known to be stored is {tally.stopped_before}", err=True)
        if tally.may_be_stored_after and not whole:
            typer.echo(_MAY_BE_STORED, err=True)
    is_refused = tally.stopped_before is not None and not tally.in_topic and not is_interrupted
    if as_json or is_refused or (quiet and not is_interrupted and not tally.stopped_before):
        return
    numbers = sorted(tally.by_partition)
    shown_numbers = ", ".join(map(str, numbers[:_MOST_PARTITIONS_TOLD])) + (
        ", …" * (len(numbers) > _MOST_PARTITIONS_TOLD)
    )
    where = f" (partition{'s' * (len(numbers) != 1)} {shown_numbers})" if numbers else ""
    remarks = [
        f"{count:,} {what}"
        for count, what in ((tally.delayed, "delayed"), (tally.duplicates, "known before"), (tally.bad, "left out"))
        if count
    ]
    more = f"; {', '.join(remarks)}" if remarks else ""
    count = f"{tally.stored:,} message{'s' * (tally.stored != 1)}"
    typer.echo(f"{count} stored in {topic}{where} in {tally.seconds:.1f} s{more}", err=True)
