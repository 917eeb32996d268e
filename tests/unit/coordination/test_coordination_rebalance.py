from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.coordination.group import (
    MAX_REMEMBERED_FENCED,
    AnyGroupEvent,
    Group,
    GroupChanged,
    GroupDeleted,
    GroupMade,
    Member,
    Rebalanced,
)
from goqueue.coordination.rebalance import Rules, decide_join, decide_leave, decide_rebalance
from goqueue.coordination.shard_state import ShardEvent, ShardState
from goqueue.delivery.events import Acked, Delivered, QueueClosed, QueueOpened
from goqueue.model.errors import MemberFenced, StaleGeneration, UnknownMember
from goqueue.model.ids import queue_key

PARTITIONS = {"t": [f"t/{number}" for number in range(6)]}


class Bench:
    """A machine with one group; every event goes through JSON, as in the journal."""

    def __init__(self, kind: str = "sticky") -> None:
        self.kind = kind
        self.now = 1_000
        self.machine = ShardState()
        self.apply([GroupMade("g", "id", {"kind": kind}, self.now)])

    @property
    def group(self) -> Group:
        return self.machine.by_name["g"]

    def rules(self) -> Rules:
        return Rules(self.kind, self.now, self.now + 100)

    def apply(self, events: list[AnyGroupEvent] | list[ShardEvent]) -> None:
        for event in events:
            self.machine.apply(msgspec.json.decode(msgspec.json.encode(event), type=ShardEvent))
        restored = ShardState()
        for part in self.machine.parts():
            payload = self.machine.dump(part)
            assert payload is not None
            restored.restore(part, payload)
        assert {part: restored.dump(part) for part in restored.parts()} == {
            part: self.machine.dump(part) for part in self.machine.parts()
        }

    def join(self, name: str, instance: str = "", topics: tuple[str, ...] = ("t",)) -> None:
        member = Member(name, "c", list(topics), 30_000, instance)
        self.apply(decide_join(self.group, member, PARTITIONS, self.rules()))

    def leave(self, *names: str) -> None:
        self.apply(decide_leave(self.group, list(names), PARTITIONS, self.rules()))

    def release(self, *names: str) -> None:
        partitions = [each for name in names for each in self.group.leaving(name)]
        self.apply(self.group.decide_handovers(partitions))

    def owned(self, name: str) -> list[str]:
        return sorted(self.group.owned_by(name))


def test_the_first_member_gets_everything() -> None:
    for kind in ("range", "sticky"):
        bench = Bench(kind)
        bench.join("a")
        assert bench.owned("a") == PARTITIONS["t"] and bench.group.state.generation == 1


def test_members_of_a_shared_group_own_nothing() -> None:
    bench = Bench("shared")
    bench.join("a")
    bench.join("b")
    assert bench.group.state.owners == {} and bench.group.state.generation == 2


def test_a_range_group_splits_at_once() -> None:
    bench = Bench("range")
    bench.join("a")
    bench.join("b")
    assert (bench.owned("a"), bench.owned("b")) == (PARTITIONS["t"][:3], PARTITIONS["t"][3:])
    bench.leave("a")
    assert bench.owned("b") == PARTITIONS["t"]


def test_a_sticky_group_hands_over_in_two_steps() -> None:
    bench = Bench()
    bench.join("a")
    bench.join("b")
    leaving = bench.group.leaving("a")
    assert len(leaving) == 3 and bench.owned("b") == [] and len(bench.owned("a")) == 3
    assert not set(leaving) & set(bench.owned("a"))
    bench.apply(bench.group.decide_handovers(leaving[:1]))
    assert bench.owned("b") == leaving[:1]
    bench.release("a")
    assert sorted(bench.owned("b")) == sorted(leaving) and bench.group.state.handovers == {}


def test_an_owner_that_does_not_let_go_is_overdue_at_the_deadline() -> None:
    bench = Bench()
    bench.join("a")
    bench.join("b")
    assert bench.group.overdue(bench.now + 99) == []
    assert sorted(bench.group.overdue(bench.now + 100)) == sorted(bench.group.leaving("a"))


def test_one_that_joins_in_the_middle_of_a_rebalance_does_not_prolong_it() -> None:
    bench = Bench()
    bench.join("a")
    bench.join("b")
    deadlines = {name: each.deadline_ns for name, each in bench.group.state.handovers.items()}
    bench.now += 50
    bench.join("c")
    for name, each in bench.group.state.handovers.items():
        assert each.deadline_ns == deadlines.get(name, bench.now + 100)
    bench.release("a", "b")
    assert sorted(len(bench.owned(name)) for name in "abc") == [2, 2, 2]


def test_if_the_one_who_waits_leaves_the_owner_keeps_its_partitions() -> None:
    bench = Bench()
    bench.join("a")
    bench.join("b")
    bench.leave("b")
    assert bench.owned("a") == PARTITIONS["t"] and bench.group.state.handovers == {}


def test_if_the_owner_leaves_in_the_middle_the_one_who_waits_has_it_at_once() -> None:
    bench = Bench()
    bench.join("a")
    bench.join("b")
    bench.leave("a")
    assert bench.owned("b") == PARTITIONS["t"] and bench.group.state.handovers == {}


@pytest.mark.parametrize("kind", ["range", "sticky"])
def test_an_instance_that_comes_back_keeps_its_partitions_and_moves_nobody_elses(kind: str) -> None:
    bench = Bench(kind)
    for name in ("b1", "m1", "z1"):
        bench.join(name, instance=name[0])
        bench.release("b1", "m1", "z1")
    before = {name[0]: bench.owned(name) for name in ("b1", "m1", "z1")}
    bench.join("a2", instance="z")
    bench.join("zz", instance="b")
    assert bench.group.state.handovers == {}
    assert {"z": bench.owned("a2"), "b": bench.owned("zz"), "m": bench.owned("m1")} == before
    assert set(bench.group.state.members) == {"a2", "zz", "m1"}


