from __future__ import annotations

import pytest

from goqueue.delivery.events import (
    Acked,
    AnyQueueEvent,
    Committed,
    CutTo,
    Delivered,
    Dropped,
    Extended,
    Moved,
    Moving,
    QueueOpened,
    Redelivered,
    ResetTo,
    Returned,
    Target,
)
from goqueue.delivery.in_flight_batch import SPAN
from goqueue.delivery.key_order import KeyOrder, lane_key
from goqueue.delivery.lane import is_ready
from goqueue.delivery.leases import lease_in
from goqueue.delivery.queue import Queue

Q = "g/t/0"
NORMAL = 2
FIRST, SECOND = lease_in(1, NORMAL), lease_in(2, NORMAL)
TARGET = Target("t.dlq", "d", 0, 0)


class Bench:
    """A queue, and the counts that it keeps for its group."""

    def __init__(self, start: int = 0) -> None:
        self.in_flight: dict[str, int] = {}
        self.queue = Queue(QueueOpened(Q, "g", "t", 0, start), self.in_flight)

    def apply(self, *events: AnyQueueEvent) -> Queue:
        for event in events:
            self.queue.apply(event)
            again = Queue.load(Q, self.queue.dump(), {})
            assert again.dump() == self.queue.dump()
            assert again.leases.outstanding == self.queue.leases.outstanding
            assert again.leases.in_flight == self.queue.leases.in_flight
            assert again.committed == self.queue.committed and again.parked == self.queue.parked
        return self.queue


def delivered(
    *runs: int,
    member: str = "m",
    until: int = 100,
    skipped: tuple[int, ...] | None = (),
    lane: int = NORMAL,
    upto: int = 0,
    left: list[tuple[int, int]] | None = None,
) -> Delivered:
    """Up to the end of what is named, if nothing else is said."""
    upto = upto or max([*runs, *(skipped or ())])
    return Delivered(Q, list(runs), None if skipped is None else list(skipped), upto, member, until, lane, left or [])


def undone(queue: Queue) -> int:
    """How many messages that some lane has come to are not done."""
    return sum(lane.undone() for lane in queue.lanes.values())


def ready(queue: Queue, lane: int = NORMAL) -> list[list[int]]:
    """What may be delivered again now."""
    found = queue.lanes.get(lane)
    return [] if found is None else [batch.runs for batch in found.ready if is_ready(batch)]


def test_what_is_delivered_is_in_flight_with_its_member() -> None:
    bench = Bench()
    queue = bench.apply(delivered(0, 5, member="a"), delivered(5, 7, member="b"))
    assert bench.in_flight == {"a": 5, "b": 2} and queue.leases.in_flight == 7 and queue.leases.in_hand("a") == 5
    assert queue.front == 7 and queue.committed == 0 and queue.leases.outstanding == 7
    assert queue.cursor(NORMAL) == 7 == queue.cursor(0) and undone(queue) == 7
    found = queue.leases.find(FIRST, 4)
    assert found is not None and found.member == "a" and found.count == 1
    assert queue.leases.find(FIRST, 5) is None and queue.leases.find(SECOND, 5) is not None


def test_what_is_skipped_is_done() -> None:
    queue = Bench().apply(delivered(0, 2, 4, 6, skipped=(2, 4, 6, 7)), Acked(Q, [(FIRST, [0, 2])]))
    assert queue.committed == 4 and queue.front == 7 and undone(queue) == 2


def test_the_prefix_rises_when_its_gap_closes() -> None:
    bench = Bench()
    bench.apply(delivered(0, 5), Acked(Q, [(FIRST, [1, 3, 4, 5])]))
    assert bench.queue.committed == 0 and undone(bench.queue) == 2
    bench.apply(Acked(Q, [(FIRST, [0, 1])]))
    assert bench.queue.committed == 3
    bench.apply(Acked(Q, [(FIRST, [3, 4])]))
    assert bench.queue.committed == 5 and bench.queue.leases.outstanding == 0 and bench.in_flight == {}


