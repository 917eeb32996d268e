"""Messages in the order of their keys, and messages that are too old to be delivered."""

from __future__ import annotations

from behaviour.driver import Driver
from behaviour.member import WAIT_MS, Member, filled, letters, publish, values
from behaviour.waiting import until
from goqueue.model.publishing import NewMessage

# By key


def keyed(driver: Driver, topic: str, *texts: str) -> None:
    """The first letter is the key."""
    driver.publish(topic, [NewMessage(text.encode(), key=text[:1].encode()) for text in texts])


def test_of_each_key_one_message_is_in_flight_at_a_time_in_order(shared: Driver, name: str) -> None:
    filled(shared, name)
    keyed(shared, name, "a1", "a2", "b1", "a3", "b2", "c1")
    one, other = Member(shared, name, kind="shared", ordering="key"), Member(shared, name)
    first = one.poll()
    assert values(first) == [b"a1", b"b1", b"c1"]
    assert other.poll() == []
    one.ack(first[0])
    (a2,) = other.poll()
    assert a2.value == b"a2"
    assert one.poll() == []
    other.ack(a2)
    one.ack(first[1])
    assert sorted(message.value or b"" for message in one.poll()) == [b"a3", b"b2"]


def test_messages_without_a_key_wait_for_nobody(shared: Driver, name: str) -> None:
    filled(shared, name, *"abc")
    assert len(Member(shared, name, kind="shared", ordering="key").poll()) == 3


def test_a_message_that_waits_for_its_retry_blocks_its_key_and_no_other(timed: Driver, name: str) -> None:
    filled(timed, name)
    keyed(timed, name, "a1", "a2", "b1", "b2")
    member = Member(timed, name, kind="shared", ordering="key")
    a1, b1 = member.poll()
    member.nack(a1, delay_ms=5_000)
    member.ack(b1)
    assert values(member.poll()) == [b"b2"]
    timed.let_pass(5_000)
    (again,) = member.poll()
    assert (again.value, again.deliveries) == (b"a1", 2)
    member.ack(again)
    assert values(member.poll()) == [b"a2"]


def test_a_message_whose_time_is_over_comes_before_the_next_of_its_key(timed: Driver, name: str) -> None:
    filled(timed, name)
    keyed(timed, name, "a1", "a2")
    member = Member(timed, name, kind="shared", ordering="key")
    member.next()
    timed.let_pass(30_000)
    assert values(member.poll()) == [b"a1"]


def test_a_poison_message_blocks_its_key_only_until_it_is_a_dead_letter(shared: Driver, name: str) -> None:
    filled(shared, name)
    keyed(shared, name, "a1", "a2")
    member = Member(shared, name, kind="shared", ordering="key", max_retries=1)
    for _ in range(2):
        message = member.next()
        assert message.value == b"a1"
        member.nack(message, delay_ms=0)
    assert member.next().value == b"a2"
    assert [letter.value for letter in letters(shared, name, 1)] == [b"a1"]


def test_a_poll_that_waits_is_answered_when_a_key_is_free(shared: Driver, name: str) -> None:
    filled(shared, name)
    keyed(shared, name, "a1", "a2")
    member, other = Member(shared, name, kind="shared", ordering="key"), Member(shared, name)
    a1 = member.next()
    waiting = shared.background(other.poll, 1, WAIT_MS)
    until(lambda: shared.waiting_polls(name) == 1)
    member.ack(a1)
    assert values(waiting.result()) == [b"a2"]


def test_a_commit_frees_the_keys_of_what_it_acks(shared: Driver, name: str) -> None:
    filled(shared, name)
    keyed(shared, name, "a1", "a2")
    member = Member(shared, name, kind="shared", ordering="key")
    member.next()
    member.commit(name, {0: 2})
    assert shared.groups.offsets(name) == {name: {0: 1}}
    assert values(member.poll()) == [b"a2"]


