"""Backlog of a queue: how many messages of its partition it has yet to deliver, lane by lane."""

from __future__ import annotations

from collections.abc import Collection

from goqueue.broker.partitions.partition import Partition
from goqueue.delivery.queue import Queue
from goqueue.model.message import HIDDEN, Priority
from goqueue.model.runs import pairs
from goqueue.storage.log import lanes

NORMAL = int(Priority.NORMAL)
LANES = range(HIDDEN)


def is_plain(queue: Queue, partition: Partition) -> bool:
    """Whether everything that is left is of lane normal, so that it is served in the order of its offsets."""
    if partition.log.special_end > queue.cursors.front:
        return False
    if not queue.lanes:
        return True
    only = queue.lanes.get(NORMAL)
    return only is not None and len(queue.lanes) == 1 and only.cursor == queue.cursors.front


def may_scan(queue: Queue, partition: Partition, end: int, max_outstanding: int) -> bool:
    """Whether there is something new before ``end``, which is the end of what is stable, and room to deliver it."""
    return queue.leases.outstanding + len(queue.moving) < max_outstanding and has_new(queue, partition, end)


def has_new(queue: Queue, partition: Partition, end: int) -> bool:
    """Whether there is something before ``end`` that no poll has looked at yet, and that one may look at."""
    front = queue.cursors.front
    if queue.keys is not None and queue.keys.stopped:
        going = [number for number in LANES if number not in queue.keys.stopped]
        return any(lanes.first(partition.log, number, queue.cursor(number), end) is not None for number in going)
    if end > front:
        return True
    return any(
        lane.cursor < front and lanes.first(partition.log, number, lane.cursor, front) is not None
        for number, lane in queue.lanes.items()
    )


def waiting(queue: Queue, partition: Partition, most: int) -> dict[int, int]:
    """How many messages each lane has to deliver, to be tried again or new. ``most`` stands for more."""
    found = at_most_waiting(queue, partition, most)
    end = partition.stable_end
    if is_plain(queue, partition) or not partition.producers.state.aborted.any_between(queue.committed, end):
        return found
    for number in list(found):
        new = lanes.count(partition.log, number, queue.cursor(number), end)
        new -= aborted_of_lane(partition, number, queue.cursor(number), end)
        found[number] = min(new + _to_try_again(queue, number, most), most)
    return {number: count for number, count in found.items() if count}


def at_most_waiting(queue: Queue, partition: Partition, most: int) -> dict[int, int]:
    """The same without a look at what was aborted, which may be among what is counted where there are several lanes."""
    if is_plain(queue, partition):
        end = partition.stable_end
        new = lanes.visible(partition.log, queue.front, end) - partition.producers.state.aborted.count(queue.front, end)
        count = new + _to_try_again(queue, NORMAL, most)
        return {NORMAL: min(count, most)} if count else {}
    cursors = [queue.cursor(number) for number in LANES]
    found = {}
    for number, new in enumerate(lanes.counts(partition.log, cursors, partition.stable_end, most)):
        count = new + _to_try_again(queue, number, most)
        if count:
            found[number] = min(count, most)
    return found


def aborted_of_lane(partition: Partition, number: int, low: int, high: int) -> int:
    """How many records of a lane readers would see if their transaction had been committed."""
    aborted = partition.producers.state.aborted
    if not aborted.any_between(low, high):
        return 0
    return sum(
        aborted.count(max(first, low), min(end, high))
        for first, end in pairs(lanes.runs(partition.log, number, low, high))
    )


def _to_try_again(queue: Queue, number: int, most: int) -> int:
    lane = queue.lanes.get(number)
    count = 0 if lane is None else lane.ready_count(most)
    if queue.keys is not None:
        count += queue.keys.ready_count(number)
    return count


def next_of_lane(partition: Partition, number: int, upto: int, front: int) -> int:
    """Where a lane that has come to ``upto`` goes on, if others are further: else it would hold back the committed
    offset of all."""
    if upto >= front:
        return upto
    first = lanes.first(partition.log, number, upto, front)
    return front if first is None else first


def stranded(queue: Queue, there: Collection[int]) -> list[int]:
    """Lanes that are not at the front although nothing waits ``there`` for them: retention or compaction took it.

    They would never be served, and would hold back the committed offset of all lanes.
    """
    return [number for number, lane in queue.lanes.items() if lane.cursor < queue.front and number not in there]


def left_behind(partition: Partition, number: int, front: int, upto: int) -> list[tuple[int, int]]:
    """If a lane goes on to ``upto``: which others have messages that they have not come to, and where."""
    if upto <= front or (number == NORMAL and partition.log.special_end <= front):
        return []
    found = []
    for other in LANES:
        if other != number:
            first = lanes.first(partition.log, other, front, upto)
            if first is not None:
                found.append((other, first))
    return found
