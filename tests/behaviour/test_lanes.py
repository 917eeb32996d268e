"""Priority lanes: in what order a queue is served, and what stays as it is."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from behaviour.clock import ManualClock
from behaviour.driver import Driver, Refused
from behaviour.groups import Polled
from behaviour.member import Member, filled, publish, values
from goqueue.model.message import PRIORITY_LABELS
from goqueue.model.publishing import NewMessage

TICK_MS = 10
CRITICAL, HIGH, NORMAL, LOW, BACKGROUND = range(5)
WEIGHTS = {"critical": 50, "high": 25, "normal": 15, "low": 7, "background": 3}

Start = Callable[..., Driver]


def publish_lanes(driver: Driver, topic: str, counts: Sequence[int], partition: int = 0) -> None:
    """So many of each lane, the least urgent first; each tells which it is."""
    for lane in range(4, -1, -1):
        texts = [f"{PRIORITY_LABELS[lane]} {number}" for number in range(counts[lane])]
        if texts:
            publish(driver, topic, *texts, priority=lane, partition=partition)


def lanes_of(messages: Sequence[Polled]) -> list[str]:
    return [message.priority for message in messages]


# In what order


def test_one_poll_serves_the_most_urgent_first_and_each_lane_in_order(timed: Driver, name: str) -> None:
    filled(timed, name)
    publish_lanes(timed, name, [2, 2, 2, 2, 2])
    polled = Member(timed, name).poll(100)
    assert values(polled) == [f"{label} {number}".encode() for label in PRIORITY_LABELS for number in range(2)]


def test_lanes_share_a_poll_by_their_weights(timed: Driver, name: str) -> None:
    filled(timed, name)
    publish_lanes(timed, name, [60] * 5)
    polled = Member(timed, name).poll(100)
    assert Counter(lanes_of(polled)) == WEIGHTS


def test_lanes_share_many_small_polls_by_their_weights(timed: Driver, name: str) -> None:
    filled(timed, name)
    publish_lanes(timed, name, [60] * 5)
    member = Member(timed, name)
    polled = [message for _ in range(20) for message in member.poll(5)]
    assert Counter(lanes_of(polled)) == WEIGHTS


def test_a_lane_that_is_empty_leaves_its_part_to_the_others(timed: Driver, name: str) -> None:
    filled(timed, name)
    publish_lanes(timed, name, [0, 5, 0, 0, 60])
    polled = Member(timed, name).poll(50)
    assert Counter(lanes_of(polled)) == {"high": 5, "background": 45}


def test_the_weights_are_the_topics_own_and_can_be_changed(timed: Driver, name: str) -> None:
    even = dict.fromkeys([f"{label}_weight" for label in PRIORITY_LABELS], 1)
    filled(timed, name, **even)
    publish_lanes(timed, name, [30] * 5)
    member = Member(timed, name)
    polled = member.poll(25)
    assert Counter(lanes_of(polled)) == dict.fromkeys(PRIORITY_LABELS, 5)
    member.ack(*polled)
    timed.change_topic(name, background_weight=16)
    polled = member.poll(20)
    assert Counter(lanes_of(polled)) == {"critical": 1, "high": 1, "normal": 1, "low": 1, "background": 16}


def test_what_a_lane_got_while_it_was_alone_is_not_held_against_it(timed: Driver, name: str) -> None:
    filled(timed, name)
    member = Member(timed, name)
    publish(timed, name, *(f"{number}" for number in range(400)), priority=CRITICAL)
    publish(timed, name, "slow", priority=BACKGROUND)
    member.ack(*member.poll(401))
    publish(timed, name, *(f"slow {number}" for number in range(50)), priority=BACKGROUND)
    publish(timed, name, "now", priority=CRITICAL)
    assert values(member.poll(1)) == [b"now"]


@pytest.mark.parametrize("polled_before", [0, 10])
def test_a_critical_message_overtakes_the_whole_backlog(timed: Driver, name: str, polled_before: int) -> None:
    filled(timed, name)
    publish(timed, name, *(f"{number}" for number in range(500)), priority=BACKGROUND)
    member = Member(timed, name)
    if polled_before:
        assert len(member.poll(polled_before)) == polled_before
    publish(timed, name, "now", priority=CRITICAL)
    assert values(member.poll(1)) == [b"now"]
    following = member.poll(3)
    assert values(following) == [b"%d" % (polled_before + number) for number in range(3)]


def test_a_critical_message_is_first_from_whichever_partition_it_comes(timed: Driver, name: str) -> None:
    timed.create_topic(name, partitions=3)
    member = Member(timed, name)
    for turn in range(4):
        for partition in range(3):
            publish(timed, name, *(f"slow {n}" for n in range(20)), priority=LOW, partition=partition)
        publish(timed, name, f"now {turn}", priority=CRITICAL, partition=turn % 3)
        assert values(member.poll(1)) == [f"now {turn}".encode()]
        assert lanes_of(member.poll(2)) == ["low", "low"]


def test_what_comes_again_stays_in_its_lane(timed: Driver, name: str) -> None:
    filled(timed, name)
    publish_lanes(timed, name, [1, 0, 20, 0, 1])
    member = Member(timed, name)
    (critical,) = member.poll(1)
    assert critical.priority == "critical"
    member.nack(critical, delay_ms=1_000)
    (normal,) = member.poll(1)
    assert normal.priority == "normal"
    member.nack(normal, delay_ms=1_000)
    timed.let_pass(1_000 + TICK_MS)
    again = member.poll(2)
    assert [(each.value, each.priority, each.deliveries) for each in again] == [
        (b"critical 0", "critical", 2),
        (b"normal 0", "normal", 2),
    ]


def test_a_lane_that_got_nothing_for_long_comes_first_for_once(timed: Driver, name: str) -> None:
    filled(timed, name)
    publish_lanes(timed, name, [45, 0, 0, 0, 2])
    member = Member(timed, name)
    for _ in range(10):
        (message,) = member.poll(1)
        assert message.priority == "critical"
        member.ack(message)
        timed.let_pass(2_900)
    (message,) = member.poll(1)
    assert message.priority == "critical"
    timed.let_pass(1_500)
    assert lanes_of(member.poll(1)) == ["background"]
    assert lanes_of(member.poll(1)) == ["critical"]


def test_how_long_a_lane_may_starve_is_the_topics_setting(timed: Driver, name: str) -> None:
    filled(timed, name, lane_starvation_ms=2_000)
    publish_lanes(timed, name, [45, 0, 0, 0, 2])
    member = Member(timed, name)
    assert lanes_of(member.poll(1)) == ["critical"]
    timed.let_pass(1_900)
    assert lanes_of(member.poll(1)) == ["critical"]
    timed.let_pass(200)
    assert lanes_of(member.poll(1)) == ["background"]


# What stays as it is


def test_reading_by_offset_is_in_offset_order(timed: Driver, name: str) -> None:
    filled(timed, name)
    publish_lanes(timed, name, [2] * 5)
    page = timed.read(name)
    assert page.offsets == list(range(10))
    assert [message.priority for message in page.messages] == [
        label for label in reversed(PRIORITY_LABELS) for _ in range(2)
    ]


def test_a_stream_is_in_offset_order(timed: Driver, name: str) -> None:
    filled(timed, name)
    publish_lanes(timed, name, [2] * 5)
    polled = Member(timed, name, mode="stream").poll(100)
    assert [message.offset for message in polled] == list(range(10))
    assert lanes_of(polled) == [label for label in reversed(PRIORITY_LABELS) for _ in range(2)]


def test_keys_are_in_order_within_each_lane(timed: Driver, name: str) -> None:
    filled(timed, name)
    for text, lane in (("n1", NORMAL), ("c1", CRITICAL), ("n2", NORMAL), ("c2", CRITICAL)):
        publish(timed, name, text, priority=lane, key=b"ada")
    member = Member(timed, name, ordering="key")
    critical, normal = member.poll(10)
    assert values([critical, normal]) == [b"c1", b"n1"]
    assert member.poll(10) == []
    member.ack(normal)
    assert values(member.poll(10)) == [b"n2"]
    member.ack(critical)
    assert values(member.poll(10)) == [b"c2"]


# Done


def test_what_is_committed_is_what_all_lanes_have_done(timed: Driver, name: str) -> None:
    filled(timed, name)
    for text, lane in (("b", BACKGROUND), ("c", CRITICAL), ("n", NORMAL)):
        publish(timed, name, text, priority=lane)
    member = Member(timed, name)

    def standing() -> tuple[int, int, int]:
        (lag,) = timed.groups.describe(name).lag
        return lag.committed, lag.lag, lag.in_flight

    assert standing() == (0, 3, 0)
    for expected in ((0, 2, 0), (0, 1, 0), (3, 0, 0)):
        (message,) = member.poll(1)
        assert standing()[2] == 1
        member.ack(message)
        assert standing() == expected
    assert member.poll() == []


def test_acks_in_any_order_over_lanes_leave_nothing_behind(timed: Driver, name: str) -> None:
    filled(timed, name)
    for lane in (3, 0, 2, 4, 1) * 8:
        publish(timed, name, f"{lane}", priority=lane)
    member = Member(timed, name)
    polled = member.poll(100)
    assert sorted(message.offset for message in polled) == list(range(40))
    kept = polled[::3]
    member.ack(*(message for message in polled if message not in kept))
    (lag,) = timed.groups.describe(name).lag
    assert (lag.lag, lag.committed) == (len(kept), min(message.offset for message in kept))
    member.nack(*kept, delay_ms=1_000)
    timed.let_pass(1_000 + TICK_MS)
    again = member.poll(100)
    assert [message.offset for message in again] == [
        message.offset for message in sorted(kept, key=lambda each: (PRIORITY_LABELS.index(each.priority), each.offset))
    ]
    member.ack(*again)
    (lag,) = timed.groups.describe(name).lag
    assert (lag.lag, lag.committed) == (0, 40)


def test_lanes_go_on_where_they_were_after_a_restart(start: Start, name: str) -> None:
    driver = start(clock=ManualClock(time.time_ns()))
    filled(driver, name)
    publish_lanes(driver, name, [20] * 5)
    member = Member(driver, name)
    done = member.poll(60)
    in_hand, acked = done[::4], [message for place, message in enumerate(done) if place % 4]
    member.ack(*acked)
    driver.restart()
    publish(driver, name, "urgent", priority=CRITICAL)
    driver.let_pass(60_000)
    left = []
    while polled := member.poll(7):
        left += polled
    assert len(left) == 101 - len(acked)
    assert {message.offset for message in left} == set(range(101)) - {message.offset for message in acked}
    assert {message.offset for message in left if message.deliveries == 2} == {message.offset for message in in_hand}
    assert "critical" in lanes_of(left[:7])


def test_a_lane_that_waits_in_a_sealed_segment_is_not_passed_over_after_a_restart(start: Start, name: str) -> None:
    driver = start()
    filled(driver, name, segment_bytes=64 << 10)
    publish(driver, name, "normal")
    publish(driver, name, "background", priority=BACKGROUND)
    publish(driver, name, "c" * (64 << 10), priority=CRITICAL)
    publish(driver, name, "in the next segment")
    member = Member(driver, name)
    member.ack(*member.poll(1))
    driver.restart()
    left = []
    while polled := member.poll(1):
        left += polled
    assert sorted(values(left)) == [b"background", b"in the next segment", b"normal"]


def test_lanes_are_counted(timed: Driver, name: str) -> None:
    timed.create_topic(name, partitions=2)
    publish_lanes(timed, name, [3, 0, 2, 0, 1])
    member = Member(timed, name)
    first = member.poll(4)
    assert lanes_of(first) == ["critical"] * 3 + ["normal"]
    member.ack(first[0])
    one, other = timed.delays.lanes(name)
    assert (one.topic, one.partition, other.partition) == (name, 0, 1)
    assert dict(one.stored) == {"critical": 3, "high": 0, "normal": 2, "low": 0, "background": 1}
    assert dict(one.published) == dict(one.stored)
    assert set(other.stored.values()) == {0}
    of_group = one.groups[name]
    assert {lane: (each.ready, each.in_flight, each.delivered) for lane, each in of_group.items()} == {
        "critical": (0, 2, 3),
        "high": (0, 0, 0),
        "normal": (1, 1, 1),
        "low": (0, 0, 0),
        "background": (1, 0, 0),
    }
    assert of_group["critical"].last_served_ns == timed.clock.now_ns()
    assert of_group["background"].last_served_ns is None


def test_every_message_of_every_lane_is_delivered_however_many_publish_at_once(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=2)
    member = Member(shared, name)
    each, publishers = 50, 8

    def publish_some(publisher: int) -> None:
        for number in range(0, each, 10):
            messages = [
                NewMessage(f"{publisher} {lane} {number + at}".encode(), partition=(at + lane) % 2, priority=lane)
                for at in range(10)
                for lane in range(5)
            ]
            assert not [result for result in shared.publish(name, messages) if isinstance(result, Refused)]

    publishing = [shared.background(publish_some, number) for number in range(publishers)]
    got: list[Polled] = []
    while True:
        is_over = all(future.done() for future in publishing)
        polled = member.poll(37)
        if polled:
            got += polled
            member.ack(*polled)
        elif is_over:
            break
    for future in publishing:
        future.result(60)
    expected = {f"{p} {lane} {n}".encode() for p in range(publishers) for lane in range(5) for n in range(each)}
    assert Counter(lanes_of(got)) == dict.fromkeys(PRIORITY_LABELS, publishers * each)
    assert {message.value for message in got} == expected
    assert sum(lag.lag for lag in shared.groups.describe(name).lag) == 0
