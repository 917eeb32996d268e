from __future__ import annotations

import time

import mmh3
import pytest

from behaviour.driver import Driver, Refused, Stored
from goqueue.model.publishing import NewMessage

HOUR_NS = 3_600_000_000_000


def stored(results: list[Stored | Refused]) -> list[Stored]:
    assert all(isinstance(each, Stored) for each in results), results
    return [each for each in results if isinstance(each, Stored)]


def codes(results: list[Stored | Refused]) -> list[str]:
    return [each.code if isinstance(each, Refused) else "stored" for each in results]


def test_a_message_comes_back_as_it_was_sent(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=1)
    headers = (("trace", b"\x00\xff"), ("trace", b"again"), ("empty", b""))
    instant = time.time_ns() - HOUR_NS
    at = shared.publish_one(name, b"\x00\xffvalue", key=b"\x80k", headers=headers, priority=0, timestamp_ns=instant)
    assert at == Stored(0, 0, "critical")
    (got,) = shared.read(name).messages
    assert (got.partition, got.offset, got.timestamp_ns) == (0, 0, instant)
    assert (got.key, got.value, got.headers, got.priority) == (b"\x80k", b"\x00\xffvalue", headers, "critical")


def test_a_message_without_more_has_no_key_and_is_of_now(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=1)
    before = time.time_ns()
    assert shared.publish_one(name, b"").priority == "normal"
    after = time.time_ns()
    (got,) = shared.read(name).messages
    assert (got.key, got.value, got.headers) == (None, b"", ())
    assert before <= got.timestamp_ns <= after


def test_offsets_of_a_partition_are_consecutive(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=1)
    for base in range(0, 20, 5):
        results = stored(shared.publish(name, [NewMessage(b"%d" % (base + more)) for more in range(5)]))
        assert [each.offset for each in results] == list(range(base, base + 5))
    assert shared.read(name).values == [b"%d" % number for number in range(20)]


def test_rule_10_a_key_goes_to_the_partition_of_its_murmur3(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=7)
    keys = [b"key-%d" % number for number in range(40)] + [b"\xff\x00", b"x" * 1_000]
    for key, result in zip(keys, stored(shared.publish(name, [NewMessage(b"", key) for key in keys])), strict=True):
        assert result.partition == (mmh3.hash(key, 0, signed=False) & 0x7FFFFFFF) % 7


def test_keyless_messages_of_one_request_stay_together(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=3)
    results = stored(shared.publish(name, [NewMessage(b"v") for _ in range(10)]))
    assert len({each.partition for each in results}) == 1


def test_keyless_requests_take_the_partitions_in_turn(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=3)
    assert [shared.publish_one(name, b"v").partition for _ in range(6)] == [0, 1, 2, 0, 1, 2]


def test_requests_with_keys_only_do_not_take_a_turn(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=3)
    shared.publish_one(name, b"v")
    shared.publish_one(name, b"v", key=b"k")
    assert shared.publish_one(name, b"v").partition == 1


def test_an_empty_key_is_no_key(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=3)
    partitions = {shared.publish_one(name, b"v", key=b"").partition for _ in range(3)}
    assert partitions == {0, 1, 2}


def test_an_explicit_partition_is_obeyed_even_with_a_key(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=3)
    for partition in range(3):
        assert shared.publish_one(name, b"v", key=b"k", partition=partition).partition == partition


@pytest.mark.parametrize("partition", [-1, 3, 1 << 40])
def test_a_partition_that_does_not_exist_is_refused(shared: Driver, name: str, partition: int) -> None:
    shared.create_topic(name, partitions=3)
    assert codes(shared.publish(name, [NewMessage(b"v", partition=partition)])) == ["partition_not_found"]


@pytest.mark.parametrize("priority", range(5))
def test_every_priority_is_kept(shared: Driver, name: str, priority: int) -> None:
    shared.create_topic(name, partitions=1)
    label = ("critical", "high", "normal", "low", "background")[priority]
    assert shared.publish_one(name, b"v", priority=priority).priority == label
    assert shared.read(name).messages[0].priority == label


def test_a_priority_that_does_not_exist_is_refused(shared: Driver, name: str) -> None:
    shared.create_topic(name)
    assert codes(shared.publish(name, [NewMessage(b"v", priority=5)])) == ["invalid_message"]


def test_a_tombstone_has_a_key_and_no_value(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=1)
    shared.publish_one(name, None, key=b"k")
    (got,) = shared.read(name).messages
    assert (got.key, got.value) == (b"k", None)


def test_a_tombstone_without_a_key_is_refused(shared: Driver, name: str) -> None:
    shared.create_topic(name)
    assert codes(shared.publish(name, [NewMessage(None)])) == ["invalid_message"]


def test_a_compacted_topic_wants_a_key_on_every_message(shared: Driver, name: str) -> None:
    shared.create_topic(name, cleanup="compact")
    assert codes(shared.publish(name, [NewMessage(b"v"), NewMessage(b"v", b"k")])) == ["invalid_message", "stored"]


