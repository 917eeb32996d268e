from __future__ import annotations

from collections import Counter
from itertools import product

from doubles.patience import in_time
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.coordination.assignment import assign_range, assign_sticky

Topics = dict[str, list[str]]


def topics(**sizes: int) -> Topics:
    return {topic: [f"{topic}/{number}" for number in range(size)] for topic, size in sizes.items()}


members = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=6)
sizes = st.dictionaries(st.sampled_from(["x", "y", "z"]), st.integers(0, 9), min_size=1)


@given(st.integers(1, 20), st.integers(1, 8))
def test_range_splits_each_topic_evenly_and_in_order(partitions: int, count: int) -> None:
    names = [f"m{each}" for each in range(count)]
    owners = assign_range(topics(t=partitions), {name: ["t"] for name in names})
    order = [owners[f"t/{number}"] for number in range(partitions)]
    assert order == sorted(order)
    shares = [order.count(name) for name in names]
    assert max(shares) - min(shares) <= 1 and sum(shares) == partitions


def test_range_gives_a_topic_only_to_those_who_want_it() -> None:
    owners = assign_range(topics(x=2, y=2, z=1), {"a": ["x"], "b": ["x", "y", "y"]})
    assert owners == {"x/0": "a", "x/1": "b", "y/0": "b", "y/1": "b"}


@given(sizes, members, st.data())
def test_sticky_is_even_within_one_when_all_want_the_same(
    partitions: dict[str, int], names: list[str], data: st.DataObject
) -> None:
    offered = topics(**partitions)
    every = [each for listed in offered.values() for each in listed]
    before = data.draw(st.dictionaries(st.sampled_from(every), st.sampled_from("abcdefgh"))) if every else {}
    owners = assign_sticky(offered, {name: list(offered) for name in names}, before)
    assert set(owners) == (set(every) if names else set())
    shares = [list(owners.values()).count(name) for name in names]
    assert not names or max(shares) - min(shares) <= 1
    assert owners == assign_sticky(offered, {name: list(offered) for name in names}, before), "deterministic"
    # No more moves than there are homeless partitions and partitions beyond anyone's share.
    moved = sum(owner != before[each] for each, owner in owners.items() if before.get(each) in names)
    if names:
        had = sorted((sum(before.get(each) == name for each in every) for name in names), reverse=True)
        low, more = divmod(len(every), len(names))
        allowed = [low + (place < more) for place in range(len(names))]
        assert moved == sum(max(0, have - may) for have, may in zip(had, allowed, strict=True))


def test_a_partition_without_an_owner_goes_to_whoever_has_least_when_all_topics_are_counted() -> None:
    before = {"x/0": "a", "x/1": "a", "x/2": "e", "y/0": "e", "y/1": "b"}
    offered = topics(x=4, y=2)
    owners = assign_sticky(offered, {name: ["x", "y"] for name in "eab"}, before)
    assert owners == before | {"x/3": "b"}
    offered = topics(x=1, y=2)
    owners = assign_sticky(offered, {"a": ["x", "y"], "b": ["x", "y"]}, {"y/0": "a", "y/1": "a"})
    assert owners == {"x/0": "b", "y/0": "a", "y/1": "a"}


@given(members.filter(bool), st.integers(0, 12))
def test_what_is_even_stays_as_it_is(names: list[str], size: int) -> None:
    offered = topics(t=size)
    first = assign_sticky(offered, {name: ["t"] for name in names}, {})
    assert assign_sticky(offered, {name: ["t"] for name in names}, first) == first


def best_spread(offered: Topics, wanted: dict[str, list[str]]) -> tuple[int, ...]:
    """The most even loads there are, found by trying everything."""
    every = [
        (each, [name for name in wanted if topic in wanted[name]])
        for topic, listed in offered.items()
        for each in listed
    ]
    every = [each for each in every if each[1]]
    found = (
        tuple(sorted((choice.count(name) for name in wanted), reverse=True))
        for choice in product(*(eligible for _, eligible in every))
    )
    return min(found, key=lambda shares: sum(share * share for share in shares))


@given(
    st.dictionaries(st.sampled_from(["x", "y", "z"]), st.integers(0, 3), min_size=1),
    st.dictionaries(st.sampled_from("abc"), st.lists(st.sampled_from(["x", "y", "z"]), unique=True), min_size=1),
    st.data(),
)
@settings(max_examples=60, deadline=None)
def test_sticky_is_as_even_as_the_subscriptions_allow(
    partitions: dict[str, int], wanted: dict[str, list[str]], data: st.DataObject
) -> None:
    offered = topics(**partitions)
    every = [each for listed in offered.values() for each in listed]
    before = data.draw(st.dictionaries(st.sampled_from(every), st.sampled_from("abcd"))) if every else {}
    owners = assign_sticky(offered, wanted, before)
    for each, owner in owners.items():
        assert each.split("/")[0] in wanted[owner]
    shares = tuple(sorted((list(owners.values()).count(name) for name in wanted), reverse=True))
    assert shares == best_spread(offered, wanted)


def test_partitions_are_passed_on_through_others_where_that_is_the_only_way() -> None:
    offered = topics(x=3, y=3)
    wanted = {"a": ["x"], "b": ["x", "y"], "c": ["y"]}
    before = {"x/0": "a", "x/1": "a", "x/2": "a", "y/0": "b", "y/1": "b", "y/2": "c"}
    owners = assign_sticky(offered, wanted, before)
    assert sorted(Counter(owners.values()).values()) == [2, 2, 2]
    assert sum(owners[each] != before[each] for each in owners) == 2


def test_a_thousand_members_and_ten_thousand_partitions_are_assigned_quickly() -> None:
    offered = topics(**{f"t{number}": 100 for number in range(100)})
    wanted = {f"m{number}": list(offered) for number in range(1_000)}
    with in_time(20):
        owners = assign_sticky(offered, wanted, {})
        del wanted["m7"]
        again = assign_sticky(offered, wanted, owners)
    assert sum(again[each] != owners[each] for each in owners) == 10


def test_what_has_not_changed_hands_yet_goes_back_before_anything_else_moves() -> None:
    offered = topics(t=6)
    settled = {"t/0": "b", "t/1": "b", "t/2": "b", "t/3": "b", "t/4": "a", "t/5": "a"}
    in_hand = settled | {"t/1": "a"}
    owners = assign_sticky(offered, {"a": ["t"], "b": ["t"]}, settled, in_hand)
    assert owners == in_hand
