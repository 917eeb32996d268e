"""``goqueue queue``: peeks into a group's queue, polls messages and settles them."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

import typer

from goqueue.cli.commands.queue import queue_view
from goqueue.cli.commands.queue.queue_settle import read_receipts, settle_all
from goqueue.cli.connection.target import BrokerOptions, GroupArgument, complete_topics, on_broker
from goqueue.cli.terminal import progress
from goqueue.cli.terminal.failures import EXIT_INTERRUPTED
from goqueue.cli.terminal.message_text import row_fields
from goqueue.cli.terminal.output import JsonList, print_json, print_lines
from goqueue.cli.terminal.plain_help import command_group
from goqueue.cli.terminal.times import duration_ms
from goqueue.model.errors import GoQueueError, UnknownMember

_EXAMPLES = """\b
Examples:
  goqueue queue peek billing                   see what it has to do, and take nothing
  goqueue queue peek billing --state in-flight
  goqueue queue poll billing                   take a message; its receipt is printed with it
  goqueue queue poll billing -n 5 --ack        take five, and be done with them
  goqueue queue poll billing --json | goqueue queue ack -
"""
_PEEK_EXAMPLES = """\b
Examples:
  goqueue queue peek billing
  goqueue queue peek billing --topic orders --partition 0 -n 50
  goqueue queue peek billing --state retry
  goqueue queue peek audit --json
"""
_POLL_EXAMPLES = """\b
A poll joins the group as a member, which stays until its receipts expire. In a group of
kind 'range' or 'sticky' it takes partitions from the other members until then, or until
'goqueue queue leave GROUP'. With --ack it leaves by itself.

\b
Examples:
  goqueue queue poll billing
  goqueue queue poll billing -n 10 --wait 1s --visibility 5m
  goqueue queue poll billing -n 10 --ack
  goqueue queue poll newcomers --topic orders      make the group, a shared queue
"""
_SETTLE_EXAMPLES = """\b
Examples:
  goqueue queue poll billing -n 3 --json | goqueue queue {verb} -{more}
