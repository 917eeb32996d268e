"""How long a delivery lasts, and what becomes of its messages when nothing was heard of them by then."""

from __future__ import annotations

from doubles.decided_queue import FIRST, NOW_NS, TARGET, Q, a_queue, terms

from goqueue.delivery.events import Moving, Returned
from goqueue.delivery.in_flight_batch import READY
from goqueue.delivery.visibility_timeout import decide_timeout, visibility_ns
from goqueue.model.clock import NANOS_PER_MS
from goqueue.model.group_settings import GroupSettings
from goqueue.model.topic_settings import TopicSettings


def test_a_group_without_a_timeout_of_its_own_has_that_of_the_topic() -> None:
    topic = TopicSettings(visibility_timeout_ms=9_000)
    assert visibility_ns(GroupSettings(), topic) == 9_000 * NANOS_PER_MS
    assert visibility_ns(GroupSettings(visibility_timeout_ms=7), topic) == 7 * NANOS_PER_MS


def test_a_visibility_timeout_makes_messages_ready_at_once() -> None:
    queue = a_queue(2)
    expired = queue.leases.ripen(NOW_NS + 1)
    events = decide_timeout(queue, expired, terms(retry_backoff_ms=100))
    assert events == [Returned(Q, [(FIRST, [0, 2])], READY, "its visibility timed out")]


def test_a_visibility_timeout_after_the_last_retry_makes_a_dead_letter() -> None:
    queue = a_queue(2)
    events = decide_timeout(queue, queue.leases.ripen(NOW_NS + 1), terms(max_retries=0))
    assert events == [Moving(Q, [(FIRST, [0, 2])], [], "its visibility timed out", TARGET)]
