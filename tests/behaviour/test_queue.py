"""A message in a queue: delivered, done, tried again, given up, and who may say so."""

from __future__ import annotations

from typing import Any

import pytest

from behaviour.driver import Driver
from behaviour.groups import Verb
from behaviour.groups_in_process import GroupsInProcess, altered_receipts
from behaviour.member import WAIT_MS, Member, filled, letters, publish, refusal, values
from behaviour.waiting import until

VERBS: dict[Verb, dict[str, Any]] = {"ack": {}, "nack": {}, "reject": {}, "extend": {"delay_ms": 1_000}}


def in_flight(driver: Driver, group: str) -> int:
    return sum(member.in_flight for member in driver.groups.describe(group).members)


# Delivering


def test_a_message_arrives_as_it_was_published(shared: Driver, name: str) -> None:
    filled(shared, name)
    fields = {"key": b"k\xff", "headers": (("h", b"1"), ("h", b"\xfe")), "partition": 0, "priority": 1}
    shared.publish_one(name, b"\x00\xff", **fields)
    shared.publish_one(name, None, key=b"k")
    whole, tombstone = Member(shared, name).poll()
    assert (whole.topic, whole.partition, whole.offset, whole.deliveries) == (name, 0, 0, 1)
    assert (whole.value, whole.key, whole.headers) == (b"\x00\xff", b"k\xff", fields["headers"])
    (stored, _) = shared.read(name).messages
    assert (whole.timestamp_ns, whole.priority) == (stored.timestamp_ns, stored.priority)
    assert (tombstone.value, tombstone.key) == (None, b"k")


def test_each_message_is_one_members_work(shared: Driver, name: str) -> None:
    filled(shared, name, *map(str, range(20)))
    members = [Member(shared, name, kind="shared") for _ in range(4)]
    got = [values(member.poll(5)) for member in members]
    assert {value for each in got for value in each} == {b"%d" % number for number in range(20)}
    assert [len(each) for each in got] == [5] * 4


def test_many_who_work_at_once_do_every_message_once(shared: Driver, name: str) -> None:
    filled(shared, name, *map(str, range(100)), partitions=2)
    publish(shared, name, *map(str, range(100, 200)), partition=1)
    members = [Member(shared, name, kind="shared") for _ in range(4)]

    def work(member: Member) -> list[bytes | None]:
        done: list[bytes | None] = []
        while messages := member.poll(7):
            member.ack(*messages)
            done += values(messages)
        return done

    # Two at a time of each.
    working = [shared.background(work, member) for member in members * 2]
    done = [value for each in working for value in each.result()]
    assert (len(done), set(done)) == (200, {b"%d" % number for number in range(200)})
    assert sum(each.lag for each in shared.groups.describe(name).lag) == 0


def test_at_most_so_many_messages_are_answered_as_are_asked_for(shared: Driver, name: str) -> None:
    filled(shared, name, *"abcde")
    member = Member(shared, name)
    assert [len(member.poll(2)) for _ in range(4)] == [2, 2, 1, 0]


def test_a_member_has_at_most_so_many_in_flight(shared: Driver, name: str) -> None:
    filled(shared, name, *"abcde")
    member = Member(shared, name, max_in_flight=2, kind="shared")
    first, second = member.poll()
    assert member.poll() == []
    member.ack(first)
    assert values(member.poll()) == [b"c"]
    member.nack(second, delay_ms=60_000)
    assert values(member.poll()) == [b"d"]
    assert values(Member(shared, name).poll()) == [b"e"]


@pytest.mark.parametrize("verb", ["ack", "nack", "reject"])
def test_a_poll_that_waits_for_room_is_answered_when_there_is_some(shared: Driver, name: str, verb: Verb) -> None:
    filled(shared, name, "a", "b")
    member = Member(shared, name, max_in_flight=1)
    message = member.next()
    waiting = shared.background(member.poll, 1, WAIT_MS)
    until(lambda: shared.waiting_polls(name) == 1)
    assert member.try_to(verb, [message]) == [None]
    assert values(waiting.result()) == [b"b"]


def test_a_poll_that_waits_is_answered_at_once_when_a_message_comes(shared: Driver, name: str) -> None:
    filled(shared, name)
    member = Member(shared, name)
    waiting = shared.background(member.poll, 1, WAIT_MS)
    until(lambda: shared.waiting_polls(name) == 1)
    publish(shared, name, "a")
    assert values(waiting.result()) == [b"a"]