def test_rule_9_a_timestamp_more_than_an_hour_ahead_is_refused(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=1)
    now = time.time_ns()
    messages = [NewMessage(b"v", timestamp_ns=now + ahead) for ahead in (HOUR_NS * 9 // 10, HOUR_NS * 11 // 10)]
    assert codes(shared.publish(name, messages)) == ["stored", "timestamp_out_of_range"]


def test_how_far_ahead_a_timestamp_may_be_is_a_setting(shared: Driver, name: str) -> None:
    shared.create_topic(name, max_timestamp_ahead_ms="1d")
    shared.publish_one(name, b"v", timestamp_ns=time.time_ns() + 2 * HOUR_NS)


def test_a_timestamp_before_1970_is_refused(shared: Driver, name: str) -> None:
    shared.create_topic(name)
    assert codes(shared.publish(name, [NewMessage(b"v", timestamp_ns=-1)])) == ["timestamp_out_of_range"]


def test_the_first_instant_of_1970_is_a_timestamp(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=1)
    shared.publish_one(name, b"v", timestamp_ns=0)
    assert shared.read(name).messages[0].timestamp_ns == 0


def test_a_value_larger_than_the_topic_takes_is_refused(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=1, max_message_bytes=1_024)
    results = shared.publish(name, [NewMessage(b"x" * 1_024), NewMessage(b"x" * 1_025)])
    assert codes(results) == ["stored", "message_too_large"]


def test_a_key_may_have_65535_bytes(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=1)
    results = shared.publish(name, [NewMessage(b"v", b"k" * 65_535), NewMessage(b"v", b"k" * 65_536)])
    assert codes(results) == ["stored", "message_too_large"]
    assert shared.read(name).messages[0].key == b"k" * 65_535


def test_headers_are_bounded_together(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=1)
    small, large = (("h", b"x" * 60_000),), (("h", b"x" * 40_000), ("i", b"x" * 40_000))
    results = shared.publish(name, [NewMessage(b"v", headers=small), NewMessage(b"v", headers=large)])
    assert codes(results) == ["stored", "message_too_large"]


@pytest.mark.parametrize("header", ["goqueue-producer", "goqueue-", "goqueue-anything"])
def test_rule_7_reserved_headers_are_refused(shared: Driver, name: str, header: str) -> None:
    shared.create_topic(name)
    assert codes(shared.publish(name, [NewMessage(b"v", headers=((header, b"x"),))])) == ["invalid_message"]


def test_what_is_wrong_with_one_message_does_not_touch_the_others(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=1, max_message_bytes=1_024)
    messages = [
        NewMessage(b"first"),
        NewMessage(b"x" * 2_000),
        NewMessage(b"second"),
        NewMessage(b"v", partition=9),
        NewMessage(None),
        NewMessage(b"third"),
    ]
    results = shared.publish(name, messages)
    assert codes(results) == [
        "stored", "message_too_large", "stored", "partition_not_found", "invalid_message", "stored",
    ]  # fmt: skip
    assert [each.offset for each in results if isinstance(each, Stored)] == [0, 1, 2]
    assert shared.read(name).values == [b"first", b"second", b"third"]


def test_if_nothing_can_be_stored_every_message_says_why(shared: Driver, name: str) -> None:
    shared.create_topic(name)
    assert codes(shared.publish(name, [NewMessage(None), NewMessage(b"v", partition=9)])) == [
        "invalid_message",
        "partition_not_found",
    ]


def test_publishing_to_a_topic_that_does_not_exist_is_refused(shared: Driver, name: str) -> None:
    with pytest.raises(Refused) as refusal:
        shared.publish(name, [NewMessage(b"v")])
    assert refusal.value.code == "topic_not_found"
    assert not refusal.value.retriable


def test_messages_of_many_publishers_are_all_there_once(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=3)

    def publish(who: int) -> list[Stored]:
        found: list[Stored] = []
        for number in range(10):
            found += stored(shared.publish(name, [NewMessage(b"%d.%d.%d" % (who, number, at)) for at in range(5)]))
        return found

    acknowledged = [one for each in [shared.background(publish, who) for who in range(8)] for one in each.result()]
    assert len({(each.partition, each.offset) for each in acknowledged}) == 400
    read = [shared.read(name, number, limit=1_000) for number in range(3)]
    assert sorted(value for page in read for value in page.values if value is not None) == sorted(
        b"%d.%d.%d" % (who, number, at) for who in range(8) for number in range(10) for at in range(5)
    )
    for page in read:
        assert page.offsets == list(range(page.high_watermark))


def test_a_publish_that_races_with_the_topic_being_deleted_is_stored_or_not_found(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=1)

    def publish() -> set[str]:
        seen: set[str] = set()
        while "topic_not_found" not in seen:
            try:
                seen |= set(codes(shared.publish(name, [NewMessage(b"v")])))
            except Refused as refusal:
                seen.add(refusal.code)
        return seen

    publishers = [shared.background(publish) for _ in range(6)]
    shared.delete_topic(name)
    for each in publishers:
        assert each.result() <= {"stored", "topic_not_found"}
