"""What goes wrong in a simulated world, and what operators do."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random

from goqueue.broker.broker import Broker
from goqueue.broker.operations import IN_PROCESS, PollBounds
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.partitions.truncation import truncate_partition
from goqueue.model.clock import NANOS_PER_SECOND
from goqueue.model.errors import NotLeader
from goqueue.simulation.promises import Broken
from goqueue.simulation.world import QUEUES, STREAMS, World

_DOWN_S = (0.0, 0.1, 2.0)
_ROOM_BYTES = 5_000
_PATIENCE_S = 3.0
_NOTHING = PollBounds(0, 0)
"""Asks for no message."""
_ANSWERS = (
    *("abort", "ack", "ask for a key", "cancel", "commit", "configure", "delete", "fetch offsets", "heartbeat", "init"),
    *("join", "leave", "look up", "nack", "offsets in", "poll", "prepare", "publish", "purge", "redrive", "register"),
    *("reject", "reschedule", "reset"),
)
"""How clients' operations begin."""


async def kill(world: World, rng: Random) -> None:
    if world.node.is_up:
        await _until_it_dies(world, rng)
        world.node.kill()
        await _start_again(world, rng)


async def cut_power(world: World, rng: Random) -> None:
    if world.node.is_up:
        await _until_it_dies(world, rng)
        world.node.cut_power()
        await _start_again(world, rng)


async def cut_power_after_answer(world: World, rng: Random) -> None:
    """Whatever the answer promises has to be on the disk by then."""
    word, answered = rng.choice(_ANSWERS), asyncio.Event()

    def strike(what: str) -> None:
        if what.startswith(word) and world.node.is_up and not answered.is_set():
            world.node.cut_power()
            answered.set()

    world.on_answer = strike
    with suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE_S):
            await answered.wait()
    world.on_answer = lambda what: None
    if answered.is_set():
        await _start_again(world, rng)


async def _until_it_dies(world: World, rng: Random) -> None:
    """Most of the time in the middle of an operation."""
    calls = rng.choice((0, 1, 2, 5, 20))
    if calls:
        await world.node.until_it_dies(calls, _PATIENCE_S)


async def restart(world: World, rng: Random) -> None:
    if world.node.is_up:
        await world.node.stop()
        await _start_again(world, rng)


async def _start_again(world: World, rng: Random) -> None:
    world.promises.broker_is_gone()
    await asyncio.sleep(rng.choice(_DOWN_S))
    if rng.random() < 0.2:
        await _die_in_the_middle_of_a_start(world, rng)
    await world.node.start()


async def _die_in_the_middle_of_a_start(world: World, rng: Random) -> None:
    starting = asyncio.ensure_future(world.node.start())
    await asyncio.sleep(rng.random() * 0.02)
    if rng.random() < 0.5:
        world.node.kill()
    else:
        world.node.cut_power()
    await asyncio.wait([starting])
    starting.exception()


async def fail_sync(world: World, rng: Random) -> None:
    """One fsync fails: what it concerns is not known to be on the disk, and only a start helps."""
    disk = world.node.disk
    fails_at = disk.syncs + rng.randint(1, 5)
    disk.sync_fault = lambda site, count: count == fails_at
    await asyncio.sleep(rng.choice((0.1, 1.0, 5.0)))
    disk.sync_fault = lambda site, count: False
    if disk is world.node.disk and disk.syncs >= fails_at:
        await cut_power(world, rng)


async def fill_disk(world: World, rng: Random) -> None:
    world.node.disk.quota = world.node.disk.used_bytes() + rng.randrange(_ROOM_BYTES)
    await asyncio.sleep(rng.choice((0.1, 1.0, 5.0)))
    world.node.disk.quota = None


async def slow_disk(world: World, rng: Random) -> None:
    world.loop.slowness = rng.choice((5.0, 20.0))
    await asyncio.sleep(rng.choice((0.5, 5.0)))
    world.loop.slowness = 1.0


async def release_shard(world: World, rng: Random) -> None:
    """A shard is let go, and led again, while the others serve.

    Most often it is one that clients have something in; every other time one that coordinates open transactions.
    """
    number, pause_s = rng.random(), rng.choice(_DOWN_S)
    is_any, has_transactions = rng.random() < 0.2, rng.random() < 0.5

    async def released(broker: Broker) -> None:
        shards = broker.groups.shards.all
        open_in = {each.shard for each in broker.transactions.coordinators.serving if each.opened}
        if has_transactions and open_in:
            shards = [each for each in shards if each.number in open_in]
        used = [each for each in shards if each.is_leading and (each.state.names() or each.state.by_key)]
        shards = shards if is_any or not used else used
        shard = shards[int(number * len(shards))]
        if not shard.is_leading:
            raise NotLeader("it is let go already")
        await broker.leadership.let_go(shard)
        await asyncio.sleep(pause_s)
        await broker.leadership.lead([shard])

    await world.ask("release a shard", released)


async def release_coordinator(world: World, rng: Random) -> None:
    """The coordinator of a group is let go, and led again: members go on with what they own meanwhile."""
    group, pause_s = rng.choice((*QUEUES, *STREAMS)), rng.choice(_DOWN_S)

    async def released(broker: Broker) -> None:
        shards = broker.groups.shards
        coordinator = shards.of(group)
        await broker.leadership.let_go(coordinator)
        for member in _seen_members(broker, group):
            try:
                await broker.operations.queues.poll(IN_PROCESS, group, member, _NOTHING)
            except NotLeader as error:
                raise Broken(f"member {member} of {group} is not served without its coordinator: {error}") from error
        await asyncio.sleep(pause_s)
        await broker.leadership.lead([coordinator])

    await world.ask(f"release the coordinator of {group}", released)


def _seen_members(broker: Broker, group: str) -> list[str]:
    views = [view for shard in broker.groups.shards.leading if (view := shard.state.views.get(group)) is not None]
    return list(dict.fromkeys(member for view in views for member in view.members))


async def save_state(world: World, rng: Random) -> None:
    """Snapshots and recovery points are written."""

    async def saved(broker: Broker) -> None:
        for shard in broker.groups.shards.leading:
            await shard.journal.snapshot()
        await broker.checkpoints.save(list(broker.recoverables()))

    await world.ask("save state", saved)


async def cut_tail(world: World, rng: Random) -> None:
    """What does not count yet is cut off a partition, while clients go on."""
    number, share = rng.random(), rng.random()

    async def truncated(broker: Broker) -> None:
        partitions = [(topic, at) for topic in broker.running_topics() for at in range(len(topic.partitions))]
        behind = [(topic, at) for topic, at in partitions if _uncounted(topic, at)]
        topic, at = (behind or partitions)[int(number * len(behind or partitions))]
        offset = topic.partitions[at].high_watermark + int(share * (_uncounted(topic, at) + 1))
        await broker.to_the_end(truncate_partition(topic, at, offset, broker.checkpoints, broker.stillness))

    await world.ask("cut a partition back", truncated)


def _uncounted(topic: Topic, number: int) -> int:
    partition = topic.partitions[number]
    return partition.log.end_offset - partition.high_watermark


async def move_clock(world: World, rng: Random) -> None:
    world.node.clock.ahead_ns += rng.choice((-3_000, -50, 50, 3_000)) * (NANOS_PER_SECOND // 1_000)
