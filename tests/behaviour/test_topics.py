from __future__ import annotations

from collections.abc import Callable

import pytest

from behaviour.driver import Driver, Refused, setting_names
from goqueue.model.topic_settings import TopicSettings

Start = Callable[..., Driver]


def test_a_topic_has_the_default_number_of_partitions(shared: Driver, name: str) -> None:
    assert shared.create_topic(name) == TopicSettings().partitions


def test_a_new_topic_is_empty(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=2)
    described = shared.describe(name)
    assert described.bounds == {0: (0, 0), 1: (0, 0)}
    assert described.total_messages == 0


def test_topics_are_listed_by_name(shared: Driver, name: str) -> None:
    for suffix in ("c", "a", "b"):
        shared.create_topic(f"{name}-{suffix}")
    mine = [each for each in shared.list_topics() if each.startswith(f"{name}-")]
    assert mine == [f"{name}-a", f"{name}-b", f"{name}-c"]


def test_every_setting_is_shown(shared: Driver, name: str) -> None:
    shared.create_topic(name, retention_ms="2h", cleanup="compact")
    settings = shared.describe(name).settings
    assert settings.keys() == setting_names()
    assert settings["retention_ms"] == 7_200_000
    assert settings["cleanup"] == "compact"


def test_a_name_is_taken_only_once(shared: Driver, name: str) -> None:
    shared.create_topic(name)
    with pytest.raises(Refused) as refusal:
        shared.create_topic(name)
    assert refusal.value.code == "topic_exists"


@pytest.mark.parametrize("topic", ["__metadata", "__x", "__"])
def test_names_that_begin_with_two_underscores_are_reserved(shared: Driver, topic: str) -> None:
    with pytest.raises(Refused) as refusal:
        shared.create_topic(topic)
    assert refusal.value.code == "reserved_topic_name"
    assert topic not in shared.list_topics()


@pytest.mark.parametrize(
    "topic", ["", ".", "..", "a b", "a/b", "a\\b", "a~b", "a\n", "ü", "a\0", "../../etc", "%2e", "a" * 201]
)
def test_a_name_with_another_character_or_length_is_refused(shared: Driver, topic: str) -> None:
    with pytest.raises(Refused) as refusal:
        shared.create_topic(topic)
    assert refusal.value.code == "invalid_topic_name"


def test_a_name_may_have_200_characters(shared: Driver) -> None:
    longest = "A-z_0.9" + "x" * 193
    shared.create_topic(longest)
    shared.publish_one(longest, b"v", partition=0)
    assert shared.read(longest).values == [b"v"]


def test_names_differ_by_case(shared: Driver, name: str) -> None:
    shared.create_topic(name)
    shared.create_topic(name.upper())
    assert shared.describe(name).topic_id != shared.describe(name.upper()).topic_id


@pytest.mark.parametrize(
    "settings",
    [
        {"partitions": 0},
        {"partitions": 10_001},
        {"partitions": 1.5},
        {"partitions": True},
        {"partitions": None},
        {"retention_ms": "soon"},
        {"retention_ms": -1},
        {"segment_bytes": "1KiB"},
        {"cleanup": "burn"},
        {"fsync": 1},
        {"max_message_bytes": 10**30},
        {"no_such_setting": 1},
    ],
)
def test_a_setting_out_of_its_bounds_is_refused_and_nothing_is_made(
    shared: Driver, name: str, settings: dict[str, object]
) -> None:
    with pytest.raises(Refused) as refusal:
        shared.create_topic(name, **settings)
    assert refusal.value.code == "invalid_settings"
    assert name not in shared.list_topics()


def test_every_problem_of_the_settings_is_named_at_once(shared: Driver, name: str) -> None:
    with pytest.raises(Refused, match=r"cleanup.*retention_ms") as refusal:
        shared.create_topic(name, cleanup="burn", retention_ms="soon")
    assert refusal.value.code == "invalid_settings"


@pytest.mark.parametrize("action", ["describe", "delete_topic", "change_topic", "read"])
def test_a_topic_that_does_not_exist_is_not_found(shared: Driver, name: str, action: str) -> None:
    with pytest.raises(Refused) as refusal:
        getattr(shared, action)(name)
    assert refusal.value.code == "topic_not_found"


def test_internal_topics_cannot_be_reached(shared: Driver) -> None:
    for action in (shared.describe, shared.delete_topic, shared.read):
        with pytest.raises(Refused) as refusal:
            action("__metadata")
        assert refusal.value.code == "topic_not_found"