def test_an_ack_of_what_the_lease_does_not_hold_changes_nothing() -> None:
    bench = Bench()
    bench.apply(
        delivered(0, 3),
        Acked(Q, [(FIRST, [1, 2])]),
        Acked(Q, [(FIRST, [1, 2])]),
        Acked(Q, [(lease_in(7, NORMAL), [0, 3])]),
    )
    assert undone(bench.queue) == 2 and bench.in_flight == {"m": 2}


def test_what_is_returned_is_ready_at_its_time_and_not_before() -> None:
    bench = Bench()
    queue = bench.apply(delivered(0, 3), Returned(Q, [(FIRST, [1, 2])], 50, "no"))
    assert bench.in_flight == {"m": 2} and queue.leases.outstanding == 3
    assert not queue.has_ready and queue.leases.next_time_ns() == 50
    assert queue.leases.ripen(49) == [] and not queue.has_ready
    assert queue.leases.ripen(50) == [] and ready(queue) == [[1, 2]]
    assert queue.leases.next_time_ns() == 100


def test_a_redelivery_counts_and_makes_a_new_lease() -> None:
    bench = Bench()
    bench.apply(delivered(0, 3), Returned(Q, [(FIRST, [0, 3])], 0, "no"), Redelivered(Q, [(FIRST, [0, 2])], "b", 200))
    queue = bench.queue
    first, again = queue.leases.find(FIRST, 2), queue.leases.find(SECOND, 0)
    assert first is not None and first.count == 1 and first.member is None
    assert again is not None and again.count == 2 and again.member == "b"
    assert queue.leases.find(FIRST, 0) is None and bench.in_flight == {"b": 2}


def test_only_what_is_extended_stays_longer() -> None:
    bench = Bench()
    bench.apply(delivered(0, 3, until=100), Extended(Q, [(FIRST, [1, 2])], 300))
    queue = bench.queue
    expired = queue.leases.ripen(100)
    assert [batch.runs for batch in expired] == [[0, 1, 2, 3]]
    bench.apply(Returned(Q, [(FIRST, [0, 1, 2, 3])], 0, "late"))
    assert queue.leases.next_time_ns() == 300 and bench.in_flight == {"m": 1}


def test_what_expired_is_told_again_until_an_event_takes_it() -> None:
    queue = Bench().apply(delivered(0, 3, until=100))
    assert len(queue.leases.ripen(100)) == 1 == len(queue.leases.ripen(100))


def test_what_moves_is_out_of_flight_and_done_when_it_has_moved() -> None:
    bench = Bench()
    bench.apply(delivered(0, 3), Moving(Q, [(FIRST, [1, 2])], [], "bad", TARGET))
    queue = bench.queue
    assert bench.in_flight == {"m": 2} and queue.moving[1].count == 1 and queue.moving[1].reason == "bad"
    assert not queue.is_done(1, NORMAL) and undone(queue) == 3
    bench.apply(Moved(Q, [1, 2]))
    assert not queue.moving and queue.is_done(1, NORMAL) and undone(queue) == 2


def test_what_expired_undelivered_moves_with_a_count_of_zero() -> None:
    queue = Bench().apply(delivered(0, 2), Moving(Q, [], [2, 4], "old", TARGET))
    assert {offset: move.count for offset, move in queue.moving.items()} == {2: 0, 3: 0}


def test_a_commit_of_a_stream_is_all_that_a_stream_has() -> None:
    queue = Bench().apply(Committed(Q, 7), Committed(Q, 9))
    assert (queue.committed, queue.front, queue.leases.outstanding) == (9, 9, 0)


def test_what_the_log_dropped_leaves_every_state() -> None:
    bench = Bench()
    bench.apply(delivered(0, 6), Returned(Q, [(FIRST, [1, 2])], 0, "no"), Dropped(Q, 3))
    queue = bench.queue
    assert (
        queue.committed == 3 and bench.in_flight == {"m": 3} and not queue.has_ready and queue.leases.outstanding == 3
    )
    bench.apply(Dropped(Q, 20))
    assert (queue.committed, queue.front, queue.leases.outstanding) == (20, 20, 0) and bench.in_flight == {}


