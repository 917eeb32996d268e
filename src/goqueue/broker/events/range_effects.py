"""What an event is about to do to messages that it does not name one by one: found out before it is applied."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from goqueue.delivery.events import Committed, CutTo, Dropped, QueueEvent, ResetTo
from goqueue.delivery.queue import Queue
from goqueue.model.runs import Runs, add_run, size_of
from goqueue.observe import trace_event as kinds


@dataclass(frozen=True, slots=True)
class RangeEffects:
    """What will have happened to some messages, and how many of them are lost by it."""

    kind: str
    runs: Runs
    lost: int = 0


def foreseen(queue: Queue, event: QueueEvent) -> Sequence[RangeEffects]:
    match event:
        case Committed(offset=offset):
            return [RangeEffects(kinds.COMMITTED, [queue.committed, offset])]
        case Dropped(start=start):
            gone = undone_below(queue, start)
            return [RangeEffects(kinds.LOST, gone, size_of(gone))]
        case CutTo(end=end):
            known = max(end, queue.known_end)
            lost = size_of(undone_below(queue, known)) - size_of(undone_below(queue, end))
            return [RangeEffects(kinds.CUT, [end, known], lost)]
        case ResetTo(offset=offset):
            again = [offset, max(offset, queue.known_end)]
            return [RangeEffects(kinds.RESET, again), RangeEffects(kinds.SKIPPED, undone_below(queue, offset))]
    return ()


def undone_below(queue: Queue, end: int) -> Runs:
    """Offsets below ``end`` that the group is not done with, and that are not on their way to another topic.

    Where one lane has come further than another, nobody knows without the log whose the messages between are. These
    are not among them.
    """
    found = [run for lane in queue.lanes.values() for run in lane.acked.gaps(min(end, lane.cursor))]
    found.append((queue.front, end))
    moving = sorted(queue.moving)
    runs: Runs = []
    for first, last in sorted(found):
        for offset in moving[bisect_left(moving, first) : bisect_left(moving, last)]:
            add_run(runs, first, offset)
            first = offset + 1
        add_run(runs, first, last)
    return runs
