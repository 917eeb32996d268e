"""What becomes of delivered messages when they are settled, and which claims on them hold."""

from __future__ import annotations

import pytest
from doubles.decided_queue import FIRST, MEMBER, NOW_NS, SECOND, TARGET, Q, a_queue, apply, held, terms

from goqueue.delivery.claims import claim_below, claim_lease, claim_message, to_parts
from goqueue.delivery.committed_offsets import decide_acks_below, decide_commit
from goqueue.delivery.events import Acked, Committed, Extended, Frozen, Moving, Redelivered, Released, Returned
from goqueue.delivery.in_flight_batch import READY, SPAN
from goqueue.delivery.queue import Queue
from goqueue.delivery.settlement import decide_release_unseen, decide_settlement
from goqueue.delivery.settlement_requests import LeaseClaim, SettlementRequest, Verb
from goqueue.model.clock import NANOS_PER_MS
from goqueue.model.errors import InvalidRequest, StaleReceipt
from goqueue.model.runs import Runs

ACK = SettlementRequest(Verb.ACK)


def settle(queue: Queue, request: SettlementRequest, runs: Runs, lease: int = FIRST, **settings: int) -> list[object]:
    """Claim, decide and apply, as the broker does; the events."""
    outcome = claim_lease(queue, lease, runs, request)
    events = decide_settlement(queue, outcome.claimed, request, terms(**settings)).events
    apply(queue, events)
    return list(events)


def redelivered(count: int = 2) -> Queue:
    """What its first lease had was given back, and went to another member."""
    queue = a_queue(count)
    apply(queue, [Returned(Q, [(FIRST, [0, count])], READY, "no"), Redelivered(Q, [(FIRST, [0, count])], "b", NOW_NS)])
    return queue


# Verbs


def test_an_ack_makes_messages_done() -> None:
    queue = a_queue(3)
    assert settle(queue, ACK, [0, 2]) == [Acked(Q, [(FIRST, [0, 2])])]
    assert queue.committed == 2 and queue.leases.in_hand(MEMBER) == 1


def test_a_decision_counts_each_message_once() -> None:
    queue = a_queue(3)
    twice = [*claim_lease(queue, FIRST, [0, 2], ACK).claimed, *claim_lease(queue, FIRST, [1, 3], ACK).claimed]
    assert decide_settlement(queue, twice, ACK, terms()) == ([Acked(Q, [(FIRST, [0, 3])])], 3)


def test_a_nack_is_retried_after_the_backoff() -> None:
    queue = a_queue(1)
    events = settle(queue, SettlementRequest(Verb.NACK), [0, 1], retry_backoff_ms=100)
    assert events == [Returned(Q, [(FIRST, [0, 1])], NOW_NS + 100 * NANOS_PER_MS, "nacked")]


def test_a_rejection_is_a_dead_letter_at_once() -> None:
    queue = a_queue(1)
    events = settle(queue, SettlementRequest(Verb.REJECT), [0, 1], max_retries=9)
    assert events == [Moving(Q, [(FIRST, [0, 1])], [], "rejected", TARGET)]
    assert 0 in queue.moving


@pytest.mark.parametrize(("delay_ms", "more_ms"), [(None, 30_000), (5, 5), (0, 0)])
def test_an_extension_counts_from_now_and_lasts_as_long_as_asked_or_as_the_visibility_timeout(
    delay_ms: int | None, more_ms: int
) -> None:
    queue = a_queue(2)
    events = settle(queue, SettlementRequest(Verb.EXTEND, delay_ms), [0, 1], visibility_timeout_ms=30_000)
    assert events == [Extended(Q, [(FIRST, [0, 1])], NOW_NS + more_ms * NANOS_PER_MS)]
    assert [batch.runs for batch in queue.leases.ripen(NOW_NS + 1)] == ([[0, 1], [1, 2]] if more_ms == 0 else [[1, 2]])


def test_a_release_makes_messages_ready_and_the_delivery_does_not_count() -> None:
    queue = a_queue(1)
    assert settle(queue, SettlementRequest(Verb.RELEASE), [0, 1]) == [Released(Q, [(FIRST, [0, 1])])]
    (batch,) = queue.batches()
    assert batch.member is None and batch.count == 0 and queue.has_ready


def test_leases_that_were_never_seen_are_released_and_others_stay() -> None:
    queue = redelivered()
    assert decide_release_unseen(queue, "b", {SECOND}) == [Released(Q, [(SECOND, [0, 2])])]
    assert decide_release_unseen(queue, "b", {FIRST}) == []
    assert decide_release_unseen(queue, MEMBER, {SECOND}) == []


def test_a_freeze_holds_messages_past_their_visibility_timeout() -> None:
    queue = a_queue(1)
    settle(queue, SettlementRequest(Verb.FREEZE, holder="transaction 1"), [0, 1])
    assert queue.leases.ripen(NOW_NS + 1) == [] and queue.leases.in_hand(MEMBER) == 0
    with pytest.raises(StaleReceipt, match="acked in transaction 1, which has not ended"):
        claim_message(queue, FIRST, 0, ACK)


