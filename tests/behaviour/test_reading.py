from __future__ import annotations

import time

import pytest

from behaviour.driver import Driver, Refused
from goqueue.model.publishing import NewMessage

SECOND_NS = 1_000_000_000
BASE_NS = 1_700_000_000 * SECOND_NS


def fill(driver: Driver, name: str, count: int, **settings: object) -> None:
    driver.create_topic(name, partitions=1, **settings)
    driver.publish(name, [NewMessage(b"%d" % number) for number in range(count)])


def test_reading_begins_at_the_offset_that_is_asked_for(shared: Driver, name: str) -> None:
    fill(shared, name, 10)
    page = shared.read(name, offset=4)
    assert page.offsets == [4, 5, 6, 7, 8, 9]
    assert (page.next_offset, page.high_watermark) == (10, 10)


def test_without_an_offset_reading_begins_at_the_beginning(shared: Driver, name: str) -> None:
    fill(shared, name, 3)
    assert shared.read(name).offsets == [0, 1, 2]
    assert shared.read(name, offset=0).offsets == [0, 1, 2]


def test_reading_at_the_end_is_empty(shared: Driver, name: str) -> None:
    fill(shared, name, 3)
    page = shared.read(name, offset=3)
    assert (page.messages, page.next_offset, page.high_watermark) == ([], 3, 3)


@pytest.mark.parametrize("offset", [4, 1_000, (1 << 63) - 1])
def test_reading_beyond_the_end_is_out_of_range(shared: Driver, name: str, offset: int) -> None:
    fill(shared, name, 3)
    with pytest.raises(Refused) as refusal:
        shared.read(name, offset=offset)
    assert refusal.value.code == "offset_out_of_range"


@pytest.mark.parametrize("partition", [1, -1, 1 << 40])
def test_reading_a_partition_that_does_not_exist_is_refused(shared: Driver, name: str, partition: int) -> None:
    fill(shared, name, 1)
    with pytest.raises(Refused) as refusal:
        shared.read(name, partition)
    assert refusal.value.code in {"partition_not_found", "not_found"}


def test_limit_bounds_the_messages(shared: Driver, name: str) -> None:
    fill(shared, name, 10)
    page = shared.read(name, offset=2, limit=3)
    assert page.offsets == [2, 3, 4]
    assert page.next_offset == 5


def test_max_bytes_bounds_the_answer(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=1)
    shared.publish(name, [NewMessage(b"x" * 1_000) for _ in range(10)])
    assert shared.read(name, max_bytes=3_500).offsets == [0, 1, 2]


def test_one_message_is_answered_even_if_it_is_larger_than_max_bytes(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=1)
    shared.publish(name, [NewMessage(b"x" * 10_000), NewMessage(b"y")])
    page = shared.read(name, max_bytes=100)
    assert page.offsets == [0]
    assert page.next_offset == 1


def test_page_by_page_everything_is_read_once(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=1, segment_bytes="64KiB")
    for base in range(0, 400, 20):
        shared.publish(name, [NewMessage(b"%d" % (base + more) + b"." * 1_000) for more in range(20)])
    offset, seen = 0, []
    while (page := shared.read(name, offset=offset, limit=33)).messages:
        seen += page.offsets
        offset = page.next_offset
    assert seen == list(range(400))


def test_one_read_reaches_over_segments(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=1, segment_bytes="64KiB")
    for _ in range(40):
        shared.publish(name, [NewMessage(b"." * 1_000) for _ in range(10)])
    assert shared.read(name, offset=5, limit=390).offsets == list(range(5, 395))


def test_rule_9_reading_by_instant_begins_at_the_first_message_at_or_after_it(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=1)
    # Producers' clocks go back and forth: the first at or after 30 s is offset 2, although 4 is nearer.
    seconds = [10, 20, 50, 25, 30, 60]
    shared.publish(name, [NewMessage(b"v", timestamp_ns=BASE_NS + at * SECOND_NS) for at in seconds])
    firsts = {at: shared.read(name, from_time_ns=BASE_NS + at * SECOND_NS).offsets[:1] for at in (0, 10, 11, 30, 55)}
    assert firsts == {0: [0], 10: [0], 11: [1], 30: [2], 55: [5]}


def test_reading_by_instant_is_exact_over_many_segments(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=1, segment_bytes="64KiB")
    for base in range(0, 300, 10):
        shared.publish(
            name,
            [NewMessage(b"." * 1_000, timestamp_ns=BASE_NS + at * SECOND_NS) for at in range(base, base + 10)],
        )
    for at in (0, 1, 63, 64, 65, 128, 200, 299):
        assert shared.read(name, from_time_ns=BASE_NS + at * SECOND_NS, limit=1).offsets == [at]
        assert shared.read(name, from_time_ns=BASE_NS + at * SECOND_NS - 1, limit=1).offsets == [at]


def test_reading_from_an_instant_after_the_last_message_is_empty(shared: Driver, name: str) -> None:
    fill(shared, name, 3)
    page = shared.read(name, from_time_ns=time.time_ns() + SECOND_NS)
    assert (page.messages, page.next_offset) == ([], 3)


def test_reading_an_empty_topic_by_instant_is_empty(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=1)
    page = shared.read(name, from_time_ns=0)
    assert (page.messages, page.next_offset) == ([], 0)


def test_readers_do_not_disturb_each_other(shared: Driver, name: str) -> None:
    fill(shared, name, 50, segment_bytes="64KiB")
    reads = [shared.background(shared.read, name, offset=offset) for offset in range(50)]
    for offset, each in enumerate(reads):
        assert each.result().offsets == list(range(offset, 50))
