"""Redrives dead letters page by page; it can be stopped between two pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from goqueue.model.errors import TopicNotFound

if TYPE_CHECKING:
    from goqueue.cli.connection.broker_http import BrokerHttp

DRY_RUN_PAGE = 10_000


@dataclass(slots=True)
class RedriveCounts:
    """Counts of what a redrive did, or would do."""

    matched: int = 0
    redriven: int = 0
    already: int = 0
    unreachable: int = 0
    by_topic: dict[str, int] = field(default_factory=dict)

    def add(self, report: dict[str, Any]) -> None:
        self.matched += report["matched"]
        self.redriven += report["redriven"]
        self.already += report["already"]
        self.unreachable += report["unreachable"]
        for topic, count in report["by_topic"].items():
            self.by_topic[topic] = self.by_topic.get(topic, 0) + count


def redrive_all(
    broker: BrokerHttp,
    topic: str,
    body: dict[str, object],
    at_once: int,
    counts: RedriveCounts,
    *,
    what: str,
    total: int | None = None,
) -> bool:
    """Redrive everything that matches, and add it up in ``counts``. False if it was stopped before the end."""
    from goqueue.cli.terminal import progress

    start: dict[str, int] = {}
    with progress.stoppable() as stop, progress.progress_bar(what, total, "dead letters") as bar:
        while not stop.is_set():
            request = {**body, **start, "limit": at_once}
            report = send_if_any(broker, "POST", topic, "redrive", body=request)
            if report is None:
                return True
            counts.add(report)
            bar.advance(report["matched"])
            if not report["more"]:
                return True
            start = {"from_partition": report["next"]["partition"], "from_offset": report["next"]["offset"]}
    return False


def send_if_any(
    broker: BrokerHttp,
    method: str,
    topic: str,
    last: str,
    parameters: Mapping[str, str | int] | None = None,
    body: Mapping[str, object] | None = None,
) -> Any:
    """Call the broker. ``None`` for a topic without a dead-letter topic, which is created with its first dead
    letter."""
    try:
        return broker.send(method, ["topics", topic, last], parameters, body)
    except TopicNotFound:
        # Raises if the topic itself does not exist.
        broker.send("GET", ["topics", topic])
        return None
