"""Groups when the disk is full, an fsync fails, or topics and groups go away under them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from doubles.async_tests import until
from doubles.group_broker import DEAD, GROUP, TOPIC, Desk, desk
from doubles.group_ledger import settled
from doubles.group_movers import all_queues, mover_of, shard_of
from doubles.group_scripts import CONFIG, ROOT
from doubles.loop import on_a_loop
from doubles.power_loss import PowerLossDisk

from goqueue.broker.broker import Broker
from goqueue.broker.groups.membership import Join
from goqueue.broker.runtime.shard_placement import SHARDS
from goqueue.delivery.settlement_requests import SettlementRequest, Verb
from goqueue.model.errors import CorruptData, DiskFull, StorageFailed


def full(at: Desk) -> None:
    """No byte more may be written."""
    at.disk.quota = at.disk.used_bytes()


def state_of(at: Desk) -> dict[str, bytes | None]:
    machines = [each.state for each in at.groups.shards.all]
    return {part: machine.dump(part) for machine in machines for part in machine.parts()}


@on_a_loop
async def test_a_full_disk_refuses_whatever_would_change_a_group_and_changes_nothing() -> None:
    async with desk() as at:
        await at.publish(b"a", b"b")
        got = await at.poll(1)
        before = state_of(at)
        full(at)
        order = SettlementRequest(Verb.ACK)
        for work in (
            lambda: at.poll(),
            lambda: at.groups.settling.settle_receipts([got[0].receipt], order),
            lambda: at.groups.membership.join(GROUP, Join("d", [TOPIC])),
            lambda: at.groups.membership.leave(GROUP, at.members[GROUP]),
            lambda: at.groups.offsets.reset(GROUP, {TOPIC: {0: 0}}),
            lambda: at.groups.configure(GROUP, {"max_in_flight": 3}),
            lambda: at.groups.configure("new", {}),
        ):
            with pytest.raises(DiskFull):
                await work()
            assert state_of(at) == before
        at.disk.quota = None
        await at.settle("ack", got)
        assert [each.value for each in await at.poll()] == [b"b"]


@on_a_loop
async def test_messages_whose_time_is_up_while_the_disk_is_full_are_given_back_when_there_is_room() -> None:
    async with desk(visibility_timeout_ms=100) as at:
        await at.publish(b"v")
        await at.poll()
        [queue] = [each for each in all_queues(at.broker) if each.group == GROUP]
        full(at)
        due_ns = queue.leases.next_time_ns()
        assert due_ns is not None
        await until(lambda: at.broker.clock.now_ns() > due_ns)
        at.broker.clockwork.ring()
        assert queue.leases.next_time_ns() == due_ns
        at.disk.quota = None
        await until(lambda: at.groups.settling.tally.visibility_timeouts == 1, 10)
        [again] = await at.poll()
        assert again.count == 2


@on_a_loop
async def test_a_topic_that_came_while_the_disk_was_full_is_read_when_there_is_room() -> None:
    async with desk() as at:
        await at.broker.create_topic("later")
        await at.groups.membership.join(GROUP, Join("d", ["later", TOPIC]))
        await at.broker.delete_topic("later")
        shards = at.groups.shards.map
        append = shards.append

        def refuse(*_: Any) -> None:
            raise DiskFull("no room", retry_after_s=1)

        shards.append = refuse  # type: ignore[method-assign]
        await at.broker.create_topic("later")
        assert {lag.topic for lag in at.groups.offsets.lag(GROUP)} == {TOPIC}
        shards.append = append  # type: ignore[method-assign]
        await until(lambda: {lag.topic for lag in at.groups.offsets.lag(GROUP)} == {TOPIC, "later"}, 10)


@on_a_loop
async def test_dead_letters_wait_for_room_and_are_not_doubled() -> None:
    async with desk() as at:
        await at.publish(b"first")
        await at.reject_all()
        await at.publish(b"v", b"w")
        got = await at.poll()
        [queue] = [each for each in all_queues(at.broker) if each.group == GROUP]
        transfers = mover_of(at.groups)
        append = transfers._append

        async def then_full(*arguments: Any) -> None:
            await append(*arguments)
            full(at)

        transfers._append = then_full  # type: ignore[method-assign]
        await at.settle("reject", got)
        # The copies are made, and the journal cannot be told of it.
        await until(lambda: at.disk.quota is not None)
        assert set(queue.moving) == {1, 2}
        transfers._append = append  # type: ignore[method-assign]
        at.disk.quota = None
        await settled(at.broker)
        assert [each.value for each in await at.stored(DEAD)] == [b"first", b"v", b"w"]


@on_a_loop
async def test_an_unforeseen_error_neither_loses_nor_doubles_nor_spins() -> None:
    async with desk() as at:
        transfers = mover_of(at.groups)
        create, tries = transfers._create, 0

        async def failing(name: str, settings: dict[str, object]) -> Any:
            nonlocal tries
            tries += 1
            if tries == 1:
                raise OSError(28, "No space left on device")
            return await create(name, settings)

        async def refuse(name: str, settings: dict[str, object]) -> Any:
            raise DiskFull("not now", retry_after_s=1)

        # The rejection itself would make the topic; what it cannot do for now is left to the move.
        transfers._create, at.groups.settling._create = failing, refuse
        await at.publish(b"v")
        await at.settle("reject", await at.poll())
        await settled(at.broker)
        assert tries == 2
        assert [each.value for each in await at.stored(DEAD)] == [b"v"]


@on_a_loop
async def test_rule_1_a_failed_fsync_takes_the_group_back_to_what_is_durable() -> None:
    async with desk() as at:
        await at.publish(b"a", b"b")
        got = await at.poll(1)
        before = state_of(at)
        at.disk.sync_fault = lambda site, count: "commit" in site
        outcomes = await asyncio.gather(
            at.groups.settling.settle_receipts([got[0].receipt], SettlementRequest(Verb.ACK)),
            at.poll(),
            at.groups.configure(GROUP, {"max_in_flight": 3}),
            return_exceptions=True,
        )
        assert [type(each) for each in outcomes] == [StorageFailed] * 3
        assert state_of(at) == before
        at.disk.sync_fault = lambda site, count: False
        # It takes nothing more, and says so, until the broker is started again.
        with pytest.raises(StorageFailed):
            await at.settle("ack", got)
        assert "storage" in at.broker.problems()
        at.broker.clockwork.ring()
    async with desk(at.disk, join=False) as again:
        # What was refused may have happened all the same; nothing that was told is undone, and nothing is lost.
        await again.settle("ack", got)
        await again.groups.membership.leave(GROUP, at.members[GROUP])
        await again.join()
        assert [each.value for each in await again.poll()] == [b"b"]


@on_a_loop
async def test_one_failed_shard_does_not_keep_the_others_from_their_snapshots() -> None:
    async with desk() as at:
        failed = at.groups.shards.of(GROUP).journal
        names = (f"g{number}" for number in range(100))
        other = next(name for name in names if at.groups.shards.of(name).journal is not failed)
        await at.groups.configure(other, {})
        failed.log.fail("broken")
        for shard in at.groups.shards.all:
            shard.journal._snapshot_every = 1
        await at.broker.snapshot_if_due()
        assert at.groups.shards.of(other).journal.log.start_offset > 0


@on_a_loop
async def test_an_idle_group_with_messages_on_their_way_is_not_forgotten() -> None:
    async with desk() as at:
        await at.groups.configure(GROUP, {"idle_expiry_ms": 60_000})
        await at.publish(b"v")
        mover_of(at.groups)._stopping.set()
        await at.settle("reject", await at.poll())
        await at.groups.membership.leave(GROUP, at.members[GROUP])
        group = at.groups.shards.find(GROUP)
        group.group.state.empty_since_ns = 0
        at.groups._expiry.expire_due(at.groups.shards, GROUP)
        assert at.groups.shards.find(GROUP) is group
        mover_of(at.groups)._stopping.clear()
        [queue] = group.queues()
        mover_of(at.groups).begin(queue)
        await settled(at.broker)
        at.groups._expiry.expire_due(at.groups.shards, GROUP)
        assert at.groups.shards.names() == []


@on_a_loop
async def test_the_state_of_a_group_is_empty_stable_or_rebalancing() -> None:
    async with desk(join=False) as at:
        await at.groups.configure(GROUP, {"kind": "sticky"})
        assert at.groups.state(GROUP) == "empty"
        joined = await at.groups.membership.join(GROUP, Join("c", [TOPIC]))
        assert at.groups.state(GROUP) == "stable"
        at.members[GROUP] = joined.member_id
        await at.broker.create_topic("two", {"partitions": 4})
        await at.groups.membership.leave(GROUP, joined.member_id)
        joined = await at.groups.membership.join(GROUP, Join("c", ["two"]))
        at.members[GROUP] = joined.member_id
        for partition in range(4):
            await at.publish(b"v", topic="two", partition=partition)
        got = await at.poll()
        await at.groups.membership.join(GROUP, Join("d", ["two"]))
        assert at.groups.state(GROUP) == "rebalancing"
        await at.settle("ack", got)
        assert at.groups.state(GROUP) == "stable"


# Starting


def break_shards(disk: PowerLossDisk, break_one: Any) -> None:
    for number in range(1, SHARDS):
        folder = ROOT / "logs" / "__shards" / str(number)
        for name in disk.list_dir(folder):
            if name.endswith(".log") and disk.content(folder / name):
                break_one(folder / name)


async def shut_desk() -> Desk:
    async with desk() as at:
        await at.publish(b"v")
        await at.settle("ack", await at.poll())
    return at


@on_a_loop
async def test_a_broker_without_its_group_journal_refuses_to_start() -> None:
    at = await shut_desk()
    break_shards(at.disk, at.disk.remove)
    with pytest.raises(CorruptData, match="__shards"):
        await Broker(CONFIG, files=at.disk).start()


@on_a_loop
async def test_a_broker_whose_group_snapshot_is_gone_refuses_to_start_or_replays_everything() -> None:
    at = await shut_desk()
    async with desk(at.disk, join=False) as again:
        journal = again.groups.shards.of(GROUP).journal
        await journal.snapshot()
        path: Path = journal._snapshot_path
    at.disk.damage(path, lambda content: content[:-3])
    with pytest.raises(CorruptData, match="snapshot"):
        await Broker(CONFIG, files=at.disk).start()


@on_a_loop
async def test_a_folder_of_a_partition_that_is_gone_takes_its_groups_back_to_the_beginning() -> None:
    at = await shut_desk()
    [folder] = [name for name in at.disk.list_dir(ROOT / "logs") if name.startswith("t~")]
    at.disk.remove_tree(ROOT / "logs" / folder)
    at.disk.remove(ROOT / "checkpoint")
    async with desk(at.disk, join=False) as again:
        [lag] = again.groups.offsets.lag(GROUP)
        assert (lag.committed, lag.lag) == (0, 0)
        again.members = at.members
        await again.publish(b"new")
        assert [each.value for each in await again.poll()] == [b"new"]


@on_a_loop
async def test_rule_2_the_journals_of_groups_are_trimmed_only_below_a_snapshot_and_then_really_shrink() -> None:
    async with desk() as at:
        journal = shard_of(at.broker, TOPIC).journal
        for _ in range(30):
            await at.publish(*(b"v%d" % number for number in range(50)))
            for got in await at.poll():
                await at.settle("ack", [got])
            await at.broker._upkeep.checkpoint()
        assert len(journal.log.segments) > 2
        assert journal.log.start_offset == 0
        journal._snapshot_every = 1
        await at.broker._upkeep.checkpoint()
        assert len(journal.log.segments) == 1
        assert at.disk.list_dir(journal.log.folder)
    async with desk(at.disk, join=False) as again:
        assert [each.lag for each in again.groups.offsets.lag(GROUP)] == [0]
