from __future__ import annotations

import pytest

from goqueue.client.consumer.fetch_pace import AHEAD_S, FetchPace


class Consumer:
    """What the pace sees of one; ``sent`` are the windows that the broker was told of."""

    def __init__(self, most: int = 1_000) -> None:
        self.now = 100.0
        self.in_hand = 0
        self.sent: list[int] = []
        self.pace = FetchPace(most, lambda: self.in_hand, self.sent.append, lambda: self.now)

    def asks(self, messages: int = 1) -> None:
        self.pace.wait_started(messages)
        self.pace.grow()

    def gets(self, asked: int = 1, got: int | None = None) -> None:
        self.pace.wait_satisfied(asked)
        self.in_hand += asked if got is None else got

    def settles(self, count: int, after_s: float) -> None:
        self.now += after_s
        self.in_hand -= count
        if self.pace.finished(count):
            self.pace.grow()

    def handles(self, messages: int, seconds_each: float) -> None:
        """One after the other."""
        for _ in range(messages):
            self.asks()
            self.gets()
            self.settles(1, seconds_each)


def test_nothing_is_fetched_before_somebody_asks() -> None:
    consumer = Consumer()
    assert consumer.pace.window == 0 and consumer.sent == []
    consumer.asks(7)
    assert consumer.sent == [7]


def test_a_slow_handler_has_one_message_at_a_time() -> None:
    consumer = Consumer()
    consumer.handles(20, 2.0)
    assert consumer.sent == [1]


def test_a_quick_handler_soon_has_as_many_as_it_may() -> None:
    consumer = Consumer(most=1_000)
    consumer.handles(2_000, 0.000_01)
    assert consumer.pace.window == 1_000
    assert all(now <= 2 * before for before, now in zip(consumer.sent, consumer.sent[1:], strict=False))


@pytest.mark.parametrize("each_s", [0.005, 0.02, 0.1])
def test_as_many_are_fetched_ahead_as_are_handled_within_a_moment(each_s: float) -> None:
    consumer = Consumer()
    consumer.handles(300, each_s)
    assert consumer.pace.window == pytest.approx(AHEAD_S / each_s, rel=0.2, abs=1)


def test_waiting_for_messages_does_not_make_a_handler_slow() -> None:
    consumer = Consumer()
    for _ in range(200):
        consumer.asks()
        consumer.now += 60
        consumer.gets()
        consumer.settles(1, 0.001)
    assert consumer.pace.window > 100


def test_who_becomes_slow_or_has_nothing_to_do_wants_less() -> None:
    consumer = Consumer()
    consumer.handles(2_000, 0.000_01)
    consumer.pace.shrink()
    consumer.asks()
    consumer.gets()
    for _ in range(2):
        consumer.now += 1
        consumer.pace.shrink()
    assert (consumer.pace.window, consumer.pace.ahead, consumer.pace.max_buffered) == (1, 0, 1)
    consumer.settles(1, 1)
    consumer.now += 1
    consumer.pace.shrink()
    assert consumer.pace.window == 0


def test_many_takers_have_one_each_and_none_ahead_while_they_are_slow() -> None:
    consumer = Consumer()
    consumer.pace.takers = 16
    for _ in range(16):
        consumer.pace.wait_started(1)
    consumer.pace.grow()
    for _ in range(16):
        consumer.gets()
    for _ in range(5):
        consumer.settles(1, 1)
        consumer.asks()
        consumer.gets()
    assert consumer.sent == [16]


def test_who_gathers_messages_to_settle_them_together_gets_more_at_a_time() -> None:
    consumer = Consumer()
    for _ in range(100):
        if consumer.in_hand >= consumer.pace.window:
            consumer.asks()
            consumer.pace.wait_satisfied(1)
        consumer.in_hand += 1
    assert consumer.pace.window > 100
    assert len(consumer.sent) < 12


def test_what_nobody_waited_long_enough_for_is_still_wanted() -> None:
    consumer = Consumer()
    consumer.pace.wait_started(10)
    consumer.pace.wait_abandoned(10)
    consumer.pace.grow()
    assert consumer.sent == [10]
    consumer.pace.shrink()
    assert consumer.pace.window == 10 and consumer.pace.max_buffered == 10


def test_no_more_are_wanted_than_the_consumer_may_have() -> None:
    consumer = Consumer(most=5)
    consumer.asks(100)
    consumer.handles(100, 0.000_01)
    assert consumer.sent == [5]
