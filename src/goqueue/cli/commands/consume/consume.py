"""``goqueue consume``: reads messages by offset or time, follows a topic, or consumes as a member of a group."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from threading import Event
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from goqueue.cli.connection.target import (
    BrokerOptions,
    TopicArgument,
    complete_groups,
    complete_lanes,
    on_broker,
    resolve_broker,
)
from goqueue.cli.terminal import progress, times
from goqueue.cli.terminal.failures import EXIT_INTERRUPTED
from goqueue.cli.terminal.output import discard_output, plain_text, print_lines, write_bytes, write_text
from goqueue.model.errors import InvalidMessage
from goqueue.model.fields import shown
from goqueue.model.message import parse_priority

if TYPE_CHECKING:
    from goqueue.cli.commands.consume.consume_range import Bound, OffsetRange
    from goqueue.cli.commands.consume.consume_source import RangeReader, RecordSlice
    from goqueue.cli.commands.consume.message_filter import Filter
    from goqueue.cli.terminal.progress import Bar
    from goqueue.client.consumer.reader import Isolation, Record
    from goqueue.client.sync import Client

EXAMPLES = """\b
Examples:
  goqueue consume orders                                 everything, the oldest first
  goqueue consume orders --from -5                       the last five of each partition
  goqueue consume orders --since 10m --where 'total > 10' --where 'city == Oslo'
  goqueue consume orders --from 2026-01-31T12:00:00Z --header shop=north --json
  goqueue consume orders --partition 0 --from 100 --limit 10 --format full
  goqueue consume orders --template '{partition}/{offset} {key} {value.total}'
  goqueue consume orders --group billing --limit 3       take three from a queue
  goqueue consume orders --follow --limit 5              wait for what comes; without a limit, until Ctrl-C
