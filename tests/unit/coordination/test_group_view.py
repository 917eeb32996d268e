"""What a shard is shown of a group: no more than what has changed for it."""

from __future__ import annotations

from typing import Any

from goqueue.coordination.group import (
    Group,
    GroupMade,
    HandedOver,
    Handover,
    Member,
    MemberJoined,
    Rebalanced,
    new_state,
)
from goqueue.coordination.group_view import GroupForgotten, GroupSeen, GroupView, SeenMember, decide_view
from goqueue.coordination.shard_state import ShardState
from goqueue.model.ids import GroupId, PartitionKey

SETTINGS: dict[str, Any] = {"kind": "sticky"}
ONE, TWO = PartitionKey("t/0"), PartitionKey("t/1")


def group(identity: str = "id", generation: int = 1, **owners: str) -> Group:
    """Of members a and b; ``owners`` by the number of their partition of topic t."""
    made = Group(new_state(GroupMade("g", GroupId(identity), {}, 1)))
    for name in ("a", "b"):
        made.apply(MemberJoined("g", Member(name, name, ["t"], 1_000, auto_commit=name == "b")))
    made.apply(Rebalanced("g", generation, {PartitionKey(f"t/{each[1:]}"): to for each, to in owners.items()}, {}))
    return made


def shown(view: GroupView | None, of: Group, *, is_shared: bool = False, **settings: object) -> GroupSeen | None:
    return decide_view(of, SETTINGS | settings, view, of.state.owners, is_shared=is_shared)


def viewed(*events: GroupSeen | GroupForgotten | None) -> GroupView | None:
    state = ShardState()
    for event in events:
        assert event is not None
        state.apply(event)
    return state.views.get("g")


def test_a_shard_is_shown_its_owners_first_and_then_what_changes() -> None:
    first = shown(None, group(_0="a", _1="a"))
    assert first == GroupSeen("g", GroupId("id"), 1, SETTINGS, {"a": SeenMember()}, [], {ONE: "a", TWO: "a"})
    view = viewed(first)
    assert view == GroupView("g", GroupId("id"), 1, SETTINGS, {"a": SeenMember()}, {ONE: "a", TWO: "a"})
    assert shown(view, group(generation=2, _0="a", _1="a")) is None
    second = shown(view, group(generation=3, _0="a", _1="b"))
    assert second == GroupSeen("g", GroupId("id"), 3, None, {"b": SeenMember([], True)}, [], {TWO: "b"})
    third = shown(viewed(first, second), group(generation=4, _1="b"))
    assert third == GroupSeen("g", GroupId("id"), 4, None, {}, ["a"], {}, [ONE])
    last = viewed(first, second, third)
    assert last is not None and (last.members.keys(), last.owners) == ({"b"}, {TWO: "b"})


def test_settings_are_shown_when_they_change() -> None:
    view = viewed(shown(None, group(_0="a")))
    changed = shown(view, group(_0="a"), max_in_flight=7)
    assert changed == GroupSeen("g", GroupId("id"), 1, SETTINGS | {"max_in_flight": 7})
    assert viewed(shown(None, group(_0="a")), changed) == GroupView(
        "g", GroupId("id"), 1, SETTINGS | {"max_in_flight": 7}, {"a": SeenMember()}, {ONE: "a"}
    )


def test_of_a_shared_group_all_members_are_shown_with_their_topics() -> None:
    first = shown(None, group(), is_shared=True)
    assert first is not None
    assert first.joined == {"a": SeenMember(["t"]), "b": SeenMember(["t"], True)} and not first.owners


def test_a_partition_changes_hands_within_a_generation() -> None:
    moving = group(_0="a")
    moving.apply(Rebalanced("g", 2, {ONE: "a"}, {ONE: Handover("b", 9)}))
    view = viewed(decide_view(moving, SETTINGS, None, {}, is_shared=False))
    moving.apply(HandedOver("g", [ONE]))
    event = shown(view, moving)
    assert event is not None and (event.generation, event.owners) == (2, {ONE: "b"})


def test_a_group_that_has_the_name_now_replaces_the_one_before_and_outlives_its_end() -> None:
    before, now = shown(None, group(_0="a")), shown(viewed(shown(None, group(_0="a"))), group("new", _1="b"))
    assert now == GroupSeen("g", GroupId("new"), 1, SETTINGS, {"b": SeenMember([], True)}, [], {TWO: "b"})
    assert viewed(before, now) == viewed(now)
    assert viewed(before, now, GroupForgotten("g", GroupId("id"))) == viewed(now)
    assert viewed(before, now, GroupForgotten("g", GroupId("new"))) is None


def test_to_show_something_again_changes_nothing() -> None:
    first, second = shown(None, group(_0="a")), shown(viewed(shown(None, group(_0="a"))), group(generation=2, _0="b"))
    assert viewed(first, second, second) == viewed(first, second)
