"""``goqueue stats``: a broker's health and contents, once."""

from __future__ import annotations

import sys
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goqueue.cli.connection.target import BrokerOptions, complete_topics, on_broker
from goqueue.cli.terminal.failures import EXIT_PROBLEMS

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
        metavar="TOPIC", help="Only this topic, and its groups.", show_default=False, autocompletion=complete_topics
    ),
]
LimitOption = Annotated[
    int, typer.Option("--limit", min=1, max=100_000, metavar="N", help="How many topics and groups at the most.")
]


@on_broker
def stats(options: BrokerOptions, topic: OneTopic = None, limit: LimitOption = 20) -> int:
    """Show a broker's health and contents: topics, groups and their lag, lanes, delays, transactions.

    "Offsets" is the span of a topic's offsets. It counts messages and records stored beside them (transaction markers,
    delayed messages). The "messages" of --json is the same number.

    Ends with status 5 if the broker reports a problem, or does not accept messages. Counts are since its start.
    """
    from goqueue.cli.commands.stats.stats_view import stats_lines

    found = gather(options.broker(), topic)
    width = get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    options.show(found, stats_lines(found, limit, width))
    is_well = found["health"]["status"] == "ok" and found["readiness"]["status"] == "pass"
    return 0 if is_well else EXIT_PROBLEMS


def gather(broker: BrokerHttp, topic: str | None) -> dict[str, Any]:
    """Collect the broker's pages by subject. Raises the broker's error if the topic does not exist."""
    from goqueue.cli.figures.broker_figures import fetch_lanes, fetch_readiness, take_sample
    from goqueue.cli.figures.figure_rates import compute_reading

    if topic is not None:
        broker.send("GET", ["topics", topic])
    look = take_sample(broker)
    if topic is not None:
        look = look.of_topic(topic)
    now = compute_reading(None, look.with_lanes(fetch_lanes(broker, topic)))
    totals = broker.get("/stats")
    topics = totals.pop("topic_stats")
    # The broker's total, like all other figures here; the topic's own count is with the topic.
    totals["messages"] = sum(each["messages"] for each in topics.values())
    if topic is not None:
        topics = {name: figures for name, figures in topics.items() if name == topic}
    return {
        "server": broker.server,
        "version": broker.get("/version")["version"],
        "topic": topic,
        "health": broker.get("/health"),
        "readiness": fetch_readiness(broker),
        "broker": totals | {"memory_bytes": now.memory_bytes, "connections": now.connections},
        "topics": topics,
        "groups": [
            {name: getattr(each, name) for name in ("group", "lag", "in_flight", "retry", "members")}
            for each in now.groups
        ],
        "waiting_by_lane": now.lanes,
        "lanes_of_partitions": now.lanes_of_partitions,
        "partitions": now.partitions,
        "delays": broker.get("/delay/stats"),
        "transactions": broker.get("/transactions/stats"),
        "reliability": broker.get("/reliability/stats"),
    }
