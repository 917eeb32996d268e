"""``goqueue trace``: shows the history of a message, or lists recent messages."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from goqueue.cli.connection.target import DEFAULT_TIMEOUT, ServerOption, TimeoutOption, broker_at
from goqueue.cli.terminal.failures import reported
from goqueue.cli.terminal.output import print_json, print_lines
from goqueue.cli.terminal.times import duration_ms, instant_ns, since_ns
from goqueue.model.units import format_instant_ns

if TYPE_CHECKING:
    from goqueue.cli.commands.trace.trace_answers import Event
    from goqueue.cli.connection.broker_http import BrokerHttp

EXAMPLES = """\b
Examples:
  goqueue trace orders 0 1234                      one message, by where it lies
  goqueue trace 4bf92f3577b34da6a3ce929d0e0e4736   one message, by its trace id
  goqueue trace orders 0 1234 --follow             and what happens to it from now on
  goqueue trace                                    what happened lately
  goqueue trace --topic orders --status error --since 10m
  goqueue trace --group billing --slower-than 2s --json
"""
_DEFAULT_LIMIT = 20
_LOOK_EVERY_S = 0.5
_INCOMPLETE = (
    "there may be more events of it: not everything that is kept was looked at; raise trace.search_bytes of the broker"
)
_NARROW_DOWN = (
    "not everything that is kept was looked at: narrow it down by --topic, --from and --to, "
    "or raise trace.search_bytes of the broker"
)
_TRACE_ID = re.compile(r"[0-9a-fA-F]{32}")
_TRACE_PARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_NUMBER = re.compile(r"[0-9]{1,19}")


MessageArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TOPIC PARTITION OFFSET | TRACE_ID",
        help="The message, by its position or its trace id; without it, the latest messages are listed.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the broker's answer as JSON.")]
FollowOption = Annotated[bool, typer.Option("--follow", "-f", help="Go on until every group has settled the message.")]
LimitOption = Annotated[
    int | None, typer.Option("--limit", min=1, max=1_000, metavar="N", help="List at most this many; default 20.")
]
TopicOption = Annotated[str | None, typer.Option("--topic", metavar="NAME", help="List messages of this topic,")]
PartitionOption = Annotated[
    int | None, typer.Option("--partition", min=0, metavar="N", help="and of this partition of it.")
]
KeyOption = Annotated[str | None, typer.Option("--key", metavar="KEY", help="List messages with this key.")]
GroupOption = Annotated[
    str | None, typer.Option("--group", metavar="NAME", help="List messages with events of this group.")
]
StatusOption = Annotated[
    Literal["completed", "error", "pending"] | None, typer.Option("--status", help="List messages with this status.")
]
SlowerOption = Annotated[
    str | None,
    typer.Option("--slower-than", metavar="TIME", help="List messages whose first ack took longer, such as 2s."),
]
SinceOption = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="List messages with events in the last 10m, 2h or 1d.")
]
FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="INSTANT",
        help="List those with events from 2026-01-31T12:00:00 on (local time or with zone),",
    ),
]
ToOption = Annotated[str | None, typer.Option("--to", metavar="INSTANT", help="and before this instant.")]


@reported
def trace(
    message: MessageArgument = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
    follow: FollowOption = False,
    limit: LimitOption = None,
    topic: TopicOption = None,
    partition: PartitionOption = None,
    key: KeyOption = None,
    group: GroupOption = None,
    status: StatusOption = None,
    slower_than: SlowerOption = None,
    since: SinceOption = None,
    start: FromOption = None,
    end: ToOption = None,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> int:
    """Show what happened to a message: published, delivered, redelivered, acked, dead-lettered, with times and
    reasons."""
    broker = broker_at(server, timeout)
    criteria: dict[str, str | int | None] = {
        "topic": topic,
        "partition": partition,
        "key": key,
        "consumer_group": group,
        "status": status,
        "slower_than": slower_than and f"{duration_ms('--slower-than', slower_than)}ms",
        "start": _start(since, start),
        "end": end and format_instant_ns(instant_ns("--to", end)),
    }
    wanted = {name: value for name, value in criteria.items() if value is not None}
    if not message:
        if follow:
            raise typer.BadParameter("say which message: a topic, a partition and an offset, or a trace id")
        return _print_messages(broker, wanted, limit or _DEFAULT_LIMIT, as_json=as_json)
    if wanted or limit is not None:
        raise typer.BadParameter("one message is asked for; options that choose among many do not go with it")
    if follow and as_json:
        raise typer.BadParameter("--follow draws while it goes on, and --json prints an answer; use one of them")
    path, parameters = _parse_message(message)
    return (
        _follow_message(broker, path, parameters)
        if follow
        else _print_message(broker, path, parameters, as_json=as_json)
    )


def _parse_message(message: list[str]) -> tuple[str, dict[str, str | int]]:
    """The path and parameters for the message given."""
    if len(message) == 1:
        (text,) = message
        if parent := _TRACE_PARENT.fullmatch(text):
            text = parent[1]
        if _TRACE_ID.fullmatch(text):
            return f"/traces/{text.lower()}", {}
        message = text.rsplit("/", 2)
        if len(message) != 3:
            raise typer.BadParameter(
                f"{_quoted(text)} is neither a trace id (32 hexadecimal digits) nor a place; "
                "write a topic, a partition and an offset, such as orders 0 1234"
            )
    if len(message) != 3:
        raise typer.BadParameter("write a topic, a partition and an offset, such as orders 0 1234, or a trace id")
    topic, partition, offset = message
    for name, text in (("partition", partition), ("offset", offset)):
        if not _NUMBER.fullmatch(text):
            raise typer.BadParameter(f"the {name} is {_quoted(text)}; it is a number from 0 on")
    return "/traces/search", {"topic": topic, "partition": int(partition), "offset": int(offset)}


def _print_message(broker: BrokerHttp, path: str, parameters: dict[str, str | int], *, as_json: bool) -> int:
    from goqueue.cli.commands.trace import trace_answers, trace_view

    answer = _fetch_message(broker, path, parameters)
    if as_json:
        print_json(answer)
    else:
        story = trace_answers.parse_story(answer)
        print_lines(trace_view.story_lines(story, trace_view.output_format()))
        if not story.complete:
            typer.echo(_INCOMPLETE, err=True)
    return 0


def _follow_message(broker: BrokerHttp, path: str, parameters: dict[str, str | int]) -> int:
    """Print events as they come, then the final status."""
    from goqueue.cli.commands.trace import event_words, trace_answers, trace_view

    output = trace_view.output_format()
    last: Event | None = None
    while True:
        story = trace_answers.parse_story(_fetch_message(broker, path, parameters))
        is_over = event_words.is_settled(story)
        if last is None:
            print_lines([*trace_view.heading(story, output), []])
        printed = _count_printed(last, story.events)
        if printed < len(story.events):
            print_lines(trace_view.timeline(story, output, printed, is_open=not is_over))
            last = story.events[-1]
        if is_over:
            print_lines([[], *trace_view.status_lines(story, output), *trace_view.group_lines(story, output)])
            if not story.complete:
                typer.echo(_INCOMPLETE, err=True)
            return 0
        time.sleep(_LOOK_EVERY_S)


def _count_printed(last: Event | None, events: list[Event]) -> int:
    """How many of the events were printed already, if ``last`` was printed last.

    The number of events alone does not tell: of very many, the broker returns the first and the latest.
    """
    if last is None:
        return 0
    for count in range(len(events), 0, -1):
        if events[count - 1].is_same(last):
            return count
    # So many events followed that the broker omits it; the first one was printed.
    return 1


def _print_messages(broker: BrokerHttp, wanted: dict[str, str | int], limit: int, *, as_json: bool) -> int:
    from goqueue.cli.commands.trace import trace_answers, trace_view

    path = "/traces/search" if wanted else "/traces"
    answer = broker.get(path, {**wanted, "limit": limit})
    if as_json:
        print_json(answer)
        return 0
    page = trace_answers.parse_page(answer)
    if page.traces:
        print_lines(trace_view.stories_table(page.traces, trace_view.output_format(), time.time_ns()))
    else:
        typer.echo("no message that is traced fits" if wanted else "nothing was traced lately", err=True)
    if len(page.traces) == limit:
        typer.echo(f"these are the latest {limit}; there may be more: raise --limit", err=True)
    if not page.complete:
        typer.echo(_NARROW_DOWN, err=True)
    return 0


def _fetch_message(broker: BrokerHttp, path: str, parameters: dict[str, str | int]) -> Any:
    """The answer for one message, fetched by trace id or searched by position."""
    answer = broker.get(path, parameters)
    if not parameters:
        return answer
    # A search by position finds one message or none.
    return answer["traces"][0] if isinstance(answer, dict) and answer.get("traces") else answer


def _start(since: str | None, start: str | None) -> str | None:
    if since is not None and start is not None:
        raise typer.BadParameter("--since and --from both say where to begin; use one of them")
    if since is not None:
        return format_instant_ns(since_ns("--since", since))
    return start and format_instant_ns(instant_ns("--from", start))


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:80] + "...")
