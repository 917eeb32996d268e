from __future__ import annotations

import msgspec

from goqueue.delivery.events import Acked, Delivered, QueueOpened, Redelivered, Returned
from goqueue.delivery.lease_acks import LeaseAcks, Recent
from goqueue.delivery.leases import lease_in
from goqueue.delivery.queue import Queue, QueueDump

NORMAL = 2
FIRST, SECOND = lease_in(1, NORMAL), lease_in(2, NORMAL)


def a_queue(*runs: int) -> Queue:
    """Everything in these runs is in flight, in one lease."""
    queue = Queue(QueueOpened("g/t/0", "g", "t", 0, 0), {})
    queue.apply(Delivered("g/t/0", list(runs), None, runs[-1], "m", 100))
    return queue


def test_the_oldest_leases_of_all_queues_together_are_forgotten() -> None:
    recent = Recent(3)
    one, other = LeaseAcks(recent), LeaseAcks(recent)
    for lease in (8, 16):
        one.add(lease, 0, 1, 1)
        other.add(lease, 0, 1, 1)
    assert [one.acked(8, 0), other.acked(8, 0), one.acked(16, 0), other.acked(16, 0)] == [0, 1, 1, 1]
    assert len(one.dump()) + len(other.dump()) == 3


def test_a_lease_that_is_acked_bit_by_bit_counts_once() -> None:
    recent = Recent(2)
    acks = LeaseAcks(recent)
    acks.add(8, 0, 1, 1)
    for bit in range(60):
        acks.add(16, 0, (1 << 60) - 1, 1 << bit)
    assert acks.acked(8, 0) == 1 and acks.acked(16, 0) == (1 << 60) - 1
    assert acks.acked(16, 59) == 1 and acks.acked(16, 60) == 0


def test_a_wide_lease_takes_the_room_of_several() -> None:
    acks = LeaseAcks(Recent(20))
    for lease in range(20):
        acks.add(lease, lease, 1, 1)
    acks.add(20, 20, 1 << 1_023 | 1, 1)
    assert [each.lease for each in acks.dump()] == [17, 18, 19, 20]


def test_what_was_forgotten_is_not_known_as_acked_and_what_follows_is() -> None:
    recent = Recent(1)
    acks = LeaseAcks(recent)
    acks.add(8, 5, 0b11, 0b01)
    acks.add(16, 7, 1, 1)
    acks.add(8, 5, 0b11, 0b10)
    assert acks.acked(8, 5) == 0b10


def test_messages_that_the_log_had_lost_or_that_were_given_up_were_not_acked() -> None:
    queue = a_queue(0, 4)
    queue.apply(Acked("g/t/0", [(FIRST, [0, 1])], gone=True))
    queue.apply(Acked("g/t/0", [(FIRST, [1, 2])], "a dead letter has no dead letters"))
    queue.apply(Acked("g/t/0", [(FIRST, [2, 3])]))
    assert [queue.was_acked(FIRST, offset) for offset in range(4)] == [False, False, True, False]


def test_what_lies_between_the_messages_of_a_lease_is_known_while_it_is_in_hand_and_when_it_is_acked() -> None:
    queue = a_queue(0, 2, 5, 6)
    for _ in range(2):
        assert queue.between(FIRST, [0, 6], 0) == 0b11100
        # Only between messages of its own: whoever begins or ends elsewhere means what he says.
        assert queue.between(FIRST, [0, 5], 0) == 0
        assert queue.between(FIRST, [2, 3], 2) == 0
        assert queue.between(FIRST, [1, 6], 1) == 0b1110
        queue.apply(Acked("g/t/0", [(FIRST, [0, 2, 5, 6])]))
    assert queue.between(SECOND, [0, 6], 0) == 0


def test_a_message_that_went_to_another_lease_does_not_lie_between_those_of_its_first() -> None:
    queue = a_queue(0, 3)
    queue.apply(Returned("g/t/0", [(FIRST, [1, 2])], 0, ""))
    queue.apply(Redelivered("g/t/0", [(FIRST, [1, 2])], "m", 100))
    queue.apply(Acked("g/t/0", [(FIRST, [0, 1, 2, 3])]))
    queue.apply(Acked("g/t/0", [(SECOND, [1, 2])]))
    assert queue.between(FIRST, [0, 3], 0) == 0
    assert queue.acks.acked(FIRST, 0) == 0b101 and queue.acks.acked(SECOND, 0) == 0b010


def test_both_come_out_of_a_snapshot_as_they_went_in() -> None:
    queue = a_queue(0, 2, 5, 7)
    queue.apply(Acked("g/t/0", [(FIRST, [0, 1, 5, 6])]))
    again = Queue.load("g/t/0", msgspec.json.decode(msgspec.json.encode(queue.dump()), type=QueueDump), {})
    assert again.dump() == queue.dump()
    assert again.between(FIRST, [1, 7], 1) == queue.between(FIRST, [1, 7], 1) == 0b1110
    again.apply(Acked("g/t/0", [(FIRST, [1, 2, 6, 7])]))
    assert again.acks.acked(FIRST, 0) == 0b1100011


def test_a_snapshot_of_before_knows_nothing_of_acks_and_what_lies_between() -> None:
    queue = a_queue(0, 2, 5, 7)
    queue.apply(Acked("g/t/0", [(FIRST, [0, 1])]))
    told = msgspec.to_builtins(queue.dump())
    del told["acks"]
    told["parcels"] = [batch[:6] for batch in told["parcels"]]
    again = Queue.load("g/t/0", msgspec.convert(told, QueueDump), {})
    assert not again.was_acked(FIRST, 0)
    assert again.between(FIRST, [1, 7], 1) == 0
    assert [batch.runs for batch in again.batches()] == [[1, 2, 5, 7]]
    assert again.dump() == Queue.load("g/t/0", again.dump(), {}).dump()
