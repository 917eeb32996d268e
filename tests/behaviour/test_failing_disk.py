"""What is not durable is not visible, and a disk that fails or fills up is met with the right refusal."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from behaviour.driver import Driver, Refused
from behaviour.faulty_files import FaultyFiles, of_checkpoint, of_metadata, of_topic
from behaviour.waiting import until
from goqueue.model.publishing import NewMessage

Start = Callable[..., Driver]
PATIENCE_S = 30.0
QUICK_CHECKPOINTS = {"checkpoint_interval_ms": 100}


@pytest.fixture
def disk() -> FaultyFiles:
    return FaultyFiles()


def everything(path: Path) -> bool:
    return True


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(Refused) as refusal:
        call()
    return refusal.value.code


def test_readers_never_see_beyond_the_high_watermark(start: Start, disk: FaultyFiles) -> None:
    driver = start(files=disk)
    driver.create_topic("t", partitions=1)
    driver.publish_one("t", b"durable")
    with disk.hanging(of_topic("t")) as begun:
        publishing = driver.background(driver.publish_one, "t", b"not yet")
        assert begun.wait(PATIENCE_S)
        page = driver.read("t")
        assert (page.values, page.next_offset, page.high_watermark) == ([b"durable"], 1, 1)
        assert driver.describe("t").bounds[0] == (0, 1)
        assert driver.read("t", from_time_ns=0).values == [b"durable"]
        assert driver.read("t", offset=1).messages == []
        assert not publishing.done()
    assert publishing.result(PATIENCE_S).offset == 1
    assert driver.read("t").values == [b"durable", b"not yet"]


def test_a_waiting_reader_is_woken_when_the_message_is_durable_and_not_before(start: Start, disk: FaultyFiles) -> None:
    driver = start(files=disk)
    driver.create_topic("t", partitions=1)
    waiting = driver.background(driver.read, "t", wait_ms=25_000)
    until(lambda: driver.waiting_readers("t", 0) == 1)
    with disk.hanging(of_topic("t")) as begun:
        publishing = driver.background(driver.publish_one, "t", b"v")
        assert begun.wait(PATIENCE_S)
        assert not waiting.done()
    publishing.result(PATIENCE_S)
    assert waiting.result(PATIENCE_S).values == [b"v"]


def test_under_never_readers_do_not_wait_for_the_disk(start: Start, disk: FaultyFiles) -> None:
    driver = start(files=disk)
    driver.create_topic("t", partitions=1, fsync="never")
    with disk.hanging(of_topic("t")):
        driver.publish_one("t", b"v")
        assert driver.read("t").values == [b"v"]


def test_rule_1_a_topic_is_not_visible_before_it_is_durable(start: Start, disk: FaultyFiles) -> None:
    driver = start(files=disk)
    with disk.hanging(of_metadata) as begun:
        creating = driver.background(driver.create_topic, "t")
        assert begun.wait(PATIENCE_S)
        assert driver.list_topics() == []
        assert code_of(lambda: driver.publish_one("t", b"v")) == "topic_not_found"
    creating.result(PATIENCE_S)
    assert driver.list_topics() == ["t"]


def test_rule_1_nobody_hears_of_a_topic_that_could_not_be_made_durable(start: Start, disk: FaultyFiles) -> None:
    driver = start(files=disk)
    with disk.hanging(of_metadata) as begun:
        first = driver.background(driver.create_topic, "t")
        assert begun.wait(PATIENCE_S)
        second = driver.background(driver.create_topic, "t")
        changing = driver.background(driver.delete_topic, "t")
        assert code_of(lambda: changing.result(PATIENCE_S)) == "topic_not_found"
        assert not second.done()
        disk.fails = of_metadata
    for creating in (first, second):
        assert code_of(lambda creating=creating: creating.result(PATIENCE_S)) == "storage_failed"
    assert driver.list_topics() == []


def test_rule_1_a_change_takes_effect_when_it_is_durable_and_not_before(start: Start, disk: FaultyFiles) -> None:
    driver = start(files=disk)
    driver.create_topic("t", partitions=1, fsync="never")
    # With the first message ids for producers are reserved, which waits for the disk.
    driver.publish_one("t", b"first")
    with disk.hanging(of_metadata) as begun:
        changing = driver.background(driver.change_topic, "t", max_message_bytes=1_024)
        assert begun.wait(PATIENCE_S)
        driver.publish_one("t", b"x" * 2_000)
    changing.result(PATIENCE_S)
    assert code_of(lambda: driver.publish_one("t", b"x" * 2_000)) == "message_too_large"


def test_rule_1_a_change_that_could_not_be_made_durable_never_takes_effect(start: Start, disk: FaultyFiles) -> None:
    driver = start(files=disk)
    driver.create_topic("t", partitions=1)
    # With the first message ids for producers are reserved, which waits for the disk.
    driver.publish_one("t", b"first")
    before = driver.describe("t")
    disk.fails = of_metadata
    assert code_of(lambda: driver.change_topic("t", max_message_bytes=1_024)) == "storage_failed"
    assert driver.describe("t") == before
    driver.publish_one("t", b"x" * 2_000)


def test_rule_1_a_durable_change_does_not_bring_a_later_one_into_effect_that_fails(
    start: Start, disk: FaultyFiles
) -> None:
    driver = start(files=disk)
    driver.create_topic("t", partitions=1)
    before = driver.describe("t").settings
    journal = driver.host.broker._catalog.log
    synced = count()
    with disk.hanging(of_metadata) as begun:
        first = driver.background(driver.change_topic, "t", max_message_bytes=1_024)
        assert begun.wait(PATIENCE_S)
        end = journal.end_offset
        second = driver.background(driver.change_topic, "t", retention_ms="1h")
        until(lambda: journal.end_offset == end + 1)
        disk.fails = lambda path: of_metadata(path) and next(synced) > 0
    first.result(PATIENCE_S)
    assert code_of(lambda: second.result(PATIENCE_S)) == "storage_failed"
    assert driver.describe("t").settings == before | {"max_message_bytes": 1_024}


def test_rule_1_a_topic_whose_deletion_failed_is_still_there(start: Start, disk: FaultyFiles) -> None:
    driver = start(files=disk)
    driver.create_topic("t", partitions=1)
    driver.publish_one("t", b"v")
    disk.fails = of_metadata
    assert code_of(lambda: driver.delete_topic("t")) == "storage_failed"
    assert driver.read("t").values == [b"v"]
    driver.publish_one("t", b"w")


def test_after_a_failed_fsync_a_partition_takes_no_more_writes(start: Start, disk: FaultyFiles) -> None:
    driver = start(files=disk)
    driver.create_topic("t", partitions=2)
    driver.publish_one("t", b"before", partition=0)
    disk.fails = of_topic("t", 0)
    assert code_of(lambda: driver.publish_one("t", b"lost", partition=0)) == "storage_failed"
    disk.fails = lambda path: False
    assert code_of(lambda: driver.publish_one("t", b"later", partition=0)) == "storage_failed"
    assert driver.read("t", 0).values == [b"before"]
    driver.publish_one("t", b"other", partition=1)
    assert driver.read("t", 1).values == [b"other"]
    assert "storage" in driver.host.broker.problems()


def test_one_failed_partition_does_not_fail_the_others_of_a_request(start: Start, disk: FaultyFiles) -> None:
    driver = start(files=disk)
    driver.create_topic("t", partitions=2)
    disk.fails = of_topic("t", 0)
    first, second = driver.publish("t", [NewMessage(b"a", partition=0), NewMessage(b"b", partition=1)])
    assert isinstance(first, Refused)
    assert first.code == "storage_failed"
    assert not isinstance(second, Refused)


def test_a_restart_heals_a_partition_whose_disk_works_again(start: Start, disk: FaultyFiles) -> None:
    driver = start(files=disk)
    driver.create_topic("t", partitions=1)
    driver.publish_one("t", b"before")
    disk.fails = of_topic("t")
    assert code_of(lambda: driver.publish_one("t", b"unsure")) == "storage_failed"
    disk.fails = lambda path: False
    driver.restart()
    assert driver.read("t").values in ([b"before"], [b"before", b"unsure"])
    driver.publish_one("t", b"after")
    assert driver.read("t").values[-1] == b"after"


def test_recovery_points_that_cannot_be_written_stop_nobody(start: Start, disk: FaultyFiles) -> None:
    driver = start(files=disk, storage=QUICK_CHECKPOINTS)
    driver.create_topic("t", partitions=1)
    disk.cannot_write = of_checkpoint
    driver.publish_one("t", b"a")
    driver.host.thread.run(driver.host.broker._upkeep.checkpoint())
    driver.publish_one("t", b"b")
    assert driver.host.broker.problems() == {}
    disk.cannot_write = lambda path: False
    driver.restart()
    assert driver.read("t").values == [b"a", b"b"]


def test_while_the_disk_is_nearly_full_publishing_is_refused_and_reading_goes_on(
    start: Start, disk: FaultyFiles
) -> None:
    driver = start(files=disk, storage={"min_free_bytes": 1 << 20})
    driver.create_topic("t", partitions=1)
    driver.publish_one("t", b"before")
    disk.free = (1 << 20) - 1
    driver.host.broker.disk.look()
    for call in (lambda: driver.publish_one("t", b"v"), lambda: driver.create_topic("u")):
        with pytest.raises(Refused) as refusal:
            call()
        assert (refusal.value.code, refusal.value.retriable) == ("disk_full", True)
    assert driver.read("t").values == [b"before"]
    assert "disk" in driver.host.broker.problems()


def test_publishing_resumes_by_itself_when_there_is_room_again(start: Start, disk: FaultyFiles) -> None:
    driver = start(files=disk, storage={"min_free_bytes": 1 << 20})
    driver.create_topic("t", partitions=1)
    disk.free = 0
    until(lambda: "disk" in driver.host.broker.problems())
    assert code_of(lambda: driver.publish_one("t", b"v")) == "disk_full"
    disk.free = 1 << 20
    until(lambda: driver.host.broker.problems() == {})
    driver.publish_one("t", b"v")
    assert driver.read("t").values == [b"v"]


def test_deleting_a_topic_makes_room_on_a_disk_that_is_nearly_full(start: Start, disk: FaultyFiles) -> None:
    driver = start(files=disk, storage={"min_free_bytes": 1 << 20})
    driver.create_topic("t", partitions=1)
    disk.free = 0
    driver.host.broker.disk.look()
    driver.delete_topic("t")
    assert driver.list_topics() == []


def test_a_topic_that_is_deleted_is_answered_as_deleted_though_its_files_cannot_be_removed(
    start: Start, disk: FaultyFiles
) -> None:
    driver = start(files=disk)
    driver.create_topic("t", partitions=1)
    disk.fails = lambda path: path.name == "logs"
    driver.delete_topic("t")
    assert driver.list_topics() == []
    disk.fails = lambda path: False
    driver.restart()
    assert driver.list_topics() == []
    driver.create_topic("t", partitions=1)


def test_a_write_that_finds_no_room_is_refused_and_leaves_nothing_behind(start: Start, disk: FaultyFiles) -> None:
    driver = start(files=disk)
    driver.create_topic("t", partitions=1)
    driver.publish_one("t", b"before")
    disk.cannot_write = of_topic("t")
    with pytest.raises(Refused) as refusal:
        driver.publish_one("t", b"no room")
    assert (refusal.value.code, refusal.value.retriable) == ("disk_full", True)
    disk.cannot_write = lambda path: False
    assert driver.publish_one("t", b"after").offset == 1
    assert driver.read("t").values == [b"before", b"after"]
    driver.restart()
    assert driver.read("t").values == [b"before", b"after"]


def test_a_disk_that_fails_everything_still_lets_the_broker_stop(start: Start, disk: FaultyFiles) -> None:
    driver = start(files=disk)
    driver.create_topic("t", partitions=1)
    driver.publish_one("t", b"v")
    disk.fails = everything
    driver.host.stop()
    disk.fails = lambda path: False
    driver.host.start()
    if driver.over_http:
        driver.client.close()  # type: ignore[attr-defined]
        driver.client = driver._connect()  # type: ignore[attr-defined]
    assert driver.read("t").values == [b"v"]
