"""What happened between two looks at a broker, by second."""

from __future__ import annotations

import math

import msgspec

from goqueue.cli.figures.broker_figures import HISTOGRAMS, Look
from goqueue.cli.figures.figure_spread import Spread, between
from goqueue.cli.figures.figure_text import Labels, Series
from goqueue.model.ports import NANOS_PER_SECOND
from goqueue.model.units import format_instant_ns

_START_TOLERANCE_S = 1.0
_SHORTEST_S = 0.001


class Latency(msgspec.Struct, frozen=True):
    """In seconds; ``None`` if nothing was measured.

    Beyond what the histogram tells apart it is the last bound, and ``…_is_at_least`` says that it may be far more.
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
    """``retry``: what was given back, and waits to be delivered again. Rates are ``None`` before the second look."""

    group: str
    lag: int
    in_flight: int
    retry: int
    members: int
    lag_change_per_s: float | None
    delivered_per_s: float | None
    end_to_end: Latency


class Rates(msgspec.Struct, frozen=True):
    """By second, over ``over_s``. Delivered are those to groups, further tries too; read are those without a group."""

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


class Reading(msgspec.Struct, frozen=True):
    """``rates`` are ``None`` after the first look, and after the first at a broker that began again."""

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
    """Of how many partitions ``lanes`` are, if not of all."""
    partitions: int | None
    topics: list[TopicReading]
    groups: list[GroupReading]


def reading(before: Look | None, now: Look) -> Reading:
    """Differences are taken series by series: a topic that was deleted takes nothing from the others.

    A broker that began again has counters that begin again: of that look there are no rates, because nobody knows
    since when it counts.
    """
    restarted = before is not None and began_again(before, now)
    last = None if restarted else before

    def gauge(name: str) -> int:
        return int(now.all(name))

    lanes = now.lanes
    return Reading(
        at=format_instant_ns(round(now.at * NANOS_PER_SECOND)),
        version=next((dict(labels).get("version", "") for labels in now.series["goqueue_build_info"]), ""),
        ready=bool(now.all("goqueue_ready")),
        uptime_s=max(0.0, now.at - now.started_at) if now.started_at else 0.0,
        restarted=restarted,
        look_s=now.took_s,
        rates=None if last is None else _rates(last, now),
        publish=_latency(last, now, "publish"),
        end_to_end=_latency(last, now, "end_to_end"),
        fsync=_latency(last, now, "fsync"),
        loop_delay=_latency(last, now, "loop_delay"),
        lag=gauge("goqueue_group_lag_messages"),
        in_flight=gauge("goqueue_group_in_flight_messages"),
        retry=gauge("goqueue_group_waiting_messages"),
        delayed=gauge("goqueue_delayed_messages"),
        transactions=gauge("goqueue_transactions"),
        oldest_transaction_s=now.all("goqueue_oldest_transaction_seconds"),
        failed_partitions=gauge("goqueue_failed_partitions"),
        damaged_messages=gauge("goqueue_damaged_messages"),
        memory_bytes=gauge("process_resident_memory_bytes"),
        disk_free_bytes=gauge("goqueue_disk_free_bytes"),
        disk_min_free_bytes=gauge("goqueue_disk_min_free_bytes"),
        connections={api: int(value) for api, value in now.by("goqueue_connections", "api").items()},
        lanes=None if lanes is None else dict(lanes.waiting),
        lanes_of_partitions=None
        if lanes is None or lanes.of_partitions >= lanes.all_partitions
        else lanes.of_partitions,
        partitions=None if lanes is None else lanes.all_partitions,
        topics=_topics(last, now),
        groups=_groups(last, now),
    )


def began_again(before: Look, now: Look) -> bool:
    """By when the process was started, or by counters of its process that never fall."""
    if abs(now.started_at - before.started_at) > _START_TOLERANCE_S:
        return True
    return any(now.all(name) < before.all(name) for name in ("process_cpu_seconds_total", "goqueue_fsync_rounds_total"))


def more(before: Series, now: Series) -> dict[Labels, float]:
    """By how much each counter rose. One that is new began at zero; one that is smaller began again."""
    return {
        labels: value - then if value >= (then := before.get(labels, 0.0)) else value for labels, value in now.items()
    }


def _passed_s(before: Look, now: Look) -> float:
    return max(_SHORTEST_S, now.at_s - before.at_s)


def _rates(before: Look, now: Look) -> Rates:
    passed_s = _passed_s(before, now)

    def per_s(name: str) -> float:
        return round(sum(more(before.series[name], now.series[name]).values()) / passed_s, 3)

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


def _latency(before: Look | None, now: Look, name: str) -> Latency:
    """Only of what happened since the look before: all that was before that says nothing of now."""
    if before is None:
        return Latency()
    return _of_spread(between(before.series[HISTOGRAMS[name]], now.series[HISTOGRAMS[name]]))


def _of_spread(spread: Spread) -> Latency:
    # An infinite number has no place in JSON, where it would look as if nothing was measured.
    p50_s, p50_is_at_least = _within(spread, spread.quantile(0.5))
    p99_s, p99_is_at_least = _within(spread, spread.quantile(0.99))
    return Latency(p50_s, p99_s, p50_is_at_least, p99_is_at_least)


def _within(spread: Spread, span_s: float | None) -> tuple[float | None, bool]:
    if span_s is None or not math.isinf(span_s):
        return span_s, False
    return spread.last_bound, True


def _by(before: Look, now: Look, name: str, label: str) -> dict[str, float]:
    """Of a counter, by the value of a label and by second."""
    passed_s = _passed_s(before, now)
    found: dict[str, float] = {}
    for labels, value in more(before.series[name], now.series[name]).items():
        key = dict(labels).get(label, "")
        found[key] = found.get(key, 0.0) + value / passed_s
    return found


def _topics(before: Look | None, now: Look) -> list[TopicReading]:
    """Those that got messages, the busiest first."""
    if before is None:
        return []
    counts = _by(before, now, "goqueue_messages_published_total", "topic")
    sizes = _by(before, now, "goqueue_published_bytes_total", "topic")
    busy = sorted((-count, topic) for topic, count in counts.items() if count)
    return [TopicReading(topic, round(-count, 3), round(sizes.get(topic, 0.0), 3)) for count, topic in busy]


def _groups(before: Look | None, now: Look) -> list[GroupReading]:
    """The largest lag first."""
    lags, in_flight, retry, members = (
        now.by(f"goqueue_group_{name}", "group")
        for name in ("lag_messages", "in_flight_messages", "waiting_messages", "members")
    )
    lags_before: dict[str, float] = {}
    delivered: dict[str, float] = {}
    if before is not None:
        lags_before = before.by("goqueue_group_lag_messages", "group")
        delivered = _by(before, now, "goqueue_messages_delivered_total", "group")
        for group, rate in _by(before, now, "goqueue_messages_redelivered_total", "group").items():
            delivered[group] = delivered.get(group, 0.0) + rate
    latencies = {} if before is None else _end_to_end_by_group(before, now)
    found = []
    for group in sorted(lags.keys() | members.keys(), key=lambda name: (-lags.get(name, 0.0), name)):
        lag = lags.get(group, 0.0)
        change = None
        if before is not None and group in lags_before:
            change = round((lag - lags_before[group]) / _passed_s(before, now), 3)
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


def _end_to_end_by_group(before: Look, now: Look) -> dict[str, Latency]:
    """Buckets are sorted by group once: with many groups, going through all of them for each takes too long."""
    name = HISTOGRAMS["end_to_end"]
    by_group: dict[str, Series] = {}
    for labels, value in now.series[name].items():
        by_group.setdefault(dict(labels).get("group", ""), {})[labels] = value
    return {group: _of_spread(between(before.series[name], series)) for group, series in by_group.items()}
