"""Where groups are: streams, committing, lag, and beginning again somewhere else."""

from __future__ import annotations

from typing import Any

import pytest

from behaviour.driver import Driver
from behaviour.member import WAIT_MS, Member, filled, publish, refusal, values
from behaviour.waiting import until
from goqueue.model.publishing import NewMessage

SECOND_NS = 1_000_000_000
BASE_NS = 1_700_000_000 * SECOND_NS


# Streams


def test_a_stream_gets_messages_in_the_order_of_their_offsets_and_without_receipts(shared: Driver, name: str) -> None:
    filled(shared, name, *"abcde")
    member = Member(shared, name, mode="stream")
    messages = member.poll(3) + member.poll(3)
    assert [message.offset for message in messages] == [0, 1, 2, 3, 4]
    assert {(message.handle, message.deliveries) for message in messages} == {(None, 0)}


@pytest.mark.parametrize("kind", ["range", "sticky"])
def test_who_comes_next_goes_on_where_the_stream_was_committed(shared: Driver, name: str, kind: str) -> None:
    filled(shared, name, *"abcd")
    first = Member(shared, name, mode="stream", kind=kind)
    first.poll()
    first.commit(name, {0: 2}, generation=first.generation)
    first.leave()
    assert values(Member(shared, name).poll()) == [b"c", b"d"]


def test_a_stream_that_commits_nothing_is_read_again_by_the_next(shared: Driver, name: str) -> None:
    filled(shared, name, "a", "b")
    first = Member(shared, name, mode="stream")
    assert len(first.poll()) == 2
    assert first.poll() == []
    first.leave()
    assert values(Member(shared, name).poll()) == [b"a", b"b"]


def test_a_stream_is_not_bounded_by_what_is_in_flight(shared: Driver, name: str) -> None:
    filled(shared, name, *"abc")
    member = Member(shared, name, mode="stream", max_in_flight=1)
    assert len(member.poll()) == 3


def test_a_commit_never_takes_a_stream_back(shared: Driver, name: str) -> None:
    filled(shared, name, *"abcd")
    member = Member(shared, name, mode="stream")
    member.poll()
    member.commit(name, {0: 3})
    member.commit(name, {0: 1})
    assert shared.groups.offsets(name) == {name: {0: 3}}


def test_leaving_commits_what_a_member_got_if_it_joined_so(shared: Driver, name: str) -> None:
    filled(shared, name, "a", "b")
    member = Member(shared, name, mode="stream", auto_commit=True)
    member.poll(1)
    member.leave()
    assert shared.groups.offsets(name) == {name: {0: 1}}


def test_coming_back_for_more_commits_what_came_before_once_the_interval_is_over(timed: Driver, name: str) -> None:
    filled(timed, name, *"abc")
    member = Member(timed, name, mode="stream", auto_commit=True, auto_commit_ms=5_000)
    member.poll(1)
    member.poll(1)
    assert timed.groups.offsets(name) == {name: {0: 0}}
    timed.let_pass(5_000)
    member.poll(1)
    assert timed.groups.offsets(name) == {name: {0: 2}}


def test_a_stream_that_waits_is_answered_at_once_when_a_message_comes(shared: Driver, name: str) -> None:
    filled(shared, name)
    member = Member(shared, name, mode="stream")
    waiting = shared.background(member.poll, 1, WAIT_MS)
    until(lambda: shared.waiting_polls(name) == 1)
    publish(shared, name, "a")
    assert values(waiting.result()) == [b"a"]


# Committing in a queue


def test_in_a_queue_a_commit_acks_what_was_delivered_below_and_nothing_else(shared: Driver, name: str) -> None:
    filled(shared, name, *"abcdef")
    member = Member(shared, name)
    first, second, *_ = member.poll(4)
    member.nack(second, delay_ms=0)
    member.commit(name, {0: 3})
    assert shared.groups.offsets(name) == {name: {0: 3}}
    # What lies below, the retry as well, is done; d is in flight, and e and f were never delivered.
    assert member.try_to("nack", [first, second]) == ["stale_receipt"] * 2
    member.commit(name, {0: 6})
    assert shared.groups.offsets(name) == {name: {0: 4}}
    assert values(member.poll()) == [b"e", b"f"]


def test_the_committed_offset_is_the_end_of_what_is_done_without_a_gap(shared: Driver, name: str) -> None:
    filled(shared, name, *"abcd")
    member = Member(shared, name)
    a, b, c, _ = member.poll()
    seen = []
    for message in (b, c, a):
        member.ack(message)
        seen.append(shared.groups.offsets(name)[name][0])
    assert seen == [0, 0, 3]


@pytest.mark.parametrize("mode", ["queue", "stream"])
@pytest.mark.parametrize(
    ("offsets", "code"),
    [
        ({0: 5}, "offset_out_of_range"),
        ({0: -1}, "offset_out_of_range"),
        ({0: 1, 1: 1}, "partition_not_found"),
        ({0: 1 << 60}, "offset_out_of_range"),
    ],
)
def test_a_commit_that_cannot_be_changes_nothing(
    shared: Driver, name: str, mode: str, offsets: dict[int, int], code: str
) -> None:
    filled(shared, name, *"abcd")
    member = Member(shared, name, mode=mode)
    member.poll()
    with refusal(code):
        member.commit(name, offsets)
    assert shared.groups.offsets(name) == {name: {0: 0}}


def test_a_commit_for_a_topic_that_the_group_does_not_read_is_refused(shared: Driver, name: str) -> None:
    other = f"{name}-other"
    filled(shared, name)
    filled(shared, other, "a")
    member = Member(shared, name)
    with refusal("not_assigned"):
        member.commit(other, {0: 1})
    with refusal("topic_not_found"):
        member.commit(f"{name}-none", {0: 1})


