"""Groups that are made, changed, looked at and deleted, and what is refused without changing anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from behaviour.driver import Driver
from behaviour.member import Member, filled, publish, refusal, values

ON_A_GROUP: dict[str, Callable[[Driver, str], object]] = {
    "heartbeat": lambda driver, name: driver.groups.heartbeat(name, "nobody", 1),
    "leave": lambda driver, name: driver.groups.leave(name, "nobody"),
    "poll": lambda driver, name: driver.groups.poll(name, "nobody"),
    "commit": lambda driver, name: driver.groups.commit(name, "nobody", {}),
    "offsets": lambda driver, name: driver.groups.offsets(name),
    "reset": lambda driver, name: driver.groups.reset(name, driver.list_topics()[0], to="earliest"),
    "describe": lambda driver, name: driver.groups.describe(name),
    "delete": lambda driver, name: driver.groups.delete(name),
}


def test_a_group_is_made_by_its_first_join(shared: Driver, name: str) -> None:
    filled(shared, name, partitions=2)
    assert name not in shared.groups.names()
    member = Member(shared, name, client_id="desk", instance_id="one", kind="sticky", max_retries=7)
    assert name in shared.groups.names()
    group = shared.groups.describe(name)
    assert (group.name, group.generation, group.is_rebalancing) == (name, 1, False)
    assert group.overrides == ["kind", "max_retries"]
    assert (group.settings["kind"], group.settings["mode"], group.settings["max_retries"]) == ("sticky", "queue", 7)
    (shown,) = group.members
    assert (shown.member_id, shown.client_id, shown.instance_id) == (member.id, "desk", "one")
    assert (shown.topics, shown.assigned, shown.in_flight) == ([name], [(name, 0), (name, 1)], 0)


def test_a_group_can_be_made_before_anyone_joins(shared: Driver, name: str) -> None:
    filled(shared, name)
    made = shared.groups.configure(name, kind="shared", visibility_timeout_ms="5s")
    assert (made.members, made.generation, made.lag) == ([], 0, [])
    assert made.settings["visibility_timeout_ms"] == 5_000
    Member(shared, name)
    assert shared.groups.describe(name).settings["kind"] == "shared"


def test_settings_of_a_group_change_while_it_works(shared: Driver, name: str) -> None:
    filled(shared, name, *"abc")
    member = Member(shared, name, max_in_flight=1)
    assert len(member.poll()) == 1
    changed = shared.groups.configure(name, max_in_flight=3)
    assert changed.overrides == ["max_in_flight"]
    assert len(member.poll()) == 2


def test_what_members_have_in_flight_is_shown(shared: Driver, name: str) -> None:
    filled(shared, name, *"abc")
    busy, idle = Member(shared, name, kind="shared"), Member(shared, name)
    busy.ack(busy.poll()[0])
    shown = {member.member_id: member.in_flight for member in shared.groups.describe(name).members}
    assert shown == {busy.id: 2, idle.id: 0}


@pytest.mark.parametrize("setting", [{"kind": "sticky"}, {"mode": "stream"}, {"ordering": "key"}])
def test_what_is_fixed_cannot_be_changed_by_a_join_or_afterwards(
    shared: Driver, name: str, setting: dict[str, str]
) -> None:
    filled(shared, name)
    Member(shared, name)
    before = shared.groups.describe(name)
    with refusal("group_conflict"):
        Member(shared, name, **setting)
    with refusal("group_conflict"):
        shared.groups.configure(name, max_in_flight=5, **setting)
    assert shared.groups.describe(name) == before


def test_the_kind_can_be_changed_while_nobody_is_in_the_group_and_what_it_knows_stays(
    shared: Driver, name: str
) -> None:
    filled(shared, name, *"abcd")
    member = Member(shared, name)
    member.ack(member.next())
    member.leave()
    changed = shared.groups.configure(name, kind="shared")
    assert (changed.settings["kind"], "kind" in changed.overrides) == ("shared", True)
    # Of three members each has something of the only partition.
    members = [Member(shared, name) for _ in range(3)]
    assert [each.next().value for each in members] == [b"b", b"c", b"d"]
    for each in members:
        each.leave()
    one, other = Member(shared, name, kind="sticky"), Member(shared, name)
    assert shared.groups.describe(name).settings["kind"] == "sticky"
    assert sorted([one.partitions(), other.partitions()]) == [[], [0]]


def test_mode_and_ordering_cannot_be_changed_even_then_nor_can_a_stream_be_shared(shared: Driver, name: str) -> None:
    filled(shared, name)
    shared.groups.configure(name, mode="stream")
    before = shared.groups.describe(name)
    for setting in ({"mode": "queue"}, {"ordering": "key"}):
        with refusal("group_conflict"):
            shared.groups.configure(name, **setting)
    with refusal("invalid_settings"):
        shared.groups.configure(name, kind="shared")
    with refusal("invalid_settings"):
        Member(shared, name, kind="shared")
    assert shared.groups.describe(name) == before


def test_a_join_that_names_no_kind_makes_a_group_that_splits_partitions(shared: Driver, name: str) -> None:
    filled(shared, name)
    Member(shared, name)
    assert shared.groups.describe(name).settings["kind"] == "range"


def test_who_joins_later_may_name_what_the_group_is(shared: Driver, name: str) -> None:
    filled(shared, name)
    Member(shared, name)
    Member(shared, name, kind="range", mode="queue", ordering="none")
    assert len(shared.groups.describe(name).members) == 2


WRONG_SETTINGS: list[dict[str, Any]] = [
    {"nonsense": 1},
    {"kind": "fair"},
    {"mode": "stream", "kind": "shared"},
    {"mode": "stream", "ordering": "key"},
    {"max_in_flight": 0},
    {"max_retries": "many"},
    {"visibility_timeout_ms": 99},
    {"visibility_timeout_ms": "13h"},
    {"handover_timeout_ms": -1},
]


@pytest.mark.parametrize("settings", WRONG_SETTINGS, ids=repr)
def test_settings_that_cannot_be_make_no_group(shared: Driver, name: str, settings: dict[str, Any]) -> None:
    filled(shared, name)
    with refusal("invalid_settings"):
        Member(shared, name, **settings)
    with refusal("invalid_settings"):
        shared.groups.configure(name, **settings)
    assert name not in shared.groups.names()


@pytest.mark.parametrize(
    "fields",
    [
        {"client_id": ""},
        {"client_id": "x" * 201},
        {"client_id": "a\nb"},
        {"instance_id": "x" * 201},
        {"session_timeout_ms": 999},
        {"session_timeout_ms": 30 * 60_000 + 1},
    ],
    ids=repr,
)
def test_a_join_that_cannot_be_makes_no_group(shared: Driver, name: str, fields: dict[str, Any]) -> None:
    filled(shared, name)
    with refusal("invalid_request"):
        Member(shared, name, **fields)
    assert name not in shared.groups.names()


def test_a_join_names_topics_that_there_are(shared: Driver, name: str) -> None:
    filled(shared, name)
    with refusal("invalid_request"):
        shared.groups.join(name, [])
    with refusal("topic_not_found"):
        Member(shared, name, name, f"{name}-none")
    assert name not in shared.groups.names()


@pytest.mark.parametrize("wrong", ["__redrive", "a b", "é", "x" * 201, "a:b"])
def test_a_name_that_no_group_can_have_is_refused(shared: Driver, name: str, wrong: str) -> None:
    filled(shared, name)
    with refusal("invalid_group_name"):
        Member(shared, wrong, name)
    with refusal("invalid_group_name"):
        shared.groups.configure(wrong)


@pytest.mark.parametrize("call", ON_A_GROUP)
def test_a_group_that_is_not_there_is_not_found(shared: Driver, name: str, call: str) -> None:
    filled(shared, name)
    with refusal("group_not_found"):
        ON_A_GROUP[call](shared, name)
    assert name not in shared.groups.names()


@pytest.mark.parametrize("wrong", ["__redrive", "a b"])
@pytest.mark.parametrize("call", ON_A_GROUP)
def test_a_name_that_no_group_can_have_is_refused_by_every_call(
    shared: Driver, name: str, call: str, wrong: str
) -> None:
    filled(shared, name)
    with refusal("invalid_group_name"):
        ON_A_GROUP[call](shared, wrong)


@pytest.mark.parametrize("call", ["heartbeat", "leave", "poll", "commit"])
def test_a_stranger_to_the_group_is_told_to_join(shared: Driver, name: str, call: str) -> None:
    filled(shared, name)
    shared.groups.configure(name)
    with refusal("unknown_member"):
        ON_A_GROUP[call](shared, name)


def test_a_group_with_members_cannot_be_deleted(shared: Driver, name: str) -> None:
    filled(shared, name, "a")
    member = Member(shared, name)
    with refusal("group_conflict"):
        shared.groups.delete(name)
    assert values(member.poll()) == [b"a"]


def test_a_group_that_is_deleted_and_made_again_inherits_nothing(shared: Driver, name: str) -> None:
    filled(shared, name, *"abc")
    member = Member(shared, name, kind="shared", max_retries=7)
    old = member.poll()
    member.ack(old[0])
    member.nack(old[1], delay_ms=60_000)
    member.leave()
    shared.groups.delete(name)
    assert name not in shared.groups.names()
    new = Member(shared, name)
    group = shared.groups.describe(name)
    assert (group.generation, group.overrides) == (1, [])
    messages = new.poll()
    assert [(message.value, message.deliveries) for message in messages] == [(b"a", 1), (b"b", 1), (b"c", 1)]
    assert new.try_to("ack", old) == ["invalid_receipt"] * 3
    assert shared.groups.describe(name).members[0].in_flight == 3


def test_deleting_a_group_leaves_the_others_alone(shared: Driver, name: str) -> None:
    filled(shared, name, "a", "b")
    staying = Member(shared, f"{name}-stays", name)
    message = staying.next()
    Member(shared, name).leave()
    shared.groups.delete(name)
    staying.ack(message)
    publish(shared, name, "c")
    assert values(staying.poll()) == [b"b", b"c"]