def test_a_change_leaves_the_other_settings_alone(shared: Driver, name: str) -> None:
    shared.create_topic(name, retention_ms="1h", segment_bytes="1MiB")
    shared.change_topic(name, retention_ms="2h")
    settings = shared.describe(name).settings
    assert settings["retention_ms"] == 7_200_000
    assert settings["segment_bytes"] == 1 << 20


def test_retention_can_be_made_unlimited(shared: Driver, name: str) -> None:
    shared.create_topic(name)
    shared.change_topic(name, retention_ms="unlimited")
    assert shared.describe(name).settings["retention_ms"] is None


def test_the_number_of_partitions_cannot_be_changed_as_a_setting(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=2)
    with pytest.raises(Refused) as refusal:
        shared.change_topic(name, partitions=3)
    assert refusal.value.code == "invalid_settings"


def test_a_change_that_is_refused_changes_nothing(shared: Driver, name: str) -> None:
    shared.create_topic(name)
    before = shared.describe(name).settings
    with pytest.raises(Refused):
        shared.change_topic(name, retention_ms="2h", cleanup="burn")
    assert shared.describe(name).settings == before


def test_a_deleted_topic_is_gone(shared: Driver, name: str) -> None:
    shared.create_topic(name)
    shared.delete_topic(name)
    assert name not in shared.list_topics()
    with pytest.raises(Refused) as refusal:
        shared.publish_one(name, b"v")
    assert refusal.value.code == "topic_not_found"


def test_rule_3_a_topic_made_again_inherits_nothing(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=1, retention_ms="1h")
    shared.publish_one(name, b"old")
    before = shared.describe(name)
    shared.delete_topic(name)
    shared.create_topic(name, partitions=2)
    after = shared.describe(name)
    assert after.topic_id != before.topic_id
    assert after.bounds == {0: (0, 0), 1: (0, 0)}
    assert after.settings["retention_ms"] == TopicSettings().retention_ms
    assert shared.read(name).messages == []


def test_two_who_create_one_name_at_once_get_one_topic(shared: Driver, name: str) -> None:
    def create() -> str:
        try:
            shared.create_topic(name)
        except Refused as refusal:
            return refusal.code
        return "created"

    outcomes = [each.result() for each in [shared.background(create) for _ in range(8)]]
    assert sorted(outcomes) == ["created"] + ["topic_exists"] * 7


def test_two_who_delete_one_topic_at_once_delete_it_once(shared: Driver, name: str) -> None:
    shared.create_topic(name)

    def delete() -> str:
        try:
            shared.delete_topic(name)
        except Refused as refusal:
            return refusal.code
        return "deleted"

    outcomes = [each.result() for each in [shared.background(delete) for _ in range(8)]]
    assert sorted(outcomes) == ["deleted"] + ["topic_not_found"] * 7


def test_many_changes_at_once_are_all_kept(shared: Driver, name: str) -> None:
    shared.create_topic(name)
    changes = [
        {"retention_ms": 5_000},
        {"retention_bytes": 2 << 20},
        {"segment_bytes": 1 << 20},
        {"max_message_bytes": 2_048},
        {"fsync": "never"},
    ]
    for each in [shared.background(shared.change_topic, name, **change) for change in changes]:
        each.result()
    settings = shared.describe(name).settings
    for change in changes:
        assert change.items() <= settings.items()


def test_create_and_delete_may_follow_each_other_quickly(shared: Driver, name: str) -> None:
    def churn() -> None:
        for _ in range(5):
            for action in (shared.create_topic, shared.delete_topic):
                try:
                    action(name)
                except Refused as refusal:
                    assert refusal.code in {"topic_exists", "topic_not_found"}

    for each in [shared.background(churn) for _ in range(4)]:
        each.result()
    if name in shared.list_topics():
        shared.delete_topic(name)
    shared.create_topic(name, partitions=1)
    shared.publish_one(name, b"v")
    assert shared.read(name).values == [b"v"]


def test_there_may_be_no_more_topics_than_the_limit(start: Start) -> None:
    driver = start(limits={"max_topics": 2})
    driver.create_topic("a")
    driver.create_topic("b")
    with pytest.raises(Refused, match=r"limits\.max_topics"):
        driver.create_topic("c")
    driver.delete_topic("a")
    driver.create_topic("c")


def test_there_may_be_no_more_partitions_than_the_limit(start: Start) -> None:
    driver = start(limits={"max_total_partitions": 5})
    driver.create_topic("a", partitions=3)
    with pytest.raises(Refused, match=r"limits\.max_total_partitions"):
        driver.create_topic("b", partitions=3)
    driver.create_topic("b", partitions=2)
