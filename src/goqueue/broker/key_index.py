"""Which keys are taken: after a start only the log knows."""

from __future__ import annotations

from goqueue.broker.partition import Partition
from goqueue.broker.soundness import unsound_places
from goqueue.broker.visible import keys_of
from goqueue.delivery.keyed import KeyOrder
from goqueue.delivery.queue import Queue

_AT_ONCE_BYTES = 1 << 20
_AT_ONCE = 4_096


async def learn_keys(queue: Queue, partition: Partition) -> tuple[KeyOrder, list[int]]:
    """The order of keys by the log, and offsets that wait for their key although the log does not have them."""
    found = await _read_keys(queue, partition)
    # What follows goes by the queue as it is now: messages may have been settled meanwhile.
    keys = KeyOrder()
    held = queue.held()
    parked: list[int] = []
    for first, end in queue.acked.gaps(queue.cursor):
        for offset in range(first, end):
            if offset not in held:
                parked.append(offset)
            elif offset in found:
                keys.hold(offset, found[offset])
    for offset in parked:
        if offset not in found:
            continue
        key = found[offset]
        if key and keys.is_busy(key):
            keys.park(offset, key)
        else:
            keys.make_ready(offset, key)
    return keys, [offset for offset in parked if offset not in found]


async def _read_keys(queue: Queue, partition: Partition) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    at = 0
    for first, end in list(queue.acked.gaps(queue.cursor)):
        at = max(at, first)
        while (at := max(at, partition.log.start_offset)) < end:
            # Beyond the gap's end, where the next one may be near.
            run, following = await partition.read(at, _AT_ONCE_BYTES, min(_AT_ONCE, queue.cursor - at))
            if run is None:
                break
            columns = run.columns()
            damaged = unsound_places(partition, run, columns, at, following)
            at = following
            for place, (offset, key) in enumerate(zip(columns["offset"].tolist(), keys_of(run), strict=True)):
                if place not in damaged and offset not in queue.acked:
                    found[offset] = key
    return found
