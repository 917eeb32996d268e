"""What an event takes from a group without naming it, found out before it is applied."""

from __future__ import annotations

from goqueue.broker.events.range_effects import RangeEffects, foreseen, undone_below
from goqueue.delivery.events import Acked, Committed, CutTo, Delivered, Dropped, Moving, QueueOpened, ResetTo, Target
from goqueue.delivery.leases import lease_in
from goqueue.delivery.queue import Queue

LOW, NORMAL = 3, 2


def queue() -> Queue:
    """0 and 2 are done, 1 and 3 in flight, 4 is on its way to the dead letters, 5 and what follows is new."""
    made = Queue(QueueOpened("q", "g", "t", 0, 0), {})
    made.apply(Delivered("q", [0, 5], [], 5, "m", 100))
    lease = lease_in(1, NORMAL)
    made.apply(Acked("q", [(lease, [0, 1, 2, 3])]))
    made.apply(Moving("q", [(lease, [4, 5])], [], "no", Target("t.dlq", "d", 0, 0)))
    return made


def test_what_is_not_done_is_in_flight_or_new_but_not_what_is_moving() -> None:
    assert undone_below(queue(), 0) == []
    assert undone_below(queue(), 2) == [1, 2]
    assert undone_below(queue(), 5) == [1, 2, 3, 4]
    assert undone_below(queue(), 9) == [1, 2, 3, 4, 5, 9]


def test_what_is_between_lanes_that_are_not_equally_far_is_left_out() -> None:
    made = Queue(QueueOpened("q", "g", "t", 0, 0), {})
    # Of lane normal 0 and 5 were delivered; 2 and perhaps more is of lane low.
    made.apply(Delivered("q", [0, 1, 5, 6], [1, 5], 6, "m", 100, NORMAL, [(LOW, 2)]))
    assert undone_below(made, 8) == [0, 1, 5, 8]


def test_what_each_event_does() -> None:
    at = queue()
    assert foreseen(at, Committed("q", 7)) == [RangeEffects("committed", [1, 7])]
    assert foreseen(at, Dropped("q", 6)) == [RangeEffects("lost", [1, 2, 3, 4, 5, 6], 3)]
    assert foreseen(at, CutTo("q", 2)) == [RangeEffects("cut", [2, 5], 1)]
    assert foreseen(at, ResetTo("q", 2)) == [RangeEffects("reset", [2, 5]), RangeEffects("skipped", [1, 2])]
    assert foreseen(at, ResetTo("q", 8)) == [RangeEffects("reset", [8, 8]), RangeEffects("skipped", [1, 2, 3, 4, 5, 8])]
    assert foreseen(at, Acked("q", [])) == ()