def test_after_a_reset_keys_are_in_order_again(shared: Driver, name: str) -> None:
    filled(shared, name)
    keyed(shared, name, "a1", "a2", "a3")
    member = Member(shared, name, kind="shared", ordering="key")
    member.ack(member.next())
    member.next()
    shared.groups.reset(name, name, to="earliest")
    assert [values(member.poll()) for _ in range(2)] == [[b"a1"], []]


def test_each_partition_has_keys_of_its_own(shared: Driver, name: str) -> None:
    filled(shared, name, partitions=2)
    for number in range(2):
        publish(shared, name, "first", "second", key=b"k", partition=number)
    member = Member(shared, name, kind="range", ordering="key")
    assert values(member.poll()) == [b"first", b"first"]


# Time to live


def old(driver: Driver, topic: str, text: str, ttl_ms: int | None = None) -> None:
    """Stamped with the broker's own time."""
    driver.publish_one(topic, text.encode(), ttl_ms=ttl_ms, timestamp_ns=driver.clock.now_ns(), partition=0)


def test_a_message_that_expired_before_a_group_got_it_is_skipped(timed: Driver, name: str) -> None:
    filled(timed, name)
    old(timed, name, "short", ttl_ms=1_000)
    old(timed, name, "long", ttl_ms=60_000)
    old(timed, name, "for ever")
    before = timed.groups.stats()["expired"]
    timed.let_pass(1_000)
    assert values(Member(timed, name).poll()) == [b"long", b"for ever"]
    assert timed.groups.offsets(name) == {name: {0: 1}}
    assert timed.groups.stats()["expired"] == before + 1
    assert len(timed.read(name).messages) == 3


def test_a_message_is_delivered_up_to_the_end_of_its_time(timed: Driver, name: str) -> None:
    filled(timed, name)
    old(timed, name, "a", ttl_ms=1_000)
    timed.let_pass(999)
    assert values(Member(timed, name).poll()) == [b"a"]


def test_a_message_that_was_delivered_in_time_is_tried_again_however_late(timed: Driver, name: str) -> None:
    filled(timed, name)
    old(timed, name, "a", ttl_ms=1_000)
    member = Member(timed, name)
    member.nack(member.next(), delay_ms=10_000)
    timed.let_pass(10_000)
    assert member.next().deliveries == 2


def test_the_topics_time_to_live_is_for_messages_without_one(timed: Driver, name: str) -> None:
    filled(timed, name, message_ttl_ms=1_000)
    old(timed, name, "by the topic")
    old(timed, name, "by itself", ttl_ms=60_000)
    timed.let_pass(1_000)
    assert values(Member(timed, name).poll()) == [b"by itself"]


def test_a_stream_passes_by_what_has_expired(timed: Driver, name: str) -> None:
    filled(timed, name)
    old(timed, name, "short", ttl_ms=1_000)
    old(timed, name, "for ever")
    timed.let_pass(1_000)
    assert values(Member(timed, name, mode="stream").poll()) == [b"for ever"]


def test_an_expired_message_becomes_a_dead_letter_if_the_topic_says_so(timed: Driver, name: str) -> None:
    filled(timed, name, expired_messages="dead_letter")
    old(timed, name, "a", ttl_ms=1_000)
    timed.let_pass(1_000)
    member = Member(timed, name)
    assert member.poll() == []
    (letter,) = letters(timed, name, 1)
    assert (letter.value, letter.group, letter.deliveries) == (b"a", name, 0)
    assert "time to live" in letter.error
    until(lambda: timed.groups.offsets(name) == {name: {0: 1}})


def test_what_expires_while_it_waits_for_its_key_is_skipped(timed: Driver, name: str) -> None:
    filled(timed, name)
    for text, ttl_ms in (("a1", None), ("a2", 1_000), ("a3", None)):
        timed.publish_one(name, text.encode(), key=b"a", ttl_ms=ttl_ms, timestamp_ns=timed.clock.now_ns())
    member = Member(timed, name, kind="shared", ordering="key")
    a1 = member.next()
    assert member.poll() == []
    timed.let_pass(1_000)
    member.ack(a1)
    assert member.next().value == b"a3"
