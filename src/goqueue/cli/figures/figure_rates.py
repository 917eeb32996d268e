"""Rates, latencies and gauges of a broker, computed from two samples of its metrics."""

from __future__ import annotations

import math

import msgspec

from goqueue.cli.figures.broker_figures import HISTOGRAMS, Sample
from goqueue.cli.figures.figure_spread import Distribution, distribution_between
from goqueue.cli.figures.figure_text import Labels, Series
from goqueue.model.clock import NANOS_PER_SECOND
from goqueue.model.units import format_instant_ns

_START_TOLERANCE_S = 1.0
_SHORTEST_S = 0.001


class Latency(msgspec.Struct, frozen=True):
    """Latency percentiles in seconds; ``None`` if nothing was measured.

    A percentile above the histogram's last finite bound is given as that bound, and ``…_is_at_least`` marks it as a
    lower bound.
    """

    p50_s: float | None = None
    p99_s: float | None = None
    p50_is_at_least: bool = False
    p99_is_at_least: bool = False


class TopicReading(msgspec.Struct, frozen=True):
    topic: str
    published_per_s: float
    published_bytes_per_s: float


class GroupReading(msgspec.Struct, frozen=True):
    """Figures of one group. ``retry`` counts messages that wait to be redelivered. Rates are ``None`` in the first
    sample."""

    group: str
    lag: int
    in_flight: int
    retry: int
    members: int
    lag_change_per_s: float | None
    delivered_per_s: float | None
    end_to_end: Latency


class Rates(msgspec.Struct, frozen=True):
    """Per-second rates over ``over_s``. ``delivered`` counts deliveries to groups, redeliveries included; ``read``
    counts reads without a group."""

    over_s: float
    published: float
    published_bytes: float
    delivered: float
    redelivered: float
    acked: float
    dead_lettered: float
    read: float
    read_bytes: float
    fsync_rounds: float
    cpu_percent: float


class BrokerReading(msgspec.Struct, frozen=True):
    """Figures of a broker. ``rates`` is ``None`` in the first sample, and in the first after a restart of the
    broker."""

    at: str
    version: str
    ready: bool
    uptime_s: float
    restarted: bool
    look_s: float
    rates: Rates | None
    publish: Latency
    end_to_end: Latency
    fsync: Latency
    loop_delay: Latency
    lag: int
    in_flight: int
    retry: int
    delayed: int
    transactions: int
    oldest_transaction_s: float
    failed_partitions: int
    damaged_messages: int
    memory_bytes: int
    disk_free_bytes: int
    disk_min_free_bytes: int
    connections: dict[str, int]
    lanes: dict[str, int] | None
    lanes_of_partitions: int | None
    """The number of partitions that ``lanes`` covers, if not all of them."""
    partitions: int | None
    topics: list[TopicReading]
    groups: list[GroupReading]


def compute_reading(before: Sample | None, now: Sample) -> BrokerReading:
    """Compute figures from two samples. Counters are subtracted series by series, so a deleted topic does not lower
    others.

    Counters of a restarted broker begin at zero: no rates are computed for that sample, because the time since when it
    counts is unknown.
    """
    restarted = before is not None and has_restarted(before, now)
    last = None if restarted else before

    def gauge(name: str) -> int:
        return int(now.total(name))

    lanes = now.lanes
    return BrokerReading(
        at=format_instant_ns(round(now.at * NANOS_PER_SECOND)),
        version=next((dict(labels).get("version", "") for labels in now.series["goqueue_build_info"]), ""),
        ready=bool(now.total("goqueue_ready")),
        uptime_s=max(0.0, now.at - now.started_at) if now.started_at else 0.0,
        restarted=restarted,
        look_s=now.took_s,
        rates=None if last is None else _compute_rates(last, now),
        publish=_recent_latency(last, now, "publish"),
        end_to_end=_recent_latency(last, now, "end_to_end"),
        fsync=_recent_latency(last, now, "fsync"),
        loop_delay=_recent_latency(last, now, "loop_delay"),
        lag=gauge("goqueue_group_lag_messages"),
        in_flight=gauge("goqueue_group_in_flight_messages"),
        retry=gauge("goqueue_group_waiting_messages"),
        delayed=gauge("goqueue_delayed_messages"),
        transactions=gauge("goqueue_transactions"),
        oldest_transaction_s=now.total("goqueue_oldest_transaction_seconds"),
        failed_partitions=gauge("goqueue_failed_partitions"),
        damaged_messages=gauge("goqueue_damaged_messages"),
        memory_bytes=gauge("process_resident_memory_bytes"),
        disk_free_bytes=gauge("goqueue_disk_free_bytes"),
        disk_min_free_bytes=gauge("goqueue_disk_min_free_bytes"),
        connections={api: int(value) for api, value in now.total_by("goqueue_connections", "api").items()},
        lanes=None if lanes is None else dict(lanes.waiting),
        lanes_of_partitions=None
        if lanes is None or lanes.of_partitions >= lanes.all_partitions
        else lanes.of_partitions,
        partitions=None if lanes is None else lanes.all_partitions,
        topics=_topic_readings(last, now),
        groups=_group_readings(last, now),
    )


def has_restarted(before: Sample, now: Sample) -> bool:
    """Whether the broker restarted in between, by its start time, or by a counter of its process that fell."""
    if abs(now.started_at - before.started_at) > _START_TOLERANCE_S:
        return True
    return any(
        now.total(name) < before.total(name) for name in ("process_cpu_seconds_total", "goqueue_fsync_rounds_total")
    )


