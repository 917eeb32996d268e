"""Reads the keys of messages that are not done from the log: after a start key order knows none of them."""

from __future__ import annotations

from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.read import find_damaged_frames
from goqueue.broker.queues.deliverable_frames import keys_of
from goqueue.delivery.key_order import KeyOrder, lane_key
from goqueue.delivery.key_recovery import recover_keys
from goqueue.delivery.queue import Queue

_AT_ONCE_BYTES = 1 << 20
_AT_ONCE = 4_096


async def learn_keys(queue: Queue, partition: Partition) -> tuple[KeyOrder, dict[int, list[int]]]:
    """The order of keys by the log, and by lane the parked offsets that the log does not have any more."""
    found: dict[int, dict[int, bytes]] = {}
    for number in list(queue.lanes):
        found[number] = await _read_keys(queue, partition, number)
    # This goes by the queue as it is now: messages may have been settled meanwhile.
    return recover_keys(queue, found)


async def _read_keys(queue: Queue, partition: Partition, number: int) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    lane = queue.lanes.get(number)
    if lane is None:
        return found
    at = 0
    for first, end in list(lane.acked.gaps(lane.cursor)):
        at = max(at, first)
        while (at := max(at, partition.log.start_offset)) < end:
            # Beyond the gap's end, where the next one may be near.
            run, following = await partition.read(at, _AT_ONCE_BYTES, max(1, min(_AT_ONCE, lane.cursor - at)))
            if run is None:
                break
            columns = run.columns()
            damaged = find_damaged_frames(partition, run, columns)
            at = following
            for index, (offset, key) in enumerate(zip(columns["offset"].tolist(), keys_of(run), strict=True)):
                if index not in damaged and offset not in lane.acked:
                    found[offset] = lane_key(number, key)
    return found