def test_an_instance_that_comes_back_in_the_middle_of_a_handover_still_gets_what_it_waits_for() -> None:
    bench = Bench()
    bench.join("a")
    bench.join("b1", instance="b")
    waiting = sorted(bench.group.state.handovers)
    bench.join("b2", instance="b")
    assert {each.to for each in bench.group.state.handovers.values()} == {"b2"}
    assert sorted(bench.group.state.handovers) == waiting
    bench.release("a")
    assert bench.owned("b2") == waiting


def test_a_member_whose_instance_came_back_is_fenced() -> None:
    bench = Bench()
    bench.join("old", instance="i")
    bench.join("new", instance="i")
    with pytest.raises(MemberFenced):
        bench.group.member("old")
    with pytest.raises(UnknownMember):
        bench.group.member("never")
    assert bench.group.member("new").instance_id == "i"
    for number in range(2 * MAX_REMEMBERED_FENCED):
        bench.join(f"again{number}", instance="i")
    assert len(bench.group.state.fenced) == MAX_REMEMBERED_FENCED


def test_a_generation_that_is_over_is_refused() -> None:
    bench = Bench("range")
    bench.join("a")
    bench.group.check_generation(None)
    bench.group.check_generation(1)
    bench.join("b")
    with pytest.raises(StaleGeneration):
        bench.group.check_generation(1)


def test_nothing_new_makes_no_event() -> None:
    for kind in ("range", "sticky", "shared"):
        bench = Bench(kind)
        bench.join("a")
        bench.join("b")
        bench.now += 10
        assert decide_rebalance(bench.group, PARTITIONS, bench.rules()) == []


def test_a_topic_that_grows_or_goes_is_shared_out_again() -> None:
    bench = Bench()
    bench.join("a", topics=("t", "u"))
    (event,) = decide_rebalance(bench.group, PARTITIONS | {"u": ["u/0"]}, bench.rules())
    assert isinstance(event, Rebalanced) and event.owners["u/0"] == "a"
    bench.apply([event])
    (event,) = decide_rebalance(bench.group, {"u": ["u/0"]}, bench.rules())
    assert isinstance(event, Rebalanced) and event.owners == {"u/0": "a"}


def test_a_group_is_empty_since_its_last_member_left() -> None:
    bench = Bench()
    bench.join("a")
    bench.now = 5_000
    bench.leave("a")
    assert bench.group.state.empty_since_ns == 5_000 and bench.group.state.owners == {}


def test_a_group_that_is_deleted_and_made_again_inherits_nothing() -> None:
    bench = Bench()
    key = queue_key("id", "topic", 0)
    bench.join("a")
    bench.apply([QueueOpened(key, "g", "topic", 0, 0), Delivered(key, [0, 5], [], 5, "a", 9)])
    assert bench.machine.in_flight["id"] == {"a": 5}
    bench.apply([GroupDeleted("g")])
    assert not bench.machine.by_name and key in bench.machine.by_key, "its queues may be in other shards"
    bench.apply([GroupMade("g", "id2", {}, 1)])
    assert "id2" not in bench.machine.by_group and "id2" not in bench.machine.in_flight
    bench.apply([QueueClosed(key), Acked(key, [(1, [0, 5])])])
    assert bench.machine.queues() == [] and "id" not in bench.machine.in_flight


def test_a_queue_that_is_closed_takes_its_messages_out_of_flight() -> None:
    bench = Bench()
    key = queue_key("id", "topic", 0)
    bench.apply([QueueOpened(key, "g", "topic", 0, 0), Delivered(key, [0, 5], [], 5, "a", 9), QueueClosed(key)])
    assert bench.machine.in_flight == {} and bench.machine.queues() == []


def test_settings_are_what_was_last_set() -> None:
    bench = Bench()
    bench.apply([GroupChanged("g", {"max_in_flight": 3})])
    assert bench.group.state.overrides == {"max_in_flight": 3}


steps = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.integers(0, 4)),
        st.tuples(st.just("leave"), st.integers(0, 9)),
        st.tuples(st.just("release"), st.integers(0, 9)),
        st.tuples(st.just("overdue"), st.just(0)),
    ),
    max_size=25,
)


@given(st.sampled_from(["range", "sticky"]), steps)
@settings(max_examples=80, deadline=None)
def test_whatever_happens_each_partition_has_one_owner_who_is_there(kind: str, script: list[tuple[str, int]]) -> None:
    bench = Bench(kind)
    made = 0
    for what, which in script:
        names = list(bench.group.state.members)
        bench.now += 30
        if what == "join":
            made += 1
            bench.join(f"m{made}", instance=f"i{which}" if which < 3 else "")
        elif what == "leave" and names:
            bench.leave(names[which % len(names)])
        elif what == "release" and names:
            bench.release(names[which % len(names)])
        elif what == "overdue":
            bench.apply(bench.group.decide_handovers(bench.group.overdue(bench.now)))
        state = bench.group.state
        assert set(state.owners) == (set(PARTITIONS["t"]) if state.members else set())
        assert set(state.owners.values()) <= set(state.members)
        for partition, handover in state.handovers.items():
            assert handover.to in state.members and handover.to != state.owners[partition]
        taken = [each for name in state.members for each in (*bench.group.owned_by(name), *bench.group.leaving(name))]
        assert sorted(taken) == sorted(state.owners)
    while bench.group.state.handovers:
        bench.release(*bench.group.state.members)
    shares = [len(bench.owned(name)) for name in bench.group.state.members]
    assert not shares or max(shares) - min(shares) <= 1