def increases(before: Series, now: Series) -> dict[Labels, float]:
    """The increase of each counter. A new counter started at zero; one that fell was reset."""
    return {
        labels: value - then if value >= (then := before.get(labels, 0.0)) else value for labels, value in now.items()
    }


def _elapsed_s(before: Sample, now: Sample) -> float:
    return max(_SHORTEST_S, now.at_s - before.at_s)


def _compute_rates(before: Sample, now: Sample) -> Rates:
    passed_s = _elapsed_s(before, now)

    def per_s(name: str) -> float:
        return round(sum(increases(before.series[name], now.series[name]).values()) / passed_s, 3)

    redelivered = per_s("goqueue_messages_redelivered_total")
    return Rates(
        over_s=round(passed_s, 3),
        published=per_s("goqueue_messages_published_total"),
        published_bytes=per_s("goqueue_published_bytes_total"),
        delivered=per_s("goqueue_messages_delivered_total") + redelivered,
        redelivered=redelivered,
        acked=per_s("goqueue_messages_acked_total"),
        dead_lettered=per_s("goqueue_messages_dead_lettered_total"),
        read=per_s("goqueue_messages_read_total"),
        read_bytes=per_s("goqueue_read_bytes_total"),
        fsync_rounds=per_s("goqueue_fsync_rounds_total"),
        cpu_percent=round(100 * per_s("process_cpu_seconds_total"), 1),
    )


def _recent_latency(before: Sample | None, now: Sample, name: str) -> Latency:
    """Latency of what happened between the two samples only: older measurements say nothing about the present."""
    if before is None:
        return Latency()
    return _latency_in(distribution_between(before.series[HISTOGRAMS[name]], now.series[HISTOGRAMS[name]]))


def _latency_in(spread: Distribution) -> Latency:
    # JSON has no infinity: it would become null, which means that nothing was measured.
    p50_s, p50_is_at_least = _finite_bound(spread, spread.quantile(0.5))
    p99_s, p99_is_at_least = _finite_bound(spread, spread.quantile(0.99))
    return Latency(p50_s, p99_s, p50_is_at_least, p99_is_at_least)


def _finite_bound(spread: Distribution, span_s: float | None) -> tuple[float | None, bool]:
    if span_s is None or not math.isinf(span_s):
        return span_s, False
    return spread.last_bound, True


def _rates_by(before: Sample, now: Sample, name: str, label: str) -> dict[str, float]:
    """The rate of a counter, by the values of a label."""
    passed_s = _elapsed_s(before, now)
    found: dict[str, float] = {}
    for labels, value in increases(before.series[name], now.series[name]).items():
        key = dict(labels).get(label, "")
        found[key] = found.get(key, 0.0) + value / passed_s
    return found


def _topic_readings(before: Sample | None, now: Sample) -> list[TopicReading]:
    """Topics that got messages, the busiest first."""
    if before is None:
        return []
    counts = _rates_by(before, now, "goqueue_messages_published_total", "topic")
    sizes = _rates_by(before, now, "goqueue_published_bytes_total", "topic")
    busy = sorted((-count, topic) for topic, count in counts.items() if count)
    return [TopicReading(topic, round(-count, 3), round(sizes.get(topic, 0.0), 3)) for count, topic in busy]


def _group_readings(before: Sample | None, now: Sample) -> list[GroupReading]:
    """Groups, the largest lag first."""
    lags, in_flight, retry, members = (
        now.total_by(f"goqueue_group_{name}", "group")
        for name in ("lag_messages", "in_flight_messages", "waiting_messages", "members")
    )
    lags_before: dict[str, float] = {}
    delivered: dict[str, float] = {}
    if before is not None:
        lags_before = before.total_by("goqueue_group_lag_messages", "group")
        delivered = _rates_by(before, now, "goqueue_messages_delivered_total", "group")
        for group, rate in _rates_by(before, now, "goqueue_messages_redelivered_total", "group").items():
            delivered[group] = delivered.get(group, 0.0) + rate
    latencies = {} if before is None else _end_to_end_by_group(before, now)
    found = []
    for group in sorted(lags.keys() | members.keys(), key=lambda name: (-lags.get(name, 0.0), name)):
        lag = lags.get(group, 0.0)
        change = None
        if before is not None and group in lags_before:
            change = round((lag - lags_before[group]) / _elapsed_s(before, now), 3)
        found.append(
            GroupReading(
                group,
                int(lag),
                int(in_flight.get(group, 0)),
                int(retry.get(group, 0)),
                int(members.get(group, 0)),
                change,
                None if before is None else round(delivered.get(group, 0.0), 3),
                latencies.get(group, Latency()),
            )
        )
    return found


def _end_to_end_by_group(before: Sample, now: Sample) -> dict[str, Latency]:
    """Latency of each group. Buckets are grouped once: scanning all of them for each of many groups takes too long."""
    name = HISTOGRAMS["end_to_end"]
    by_group: dict[str, Series] = {}
    for labels, value in now.series[name].items():
        by_group.setdefault(dict(labels).get("group", ""), {})[labels] = value
    return {group: _latency_in(distribution_between(before.series[name], series)) for group, series in by_group.items()}
