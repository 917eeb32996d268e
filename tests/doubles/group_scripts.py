"""Short lives of a group on a disk that may lose power at any call; what its consumers were told must hold.

A script runs once. Before every call that changes the disk, what a power loss would leave now is put aside together
with what was told so far. Afterwards a broker is started on each of these disks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

import goqueue.storage.log.group_commit
from doubles.async_tests import until
from doubles.group_ledger import DEAD, GROUP, MAX_RETRIES, TOPIC, Told, settled
from doubles.group_movers import all_queues, mover_of
from doubles.inline import InlineExecutor
from doubles.ledger import Broken
from doubles.power_loss import PowerLossDisk
from goqueue.broker.broker import Broker
from goqueue.broker.dead_letters.redrive import Filter
from goqueue.broker.groups.membership import Join
from goqueue.broker.queues.polling import PollBounds
from goqueue.coordination.group import GroupChanged
from goqueue.delivery.settlement_requests import SettlementRequest, Verb
from goqueue.model.config import Config, StorageConfig, TraceConfig
from goqueue.model.errors import DiskFull, TopicExists
from goqueue.model.publish_result import Published
from goqueue.model.publishing import NewMessage
from goqueue.model.topic_settings import TopicSettings
from goqueue.simulation.ports import SimulatedRandomness
from goqueue.wire.decoding import decode_run

ROOT = Path("/srv/goqueue")
_NEVER_MS = 3_600_000
CONFIG = Config(
    storage=replace(
        StorageConfig(path=str(ROOT), min_free_bytes=0),
        fsync_interval_ms=60_000,
        checkpoint_interval_ms=_NEVER_MS,
        cleanup_interval_ms=_NEVER_MS,
    ),
    topic=replace(TopicSettings(), partitions=1, segment_bytes=64 << 10),
    # Written by a thread now and then: the calls of a script would not be the same each time.
    trace=TraceConfig(exporters=""),
)


class Stage:
    """A broker, a group, and what was told of it."""

    def __init__(self, rng: Random, outcomes: int) -> None:
        self.rng = rng
        self.outcomes = outcomes
        self.told = Told()
        self.disk = PowerLossDisk()
        self.randomness = SimulatedRandomness(Random(7))
        self.disk.before_call = self._put_aside
        self.left: list[tuple[PowerLossDisk, Told]] = []
        self.stream = False
        self._serial = 0
        self.broker: Broker
        self.member = ""

    def _put_aside(self) -> None:
        for _ in range(self.outcomes):
            self.left.append((self.disk.crash(self.rng), self.told.copy()))

    async def start(self) -> None:
        self.broker = await started(self.disk, self.randomness)

    async def restart(self) -> None:
        await self.broker.close()
        self.disk.release_locks()
        await self.start()

    async def topic(self, **settings: object) -> None:
        await self.broker.create_topic(TOPIC, {"max_retries": MAX_RETRIES, "retry_backoff_ms": 0, **settings})

    async def publish(self, count: int, topic: str = TOPIC) -> None:
        values = []
        for _ in range(count):
            self._serial += 1
            values.append(b"v%03d" % self._serial)
        self.told.may_publish |= set(values)
        outcomes = await self.broker.publish(topic, [NewMessage(value) for value in values])
        assert all(isinstance(each, Published) for each in outcomes)
        self.told.published |= set(values)

    async def join(self, *more: str, **settings: object) -> None:
        self.told.may_exist = True
        joined = await self.broker.groups.membership.join(GROUP, Join("c", [TOPIC, *more], settings))
        self.member = joined.member_id
        self.told.members.add(self.member)
        self.told.exists = True

    async def leave(self) -> None:
        self.told.members.discard(self.member)
        await self.broker.groups.membership.leave(GROUP, self.member)
        self.told.left.add(self.member)

    async def poll(self, count: int) -> dict[bytes, str]:
        """Receipts by value."""
        found = await self.broker.groups.polling.poll(GROUP, self.member, PollBounds(count, 1 << 20))
        receipts = {}
        for delivery in found:
            for message in decode_run(delivery.run)[0]:
                receipts[message.value] = delivery.receipt(message.offset) or ""
                if delivery.count:
                    self.told.counts[message.value] = delivery.count
        return receipts

    async def settle(self, verb: Any, receipts: dict[bytes, str], *, exhausted: bool = False) -> None:
        if not receipts:
            return
        values = set(receipts)
        dies = verb == "reject" or exhausted
        if verb == "ack":
            self.told.may_ack |= values
        elif dies:
            self.told.may_die |= values
        outcomes = await self.broker.groups.settling.settle_receipts(
            list(receipts.values()), SettlementRequest(Verb(verb), None, "bad")
        )
        if any(outcomes):
            raise Broken(f"{verb} of messages in hand was refused: {outcomes}")
        if verb == "ack":
            self.told.acked |= values
            self.told.acked_with |= receipts
        elif dies:
            self.told.dead |= values
            self.told.died_with |= receipts

    async def snapshot(self) -> None:
        for shard in self.broker.groups.shards.all:
            await shard.journal.snapshot()
        await self.broker._upkeep.checkpoint()


def some(receipts: dict[bytes, str], first: int, last: int) -> dict[bytes, str]:
    return dict(list(receipts.items())[first:last])


async def started(disk: PowerLossDisk, randomness: SimulatedRandomness | None = None) -> Broker:
    """With ``randomness`` ids are the same in each run: the shards of topics follow from them."""
    broker = Broker(CONFIG, files=disk, randomness=randomness)
    await broker.start()
    return broker


# Scripts


async def settle_messages(stage: Stage) -> None:
    await stage.topic()
    await stage.publish(8)
    await stage.join(kind="shared")
    first = await stage.poll(5)
    await stage.settle("ack", some(first, 0, 2))
    await stage.settle("nack", some(first, 2, 3))
    again = await stage.poll(1)
    assert set(again) == set(some(first, 2, 3))
    await stage.settle("nack", again, exhausted=True)
    await stage.settle("reject", some(first, 3, 4))
    await settled(stage.broker)
    await stage.publish(1)
    rest = await stage.poll(10)
    await stage.settle("ack", some(rest, 0, 1))


async def go_on_after_restarts_and_snapshots(stage: Stage) -> None:
    await stage.topic()
    await stage.publish(6)
    await stage.join(kind="shared")
    first = await stage.poll(4)
    await stage.settle("ack", some(first, 1, 2))
    await stage.snapshot()
    await stage.settle("nack", some(first, 0, 1))
    await stage.restart()
    # A receipt from before the restart holds: nothing was delivered since.
    await stage.settle("ack", some(first, 2, 3))
    await stage.snapshot()
    await stage.restart()
    second = await stage.poll(3)
    await stage.settle("ack", second)
    await stage.leave()


async def commit_and_reset_a_stream(stage: Stage) -> None:
    stage.stream = True
    await stage.topic()
    await stage.publish(6)
    await stage.join(mode="stream")
    await stage.poll(4)
    stage.told.may_commit = 4
    await stage.broker.groups.offsets.commit(GROUP, stage.member, {TOPIC: {0: 4}})
    stage.told.committed = 4
    stage.told.may_commit = 1
    await stage.broker.groups.offsets.reset(GROUP, {TOPIC: {0: 1}})
    stage.told.committed = 1
    stage.told.may_commit = 3
    # Whoever asks while a commit is under way is told of what is durable.
    committing = asyncio.create_task(stage.broker.groups.offsets.commit(GROUP, stage.member, {TOPIC: {0: 3}}))
    await asyncio.sleep(0)
    stage.told.committed = (await stage.broker.groups.offsets.committed(GROUP))[TOPIC][0]
    await committing


async def redrive_dead_letters(stage: Stage) -> None:
    await stage.topic()
    await stage.publish(5)
    await stage.join(kind="shared")
    await stage.settle("reject", await stage.poll(4))
    await settled(stage.broker)
    stage.told.may_redrive |= stage.told.dead
    report = await stage.broker.groups.dead_letters.redrive(TOPIC, Filter(), 3, None, dry_run=False)
    assert report.redriven == 3
    stage.told.redriven |= set(sorted(stage.told.dead)[:3])
    await settled(stage.broker)
    await stage.restart()
    got = await stage.poll(10)
    assert stage.told.redriven <= set(got)
    await stage.settle("ack", got)


async def redrive_to_several_topics(stage: Stage) -> None:
    await stage.topic()
    await stage.broker.create_topic("u", {"dead_letter_topic": DEAD})
    stage.told.topics.add("u")
    await stage.publish(2)
    await stage.publish(2, "u")
    await stage.join("u", kind="shared")
    await stage.settle("reject", await stage.poll(4))
    await settled(stage.broker)
    stage.told.may_redrive |= stage.told.dead
    report = await stage.broker.groups.dead_letters.redrive(DEAD, Filter(), 10, None, dry_run=False)
    assert report.by_topic == {TOPIC: 2, "u": 2}
    stage.told.redriven |= stage.told.dead


async def make_change_and_delete_a_group(stage: Stage) -> None:
    stage.told.may_exist = True
    await stage.broker.groups.configure(GROUP, {"kind": "shared"})
    stage.told.exists, stage.told.overrides = True, {"kind": "shared"}
    stage.told.overrides = None
    await stage.broker.groups.configure(GROUP, {"max_in_flight": 7})
    stage.told.overrides = {"kind": "shared", "max_in_flight": 7}
    stage.told.overrides = None
    await stage.broker.groups.configure(GROUP, {"kind": "sticky"})
    stage.told.overrides = {"kind": "sticky", "max_in_flight": 7}
    stage.told.exists, stage.told.overrides = False, None
    await stage.broker.groups.delete(GROUP)
    stage.told.may_exist = False
    await stage.broker.create_topic("other")


async def let_the_time_of_messages_run_out(stage: Stage) -> None:
    """Nobody waits for what is decided by the clock."""
    await stage.topic(visibility_timeout_ms=100, max_retries=0)
    await stage.publish(3)
    await stage.join(kind="shared")
    stage.told.may_die |= stage.told.published
    await stage.poll(2)
    await until(lambda: stage.broker.groups.settling.tally.dead_letters == 2)
    await stage.broker._commits.reached(*_whole(stage.broker.topic(DEAD).partitions[0].log))
    await stage.broker.create_topic("other")


def _whole(log: Any) -> tuple[Any, int]:
    return log, log.end_offset


async def tell_what_others_have_decided(stage: Stage) -> None:
    """Answers that change nothing wait as well: what they tell of may not be durable yet."""
    creating = asyncio.create_task(stage.broker.create_topic("x"))
    while "x" not in stage.broker._catalog.machine._ids_by_name:  # noqa: ASYNC110
        await asyncio.sleep(0)
    with pytest.raises(TopicExists):
        # Not in a task of its own: the fsync would be over before its turn.
        await stage.broker.topic_commands.create("x", {})
    stage.told.topics.add("x")
    await creating
    await stage.topic()
    await stage.join()
    groups = stage.broker.groups
    for ask in (
        lambda: groups.membership.heartbeat(GROUP, stage.member, None),
        lambda: groups.membership.resume(GROUP, stage.member, []),
        lambda: groups.membership.next_assignment(GROUP, stage.member, 0),
    ):
        joining = asyncio.create_task(groups.membership.join(GROUP, Join("c", [TOPIC])))
        await asyncio.sleep(0)
        stage.told.generation = (await ask()).generation
        await joining


async def write_down_what_is_not_durable_yet(stage: Stage) -> None:
    await stage.topic()
    await stage.join(kind="shared")
    stage.broker.groups.shards.change(GROUP, [GroupChanged(GROUP, {"kind": "shared", "max_in_flight": 5})])
    await stage.broker.groups.shards.of(GROUP).journal.snapshot()


async def redrive_when_there_is_no_room(stage: Stage) -> None:
    await stage.topic()
    await stage.publish(2)
    await stage.join(kind="shared")
    await stage.settle("reject", await stage.poll(2))
    await settled(stage.broker)

    def no_room() -> None:
        raise DiskFull("no room", retry_after_s=1)

    mover_of(stage.broker.groups)._check_room = no_room
    stage.told.may_redrive |= stage.told.dead
    report = await stage.broker.groups.dead_letters.redrive(TOPIC, Filter(), 10, None, dry_run=False)
    assert report.redriven == 2
    stage.told.redriven |= stage.told.dead
    await stage.restart()
    await settled(stage.broker)


async def give_up_messages_while_the_disk_of_the_dead_letters_fails(stage: Stage) -> None:
    """The copy is in the page cache, and can be read; it is not there for all that."""
    await stage.topic()
    await stage.broker.create_topic(DEAD, {"fsync": "interval", "retention_ms": None})
    await stage.publish(3)
    await stage.join(kind="shared")
    receipts = await stage.poll(1)
    partition = stage.broker.topic(DEAD).partitions[0]
    append = partition.append

    def then_fail(batch: Any, **how: bool) -> int:
        stage.disk.sync_fault = lambda site, count: True
        return append(batch, **how)

    partition.append = then_fail  # type: ignore[method-assign]
    transfers = mover_of(stage.broker.groups)
    looks = 0
    look = transfers._look_for_copies

    async def counted(*arguments: Any) -> None:
        nonlocal looks
        looks += 1
        stage.disk.sync_fault = lambda site, count: False
        await look(*arguments)

    transfers._look_for_copies = counted  # type: ignore[method-assign]
    await stage.settle("reject", receipts)
    [queue] = all_queues(stage.broker)
    await until(lambda: looks >= 3 or not queue.moving)
    await stage.broker.groups.configure(GROUP, {"max_in_flight": 9})
    await stage.broker.create_topic("other")


async def do_as_chance_says(stage: Stage) -> None:
    """Everything a group can go through, in any order."""
    rng = Random(stage.rng.random())
    await stage.topic()
    await stage.join(kind="shared")
    held: dict[bytes, str] = {}

    def picked() -> dict[bytes, str]:
        chosen = rng.sample(sorted(held), rng.randint(0, len(held)))
        return {value: held.pop(value) for value in chosen}

    for _ in range(30):
        match rng.choice(
            ("publish", "poll", "poll", "ack", "nack", "reject", "snapshot", "restart", "again", "redrive")
        ):
            case "publish":
                await stage.publish(rng.randint(1, 4))
            case "poll":
                held |= await stage.poll(rng.randint(1, 5))
            case "ack":
                await stage.settle("ack", picked())
            case "nack" | "reject" as verb:
                # A message dies once: what was redriven is only acked.
                receipts = {value: each for value, each in picked().items() if value not in stage.told.may_redrive}
                last = {value: each for value, each in receipts.items() if stage.told.counts[value] > MAX_RETRIES}
                await stage.settle(verb, {value: each for value, each in receipts.items() if value not in last})
                await stage.settle(verb, last, exhausted=True)
            case "snapshot":
                await stage.snapshot()
            case "restart":
                await stage.restart()
            case "again":
                await stage.leave()
                held = {}
                await stage.join()
            case "redrive" if stage.told.dead:
                await settled(stage.broker)
                dead = stage.told.dead - stage.told.redriven
                # Those died as well whose consumer left too often.
                stage.told.may_redrive |= stage.told.may_die | stage.told.exhausted()
                await stage.broker.groups.dead_letters.redrive(TOPIC, Filter(), 100, None, dry_run=False)
                stage.told.redriven |= dead


SCRIPTS: tuple[Callable[[Stage], Awaitable[None]], ...] = (
    settle_messages,
    go_on_after_restarts_and_snapshots,
    commit_and_reset_a_stream,
    redrive_dead_letters,
    redrive_to_several_topics,
    make_change_and_delete_a_group,
    let_the_time_of_messages_run_out,
    tell_what_others_have_decided,
    write_down_what_is_not_durable_yet,
    redrive_when_there_is_no_room,
    give_up_messages_while_the_disk_of_the_dead_letters_fails,
    do_as_chance_says,
)


def run_group_script(script: Callable[[Stage], Awaitable[None]], seed: int, *, outcomes: int = 1) -> int:
    """Raises ``Broken`` if a crash at some call can break a promise. Returns how many crashes were tried."""
    before = goqueue.storage.log.group_commit.ThreadPoolExecutor
    goqueue.storage.log.group_commit.ThreadPoolExecutor = lambda *_, **__: InlineExecutor()  # type: ignore[assignment,misc]
    try:
        stage = Stage(Random(seed), outcomes)
        asyncio.run(_play(stage, script))
        asyncio.run(_check_all(stage.left, stream=stage.stream, name=f"{script.__name__} with seed {seed}"))
        return len(stage.left)
    finally:
        goqueue.storage.log.group_commit.ThreadPoolExecutor = before  # type: ignore[misc]


def run_clamping(seed: int) -> None:
    """A topic that is synced by interval loses its tail, twice; raises ``Broken`` if a group passes over messages."""
    before = goqueue.storage.log.group_commit.ThreadPoolExecutor
    goqueue.storage.log.group_commit.ThreadPoolExecutor = lambda *_, **__: InlineExecutor()  # type: ignore[assignment,misc]
    try:
        asyncio.run(_clamp_twice(Random(seed)))
    except Exception as error:
        raise Broken(f"clamping with seed {seed}: {error!r}") from error
    finally:
        goqueue.storage.log.group_commit.ThreadPoolExecutor = before  # type: ignore[misc]


async def _clamp_twice(rng: Random) -> None:
    disk = PowerLossDisk()
    broker = await started(disk, SimulatedRandomness(Random(7)))
    await broker.create_topic(TOPIC, {"fsync": "interval"})
    await broker.publish(TOPIC, [NewMessage(b"safe")])
    await broker._commits.sync(broker.logs())
    joined = await broker.groups.membership.join(GROUP, Join("c", [TOPIC], {"kind": "shared"}))
    await broker.publish(TOPIC, [NewMessage(b"lost-%d" % number) for number in range(9)])
    bounds = PollBounds(10, 1 << 20)
    [delivery] = await broker.groups.polling.poll(GROUP, joined.member_id, bounds)
    receipts = [delivery.receipt(offset) or "" for offset in range(10)]
    assert await broker.groups.settling.settle_receipts(receipts[:8], SettlementRequest(Verb.ACK)) == [None] * 8
    # The log loses its tail; the group remembers being done with it.
    disk = disk.crash(rng)
    broker = await started(disk)
    end = broker.topic(TOPIC).partitions[0].log.end_offset
    [lag] = broker.groups.offsets.lag(GROUP)
    if lag.committed > end or lag.in_flight > max(0, end - 8):
        raise Broken(f"a group is ahead of its log: {lag}, and the log ends at {end}")
    fresh = [b"fresh-%d" % number for number in range(12)]
    await broker.publish(TOPIC, [NewMessage(value) for value in fresh])
    await broker._commits.reached(broker.topic(TOPIC).partitions[0].log, end + 12)
    # The power goes again before the group has done anything.
    broker = await started(disk.crash(rng))
    for member in list(broker.groups.shards.find(GROUP).group.state.members):
        await broker.groups.membership.leave(GROUP, member)
    joined = await broker.groups.membership.join(GROUP, Join("c", [TOPIC]))
    found = await broker.groups.polling.poll(GROUP, joined.member_id, PollBounds(100, 1 << 20))
    received = {message.value for delivery in found for message in decode_run(delivery.run)[0]}
    if missing := set(fresh) - received:
        raise Broken(f"new messages count as done: {missing}")
    stale = await broker.groups.settling.settle_receipts(receipts[end:], SettlementRequest(Verb.ACK))
    if None in stale:
        raise Broken("a receipt of a message that is gone settles another")
    await broker.close()


async def _play(stage: Stage, script: Callable[[Stage], Awaitable[None]]) -> None:
    await stage.start()
    await script(stage)
    await stage.broker.close()


async def _check_all(left: Iterable[tuple[PowerLossDisk, Told]], *, stream: bool, name: str) -> None:
    for place, (disk, told) in enumerate(left):
        try:
            broker = await started(disk)
            try:
                await told.check(broker, stream=stream)
            finally:
                with suppress(Exception):
                    await broker.close()
        except Exception as error:
            raise Broken(f"{name}, crash {place}: {error!r}") from error
