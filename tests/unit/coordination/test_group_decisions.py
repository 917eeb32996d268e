"""Decisions about groups and their queues, without a broker."""

from __future__ import annotations

from typing import Any

import pytest

from goqueue.coordination.group import (
    Group,
    GroupChanged,
    GroupDeleted,
    GroupMade,
    Member,
    MemberJoined,
    MemberLeft,
    decide_change,
    decide_creation,
    initial_overrides,
    new_state,
)
from goqueue.coordination.shard_state import decide_opening
from goqueue.delivery.events import QueueOpened
from goqueue.model.errors import GroupConflict, InvalidRequest, InvalidSettings
from goqueue.model.group_settings import GroupSettings
from goqueue.model.ids import GroupId, QueueKey, TopicId, queue_key

DEFAULTS = GroupSettings()
ID = GroupId("id")
TOPIC = TopicId("topic")


def group_with(*members: str, **overrides: Any) -> Group:
    group = Group(new_state(decide_creation("g", ID, overrides, DEFAULTS, 5)))
    for each in members:
        group.apply(MemberJoined("g", Member(each, "c", ["t"], 1_000)))
    return group


def effective(group: Group) -> GroupSettings:
    return DEFAULTS.with_overrides(group.state.fixed | group.state.overrides)


# Settings


def test_a_new_group_keeps_its_fixed_settings_whatever_the_defaults_are_later() -> None:
    made = decide_creation("g", ID, {"mode": "stream"}, DEFAULTS, 5)
    assert made == GroupMade("g", ID, {"mode": "stream"}, 5, made.fixed)
    assert made.fixed == {"kind": "range", "mode": "stream", "ordering": "none"}


def test_settings_that_do_not_go_together_make_no_group() -> None:
    with pytest.raises(InvalidSettings):
        decide_creation("g", ID, {"mode": "stream", "kind": "shared"}, DEFAULTS, 5)


def test_initial_settings_of_a_join_count_unless_they_do_not_go_with_the_others() -> None:
    assert initial_overrides({"kind": "shared"}, {"max_in_flight": 5}, DEFAULTS) == {
        "kind": "shared",
        "max_in_flight": 5,
    }
    assert initial_overrides({"kind": "shared"}, {"mode": "stream"}, DEFAULTS) == {"mode": "stream"}


def test_settings_change_where_they_can() -> None:
    group = group_with("a")
    assert decide_change(group, effective(group), {"max_in_flight": 5}) == [GroupChanged("g", {"max_in_flight": 5})]
    assert decide_change(group, effective(group), {"mode": "queue", "kind": "range"}) == [
        GroupChanged("g", {"mode": "queue", "kind": "range"})
    ]
    assert decide_change(group, effective(group), {}) == []


def test_a_fixed_setting_is_refused_and_one_of_the_members_while_there_are_any() -> None:
    group = group_with("a")
    with pytest.raises(GroupConflict, match="cannot be changed to 'stream'"):
        decide_change(group, effective(group), {"mode": "stream"})
    with pytest.raises(GroupConflict, match="only while it has no members; it has 1"):
        decide_change(group, effective(group), {"kind": "sticky"})
    group.apply(MemberLeft("g", "a", 7))
    assert decide_change(group, effective(group), {"kind": "sticky"}) == [GroupChanged("g", {"kind": "sticky"})]


# Expiry and deletion


def test_members_expire_when_they_are_not_heard_of_within_their_timeout() -> None:
    group = group_with("a", "b")
    heard_ns = {"a": 0, "b": 1}
    assert group.expired_members(heard_ns, 1_000_000_000 - 1) == []
    assert group.expired_members(heard_ns, 1_000_000_000) == ["a"]
    assert group.expired_members(heard_ns, 1_000_000_001) == ["a", "b"]


def test_a_group_is_idle_from_when_its_last_member_left() -> None:
    group = group_with("a")
    assert group.idle_until_ns(1) is None, "it has a member"
    group.apply(MemberLeft("g", "a", 7))
    assert group.idle_until_ns(None) is None, "it stays"
    assert group.idle_until_ns(1) == 1_000_007


def test_a_group_with_members_or_messages_on_their_way_is_not_deleted() -> None:
    with pytest.raises(GroupConflict, match="has 1 members"):
        group_with("a").decide_deletion(is_moving=False)
    with pytest.raises(GroupConflict, match="on their way"):
        group_with().decide_deletion(is_moving=True)
    assert group_with().decide_deletion(is_moving=False) == [GroupDeleted("g")]


# Queues


def test_queues_are_opened_for_partitions_that_are_new_to_a_group() -> None:
    group, known = group_with(), set[QueueKey]()
    first = decide_opening(group, known, {(TOPIC, 0): 3}, 2)
    assert first == [QueueOpened(queue_key(ID, TOPIC, 0), "g", TOPIC, 0, 3)]
    known.add(first[0].q)
    assert decide_opening(group, known, {(TOPIC, 0): 9}, 2) == []
    second = decide_opening(group, known, {(TOPIC, 0): 9, (TOPIC, 1): 0}, 2)
    assert [each.partition for each in second] == [1]
    with pytest.raises(InvalidRequest, match="more than 2 partitions"):
        decide_opening(group, known, {(TOPIC, 1): 0, (TOPIC, 2): 0}, 2)
