"""Groups over a real broker against a table: any order of publish, poll, settle, time, leaving, restart and crash.

Messages come in any lane, and some of them later than they were published.
"""

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

from goqueue.broker.partitions.read import Bounds
from goqueue.delivery.wheel import TICK_NS
from goqueue.model.config import Config, StorageConfig, TraceConfig
from goqueue.model.errors import StaleReceipt
from goqueue.model.message import Message
from goqueue.model.publish_result import Published
from goqueue.model.publishing import NewMessage
from goqueue.wire.internal_headers import DELAYED_OFFSET

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
messages = st.tuples(
    st.sampled_from([b"", b"a", b"b", b"c"]),
    st.sampled_from([0, 1, 2, 2, 3, 4]),
    st.sampled_from([None, None, None, 0, 55, 1_000, 7_000]),
)
"""Key, lane and delay."""
Result = TypeVar("Result")


@dataclass
class Fate:
    """What became of a message in one group. ``at_ns``: end of visibility in flight, or when it may come again."""

    state: str = "new"
    count: int = 0
    member: str = ""
    at_ns: int = 0
    got: Got | None = None


@dataclass
class Delayed:
    """A message that was published to come later. ``state``: waits, came, or cancelled."""

    key: bytes
    value: bytes
    lane: int
    due_ns: int
    state: str = "waits"


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
        self.config = Config(storage=StorageConfig(path="/data"), trace=TraceConfig(exporters=""))
        self.keys: dict[Place, bytes] = {}
        self.values: dict[Place, bytes] = {}
        self.lanes: dict[Place, int] = {}
        """Of every message that can be seen; ``delayed`` are the places of those that wait, or have waited."""
        self.delayed: dict[Place, Delayed] = {}
        self.ends = [0] * PARTITIONS
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
        self.see_what_came()

    @rule(seed=st.integers(0, 1 << 16))
    def crash(self, seed: int) -> None:
        after = self.disk.crash(Random(seed))
        self.abandon()
        self.disk = after
        self.open()
        self.see_what_came()

    @rule()
    def take_a_snapshot(self) -> None:
        for shard in self.bench.broker.groups.shards.all:
            self.run(shard.journal.snapshot())

    # Messages

    @rule(content=st.lists(messages, min_size=1, max_size=6), is_normal=st.booleans())
    def publish(self, content: list[tuple[bytes, int, int | None]], is_normal: bool) -> None:
        """Often everything is of lane normal, and served in another way."""
        batch = []
        for key, lane, delay_ms in content:
            value = f"v{self.published}".encode()
            self.published += 1
            if is_normal:
                lane, delay_ms = 2, None
            batch.append(NewMessage(value, key=key or None, priority=lane, delay_ms=delay_ms))
        now_ns = self.clock.now_ns()
        for message, outcome in zip(batch, self.run(self.bench.broker.publish("t", batch)), strict=True):
            assert isinstance(outcome, Published)
            place = outcome.partition, outcome.offset
            key, value = message.key or b"", message.value or b""
            if outcome.deliver_at_ns is not None:
                assert message.delay_ms and outcome.deliver_at_ns == now_ns + message.delay_ms * MS
                self.delayed[place] = Delayed(key, value, message.priority, outcome.deliver_at_ns)
            else:
                assert not message.delay_ms
                self.can_be_seen(place, key, value, message.priority)
            self.ends[place[0]] = max(self.ends[place[0]], place[1] + 1)

    def can_be_seen(self, place: Place, key: bytes, value: bytes, lane: int) -> None:
        self.keys[place], self.values[place], self.lanes[place] = key, value, lane
        for group in GROUPS:
            self.fates[group][place] = Fate()

    def see_what_came(self) -> None:
        """Everything that is due can be seen, once, and nothing else has come."""
        if not self.delayed:
            return
        self.run(self.bench.fired())
        for number in range(PARTITIONS):
            partition = self.bench.broker.topic("t").partition(number)
            if partition.high_watermark > self.ends[number]:
                bounds = Bounds(1 << 20)
                read = self.run(self.bench.broker.read("t", number, bounds, offset=self.ends[number]))
                for message in read.messages:
                    self.came(number, message)
                self.ends[number] = partition.high_watermark
        for each in self.delayed.values():
            assert each.state != "waits" or each.due_ns > self.clock.now_ns() - TICK_NS, "it is late"

    def came(self, number: int, message: Message) -> None:
        first = int(dict(message.headers)[DELAYED_OFFSET])
        delayed = self.delayed[number, first]
        assert delayed.state == "waits", f"offset {first} came although it {delayed.state}"
        assert delayed.due_ns <= self.clock.now_ns(), "too early"
        assert (message.key or b"", message.value, message.priority) == (delayed.key, delayed.value, delayed.lane)
        delayed.state = "came"
        self.can_be_seen((number, message.offset), delayed.key, delayed.value, delayed.lane)

    @rule(seed=st.integers(0, 1 << 16), later_ms=st.sampled_from([None, None, 200, 5_000]))
    def cancel_or_put_off(self, seed: int, later_ms: int | None) -> None:
        waiting = [place for place, each in self.delayed.items() if each.state == "waits"]
        if not waiting:
            return
        place = Random(seed).choice(waiting)
        delays = self.bench.broker.delays
        if later_ms is None:
            self.run(delays.cancel("t", *place))
            self.delayed[place].state = "cancelled"
        else:
            self.run(delays.reschedule("t", *place, delay_ms=later_ms))
            self.delayed[place].due_ns = self.clock.now_ns() + later_ms * MS

    @rule(group=st.sampled_from(sorted(GROUPS)), which=st.integers(0, 5), most=st.sampled_from([1, 2, 5, 100]))
    def poll(self, group: str, which: int, most: int) -> None:
        if not self.members[group]:
            return
        member = self.members[group][which % len(self.members[group])]
        assigned = {number for _, number in self.bench.broker.groups.membership.assignment(group, member).assigned}
        # A key that is blocked by a dead letter on its way may become free just after the poll came by.
        moving = {
            self.chain(place)
            for place, fate in self.fates[group].items()
            if fate.state == "dead" and self.is_moving(group, place)
        }
        is_new = {place for place, fate in self.fates[group].items() if fate.state == "new"}
        got = self.run(self.bench.poll(member, most, group=group))
        expired = {place for place, fate in self.fates[group].items() if fate.state == "flight"}
        self.expire()
        moving |= {self.chain(each) for each in expired if self.fates[group][each].state == "dead"}
        assert len(got) <= most
        for each in got:
            self.delivered(group, member, each, assigned)
        self.check_order([(each.partition, each.offset) for each in got], is_new, is_keyed=group == "keyed")
        if len(got) < most:
            left = [
                place
                for place in self.fates[group]
                if place[0] in assigned
                and self.is_available(group, place)
                and (group != "keyed" or self.chain(place) not in moving)
            ]
            assert not left, "a poll left messages that it could have had"

    def chain(self, place: Place) -> tuple[int, int, bytes]:
        """Messages that have to wait for each other under key order."""
        return place[0], self.lanes[place], self.keys[place]

    def check_order(self, got: list[Place], is_new: set[Place], *, is_keyed: bool) -> None:
        """What comes for the first time comes in the order of its lane; under key order, of its key."""
        chains: dict[tuple[int, int, bytes], list[Place]] = {}
        for each in got:
            if each in is_new:
                number, lane, key = self.chain(each)
                chains.setdefault((number, lane, key if is_keyed else b""), []).append(each)
        assert all(first == sorted(first) for first in chains.values())

    def delivered(self, group: str, member: str, got: Got, assigned: set[int]) -> None:
        place = (got.partition, got.offset)
        assert got.partition in assigned
        assert (got.value, got.key or b"", got.lane) == (self.values[place], self.keys[place], self.lanes[place])
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
        if group != "keyed" or not self.keys[place]:
            return True
        same = [each for each in self.fates[group] if self.chain(each) == self.chain(place) and each != place]
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
        queue = found.queue(topic, place[0])
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
        assert isinstance(outcome, StaleReceipt)

    @rule(seed=st.integers(0, 1 << 16))
    def ack_once_more(self, seed: int) -> None:
        """Who has acked may say so again; of a dead letter nobody may."""
        over = [fate for fates in self.fates.values() for fate in fates.values() if fate.state in ("done", "dead")]
        if not over:
            return
        fate = Random(seed).choice(over)
        assert fate.got is not None
        (outcome,) = self.run(self.bench.settle("ack", fate.got))
        assert outcome is None if fate.state == "done" else isinstance(outcome, StaleReceipt)

    # Time and members

    @rule(milliseconds=st.sampled_from([100, 1_000, 5_000, 10_000, 30_000]))
    def let_time_pass(self, milliseconds: int) -> None:
        self.clock.advance_ms(milliseconds)
        for group, members in self.members.items():
            for member in members:
                self.run(self.bench.broker.groups.membership.heartbeat(group, member, None))

        self.run(self.look_at_the_time())
        self.see_what_came()
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
        self.run(self.bench.broker.groups.membership.leave(group, member))
        for fate in self.fates[group].values():
            if fate.state == "flight" and fate.member == member:
                self.give_back(fate, self.clock.now_ns())

    # What must hold

    @invariant()
    def the_numbers_are_right(self) -> None:
        if not self.keys and not self.delayed:
            return
        # A poll or an alarm may not have come by yet.
        self.run(self.look_at_the_time())
        self.expire()
        for group, fates in self.fates.items():
            for each in self.bench.broker.groups.offsets.lag(group):
                here = {place: fate for place, fate in fates.items() if place[0] == each.partition}
                over = sum(self.is_over(group, place) for place in here)
                assert each.lag == len(here) - over
                assert each.in_flight == sum(fate.state == "flight" for fate in here.values())
                assert each.waiting == sum(fate.state == "waiting" for fate in here.values())
                left = [place[1] for place in here if not self.is_over(group, place)]
                # Behind the last message there may be records that nobody sees.
                prefix = min(left, default=each.latest)
                # Nothing that can be seen is done beyond it; what cannot be seen counts when someone has come by.
                assert each.committed <= prefix
                assert not any(each.committed <= place[1] < prefix for place in here)

    async def look_at_the_time(self) -> None:
        self.bench.broker.clockwork.ring()

    def teardown(self) -> None:
        try:
            if self.keys or self.delayed:
                self.drain()
                self.check_dead_letters()
        finally:
            self.run(self.bench.broker.close())
            self.abandon()

    def drain(self) -> None:
        """Everything comes in the end, and is done."""
        latest_ns = max((each.due_ns for each in self.delayed.values()), default=0)
        if latest_ns > self.clock.now_ns():
            self.let_time_pass((latest_ns - self.clock.now_ns()) // MS + 10)
        assert not any(each.state == "waits" for each in self.delayed.values())
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
                if self.bench.lag(group) == 0 and self.is_at_the_end(group):
                    break
                self.let_time_pass(1_000)
            assert self.bench.lag(group) == 0, f"{group} does not drain"
            assert self.is_at_the_end(group), "what cannot be seen holds the group up"
            assert {fate.state for fate in self.fates[group].values()} <= {"done", "dead"}

    def is_at_the_end(self, group: str) -> bool:
        return all(each.committed == self.ends[each.partition] for each in self.bench.broker.groups.offsets.lag(group))

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
