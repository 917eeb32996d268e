"""One look at a broker: what it says of itself, and when."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from goqueue.cli.connection.broker_http import NoBroker
from goqueue.cli.figures.figure_text import Series, StrangeFigures, parse
from goqueue.model.errors import GoQueueError

if TYPE_CHECKING:
    from goqueue.cli.connection.broker_http import BrokerHttp

LANES = ("critical", "high", "normal", "low", "background")
MOST_PARTITIONS = 1_000
"""Of which what waits in lanes is added up; a broker with more has a page for them, and time to make it."""
HISTOGRAMS = {
    "publish": "goqueue_publish_seconds_bucket",
    "end_to_end": "goqueue_end_to_end_seconds_bucket",
    "fsync": "goqueue_fsync_seconds_bucket",
    "loop_delay": "goqueue_event_loop_delay_seconds_bucket",
}
_WANTED = (
    "goqueue_build_info",
    "goqueue_ready",
    "goqueue_topics",
    "goqueue_groups",
    "goqueue_connections",
    "goqueue_disk_free_bytes",
    "goqueue_disk_min_free_bytes",
    "goqueue_failed_partitions",
    "goqueue_damaged_messages",
    "goqueue_messages_published_total",
    "goqueue_published_bytes_total",
    "goqueue_messages_read_total",
    "goqueue_read_bytes_total",
    "goqueue_messages_delivered_total",
    "goqueue_messages_redelivered_total",
    "goqueue_messages_acked_total",
    "goqueue_messages_dead_lettered_total",
    "goqueue_group_lag_messages",
    "goqueue_group_in_flight_messages",
    "goqueue_group_waiting_messages",
    "goqueue_group_members",
    "goqueue_delayed_messages",
    "goqueue_transactions",
    "goqueue_oldest_transaction_seconds",
    "goqueue_fsync_rounds_total",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    *HISTOGRAMS.values(),
)


@dataclass(frozen=True, slots=True)
class LanesNow:
    """Messages that groups can take now, by lane; of a part of the partitions if there are very many."""

    waiting: Mapping[str, int]
    of_partitions: int
    all_partitions: int


@dataclass(frozen=True, slots=True)
class Look:
    """``at_s`` is of the monotonic clock, ``at`` of the wall's. Series go by the names of the figures."""

    at_s: float
    at: float
    took_s: float
    series: Mapping[str, Series]
    lanes: LanesNow | None = None

    def all(self, name: str) -> float:
        """Everything under a name together."""
        return sum(self.series[name].values())

    def by(self, name: str, label: str) -> dict[str, float]:
        """Added up by the value of a label."""
        found: dict[str, float] = {}
        for labels, value in self.series[name].items():
            for key, text in labels:
                if key == label:
                    found[text] = found.get(text, 0.0) + value
        return found

    def with_lanes(self, lanes: LanesNow | None) -> Look:
        return replace(self, lanes=lanes)

    def of_topic(self, topic: str) -> Look:
        """Without what is of other topics; what is of none stays, but groups that have nothing to do with it go."""
        kept = {
            name: {labels: value for labels, value in series.items() if dict(labels).get("topic", topic) == topic}
            for name, series in self.series.items()
        }
        groups = {dict(labels).get("group") for labels in kept["goqueue_group_lag_messages"]}
        kept["goqueue_group_members"] = {
            labels: value
            for labels, value in kept["goqueue_group_members"].items()
            if dict(labels).get("group") in groups
        }
        return replace(self, series=kept)

    @property
    def started_at(self) -> float:
        """Unix time; 0 if the broker cannot tell."""
        return self.all("process_start_time_seconds")


def look_at(broker: BrokerHttp) -> Look:
    """Ask for its figures. What waits in lanes is a question of its own, and a dearer one."""
    started = time.monotonic()
    status, text = broker.text("/metrics")
    if status != 200:
        raise StrangeFigures(f"{broker.server} answered GET /metrics with {status}")
    at_s, at = time.monotonic(), time.time()
    series = parse(text, _WANTED)
    if not series["goqueue_ready"]:
        raise StrangeFigures(f"what {broker.server} shows at /metrics are not the figures of a broker")
    return Look(at_s, at, at_s - started, series)


def lanes_of(broker: BrokerHttp, topic: str | None = None) -> LanesNow | None:
    """Of all topics, or of one; ``None`` if the broker cannot say."""
    only = {} if topic is None else {"topic": topic}
    try:
        answer = broker.get("/priority/stats", {"limit": MOST_PARTITIONS, **only})
        waiting = dict.fromkeys(LANES, 0)
        for partition in answer["partitions"]:
            for group in partition["groups"]:
                for lane, figures in group["lanes"].items():
                    waiting[lane] = waiting.get(lane, 0) + figures["ready"]
        return LanesNow(waiting, len(answer["partitions"]), answer["total_partitions"])
    except (GoQueueError, KeyError, TypeError):
        # The rest is worth showing without it.
        return None


def readiness_of(broker: BrokerHttp) -> Any:
    """A page of JSON with either status: a broker that is not ready says with 503 why."""
    status, text = broker.text("/readyz", {"verbose": "true"})
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        raise NoBroker(f"what listens at {broker.server} is no broker: it answered GET /readyz with {status}") from None
