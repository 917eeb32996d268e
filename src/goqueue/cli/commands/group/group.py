"""``goqueue group``: lists and describes groups, shows their lag, resets their offsets, and deletes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from goqueue.cli.commands.group import group_reset, group_view
from goqueue.cli.connection.bulk_delete import delete_each, look_up_all
from goqueue.cli.connection.confirmation import confirmed
from goqueue.cli.connection.target import (
    BrokerOptions,
    GroupArgument,
    TopicArgument,
    YesOption,
    complete_topics,
    group_argument,
    on_broker,
    require_topic_name,
)
from goqueue.cli.terminal import times
from goqueue.cli.terminal.failures import EXIT_FAILED, EXIT_PROBLEMS
from goqueue.cli.terminal.output import print_json, print_lines
from goqueue.cli.terminal.plain_help import command_group
from goqueue.model.errors import GroupConflict, GroupNotFound, NotFound
from goqueue.observe.logs import escape

if TYPE_CHECKING:
    from goqueue.cli.connection.broker_http import BrokerHttp

_EXAMPLES = """\b
Examples:
  goqueue group list
  goqueue group describe billing
  goqueue group lag billing
  goqueue group reset billing orders --to earliest --dry-run
  goqueue group delete reports --if-exists --yes
"""
_LIST_EXAMPLES = """\b
Examples:
  goqueue group list
  goqueue group list --json
"""
_DESCRIBE_EXAMPLES = """\b
Examples:
  goqueue group describe billing
  goqueue group describe billing --json
"""
_LAG_EXAMPLES = """\b
Examples:
  goqueue group lag billing
  goqueue group lag billing --topic orders --json
  goqueue group lag billing --at-most 1000000         the exit status is 5 if it is more
  timeout -s INT 2 goqueue group lag billing --watch --every 1s || true
"""
_RESET_EXAMPLES = """\b
Examples:
  goqueue group reset billing orders --to earliest --dry-run     see what would change
  goqueue group reset billing orders --to latest --yes           skip all that is there
  goqueue group reset billing orders --to 1h --yes               what came in the last hour, again
  goqueue group reset billing orders --to 2026-01-31T12:00:00Z --dry-run
  goqueue group reset billing orders --to 0 --partition 0 --partition 2 --yes
"""
_DELETE_EXAMPLES = """\b
Examples:
  goqueue group delete reports --if-exists --yes