"""
_MOST = 10_000
_AT_ONCE = 1_000
_LONGEST_MS = 12 * 3_600_000
_LONGEST_WAIT_MS = 3_600_000

CountOption = Annotated[int, typer.Option("-n", min=1, max=_MOST, metavar="N", help="How many messages at the most.")]
TopicsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="NAME",
        help="Only of this topic; may be given several times. A group that does not exist is created with it.",
        autocompletion=complete_topics,
    ),
]
TopicOption = Annotated[
    str | None, typer.Option("--topic", metavar="NAME", help="Only of this topic,", autocompletion=complete_topics)
]
PartitionOption = Annotated[
    int | None, typer.Option("--partition", min=0, metavar="N", help="and of this partition of it.")
]
StateOption = Annotated[
    Literal["waiting", "in-flight", "retry", "moving", "in-transaction"] | None,
    typer.Option("--state", help="Only messages in this state."),
]
WaitOption = Annotated[str, typer.Option("--wait", metavar="TIME", help="How long to wait for a first message.")]
VisibilityOption = Annotated[
    str | None,
    typer.Option(
        "--visibility",
        metavar="TIME",
        help="Their visibility timeout, 1s to 29m; else that of the group and its topics.",
    ),
]
AckOption = Annotated[bool, typer.Option("--ack", help="Ack each after printing it, and leave the group.")]
ReceiptsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="RECEIPT", help="As printed by 'poll'; - reads them from standard input.", show_default=False
    ),
]
DelayOption = Annotated[
    str | None, typer.Option("--delay", metavar="TIME", help="How long to wait; else the topic's backoff.")
]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="The error recorded in the dead letter.")
]
ForOption = Annotated[str, typer.Option("--for", metavar="TIME", help="How long from now, at most 12h.")]

app = command_group("Peek into a queue, poll messages from it and settle them.", _EXAMPLES)


@app.command(epilog=_PEEK_EXAMPLES, short_help="Show what a group still has to process, without taking it.")
@on_broker
def peek(
    options: BrokerOptions,
    group: GroupArgument,
    topic: TopicOption = None,
    partition: PartitionOption = None,
    state: StateOption = None,
    limit: CountOption = 10,
) -> int:
    """Show the messages that a group still has to process, and the state of each. Nothing is taken or changed."""
    if partition is not None and topic is None:
        raise typer.BadParameter("say of which topic: --topic NAME", param_hint="--partition")
    broker = options.broker()
    chosen = {"topic": topic, "partition": partition, "state": state}
    wanted: dict[str, str | int] = {name: value for name, value in chosen.items() if value is not None}
    found: list[dict[str, Any]] = []
    count, after = 0, ""
    document = JsonList("messages")
    with progress.stoppable() as stop, progress.progress_bar("looking", None, is_enabled=not options.as_json) as bar:
        while True:
            parameters = {**wanted, "limit": min(limit - count, _AT_ONCE)} | ({"after": after} if after else {})
            try:
                answer = broker.send("GET", ["groups", group, "messages"], parameters)
            except GoQueueError:
                if document.is_begun:
                    document.end({"next": after})
                raise
            if options.as_json:
                document.add(answer["messages"])
            else:
                found += map(row_fields, answer["messages"])
            count += len(answer["messages"])
            bar.advance(len(answer["messages"]))
            after = answer.get("next", "")
            if not after or count >= limit or stop.is_set():
                break
    if options.as_json:
        document.end({"next": after or None})
    elif found:
        print_lines(queue_view.peeked_table(found, time.time_ns()))
    elif not after:
        what = "nothing to do" if not wanted else "nothing of that kind to do"
        typer.echo(f"the group has {what}", err=True)
    if after and count < limit:
        typer.echo("stopped; there may be more", err=True)
        return EXIT_INTERRUPTED
    if after and not options.as_json:
        typer.echo("there is more; -n shows more of it", err=True)
    return 0


@app.command(epilog=_POLL_EXAMPLES)
@on_broker
def poll(
    options: BrokerOptions,
    group: GroupArgument,
    topic: TopicsOption = None,
    limit: CountOption = 1,
    wait: WaitOption = "5s",
    visibility: VisibilityOption = None,
    ack: AckOption = False,
) -> int:
    """Poll messages for a group, and print each with its receipt. Settle them with ack, nack or reject.

    With --json each message is a line.
    """
    from goqueue.cli.commands.queue.queue_member import LEAST_VISIBLE_MS, MOST_VISIBLE_MS, find_target
    from goqueue.cli.commands.queue.queue_poll import PollOptions, poll_and_ack, poll_and_stay

    wait_ms = duration_ms("--wait", wait, most_ms=_LONGEST_WAIT_MS)
    visibility_ms = None
    if visibility is not None:
        visibility_ms = duration_ms("--visibility", visibility, least_ms=LEAST_VISIBLE_MS, most_ms=MOST_VISIBLE_MS)
    broker = options.broker()
    target = find_target(broker, group, topic or [])
    wanted = PollOptions(limit, wait_ms, visibility_ms, options.as_json)
    return poll_and_ack(broker, target, wanted) if ack else poll_and_stay(broker, target, wanted)


@app.command(short_help="Give back what was polled from here and is not settled.")
@on_broker
def leave(options: BrokerOptions, group: GroupArgument) -> int:
    """Leave the group, and give back at once what was polled from here and is not settled."""
    from goqueue.cli.commands.queue.queue_member import is_own_member

    broker = options.broker()
    left: list[dict[str, Any]] = []
    failure: GoQueueError | None = None
    for member in broker.send("GET", ["groups", group])["members"]:
        if not is_own_member(member):
            continue
        try:
            broker.send("POST", ["groups", group, "leave"], body={"member_id": member["member_id"]})
            left.append(member)
        except UnknownMember:
            # It has left since.
            continue
        except GoQueueError as error:
            failure = error
            break
    given_back = sum(member["in_flight"] for member in left)
    if failure is not None and not left:
        raise failure
    if options.as_json:
        print_json({"left": [member["member_id"] for member in left], "given_back": given_back})
    elif left:
        were = "1 message was" if given_back == 1 else f"{given_back} messages were"
        typer.echo(f"left the group; {were} given back")
    else:
        typer.echo("nobody who polled from here is in the group", err=True)
    if failure is not None:
        raise failure
    return 0


@app.command(epilog=_SETTLE_EXAMPLES.format(verb="ack", more=""))
@on_broker
def ack(options: BrokerOptions, receipts: ReceiptsArgument) -> int:
    """Acknowledge messages: the group does not get them again."""
    return _settle(options, "ack", "acked", receipts, {})


@app.command(
    epilog=_SETTLE_EXAMPLES.format(verb="nack", more=" --delay 10s"), short_help="Give messages back for redelivery."
)
@on_broker
def nack(
    options: BrokerOptions, receipts: ReceiptsArgument, delay: DelayOption = None, reason: ReasonOption = None
) -> int:
    """Give messages back for redelivery after a delay; after too many deliveries they are dead-lettered."""
    more: dict[str, object] = {}
    if delay is not None:
        more["delay"] = f"{duration_ms('--delay', delay, most_ms=_LONGEST_MS)}ms"
    if reason is not None:
        more["reason"] = reason
    return _settle(options, "nack", "given back", receipts, more)


@app.command(epilog=_SETTLE_EXAMPLES.format(verb="reject", more=' --reason "no such city"'))
@on_broker
def reject(options: BrokerOptions, receipts: ReceiptsArgument, reason: ReasonOption = None) -> int:
    """Dead-letter messages at once."""
    more: dict[str, object] = {} if reason is None else {"reason": reason}
    return _settle(options, "reject", "rejected", receipts, more)


@app.command(
    epilog=_SETTLE_EXAMPLES.format(verb="extend", more=" --for 1m"),
    short_help="Extend the visibility timeout of messages.",
)
@on_broker
def extend(options: BrokerOptions, receipts: ReceiptsArgument, span: ForOption) -> int:
    """Extend the visibility timeout of messages, at most to the end of their member's session.

    Poll with a long --visibility if the work takes long.
    """
    more: dict[str, object] = {"timeout": f"{duration_ms('--for', span, most_ms=_LONGEST_MS)}ms"}
    return _settle(options, "visibility", "extended", receipts, more)


def _settle(options: BrokerOptions, verb: str, done: str, given: list[str], more: dict[str, object]) -> int:
    receipts = read_receipts(given)
    return settle_all(options.broker(), verb, done, receipts, more, as_json=options.as_json)