def test_what_is_not_done_is_counted_from_the_start_of_the_log_on() -> None:
    queue = Bench().apply(delivered(0, 10), Acked(Q, [(FIRST, [1, 9])]))
    lane = queue.lanes[NORMAL]
    assert [lane.undone(start) for start in (0, 1, 8, 10, 30)] == [2, 1, 1, 0, 0]


def test_a_reset_voids_leases_and_clears_what_is_done_from_there() -> None:
    bench = Bench()
    bench.apply(delivered(0, 6), Acked(Q, [(FIRST, [3, 6])]), ResetTo(Q, 2))
    queue = bench.queue
    assert (queue.committed, queue.front, queue.leases.outstanding, undone(queue)) == (2, 2, 0, 0)
    assert bench.in_flight == {} and queue.leases.find(FIRST, 0) is None
    bench.apply(delivered(2, 4))
    assert queue.leases.find(FIRST, 2) is None and queue.leases.find(SECOND, 2) is not None


def test_a_reset_leaves_what_is_on_its_way_to_the_dead_letters() -> None:
    bench = Bench()
    bench.apply(delivered(0, 3), Moving(Q, [(FIRST, [1, 2])], [], "bad", TARGET), ResetTo(Q, 0), Moved(Q, [1, 2]))
    queue = bench.queue
    assert queue.is_done(1, NORMAL) and queue.cursor(NORMAL) == queue.front == 0 and queue.parked == 0
    assert queue.known_end == 2 and queue.lanes[NORMAL].done_beyond() == 1


def test_what_a_crash_took_from_the_log_is_taken_from_the_group() -> None:
    bench = Bench()
    bench.apply(
        delivered(0, 8), Acked(Q, [(FIRST, [1, 2, 5, 8])]), Moving(Q, [(FIRST, [3, 5])], [], "bad", TARGET), CutTo(Q, 4)
    )
    queue = bench.queue
    assert queue.front == 4 and set(queue.moving) == {3} and bench.in_flight == {"m": 2}
    assert not queue.is_done(5, NORMAL) and queue.is_done(1, NORMAL)
    bench.apply(CutTo(Q, 0))
    assert (queue.front, queue.committed, queue.leases.outstanding) == (0, 0, 0) and not queue.moving