def test_of_many_that_wait_each_gets_a_message(shared: Driver, name: str) -> None:
    filled(shared, name)
    members = [Member(shared, name, kind="shared") for _ in range(3)]
    waiting = [shared.background(member.poll, 1, WAIT_MS) for member in members]
    until(lambda: shared.waiting_polls(name) == 3)
    publish(shared, name, *"abc")
    got = [value for poll in waiting for value in values(poll.result())]
    assert (len(got), set(got)) == (3, {b"a", b"b", b"c"})


def test_a_poll_whose_time_is_over_is_answered_with_nothing(shared: Driver, name: str) -> None:
    filled(shared, name)
    assert Member(shared, name).poll(1, wait_ms=50) == []


@pytest.mark.parametrize("shared", ["http", "grpc"], indirect=True)
@pytest.mark.parametrize("fields", [{"max_messages": 1_000_000}, {"wait_ms": 3_600_000}])
def test_a_poll_that_cannot_be_delivers_nothing(shared: Driver, name: str, fields: dict[str, int]) -> None:
    filled(shared, name, "a")
    member = Member(shared, name)
    with refusal("invalid_request"):
        member.poll(**fields)
    assert in_flight(shared, name) == 0


# Done


def test_an_acked_message_is_never_delivered_again(timed: Driver, name: str) -> None:
    filled(timed, name, "a", "b")
    member = Member(timed, name)
    member.ack(*member.poll())
    timed.let_pass(3_600_000)
    assert Member(timed, name).poll() == []
    assert timed.groups.describe(name).lag[0].lag == 0


def test_messages_are_acked_in_any_order(shared: Driver, name: str) -> None:
    filled(shared, name, *"abcd")
    member = Member(shared, name)
    a, b, c, d = member.poll()
    for message in (d, b):
        member.ack(message)
    member.nack(a, c, delay_ms=0)
    assert values(member.poll()) == [b"a", b"c"]


def test_acking_twice_is_as_good_as_once(shared: Driver, name: str) -> None:
    filled(shared, name, "a", "b")
    member = Member(shared, name)
    a, b = member.poll()
    member.ack(a)
    member.ack(a)
    member.ack(a, a, b)
    assert shared.groups.offsets(name) == {name: {0: 2}}


def test_those_that_hold_are_settled_whatever_becomes_of_the_others(shared: Driver, name: str) -> None:
    filled(shared, name, *"abc")
    member = Member(shared, name)
    a, b, c = member.poll()
    member.ack(b)
    assert member.try_to("reject", [a, b, c], reason="no") == [None, "stale_receipt", None]
    assert {letter.value for letter in letters(shared, name, 2)} == {b"a", b"c"}


def test_what_is_settled_is_counted(shared: Driver, name: str) -> None:
    filled(shared, name, *"abcdef")
    member = Member(shared, name)
    before = shared.groups.stats()
    a, b, c, d, e, f = member.poll()
    member.ack(a, b, c)
    member.nack(d, delay_ms=0)
    member.next()
    member.extend(e, by_ms=1_000)
    member.reject(f)
    letters(shared, name, 1)
    after = shared.groups.stats()
    assert {each: after[each] - before[each] for each in after if after[each] != before[each]} == {
        "acks": 3, "nacks": 1, "redeliveries": 1, "extensions": 1, "rejects": 1, "dead_letters": 1,
    }  # fmt: skip


# Not settled in time


def test_a_message_that_is_not_settled_in_time_is_delivered_again(timed: Driver, name: str) -> None:
    filled(timed, name, "a")
    slow, other = Member(timed, name, kind="shared"), Member(timed, name)
    assert slow.next().deliveries == 1
    timed.let_pass(29_999)
    assert other.poll() == []
    timed.let_pass(1)
    (again,) = other.poll()
    assert (again.value, again.deliveries) == (b"a", 2)


def test_a_poll_that_waits_gets_a_message_whose_time_is_over(shared: Driver, name: str) -> None:
    filled(shared, name, "a")
    slow, other = Member(shared, name, kind="shared", visibility_timeout_ms=100), Member(shared, name)
    slow.next()
    assert other.next().deliveries == 2


