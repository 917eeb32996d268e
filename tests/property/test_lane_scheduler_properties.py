"""Turns of lanes under any load: shares by weight, nobody idle while there is work, nobody waiting for ever."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.delivery.lane_scheduler import LaneScheduler

LANES = range(5)
LONG = 10**9
weights_of = st.just((50, 25, 15, 7, 3)) | st.tuples(*[st.integers(1, 60)] * 5)
rooms = st.integers(1, 40) | st.integers(1, 2_000)
NEVER = 1 << 62


def serve(turns: LaneScheduler, plan: list[tuple[int, int]], now_ns: int = 0, most: int = NEVER) -> dict[int, int]:
    taken = dict.fromkeys(LANES, 0)
    for lane, planned in plan:
        count = min(planned, most)
        most -= count
        taken[lane] += count
        turns.note_served(lane, count, now_ns)
    return taken


@settings(max_examples=60, deadline=None)
@given(
    weights_of, st.lists(st.tuples(rooms, rooms), min_size=1, max_size=8), st.sets(st.sampled_from(LANES), min_size=2)
)
def test_full_lanes_get_their_weights(weights: tuple[int, ...], sizes: list[tuple[int, int]], lanes: set[int]) -> None:
    """Whatever the rooms, and if answers have less in them than was planned."""
    turns = LaneScheduler()
    total = dict.fromkeys(lanes, 0)
    of_round = sum(weights[lane] for lane in lanes)
    widest = max(room for room, _ in sizes)
    for step in range(100):
        room, most = sizes[step % len(sizes)]
        plan = turns.plan(dict.fromkeys(lanes, room), room, weights, NEVER, 0)
        taken = serve(turns, plan, most=most)
        for lane in lanes:
            total[lane] += taken[lane]
        # Nobody is ahead of anybody else by more than what a plan reaches over.
        rounds = [total[lane] / weights[lane] for lane in lanes]
        assert max(rounds) - min(rounds) <= 2 + 2 * widest / of_round
    served = sum(total.values())
    if served > 100 * (of_round + widest):
        assert all(abs(count / served - weights[lane] / of_round) < 0.02 for lane, count in total.items())


@settings(max_examples=60, deadline=None)
@given(weights_of, st.lists(rooms, min_size=1, max_size=8))
def test_after_whole_rounds_the_shares_are_exact(weights: tuple[int, ...], sizes: list[int]) -> None:
    turns = LaneScheduler()
    total = [0] * 5
    goal = 4 * sum(weights)
    step = 0
    while sum(total) < goal:
        room = min(sizes[step % len(sizes)], goal - sum(total))
        step += 1
        for lane, count in serve(turns, turns.plan(dict.fromkeys(LANES, room), room, weights, NEVER, 0)).items():
            total[lane] += count
    assert total == [4 * weight for weight in weights]


loads = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(LANES), st.integers(0, 300), max_size=5),
        st.integers(0, 400),
        st.integers(0, LONG // 2),
        st.one_of(st.just(NEVER), st.just(NEVER), st.integers(0, 50)),
    ),
    max_size=40,
)


@settings(max_examples=100, deadline=None)
@given(weights_of, loads)
def test_no_room_stays_empty_and_no_lane_waits_for_ever(
    weights: tuple[int, ...], load: list[tuple[dict[int, int], int, int, int]]
) -> None:
    turns = LaneScheduler()
    backlog = dict.fromkeys(LANES, 0)
    waiting: dict[int, int] = {}
    now_ns = 0
    for arrives, room, passes_ns, most in load:
        now_ns += passes_ns
        for lane, count in arrives.items():
            backlog[lane] += count
        for lane, count in backlog.items():
            if count:
                waiting.setdefault(lane, now_ns)
        plan = turns.plan(backlog, room, weights, LONG, now_ns)
        counts = [sum(count for lane, count in plan if lane == each) for each in LANES]
        assert sum(counts) == min(room, sum(backlog.values()))
        assert all(count > 0 for _, count in plan)
        assert all(count <= backlog[lane] for lane, count in enumerate(counts))
        hungry = sorted((since, lane) for lane, since in waiting.items() if now_ns - since >= LONG)
        expected = [lane for _, lane in hungry][:room]
        assert [lane for lane, _ in plan][: len(expected)] == expected
        for lane, count in serve(turns, plan, now_ns, most).items():
            backlog[lane] -= count
            if count:
                waiting[lane] = now_ns
            if not backlog[lane]:
                waiting.pop(lane, None)


@settings(max_examples=60, deadline=None)
@given(weights_of, st.integers(0, 4), loads, st.lists(rooms, min_size=1, max_size=6))
def test_a_lane_that_was_empty_does_not_make_up_for_it(
    weights: tuple[int, ...],
    newcomer: int,
    load: list[tuple[dict[int, int], int, int, int]],
    sizes: list[int],
) -> None:
    turns = LaneScheduler()
    backlog = dict.fromkeys(LANES, 0)
    for arrives, room, _, _ in load:
        for lane, count in arrives.items():
            backlog[lane] += count if lane != newcomer else 0
        for lane, count in serve(turns, turns.plan(backlog, room, weights, NEVER, 0)).items():
            backlog[lane] -= count
    taken = dict.fromkeys(LANES, 0)
    for step in range(40):
        room = sizes[step % len(sizes)]
        for lane, count in serve(turns, turns.plan(dict.fromkeys(LANES, room), room, weights, NEVER, 0)).items():
            taken[lane] += count
        for other in LANES:
            # A round that the other one has already used, one that is not over, and the one of the newcomer.
            most = (taken[other] / weights[other] + 3) * weights[newcomer]
            assert taken[newcomer] <= most
