"""Members of groups: who has what, who is told, and who is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from behaviour.driver import Driver
from behaviour.member import WAIT_MS, Member, filled, publish, refusal, values
from behaviour.waiting import until

CALLS: dict[str, Callable[[Member], object]] = {
    "heartbeat": lambda member: member.heartbeat(),
    "poll": lambda member: member.poll(),
    "commit": lambda member: member.commit(member.group, {0: 0}),
    "leave": lambda member: member.leave(),
}


# Kinds


@pytest.mark.parametrize("kind", ["range", "sticky", "shared"])
def test_the_first_member_has_every_partition(shared: Driver, name: str, kind: str) -> None:
    filled(shared, name, partitions=3)
    member = Member(shared, name, kind=kind)
    assert member.joined.assigned == [(name, 0), (name, 1), (name, 2)]
    assert (member.generation, member.joined.revoking) == (1, [])


@pytest.mark.parametrize("kind", ["range", "sticky"])
def test_the_partitions_of_each_topic_are_split_among_the_members(shared: Driver, name: str, kind: str) -> None:
    topics = [f"{name}-{letter}" for letter in "ab"]
    for topic in topics:
        shared.create_topic(topic, partitions=4)
    members = [Member(shared, name, *topics, kind=kind) for _ in range(2)]
    owned = [member.heartbeat().assigned for member in members]
    assert sorted(owned[0] + owned[1]) == [(topic, number) for topic in topics for number in range(4)]
    assert [len(each) for each in owned] == [4, 4]


def test_in_a_range_each_member_has_neighbours(shared: Driver, name: str) -> None:
    filled(shared, name, partitions=5)
    members = [Member(shared, name, kind="range") for _ in range(2)]
    assert sorted(member.partitions() for member in members) == [[0, 1, 2], [3, 4]]


def test_in_a_sticky_group_only_what_has_to_moves(shared: Driver, name: str) -> None:
    filled(shared, name, partitions=6)
    first = Member(shared, name, kind="sticky")
    second = Member(shared, name)
    before = set(first.partitions()), set(second.partitions())
    third = Member(shared, name)
    after = set(first.partitions()), set(second.partitions())
    assert [len(each) for each in after] == [2, 2]
    assert after[0] < before[0]
    assert after[1] < before[1]
    assert set(third.partitions()) == set(range(6)) - after[0] - after[1]


def test_in_a_shared_group_there_may_be_more_members_than_partitions(shared: Driver, name: str) -> None:
    filled(shared, name, *"abc")
    members = [Member(shared, name, kind="shared") for _ in range(3)]
    assert [member.joined.assigned for member in members] == [[(name, 0)]] * 3
    assert [values(member.poll(1)) for member in members] == [[b"a"], [b"b"], [b"c"]]


def test_members_without_a_partition_get_nothing(shared: Driver, name: str) -> None:
    filled(shared, name, "a", "b")
    members = [Member(shared, name, kind="range") for _ in range(2)]
    assert sorted(member.partitions() for member in members) == [[], [0]]
    assert sorted(len(member.poll()) for member in members) == [0, 2]


def test_members_of_one_group_may_want_different_topics(shared: Driver, name: str) -> None:
    topics = [f"{name}-{letter}" for letter in "ab"]
    for topic in topics:
        shared.create_topic(topic, partitions=2)
    only_a, both = Member(shared, name, topics[0]), Member(shared, name, *topics)
    assert len(only_a.heartbeat().assigned) == 1
    assert {place for place in both.heartbeat().assigned if place[0] == topics[1]} == {(topics[1], 0), (topics[1], 1)}


def test_every_group_gets_every_message(shared: Driver, name: str) -> None:
    filled(shared, name, "a", "b")
    groups = [Member(shared, f"{name}-{kind}", name, kind=kind) for kind in ("range", "sticky", "shared")]
    assert [values(member.poll()) for member in groups] == [[b"a", b"b"]] * 3


# Coming and going


@pytest.mark.parametrize("kind", ["range", "sticky", "shared"])
def test_every_change_of_members_is_a_new_generation(shared: Driver, name: str, kind: str) -> None:
    filled(shared, name, partitions=2)
    first = Member(shared, name, kind=kind)
    second = Member(shared, name)
    assert (first.generation, second.generation) == (1, 2)
    assert first.heartbeat().generation == 2
    second.leave()
    assert first.heartbeat().generation == 3


@pytest.mark.parametrize("kind", ["range", "sticky"])
def test_the_partitions_of_a_member_that_leaves_go_to_the_others(shared: Driver, name: str, kind: str) -> None:
    filled(shared, name, partitions=4)
    first, second = Member(shared, name, kind=kind), Member(shared, name)
    second.leave()
    assert first.partitions() == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["range", "sticky", "shared"])
def test_what_a_member_that_leaves_has_in_hand_is_given_back_at_once(shared: Driver, name: str, kind: str) -> None:
    filled(shared, name, "a")
    leaver = Member(shared, name, kind=kind)
    leaver.next()
    other = Member(shared, name)
    waiting = shared.background(other.poll, 1, WAIT_MS)
    until(lambda: shared.waiting_polls(name) == 1)
    leaver.leave()
    (message,) = waiting.result()
    assert (message.value, message.deliveries) == (b"a", 2)


def test_a_member_that_is_not_heard_of_is_taken_out(timed: Driver, name: str) -> None:
    filled(timed, name, "a")
    silent = Member(timed, name, session_timeout_ms=5_000, kind="shared")
    other = Member(timed, name, session_timeout_ms=60_000)
    silent.next()
    timed.let_pass(4_999)
    assert len(timed.groups.describe(name).members) == 2
    timed.let_pass(1)
    assert [member.member_id for member in timed.groups.describe(name).members] == [other.id]
    assert values(other.poll()) == [b"a"]
    with refusal("unknown_member"):
        silent.heartbeat()


def test_a_heartbeat_keeps_a_member_in(timed: Driver, name: str) -> None:
    filled(timed, name)
    member = Member(timed, name, session_timeout_ms=5_000)
    for _ in range(3):
        timed.let_pass(4_000)
        member.heartbeat()
    assert len(timed.groups.describe(name).members) == 1


def test_a_poll_that_waits_keeps_a_member_in(timed: Driver, name: str) -> None:
    filled(timed, name)
    member = Member(timed, name, session_timeout_ms=5_000)
    waiting = timed.background(member.poll, 1, WAIT_MS)
    until(lambda: timed.waiting_polls(name) == 1)
    timed.let_pass(60_000)
    publish(timed, name, "a")
    assert values(waiting.result()) == [b"a"]


def test_a_group_that_nobody_uses_is_deleted_after_a_while(timed: Driver, name: str) -> None:
    filled(timed, name)
    Member(timed, name, idle_expiry_ms=60_000).leave()
    timed.let_pass(59_999)
    assert name in timed.groups.names()
    timed.let_pass(1)
    assert name not in timed.groups.names()


# Zombies


@pytest.mark.parametrize("call", CALLS)
def test_a_member_that_left_is_unknown(shared: Driver, name: str, call: str) -> None:
    filled(shared, name, "a")
    gone, other = Member(shared, name, kind="shared"), Member(shared, name)
    gone.leave()
    with refusal("unknown_member"):
        CALLS[call](gone)
    assert values(other.poll()) == [b"a"]


@pytest.mark.parametrize("call", CALLS)
def test_a_member_whose_instance_is_another_process_is_fenced(shared: Driver, name: str, call: str) -> None:
    filled(shared, name, "a")
    old = Member(shared, name, instance_id="one")
    new = Member(shared, name, instance_id="one")
    with refusal("member_fenced"):
        CALLS[call](old)
    assert values(new.poll()) == [b"a"]


@pytest.mark.parametrize("kind", ["range", "sticky"])
def test_an_instance_that_comes_back_has_what_it_had_and_moves_nothing(shared: Driver, name: str, kind: str) -> None:
    filled(shared, name, partitions=6)
    members = [Member(shared, name, kind=kind, instance_id=f"i-{number}") for number in range(3)]
    before = [member.partitions() for member in members]
    members[1] = Member(shared, name, instance_id="i-1")
    assert [member.partitions() for member in members] == before
    assert len(shared.groups.describe(name).members) == 3


def test_an_instance_that_comes_back_gets_again_what_it_had_in_hand(shared: Driver, name: str) -> None:
    filled(shared, name, "a", "b")
    old = Member(shared, name, instance_id="one")
    old.ack(old.next())
    old.next()
    again = Member(shared, name, instance_id="one").next()
    assert (again.value, again.deliveries) == (b"b", 2)


def test_a_commit_of_an_earlier_generation_is_refused_in_a_range(shared: Driver, name: str) -> None:
    filled(shared, name, "a", partitions=2)
    first = Member(shared, name, mode="stream")
    first.poll()
    second = Member(shared, name)
    mine = first if 0 in first.partitions() else second
    with refusal("stale_generation"):
        mine.commit(name, {0: 1}, generation=1)
    assert shared.groups.offsets(name)[name][0] == 0
    mine.commit(name, {0: 1}, generation=2)
    assert shared.groups.offsets(name)[name][0] == 1


def test_in_a_sticky_group_who_kept_a_partition_may_commit_with_an_earlier_generation(
    shared: Driver, name: str
) -> None:
    filled(shared, name, "a", partitions=2)
    publish(shared, name, "b", partition=1)
    first = Member(shared, name, mode="stream", kind="sticky")
    assert len(first.poll()) == 2
    Member(shared, name)
    first.commit(name, {0: 1, 1: 1}, generation=1)
    assert shared.groups.offsets(name)[name] == {0: 1, 1: 1}


@pytest.mark.parametrize("kind", ["range", "sticky", "shared"])
def test_a_generation_that_has_not_been_is_refused(shared: Driver, name: str, kind: str) -> None:
    filled(shared, name, "a")
    member = Member(shared, name, kind=kind)
    with refusal("invalid_request"):
        shared.groups.heartbeat(name, member.id, 7)
    with refusal("stale_generation"):
        member.commit(name, {0: 0}, generation=7)


@pytest.mark.parametrize("kind", ["range", "sticky"])
def test_a_commit_for_anothers_partition_is_refused_and_commits_nothing(shared: Driver, name: str, kind: str) -> None:
    filled(shared, name, "a", partitions=2)
    publish(shared, name, "b", partition=1)
    members = [Member(shared, name, mode="stream", kind=kind) for _ in range(2)]
    for member in members:
        member.heartbeat()
        member.poll()
    with refusal("not_assigned"):
        members[0].commit(name, {0: 1, 1: 1})
    assert shared.groups.offsets(name)[name] == {0: 0, 1: 0}


# Changing hands


def test_a_partition_that_moves_waits_for_its_owner_to_finish(shared: Driver, name: str) -> None:
    filled(shared, name, "a", partitions=2)
    publish(shared, name, "b", partition=1)
    old = Member(shared, name, kind="sticky")
    in_hand = old.poll()
    new = Member(shared, name)
    ((_, moving),) = old.heartbeat().revoking
    assert old.partitions() == [1 - moving]
    assert new.partitions() == []
    assert shared.groups.describe(name).is_rebalancing
    old.ack(*(message for message in in_hand if message.partition == moving))
    assert new.partitions() == [moving]
    assert old.heartbeat().revoking == []
    assert not shared.groups.describe(name).is_rebalancing


def test_a_partition_that_moves_gives_its_old_owner_nothing_new(shared: Driver, name: str) -> None:
    filled(shared, name, "a", partitions=2)
    publish(shared, name, "b", partition=1)
    old = Member(shared, name, kind="sticky")
    in_hand = old.poll()
    new = Member(shared, name)
    ((_, moving),) = old.heartbeat().revoking
    publish(shared, name, "moves", partition=moving)
    publish(shared, name, "stays", partition=1 - moving)
    assert values(old.poll()) == [b"stays"]
    assert new.poll() == []
    waiting = shared.background(new.poll, 1, WAIT_MS)
    until(lambda: shared.waiting_polls(name) == 1)
    old.ack(*in_hand)
    assert values(waiting.result()) == [b"moves"]


def test_an_owner_that_does_not_finish_in_time_loses_the_partition(timed: Driver, name: str) -> None:
    filled(timed, name, "a", partitions=2)
    publish(timed, name, "b", partition=1)
    old = Member(timed, name, kind="sticky", handover_timeout_ms=2_000)
    in_hand = old.poll()
    new = Member(timed, name)
    ((_, moving),) = old.heartbeat().revoking
    publish(timed, name, "next", partition=moving)
    timed.let_pass(1_999)
    assert new.partitions() == []
    timed.let_pass(1)
    assert new.partitions() == [moving]
    assert values(new.poll()) == [b"next"]
    # Its receipts hold as long as nobody else has got the messages.
    old.ack(*in_hand)


def test_a_stream_hands_over_what_was_committed(shared: Driver, name: str) -> None:
    filled(shared, name, "a0", "a1", partitions=2)
    publish(shared, name, "b0", "b1", partition=1)
    old = Member(shared, name, kind="sticky", mode="stream")
    assert len(old.poll()) == 4
    new = Member(shared, name)
    ((_, moving),) = old.heartbeat().revoking
    old.commit(name, {moving: 1})
    assert new.partitions() == []
    old.commit(name, {moving: 2})
    assert new.partitions() == [moving]
    publish(shared, name, "next", partition=moving)
    assert values(new.poll()) == [b"next"]
    with refusal("not_assigned"):
        old.commit(name, {moving: 2})


def test_with_nothing_in_hand_a_partition_moves_at_once(shared: Driver, name: str) -> None:
    filled(shared, name, partitions=2)
    old, new = Member(shared, name, kind="sticky"), Member(shared, name)
    assert sorted(old.partitions() + new.partitions()) == [0, 1]
    assert len(new.partitions()) == 1


# Where a group begins


def test_a_group_begins_with_the_earliest_message(shared: Driver, name: str) -> None:
    filled(shared, name, "a", "b")
    assert values(Member(shared, name).poll()) == [b"a", b"b"]


@pytest.mark.parametrize("mode", ["queue", "stream"])
def test_a_group_that_starts_at_the_latest_gets_what_comes_after_its_first_join(
    shared: Driver, name: str, mode: str
) -> None:
    filled(shared, name, "a", "b")
    member = Member(shared, name, start="latest", mode=mode)
    publish(shared, name, "c")
    assert values(member.poll()) == [b"c"]
    assert shared.groups.offsets(name) == {name: {0: 2}}


def test_who_joins_later_does_not_change_where_the_group_is(shared: Driver, name: str) -> None:
    filled(shared, name, "a", "b")
    first = Member(shared, name)
    first.ack(first.next())
    first.leave()
    assert values(Member(shared, name, start="latest").poll()) == [b"b"]


# Topics that come and go


def test_a_topic_that_is_deleted_and_made_again_inherits_nothing(shared: Driver, name: str) -> None:
    filled(shared, name, "a", "b", "c")
    member = Member(shared, name)
    old = member.poll()
    member.ack(old[0])
    shared.delete_topic(name)
    assert member.heartbeat().assigned == []
    filled(shared, name, "x", "y")
    assert member.heartbeat().assigned == [(name, 0)]
    assert shared.groups.offsets(name) == {name: {0: 0}}
    new = member.poll()
    assert [(message.value, message.deliveries) for message in new] == [(b"x", 1), (b"y", 1)]
    assert member.try_to("ack", old[1:]) == ["invalid_receipt"] * 2
    assert shared.groups.describe(name).members[0].in_flight == 2


def test_a_poll_that_waits_gets_the_messages_of_a_topic_that_is_made_again(shared: Driver, name: str) -> None:
    filled(shared, name)
    member = Member(shared, name, kind="shared")
    shared.delete_topic(name)
    waiting = shared.background(member.poll, 1, WAIT_MS)
    until(lambda: shared.waiting_polls(name) == 1)
    filled(shared, name, "x")
    assert values(waiting.result()) == [b"x"]


def test_deleting_a_topic_leaves_the_others_of_the_group_alone(shared: Driver, name: str) -> None:
    gone = f"{name}-gone"
    filled(shared, name, "a")
    filled(shared, gone, "b")
    member = Member(shared, name, name, gone)
    shared.delete_topic(gone)
    assert values(member.poll()) == [b"a"]
    assert shared.groups.offsets(name) == {name: {0: 0}}
