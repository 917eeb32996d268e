"""Lanes take turns, case by case. What holds for any load is in the property tests."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from goqueue.delivery.lane_scheduler import LaneScheduler

WEIGHTS = (50, 25, 15, 7, 3)
CRITICAL, HIGH, NORMAL, LOW, BACKGROUND = range(5)
FULL = dict.fromkeys(range(5), 10_000)
LONG = 30 * 10**9


class Taker:
    """Plans and takes all that was planned, or as many as it is told."""

    def __init__(self) -> None:
        self.turns = LaneScheduler()
        self.now_ns = 0

    def plan(self, backlog: Mapping[int, int], room: int) -> list[tuple[int, int]]:
        return self.turns.plan(backlog, room, WEIGHTS, LONG, self.now_ns)

    def total(self, backlog: Mapping[int, int], room: int) -> dict[int, int]:
        total = dict.fromkeys(range(5), 0)
        for lane, count in self.take(backlog, room):
            total[lane] += count
        return total

    def take(self, backlog: Mapping[int, int], room: int, most: int = 1 << 30) -> list[tuple[int, int]]:
        taken = []
        for lane, planned in self.plan(backlog, room):
            count = min(planned, most)
            most -= count
            self.turns.note_served(lane, count, self.now_ns)
            taken.append((lane, count))
        return taken


def test_a_round_gives_each_lane_its_weight() -> None:
    assert Taker().take(FULL, 100) == list(enumerate(WEIGHTS))


def test_many_rounds_fit_into_one_plan() -> None:
    of_this_round = list(enumerate(WEIGHTS))
    assert Taker().take(FULL, 1_000) == of_this_round + [(lane, 9 * weight) for lane, weight in of_this_round]


def test_a_round_goes_on_from_plan_to_plan_with_critical_first() -> None:
    taker = Taker()
    plans = [taker.take(FULL, 30) for _ in range(4)]
    assert plans == [
        [(CRITICAL, 30)],
        [(CRITICAL, 20), (HIGH, 10)],
        [(HIGH, 15), (NORMAL, 15)],
        [(LOW, 7), (BACKGROUND, 3), (CRITICAL, 20)],
    ]


def test_a_critical_message_comes_first_if_its_lane_has_credit_in_this_round() -> None:
    taker = Taker()
    assert taker.take({NORMAL: 500}, 10) == [(NORMAL, 10)]
    assert taker.take({NORMAL: 490, CRITICAL: 1}, 10) == [(CRITICAL, 1), (NORMAL, 9)]


def test_a_lane_takes_the_turns_of_empty_ones_and_owes_them_nothing() -> None:
    taker = Taker()
    for _ in range(20):
        assert taker.take({BACKGROUND: 10_000}, 1_000) == [(BACKGROUND, 1_000)]
    assert taker.total(FULL, 200) == pytest.approx(dict(enumerate(2 * each for each in WEIGHTS)), abs=3)


def test_a_lane_that_was_used_up_in_a_plan_leaves_no_debt_to_the_others() -> None:
    taker = Taker()
    assert taker.take({CRITICAL: 10_000, BACKGROUND: 5}, 1_000) == [
        (CRITICAL, 50),
        (BACKGROUND, 3),
        (CRITICAL, 945),
        (BACKGROUND, 2),
    ]
    assert taker.total(FULL, 100)[CRITICAL] >= 45


def test_a_lane_that_was_empty_saves_nothing_up() -> None:
    taker = Taker()
    for _ in range(50):
        taker.take({NORMAL: 10_000, LOW: 10_000}, 100)
    assert taker.total({CRITICAL: 10_000, NORMAL: 10_000, LOW: 10_000}, 72 * 3)[CRITICAL] <= 3 * 50 + 50


@pytest.mark.parametrize("most", [1, 5, 25, 50, 100])
def test_who_takes_less_than_was_planned_goes_on_in_the_same_round(most: int) -> None:
    taker = Taker()
    total = dict.fromkeys(range(5), 0)
    for _ in range(300 // most):
        for lane, count in taker.take(FULL, 1_000, most):
            total[lane] += count
    assert list(total.values()) == [3 * weight for weight in WEIGHTS]


def test_planning_alone_changes_nothing() -> None:
    taker = Taker()
    taker.take(FULL, 60)
    assert [taker.plan(FULL, 170) for _ in range(3)] == [taker.plan(FULL, 170)] * 3


def test_plans_made_at_the_same_time_are_made_up_for() -> None:
    taker = Taker()
    plans = [taker.plan(FULL, 50) for _ in range(4)]
    assert plans == [[(CRITICAL, 50)]] * 4
    for _ in plans:
        taker.turns.note_served(CRITICAL, 50, 0)
    assert taker.total(FULL, 150) == {CRITICAL: 0, HIGH: 75, NORMAL: 45, LOW: 21, BACKGROUND: 9}


def test_a_lane_that_waits_for_long_goes_first_even_where_there_is_room_for_one() -> None:
    taker = Taker()
    taker.take(FULL, 10)
    taker.now_ns = LONG - 1
    assert taker.take(FULL, 1) == [(CRITICAL, 1)]
    taker.now_ns = LONG
    firsts = [taker.take(FULL, 1)[0][0] for _ in range(5)]
    assert firsts == [HIGH, NORMAL, LOW, BACKGROUND, CRITICAL]


def test_the_one_that_waits_longest_goes_first() -> None:
    taker = Taker()
    taker.take({CRITICAL: 100, BACKGROUND: 100}, 1)
    taker.now_ns = 5
    taker.take({CRITICAL: 100, BACKGROUND: 100, LOW: 100}, 1)
    taker.turns.note_served(HIGH, 1, LONG)
    taker.now_ns = LONG + 5
    plan = taker.plan({CRITICAL: 9, BACKGROUND: 9, LOW: 9}, 27)
    assert [lane for lane, _ in plan][:3] == [BACKGROUND, CRITICAL, LOW]


def test_after_a_time_in_which_nobody_polled_what_is_urgent_comes_first_all_the_same() -> None:
    taker = Taker()
    taker.take({NORMAL: 5}, 1)
    taker.now_ns = LONG + 3
    assert taker.take({CRITICAL: 1, NORMAL: 4}, 1) == [(CRITICAL, 1)]


def test_a_lane_that_waits_for_long_needs_no_credit() -> None:
    taker = Taker()
    both = {CRITICAL: 100, BACKGROUND: 100}
    taker.plan(both, 10)
    taker.turns.note_served(BACKGROUND, 3, 0)
    taker.turns.note_served(CRITICAL, 1, LONG - 1)
    assert taker.plan(both, 1) == [(CRITICAL, 1)]
    taker.now_ns = LONG
    assert taker.plan(both, 1) == [(BACKGROUND, 1)]


def test_of_several_that_wait_for_long_each_gets_one_before_any_gets_more() -> None:
    taker = Taker()
    taker.plan(FULL, 5)
    taker.now_ns = LONG
    assert taker.plan(FULL, 6) == [(CRITICAL, 2), (HIGH, 1), (NORMAL, 1), (LOW, 1), (BACKGROUND, 1)]


def test_the_wait_is_counted_from_when_there_was_something() -> None:
    taker = Taker()
    taker.take({CRITICAL: 100}, 1)
    taker.now_ns = 10 * LONG
    assert taker.take({CRITICAL: 100, LOW: 1}, 1) == [(CRITICAL, 1)]
    assert taker.turns.waiting_since == {CRITICAL: 10 * LONG, LOW: 10 * LONG}
    taker.take({CRITICAL: 100}, 1)
    assert taker.turns.waiting_since == {CRITICAL: 10 * LONG}
    assert taker.turns.last_served_ns == {CRITICAL: 10 * LONG}


@pytest.mark.parametrize(("backlog", "room"), [({}, 10), ({CRITICAL: 0}, 10), (FULL, 0)])
def test_there_is_no_plan_without_room_or_messages(backlog: dict[int, int], room: int) -> None:
    assert LaneScheduler().plan(backlog, room, WEIGHTS, LONG, 0) == []


def test_nothing_is_known_of_lanes_without_messages_or_weights() -> None:
    assert LaneScheduler().plan({}, 10, [], 0, 0) == []


def test_weights_may_change_in_the_middle_of_a_round() -> None:
    taker = Taker()
    taker.take(FULL, 60)
    plan = taker.turns.plan(FULL, 1_000, (1, 1, 1, 1, 1), LONG, 0)
    assert sum(count for _, count in plan) == 1_000
    assert sum(count for lane, count in plan if lane == BACKGROUND) == pytest.approx(200, abs=20)
