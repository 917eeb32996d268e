"""Groups over a real broker against a table: any order of publish, poll, settle, time, leaving, restart and crash."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from behaviour.clock import MS, ManualClock
from doubles.group_bench import Got, GroupBench
from doubles.inline import InlineExecutor
from doubles.power_loss import PowerLossDisk
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from goqueue.broker.read import Bounds
from goqueue.model.config import Config, StorageConfig
from goqueue.model.errors import StaleReceipt
from goqueue.model.publishing import NewMessage

PARTITIONS = 2
VISIBILITY_MS = 10_000
BACKOFF_MS = 1_000
MAX_RETRIES = 2
GROUPS: dict[str, dict[str, object]] = {
    "shared": {"kind": "shared"},
    "ranged": {"kind": "range"},
    "keyed": {"kind": "shared", "ordering": "key"},
}
Place = tuple[int, int]
Result = TypeVar("Result")


@dataclass
class Fate:
    """What became of a message in one group. ``at_ns``: end of visibility in flight, or when it may come again."""

    state: str = "new"
    count: int = 0
    member: str = ""
    at_ns: int = 0
    got: Got | None = None


class Chance:
    """The same in every run."""

    def __init__(self) -> None:
        self._rng = Random(0)

    def random_bytes(self, size: int) -> bytes:
        return self._rng.randbytes(size)


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.disk = PowerLossDisk()
        self.chance = Chance()
        self.config = Config(storage=StorageConfig(path="/data"))
        self.keys: dict[Place, bytes] = {}
        self.values: dict[Place, bytes] = {}
        self.fates: dict[str, dict[Place, Fate]] = {group: {} for group in GROUPS}
        self.members: dict[str, list[str]] = {group: [] for group in GROUPS}
        self.stale: list[Got] = []
        self.published = 0
        self.open()

    # The broker's life

    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.bench = GroupBench(self.config, self.clock, self.disk, self.chance)
        self.run(self.bench.broker.start())
        self.bench.broker._commits._thread.shutdown()
        self.bench.broker._commits._thread = InlineExecutor()  # type: ignore[assignment]

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.loop.run_until_complete(asyncio.wait_for(work, 30))

    def abandon(self) -> None:
        """Nobody closes anything: what runs is dropped, and writes no more to the disk that is found afterwards."""
        left = asyncio.all_tasks(self.loop)

        async def end() -> None:
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

        self.loop.run_until_complete(end())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    @initialize()
    def begin(self) -> None:
        self.run(
            self.bench.topic(
                partitions=PARTITIONS,
                visibility_timeout_ms=VISIBILITY_MS,
                retry_backoff_ms=BACKOFF_MS,
                max_retries=MAX_RETRIES,
            )
        )
        for group in GROUPS:
            self.join(group)

    @rule(group=st.sampled_from(sorted(GROUPS)))
    def join(self, group: str) -> None:
        if len(self.members[group]) < 3:
            self.members[group].append(self.run(self.bench.join(group, **GROUPS[group])))

    @rule()
    def restart(self) -> None:
        self.run(self.bench.broker.close())
        self.abandon()
        self.open()

    @rule(seed=st.integers(0, 1 << 16))
    def crash(self, seed: int) -> None:
        after = self.disk.crash(Random(seed))
        self.abandon()
        self.disk = after
        self.open()

    @rule()
    def take_a_snapshot(self) -> None:
        for journal in self.bench.broker.groups.shards.journals:
            self.run(journal.snapshot())

    # Messages

    @rule(keys=st.lists(st.sampled_from([b"", b"a", b"b", b"c"]), min_size=1, max_size=6))
    def publish(self, keys: list[bytes]) -> None:
        values = [f"v{self.published + place}".encode() for place in range(len(keys))]
        self.published += len(keys)
        messages = [NewMessage(value, key=key or None) for value, key in zip(values, keys, strict=True)]
        outcomes = self.run(self.bench.broker.publish("t", messages))
        for key, value, outcome in zip(keys, values, outcomes, strict=True):
            place = (outcome.partition, outcome.offset)  # type: ignore[union-attr]
            self.keys[place], self.values[place] = key, value
            for group in GROUPS:
                self.fates[group][place] = Fate()

    @rule(group=st.sampled_from(sorted(GROUPS)), which=st.integers(0, 5), most=st.sampled_from([1, 2, 5, 100]))
    def poll(self, group: str, which: int, most: int) -> None:
        if not self.members[group]:
            return
        member = self.members[group][which % len(self.members[group])]
        assigned = {number for _, number in self.bench.broker.groups.assignment(group, member).assigned}
        # A key that is blocked by a dead letter on its way may become free just after the poll came by.
        moving = {
            (place[0], self.keys[place])
            for place, fate in self.fates[group].items()
            if fate.state == "dead" and self.is_moving(group, place)
        }
        got = self.run(self.bench.poll(member, most, group=group))
        expired = {place for place, fate in self.fates[group].items() if fate.state == "flight"}
        self.expire()
        moving |= {(each[0], self.keys[each]) for each in expired if self.fates[group][each].state == "dead"}
        assert len(got) <= most
        for each in got:
            self.delivered(group, member, each, assigned)
        if len(got) < most:
            left = [
                place
                for place in self.fates[group]
                if place[0] in assigned
                and self.is_available(group, place)
                and (group != "keyed" or (place[0], self.keys[place]) not in moving)
            ]
            assert not left, "a poll left messages that it could have had"

    def delivered(self, group: str, member: str, got: Got, assigned: set[int]) -> None:
        place = (got.partition, got.offset)
        assert got.partition in assigned
        assert got.value == self.values[place] and (got.key or b"") == self.keys[place]
        assert self.is_available(group, place), f"{group} got {place}: {self.fates[group][place]}"
        fate = self.fates[group][place]
        if fate.got is not None:
            self.stale.append(fate.got)
        assert got.count == fate.count + 1
        assert got.until_ns == self.clock.now_ns() + VISIBILITY_MS * MS
        self.fates[group][place] = Fate("flight", got.count, member, got.until_ns, got)

    def is_available(self, group: str, place: Place) -> bool:
        fate = self.fates[group][place]
        if not (fate.state == "new" or (fate.state == "waiting" and fate.at_ns <= self.clock.now_ns())):
            return False
        key = self.keys[place]
        if group != "keyed" or not key:
            return True
        same = [each for each in self.fates[group] if each[0] == place[0] and self.keys[each] == key and each != place]
        earlier_done = all(self.is_over(group, each) for each in same if each[1] < place[1])
        return earlier_done and all(
            self.is_over(group, each) or self.fates[group][each].state == "new" for each in same
        )

    def is_over(self, group: str, place: Place) -> bool:
        """Done for good. What is on its way to the dead letters still holds its key."""
        if self.fates[group][place].state == "dead":
            return not self.is_moving(group, place)
        return self.fates[group][place].state == "done"

    def is_moving(self, group: str, place: Place) -> bool:
        shards = self.bench.broker.groups.shards
        found = shards.find(group)
        topic = self.bench.broker.topic("t")
        queue = shards.queue(found, topic.record.topic_id, place[0])
        return queue is not None and place[1] in queue.moving

    # Settling

    def in_hand(self) -> list[tuple[str, Place]]:
        return [
            (group, place)
            for group, fates in self.fates.items()
            for place, fate in fates.items()
            if fate.state in ("flight", "waiting")
        ]

    def choose(self, seed: int, most: int) -> list[tuple[str, Place]]:
        held = self.in_hand()
        return Random(seed).sample(held, min(most, len(held)))

    @rule(seed=st.integers(0, 1 << 16), most=st.integers(1, 6))
    def ack(self, seed: int, most: int) -> None:
        chosen = self.choose(seed, most)
        got = [each for group, place in chosen if (each := self.fates[group][place].got)]
        self.run(self.bench.ack(*got))
        for group, place in chosen:
            self.fates[group][place].state = "done"

    @rule(seed=st.integers(0, 1 << 16), most=st.integers(1, 4), delay_ms=st.sampled_from([None, None, 0, 500]))
    def nack(self, seed: int, most: int, delay_ms: int | None) -> None:
        chosen = self.choose(seed, most)
        got = [each for group, place in chosen if (each := self.fates[group][place].got)]
        self.run(self.bench.nack(*got, delay_ms=delay_ms))
        for group, place in chosen:
            fate = self.fates[group][place]
            wait_ms = BACKOFF_MS << (fate.count - 1) if delay_ms is None else delay_ms
            self.give_back(fate, self.clock.now_ns() + wait_ms * MS)

    def give_back(self, fate: Fate, at_ns: int) -> None:
        fate.state = "dead" if fate.count > MAX_RETRIES else "waiting"
        fate.at_ns = at_ns

    @rule(seed=st.integers(0, 1 << 16))
    def reject(self, seed: int) -> None:
        chosen = self.choose(seed, 1)
        if not chosen:
            return
        ((group, place),) = chosen
        fate = self.fates[group][place]
        assert fate.got is not None
        assert self.run(self.bench.settle("reject", fate.got)) == [None]
        fate.state = "dead"

    @rule(seed=st.integers(0, 1 << 16), more_ms=st.sampled_from([0, 5_000, 60_000]))
    def extend(self, seed: int, more_ms: int) -> None:
        chosen = self.choose(seed, 1)
        if not chosen:
            return
        ((group, place),) = chosen
        fate = self.fates[group][place]
        assert fate.got is not None
        (outcome,) = self.run(self.bench.settle("extend", fate.got, delay_ms=more_ms))
        if fate.state == "waiting":
            assert isinstance(outcome, StaleReceipt)
        else:
            assert outcome is None
            fate.at_ns = self.clock.now_ns() + more_ms * MS

    @rule(seed=st.integers(0, 1 << 16), verb=st.sampled_from(["ack", "nack", "extend"]))
    def settle_with_a_receipt_from_before(self, seed: int, verb: Any) -> None:
        """Of a message that was delivered again since."""
        if not self.stale:
            return
        got = Random(seed).choice(self.stale)
        (outcome,) = self.run(self.bench.settle(verb, got, delay_ms=0))
        assert outcome is None or isinstance(outcome, StaleReceipt)

    # Time and members

    @rule(milliseconds=st.sampled_from([100, 1_000, 5_000, 10_000, 30_000]))
    def let_time_pass(self, milliseconds: int) -> None:
        self.clock.advance_ms(milliseconds)
        for group, members in self.members.items():
            for member in members:
                self.run(self.bench.broker.groups.heartbeat(group, member, None))

        async def ring() -> None:
            self.bench.broker.groups.shards.ring()

        self.run(ring())
        self.expire()

    def expire(self) -> None:
        now_ns = self.clock.now_ns()
        for fates in self.fates.values():
            for fate in fates.values():
                if fate.state == "flight" and fate.at_ns <= now_ns:
                    self.give_back(fate, now_ns)

    @rule(group=st.sampled_from(sorted(GROUPS)), which=st.integers(0, 5))
    def leave(self, group: str, which: int) -> None:
        if not self.members[group]:
            return
        member = self.members[group].pop(which % len(self.members[group]))
        self.run(self.bench.broker.groups.leave(group, member))
        for fate in self.fates[group].values():
            if fate.state == "flight" and fate.member == member:
                self.give_back(fate, self.clock.now_ns())

    # What must hold

    @invariant()
    def the_numbers_are_right(self) -> None:
        if not self.keys:
            return
        # A poll or an alarm may not have come by yet.
        self.run(self.look_at_the_time())
        self.expire()
        for group, fates in self.fates.items():
            for each in self.bench.broker.groups.lag(group):
                here = {place: fate for place, fate in fates.items() if place[0] == each.partition}
                over = sum(self.is_over(group, place) for place in here)
                assert each.lag == len(here) - over
                assert each.in_flight == sum(fate.state == "flight" for fate in here.values())
                assert each.waiting == sum(fate.state == "waiting" for fate in here.values())
                prefix = 0
                while (each.partition, prefix) in here and self.is_over(group, (each.partition, prefix)):
                    prefix += 1
                assert each.committed == prefix

    async def look_at_the_time(self) -> None:
        self.bench.broker.groups.shards.ring()

    def teardown(self) -> None:
        try:
            if self.keys:
                self.drain()
                self.check_dead_letters()
        finally:
            self.run(self.bench.broker.close())
            self.abandon()

    def drain(self) -> None:
        """Everything comes in the end, and is done."""
        for group in GROUPS:
            self.join(group)
            # Under key order one message of a key comes at a time.
            for _ in range(60 + len(self.keys)):
                self.run(self.bench.moved())
                for which in range(len(self.members[group])):
                    self.poll(group, which, 100)
                for fate in self.fates[group].values():
                    if fate.state == "flight" and fate.got is not None:
                        self.run(self.bench.ack(fate.got))
                        fate.state = "done"
                if self.bench.lag(group) == 0:
                    break
                self.let_time_pass(1_000)
            assert self.bench.lag(group) == 0, f"{group} does not drain"
            assert {fate.state for fate in self.fates[group].values()} <= {"done", "dead"}

    def check_dead_letters(self) -> None:
        self.run(self.bench.moved())
        expected = sorted(
            (group, *place, fate.count)
            for group, fates in self.fates.items()
            for place, fate in fates.items()
            if fate.state == "dead"
        )
        found = []
        if "t.dlq" in self.bench.broker.topic_names():
            for number in range(PARTITIONS):
                read = self.run(self.bench.broker.read("t.dlq", number, Bounds(1 << 20)))
                for message in read.messages:
                    told = {name: value.decode() for name, value in message.headers}
                    partition, offset = int(told["goqueue-origin-partition"]), int(told["goqueue-origin-offset"])
                    assert message.value == self.values[partition, offset]
                    found.append((told["goqueue-group"], partition, offset, int(told["goqueue-deliveries"])))
        assert sorted(found) == expected


TestQueueModel = QueueMachine.TestCase
TestQueueModel.settings = settings(
    max_examples=120,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
