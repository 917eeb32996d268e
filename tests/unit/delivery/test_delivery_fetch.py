"""What a poll takes from a lane: which messages are delivered, skipped, expired, parked, or delivered again."""

from __future__ import annotations

import numpy as np
import pytest
from doubles.decided_queue import FIRST, MEMBER, NORMAL, NOW_NS, SECOND, TARGET, Q, a_queue, apply

from goqueue.delivery.events import (
    Acked,
    AnyQueueEvent,
    Delivered,
    Dropped,
    Moved,
    Moving,
    Redelivered,
    ResetTo,
    Returned,
)
from goqueue.delivery.fetch import (
    decide_drop,
    decide_lost,
    decide_new,
    decide_parked,
    decide_redelivery,
    decide_skip,
)
from goqueue.delivery.in_flight_batch import READY
from goqueue.delivery.key_order import KeyOrder, lane_key
from goqueue.delivery.key_recovery import recover_keys
from goqueue.delivery.queue import Queue
from goqueue.delivery.selection import Candidates, FetchTerms, Selection, expired_indexes, select
from goqueue.model.clock import NANOS_PER_MS

UNTIL_NS = NOW_NS + 30
OVER = "its time to live was over"
A, B = lane_key(NORMAL, b"a"), lane_key(NORMAL, b"b")


def terms(*, keeps_expired: bool = False, max_parked: int = 100, has_target: bool = True) -> FetchTerms:
    target = TARGET if has_target else None
    return FetchTerms(MEMBER, NORMAL, UNTIL_NS, keeps_expired, max_parked, lambda: target)


def candidates(
    *offsets: int, hidden: set[int] | None = None, expired: set[int] | None = None, keys: list[bytes] | None = None
) -> Candidates:
    """Sets go by offset here, which is the index too where nothing is missing."""
    return Candidates(list(offsets), offsets[-1] + 1, hidden or set(), expired or set(), keys)


def keyed() -> Queue:
    queue = a_queue()
    queue.keys = KeyOrder()
    return queue


def delivered(queue: Queue, selection: Selection, fetch: FetchTerms | None = None) -> list[AnyQueueEvent]:
    """Decide and apply, as the broker does."""
    events = decide_new(queue, selection, [], fetch or terms())
    apply(queue, events)
    if queue.keys is not None:
        selection.note_keys(queue.keys, NORMAL)
    return events


# Time to live


@pytest.mark.parametrize(
    ("ages_ms", "own", "topic_ttl_ms", "expired"),
    [
        ([10, 5, 1], [], None, set()),
        ([10, 5, 1], [], 5, {0, 1}),
        ([10, 5, 1], [(2, 1)], None, {2}),
        ([10, 5, 1], [(0, 11)], 5, {1}),
        ([10, 5, 1], [(2, 1)], 1_000, {2}),
    ],
)
def test_a_message_expires_by_its_own_time_to_live_or_else_by_the_topics(
    ages_ms: list[int], own: list[tuple[int, int]], topic_ttl_ms: int | None, expired: set[int]
) -> None:
    timestamps = np.array([NOW_NS - age * NANOS_PER_MS for age in ages_ms], np.int64)
    assert expired_indexes(timestamps, own, topic_ttl_ms, NOW_NS) == expired


def test_an_expired_message_is_skipped() -> None:
    queue = a_queue()
    selection = select(queue, candidates(0, 1, 2, expired={1}), terms())
    assert selection.offsets == [0, 2] and selection.indexes == [0, 2] and selection.expired == [1]
    assert delivered(queue, selection) == [Delivered(Q, [0, 1, 2, 3], [1, 2], 3, MEMBER, UNTIL_NS)]
    assert queue.is_done(1, NORMAL)


