"""What a group knows after the broker was restarted: everything. And what those are told who wait when it stops."""

from __future__ import annotations

from collections.abc import Callable

from behaviour.clock import ManualClock
from behaviour.driver import Driver
from behaviour.groups import Wanted
from behaviour.member import WAIT_MS, Member, filled, letters, publish, refusal, values
from behaviour.waiting import until

Start = Callable[..., Driver]


def test_members_and_what_they_have_are_kept(start: Start) -> None:
    driver = start()
    filled(driver, "t", partitions=4)
    members = [Member(driver, "g", "t", kind="sticky", max_retries=7, instance_id=f"i-{each}") for each in range(2)]
    for member in members:
        member.heartbeat()
    before = driver.groups.describe("g")
    driver.restart()
    assert driver.groups.describe("g") == before
    assert [member.heartbeat().generation for member in members] == [before.generation] * 2


def test_a_kind_that_was_changed_is_kept(start: Start) -> None:
    driver = start()
    filled(driver, "t", "a", "b")
    Member(driver, "g", "t").leave()
    driver.groups.configure("g", kind="shared")
    driver.restart()
    assert driver.groups.describe("g").settings["kind"] == "shared"
    assert [Member(driver, "g", "t").next().value for _ in range(2)] == [b"a", b"b"]


def test_acks_and_delivery_counts_and_receipts_are_kept(start: Start) -> None:
    driver = start()
    filled(driver, "t", *"abcd")
    member = Member(driver, "g", "t")
    a, b, c, _ = member.poll()
    member.ack(a, c)
    member.nack(b, delay_ms=0)
    b = member.next()
    before = driver.groups.describe("g")
    driver.restart()
    assert driver.groups.describe("g") == before
    assert member.poll() == []
    # A receipt from before holds: the message was not delivered again.
    member.nack(b, delay_ms=0)
    again = member.next()
    assert (again.value, again.deliveries) == (b"b", 3)
    assert member.try_to("ack", [b]) == ["stale_receipt"]
    assert driver.groups.offsets("g") == {"t": {0: 1}}


def test_times_that_messages_wait_for_are_kept(start: Start) -> None:
    clock = ManualClock()
    driver = start(clock=clock)
    driver.create_topic("t", partitions=1)
    for text in ("hidden", "nacked"):
        publish(driver, "t", text, timestamp_ns=clock.now_ns())
    member = Member(driver, "g", "t", visibility_timeout_ms=20_000)
    _, nacked = member.poll()
    member.nack(nacked, delay_ms=10_000)
    driver.restart()
    driver.let_pass(9_999)
    assert member.poll() == []
    driver.let_pass(1)
    assert values(member.poll()) == [b"nacked"]
    driver.let_pass(10_000)
    assert [(message.value, message.deliveries) for message in member.poll()] == [(b"hidden", 2)]


def test_a_stream_goes_on_where_it_was_committed(start: Start) -> None:
    driver = start()
    filled(driver, "t", *"abc")
    member = Member(driver, "g", "t", mode="stream")
    member.poll()
    member.commit("t", {0: 1})
    driver.restart()
    assert driver.groups.offsets("g") == {"t": {0: 1}}
    assert values(member.poll()) == [b"b", b"c"]


def test_a_fenced_member_stays_fenced_and_one_that_left_unknown(start: Start) -> None:
    driver = start()
    filled(driver, "t")
    old, gone = Member(driver, "g", "t", instance_id="one"), Member(driver, "g", "t")
    Member(driver, "g", "t", instance_id="one")
    gone.leave()
    driver.restart()
    with refusal("member_fenced"):
        old.heartbeat()
    with refusal("unknown_member"):
        gone.heartbeat()


def test_a_deleted_group_stays_deleted(start: Start) -> None:
    driver = start()
    filled(driver, "t")
    Member(driver, "g", "t").leave()
    Member(driver, "gone", "t").leave()
    driver.groups.delete("gone")
    driver.restart()
    assert driver.groups.names() == ["g"]


def test_a_reset_stays_in_force(start: Start) -> None:
    driver = start()
    filled(driver, "t", *"abc")
    member = Member(driver, "g", "t")
    before = member.poll()
    driver.groups.reset("g", "t", offset=1)
    driver.restart()
    assert member.try_to("ack", before[1:]) == ["stale_receipt"] * 2
    assert [(message.value, message.deliveries) for message in member.poll()] == [(b"b", 1), (b"c", 1)]


def test_keys_stay_in_order(start: Start) -> None:
    driver = start()
    filled(driver, "t")
    publish(driver, "t", "k1", "k2", key=b"k")
    publish(driver, "t", "l1", key=b"l")
    member = Member(driver, "g", "t", kind="shared", ordering="key")
    first, _ = member.poll()
    driver.restart()
    assert member.poll() == []
    member.ack(first)
    assert values(member.poll()) == [b"k2"]


def test_stopping_the_broker_answers_those_who_wait_with_nothing(start: Start) -> None:
    driver = start()
    filled(driver, "t")
    member = Member(driver, "g", "t")
    waiting = driver.background(member.poll, 1, WAIT_MS)
    until(lambda: driver.waiting_polls("g") == 1)
    driver.host.begin_stop()
    assert waiting.result(WAIT_MS / 4_000) == []


def test_dead_letters_are_kept_and_what_was_redriven_is_not_sent_again(start: Start) -> None:
    driver = start()
    filled(driver, "t", "a", "b")
    member = Member(driver, "g", "t")
    member.reject(*member.poll(), reason="no")
    first, _ = letters(driver, "t", 2)
    assert driver.groups.redrive("t", Wanted(messages=[(first.partition, first.offset)])).redriven == 1
    before = driver.groups.dead_letters("t")
    driver.restart()
    assert driver.groups.dead_letters("t") == before
    report = driver.groups.redrive("t")
    assert (report.redriven, report.already) == (1, 1)
    assert values(member.poll()) == [b"a", b"b"]