def test_the_groups_own_timeout_stands_above_the_topics(timed: Driver, name: str) -> None:
    filled(timed, name, "a", visibility_timeout_ms=5_000)
    by_topic = Member(timed, f"{name}-topic", name)
    by_group = Member(timed, f"{name}-group", name, visibility_timeout_ms=8_000)
    by_topic.next()
    by_group.next()
    timed.let_pass(5_000)
    assert (len(by_topic.poll()), len(by_group.poll())) == (1, 0)
    timed.let_pass(3_000)
    assert len(by_group.poll()) == 1


def test_a_receipt_whose_time_is_over_holds_until_someone_else_has_the_message(timed: Driver, name: str) -> None:
    filled(timed, name, "a", "b")
    member = Member(timed, name)
    a, b = member.poll()
    timed.let_pass(30_000)
    assert member.try_to("extend", [a], delay_ms=1_000) == ["stale_receipt"]
    member.ack(a)
    assert values(member.poll()) == [b"b"]
    assert [member.try_to(verb, [b], **fields) for verb, fields in VERBS.items()] == [["stale_receipt"]] * 4
    assert in_flight(timed, name) == 1


# More time


def test_more_time_keeps_a_message_hidden(timed: Driver, name: str) -> None:
    filled(timed, name, "a")
    member = Member(timed, name)
    message = member.next()
    timed.let_pass(20_000)
    member.extend(message, by_ms=60_000)
    timed.let_pass(59_999)
    assert member.poll() == []
    timed.let_pass(1)
    assert member.next().deliveries == 2


def test_more_time_can_be_less(timed: Driver, name: str) -> None:
    filled(timed, name, "a")
    member = Member(timed, name)
    message = member.next()
    member.extend(message, by_ms=1_000)
    timed.let_pass(1_000)
    assert member.next().deliveries == 2


def test_no_more_time_shows_a_message_at_once(shared: Driver, name: str) -> None:
    filled(shared, name, "a")
    member = Member(shared, name)
    member.extend(member.next(), by_ms=0)
    assert member.next().deliveries == 2


# Again


def test_a_nacked_message_waits_twice_as_long_each_time(timed: Driver, name: str) -> None:
    filled(timed, name, "a", max_retries=9, retry_backoff_ms=1_000, max_retry_backoff_ms=5_000)
    member = Member(timed, name)
    for wait_ms in (1_000, 2_000, 4_000, 5_000, 5_000):
        member.nack(member.next())
        timed.let_pass(wait_ms - 1)
        assert member.poll() == []
        timed.let_pass(1)
    assert member.next().deliveries == 6


def test_a_nacked_message_comes_back_after_the_callers_delay(timed: Driver, name: str) -> None:
    filled(timed, name, "a")
    member = Member(timed, name)
    member.nack(member.next(), delay_ms=7_200_000)
    timed.let_pass(7_199_999)
    member = Member(timed, name)
    assert member.poll() == []
    timed.let_pass(1)
    assert member.next().deliveries == 2


def test_without_a_delay_a_nacked_message_is_there_at_once_for_anyone(shared: Driver, name: str) -> None:
    filled(shared, name, "a")
    member, other = Member(shared, name, kind="shared"), Member(shared, name)
    member.nack(member.next(), delay_ms=0)
    assert other.next().deliveries == 2


def test_a_poll_that_waits_gets_a_message_whose_delay_is_over(shared: Driver, name: str) -> None:
    filled(shared, name, "a")
    member = Member(shared, name, retry_backoff_ms=100)
    member.nack(member.next())
    assert member.next().deliveries == 2


def test_a_nacked_message_holds_up_nothing(shared: Driver, name: str) -> None:
    filled(shared, name, *"abc")
    member = Member(shared, name)
    member.nack(member.next(), delay_ms=60_000)
    assert values(member.poll()) == [b"b", b"c"]


# Who may settle


@pytest.mark.parametrize("verb", VERBS)
def test_a_handle_that_was_altered_in_any_part_is_refused_and_settles_nothing(
    shared: Driver, name: str, verb: Verb
) -> None:
    filled(shared, name, "a", "b", partitions=2)
    member = Member(shared, name)
    message, _ = member.poll()
    assert message.handle is not None
    for part, forged in shared.groups.altered(message.handle).items():
        (outcome,) = shared.groups.settle(name, verb, [forged], **VERBS[verb])
        assert outcome is not None, part
        # Cut short, a receipt may be read as one of a group that there is not.
        allowed = {"invalid_receipt", "stale_receipt"} if part == "length" else {"invalid_receipt"}
        assert outcome.code in allowed, part
    assert in_flight(shared, name) == 2
    member.ack(message)


