"""Figures of topics and partitions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from goqueue.broker.metrics.lane_metrics import Figure, lane_labels, published_by_lane
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.runtime.time_slices import TimeSlice
from goqueue.model.config import MetricsConfig
from goqueue.model.ids import TopicId
from goqueue.model.message import PRIORITY_LABELS
from goqueue.observe.cardinality import OverflowTotals, SeriesBudget
from goqueue.observe.exposition import OTHER, Figures, labelled

_PARTITION = ("topic", "partition")
_START = "goqueue_partition_start_offset"
_END = "goqueue_partition_end_offset"
_STABLE = "goqueue_partition_stable_offset"


@dataclass(slots=True)
class TopicSeries:
    """The labels of one topic, rendered."""

    name: str
    """As it is shown: that of a topic without figures of its own is not."""
    topic: str
    lanes: list[str]
    other_partitions: str
    partitions: list[str] = field(default_factory=list)
    """Of those that have figures of their own: the first so many."""

    @property
    def is_own(self) -> bool:
        return self.name != OTHER


def _series(name: str) -> TopicSeries:
    topic = labelled(("topic",), (name,))
    return TopicSeries(name, topic, lane_labels("topic", name), labelled(_PARTITION, (name, OTHER)))


OTHERS = _series(OTHER)


@dataclass(slots=True)
class _Sum:
    """Of one topic, or of all that have no figures of their own."""

    partitions: int = 0
    segments: int = 0
    size_bytes: int = 0
    other_partitions: int = 0
    """Those without figures of their own; the three offsets are sums over them."""
    start_offset: int = 0
    end_offset: int = 0
    stable_offset: int = 0
    published: list[int] = field(default_factory=lambda: [0] * len(PRIORITY_LABELS))
    published_bytes: int = 0
    read: int = 0
    read_bytes: int = 0


class TopicMetrics:
    """Remembers who has figures of its own, and what the others have counted."""

    def __init__(self, config: MetricsConfig) -> None:
        self._topics = SeriesBudget(config.max_topics)
        self._partitions = SeriesBudget(config.max_partitions)
        self._series: dict[str, TopicSeries] = {}
        self._rest = OverflowTotals()
        self.failed = 0
        self.damaged = 0
        """Partitions and messages, as of the last collection."""
        self.producers = 0
        self.dedup_ids = 0
        """That are remembered, as of the same."""

    async def admit(self, topics: Iterable[Topic], stretch: TimeSlice) -> None:
        """Give labels to topics that are new, the oldest first, and forget those that are gone."""
        alive = {topic.record.topic_id: topic for topic in topics}
        if not self._series.keys() <= alive.keys():
            self._topics.keep(alive.keys())
            self._partitions.keep(alive.keys())
            self._series = {topic_id: each for topic_id, each in self._series.items() if topic_id in alive}
        new = [topic for topic_id, topic in alive.items() if topic_id not in self._series]
        for topic in sorted(new, key=lambda each: (each.record.created_at_ns, each.name)):
            self._admit(topic)
            if stretch.is_over:
                await stretch.rest()

    def _admit(self, topic: Topic) -> None:
        topic_id = topic.record.topic_id
        if self._topics.take(topic_id):
            made = self._series[topic_id] = _series(topic.name)
            own = self._partitions.take(topic_id, len(topic.partitions))
            made.partitions = [labelled(_PARTITION, (topic.name, number)) for number in range(own)]

    def series(self, topic_id: TopicId) -> TopicSeries:
        return self._series.get(topic_id, OTHERS)

    async def collect(self, topics: Iterable[Topic], figures: Figures, stretch: TimeSlice) -> None:
        """``admit`` comes first. Gives way to others now and then."""
        self.failed = self.damaged = self.producers = self.dedup_ids = 0
        others = _Sum()
        for topic in topics:
            series = self.series(topic.record.topic_id)
            # What is a counter is summed for each topic, even if it is shown with others.
            found = _Sum()
            self.dedup_ids += len(topic.dedup)
            await self._add_up(topic, series, found, figures, stretch)
            if series.is_own:
                _show(series, found, figures)
                for name, labels, value in _counters(found, series):
                    figures.add(name, value, labels)
            else:
                _merge(others, found)
                for name, labels, value in _counters(found, OTHERS):
                    self._rest.count(topic.record.topic_id, name, labels, value)
        if others.partitions:
            _show(OTHERS, others, figures)
        self._rest.add_to(figures)

    async def _add_up(
        self, topic: Topic, series: TopicSeries, found: _Sum, figures: Figures, stretch: TimeSlice
    ) -> None:
        labels, own = series.partitions, len(series.partitions)
        published = found.published
        for number, partition in enumerate(topic.partitions):
            if stretch.is_over:
                await stretch.rest()
            log = partition.log
            for lane, rate in enumerate(partition.arrivals):
                published[lane] += rate.total
            found.published_bytes += partition.published_bytes
            found.read += partition.read_messages
            found.read_bytes += partition.read_bytes
            found.segments += len(log.segments)
            found.size_bytes += log.size_bytes
            self.damaged += len(partition.damaged)
            self.failed += log.failure is not None
            self.producers += len(partition.producers.state.known)
            if number < own:
                figures.add(_START, log.start_offset, labels[number])
                figures.add(_END, log.end_offset, labels[number])
                figures.add(_STABLE, partition.stable_end, labels[number])
            else:
                found.other_partitions += 1
                found.start_offset += log.start_offset
                found.end_offset += log.end_offset
                found.stable_offset += partition.stable_end
        found.partitions = len(topic.partitions)


def _counters(found: _Sum, series: TopicSeries) -> list[Figure]:
    return [
        *published_by_lane(series.lanes, found.published),
        ("goqueue_published_bytes_total", series.topic, found.published_bytes),
        ("goqueue_messages_read_total", series.topic, found.read),
        ("goqueue_read_bytes_total", series.topic, found.read_bytes),
    ]


def _show(series: TopicSeries, found: _Sum, figures: Figures) -> None:
    figures.add("goqueue_topic_partitions", found.partitions, series.topic)
    figures.add("goqueue_topic_segments", found.segments, series.topic)
    figures.add("goqueue_topic_size_bytes", found.size_bytes, series.topic)
    if found.other_partitions:
        figures.add(_START, found.start_offset, series.other_partitions)
        figures.add(_END, found.end_offset, series.other_partitions)
        figures.add(_STABLE, found.stable_offset, series.other_partitions)


def _merge(others: _Sum, found: _Sum) -> None:
    others.partitions += found.partitions
    others.segments += found.segments
    others.size_bytes += found.size_bytes
    others.other_partitions += found.other_partitions
    others.start_offset += found.start_offset
    others.end_offset += found.end_offset
    others.stable_offset += found.stable_offset