# Looking


def test_lag_counts_what_is_not_done(shared: Driver, name: str) -> None:
    filled(shared, name, *"abcde", partitions=2)
    member = Member(shared, name)
    a, b, _ = member.poll(3)
    member.ack(a)
    member.nack(b, delay_ms=60_000)
    first, second = shared.groups.describe(name).lag
    assert (first.topic, first.partition, first.committed, first.latest) == (name, 0, 1, 5)
    assert (first.lag, first.in_flight, first.waiting, first.owner) == (4, 1, 1, member.id)
    assert (second.partition, second.lag, second.latest) == (1, 0, 0)


def test_nobody_owns_a_partition_of_a_shared_group(shared: Driver, name: str) -> None:
    filled(shared, name)
    Member(shared, name, kind="shared")
    assert [each.owner for each in shared.groups.describe(name).lag] == [None]


def test_offsets_can_be_asked_for_one_topic(shared: Driver, name: str) -> None:
    other = f"{name}-other"
    filled(shared, name, "a")
    filled(shared, other, "b")
    member = Member(shared, name, name, other)
    member.ack(*member.poll())
    assert shared.groups.offsets(name) == {name: {0: 1}, other: {0: 1}}
    assert shared.groups.offsets(name, other) == {other: {0: 1}}


def test_offsets_of_a_topic_that_is_not_there_are_refused(shared: Driver, name: str) -> None:
    filled(shared, name)
    Member(shared, name)
    with refusal("topic_not_found"):
        shared.groups.offsets(name, f"{name}-none")


# Beginning again


@pytest.mark.parametrize(
    ("beginning", "offset"),
    [
        ({"to": "earliest"}, 0),
        ({"to": "latest"}, 4),
        ({"offset": 0}, 0),
        ({"offset": 3}, 3),
        ({"offset": 4}, 4),
        ({"instant_ns": BASE_NS + SECOND_NS}, 1),
        ({"instant_ns": BASE_NS + 10 * SECOND_NS}, 4),
    ],
)
@pytest.mark.parametrize("mode", ["queue", "stream"])
def test_a_group_begins_again_where_it_is_told_to(
    shared: Driver, name: str, mode: str, beginning: dict[str, Any], offset: int
) -> None:
    shared.create_topic(name, partitions=1)
    shared.publish(name, [NewMessage(b"%d" % at, timestamp_ns=BASE_NS + at * SECOND_NS) for at in range(4)])
    member = Member(shared, name, mode=mode)
    member.poll()
    member.commit(name, {0: 2})
    assert shared.groups.reset(name, name, **beginning) == {0: offset}
    assert shared.groups.offsets(name) == {name: {0: offset}}
    assert [message.offset for message in member.poll()] == list(range(offset, 4))


def test_only_the_partitions_that_are_named_begin_again(shared: Driver, name: str) -> None:
    filled(shared, name, "a", partitions=3)
    for number in (1, 2):
        publish(shared, name, "a", partition=number)
    member = Member(shared, name)
    member.ack(*member.poll())
    assert shared.groups.reset(name, name, to="earliest", partitions=[0, 2]) == {0: 0, 2: 0}
    assert shared.groups.offsets(name) == {name: {0: 0, 1: 1, 2: 0}}
    assert {message.partition for message in member.poll()} == {0, 2}


def test_after_a_reset_messages_come_as_if_for_the_first_time_and_receipts_are_void(shared: Driver, name: str) -> None:
    filled(shared, name, "a", "b")
    member = Member(shared, name)
    before = member.poll()
    member.nack(before[1], delay_ms=60_000)
    shared.groups.reset(name, name, to="earliest")
    assert member.try_to("ack", before) == ["stale_receipt"] * 2
    again = member.poll()
    assert [(message.value, message.deliveries) for message in again] == [(b"a", 1), (b"b", 1)]
    assert member.try_to("ack", before) == ["stale_receipt"] * 2
    member.ack(*again)


def test_a_poll_that_waits_is_answered_after_a_reset(shared: Driver, name: str) -> None:
    filled(shared, name, "a")
    member = Member(shared, name)
    member.ack(member.next())
    waiting = shared.background(member.poll, 1, WAIT_MS)
    until(lambda: shared.waiting_polls(name) == 1)
    shared.groups.reset(name, name, to="earliest")
    assert values(waiting.result()) == [b"a"]


def test_a_group_may_be_told_where_to_begin_with_a_topic_before_it_reads_it(shared: Driver, name: str) -> None:
    filled(shared, name, *"abc")
    shared.groups.configure(name)
    shared.groups.reset(name, name, offset=2)
    assert values(Member(shared, name).poll()) == [b"c"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"offset": 5}, "offset_out_of_range"),
        ({"offset": 1 << 60}, "offset_out_of_range"),
        ({"to": "earliest", "partitions": [0, 1]}, "partition_not_found"),
        ({"offset": 1, "partitions": [0, 1]}, "partition_not_found"),
    ],
)
def test_a_reset_that_cannot_be_changes_nothing(shared: Driver, name: str, fields: dict[str, Any], code: str) -> None:
    filled(shared, name, *"abcd")
    member = Member(shared, name)
    a, b, c, d = member.poll()
    member.ack(a, b)
    with refusal(code):
        shared.groups.reset(name, name, **fields)
    assert shared.groups.offsets(name) == {name: {0: 2}}
    member.ack(c, d)


def test_a_reset_for_a_topic_that_is_not_there_is_refused(shared: Driver, name: str) -> None:
    filled(shared, name)
    Member(shared, name)
    with refusal("topic_not_found"):
        shared.groups.reset(name, f"{name}-none", to="earliest")
