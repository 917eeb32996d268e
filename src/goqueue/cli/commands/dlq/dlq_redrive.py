"""Sending dead letters back, page by page: between two of them it can be stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from goqueue.model.errors import TopicNotFound

if TYPE_CHECKING:
    from goqueue.cli.connection.broker_http import BrokerHttp

COUNTED_AT_ONCE = 10_000


@dataclass(slots=True)
class Tally:
    """What a redrive did, or would do."""

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

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def redrive_all(
    broker: BrokerHttp,
    topic: str,
    body: dict[str, object],
    at_once: int,
    tally: Tally,
    *,
    what: str,
    total: int | None = None,
) -> bool:
    """False if it was stopped before all were seen to."""
    from goqueue.cli.terminal import progress

    place: dict[str, int] = {}
    with progress.stoppable() as stop, progress.shown(what, total, "dead letters") as bar:
        while not stop.is_set():
            asked = {**body, **place, "limit": at_once}
            report = answer_of(broker, "POST", topic, "redrive", body=asked)
            if report is None:
                return True
            tally.add(report)
            bar.advance(report["matched"])
            if not report["more"]:
                return True
            place = {"from_partition": report["next"]["partition"], "from_offset": report["next"]["offset"]}
    return False


def answer_of(
    broker: BrokerHttp,
    method: str,
    topic: str,
    last: str,
    parameters: Mapping[str, str | int] | None = None,
    body: Mapping[str, object] | None = None,
) -> Any:
    """``None`` for a topic that is there and never had dead letters: the topic for them is made for the first."""
    try:
        return broker.send(method, ["topics", topic, last], parameters, body)
    except TopicNotFound:
        # Raises, if it is the topic itself that is missing.
        broker.send("GET", ["topics", topic])
        return None