@pytest.mark.parametrize(
    ("offset", "since", "expected"), [(5, 0, [Committed(Q, 5)]), (3, 0, []), (2, 0, []), (5, 3, [Committed(Q, 5)])]
)
def test_a_commit_never_goes_back(offset: int, since: int, expected: list[object]) -> None:
    queue = a_queue()
    queue.apply(Committed(Q, 3))
    assert decide_commit(queue, offset, since) == expected


def test_a_commit_of_before_a_reset_is_void() -> None:
    queue = a_queue()
    queue.apply(Committed(Q, 1))
    assert decide_commit(queue, 5, since=3) == []


def test_a_commit_in_a_queue_acks_what_was_delivered_below_it_but_for_what_is_frozen() -> None:
    queue = a_queue(4)
    assert decide_acks_below(queue, 0) == []
    apply(queue, [Frozen(Q, [(FIRST, [1, 2])], "transaction 1")])
    events = decide_acks_below(queue, 3)
    apply(queue, events)
    assert queue.committed == 1 and queue.leases.in_hand(MEMBER) == 1 and queue.leases.find(FIRST, 1) is not None


# Claims


def test_an_ack_that_is_repeated_by_the_same_delivery_succeeds_and_changes_nothing() -> None:
    queue = a_queue(2)
    settle(queue, ACK, [0, 1])
    assert claim_message(queue, FIRST, 0, ACK) is None
    assert claim_lease(queue, FIRST, [0, 1], ACK) == ([], [], None)


def test_an_ack_of_what_another_delivery_settled_is_stale() -> None:
    queue = redelivered()
    settle(queue, ACK, [0, 2], SECOND)
    with pytest.raises(StaleReceipt, match="offset 0: the message is settled already"):
        claim_message(queue, FIRST, 0, ACK)
    outcome = claim_lease(queue, FIRST, [0, 2], ACK)
    assert outcome.claimed == [] and outcome.refused == [0, 2]


def test_an_ack_of_what_was_delivered_again_is_stale() -> None:
    with pytest.raises(StaleReceipt, match="offset 1: the message was delivered again since"):
        claim_message(redelivered(), FIRST, 1, ACK)


def test_a_nack_that_is_repeated_is_stale_once_the_message_is_done() -> None:
    queue = a_queue(1)
    settle(queue, ACK, [0, 1])
    with pytest.raises(StaleReceipt, match="settled already"):
        claim_message(queue, FIRST, 0, SettlementRequest(Verb.NACK))


def test_a_claim_on_what_is_being_moved_is_stale() -> None:
    queue = a_queue(1)
    settle(queue, SettlementRequest(Verb.REJECT), [0, 1])
    with pytest.raises(StaleReceipt, match="on its way to the dead letters"):
        claim_message(queue, FIRST, 0, ACK)


def test_what_waits_for_a_retry_can_be_acked_but_not_extended_or_released() -> None:
    queue = a_queue(1)
    settle(queue, SettlementRequest(Verb.NACK, 60_000, "broken"), [0, 1])
    assert claim_message(queue, FIRST, 0, ACK) is not None
    for verb in (Verb.EXTEND, Verb.RELEASE, Verb.FREEZE):
        with pytest.raises(StaleReceipt, match=r"was given back \(broken\)"):
            claim_message(queue, FIRST, 0, SettlementRequest(verb))


def test_a_freeze_that_is_repeated_by_its_transaction_succeeds() -> None:
    queue = a_queue(1)
    request = SettlementRequest(Verb.FREEZE, holder="transaction 1")
    settle(queue, request, [0, 1])
    assert claim_message(queue, FIRST, 0, request) is None
    with pytest.raises(StaleReceipt):
        claim_message(queue, FIRST, 0, SettlementRequest(Verb.FREEZE, holder="transaction 2"))


def test_of_a_lease_what_holds_is_claimed_and_the_rest_is_named() -> None:
    queue = a_queue(4)
    settle(queue, SettlementRequest(Verb.REJECT), [1, 2])
    outcome = claim_lease(queue, FIRST, [0, 4], ACK)
    assert to_parts(outcome.claimed) == [(FIRST, [0, 1, 2, 4])]
    assert outcome.refused == [1, 2] and "dead letters" in str(outcome.refusal)


def test_a_claim_below_an_offset_takes_nothing_that_is_frozen() -> None:
    queue = a_queue(4)
    apply(queue, [Frozen(Q, [(FIRST, [1, 2])], "transaction 1")])
    assert to_parts(claim_below(queue, 3)) == [(FIRST, [0, 1, 2, 3])]
    assert to_parts(held(queue)) == [(FIRST, [0, 1, 2, 4])]


@pytest.mark.parametrize("runs", [[], [1], [3, 2], [1, 1], [0, SPAN + 1]])
def test_a_claim_names_ascending_offsets_of_one_lease(runs: Runs) -> None:
    with pytest.raises(InvalidRequest, match="pairs of first and end, ascending"):
        LeaseClaim("g", "t", 0, FIRST, 1, b"", runs).check()


def test_a_request_has_bounds() -> None:
    with pytest.raises(InvalidRequest, match="the time is"):
        SettlementRequest(Verb.NACK, -1)
    with pytest.raises(InvalidRequest, match="the reason has 1001 characters"):
        SettlementRequest(Verb.NACK, reason="x" * 1_001)
    SettlementRequest(Verb.NACK, 0, "x" * 1_000)
