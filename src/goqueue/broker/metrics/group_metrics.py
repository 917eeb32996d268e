"""Figures of groups: how far behind they are, what they have in hand, what they have done."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from goqueue.broker.events.event_recorder import INTERNAL
from goqueue.broker.metrics.lane_metrics import Figure, delivered_by_lane, lane_labels
from goqueue.broker.metrics.topic_metrics import TopicMetrics
from goqueue.broker.runtime.time_slices import TimeSlice
from goqueue.broker.shards.group_runtime import GroupRuntime
from goqueue.broker.shards.lag import lag
from goqueue.broker.shards.shard_directory import Shards
from goqueue.broker.shards.shard_map import ShardMap
from goqueue.coordination.group import Group
from goqueue.delivery.queue import Queue
from goqueue.model.config import MetricsConfig
from goqueue.model.errors import GoQueueError
from goqueue.model.ids import TopicId
from goqueue.observe.cardinality import OverflowTotals, SeriesBudget
from goqueue.observe.exposition import OTHER, Figures, labelled

_PAIR = ("group", "topic")
_LAG = ("group", "topic", "partition")
_TIMES_MORE = 10
"""All groups together show so many times more topics than there may be groups, and so many times more partitions than
one group may show: with very many of both, the product would be more than anyone wants to store."""
_REDRIVEN = "goqueue_messages_redriven_total"
_REFUSED = "goqueue_messages_refused_total"
_END_TO_END = "goqueue_end_to_end_seconds"
_COUNTERS = {
    "goqueue_messages_delivered_total": "delivered",
    "goqueue_messages_redelivered_total": "redelivered",
    "goqueue_messages_acked_total": "acked",
    "goqueue_messages_nacked_total": "nacked",
    "goqueue_messages_rejected_total": "rejected",
    "goqueue_visibility_timeouts_total": "visibility_timeouts",
    "goqueue_messages_dead_lettered_total": "dead_lettered",
    "goqueue_messages_expired_total": "expired",
    "goqueue_messages_discarded_total": "discarded",
    "goqueue_messages_lost_total": "lost",
}


@dataclass(slots=True)
class _Pair:
    """The labels of a group with one topic, or with all topics that it has no figures of their own for; and sums.

    Sums are kept here because they are made anew with every scrape, and there may be thousands.
    """

    labels: str
    other_labels: str
    """Of all partitions that have no figures of their own."""
    partitions: dict[int, str] = field(default_factory=dict)
    in_flight: int = 0
    waiting: int = 0
    other_partitions: int = 0
    other_lag: int = 0

    def clear(self) -> None:
        self.in_flight = self.waiting = self.other_partitions = self.other_lag = 0


def _pair(group: str, topic: str) -> _Pair:
    return _Pair(labelled(_PAIR, (group, topic)), labelled(_LAG, (group, topic, OTHER)))


@dataclass(slots=True)
class _Series:
    """The labels of one group, rendered."""

    name: str
    group: str
    lanes: list[str]
    others: _Pair
    pairs: dict[TopicId, _Pair] = field(default_factory=dict)
    """By topic id."""
    shown_partitions: int = 0

    @property
    def is_own(self) -> bool:
        return self.name != OTHER


def _series(name: str) -> _Series:
    return _Series(name, labelled(("group",), (name,)), lane_labels("group", name), _pair(name, OTHER))


class GroupMetrics:
    """Remembers who has figures of its own, and what the others have counted."""

    def __init__(self, config: MetricsConfig, topics: TopicMetrics) -> None:
        self._topics = topics
        self._most_partitions = config.max_partitions
        self._groups = SeriesBudget(config.max_groups)
        self._pairs_left = config.max_groups * _TIMES_MORE
        self._partitions_left = config.max_partitions * _TIMES_MORE
        self._series: dict[str, _Series] = {}
        self._others = _series(OTHER)
        self._rest = OverflowTotals()

    async def collect(self, shards: Shards, figures: Figures, stretch: TimeSlice) -> None:
        """``topics`` have been admitted before. Gives way to others now and then."""
        groups = _groups(shards)
        figures.add("goqueue_groups", len(groups))
        await self._admit(groups, stretch)
        pairs: dict[str, _Pair] = {}
        members_of_others = 0
        for group in groups:
            if stretch.is_over:
                await stretch.rest()
            active = shards.get_led(group.name)
            if active is None or active.group is not group:
                continue
            series = self._series.get(group.state.identity, self._others)
            if series.is_own:
                figures.add("goqueue_group_members", len(group.state.members), series.group)
            else:
                members_of_others += len(group.state.members)
            self._show_counters(series, group, active.runtime, figures)
            for queue in active.queues():
                if stretch.is_over:
                    await stretch.rest()
                self._add_up(active.shards, series, queue, pairs, figures)
        if len(groups) > len(self._series):
            figures.add("goqueue_group_members", members_of_others, self._others.group)
        for pair in pairs.values():
            if stretch.is_over:
                await stretch.rest()
            figures.add("goqueue_group_in_flight_messages", pair.in_flight, pair.labels)
            figures.add("goqueue_group_waiting_messages", pair.waiting, pair.labels)
            if pair.other_partitions:
                figures.add("goqueue_group_lag_messages", pair.other_lag, pair.other_labels)
        await self._show_settled(shards, groups, figures, stretch)
        self._rest.add_to(figures)

    # Who has figures of its own

    async def _admit(self, groups: Iterable[Group], stretch: TimeSlice) -> None:
        """Give labels to groups that are new, the oldest first, and forget what is gone."""
        alive = {group.state.identity: group for group in groups}
        for identity in [each for each in self._series if each not in alive]:
            self._drop_pairs(self._series[identity], list(self._series[identity].pairs))
            del self._series[identity]
        for series in self._series.values():
            if stretch.is_over:
                await stretch.rest()
            self._drop_pairs(series, [each for each in series.pairs if not self._topics.series(each).is_own])
        self._groups.keep(alive.keys())
        new = [group for identity, group in alive.items() if identity not in self._series]
        for group in sorted(new, key=lambda each: (each.state.created_at_ns, each.name)):
            if self._groups.take(group.state.identity):
                self._series[group.state.identity] = _series(group.name)
            if stretch.is_over:
                await stretch.rest()

    def _drop_pairs(self, series: _Series, topic_ids: Iterable[TopicId]) -> None:
        for topic_id in topic_ids:
            gone = series.pairs.pop(topic_id)
            series.shown_partitions -= len(gone.partitions)
            self._partitions_left += len(gone.partitions)
            self._pairs_left += 1

    def _pair_of(self, series: _Series, topic_id: TopicId) -> _Pair:
        """A group and a topic that both have figures of their own have some together, while there is room."""
        found = series.pairs.get(topic_id)
        if found is None:
            topic = self._topics.series(topic_id)
            if not series.is_own or not topic.is_own or not self._pairs_left:
                return series.others
            self._pairs_left -= 1
            found = series.pairs[topic_id] = _pair(series.name, topic.name)
        return found

    def _partition_of(self, series: _Series, pair: _Pair, queue: Queue) -> str | None:
        """The labels of one partition's lag; ``None`` if it is shown together with others."""
        found = pair.partitions.get(queue.partition)
        if found is not None or pair is series.others:
            return found
        if series.shown_partitions >= self._most_partitions or not self._partitions_left:
            return None
        series.shown_partitions += 1
        self._partitions_left -= 1
        names = (series.name, self._topics.series(queue.topic_id).name, queue.partition)
        found = pair.partitions[queue.partition] = labelled(_LAG, names)
        return found

    # What is shown

    def _add_up(
        self, shards: ShardMap, series: _Series, queue: Queue, pairs: dict[str, _Pair], figures: Figures
    ) -> None:
        place = shards.place(queue)
        if place is None:
            return
        pair = self._pair_of(series, queue.topic_id)
        if pair.labels not in pairs:
            pairs[pair.labels] = pair
            pair.clear()
        in_flight = queue.leases.in_flight
        pair.in_flight += in_flight
        pair.waiting += queue.leases.outstanding - in_flight
        # An index that cannot be read is no reason to show nothing at all.
        with suppress(OSError, GoQueueError):
            behind = lag(queue, place[1])
            labels = self._partition_of(series, pair, queue)
            if labels is not None:
                figures.add("goqueue_group_lag_messages", behind, labels)
            else:
                pair.other_partitions += 1
                pair.other_lag += behind

    def _show_counters(self, series: _Series, group: Group, runtime: GroupRuntime, figures: Figures) -> None:
        # The generation counts rebalances, and outlives a restart.
        rebalances = ("goqueue_group_rebalances_total", series.group, group.state.generation)
        counters: list[Figure] = [rebalances, *delivered_by_lane(series.lanes, runtime)]
        if series.is_own:
            for name, labels, value in counters:
                figures.add(name, value, labels)
            if any(runtime.end_to_end.counts):
                figures.add_histogram(_END_TO_END, runtime.end_to_end, series.group)
        else:
            who = group.state.identity
            for name, labels, value in counters:
                self._rest.count(who, name, labels, value)
            self._rest.observe(who, _END_TO_END, series.group, runtime.end_to_end)

    async def _show_settled(
        self, shards: Shards, groups: Iterable[Group], figures: Figures, stretch: TimeSlice
    ) -> None:
        """What became of messages, by group and topic."""
        identities = {group.name: group.state.identity for group in groups}
        topic_ids = {topic.name: topic.record.topic_id for topic in shards.host.running_topics()}
        for (group, topic), counts in list(shards.notes.counts.items()):
            if stretch.is_over:
                await stretch.rest()
            identity, topic_id = identities.get(group), topic_ids.get(topic)
            if identity is None or topic_id is None:
                continue
            series = self._series.get(identity, self._others)
            pair = self._pair_of(series, topic_id)
            for name, attribute in _COUNTERS.items():
                if pair is series.others:
                    self._rest.count((identity, topic_id), name, pair.labels, getattr(counts, attribute))
                else:
                    figures.add(name, getattr(counts, attribute), pair.labels)
        for name, by_topic in ((_REDRIVEN, shards.notes.redriven), (_REFUSED, shards.notes.refused)):
            for topic, count in list(by_topic.items()):
                topic_series = self._topics.series(topic_ids.get(topic, TopicId("")))
                if topic_series.is_own:
                    figures.add(name, count, topic_series.topic)
                else:
                    self._rest.count(topic, name, topic_series.topic, count)


def _groups(shards: Shards) -> list[Group]:
    """Users' groups, not the broker's own."""
    return [
        group
        for shard in shards.leading
        for name, group in sorted(shard.state.by_name.items())
        if not name.startswith(INTERNAL)
    ]
