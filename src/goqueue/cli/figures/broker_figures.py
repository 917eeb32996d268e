"""Takes a sample of a broker's metrics, with the time it was taken."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from goqueue.cli.connection.broker_http import NoBroker
from goqueue.cli.figures.figure_text import Series, UnexpectedMetrics, parse_metrics
from goqueue.model.errors import GoQueueError

if TYPE_CHECKING:
    from goqueue.cli.connection.broker_http import BrokerHttp

LANES = ("critical", "high", "normal", "low", "background")
MOST_PARTITIONS = 1_000
"""The most partitions whose lanes are summed up. On a broker with more, ``/priority/stats`` has several pages and takes
long to compute."""
HISTOGRAMS = {
    "publish": "goqueue_publish_seconds_bucket",
    "end_to_end": "goqueue_end_to_end_seconds_bucket",
    "fsync": "goqueue_fsync_seconds_bucket",
    "loop_delay": "goqueue_event_loop_delay_seconds_bucket",
}
_METRICS = (
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
class LaneCounts:
    """Messages ready for delivery, by lane; of the first partitions only if there are very many."""

    waiting: Mapping[str, int]
    of_partitions: int
    all_partitions: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample of a broker's metrics. ``at_s`` is monotonic time, ``at`` wall-clock time. ``series`` is keyed by
    metric."""

    at_s: float
    at: float
    took_s: float
    series: Mapping[str, Series]
    lanes: LaneCounts | None = None

    def total(self, name: str) -> float:
        """The sum over all series of a metric."""
        return sum(self.series[name].values())

    def total_by(self, name: str, label: str) -> dict[str, float]:
        """The sums of a metric by the values of a label."""
        found: dict[str, float] = {}
        for labels, value in self.series[name].items():
            for key, text in labels:
                if key == label:
                    found[text] = found.get(text, 0.0) + value
        return found

    def with_lanes(self, lanes: LaneCounts | None) -> Sample:
        return replace(self, lanes=lanes)

    def of_topic(self, topic: str) -> Sample:
        """Without the series of other topics. Series without a topic stay, except those of groups that do not read the
        topic."""
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
        """Unix time of the broker's start; 0 if unknown."""
        return self.total("process_start_time_seconds")


def take_sample(broker: BrokerHttp) -> Sample:
    """Fetch and parse the broker's metrics. Lanes are fetched by ``fetch_lanes``, a call that costs the broker more."""
    started = time.monotonic()
    status, text = broker.text("/metrics")
    if status != 200:
        raise UnexpectedMetrics(f"{broker.server} answered GET /metrics with {status}")
    at_s, at = time.monotonic(), time.time()
    series = parse_metrics(text, _METRICS)
    if not series["goqueue_ready"]:
        raise UnexpectedMetrics(f"what {broker.server} shows at /metrics are not the figures of a broker")
    return Sample(at_s, at, at_s - started, series)


def fetch_lanes(broker: BrokerHttp, topic: str | None = None) -> LaneCounts | None:
    """Messages ready by lane, of all topics or of one; ``None`` if the broker does not answer that."""
    only = {} if topic is None else {"topic": topic}
    try:
        answer = broker.get("/priority/stats", {"limit": MOST_PARTITIONS, **only})
        waiting = dict.fromkeys(LANES, 0)
        for partition in answer["partitions"]:
            for group in partition["groups"]:
                for lane, figures in group["lanes"].items():
                    waiting[lane] = waiting.get(lane, 0) + figures["ready"]
        return LaneCounts(waiting, len(answer["partitions"]), answer["total_partitions"])
    except (GoQueueError, KeyError, TypeError):
        # The other figures are useful without it.
        return None


def fetch_readiness(broker: BrokerHttp) -> Any:
    """The broker's readiness report. Its status is not checked: a broker that is not ready answers 503 with the
    reasons."""
    status, text = broker.text("/readyz", {"verbose": "true"})
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        raise NoBroker(f"what listens at {broker.server} is no broker: it answered GET /readyz with {status}") from None