@pytest.mark.parametrize("verb", VERBS)
def test_a_receipt_holds_whatever_way_it_is_sent_and_altered_none(shared: Driver, name: str, verb: Verb) -> None:
    filled(shared, name, "a", "b")
    member = Member(shared, name)
    (message,) = GroupsInProcess(shared.host).poll(name, member.id, 1)
    assert isinstance(message.handle, str)
    forged = altered_receipts(message.handle)
    outcomes = shared.groups.settle(name, verb, [*forged.values(), message.handle], **VERBS[verb])
    codes = dict(zip([*forged, "itself"], (None if each is None else each.code for each in outcomes), strict=True))
    # Cut short, it may be read as one of a group that there is not.
    assert codes.pop("length") in {"invalid_receipt", "stale_receipt"}
    assert codes.pop("itself") is None
    assert set(codes.values()) == {"invalid_receipt"}
    assert values(member.poll()) == [b"b"]


@pytest.mark.parametrize("verb", ["nack", "reject", "extend"])
def test_a_message_that_is_done_can_only_be_acked(shared: Driver, name: str, verb: Verb) -> None:
    filled(shared, name, "a")
    member = Member(shared, name)
    message = member.next()
    member.ack(message)
    assert member.try_to(verb, [message], **VERBS[verb]) == ["stale_receipt"]
    member.ack(message)


@pytest.mark.parametrize("verb", VERBS)
def test_a_handle_is_void_once_the_message_was_delivered_again(shared: Driver, name: str, verb: Verb) -> None:
    filled(shared, name, "a")
    member = Member(shared, name)
    old = member.next()
    member.nack(old, delay_ms=0)
    new = member.next()
    assert member.try_to(verb, [old], **VERBS[verb]) == ["stale_receipt"]
    member.ack(new)


def test_a_message_that_waits_for_its_retry_can_still_be_acked(shared: Driver, name: str) -> None:
    filled(shared, name, "a")
    member = Member(shared, name)
    message = member.next()
    member.nack(message, delay_ms=60_000)
    member.ack(message)
    assert shared.groups.offsets(name) == {name: {0: 1}}


@pytest.mark.parametrize("verb", VERBS)
def test_a_handle_of_a_topic_that_was_deleted_is_void(shared: Driver, name: str, verb: Verb) -> None:
    filled(shared, name, "a")
    member = Member(shared, name)
    message = member.next()
    shared.delete_topic(name)
    assert member.try_to(verb, [message], **VERBS[verb]) == ["stale_receipt"]


@pytest.mark.parametrize("verb", VERBS)
def test_a_handle_of_a_group_that_was_deleted_is_void(shared: Driver, name: str, verb: Verb) -> None:
    filled(shared, name, "a")
    member = Member(shared, name)
    message = member.next()
    member.leave()
    shared.groups.delete(name)
    assert member.try_to(verb, [message], **VERBS[verb]) == ["stale_receipt"]


def test_acking_in_one_group_is_nothing_to_another(shared: Driver, name: str) -> None:
    filled(shared, name, "a")
    one, other = Member(shared, name), Member(shared, f"{name}-other", name)
    one.ack(one.next())
    assert values(other.poll()) == [b"a"]


@pytest.mark.parametrize(
    ("verb", "fields"),
    [
        ("nack", {"delay_ms": 12 * 3_600_000 + 1}),
        ("extend", {"delay_ms": 12 * 3_600_000 + 1}),
        ("nack", {"reason": "x" * 1_001}),
        ("reject", {"reason": "x" * 1_001}),
    ],
)
def test_an_order_that_cannot_be_settles_nothing(shared: Driver, name: str, verb: Verb, fields: dict[str, Any]) -> None:
    filled(shared, name, "a", "b")
    member = Member(shared, name)
    messages = member.poll()
    for some in (messages, messages[:1]):
        with refusal("invalid_request"):
            member.try_to(verb, some, **fields)
    assert in_flight(shared, name) == 2
    member.ack(*messages)
