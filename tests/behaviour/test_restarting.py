"""A restart keeps everything that was acknowledged."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from behaviour.driver import Driver, Refused
from goqueue.model.publishing import NewMessage

Start = Callable[..., Driver]


def test_topics_and_their_settings_survive_a_restart(start: Start) -> None:
    driver = start()
    driver.create_topic("kept", partitions=2, retention_ms="1h")
    driver.create_topic("gone")
    driver.change_topic("kept", max_message_bytes="2KiB")
    driver.delete_topic("gone")
    before = driver.describe("kept")
    driver.restart()
    assert driver.list_topics() == ["kept"]
    assert driver.describe("kept") == before


@pytest.mark.parametrize("policy", ["always", "interval", "never"])
def test_messages_survive_a_restart_under_every_fsync_policy(start: Start, policy: str) -> None:
    driver = start()
    driver.create_topic("t", partitions=2, fsync=policy, segment_bytes="64KiB")
    sent = [
        NewMessage(b"%d" % number * 100, b"k%d" % number, (("h", b"\x00"),), timestamp_ns=time.time_ns())
        for number in range(500)
    ]
    driver.publish("t", sent)
    before = [driver.read("t", number, limit=1_000) for number in range(2)]
    driver.restart()
    assert [driver.read("t", number, limit=1_000) for number in range(2)] == before


def test_offsets_go_on_after_a_restart(start: Start) -> None:
    driver = start()
    driver.create_topic("t", partitions=1)
    for expected in range(4):
        assert driver.publish_one("t", b"v").offset == expected
        driver.restart()


def test_a_topic_that_was_deleted_does_not_come_back(start: Start) -> None:
    driver = start()
    driver.create_topic("t", partitions=1)
    driver.publish_one("t", b"old")
    driver.delete_topic("t")
    driver.restart()
    with pytest.raises(Refused) as refusal:
        driver.describe("t")
    assert refusal.value.code == "topic_not_found"
    driver.create_topic("t", partitions=1)
    assert driver.read("t").messages == []


def test_rule_3_a_topic_made_again_inherits_nothing_after_a_restart(start: Start) -> None:
    driver = start()
    driver.create_topic("t", partitions=1, retention_ms="1h")
    driver.publish_one("t", b"old")
    driver.delete_topic("t")
    driver.create_topic("t", partitions=1)
    driver.publish_one("t", b"new")
    driver.restart()
    assert driver.read("t").values == [b"new"]
    assert driver.describe("t").settings["retention_ms"] == 604_800_000


def test_reading_by_instant_is_the_same_after_a_restart(start: Start) -> None:
    driver = start()
    driver.create_topic("t", partitions=1, segment_bytes="64KiB")
    base = 1_700_000_000_000_000_000
    driver.publish("t", [NewMessage(b"x" * 500, timestamp_ns=base + number) for number in range(300)])
    driver.restart()
    for number in (0, 1, 150, 299):
        assert driver.read("t", from_time_ns=base + number, limit=1).offsets == [number]


def test_the_folder_of_a_running_broker_cannot_be_opened_by_another(start: Start) -> None:
    start()
    with pytest.raises(Exception, match="in use by another broker"):
        start()


def test_many_small_topics_survive_a_restart(start: Start) -> None:
    driver = start(storage={"max_open_files": 16})
    for number in range(40):
        driver.create_topic(f"t{number}", partitions=2)
        driver.publish(f"t{number}", [NewMessage(b"%d" % number, partition=at) for at in (0, 1)])
    driver.restart()
    for number in range(40):
        for partition in (0, 1):
            assert driver.read(f"t{number}", partition).values == [b"%d" % number]
