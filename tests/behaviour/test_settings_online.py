"""Settings that are changed take effect without a restart."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from behaviour.driver import Driver, Refused
from behaviour.waiting import until
from goqueue.model.publishing import NewMessage

Start = Callable[..., Driver]
HOUR_NS = 3_600_000_000_000
# Over gRPC messages carry the sequence of their producer, and are compacted when a checkpoint knows of it.
QUICK = {"cleanup_interval_ms": 100, "checkpoint_interval_ms": 100}


def test_a_smaller_message_size_holds_at_once(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=1)
    shared.publish_one(name, b"x" * 2_000)
    shared.change_topic(name, max_message_bytes=1_024)
    with pytest.raises(Refused) as refusal:
        shared.publish_one(name, b"x" * 2_000)
    assert refusal.value.code == "message_too_large"
    assert len(shared.read(name).messages) == 1


def test_how_far_ahead_timestamps_may_be_holds_at_once(shared: Driver, name: str) -> None:
    shared.create_topic(name)
    shared.change_topic(name, max_timestamp_ahead_ms=0)
    with pytest.raises(Refused) as refusal:
        shared.publish_one(name, b"v", timestamp_ns=time.time_ns() + HOUR_NS // 2)
    assert refusal.value.code == "timestamp_out_of_range"


def test_a_smaller_segment_size_holds_for_the_next_append(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=1)
    log = shared.host.broker.topic(name).partition(0).log
    for _ in range(3):
        shared.publish_one(name, b"x" * 60_000)
    assert len(log.segments) == 1
    shared.change_topic(name, segment_bytes="64KiB")
    for _ in range(3):
        shared.publish_one(name, b"x" * 60_000)
    assert len(log.segments) == 4
    assert shared.read(name).offsets == list(range(6))


@pytest.mark.parametrize(("before", "after"), [("never", "always"), ("always", "never"), ("interval", "always")])
def test_the_fsync_policy_may_change_while_messages_flow(shared: Driver, name: str, before: str, after: str) -> None:
    shared.create_topic(name, partitions=1, fsync=before)

    def publish() -> None:
        for number in range(40):
            shared.publish_one(name, b"%d" % number)

    publishing = shared.background(publish)
    shared.change_topic(name, fsync=after)
    publishing.result()
    shared.publish_one(name, b"last")
    assert shared.read(name).values == [*(b"%d" % number for number in range(40)), b"last"]


def test_what_readers_have_seen_stays_visible_under_a_stricter_policy(start: Start) -> None:
    """Under 'never' a message is visible at once; 'always' does not take it back, although it is not durable yet."""
    driver = start(storage={"fsync_interval_ms": 60_000})
    driver.create_topic("t", partitions=1, fsync="never")
    driver.publish_one("t", b"seen")
    driver.change_topic("t", fsync="always")
    assert driver.read("t").values == [b"seen"]
    driver.publish_one("t", b"new")
    assert driver.read("t").values == [b"seen", b"new"]


def test_retention_by_size_removes_the_oldest_segments(start: Start) -> None:
    driver = start(storage=QUICK)
    driver.create_topic("t", partitions=1, segment_bytes="64KiB", retention_ms="unlimited")
    for _ in range(40):
        driver.publish_one("t", b"x" * 60_000)
    assert driver.describe("t").bounds[0] == (0, 40)
    driver.change_topic("t", retention_bytes="1MiB")
    until(lambda: driver.describe("t").bounds[0][0] > 0)
    earliest = driver.describe("t").bounds[0][0]
    assert 20 <= earliest <= 25
    assert driver.read("t", offset=earliest).offsets == list(range(earliest, 40))


def test_offset_0_means_from_the_beginning_and_others_that_are_gone_are_out_of_range(start: Start) -> None:
    driver = start(storage=QUICK)
    driver.create_topic("t", partitions=1, segment_bytes="64KiB", retention_ms="unlimited")
    for _ in range(40):
        driver.publish_one("t", b"x" * 60_000)
    driver.change_topic("t", retention_bytes="1MiB")
    until(lambda: driver.describe("t").bounds[0][0] > 0)
    earliest = driver.describe("t").bounds[0][0]
    assert driver.read("t", offset=0, limit=1).offsets == [earliest]
    assert driver.read("t", limit=1).offsets == [earliest]
    assert driver.read("t", from_time_ns=0, limit=1).offsets == [earliest]
    with pytest.raises(Refused, match=str(earliest)) as refusal:
        driver.read("t", offset=earliest - 1)
    assert refusal.value.code == "offset_out_of_range"
    driver.restart()
    assert driver.describe("t").bounds[0] == (earliest, 40)


def test_compaction_keeps_the_last_value_of_every_key_and_the_offsets(start: Start) -> None:
    driver = start(storage=QUICK)
    driver.create_topic("t", partitions=1, segment_bytes="64KiB", cleanup="compact")
    for number in range(60):
        driver.publish_one("t", b"%d " % number + b"x" * 9_000, key=b"k%d" % (number % 5))
    until(lambda: len(driver.read("t", limit=1_000).messages) < 30)
    last: dict[bytes | None, tuple[int, int]] = {}
    for message in driver.read("t", limit=1_000).messages:
        assert message.value is not None
        assert message.value.startswith(b"%d " % message.offset)
        last[message.key] = (message.offset, int(message.value.split()[0]))
    assert last == {b"k%d" % (number % 5): (number, number) for number in range(55, 60)}


def test_a_reader_walks_over_what_compaction_removed(start: Start) -> None:
    driver = start(storage=QUICK)
    driver.create_topic("t", partitions=1, segment_bytes="64KiB", cleanup="compact")
    for number in range(40):
        driver.publish_one("t", b"%d" % number + b"x" * 9_000, key=b"only")
    until(lambda: len(driver.read("t", limit=1_000).messages) < 20)
    offset, seen = 1, []
    while (page := driver.read("t", offset=offset, limit=1)).messages:
        assert page.next_offset > offset
        offset = page.next_offset
        seen += page.offsets
    assert seen == sorted(set(seen))
    assert seen[-1] == 39
    assert offset == 40


def test_what_is_published_while_compaction_runs_is_all_there(start: Start) -> None:
    driver = start(storage=QUICK)
    driver.create_topic("t", partitions=1, segment_bytes="64KiB", cleanup="compact")
    for number in range(200):
        results = driver.publish("t", [NewMessage(b"%d" % number, b"k%d" % at) for at in range(50)])
        assert not any(isinstance(each, Refused) for each in results)
    until(lambda: len(driver.read("t", limit=10_000).messages) < 10_000)
    last = {message.key: message.value for message in driver.read("t", limit=10_000).messages}
    assert last == {b"k%d" % at: b"199" for at in range(50)}
