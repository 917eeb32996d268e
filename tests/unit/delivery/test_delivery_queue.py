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
from goqueue.delivery.keyed import KeyOrder
from goqueue.delivery.parcel import SPAN
from goqueue.delivery.queue import Queue

Q = "g/t/0"
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
            assert again.outstanding == self.queue.outstanding
            assert again.in_flight == self.queue.in_flight
            assert again.acked.above == self.queue.acked.above
        return self.queue


def delivered(*runs: int, member: str = "m", until: int = 100, skipped: tuple[int, ...] = ()) -> Delivered:
    return Delivered(Q, list(runs), list(skipped), max([*runs, *skipped]), member, until)


def test_what_is_delivered_is_in_flight_with_its_member() -> None:
    bench = Bench()
    queue = bench.apply(delivered(0, 5, member="a"), delivered(5, 7, member="b"))
    assert bench.in_flight == {"a": 5, "b": 2} and queue.in_flight == 7 and queue.in_hand("a") == 5
    assert queue.cursor == 7 and queue.committed == 0 and queue.outstanding == 7
    assert queue.lag(0, 10) == 10
    found = queue.find(1, 4)
    assert found is not None and found.member == "a" and found.count == 1
    assert queue.find(1, 5) is None and queue.find(2, 5) is not None


def test_what_is_skipped_is_done() -> None:
    queue = Bench().apply(delivered(0, 2, 4, 6, skipped=(2, 4, 6, 7)), Acked(Q, [(1, [0, 2])]))
    assert queue.committed == 4 and queue.cursor == 7 and queue.lag(0, 7) == 2


def test_the_prefix_rises_when_its_gap_closes() -> None:
    bench = Bench()
    bench.apply(delivered(0, 5), Acked(Q, [(1, [1, 3, 4, 5])]))
    assert bench.queue.committed == 0 and bench.queue.lag(0, 5) == 2
    bench.apply(Acked(Q, [(1, [0, 1])]))
    assert bench.queue.committed == 3
    bench.apply(Acked(Q, [(1, [3, 4])]))
    assert bench.queue.committed == 5 and bench.queue.outstanding == 0 and bench.in_flight == {}


def test_an_ack_of_what_the_lease_does_not_hold_changes_nothing() -> None:
    bench = Bench()
    bench.apply(delivered(0, 3), Acked(Q, [(1, [1, 2])]), Acked(Q, [(1, [1, 2])]), Acked(Q, [(7, [0, 3])]))
    assert bench.queue.lag(0, 3) == 2 and bench.in_flight == {"m": 2}


def test_what_is_returned_is_ready_at_its_time_and_not_before() -> None:
    bench = Bench()
    queue = bench.apply(delivered(0, 3), Returned(Q, [(1, [1, 2])], 50, "no"))
    assert bench.in_flight == {"m": 2} and queue.outstanding == 3
    assert not queue.has_ready and queue.next_time_ns() == 50
    assert queue.ripen(49) == [] and not queue.has_ready
    assert queue.ripen(50) == [] and [parcel.runs for parcel in queue.ready()] == [[1, 2]]
    assert queue.next_time_ns() == 100


def test_a_redelivery_counts_and_makes_a_new_lease() -> None:
    bench = Bench()
    bench.apply(delivered(0, 3), Returned(Q, [(1, [0, 3])], 0, "no"), Redelivered(Q, [(1, [0, 2])], "b", 200))
    queue = bench.queue
    first, again = queue.find(1, 2), queue.find(2, 0)
    assert first is not None and first.count == 1 and first.member is None
    assert again is not None and again.count == 2 and again.member == "b"
    assert queue.find(1, 0) is None and bench.in_flight == {"b": 2}


def test_only_what_is_extended_stays_longer() -> None:
    bench = Bench()
    bench.apply(delivered(0, 3, until=100), Extended(Q, [(1, [1, 2])], 300))
    queue = bench.queue
    expired = queue.ripen(100)
    assert [parcel.runs for parcel in expired] == [[0, 1, 2, 3]]
    bench.apply(Returned(Q, [(1, [0, 1, 2, 3])], 0, "late"))
    assert queue.next_time_ns() == 300 and bench.in_flight == {"m": 1}


def test_what_expired_is_told_again_until_an_event_takes_it() -> None:
    queue = Bench().apply(delivered(0, 3, until=100))
    assert len(queue.ripen(100)) == 1 == len(queue.ripen(100))


def test_what_moves_is_out_of_flight_and_done_when_it_has_moved() -> None:
    bench = Bench()
    bench.apply(delivered(0, 3), Moving(Q, [(1, [1, 2])], [], "bad", TARGET))
    queue = bench.queue
    assert bench.in_flight == {"m": 2} and queue.moving[1].count == 1 and queue.moving[1].reason == "bad"
    assert 1 not in queue.acked and queue.lag(0, 3) == 3
    bench.apply(Moved(Q, [1, 2]))
    assert not queue.moving and 1 in queue.acked and queue.lag(0, 3) == 2


def test_what_expired_undelivered_moves_with_a_count_of_zero() -> None:
    queue = Bench().apply(delivered(0, 2), Moving(Q, [], [2, 4], "old", TARGET))
    assert {offset: move.count for offset, move in queue.moving.items()} == {2: 0, 3: 0}


def test_a_commit_of_a_stream_is_all_that_a_stream_has() -> None:
    queue = Bench().apply(Committed(Q, 7), Committed(Q, 9))
    assert (queue.committed, queue.cursor, queue.outstanding) == (9, 9, 0)


