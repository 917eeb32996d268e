"""Purging a topic: what is there now is gone for good, and everyone goes on behind it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from behaviour.driver import Driver, Purged
from behaviour.member import Member, filled, publish, refusal, values
from goqueue.testing import running_broker

Start = Callable[..., Driver]
HOUR_NS = 3_600 * 10**9


def lag_of(driver: Driver, group: str) -> list[tuple[int, int, int, int]]:
    """Of each partition: where it is, its lag, how many are in flight and how many wait to be tried again."""
    found = driver.groups.describe(group).lag
    return [(each.committed, each.lag, each.in_flight, each.waiting) for each in found]


def test_what_is_there_is_gone_and_what_comes_later_is_read(shared: Driver, name: str) -> None:
    filled(shared, name, *"abc", partitions=2)
    publish(shared, name, "d", partition=1)
    assert shared.purge(name) == [Purged(0, 0, 3, 3, 0), Purged(1, 0, 1, 1, 0)]
    assert shared.describe(name).bounds == {0: (3, 3), 1: (1, 1)}
    publish(shared, name, "new")
    page = shared.read(name)
    assert (page.values, page.offsets) == ([b"new"], [3])
    with refusal("offset_out_of_range"):
        shared.read(name, offset=1)


def test_a_topic_with_nothing_in_it_stays_as_it_is(shared: Driver, name: str) -> None:
    filled(shared, name, "a")
    shared.purge(name)
    assert shared.purge(name) == [Purged(0, 1, 1, 0, 0)]


def test_one_partition_is_purged_and_the_others_stay(shared: Driver, name: str) -> None:
    filled(shared, name, *"ab", partitions=2)
    publish(shared, name, "c", partition=1)
    assert shared.purge(name, 1) == [Purged(1, 0, 1, 1, 0)]
    assert shared.read(name).values == [b"a", b"b"]
    assert shared.read(name, 1).values == []


def test_what_lies_before_an_instant_goes_and_the_rest_stays(timed: Driver, name: str) -> None:
    now_ns = timed.clock.now_ns()
    filled(timed, name)
    publish(timed, name, "a", "b", timestamp_ns=now_ns - 2 * HOUR_NS)
    publish(timed, name, "c", "d", timestamp_ns=now_ns)
    assert timed.purge(name, before_ns=now_ns - HOUR_NS) == [Purged(0, 0, 2, 2, 0)]
    assert timed.read(name).values == [b"c", b"d"]
    # Nothing is older, and what is of that very moment is not before it.
    assert timed.purge(name, before_ns=now_ns) == [Purged(0, 2, 2, 0, 0)]
    assert timed.purge(name, before_ns=now_ns + HOUR_NS) == [Purged(0, 2, 4, 2, 0)]


@pytest.mark.parametrize("ordering", ["none", "key"])
def test_a_queue_goes_on_behind_it_and_what_was_in_flight_is_void(shared: Driver, name: str, ordering: str) -> None:
    filled(shared, name, *map(str, range(6)))
    publish(shared, name, "critical", priority=0)
    member = Member(shared, name, kind="shared", ordering=ordering)
    held = member.poll(3)
    member.nack(held[0], delay_ms=600_000)
    shared.purge(name)
    assert lag_of(shared, name) == [(7, 0, 0, 0)]
    assert shared.groups.describe(name).members[0].in_flight == 0
    assert member.poll() == []
    # Whoever still works on one of them learns that there is nothing to settle any more, or that it is done.
    assert set(member.try_to("ack", held[1:])) <= {None, "stale_receipt"}
    publish(shared, name, "new")
    assert values(member.poll()) == [b"new"]


def test_a_stream_goes_on_behind_it(shared: Driver, name: str) -> None:
    filled(shared, name, *map(str, range(6)))
    member = Member(shared, name, mode="stream")
    member.poll(2)
    shared.purge(name)
    assert lag_of(shared, name) == [(6, 0, 0, 0)]
    publish(shared, name, "new")
    assert values(member.poll()) == [b"new"]


def test_a_poll_that_waits_gets_what_comes_afterwards(shared: Driver, name: str) -> None:
    filled(shared, name)
    member = Member(shared, name, kind="shared")
    waiting = shared.background(member.next)
    publish(shared, name, "a")
    held = waiting.result()
    waiting = shared.background(member.next)
    shared.purge(name)
    publish(shared, name, "b")
    assert (held.value, waiting.result().value) == (b"a", b"b")


def test_a_delayed_message_still_comes(timed: Driver, name: str) -> None:
    filled(timed, name, "a")
    timed.publish_one(name, b"later", partition=0, delay_ms=1_000)
    publish(timed, name, "b")
    assert timed.purge(name) == [Purged(0, 0, 3, 2, 1)]
    assert timed.delays.page(name).total == 1
    timed.let_pass(1_010)
    assert timed.read(name).values == [b"later"]


def test_it_is_so_after_a_restart(start: Start) -> None:
    driver = start()
    filled(driver, "t", *map(str, range(10)))
    Member(driver, "g", "t", kind="shared").poll(4)
    driver.publish_one("t", b"later", partition=0, delay_ms=3_600_000)
    driver.purge("t")
    publish(driver, "t", "new")
    driver.restart()
    assert driver.describe("t").bounds == {0: (11, 12)}
    assert driver.read("t").values == [b"new"]
    assert [(each[1], each[2]) for each in lag_of(driver, "g")] == [(1, 0)]
    assert driver.delays.page("t").total == 1


def test_files_go_that_hold_nothing_else(start: Start, tmp_path: Path) -> None:
    driver = start()
    driver.create_topic("t", partitions=1, segment_bytes="64KiB")
    for _ in range(10):
        publish(driver, "t", "x" * 30_000)
    segments = "logs/t*/0/*.log"
    before = [path.stat().st_size for path in (tmp_path / "data").glob(segments)]
    driver.purge("t")
    left = [path.stat().st_size for path in (tmp_path / "data").glob(segments)]
    assert (len(before), sum(before) > 300_000, left) == (5, True, [0])


def test_what_cannot_be_purged_is_refused_and_nothing_changes(shared: Driver, name: str) -> None:
    with refusal("topic_not_found"):
        shared.purge(name)
    filled(shared, name, cleanup="compact")
    publish(shared, name, "a", key=b"k")
    with refusal("invalid_request"):
        shared.purge(name)
    shared.change_topic(name, cleanup="delete")
    with refusal("partition_not_found"):
        shared.purge(name, 1)
    assert shared.read(name).values == [b"a"]
    assert shared.purge(name) == [Purged(0, 0, 1, 1, 0)]


def test_a_setting_follows_the_brokers_configuration_again(shared: Driver, name: str) -> None:
    before: dict[str, Any] = {"max_retries": 9, "retention_ms": 60_000}
    filled(shared, name, **before)
    shared.unset(name, "max_retries")
    settings = shared.describe(name).settings
    assert (settings["max_retries"], settings["retention_ms"]) == (3, 60_000)
    for wrong in ("max_retry", "partitions"):
        with refusal("invalid_settings"):
            shared.unset(name, "retention_ms", wrong)
    assert shared.describe(name).settings["retention_ms"] == 60_000


def test_what_an_open_transaction_wrote_stays() -> None:
    with running_broker() as broker, broker.client() as client:
        client.create_topic("t", partitions=1)
        with client.producer() as plain, client.producer() as producer:
            plain.send("t", "before", partition=0).result()
            with producer.transaction() as transaction:
                transaction.send("t", "mine", partition=0).result()
                plain.send("t", "behind", partition=0).result()
                (purged,) = client.purge_topic("t")
                assert (purged.earliest, purged.removed) == (1, 1)
        assert [record.value for record in client.read("t")] == [b"mine", b"behind"]
        (purged,) = client.purge_topic("t", partition=0)
        assert (purged.earliest_before, purged.removed) == (1, 2)
        assert list(client.read("t")) == []