"""
GroupsArgument = Annotated[list[str], group_argument("Names.")]
TopicOption = Annotated[
    str | None,
    typer.Option(
        "--topic", metavar="NAME", help="Only this topic.", autocompletion=complete_topics, callback=require_topic_name
    ),
]

app = command_group("See groups and their lag, and reset their offsets.", _EXAMPLES)


class GroupInUse(GroupConflict):
    """The group has members, whose state would be lost."""

    remedy = (
        "Stop its members first: 'goqueue group describe NAME' shows them. "
        "One that ended without leaving is forgotten after its session timeout."
    )


class NotRead(NotFound):
    """The group does not read this topic."""

    remedy = "'goqueue group describe NAME' shows where it is in each topic that it reads."


@app.command("list", epilog=_LIST_EXAMPLES, short_help="List groups, their members and their lag.")
@on_broker
def list_groups(options: BrokerOptions) -> int:
    """List groups: mode, members, messages in flight and lag."""
    broker = options.broker()
    found = []
    for name in broker.get("/groups")["groups"]:
        try:
            found.append(_fetch_group(broker, name))
        except GroupNotFound:
            continue  # Deleted since it was listed.
    if options.as_json:
        print_json([group_view.summary(each) for each in found])
    elif found:
        print_lines(group_view.groups_table(found))
    else:
        typer.echo("there are no groups; one is made when its first member joins", err=True)
    return 0


@app.command(epilog=_DESCRIBE_EXAMPLES, short_help="Show a group: its settings, members and their partitions.")
@on_broker
def describe(options: BrokerOptions, group: GroupArgument) -> int:
    """Show a group: its settings, its members and the partitions they own, and its committed offset in each
    partition."""
    answer = _fetch_group(options.broker(), group)
    return options.show(answer, group_view.group_lines(answer))


@app.command(epilog=_LAG_EXAMPLES, short_help="Show how many messages a group still has to process.")
@on_broker
def lag(
    options: BrokerOptions,
    group: GroupArgument,
    topic: TopicOption = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Print a line at each interval, until interrupted.")
    ] = False,
    every: Annotated[str, typer.Option("--every", metavar="TIME", help="The interval of --watch.")] = "2s",
    at_most: Annotated[
        int | None, typer.Option("--at-most", min=0, metavar="N", help="End with status 5 if the total lag is higher.")
    ] = None,
) -> int:
    """Show how many messages a group still has to process: in total, and in each partition."""
    broker = options.broker()
    if watch:
        if at_most is not None:
            raise typer.BadParameter("--watch goes on until it is interrupted, --at-most looks once; use one of them")
        from goqueue.cli.commands.group import lag_watch

        pause_ms = times.duration_ms("--every", every, least_ms=100, most_ms=3_600_000)
        return lag_watch.watch(lambda: _fetch_lag(broker, group, topic), pause_ms / 1_000, as_json=options.as_json)
    found = _fetch_lag(broker, group, topic)
    total = sum(each["lag"] for each in found)
    options.show(group_view.lag_json(group, found), group_view.lag_table(found))
    return EXIT_PROBLEMS if at_most is not None and total > at_most else 0


@app.command(epilog=_RESET_EXAMPLES)
@on_broker
def reset(
    options: BrokerOptions,
    group: GroupArgument,
    topic: TopicArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="earliest|latest|OFFSET|TIME|INSTANT",
            help="The new offset, a time ago (1h), or an instant (2026-01-31T12:00:00).",
            show_default=False,
        ),
    ],
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", min=0, metavar="N", help="Only this partition. Can be given several times."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    yes: YesOption = False,
) -> int:
    """Move a group back or forward in a topic. Delivery goes on at the new offset, and receipts of messages in flight
    there become void."""
    broker = options.broker()
    wanted = group_reset.parse_target(to)
    now = _fetch_group(broker, group)
    moves = group_reset.plan_moves(broker, now, topic, wanted, partition)
    if not dry_run:
        if not options.as_json and not yes:
            print_lines(group_view.moves_table(moves))
        question = f"Set {escape(group)} to {escape(to)} in {escape(topic)}?"
        if not confirmed(question, yes, options):
            return EXIT_FAILED
        moves = group_reset.carry_out(broker, group, topic, wanted, partition, moves)
    if options.as_json:
        print_json({"group": group, "topic": topic, "reset": not dry_run, "partitions": moves})
    elif dry_run or yes:
        print_lines(group_view.moves_table(moves))
    if not options.as_json:
        done = "nothing was changed; this is what would be" if dry_run else f"{escape(group)} goes on there"
        typer.echo(done, err=True)
    return 0


@app.command(epilog=_DELETE_EXAMPLES)
@on_broker
def delete(
    options: BrokerOptions,
    groups: GroupsArgument,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Ignore groups that do not exist.")] = False,
    yes: YesOption = False,
) -> int:
    """Delete groups without members, with their offsets. If one does not exist or has members, none is deleted."""
    broker = options.broker()
    found = look_up_all(groups, lambda name: _fetch_group(broker, name), GroupNotFound, if_exists=if_exists)
    for each in found:
        if each["members"]:
            count = len(each["members"])
            members = f"{count} member{'' if count == 1 else 's'}"
            raise GroupInUse(
                f"group {escape(each['group_id'])} has {members}: they must leave first. Nothing was deleted"
            )
    ids = [each["group_id"] for each in found]
    question = f"Delete {', '.join(map(escape, ids))}, and forget what is done? That cannot be undone."
    if ids and not confirmed(question, yes, options):
        return EXIT_FAILED
    delete_each(ids, lambda name: broker.send("DELETE", ["groups", name]), GroupNotFound, as_json=options.as_json)
    return 0


def _fetch_group(broker: BrokerHttp, name: str) -> dict[str, Any]:
    found: dict[str, Any] = broker.send("GET", ["groups", name])
    return found


def _fetch_lag(broker: BrokerHttp, group: str, topic: str | None) -> list[dict[str, Any]]:
    found = [each for each in _fetch_group(broker, group)["lag"] if topic in (None, each["topic"])]
    if topic is not None and not found:
        # Raises if the topic does not exist.
        broker.send("GET", ["topics", topic])
        raise NotRead(f"group {escape(group)} does not read topic {escape(topic)}")
    return found
