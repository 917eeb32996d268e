"""``goqueue topic``: lists, creates, describes, alters, purges and deletes topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from goqueue.cli.commands.topic import topic_view
from goqueue.cli.commands.topic.topic_view import at_most_messages
from goqueue.cli.connection.bulk_delete import delete_each, look_up_all
from goqueue.cli.connection.confirmation import confirmed
from goqueue.cli.connection.target import (
    BrokerOptions,
    TopicArgument,
    YesOption,
    on_broker,
    require_topic_name,
    topic_argument,
)
from goqueue.cli.settings.settings_view import SetOption, parse_assignments
from goqueue.cli.terminal import tables, times
from goqueue.cli.terminal.failures import EXIT_FAILED
from goqueue.cli.terminal.figure_words import size
from goqueue.cli.terminal.output import print_json, print_lines
from goqueue.cli.terminal.plain_help import command_group
from goqueue.model.errors import TopicExists, TopicNotFound
from goqueue.model.units import counted, format_instant_ns
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

TopicsArgument = Annotated[list[str], topic_argument("Names.")]
NewNameArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The new topic's name.", show_default=False, callback=require_topic_name)
]

app = command_group("Create, list, describe, alter, purge and delete topics.", _EXAMPLES)


class TopicIsThere(TopicExists):
    """The broker's error with a hint for the command line."""

    remedy = "Use it, choose another name, or say --if-not-exists."


@app.command("list", epilog=_LIST_EXAMPLES)
@on_broker
def list_topics(options: BrokerOptions) -> int:
    """List topics, and how much they hold.

    "Offsets" is the span of a topic's offsets. It counts messages and records stored beside them (transaction markers,
    delayed messages). The "messages" of --json is the same number.
    """
    found = options.broker().get("/stats")["topic_stats"]
    if options.as_json:
        print_json([{"name": name, **each} for name, each in sorted(found.items())])
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
        print_lines(tables.table(["name", "partitions", "offsets", "size", "segments"], rows))
    else:
        typer.echo("there are no topics; 'goqueue topic create NAME' makes one", err=True)
    return 0


@app.command(epilog=_CREATE_EXAMPLES)
@on_broker
def create(
    options: BrokerOptions,
    name: NewNameArgument,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, metavar="N", help="How many; cannot be changed later.")
    ] = None,
    settings: SetOption = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if it exists, whatever its settings.")
    ] = False,
) -> int:
    """Create a topic. Settings that are not given follow the broker's configuration."""

    wanted: dict[str, Any] = dict(parse_assignments(settings))
    if partitions is not None:
        if "partitions" in wanted:
            raise typer.BadParameter("--partitions and --set partitions=… say the same; use one of them")
        wanted["partitions"] = partitions
    broker = options.broker()
    try:
        answer = broker.send("POST", ["topics"], body={"name": name, "settings": wanted})
    except TopicExists as error:
        if not if_not_exists:
            raise TopicIsThere(str(error)) from None
        existing = _fetch_topic(broker, name)
        answer = {"name": name, "partitions": existing["partitions"], "created": False}
    is_made = "is made" if answer["created"] else "was there already"
    return options.show(answer, f"{escape(name)} {is_made}, with {counted(answer['partitions'], 'partition')}")


@app.command(epilog=_DESCRIBE_EXAMPLES, short_help="Show a topic: its settings and its partitions.")
@on_broker
def describe(options: BrokerOptions, topic: TopicArgument) -> int:
    """Show a topic: its settings, and what each of its partitions holds."""
    answer = _fetch_topic(options.broker(), topic)
    return options.show(answer, topic_view.topic_lines(answer))


@app.command(epilog=_ALTER_EXAMPLES)
@on_broker
def alter(
    options: BrokerOptions,
    topic: TopicArgument,
    settings: SetOption = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="FIELD", help="A setting to follow the broker's configuration again."),
    ] = None,
) -> int:
    """Change the settings of a topic while it is in use."""
    wanted, removed = parse_assignments(settings), list(unset or [])
    if not wanted and not removed:
        raise typer.BadParameter("say what to change: --set FIELD=VALUE or --unset FIELD")
    broker = options.broker()
    before = _fetch_topic(broker, topic)
    answer = broker.send("PATCH", ["topics", topic], body={"settings": wanted, "unset": removed})
    return options.show(answer, topic_view.changes_table(before, answer, [*wanted, *removed]))


@app.command(epilog=_DELETE_EXAMPLES)
@on_broker
def delete(
    options: BrokerOptions,
    topics: TopicsArgument,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Ignore topics that do not exist.")] = False,
    yes: YesOption = False,
) -> int:
    """Delete topics, with all messages. If one of them does not exist, none is deleted."""
    broker = options.broker()
    found = look_up_all(topics, lambda name: _fetch_topic(broker, name), TopicNotFound, if_exists=if_exists)
    if found:
        names = ", ".join(escape(each["name"]) for each in found[:_MOST_NAMED])
        more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
        held = at_most_messages(sum(each["total_messages"] for each in found))
        if not confirmed(f"Delete {names}{more} with {held}? That cannot be undone.", yes, options):
            return EXIT_FAILED
    delete_each(
        [each["name"] for each in found],
        lambda name: broker.send("DELETE", ["topics", name]),
        TopicNotFound,
        as_json=options.as_json,
    )
    return 0


@app.command(epilog=_PURGE_EXAMPLES)
@on_broker
def purge(
    options: BrokerOptions,
    topic: TopicArgument,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, metavar="N", help="Only of this partition.")
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(
            "--before", metavar="TIME|INSTANT", help="Only messages older than 7d, or than 2026-01-31T12:00:00."
        ),
    ] = None,
    yes: YesOption = False,
) -> int:
    """Remove the messages that a topic has now. The topic and its settings stay.

    Groups continue behind what was removed; messages of it that are in flight are not delivered again, acked or not.
    Delayed messages are still delivered when due, and messages of open transactions stay. A dedup id or a producer's
    resend of a removed message still counts as a duplicate. Compacted topics cannot be purged.
    """
    body: dict[str, object] = {} if partition is None else {"partition": partition}
    if before is not None:
        body["before"] = format_instant_ns(times.past_ns("--before", before))
    broker = options.broker()
    found = _fetch_topic(broker, topic)
    if not confirmed(topic_view.purge_question(found, partition, before), yes, options):
        return EXIT_FAILED
    answer = broker.send("POST", ["admin", "topics", topic, "purge"], body=body)
    options.show(answer, topic_view.purged_table(answer))
    if answer["delayed_messages"] and not options.as_json:
        typer.echo(f"{counted(answer['delayed_messages'], 'delayed message')} will still come", err=True)
    return 0


def _fetch_topic(broker: BrokerHttp, name: str) -> dict[str, Any]:
    found: dict[str, Any] = broker.send("GET", ["topics", name])
    return found
