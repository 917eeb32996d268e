"""``goqueue group``: who works on what, how far behind they are; setting groups back or forward, and deleting them.

What draws and what asks is imported when it is needed: asking for the version must not load it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from goqueue.cli.connection.bulk_delete import delete_each, found_of
from goqueue.cli.connection.confirmation import confirmed
from goqueue.cli.connection.target import (
    DEFAULT_TIMEOUT,
    GroupArgument,
    JsonOption,
    ServerOption,
    TimeoutOption,
    TopicArgument,
    YesOption,
    broker_at,
    group_named,
    groups_that_begin_with,
    topic_named,
    topics_that_begin_with,
)
from goqueue.cli.terminal.failures import EXIT_FAILED, EXIT_PROBLEMS, reported
from goqueue.cli.terminal.styled_lines import put_json
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
GroupsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="GROUP",
        help="Names.",
        show_default=False,
        autocompletion=groups_that_begin_with,
        callback=group_named,
    ),
]
TopicOption = Annotated[
    str | None,
    typer.Option(
        "--topic",
        metavar="NAME",
        help="Only this topic's.",
        autocompletion=topics_that_begin_with,
        callback=topic_named,
    ),
]

app = typer.Typer(
    help="See groups and their lag, and set them back or forward.",
    epilog=_EXAMPLES,
    no_args_is_help=True,
    rich_markup_mode=None,
)


class GroupInUse(GroupConflict):
    """It has members, and what they do would be forgotten."""

    remedy = (
        "Stop its members first: 'goqueue group describe NAME' shows them. "
        "One that ended without leaving is forgotten after its session timeout."
    )


class NotRead(NotFound):
    """A topic that the group has nothing to do with."""

    remedy = "'goqueue group describe NAME' shows where it is in each topic that it reads."


@app.command("list", epilog=_LIST_EXAMPLES, short_help="List groups, who is there and how far behind they are.")
@reported
def list_groups(
    server: ServerOption = None, as_json: JsonOption = False, timeout: TimeoutOption = DEFAULT_TIMEOUT
) -> int:
    """List groups: how they work, who is there, how far behind they are."""
    from goqueue.cli.commands.group import group_view
    from goqueue.cli.terminal import styled_lines

    broker = broker_at(server, timeout)
    found = []
    for name in broker.get("/groups")["groups"]:
        try:
            found.append(_group(broker, name))
        except GroupNotFound:
            continue  # It was deleted meanwhile.
    if as_json:
        put_json([group_view.summary(each) for each in found])
    elif found:
        styled_lines.put(group_view.listed(found))
    else:
        typer.echo("there are no groups; one is made when its first member joins", err=True)
    return 0


@app.command(epilog=_DESCRIBE_EXAMPLES, short_help="Show a group: its settings, its members and what they own.")
@reported
def describe(
    group: GroupArgument,
    server: ServerOption = None,
    as_json: JsonOption = False,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> int:
    """Show a group: its settings, its members and what they own, and where it is in each partition."""
    from goqueue.cli.commands.group import group_view
    from goqueue.cli.terminal import styled_lines

    answer = _group(broker_at(server, timeout), group)
    if as_json:
        put_json(answer)
    else:
        styled_lines.put(group_view.described(answer))
    return 0


@app.command(epilog=_LAG_EXAMPLES, short_help="Show how many messages a group has not done with.")
@reported
def lag(
    group: GroupArgument,
    topic: TopicOption = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="A line for each look, until it is interrupted.")
    ] = False,
    every: Annotated[str, typer.Option("--every", metavar="TIME", help="How often --watch looks.")] = "2s",
    at_most: Annotated[
        int | None,
        typer.Option("--at-most", min=0, metavar="N", help="End with status 5 if the lag in all is more than that."),
    ] = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> int:
    """Show how many messages a group has not done with: in all, and in each partition."""
    from goqueue.cli.commands.group import group_view
    from goqueue.cli.terminal import styled_lines

    broker = broker_at(server, timeout)
    if watch:
        if at_most is not None:
            raise typer.BadParameter("--watch goes on until it is interrupted, --at-most looks once; use one of them")
        from goqueue.cli.commands.group import lag_watch
        from goqueue.cli.terminal import times

        pause_ms = times.duration_ms("--every", every, least_ms=100, most_ms=3_600_000)
        return lag_watch.watch(lambda: _lag(broker, group, topic), pause_ms / 1_000, as_json=as_json)
    found = _lag(broker, group, topic)
    total = sum(each["lag"] for each in found)
    if as_json:
        put_json(group_view.lag_answer(group, found))
    else:
        styled_lines.put(group_view.lags(found))
    return EXIT_PROBLEMS if at_most is not None and total > at_most else 0


@app.command(epilog=_RESET_EXAMPLES)
@reported
def reset(
    group: GroupArgument,
    topic: TopicArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="earliest|latest|OFFSET|TIME|INSTANT",
            help="Where it goes on: an offset, so long ago (1h), or 2026-01-31T12:00:00.",
            show_default=False,
        ),
    ],
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", min=0, metavar="N", help="Only of this one. Can be given several times."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would change.")] = False,
    yes: YesOption = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> int:
    """Set a group back or forward in a topic. What its members have in flight there is void: it comes again, or not."""
    from goqueue.cli.commands.group import group_reset, group_view
    from goqueue.cli.terminal import styled_lines

    broker = broker_at(server, timeout)
    wanted = group_reset.target_of(to)
    now = _group(broker, group)
    moves = group_reset.planned(broker, now, topic, wanted, partition)
    if not dry_run:
        if not as_json and not yes:
            styled_lines.put(group_view.moves(moves))
        question = f"Set {escape(group)} to {escape(to)} in {escape(topic)}?"
        if not confirmed(question, yes):
            return EXIT_FAILED
        moves = group_reset.carried_out(broker, group, topic, wanted, partition, moves)
    if as_json:
        put_json({"group": group, "topic": topic, "reset": not dry_run, "partitions": moves})
    elif dry_run or yes:
        styled_lines.put(group_view.moves(moves))
    if not as_json:
        done = "nothing was changed; this is what would be" if dry_run else f"{escape(group)} goes on there"
        typer.echo(done, err=True)
    return 0


@app.command(epilog=_DELETE_EXAMPLES)
@reported
def delete(
    groups: GroupsArgument,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Those that are not there are fine.")] = False,
    yes: YesOption = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> int:
    """Delete groups that have no members, with their offsets. If one is not there, or in use, none is deleted."""
    broker = broker_at(server, timeout)
    found = found_of(groups, lambda name: _group(broker, name), GroupNotFound, if_exists=if_exists)
    for each in found:
        if each["members"]:
            count = len(each["members"])
            members = f"{count} member{'' if count == 1 else 's'}"
            raise GroupInUse(
                f"group {escape(each['group_id'])} has {members}: they must leave first. Nothing was deleted"
            )
    ids = [each["group_id"] for each in found]
    if ids and not confirmed(
        f"Delete {', '.join(map(escape, ids))}, and forget what is done? That cannot be undone.", yes
    ):
        return EXIT_FAILED
    delete_each(ids, lambda name: broker.send("DELETE", ["groups", name]), GroupNotFound, as_json=as_json)
    return 0


def _group(broker: BrokerHttp, name: str) -> dict[str, Any]:
    found: dict[str, Any] = broker.send("GET", ["groups", name])
    return found


def _lag(broker: BrokerHttp, group: str, topic: str | None) -> list[dict[str, Any]]:
    found = [each for each in _group(broker, group)["lag"] if topic in (None, each["topic"])]
    if topic is not None and not found:
        # There may be no such topic at all.
        broker.send("GET", ["topics", topic])
        raise NotRead(f"group {escape(group)} does not read topic {escape(topic)}")
    return found