@pytest.mark.parametrize("size", [SPAN - 1, SPAN, SPAN + 1, 3 * SPAN])
def test_a_large_delivery_is_several_leases_none_wider_than_the_span(size: int) -> None:
    queue = Bench().apply(delivered(10, 10 + size))
    batches = list(queue.batches())
    assert sum(batch.bits.bit_count() for batch in batches) == size
    assert all(batch.runs[-1] - batch.runs[0] <= SPAN for batch in batches)
    assert len(batches) == -(-size // SPAN)


def test_far_apart_runs_are_different_leases() -> None:
    queue = Bench().apply(delivered(0, 1, 2_000, 2_001, 900_000, 900_002))
    assert [batch.runs for batch in queue.batches()] == [[0, 1], [2_000, 2_001], [900_000, 900_002]]


def test_a_lease_that_was_split_and_loaded_again_can_be_settled_in_any_order() -> None:
    """Its batches begin at different offsets after that."""
    bench = Bench()
    bench.apply(
        delivered(0, 6),
        Acked(Q, [(FIRST, [0, 1])]),
        Returned(Q, [(FIRST, [3, 4])], 50, "a"),
        Returned(Q, [(FIRST, [4, 5])], 60, "b"),
    )
    queue = Queue.load(Q, bench.queue.dump(), {})
    queue.apply(Acked(Q, [(FIRST, [5, 6, 3, 4])]))
    queue.apply(Acked(Q, [(FIRST, [1, 5])]))
    assert queue.committed == 6 and queue.leases.outstanding == 0


def test_done_messages_release_their_keys() -> None:
    bench = Bench()
    bench.apply(delivered(0, 2))
    keys = bench.queue.keys = KeyOrder()
    keys.hold(0, lane_key(NORMAL, b"a"))
    keys.hold(1, lane_key(NORMAL, b"b"))
    keys.park(2, lane_key(NORMAL, b"a"))
    bench.queue.apply(Acked(Q, [(FIRST, [1, 2])]))
    assert not bench.queue.has_ready
    bench.queue.apply(Acked(Q, [(FIRST, [0, 1])]))
    assert bench.queue.has_ready and keys.ready(5, NORMAL) == [2]


def test_what_a_lane_passes_over_stays_outstanding_in_its_own_lane() -> None:
    bench = Bench()
    bench.apply(delivered(0, 1, lane=0, upto=1, skipped=()))
    keys = bench.queue.keys = KeyOrder()
    keys.hold(0, lane_key(0, b"a"))
    bench.queue.apply(Delivered(Q, [1, 2], [0, 1], 2, "m", 100, NORMAL))
    assert keys.is_busy(lane_key(0, b"a")) and not bench.queue.is_done(0, 0)


# Lanes


def test_lanes_are_left_behind_at_what_they_have_and_go_along_else() -> None:
    """0 and 3 are critical, 1 is high, 2 and 4 are normal."""
    bench = Bench()
    queue = bench.apply(delivered(2, 3, 4, 5, skipped=None, left=[(0, 0), (1, 1)]))
    assert queue.front == 5 and [queue.cursor(lane) for lane in range(5)] == [0, 1, 5, 5, 5]
    assert queue.committed == 0 and queue.is_done(0, 3) and not queue.is_done(0, 0) and not queue.is_done(1, 1)
    bench.apply(delivered(0, 1, lane=0, upto=3, skipped=(1, 3)))
    assert queue.cursor(0) == 3 and queue.committed == 0
    bench.apply(delivered(1, 2, lane=1, upto=5, skipped=(2, 5)), delivered(3, 4, lane=0, upto=5, skipped=(4, 5)))
    assert {lane: each.outstanding for lane, each in queue.lanes.items()} == {0: 2, 1: 1, NORMAL: 2}
    bench.apply(Acked(Q, [(lease_in(2, 0), [0, 1]), (lease_in(4, 0), [3, 4])]))
    assert queue.committed == 1 and set(queue.lanes) == {1, NORMAL}
    bench.apply(Acked(Q, [(lease_in(3, 1), [1, 2]), (FIRST, [2, 3, 4, 5])]))
    assert queue.committed == 5 and queue.lanes == {}


def test_a_lease_tells_its_lane_and_a_redelivery_keeps_it() -> None:
    bench = Bench()
    bench.apply(delivered(0, 2, lane=4), Returned(Q, [(lease_in(1, 4), [0, 2])], 0, "no"))
    assert ready(bench.queue, 4) == [[0, 2]] and bench.queue.first_ready(NORMAL) is None
    bench.apply(Redelivered(Q, [(lease_in(1, 4), [0, 1])], "b", 200))
    found = bench.queue.leases.find(lease_in(2, 4), 0)
    assert found is not None and found.count == 2 and ready(bench.queue, 4) == [[1, 2]]


def test_what_no_lane_has_anything_of_is_passed_over_by_all() -> None:
    bench = Bench()
    queue = bench.apply(delivered(0, 1), Delivered(Q, [], None, 7, "m", 0, 0))
    assert queue.front == 7 and queue.committed == 0 and queue.cursor(NORMAL) == 7 == queue.cursor(0)
    bench.apply(Acked(Q, [(FIRST, [0, 1])]))
    assert queue.committed == 7 and queue.lanes == {}


def test_messages_nacked_one_by_one_cost_no_scan_of_the_others() -> None:
    """Each wait is an entry of its own in the heap of times; looking for stale ones must stay rare."""
    bench = Bench()
    queue = bench.queue
    queue.apply(delivered(0, 20_000))
    rebuilt = 0
    times = queue.leases._times
    for offset in range(20_000):
        lease = lease_in(offset // SPAN + 1, NORMAL)
        queue.apply(Returned(Q, [(lease, [offset, offset + 1])], 1_000 + offset, "no"))
        if queue.leases._times is not times:
            times, rebuilt = queue.leases._times, rebuilt + 1
    assert rebuilt < 20


def test_closing_gives_members_their_room_back() -> None:
    bench = Bench()
    bench.apply(delivered(0, 5))
    bench.queue.close()
    assert bench.in_flight == {} and bench.queue.leases.in_flight == 0
