"""``goqueue topic``: what topics there are, what they hold and how they are set; making, emptying and deleting them.

What draws and what asks is imported when it is needed: asking for the version must not load it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from goqueue.cli.connection.bulk_delete import delete_each, found_of
from goqueue.cli.connection.confirmation import confirmed
from goqueue.cli.connection.target import (
    DEFAULT_TIMEOUT,
    JsonOption,
    ServerOption,
    TimeoutOption,
    TopicArgument,
    YesOption,
    broker_at,
    topic_named,
    topics_that_begin_with,
)
from goqueue.cli.settings.settings_view import SetOption, assigned
from goqueue.cli.terminal.failures import EXIT_FAILED, reported
from goqueue.cli.terminal.styled_lines import put_json
from goqueue.model.errors import TopicExists, TopicNotFound
from goqueue.observe.logs import escape

if TYPE_CHECKING:
    from goqueue.cli.connection.broker_http import BrokerHttp

_EXAMPLES = """\b
Examples:
  goqueue topic list
  goqueue topic create invoices --partitions 6 --if-not-exists
  goqueue topic describe orders
  goqueue topic alter orders --set retention_ms=30d
  goqueue topic purge orders --before 7d --yes
  goqueue topic delete invoices --if-exists --yes
"""
_LIST_EXAMPLES = """\b
Examples:
  goqueue topic list
  goqueue topic list --json
"""
_CREATE_EXAMPLES = """\b
Examples:
  goqueue topic create payments --if-not-exists
  goqueue topic create profiles --partitions 12 --set cleanup=compact --set fsync=interval --if-not-exists
"""
_DESCRIBE_EXAMPLES = """\b
Examples:
  goqueue topic describe orders
  goqueue topic describe orders --json
"""
_ALTER_EXAMPLES = """\b
Examples:
  goqueue topic alter orders --set retention_ms=30d --set max_retries=5
  goqueue topic alter orders --unset max_retries      as the broker's configuration says again
"""
_DELETE_EXAMPLES = """\b
Examples:
  goqueue topic delete invoices payments --if-exists --yes
"""
_PURGE_EXAMPLES = """\b
Examples:
  goqueue topic purge clicks --yes                    everything that is there now
  goqueue topic purge orders --before 7d --yes        what is older than a week
  goqueue topic purge orders --partition 0 --before 2026-01-31T12:00:00Z --yes
"""
_MOST_NAMED = 5

TopicsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="TOPIC",
        help="Names.",
        show_default=False,
        autocompletion=topics_that_begin_with,
        callback=topic_named,
    ),
]
NewNameArgument = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="The name it is to have.", show_default=False, callback=topic_named),
]

app = typer.Typer(
    help="Make topics, look at them, change and remove them.",
    epilog=_EXAMPLES,
    no_args_is_help=True,
    rich_markup_mode=None,
)


class TopicIsThere(TopicExists):
    """As the broker's, with what helps whoever sits at a terminal."""

    remedy = "Use it, choose another name, or say --if-not-exists."


@app.command("list", epilog=_LIST_EXAMPLES)
@reported
def list_topics(
    server: ServerOption = None, as_json: JsonOption = False, timeout: TimeoutOption = DEFAULT_TIMEOUT
) -> int:
    """List topics, and how much is in them.

    Offsets are how many each spans: messages, and what is stored beside them (markers of transactions, what was
    delayed). The "messages" of --json is the same number.
    """
    from goqueue.cli.terminal import styled_lines, tables
    from goqueue.cli.terminal.figure_words import size

    found = broker_at(server, timeout).get("/stats")["topic_stats"]
    if as_json:
        put_json([{"name": name, **each} for name, each in sorted(found.items())])
    elif found:
        rows = [
            [
                name,
                f"{each['partitions']:,}",
                f"{each['messages']:,}",
                size(each["size_bytes"]),
                f"{each['segments']:,}",
            ]
            for name, each in sorted(found.items())
        ]
        styled_lines.put(tables.table(["name", "partitions", "offsets", "size", "segments"], rows))
    else:
        typer.echo("there are no topics; 'goqueue topic create NAME' makes one", err=True)
    return 0