"""
_MOST_PARTITIONS_TOLD = 16
_MAX_LIMIT = 1 << 62
_MAX_PARTITION = (1 << 31) - 1


_Format = Literal["value", "line", "json", "full", "raw"]
FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="WHERE",
        help="Begin at earliest (unless given), latest, an offset, an instant, -N (the last N of each partition), "
        "or PARTITION:OFFSET,….",
    ),
]
SinceOption = Annotated[str | None, typer.Option("--since", metavar="TIME", help="Begin 10m, 2h or 1d ago.")]
UntilOption = Annotated[
    str | None, typer.Option("--until", metavar="WHERE", help="End before an offset, or an instant.")
]
PartitionOption = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", min=0, max=_MAX_PARTITION, metavar="N", help="Only this partition. Repeatable."),
]
LimitOption = Annotated[
    int | None, typer.Option("--limit", "-n", min=1, max=_MAX_LIMIT, metavar="N", help="End after this many messages.")
]
FollowOption = Annotated[bool, typer.Option("--follow", "-f", help="Wait for new messages, until Ctrl-C.")]
GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        metavar="NAME",
        help="Consume as a member of this group; a new group is a queue.",
        autocompletion=complete_groups,
    ),
]
AckOption = Annotated[
    bool, typer.Option("--ack/--no-ack", help="With --group: ack printed messages, or give them back at the end.")
]
WaitOption = Annotated[
    str, typer.Option("--wait", metavar="TIME", help="With --group: end after this long without a message.")
]
KeyOption = Annotated[
    list[str] | None, typer.Option("--key", "-k", metavar="KEY", help="Only this key. Repeatable: any of them.")
]
KeyPrefixOption = Annotated[
    str | None, typer.Option("--key-prefix", metavar="TEXT", help="Only keys with this prefix.")
]
HeaderOption = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="NAME[=VALUE]", help="Only with this header. Repeatable: all of them."),
]
PriorityOption = Annotated[
    str | None, typer.Option("--priority", metavar="LANE", help="Only of this lane.", autocompletion=complete_lanes)
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="CONDITION",
        help="Only JSON values like that: 'total > 10', 'customer.city == Oslo', 'items[0].sku exists', "
        "'name ~ ada'. Repeatable: all of them.",
    ),
]
GrepOption = Annotated[str | None, typer.Option("--grep", metavar="TEXT", help="Only values that contain this text.")]
TemplateOption = Annotated[
    str | None,
    typer.Option("--template", metavar="TEXT", help="Print a line like '{partition} {offset} {key} {value.total}'."),
]
HeadersOption = Annotated[bool, typer.Option("--headers", help="Show headers in lines as well.")]
DecodeOption = Annotated[bool, typer.Option("--decode", help="Show values that have a schema as JSON.")]
UncommittedOption = Annotated[
    bool, typer.Option("--read-uncommitted", help="Include messages of open and aborted transactions.")
]
FormatOption = Annotated[
    _Format | None,
    typer.Option("--format", help="What to print of a message; default: line on a terminal, value in a pipe."),
]


@on_broker
def consume(
    options: BrokerOptions,
    topic: TopicArgument,
    start: FromOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    partition: PartitionOption = None,
    limit: LimitOption = None,
    follow: FollowOption = False,
    group: GroupOption = None,
    ack: AckOption = True,
    wait: WaitOption = "3s",
    key: KeyOption = None,
    key_prefix: KeyPrefixOption = None,
    header: HeaderOption = None,
    priority: PriorityOption = None,
    where: WhereOption = None,
    grep: GrepOption = None,
    format: FormatOption = None,
    template: TemplateOption = None,
    headers: HeadersOption = False,
    decode: DecodeOption = False,
    read_uncommitted: UncommittedOption = False,
) -> int:
    """Read messages: all of them, from an offset or an instant on, as they come, or as a member of a group."""
    if sum((options.as_json, format is not None, template is not None)) > 1:
        raise typer.BadParameter("--json, --format and --template all say how to print; use one of them")
    if start is not None and since is not None:
        raise typer.BadParameter("--since and --from both say where to begin; use one of them")
    if follow and until is not None:
        raise typer.BadParameter("--until says where it ends, and --follow does not end; use one of them")
    wanted = _parse_filter(key, key_prefix, header, priority, where, grep)
    edges = _parse_bounds(start, since, until)
    if edges[0].offsets and partition:
        raise typer.BadParameter("--from names partitions, and --partition does; use one of them")
    chooses = start or since or until or partition or read_uncommitted or not wanted.is_empty
    if group is not None and chooses:
        raise typer.BadParameter(
            "a group goes on where it is, and what it gets is taken: --group goes neither with options that say where "
            "to read nor with filters"
        )
    if group is None and not ack:
        raise typer.BadParameter("--no-ack is about groups; without --group reading takes nothing")
    wait_s = times.duration_ms("--wait", wait, least_ms=100, most_ms=86_400_000) / 1_000
    put = _printer("json" if options.as_json else format, template, headers=headers)

    from goqueue.cli.connection.wait_notice import announce_outages

    printed, stop = _PrintRun(limit), Event()
    announces = follow and (sys.stderr.isatty() or not options.as_json)
    try:
        with (
            options.client() as client,
            progress.stoppable() as stop,
            announce_outages(resolve_broker(options.server).server, is_enabled=announces),
        ):
            decoder = _decoder(client) if decode else None
            if group is not None:
                from goqueue.cli.commands.consume.consume_group import consume_as_member

                idle_s = None if follow else wait_s
                printed.messages = consume_as_member(
                    client, group, topic, put, stop, acks=ack, limit=limit, wait_s=idle_s, decode=decoder
                )
            else:
                from goqueue.cli.commands.consume.consume_source import RangeReader

                found = _ranges(client, topic, edges, partition or [])
                isolation: Isolation = "read_uncommitted" if read_uncommitted else "read_committed"
                reader = RangeReader(client, topic, found, wanted, decoder, isolation)
                shows_bar = not sys.stdout.isatty() and not follow and limit is None
                with progress.progress_bar(
                    topic, sum(each.end - each.start for each in found), is_enabled=shows_bar
                ) as bar:
                    printed.run(reader, put, bar, stop, follow=follow)
    except BrokenPipeError:
        # The reader of the pipe has closed it.
        discard_output()
        return 0
    if not stop.is_set():
        return 0
    _print_interrupted(printed)
    return 0 if follow else EXIT_INTERRUPTED


def _ranges(
    client: Client, topic: str, edges: tuple[Bound, Bound | None], partitions: Sequence[int]
) -> list[OffsetRange]:
    from goqueue.cli.commands.consume.consume_range import compute_ranges

    found = compute_ranges(client, topic, *edges, partitions)
    for each in found:
        if each.missed:
            notice = f"partition {each.partition} begins at offset {each.start}: what was before is gone"
            typer.echo(notice, err=True)
    beyond = [each for each in found if each.beyond is not None]
    # An offset for all partitions is usually beyond the end of some; mention it only if it is beyond the end of all.
    if edges[0].offsets or len(beyond) == len(found):
        for each in beyond[:_MOST_PARTITIONS_TOLD]:
            typer.echo(
                f"partition {each.partition} ends at offset {each.start}: {each.beyond} is not there yet", err=True
            )
        if len(beyond) > _MOST_PARTITIONS_TOLD:
            typer.echo(f"nor is it in {len(beyond) - _MOST_PARTITIONS_TOLD:,} other partitions", err=True)
    return found


class _PrintRun:
    """Counts printed messages, and keeps the next offset of each partition."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.messages = 0
        self.positions: dict[int, int] = {}

    def run(
        self, reader: RangeReader, put: Callable[[Sequence[Record]], None], bar: Bar, stop: Event, *, follow: bool
    ) -> None:
        self.positions = {each.partition: each.start for each in reader.ranges}
        for piece in reader.follow(stop) if follow else reader.read_to_end():
            records = self._select(piece, reader.wanted)
            if records:
                put(records)
                self.messages += len(records)
            bar.advance(sum(offset - self.positions[number] for number, offset in piece.positions.items()))
            self.positions.update(piece.positions)
            if stop.is_set() or (self.limit is not None and self.messages >= self.limit):
                return

    def _select(self, piece: RecordSlice, wanted: Filter) -> Sequence[Record]:
        records = piece.records
        if not wanted.is_empty:
            matches = wanted.matches
            records = [record for record in records if matches(record)]
        return records if self.limit is None else records[: self.limit - self.messages]


