"""Figures of lanes: what was published to each lane of a topic, what each gave to a group, and after what wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from goqueue.broker.shards.group_runtime import GroupRuntime
from goqueue.model.clock import NANOS_PER_SECOND
from goqueue.model.message import PRIORITY_LABELS
from goqueue.observe.exposition import labelled

Figure = tuple[str, str, float]  # A name, its labels and a value.


def lane_labels(owner: str, name: str) -> list[str]:
    """The labels of each lane of a topic or a group."""
    return [labelled((owner, "lane"), (name, lane)) for lane in PRIORITY_LABELS]


def published_by_lane(labels: Sequence[str], counts: Sequence[int]) -> list[Figure]:
    """Of a topic, by lane."""
    return [("goqueue_messages_published_total", *each) for each in zip(labels, counts, strict=True)]


def delivered_by_lane(labels: Sequence[str], runtime: GroupRuntime) -> Iterator[Figure]:
    """Of a group, by lane."""
    for lane, count in enumerate(runtime.lane_delivered):
        # Most groups use one lane. There may be thousands of groups, and a scrape should stay small.
        if count:
            yield "goqueue_lane_delivered_total", labels[lane], count
            yield "goqueue_lane_wait_seconds_total", labels[lane], runtime.lane_wait_ns[lane] / NANOS_PER_SECOND