def test_what_the_log_dropped_leaves_every_state() -> None:
    bench = Bench()
    bench.apply(delivered(0, 6), Returned(Q, [(1, [1, 2])], 0, "no"), Dropped(Q, 3))
    queue = bench.queue
    assert queue.committed == 3 and bench.in_flight == {"m": 3} and not queue.has_ready and queue.outstanding == 3
    bench.apply(Dropped(Q, 20))
    assert (queue.committed, queue.cursor, queue.outstanding) == (20, 20, 0) and bench.in_flight == {}


def test_lag_counts_from_the_start_of_the_log_also_before_anyone_polls() -> None:
    queue = Bench().apply(delivered(0, 10), Acked(Q, [(1, [1, 9])]))
    assert queue.lag(0, 30) == 22
    assert queue.lag(10, 30) == 20
    assert queue.lag(8, 30) == 21


def test_a_reset_voids_leases_and_clears_what_is_done_from_there() -> None:
    bench = Bench()
    bench.apply(delivered(0, 6), Acked(Q, [(1, [3, 6])]), ResetTo(Q, 2))
    queue = bench.queue
    assert (queue.committed, queue.cursor, queue.outstanding, queue.lag(0, 6)) == (2, 2, 0, 4)
    assert bench.in_flight == {} and queue.find(1, 0) is None
    bench.apply(delivered(2, 4))
    assert queue.find(1, 2) is None and queue.find(2, 2) is not None


def test_a_reset_leaves_what_is_on_its_way_to_the_dead_letters() -> None:
    bench = Bench()
    bench.apply(delivered(0, 3), Moving(Q, [(1, [1, 2])], [], "bad", TARGET), ResetTo(Q, 0), Moved(Q, [1, 2]))
    assert 1 in bench.queue.acked and bench.queue.acked.end > bench.queue.cursor and bench.queue.parked == 0


def test_what_a_crash_took_from_the_log_is_taken_from_the_group() -> None:
    bench = Bench()
    bench.apply(
        delivered(0, 8), Acked(Q, [(1, [1, 2, 5, 8])]), Moving(Q, [(1, [3, 5])], [], "bad", TARGET), CutTo(Q, 4)
    )
    queue = bench.queue
    assert queue.cursor == 4 and set(queue.moving) == {3} and bench.in_flight == {"m": 2}
    assert 5 not in queue.acked and 1 in queue.acked
    bench.apply(CutTo(Q, 0))
    assert (queue.cursor, queue.committed, queue.outstanding) == (0, 0, 0) and not queue.moving


@pytest.mark.parametrize("size", [SPAN - 1, SPAN, SPAN + 1, 3 * SPAN])
def test_a_large_delivery_is_several_leases_none_wider_than_the_span(size: int) -> None:
    queue = Bench().apply(delivered(10, 10 + size))
    parcels = list(queue.parcels())
    assert sum(parcel.bits.bit_count() for parcel in parcels) == size
    assert all(parcel.runs[-1] - parcel.runs[0] <= SPAN for parcel in parcels)
    assert len(parcels) == -(-size // SPAN)


def test_far_apart_runs_are_different_leases() -> None:
    queue = Bench().apply(delivered(0, 1, 2_000, 2_001, 900_000, 900_002))
    assert [parcel.runs for parcel in queue.parcels()] == [[0, 1], [2_000, 2_001], [900_000, 900_002]]


def test_a_lease_that_was_split_and_loaded_again_can_be_settled_in_any_order() -> None:
    """Its parcels begin at different offsets after that."""
    bench = Bench()
    bench.apply(
        delivered(0, 6),
        Acked(Q, [(1, [0, 1])]),
        Returned(Q, [(1, [3, 4])], 50, "a"),
        Returned(Q, [(1, [4, 5])], 60, "b"),
    )
    queue = Queue.load(Q, bench.queue.dump(), {})
    queue.apply(Acked(Q, [(1, [5, 6, 3, 4])]))
    queue.apply(Acked(Q, [(1, [1, 5])]))
    assert queue.committed == 6 and queue.outstanding == 0


def test_done_messages_release_their_keys() -> None:
    bench = Bench()
    bench.apply(delivered(0, 2))
    keys = bench.queue.keys = KeyOrder()
    keys.hold(0, b"a")
    keys.hold(1, b"b")
    keys.park(2, b"a")
    bench.queue.apply(Acked(Q, [(1, [1, 2])]))
    assert not bench.queue.has_ready
    bench.queue.apply(Acked(Q, [(1, [0, 1])]))
    assert bench.queue.has_ready and keys.ready(5) == [2]


def test_messages_nacked_one_by_one_cost_no_scan_of_the_others() -> None:
    """Each wait is an entry of its own in the heap of times; looking for stale ones must stay rare."""
    bench = Bench()
    queue = bench.queue
    queue.apply(delivered(0, 20_000))
    rebuilt = 0
    times = queue._times
    for offset in range(20_000):
        lease = offset // SPAN + 1
        queue.apply(Returned(Q, [(lease, [offset, offset + 1])], 1_000 + offset, "no"))
        if queue._times is not times:
            times, rebuilt = queue._times, rebuilt + 1
    assert rebuilt < 20


def test_closing_gives_members_their_room_back() -> None:
    bench = Bench()
    bench.apply(delivered(0, 5))
    bench.queue.close()
    assert bench.in_flight == {} and bench.queue.in_flight == 0