def test_an_expired_message_becomes_a_dead_letter_if_the_topic_keeps_them() -> None:
    queue = a_queue()
    selection = select(queue, candidates(0, 1, expired={1}), terms(keeps_expired=True))
    assert delivered(queue, selection, terms(keeps_expired=True)) == [
        Delivered(Q, [0, 1], [], 2, MEMBER, UNTIL_NS),
        Moving(Q, [], [1, 2], OVER, TARGET),
    ]
    assert queue.moving[1].count == 0


def test_an_expired_dead_letter_is_done() -> None:
    queue = a_queue()
    selection = select(queue, candidates(0, expired={0}), terms(keeps_expired=True))
    events = delivered(queue, selection, terms(keeps_expired=True, has_target=False))
    assert events[1:] == [Acked(Q, [], OVER), Moved(Q, [0, 1])]
    assert queue.committed == 1


# New messages


def test_messages_that_need_no_closer_look_are_delivered_as_they_come() -> None:
    queue = a_queue()
    selection = select(queue, candidates(0, 1, 5), terms())
    assert selection.indexes is None and selection.skipped is None
    assert delivered(queue, selection) == [Delivered(Q, [0, 2, 5, 6], None, 6, MEMBER, UNTIL_NS)]
    assert queue.is_done(3, NORMAL) and queue.leases.in_hand(MEMBER) == 3


def test_hidden_messages_and_gaps_are_done_without_a_delivery() -> None:
    queue = a_queue()
    selection = select(queue, Candidates([0, 1, 4], 6, {1}, set()), terms())
    assert selection.skipped == [1, 4, 5, 6] and selection.runs == [0, 1, 4, 5]
    delivered(queue, selection)
    apply(queue, [Acked(Q, [(FIRST, [0, 1, 4, 5])])])
    assert queue.committed == 6


def test_after_a_reset_what_is_on_its_way_to_the_dead_letters_is_not_delivered() -> None:
    queue = a_queue(2)
    apply(queue, [Moving(Q, [(FIRST, [0, 1])], [], "no", TARGET), ResetTo(Q, 0)])
    selection = select(queue, candidates(0, 1), terms())
    assert selection.offsets == [1] and selection.skipped == []
    delivered(queue, selection)
    assert not queue.is_done(0, NORMAL)
    apply(queue, [Moved(Q, [0, 1])])
    assert queue.is_done(0, NORMAL)


def test_a_skip_moves_the_cursor_and_delivers_nothing() -> None:
    queue = a_queue()
    queue.apply(decide_skip(queue, NORMAL, 9, MEMBER))
    assert queue.cursor(NORMAL) == 9 and queue.committed == 9 and queue.leases.in_flight == 0


def test_what_retention_removed_leaves_the_queue() -> None:
    queue = a_queue(3)
    assert decide_drop(queue, 0) == []
    assert decide_drop(queue, 2) == [Dropped(Q, 2)]


# Key order


def test_a_key_is_held_back_while_one_of_its_messages_is_outstanding() -> None:
    queue = keyed()
    selection = select(queue, candidates(0, 1, 2, 3, keys=[b"a", b"a", b"b", b""]), terms())
    assert selection.offsets == [0, 2, 3] and selection.parked == [(1, A)]
    assert selection.keys == {0: A, 2: B}
    delivered(queue, selection)
    assert queue.keys is not None and queue.keys.parked_count == 1
    again = select(queue, candidates(4, 5, keys=[b"b", b"c"]), terms())
    assert again.offsets == [5] and again.parked == [(4, B)]


def test_the_scan_stops_where_there_is_no_more_room_for_parked_messages() -> None:
    queue = keyed()
    selection = select(queue, candidates(0, 1, 2, 3, keys=[b"a", b"a", b"a", b"b"]), terms(max_parked=1))
    assert selection.offsets == [0] and selection.parked == [(1, A)]
    assert selection.is_stopped and selection.upto == 2
    delivered(queue, selection)
    assert queue.keys is not None and queue.keys.stopped == {NORMAL}


