"""Delayed messages: seen when their time has come, once, by everyone; and what can be done until then."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from behaviour.clock import MS, ManualClock
from behaviour.driver import Driver, Refused, Stored
from behaviour.member import WAIT_MS, Member, filled, publish, refusal, values
from behaviour.waiting import until
from goqueue.model.publishing import NewMessage

TICK_MS = 10
"""How much later than its time a message may be seen."""
_YEAR_2201_NS = 7_289_654_400 * 10**9

Start = Callable[..., Driver]


def delayed(driver: Driver, topic: str, text: str, delay_ms: int = 1_000, **fields: Any) -> Stored:
    """In partition 0 unless told otherwise."""
    return driver.publish_one(topic, text.encode(), **{"partition": 0, "delay_ms": delay_ms, **fields})


def seen(driver: Driver, topic: str, partition: int = 0) -> list[bytes | None]:
    return driver.read(topic, partition).values


# Becoming visible


@pytest.mark.parametrize("kind", ["delay", "instant"])
def test_a_delayed_message_is_seen_once_and_not_before_its_time(timed: Driver, name: str, kind: str) -> None:
    filled(timed, name)
    due_ns = timed.clock.now_ns() + 1_000 * MS
    when = {"delay_ms": 1_000} if kind == "delay" else {"deliver_at_ns": due_ns}
    stored = timed.publish_one(name, b"later", **when)
    publish(timed, name, "now")
    assert (stored.offset, stored.deliver_at_ns) == (0, due_ns)
    assert seen(timed, name) == [b"now"]
    timed.let_pass(999)
    assert seen(timed, name) == [b"now"]
    timed.let_pass(1 + TICK_MS)
    assert seen(timed, name) == [b"now", b"later"]
    timed.let_pass(600_000)
    assert seen(timed, name) == [b"now", b"later"]


@pytest.mark.parametrize("when", ["zero", "the past", "long ago", "this moment"])
def test_what_need_not_wait_is_a_plain_message(timed: Driver, name: str, when: str) -> None:
    filled(timed, name)
    now_ns = timed.clock.now_ns()
    given = {
        "zero": {"delay_ms": 0},
        "the past": {"deliver_at_ns": now_ns - 1},
        "long ago": {"deliver_at_ns": 1},
        "this moment": {"deliver_at_ns": now_ns},
    }[when]
    stored = timed.publish_one(name, b"v", headers=(("mine", b"1"),), **given)
    assert stored.deliver_at_ns is None
    (got,) = timed.read(name).messages
    assert (got.offset, got.value, got.headers) == (stored.offset, b"v", (("mine", b"1"),))
    assert timed.delays.page(name).total == 0


def test_what_is_delivered_is_the_message_at_a_new_place_with_the_time_at_which_it_came(
    timed: Driver, name: str
) -> None:
    filled(timed, name, "before")
    written_ns = timed.clock.now_ns() - 5_000 * MS
    given = {"key": b"ada", "headers": (("shop", b"north"),), "priority": 1, "timestamp_ns": written_ns}
    stored = delayed(timed, name, "later", 1_000, **given)
    timed.let_pass(1_000 + TICK_MS)
    _, got = timed.read(name).messages
    assert (got.key, got.value, got.priority) == (b"ada", b"later", "high")
    assert got.offset > stored.offset
    assert got.timestamp_ns == timed.clock.now_ns()
    assert dict(got.headers) == {
        "shop": b"north",
        "goqueue-delayed-offset": b"%d" % stored.offset,
        "goqueue-delayed-timestamp": b"%d" % written_ns,
    }
    assert [each.value for each in timed.read(name, from_time_ns=timed.clock.now_ns()).messages] == [b"later"]


def test_a_tombstone_can_be_delayed(timed: Driver, name: str) -> None:
    filled(timed, name)
    stored = timed.publish_one(name, None, key=b"ada", delay_ms=1_000)
    assert timed.delays.get(name, stored.partition, stored.offset).key == b"ada"
    timed.let_pass(1_000 + TICK_MS)
    (got,) = timed.read(name).messages
    assert (got.key, got.value) == (b"ada", None)


def test_messages_come_in_the_order_of_their_times(timed: Driver, name: str) -> None:
    filled(timed, name)
    for text, delay_ms in (("third", 3_000), ("first", 1_000), ("second", 2_000)):
        delayed(timed, name, text, delay_ms)
    for expected in ([b"first"], [b"first", b"second"], [b"first", b"second", b"third"]):
        timed.let_pass(1_000 + TICK_MS)
        assert seen(timed, name) == expected


def test_many_due_at_once_each_come_once(timed: Driver, name: str) -> None:
    timed.create_topic(name, partitions=2)
    texts = [b"%d" % number for number in range(400)]
    messages = [
        NewMessage(text, partition=number % 2, delay_ms=1_000 + number % 7) for number, text in enumerate(texts)
    ]
    assert not [each for each in timed.publish(name, messages) if isinstance(each, Refused)]
    timed.let_pass(1_010 + TICK_MS)
    found = [value for partition in (0, 1) for value in timed.read(name, partition, limit=1_000).values]
    assert sorted(found, key=lambda value: int(value or b"")) == texts
    assert timed.delays.page(name).total == 0


def test_a_batch_may_hold_some_that_are_delayed_and_some_that_are_not(timed: Driver, name: str) -> None:
    filled(timed, name)
    now_ns = timed.clock.now_ns()
    results = timed.publish(
        name,
        [
            NewMessage(b"a", partition=0),
            NewMessage(b"b", partition=0, delay_ms=2_000),
            NewMessage(b"c", partition=0, deliver_at_ns=now_ns - 1),
            NewMessage(b"d", partition=0, delay_ms=1_000),
        ],
    )
    assert [each.deliver_at_ns for each in results if isinstance(each, Stored)] == [
        None,
        now_ns + 2_000 * MS,
        None,
        now_ns + 1_000 * MS,
    ]
    assert seen(timed, name) == [b"a", b"c"]
    timed.let_pass(2_000 + TICK_MS)
    assert seen(timed, name) == [b"a", b"c", b"d", b"b"]


def test_the_time_to_live_of_a_delayed_message_begins_when_it_is_seen(timed: Driver, name: str) -> None:
    filled(timed, name)
    member = Member(timed, name)
    delayed(timed, name, "in time", 5_000, ttl_ms=1_000)
    timed.let_pass(5_000 + TICK_MS)
    timed.let_pass(900)
    assert values(member.poll()) == [b"in time"]
    delayed(timed, name, "too late", 5_000, ttl_ms=1_000)
    timed.let_pass(5_000 + TICK_MS)
    timed.let_pass(1_000)
    assert member.poll() == []


# Who sees it


def test_a_queue_that_has_passed_the_message_gets_it_once_and_lag_counts_it_only_then(timed: Driver, name: str) -> None:
    filled(timed, name, "a")
    delayed(timed, name, "later")
    publish(timed, name, "b")
    member = Member(timed, name)
    assert timed.groups.describe(name).lag[0].lag == 2
    first = member.poll()
    assert values(first) == [b"a", b"b"]
    member.ack(*first)
    (lag,) = timed.groups.describe(name).lag
    assert (lag.lag, lag.committed) == (0, 3)
    timed.let_pass(1_000 + TICK_MS)
    assert timed.groups.describe(name).lag[0].lag == 1
    (again,) = member.poll()
    assert (again.value, again.deliveries) == (b"later", 1)
    member.ack(again)
    assert member.poll() == []
    (lag,) = timed.groups.describe(name).lag
    assert (lag.lag, lag.committed) == (0, lag.latest)


def test_a_stream_that_has_passed_the_message_gets_it_once(timed: Driver, name: str) -> None:
    filled(timed, name, "a")
    delayed(timed, name, "later")
    publish(timed, name, "b")
    member = Member(timed, name, mode="stream")
    assert values(member.poll()) == [b"a", b"b"]
    member.commit(name, {0: 3})
    assert timed.groups.describe(name).lag[0].lag == 0
    assert member.poll() == []
    timed.let_pass(1_000 + TICK_MS)
    assert timed.groups.describe(name).lag[0].lag == 1
    (got,) = member.poll()
    assert got.value == b"later"
    assert member.poll() == []
    member.commit(name, {0: got.offset + 1})
    assert timed.groups.describe(name).lag[0].lag == 0


def test_queues_streams_and_readers_all_get_it_once(timed: Driver, name: str) -> None:
    filled(timed, name)
    members = [Member(timed, f"{name}-{mode}", name, mode=mode) for mode in ("queue", "stream")]
    late = Member(timed, f"{name}-shared", name, kind="shared")
    delayed(timed, name, "later")
    assert [each.poll() for each in (*members, late)] == [[], [], []]
    timed.let_pass(1_000 + TICK_MS)
    assert [values(each.poll()) for each in (*members, late)] == [[b"later"]] * 3
    assert [each.poll() for each in (*members, late)] == [[], [], []]
    assert seen(timed, name) == [b"later"]


@pytest.mark.parametrize("mode", ["queue", "stream"])
def test_whoever_polls_meanwhile_is_woken(timed: Driver, name: str, mode: str) -> None:
    filled(timed, name)
    delayed(timed, name, "later")
    member = Member(timed, name, mode=mode)
    polling = timed.background(member.poll, 10, WAIT_MS)
    until(lambda: timed.waiting_polls(name) == 1)
    timed.let_pass(1_000 + TICK_MS)
    assert values(polling.result(20)) == [b"later"]


def test_a_reader_at_a_tail_of_delayed_messages_gets_each_when_its_time_has_come(timed: Driver, name: str) -> None:
    filled(timed, name, "a")
    for number in range(3):
        delayed(timed, name, f"later {number}")
    page = timed.read(name)
    assert (page.values, page.next_offset, page.high_watermark) == ([b"a"], page.next_offset, 4)
    at_the_end = timed.read(name, offset=page.next_offset)
    assert (at_the_end.values, at_the_end.next_offset) == ([], 4)
    reading = timed.background(timed.read, name, offset=page.next_offset, wait_ms=WAIT_MS)
    until(lambda: timed.waiting_readers(name, 0) == 1)
    delayed(timed, name, "much later", 60_000)
    until(lambda: timed.waiting_readers(name, 0) == 1)
    assert not reading.done()
    timed.let_pass(1_000 + TICK_MS)
    found = reading.result(20)
    assert found.values == [b"later 0", b"later 1", b"later 2"]
    assert timed.read(name, offset=found.next_offset).values == []


def test_a_message_with_a_lane_comes_into_its_lane(timed: Driver, name: str) -> None:
    filled(timed, name)
    member = Member(timed, name)
    delayed(timed, name, "urgent", priority=0)
    publish(timed, name, *(f"{number}" for number in range(20)))
    assert values(member.poll(1)) == [b"0"]
    timed.let_pass(1_000 + TICK_MS)
    assert values(member.poll(1)) == [b"urgent"]
    assert values(member.poll(1)) == [b"1"]


# Looking


def test_what_waits_is_listed_by_time_page_by_page(timed: Driver, name: str) -> None:
    timed.create_topic(name, partitions=2)
    now_ns = timed.clock.now_ns()
    places = {}
    for text, partition, delay_ms in (("c", 0, 3_000), ("a", 1, 1_000), ("d", 0, 3_000), ("b", 0, 2_000)):
        stored = delayed(timed, name, text, delay_ms, partition=partition, key=text.encode())
        places[text.encode()] = (stored.partition, stored.offset, now_ns + delay_ms * MS)
    page = timed.delays.page(name, 3)
    assert [each.key for each in page.messages] == [b"a", b"b", b"c"]
    assert page.total == 4
    last = timed.delays.page(name, 3, page.next)
    assert ([each.key for each in last.messages], last.next) == ([b"d"], None)
    for each in (*page.messages, *last.messages):
        assert each.key is not None
        assert (each.partition, each.offset, each.deliver_at_ns) == places[each.key]
    with refusal("invalid_request"):
        timed.delays.page(name, 3, "nonsense")


def test_one_that_waits_is_shown_as_its_producer_gave_it(timed: Driver, name: str) -> None:
    filled(timed, name)
    written_ns = timed.clock.now_ns() - 5 * MS
    given = {"key": b"ada", "headers": (("shop", b"north"),), "priority": 4, "timestamp_ns": written_ns}
    stored = delayed(timed, name, "text", 7_000, **given)
    found = timed.delays.get(name, 0, stored.offset)
    assert (found.key, found.value, found.headers, found.priority) == (
        b"ada",
        b"text",
        (("shop", b"north"),),
        "background",
    )
    assert (found.timestamp_ns, found.deliver_at_ns) == (written_ns, timed.clock.now_ns() + 7_000 * MS)


def test_what_does_not_wait_is_not_found(timed: Driver, name: str) -> None:
    filled(timed, name, "plain")
    for work in (timed.delays.get, timed.delays.cancel):
        for offset in (0, 1, 10**9):
            with refusal("delayed_not_found"):
                work(name, 0, offset)
        with refusal("partition_not_found"):
            work(name, 7, 0)
        with refusal("topic_not_found"):
            work("nowhere", 0, 0)
    with refusal("delayed_not_found"):
        timed.delays.reschedule(name, 0, 0, delay_ms=1_000)
    with refusal("topic_not_found"):
        timed.delays.page("nowhere")


# Changing


def test_a_cancelled_message_is_never_seen_and_cannot_be_cancelled_again(timed: Driver, name: str) -> None:
    filled(timed, name)
    gone, kept = delayed(timed, name, "gone"), delayed(timed, name, "kept")
    member = Member(timed, name)
    timed.delays.cancel(name, 0, gone.offset)
    with refusal("delayed_not_found"):
        timed.delays.cancel(name, 0, gone.offset)
    with refusal("delayed_not_found"):
        timed.delays.reschedule(name, 0, gone.offset, delay_ms=1)
    assert timed.delays.page(name).offsets == [kept.offset]
    timed.let_pass(1_000 + TICK_MS)
    assert seen(timed, name) == [b"kept"]
    assert values(member.poll()) == [b"kept"]
    with refusal("delayed_not_found"):
        timed.delays.cancel(name, 0, kept.offset)


@pytest.mark.parametrize("kind", ["delay", "instant"])
def test_a_message_can_be_put_off_and_brought_forward(timed: Driver, name: str, kind: str) -> None:
    filled(timed, name)
    one, other = delayed(timed, name, "one", 10_000), delayed(timed, name, "other", 10_000)

    def move(offset: int, milliseconds: int) -> None:
        due_ns = timed.clock.now_ns() + milliseconds * MS
        when = {"delay_ms": milliseconds} if kind == "delay" else {"deliver_at_ns": due_ns}
        assert timed.delays.reschedule(name, 0, offset, **when) == due_ns
        assert timed.delays.get(name, 0, offset).deliver_at_ns == due_ns

    move(one.offset, 20_000)
    move(other.offset, 1_000)
    assert timed.delays.page(name).offsets == [other.offset, one.offset]
    timed.let_pass(1_000 + TICK_MS)
    assert seen(timed, name) == [b"other"]
    timed.let_pass(10_000)
    assert seen(timed, name) == [b"other"]
    timed.let_pass(9_000)
    assert seen(timed, name) == [b"other", b"one"]


@pytest.mark.parametrize("when", [{"delay_ms": 0}, {"deliver_at_ns": 1}])
def test_a_message_that_is_moved_to_the_past_is_seen_now(timed: Driver, name: str, when: dict[str, int]) -> None:
    filled(timed, name)
    stored = delayed(timed, name, "later", 3_600_000)
    timed.delays.reschedule(name, 0, stored.offset, **when)
    timed.let_pass(TICK_MS)
    assert seen(timed, name) == [b"later"]
    timed.let_pass(3_600_000)
    assert seen(timed, name) == [b"later"]


def test_moving_a_message_needs_a_time(timed: Driver, name: str) -> None:
    filled(timed, name)
    stored = delayed(timed, name, "later")
    with refusal("invalid_request"):
        timed.delays.reschedule(name, 0, stored.offset)


def test_what_became_of_delayed_messages_is_counted(timed: Driver, name: str) -> None:
    filled(timed, name)
    before = timed.delays.counts()
    stored = [delayed(timed, name, f"{number}", 2_000 + number) for number in range(4)]
    timed.delays.cancel(name, 0, stored[0].offset)
    timed.delays.reschedule(name, 0, stored[1].offset, delay_ms=100)
    counts = timed.delays.counts()
    assert counts.pending == before.pending + 3
    assert counts.next_due_ns is not None
    assert counts.next_due_ns <= timed.clock.now_ns() + 100 * MS
    timed.let_pass(2_010 + TICK_MS)
    counts = timed.delays.counts()
    assert counts.cancelled == before.cancelled + 1
    assert counts.rescheduled == before.rescheduled + 1
    assert counts.delivered >= before.delivered + 3
    assert counts.lost == before.lost
    assert timed.delays.page(name).total == 0


# What is refused


def test_a_message_has_a_delay_or_an_instant_and_not_both(timed: Driver, name: str) -> None:
    filled(timed, name)
    message = NewMessage(b"v", delay_ms=1_000, deliver_at_ns=timed.clock.now_ns())
    (result,) = timed.publish(name, [message])
    assert isinstance(result, Refused)
    assert result.code == "invalid_message"


def test_what_is_due_too_late_is_refused_and_its_neighbours_are_stored(timed: Driver, name: str) -> None:
    filled(timed, name)
    results = timed.publish(
        name,
        [
            NewMessage(b"a", partition=0, delay_ms=1_000),
            NewMessage(b"never", partition=0, deliver_at_ns=_YEAR_2201_NS),
            NewMessage(b"b", partition=0),
        ],
    )
    assert [each.code if isinstance(each, Refused) else None for each in results] == [None, "invalid_message", None]
    timed.let_pass(1_000 + TICK_MS)
    assert seen(timed, name) == [b"b", b"a"]


def test_headers_of_a_delayed_message_leave_room_for_those_that_it_gets(timed: Driver, name: str) -> None:
    filled(timed, name)
    large = (("h", b"x" * 65_450),)
    timed.publish_one(name, b"plain", headers=large)
    (result,) = timed.publish(name, [NewMessage(b"later", headers=large, delay_ms=1_000)])
    assert isinstance(result, Refused)
    assert result.code == "message_too_large"
    nearly = (("h", b"x" * 65_300),)
    timed.publish_one(name, b"later", headers=nearly, delay_ms=1_000)
    timed.let_pass(1_000 + TICK_MS)
    assert seen(timed, name) == [b"plain", b"later"]


def test_no_more_wait_than_the_broker_allows(start: Start, name: str) -> None:
    driver = start(clock=ManualClock(time.time_ns()), limits={"max_delayed": 2})
    filled(driver, name)
    first, _ = (delayed(driver, name, f"{number}", 60_000) for number in range(2))
    (result,) = driver.publish(name, [NewMessage(b"one too many", partition=0, delay_ms=60_000)])
    assert isinstance(result, Refused)
    assert (result.code, result.retriable) == ("too_many_delayed", False)
    publish(driver, name, "plain")
    assert seen(driver, name) == [b"plain"]
    driver.delays.cancel(name, 0, first.offset)
    delayed(driver, name, "in its place", 60_000)
    assert driver.delays.counts().pending == 2


# Lasting


def test_what_waits_survives_a_restart_and_comes_once(start: Start, name: str) -> None:
    driver = start(clock=ManualClock(time.time_ns()))
    filled(driver, name, "a")
    soon, late = delayed(driver, name, "soon", 5_000), delayed(driver, name, "late", 60_000)
    gone, moved = delayed(driver, name, "gone", 5_000), delayed(driver, name, "moved", 60_000)
    driver.delays.cancel(name, 0, gone.offset)
    driver.delays.reschedule(name, 0, moved.offset, delay_ms=5_000)
    driver.restart()
    assert driver.delays.page(name).offsets == [soon.offset, moved.offset, late.offset]
    assert seen(driver, name) == [b"a"]
    driver.let_pass(5_000 + TICK_MS)
    assert sorted(seen(driver, name), key=str) == [b"a", b"moved", b"soon"]
    driver.restart()
    driver.let_pass(1_000)
    assert sorted(seen(driver, name), key=str) == [b"a", b"moved", b"soon"]
    driver.let_pass(60_000)
    assert seen(driver, name)[-1] == b"late"
    assert len(seen(driver, name)) == 4


def test_what_came_due_while_the_broker_was_away_comes_when_it_is_back(start: Start, name: str) -> None:
    driver = start(clock=ManualClock(time.time_ns()))
    filled(driver, name)
    member = Member(driver, name)
    for number in range(3):
        delayed(driver, name, f"{number}", 10_000 + number)
    driver.let_pass(9_000)
    assert member.poll() == []
    driver.restart(away_ms=60_000)
    until(lambda: len(seen(driver, name)) == 3)
    assert seen(driver, name) == [b"0", b"1", b"2"]
    assert values(member.poll()) == [b"0", b"1", b"2"]
    assert driver.delays.page(name).total == 0
    driver.restart(away_ms=60_000)
    assert len(seen(driver, name)) == 3


def test_a_topic_takes_what_waits_with_it(timed: Driver, name: str) -> None:
    filled(timed, name)
    before = timed.delays.counts().pending
    delayed(timed, name, "later")
    assert timed.delays.counts().pending == before + 1
    timed.delete_topic(name)
    assert timed.delays.counts().pending == before
    with refusal("topic_not_found"):
        timed.delays.page(name)
    filled(timed, name)
    timed.let_pass(1_000 + TICK_MS)
    assert seen(timed, name) == []
    assert timed.delays.page(name).total == 0
