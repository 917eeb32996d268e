from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from doubles.patience import in_time

from behaviour.driver import Driver, Refused
from behaviour.waiting import until

LONG_MS = 25_000
AT_ONCE_S = 20.0
Start = Callable[..., Driver]


def test_a_waiting_read_is_answered_at_once_when_a_message_arrives(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=1)
    waiting = shared.background(shared.read, name, wait_ms=LONG_MS)
    until(lambda: shared.waiting_readers(name, 0) == 1)
    shared.publish_one(name, b"here")
    assert waiting.result(AT_ONCE_S).values == [b"here"]


def test_everyone_who_waits_is_woken(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=1)
    waiting = [shared.background(shared.read, name, wait_ms=LONG_MS) for _ in range(8)]
    until(lambda: shared.waiting_readers(name, 0) == 8)
    shared.publish_one(name, b"here")
    assert [each.result(AT_ONCE_S).values for each in waiting] == [[b"here"]] * 8


@pytest.mark.parametrize("policy", ["interval", "never"])
def test_waiting_works_under_every_fsync_policy(shared: Driver, name: str, policy: str) -> None:
    shared.create_topic(name, partitions=1, fsync=policy)
    waiting = shared.background(shared.read, name, wait_ms=LONG_MS)
    until(lambda: shared.waiting_readers(name, 0) == 1)
    shared.publish_one(name, b"here")
    assert waiting.result(AT_ONCE_S).values == [b"here"]


def test_a_message_in_another_partition_wakes_nobody(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=2)
    waiting = shared.background(shared.read, name, 0, wait_ms=LONG_MS)
    until(lambda: shared.waiting_readers(name, 0) == 1)
    shared.publish_one(name, b"elsewhere", partition=1)
    assert shared.waiting_readers(name, 0) == 1
    shared.publish_one(name, b"here", partition=0)
    assert waiting.result(AT_ONCE_S).values == [b"here"]


def test_a_read_that_finds_something_does_not_wait(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=1)
    shared.publish_one(name, b"here")
    with in_time(AT_ONCE_S):
        assert shared.read(name, wait_ms=LONG_MS).values == [b"here"]


def test_when_the_wait_is_over_the_answer_is_empty(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=1)
    began = time.monotonic()
    page = shared.read(name, wait_ms=300)
    assert 0.25 < time.monotonic() - began < AT_ONCE_S
    assert (page.messages, page.next_offset) == ([], 0)


def test_an_fsync_alone_does_not_end_a_wait(start: Start) -> None:
    driver = start(storage={"fsync_interval_ms": 60_000})
    driver.create_topic("t", partitions=1, fsync="interval")
    driver.publish_one("t", b"before")
    waiting = driver.background(driver.read, "t", offset=1, wait_ms=LONG_MS)
    until(lambda: driver.waiting_readers("t", 0) == 1)
    log = driver.host.broker.topic("t").partition(0).log
    assert log.durable_offset == 0
    driver.host.thread.run(driver.host.broker._upkeep.sync_by_interval())
    assert log.durable_offset == 1
    until(lambda: driver.waiting_readers("t", 0) == 1)
    assert not waiting.done()
    driver.publish_one("t", b"after")
    assert waiting.result(AT_ONCE_S).values == [b"after"]


def test_a_wait_from_an_instant_gets_the_next_message(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=1)
    shared.publish_one(name, b"old")
    waiting = shared.background(shared.read, name, from_time_ns=time.time_ns(), wait_ms=LONG_MS)
    until(lambda: shared.waiting_readers(name, 0) == 1)
    shared.publish_one(name, b"new")
    assert waiting.result(AT_ONCE_S).values == [b"new"]


def test_deleting_the_topic_ends_a_wait(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=1)
    waiting = shared.background(shared.read, name, wait_ms=LONG_MS)
    until(lambda: shared.waiting_readers(name, 0) == 1)
    shared.delete_topic(name)
    with pytest.raises(Refused) as refusal:
        waiting.result(AT_ONCE_S)
    assert refusal.value.code == "topic_not_found"


def test_stopping_the_broker_ends_a_wait_with_an_empty_answer(start: Start) -> None:
    driver = start()
    driver.create_topic("t", partitions=1)
    waiting = [driver.background(driver.read, "t", wait_ms=LONG_MS) for _ in range(3)]
    until(lambda: driver.waiting_readers("t", 0) == 3)
    driver.host.begin_stop()
    assert [each.result(AT_ONCE_S).messages for each in waiting] == [[], [], []]


def test_a_broker_that_is_stopping_lets_nobody_begin_to_wait(start: Start) -> None:
    driver = start()
    driver.create_topic("t", partitions=1)
    driver.host.broker.stop_accepting()
    assert driver.background(driver.read, "t", wait_ms=LONG_MS).result(AT_ONCE_S).messages == []


def test_a_broker_that_is_stopping_takes_no_messages_and_says_try_again(start: Start) -> None:
    driver = start()
    driver.create_topic("t", partitions=1)
    driver.host.broker.stop_accepting()
    for action in (lambda: driver.publish_one("t", b"v"), lambda: driver.create_topic("u")):
        with pytest.raises(Refused) as refusal:
            action()
        assert (refusal.value.code, refusal.value.retriable) == ("shutting_down", True)