@app.command(epilog=_CREATE_EXAMPLES)
@reported
def create(
    name: NewNameArgument,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, metavar="N", help="How many; it stays so for good.")
    ] = None,
    settings: SetOption = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="If it is there already, that is fine, however it is set.")
    ] = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> int:
    """Make a topic. What is not set is as the broker's configuration says."""
    from goqueue.cli.commands.topic.topic_view import count

    wanted: dict[str, Any] = dict(assigned(settings))
    if partitions is not None:
        if "partitions" in wanted:
            raise typer.BadParameter("--partitions and --set partitions=… say the same; use one of them")
        wanted["partitions"] = partitions
    broker = broker_at(server, timeout)
    try:
        answer = broker.send("POST", ["topics"], body={"name": name, "settings": wanted})
    except TopicExists as error:
        if not if_not_exists:
            raise TopicIsThere(str(error)) from None
        there = _topic(broker, name)
        answer = {"name": name, "partitions": there["partitions"], "created": False}
    if as_json:
        put_json(answer)
    elif answer["created"]:
        typer.echo(f"{escape(name)} is made, with {count(answer['partitions'], 'partition')}")
    else:
        typer.echo(f"{escape(name)} was there already, with {count(answer['partitions'], 'partition')}")
    return 0


@app.command(epilog=_DESCRIBE_EXAMPLES, short_help="Show a topic: its settings and its partitions.")
@reported
def describe(
    topic: TopicArgument,
    server: ServerOption = None,
    as_json: JsonOption = False,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> int:
    """Show a topic: its settings, and what each of its partitions holds."""
    from goqueue.cli.commands.topic import topic_view
    from goqueue.cli.terminal import styled_lines

    answer = _topic(broker_at(server, timeout), topic)
    if as_json:
        put_json(answer)
    else:
        styled_lines.put(topic_view.described(answer))
    return 0


@app.command(epilog=_ALTER_EXAMPLES)
@reported
def alter(
    topic: TopicArgument,
    settings: SetOption = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="FIELD", help="A setting that is to follow the broker's configuration again."),
    ] = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> int:
    """Change the settings of a topic while it is in use."""
    from goqueue.cli.commands.topic import topic_view
    from goqueue.cli.terminal import styled_lines

    wanted, gone = assigned(settings), list(unset or [])
    if not wanted and not gone:
        raise typer.BadParameter("say what to change: --set FIELD=VALUE or --unset FIELD")
    broker = broker_at(server, timeout)
    before = _topic(broker, topic)
    answer = broker.send("PATCH", ["topics", topic], body={"settings": wanted, "unset": gone})
    if as_json:
        put_json(answer)
    else:
        styled_lines.put(topic_view.changes(before, answer, [*wanted, *gone]))
    return 0


@app.command(epilog=_DELETE_EXAMPLES)
@reported
def delete(
    topics: TopicsArgument,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Those that are not there are fine.")] = False,
    yes: YesOption = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> int:
    """Delete topics, with all messages. If one of them is not there, none is deleted."""
    from goqueue.cli.commands.topic.topic_view import up_to

    broker = broker_at(server, timeout)
    found = found_of(topics, lambda name: _topic(broker, name), TopicNotFound, if_exists=if_exists)
    if found:
        names = ", ".join(escape(each["name"]) for each in found[:_MOST_NAMED])
        more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
        held = up_to(sum(each["total_messages"] for each in found))
        if not confirmed(f"Delete {names}{more} with {held}? That cannot be undone.", yes):
            return EXIT_FAILED
    delete_each(
        [each["name"] for each in found],
        lambda name: broker.send("DELETE", ["topics", name]),
        TopicNotFound,
        as_json=as_json,
    )
    return 0


@app.command(epilog=_PURGE_EXAMPLES)
@reported
def purge(
    topic: TopicArgument,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, metavar="N", help="Only of this partition.")
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(
            "--before", metavar="TIME|INSTANT", help="Only what is older than 7d, or than 2026-01-31T12:00:00."
        ),
    ] = None,
    yes: YesOption = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> int:
    """Remove the messages of a topic that are there now. The topic and its settings stay.

    Groups go on behind what was removed; what they have in flight of it does not come again, whether it is acked or
    not. Delayed messages still come when they are due, and messages of transactions that are open stay. A dedup id or
    a producer's resend of what was removed is a duplicate still. A compacted topic is not purged.
    """
    from goqueue.cli.commands.topic import topic_view
    from goqueue.cli.terminal import styled_lines, times
    from goqueue.model.units import format_instant_ns

    body: dict[str, object] = {} if partition is None else {"partition": partition}
    if before is not None:
        body["before"] = format_instant_ns(times.past_ns("--before", before))
    broker = broker_at(server, timeout)
    found = _topic(broker, topic)
    if not confirmed(topic_view.purge_question(found, partition, before), yes):
        return EXIT_FAILED
    answer = broker.send("POST", ["admin", "topics", topic, "purge"], body=body)
    if as_json:
        put_json(answer)
        return 0
    styled_lines.put(topic_view.purged(answer))
    if answer["delayed_messages"]:
        typer.echo(f"{topic_view.count(answer['delayed_messages'], 'delayed message')} will still come", err=True)
    return 0


def _topic(broker: BrokerHttp, name: str) -> dict[str, Any]:
    found: dict[str, Any] = broker.send("GET", ["topics", name])
    return found
