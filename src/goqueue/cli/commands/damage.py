"""``goqueue damage``: lists messages that a running broker lost to damage, and acknowledges the loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from goqueue.cli.connection.confirmation import confirmed
from goqueue.cli.connection.target import BrokerOptions, TopicArgument, YesOption, on_broker
from goqueue.cli.terminal import tables
from goqueue.cli.terminal.failures import EXIT_FAILED, EXIT_PROBLEMS
from goqueue.cli.terminal.output import print_json, print_lines
from goqueue.cli.terminal.plain_help import command_group
from goqueue.observe.logs import escape

if TYPE_CHECKING:
    from goqueue.cli.connection.broker_http import BrokerHttp

_EXAMPLES = """\b
Examples:
  goqueue damage list                       what was lost, and nobody has acknowledged
  goqueue damage acknowledge orders --yes   accept it: readers step over what is gone
"""

AllOption = Annotated[bool, typer.Option("--all", help="Include acknowledged losses.")]
PartitionOption = Annotated[int | None, typer.Option("--partition", min=0, metavar="N", help="Only of this partition.")]

app = command_group("See which messages were lost to damage, and accept that.", _EXAMPLES)


@app.command("list", short_help="List messages that were lost to damage.")
@on_broker
def list_damage(options: BrokerOptions, show_all: AllOption = False) -> int:
    """List messages that were lost to damage, found when the broker started or when it read them.

    The status is 5 while a loss is not acknowledged, or a message in the log fails its checksum.
    """

    broker = options.broker()
    answer = broker.get("/admin/damage", {"all": "true"} if show_all else {})
    found = answer["damage"]
    failing = _print_failing_topics(broker)
    is_open = any("acknowledged_at" not in each for each in found)
    if options.as_json:
        print_json(answer)
    elif found:
        print_lines(_losses_table(found))
        if answer["total"] > len(found):
            typer.echo(f"{answer['total'] - len(found)} more", err=True)
    elif not failing:
        typer.echo("nothing is lost", err=True)
    return EXIT_PROBLEMS if is_open or failing else 0


@app.command(short_help="Accept a topic's losses: readers skip them.")
@on_broker
def acknowledge(
    options: BrokerOptions, topic: TopicArgument, partition: PartitionOption = None, yes: YesOption = False
) -> int:
    """Accept what a topic has lost. Readers skip it from then on, and it no longer makes the broker degraded.

    If the messages matter, restore the folder from a backup instead.
    """
    where = escape(topic) if partition is None else f"{escape(topic)}/{partition}"
    if not confirmed(f"Let readers of {where} step over what is lost?", yes, options):
        return EXIT_FAILED
    body = {} if partition is None else {"partition": partition}
    path = ["admin", "topics", topic, "damage", "acknowledge"]
    broker = options.broker()
    answer = broker.send("POST", path, body=body)
    failing = _print_failing_topics(broker, topic)
    if options.as_json:
        print_json(answer)
        return EXIT_PROBLEMS if failing else 0

    if not answer["damage"]:
        typer.echo(f"no loss is noted in {where} that nobody had acknowledged", err=True)
    else:
        print_lines(_losses_table(answer["damage"]))
    return EXIT_PROBLEMS if failing else 0


def _print_failing_topics(broker: BrokerHttp, topic: str | None = None) -> bool:
    """Print the topics with messages that failed their checksum on reading and are still in the log: these cannot be
    acknowledged yet. True if there are any."""
    found = {
        name: each["damaged_messages"]
        for name, each in broker.get("/stats")["topic_stats"].items()
        if each["damaged_messages"] and topic in (None, name)
    }
    for name, count in found.items():
        fail = "1 message fails its checksum" if count == 1 else f"{count:,} messages fail their checksums"
        typer.echo(f"{escape(name)}: {fail}; /health names the offsets", err=True)
    if found:
        typer.echo(
            "hint: Restore a backup if they matter. If not: stop the broker, run 'goqueue doctor --repair', which sets "
            "them aside, start it, then 'goqueue damage acknowledge'.",
            err=True,
        )
    return bool(found)


def _losses_table(found: list[dict[str, Any]]) -> Any:
    titles = ["topic", "partition", "first offset", "last offset", "found", "acknowledged"]
    rows = [
        [
            escape(each["topic"]),
            str(each["partition"]),
            str(each["first_offset"]),
            str(each["last_offset"]),
            each["found_at"],
            each.get("acknowledged_at", "no"),
        ]
        for each in found
    ]
    return tables.table(titles, rows)
