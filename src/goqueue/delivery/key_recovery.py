"""Key order after a start: which keys are taken, worked out from the queue and the keys in the log."""

from __future__ import annotations

from collections.abc import Mapping

from goqueue.delivery.key_order import KeyOrder
from goqueue.delivery.queue import Queue


def recover_keys(queue: Queue, found: Mapping[int, Mapping[int, bytes]]) -> tuple[KeyOrder, dict[int, list[int]]]:
    """The order of keys, and by lane the parked offsets that the log does not have any more.

    ``found`` has the keys, by lane and offset, of messages that were not done when the log was read.
    """
    keys = KeyOrder()
    held = queue.held()
    lost: dict[int, list[int]] = {}
    for number, lane in queue.lanes.items():
        known = found.get(number, {})
        parked: list[int] = []
        for first, end in lane.acked.gaps(lane.cursor):
            for offset in range(first, end):
                if offset not in held:
                    parked.append(offset)
                elif offset in known:
                    keys.hold(offset, known[offset])
        for offset in parked:
            if offset not in known:
                lost.setdefault(number, []).append(offset)
            elif keys.is_busy(known[offset]):
                keys.park(offset, known[offset])
            else:
                keys.make_ready(offset, known[offset], number)
    return keys, lost