def test_what_there_is_no_room_for_is_left_for_the_next_fetch() -> None:
    queue = keyed()
    found = candidates(0, 1, 2, 3, expired={3}, keys=[b"a", b"b", b"b", b"c"])
    selection = select(queue, found, terms())
    selection.keep_within(1)
    assert selection.offsets == [0] and selection.upto == 1
    assert (selection.parked, selection.expired, selection.keys) == ([], [], {0: A})


def test_a_parked_message_is_delivered_when_its_key_is_free() -> None:
    queue = keyed()
    delivered(queue, select(queue, candidates(0, 1, 2, keys=[b"a"] * 3), terms()))
    keys = queue.keys
    assert keys is not None and not keys.has_ready
    apply(queue, [Acked(Q, [(FIRST, [0, 1])])])
    parked = decide_parked(queue, keys, [1], [1], 2, set(), terms())
    assert parked.events == [Delivered(Q, [1, 2], [], 3, MEMBER, UNTIL_NS)] and parked.indexes == [0]
    apply(queue, parked.events)
    parked.note_keys(keys)
    assert not keys.has_ready and keys.parked_count == 1


@pytest.mark.parametrize("keeps_expired", [False, True])
def test_a_parked_message_that_has_expired_or_left_the_log_frees_its_key(*, keeps_expired: bool) -> None:
    queue = keyed()
    found = candidates(0, 1, 2, 3, keys=[b"a", b"b", b"a", b"b"])
    delivered(queue, select(queue, found, terms()))
    keys = queue.keys
    assert keys is not None
    apply(queue, [Acked(Q, [(FIRST, [0, 2])])])
    parked = decide_parked(queue, keys, [2, 3], [3], 4, {0}, terms(keeps_expired=keeps_expired))
    assert parked.indexes == [] and parked.expired == [3]
    apply(queue, parked.events)
    parked.note_keys(keys)
    assert queue.is_done(2, NORMAL) and not keys.has_ready
    assert (3 in queue.moving) == keeps_expired and queue.is_done(3, NORMAL) != keeps_expired


def test_key_order_is_recovered_from_the_queue_and_the_log() -> None:
    queue = a_queue()
    queue.apply(Delivered(Q, [0, 1], [], 5, MEMBER, UNTIL_NS))
    keys, lost = recover_keys(queue, {NORMAL: {0: A, 1: A, 2: B, 3: B}})
    assert keys.is_busy(A) and keys.ready(9, NORMAL) == [2] and keys.parked_count == 3
    assert lost == {NORMAL: [4]}
    queue.apply(decide_lost(queue, NORMAL, [4], MEMBER))
    assert queue.is_done(4, NORMAL)


# Retries


def test_a_retry_is_a_new_lease_of_what_is_still_there() -> None:
    queue = a_queue(4)
    apply(queue, [Returned(Q, [(FIRST, [0, 4])], READY, "no")])
    batch = queue.first_ready(NORMAL)
    assert batch is not None
    redelivery = decide_redelivery(queue, batch, 0b1111, [0, 2], 3, terms())
    assert redelivery.gone == [Acked(Q, [(FIRST, [1, 2])], gone=True)]
    assert redelivery.again == [Redelivered(Q, [(FIRST, [0, 1, 2, 3])], MEMBER, UNTIL_NS)]
    assert redelivery.indexes == [0, 1]
    apply(queue, [*redelivery.gone, *redelivery.again])
    assert not queue.was_acked(FIRST, 1) and queue.is_done(1, NORMAL)
    assert queue.leases.find(SECOND, 2) is not None and queue.leases.find(FIRST, 3) is not None


def test_a_retry_leaves_out_what_was_settled_while_it_was_read() -> None:
    queue = a_queue(3)
    apply(queue, [Returned(Q, [(FIRST, [0, 3])], READY, "no"), Acked(Q, [(FIRST, [1, 2])])])
    batch = queue.first_ready(NORMAL)
    assert batch is not None
    redelivery = decide_redelivery(queue, batch, 0b111, [0, 1, 2], 3, terms())
    assert redelivery.gone == [] and redelivery.indexes == [0, 2]
