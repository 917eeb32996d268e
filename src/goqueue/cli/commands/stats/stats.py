"""``goqueue stats``: what a broker holds and how it is, once.

What draws and what asks is imported when it is needed: asking for the version must not load it.
"""

from __future__ import annotations

import sys
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goqueue.cli.connection.target import (
    DEFAULT_TIMEOUT,
    JsonOption,
    ServerOption,
    TimeoutOption,
    broker_at,
    topics_that_begin_with,
)
from goqueue.cli.terminal.failures import EXIT_PROBLEMS, reported
from goqueue.cli.terminal.styled_lines import put_json

if TYPE_CHECKING:
    from goqueue.cli.connection.broker_http import BrokerHttp

EXAMPLES = """\b
Examples:
  goqueue stats                               what there is, and how it is
  goqueue stats orders                        one topic, its groups and its lanes
  goqueue stats --json | grep '"problems"'    for programs; exit status 5 if something is wrong
"""

OneTopic = Annotated[
    str | None,
    typer.Argument(
        metavar="TOPIC",
        help="Only this topic, and what groups have of it.",
        show_default=False,
        autocompletion=topics_that_begin_with,
    ),
]
LimitOption = Annotated[
    int, typer.Option("--limit", min=1, max=100_000, metavar="N", help="The most topics and groups to show.")
]


@reported
def stats(
    topic: OneTopic = None,
    limit: LimitOption = 20,
    server: ServerOption = None,
    as_json: JsonOption = False,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> int:
    """Show what a broker holds and how it is: health, topics, groups and their lag, lanes, delays, transactions.

    Offsets are how many a topic spans: messages, and what is stored beside them (markers of transactions, what was
    delayed). The "messages" of --json is the same number.

    Ends with status 5 if the broker says that something is wrong, or takes no messages. Counts are since its start.
    """
    from goqueue.cli.commands.stats.stats_view import described
    from goqueue.cli.terminal import styled_lines

    found = gathered(broker_at(server, timeout), topic)
    if as_json:
        put_json(found)
    else:
        styled_lines.put(described(found, limit, get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize))
    is_well = found["health"]["status"] == "ok" and found["readiness"]["status"] == "pass"
    return 0 if is_well else EXIT_PROBLEMS


def gathered(broker: BrokerHttp, topic: str | None) -> dict[str, Any]:
    """What its pages say, by what they are about. A topic that does not exist is an error of the broker's own."""
    from goqueue.cli.figures.broker_figures import lanes_of, look_at, readiness_of
    from goqueue.cli.figures.figure_rates import reading

    if topic is not None:
        broker.send("GET", ["topics", topic])
    look = look_at(broker)
    if topic is not None:
        look = look.of_topic(topic)
    now = reading(None, look.with_lanes(lanes_of(broker, topic)))
    held = broker.get("/stats")
    topics = held.pop("topic_stats")
    # All of it, as its size and everything else here is: what a topic has of it stands with the topic.
    held["messages"] = sum(each["messages"] for each in topics.values())
    if topic is not None:
        topics = {name: figures for name, figures in topics.items() if name == topic}
    return {
        "server": broker.server,
        "version": broker.get("/version")["version"],
        "topic": topic,
        "health": broker.get("/health"),
        "readiness": readiness_of(broker),
        "broker": held | {"memory_bytes": now.memory_bytes, "connections": now.connections},
        "topics": topics,
        "groups": [
            {
                "group": each.group,
                "lag": each.lag,
                "in_flight": each.in_flight,
                "retry": each.retry,
                "members": each.members,
            }
            for each in now.groups
        ],
        "waiting_by_lane": now.lanes,
        "lanes_of_partitions": now.lanes_of_partitions,
        "partitions": now.partitions,
        "delays": broker.get("/delay/stats"),
        "transactions": broker.get("/transactions/stats"),
        "reliability": broker.get("/reliability/stats"),
    }
