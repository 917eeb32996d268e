"""Lag of a queue: how many messages of its partition are neither done nor delayed."""

from __future__ import annotations

from goqueue.broker.partitions.partition import Partition
from goqueue.broker.shards.backlog import aborted_of_lane
from goqueue.delivery.queue import Queue
from goqueue.storage.log import lanes


def lag(queue: Queue, partition: Partition) -> int:
    start, end = partition.log.start_offset, partition.stable_end
    first = max(queue.front, start)
    count = lanes.visible(partition.log, first, end) - partition.producers.state.aborted.count(first, end)
    for number, lane in queue.lanes.items():
        count += lane.undone(start) - lane.done_beyond()
        if lane.cursor < queue.front:
            upto = min(queue.front, end)
            count += lanes.count(partition.log, number, lane.cursor, upto)
            count -= aborted_of_lane(partition, number, lane.cursor, upto)
    return count