def _print_interrupted(printed: _PrintRun) -> None:
    notice = f"interrupted after {printed.messages:,} message{'s' * (printed.messages != 1)}"
    if printed.positions:
        offsets = ",".join(f"{number}:{offset}" for number, offset in sorted(printed.positions.items()))
        notice += f"; go on with --from {offsets}"
    typer.echo(notice, err=True)


def _parse_bounds(start: str | None, since: str | None, until: str | None) -> tuple[Bound, Bound | None]:
    from goqueue.cli.commands.consume.consume_range import Bound, parse_from, parse_until

    end = None if until is None else parse_until(until)
    if since is not None:
        return Bound(instant_ns=times.since_ns("--since", since)), end
    return parse_from(start or "earliest"), end


def _parse_filter(
    keys: list[str] | None,
    key_prefix: str | None,
    headers: list[str] | None,
    priority: str | None,
    where: list[str] | None,
    grep: str | None,
) -> Filter:
    from goqueue.cli.commands.consume.message_filter import Filter, parse_condition

    pairs: list[tuple[str, bytes | None]] = []
    for text in headers or []:
        name, equals, value = text.partition("=")
        if not name:
            raise typer.BadParameter(f"{shown(text)} is neither NAME=VALUE nor NAME", param_hint="--header")
        pairs.append((name, os.fsencode(value) if equals else None))
    try:
        lane = None if priority is None else int(parse_priority(priority))
    except InvalidMessage as error:
        raise typer.BadParameter(str(error), param_hint="--priority") from None
    return Filter(
        frozenset(map(os.fsencode, keys or [])),
        os.fsencode(key_prefix or ""),
        tuple(pairs),
        lane,
        os.fsencode(grep or ""),
        tuple(parse_condition(text) for text in where or []),
    )


def _decoder(client: Client) -> Callable[[bytes], bytes]:
    from goqueue.cli.commands.consume.consume_decode import Decoder

    return Decoder(client)


def _printer(format: _Format | None, template: str | None, *, headers: bool) -> Callable[[Sequence[Record]], None]:
    """The function that prints messages; what it printed is flushed when it returns."""
    from goqueue.cli.commands.consume import consume_view

    is_terminal = sys.stdout.isatty()
    if format is None and template is None:
        format = "line" if is_terminal else "value"
    if format in ("line", "full"):

        def put_lines(records: Sequence[Record]) -> None:
            width = shutil.get_terminal_size().columns if is_terminal else None
            if format == "line":
                lines = [consume_view.record_line(record, width, headers=headers) for record in records]
            else:
                lines = [each for record in records for each in consume_view.record_lines(record)]
            if is_terminal:
                print_lines(lines)
            else:
                write_text(plain_text(lines) + "\n")

        return put_lines
    writers = {"json": consume_view.json_lines, "raw": consume_view.raw_values, "value": consume_view.values}
    write = consume_view.compile_template(template) if template is not None else writers[format or "value"]
    if is_terminal and format != "raw":
        # Terminals interpret control characters; a message must not send any.
        return lambda records: write_text(consume_view.escape_lines(write(records)))
    return lambda records: write_bytes(write(records))
