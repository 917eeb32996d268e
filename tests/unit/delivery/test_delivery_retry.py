"""Whether a message that comes back is tried again, when, or becomes a dead letter."""

from __future__ import annotations

import pytest
from doubles.decided_queue import FIRST, MEMBER, NOW_NS, SECOND, TARGET, Q, a_queue, apply, held, terms

from goqueue.delivery.dead_letters import MAX_REASON_LENGTH
from goqueue.delivery.events import Acked, Frozen, Moved, Moving, Redelivered, Returned
from goqueue.delivery.in_flight_batch import READY
from goqueue.delivery.retry import (
    RetryPolicy,
    decide_departure,
    decide_return,
    decide_thaw,
    retry_policy,
)
from goqueue.model.clock import NANOS_PER_MS
from goqueue.model.group_settings import GroupSettings
from goqueue.model.topic_settings import TopicSettings


@pytest.mark.parametrize(("deliveries", "wait_ms"), [(0, 100), (1, 100), (2, 200), (3, 400), (4, 500), (1_000, 500)])
def test_a_backoff_doubles_up_to_its_bound(deliveries: int, wait_ms: int) -> None:
    policy = RetryPolicy(3, 100, 500)
    assert policy.backoff(deliveries) == wait_ms


def test_a_group_without_settings_of_its_own_goes_by_the_topic() -> None:
    topic = TopicSettings(max_retries=7, retry_backoff_ms=11, max_retry_backoff_ms=13)
    assert retry_policy(GroupSettings(), topic) == RetryPolicy(7, 11 * NANOS_PER_MS, 13 * NANOS_PER_MS)
    assert retry_policy(GroupSettings(max_retries=0), topic).max_retries == 0


def test_a_nack_is_due_after_the_backoff_of_its_deliveries() -> None:
    queue = a_queue(2)
    apply(queue, [Returned(Q, [(FIRST, [0, 1])], READY, "no"), Redelivered(Q, [(FIRST, [0, 1])], MEMBER, NOW_NS)])
    events = decide_return(queue, held(queue), "no", terms(retry_backoff_ms=100), backs_off=True)
    assert events == [
        Returned(Q, [(FIRST, [1, 2])], NOW_NS + 100 * NANOS_PER_MS, "no"),
        Returned(Q, [(SECOND, [0, 1])], NOW_NS + 200 * NANOS_PER_MS, "no"),
    ]


def test_a_delay_that_is_asked_for_stands_above_the_backoff() -> None:
    queue = a_queue(1)
    (event,) = decide_return(queue, held(queue), "no", terms(retry_backoff_ms=100), delay_ms=5, backs_off=True)
    assert event == Returned(Q, [(FIRST, [0, 1])], NOW_NS + 5 * NANOS_PER_MS, "no")
    (event,) = decide_return(queue, held(queue), "no", terms(retry_backoff_ms=100), delay_ms=0, backs_off=True)
    assert event == Returned(Q, [(FIRST, [0, 1])], READY, "no")


def test_after_the_last_retry_comes_the_dead_letter() -> None:
    queue = a_queue(1)
    assert isinstance(decide_return(queue, held(queue), "no", terms(max_retries=1), backs_off=True)[0], Returned)
    apply(queue, [Returned(Q, [(FIRST, [0, 1])], READY, "no"), Redelivered(Q, [(FIRST, [0, 1])], MEMBER, NOW_NS)])
    events = decide_return(queue, held(queue), "no", terms(max_retries=1), backs_off=True)
    assert events == [Moving(Q, [(SECOND, [0, 1])], [], "no", TARGET)]
    apply(queue, events)
    assert queue.moving[0].count == 2 and not queue.leases.in_flight


def test_of_one_request_some_are_retried_and_others_are_dead_letters() -> None:
    queue = a_queue(2)
    apply(queue, [Returned(Q, [(FIRST, [0, 1])], READY, "no"), Redelivered(Q, [(FIRST, [0, 1])], MEMBER, NOW_NS)])
    events = decide_return(queue, held(queue), "no", terms(max_retries=1), delay_ms=0, backs_off=True)
    assert events == [Returned(Q, [(FIRST, [1, 2])], READY, "no"), Moving(Q, [(SECOND, [0, 1])], [], "no", TARGET)]


def test_without_a_dead_letter_topic_a_message_is_given_up_with_its_reason() -> None:
    queue = a_queue(1)
    events = decide_return(queue, held(queue), "no", terms(None, max_retries=0), backs_off=True)
    assert events == [Acked(Q, [(FIRST, [0, 1])], "no"), Moved(Q, [])]
    apply(queue, events)
    assert queue.committed == 1 and not queue.was_acked(FIRST, 0)


def test_the_dead_letter_topic_is_looked_for_only_if_there_is_a_dead_letter() -> None:
    queue = a_queue(1)
    asked = terms(max_retries=1)
    unused = type(asked)(asked.group, asked.topic, asked.now_ns, lambda: pytest.fail("nothing is a dead letter"))
    assert len(decide_return(queue, held(queue), "no", unused, backs_off=True)) == 1


def test_a_member_that_leaves_in_order_makes_no_dead_letters() -> None:
    queue = a_queue(2)
    events = decide_departure(queue, MEMBER, terms(max_retries=0), orderly=True)
    assert events == [Returned(Q, [(FIRST, [0, 2])], READY, "its consumer left")]


def test_a_member_that_is_gone_without_a_word_does() -> None:
    queue = a_queue(2)
    events = decide_departure(queue, MEMBER, terms(max_retries=0), orderly=False)
    assert events == [Moving(Q, [(FIRST, [0, 2])], [], "its consumer left", TARGET)]


def test_what_an_aborted_transaction_held_is_ready_at_once_unless_its_producer_gave_it_up() -> None:
    queue = a_queue(1)
    apply(queue, [Frozen(Q, [(FIRST, [0, 1])], "transaction 1")])
    frozen = list(queue.batches())
    asked = terms(retry_backoff_ms=100)
    assert decide_thaw(queue, frozen, asked, backs_off=False) == [
        Returned(Q, [(FIRST, [0, 1])], READY, "its transaction was aborted")
    ]
    assert decide_thaw(queue, frozen, asked, "no", backs_off=True) == [
        Returned(Q, [(FIRST, [0, 1])], NOW_NS + 100 * NANOS_PER_MS, "its transaction was aborted: no")
    ]


def test_a_reason_is_cut_to_its_bound() -> None:
    queue = a_queue(1)
    (event,) = decide_return(queue, held(queue), "x" * 2_000, terms(max_retries=0), backs_off=True)
    assert isinstance(event, Moving) and event.reason == "x" * MAX_REASON_LENGTH
