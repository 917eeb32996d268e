"""The timer wheel, case by case. What holds for any sequence is in the property tests."""

from __future__ import annotations

import numpy as np
import pytest

from goqueue.delivery.wheel import TICK_NS, Entries, TimerWheel

NOW = 1_700_000_000 * 10**9
SECOND = 10**9
DAY = 86_400 * SECOND


def items(entries: Entries) -> list[int]:
    return entries[:, 2].tolist()


def rows(*dues: int) -> Entries:
    return np.array([(due_ns, 0, number) for number, due_ns in enumerate(dues)], np.int64).reshape(-1, 3)


@pytest.mark.parametrize("delay_ns", [1, TICK_NS - 1, TICK_NS, 3 * SECOND, 200 * SECOND, 4 * 3_600 * SECOND, 30 * DAY])
@pytest.mark.parametrize("begun_ns", [0, 1, TICK_NS // 2, TICK_NS - 1])
def test_an_entry_comes_in_its_tick_and_not_before(delay_ns: int, begun_ns: int) -> None:
    now_ns = NOW + begun_ns
    wheel = TimerWheel(now_ns)
    wheel.insert(now_ns + delay_ns, 7, 42, now_ns)
    tick_ns = -(-(now_ns + delay_ns) // TICK_NS) * TICK_NS
    assert not len(wheel.advance(tick_ns - 1))
    assert wheel.advance(tick_ns).tolist() == [[now_ns + delay_ns, 7, 42]]
    assert not len(wheel.advance(tick_ns + DAY))


@pytest.mark.parametrize("many", [False, True])
def test_a_delay_of_less_than_a_tick_does_not_wait_for_a_whole_turn(many: bool) -> None:
    wheel = TimerWheel(NOW)
    wheel.insert(NOW + DAY, 0, 0, NOW)
    wheel.advance(NOW + 3)
    if many:
        wheel.insert_many(np.array([[NOW + 5, 0, 1]]), NOW + 4)
    else:
        wheel.insert(NOW + 5, 0, 1, NOW + 4)
    assert wheel.next_due_ns() == NOW + TICK_NS
    assert items(wheel.advance(NOW + TICK_NS)) == [1]


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("ago_ns", [0, 1, TICK_NS, 500 * DAY])
def test_what_is_already_due_comes_at_the_next_look(many: bool, ago_ns: int) -> None:
    wheel = TimerWheel(NOW)
    wheel.advance(NOW)
    if many:
        wheel.insert_many(np.array([[NOW - ago_ns, 0, 1]]), NOW)
    else:
        wheel.insert(NOW - ago_ns, 0, 1, NOW)
    following = wheel.next_due_ns()
    assert following is not None
    assert following <= NOW
    assert items(wheel.advance(NOW)) == [1]


def test_they_come_in_the_order_of_due_time_owner_and_item_whatever_way_they_took() -> None:
    wheel = TimerWheel(NOW)
    due_ns = NOW + 5 * SECOND
    wheel.insert(due_ns, 1, 3, NOW)
    later = NOW + 4 * SECOND
    wheel.advance(later)
    wheel.insert_many(np.array([[due_ns, 1, 2], [due_ns - 1, 9, 9], [due_ns, 0, 8]]), later)
    assert wheel.advance(due_ns).tolist() == [[due_ns - 1, 9, 9], [due_ns, 0, 8], [due_ns, 1, 2], [due_ns, 1, 3]]


def test_a_jump_over_centuries_takes_everything_at_once() -> None:
    wheel = TimerWheel(NOW)
    dues = [NOW + days * DAY for days in range(0, 80_000, 7)]
    wheel.insert_many(rows(*dues), NOW)
    assert items(wheel.advance(NOW + 80_000 * DAY)) == list(range(len(dues)))
    assert wheel.size == 0


def test_an_entry_beyond_the_last_level_is_looked_at_once_in_a_week() -> None:
    wheel = TimerWheel(NOW)
    due_ns = NOW + 365 * DAY
    wheel.insert(due_ns, 0, 1, NOW)
    looks = 0
    while not len(wheel.advance(wheel.next_due_ns() or 0)):
        looks += 1
    assert 365 / 7.77 < looks < 60
    assert wheel.next_due_ns() is None


def test_entries_come_when_they_are_due_by_a_clock_that_was_set_back() -> None:
    wheel = TimerWheel(NOW)
    wheel.insert_many(rows(NOW + SECOND, NOW + 10 * SECOND, NOW + 100 * DAY), NOW)
    back_ns = NOW - 3_600 * SECOND
    wheel.insert(back_ns + SECOND, 0, 9, back_ns)
    assert not len(wheel.advance(back_ns + SECOND - 1))
    assert items(wheel.advance(back_ns + SECOND)) == [9]
    assert not len(wheel.advance(NOW))
    assert items(wheel.advance(NOW + 10 * SECOND)) == [0, 1]
    assert items(wheel.advance(NOW + 100 * DAY)) == [2]


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("back_ticks", [1, 2, 3, 100, 255, 256, 257, 258, 10**6])
def test_nothing_comes_early_after_the_clock_was_set_back(back_ticks: int, many: bool) -> None:
    wheel = TimerWheel(NOW)
    wheel.insert(NOW + DAY, 0, 0, NOW)
    wheel.advance(NOW)
    back_ns = NOW - back_ticks * TICK_NS
    if many:
        wheel.insert_many(np.array([[back_ns + 1, 0, 1]]), back_ns)
    else:
        wheel.insert(back_ns + 1, 0, 1, back_ns)
    assert not len(wheel.advance(back_ns + TICK_NS - 1))
    assert wheel.next_due_ns() == back_ns + TICK_NS
    assert items(wheel.advance(back_ns + TICK_NS)) == [1]
    assert items(wheel.advance(NOW + DAY)) == [0]


def test_what_was_late_waits_again_when_the_clock_is_set_back() -> None:
    wheel = TimerWheel(NOW)
    wheel.insert(NOW - SECOND, 0, 1, NOW)
    assert not len(wheel.advance(NOW - 2 * SECOND))
    assert items(wheel.advance(NOW - SECOND)) == [1]


def test_a_wheel_that_was_empty_for_long_begins_anew() -> None:
    wheel = TimerWheel(NOW)
    later = NOW + 300 * DAY
    wheel.insert(later + SECOND, 0, 1, later)
    assert wheel.next_due_ns() == later + SECOND, "no look on the way"


def test_what_is_not_wanted_is_dropped() -> None:
    wheel = TimerWheel(NOW)
    wheel.insert_many(rows(NOW - SECOND, NOW + SECOND, NOW + DAY, NOW + 90 * DAY), NOW)
    wheel.keep(lambda entries: np.isin(entries[:, 2], [0, 3]))
    assert wheel.size == 2
    wheel.keep(lambda entries: entries[:, 2] == 3)
    assert wheel.size == 1
    assert items(wheel.advance(NOW + 90 * DAY)) == [3]


def test_the_wheel_goes_on_while_somebody_holds_what_keep_has_shown() -> None:
    wheel = TimerWheel(NOW)
    wheel.insert(NOW + SECOND, 0, 1, NOW)
    held: list[Entries] = []

    def is_wanted(entries: Entries) -> np.ndarray:
        held.append(entries)
        return np.ones(len(entries), bool)

    wheel.keep(is_wanted)
    wheel.insert(NOW + SECOND, 0, 2, NOW)
    assert items(wheel.advance(NOW + SECOND)) == [1, 2]


def test_an_entry_takes_about_24_bytes() -> None:
    wheel = TimerWheel(NOW)
    rng = np.random.default_rng(5)
    for _ in range(100):
        dues = NOW + rng.integers(0, DAY, 1_000)
        wheel.insert_many(rows(*dues.tolist()), NOW)
    used = sum(bucket.__sizeof__() for bucket in wheel._buckets if bucket is not None)
    assert used < 28 * wheel.size
