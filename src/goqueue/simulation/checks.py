"""What must hold in the end, when nothing fails any more."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

from goqueue.broker.broker import Broker
from goqueue.broker.operations import IN_PROCESS, Filter, PollBounds
from goqueue.model.errors import GoQueueError, GroupNotFound, TopicNotFound
from goqueue.simulation.consuming import ack_all, poll_from
from goqueue.simulation.processes import Killed
from goqueue.simulation.promises import Broken, Place, Sent
from goqueue.simulation.publishing import read_from
from goqueue.simulation.world import COMES_AND_GOES, QUEUES, STREAM, TIDY, TOPICS, Actor, World

_LETTERS = 10_000
_BYTES = 64 << 20
_POLL = PollBounds(100, 1 << 20, wait_ms=5_000)
_QUIET_POLLS = 3
_LONGEST_S = 600


async def check_everything(world: World) -> None:
    """Undo all faults, start once more, and hold what is there against what was told."""
    await _heal(world)
    await _until_nothing_is_delayed(world)
    await _check_what_is_read(world)
    await _check_topics(world)
    await _check_offsets(world)
    for group in QUEUES:
        await _check_queue(world, group)
    await _check_again_after_a_start(world)


async def _heal(world: World) -> None:
    world.node.disk.quota = None
    world.node.disk.sync_fault = lambda site, count: False
    world.loop.slowness = 1.0
    await world.node.stop()
    world.promises.broker_is_gone()
    await world.node.start()
    if problems := await world.node.run(_problems):
        raise Broken(f"the broker is not well after a start: {problems}")


async def _problems(broker: Broker) -> dict[str, str]:
    return broker.problems()


async def _until_nothing_is_delayed(world: World) -> None:
    for _ in range(_LONGEST_S):
        waiting = [await _delayed(world, topic) for topic in TOPICS]
        # What was due last may not be on the disk yet.
        await asyncio.sleep(1)
        if not any(waiting):
            return
    raise Broken(f"messages are still delayed: {waiting}")


async def _delayed(world: World, topic: str) -> int:
    page = await world.node.run(lambda broker: broker.operations.delays.page(IN_PROCESS, topic, 1))
    return page.total


# Logs


async def _check_what_is_read(world: World) -> None:
    before = world.promises.seen
    world.promises.seen = {}
    for topic in TOPICS:
        for partition in range(int(str(TOPICS[topic]["partitions"]))):
            offset: int | None = 0
            while offset is not None:
                offset = await read_from(world, topic, partition, offset)
    found = world.promises.seen
    for place, value in before.items():
        if place.topic in TOPICS and place.topic != TIDY and found.get(place) != value:
            raise Broken(f"{place} was read as {value!r}, and is {found.get(place)!r}")
    by_value: dict[bytes, list[Place]] = {}
    for place, value in found.items():
        by_value.setdefault(value, []).append(place)
    for message in world.promises.sent.values():
        places = by_value.get(message.value, [])
        if message.topic != TIDY:
            _check_message(message, places, redriven=message.value in world.promises.may_redrive)
    _check_units(world, by_value)
    _check_keys(world, found)


def _check_message(message: Sent, places: list[Place], *, redriven: bool) -> None:
    if message.must_be_seen and not places:
        raise Broken(f"{message.value!r} is lost: {message}")
    if len(places) > 1 and not redriven:
        raise Broken(f"{message.value!r} is there {len(places)} times: {places}")
    if message.state == "told" and message.due_ns is None and places and message.place not in places:
        raise Broken(f"{message.value!r} was stored at {message.place}, and is at {places}")


def _check_units(world: World, by_value: dict[bytes, list[Place]]) -> None:
    """Of a transaction whose commit was not answered, all is there or nothing."""
    seen: dict[object, set[bool]] = {}
    for message in world.promises.sent.values():
        if message.unit is not None and message.state == "told":
            seen.setdefault(message.unit, set()).add(message.value in by_value)
    for unit, whether in seen.items():
        if len(whether) > 1:
            raise Broken(f"a part of a transaction is there: {unit}")


def _check_keys(world: World, found: dict[Place, bytes]) -> None:
    """Of a compacted topic, the last message of each key is there."""
    last: dict[bytes | None, Sent] = {}
    for message in world.promises.sent.values():
        if message.topic == TIDY and message.state == "told" and message.place is not None:
            known = last.get(message.key)
            if known is None or known.place is None or known.place.offset < message.place.offset:
                last[message.key] = message
    there: dict[bytes | None, int] = {}
    for place, value in found.items():
        if place.topic == TIDY:
            key = world.promises.sent[value].key
            there[key] = max(there.get(key, -1), place.offset)
    for key, message in last.items():
        if message.place is None or there.get(key, -1) < message.place.offset:
            raise Broken(f"the last value of key {key!r} is lost: {message}")


# Topics and offsets


async def _check_topics(world: World) -> None:
    names = await world.node.run(_topic_names)
    if world.promises.topic == "told" and COMES_AND_GOES not in names:
        raise Broken("a topic is gone that was made")
    if world.promises.topic == "refused" and COMES_AND_GOES in names:
        raise Broken("a topic is there that was deleted")
    if missing := TOPICS.keys() - set(names):
        raise Broken(f"topics are gone: {missing}")


async def _topic_names(broker: Broker) -> list[str]:
    return broker.topic_names()


async def _check_offsets(world: World) -> None:
    offsets = await world.ask("fetch offsets", lambda broker: broker.operations.offsets.committed(IN_PROCESS, STREAM))
    for (_, topic, partition), (told, asked) in world.promises.committed.items():
        if isinstance(offsets, GoQueueError | Killed):
            if told:
                raise Broken(f"the offsets of a stream are gone: {offsets}")
            continue
        there = offsets.get(topic, {}).get(partition, 0)
        if not told <= there <= asked:
            raise Broken(f"{topic}/{partition} was committed up to {told} (asked: {asked}), and is at {there}")


# Queues


async def _check_queue(world: World, group: str) -> None:
    """What is neither acked nor a dead letter comes; what is does not."""
    promises, topic = world.promises, QUEUES[group]
    try:
        members = await world.node.run(lambda broker: _members(broker, group))
    except GroupNotFound:
        if any(each.group == group for each in promises.delivered.values()):
            raise Broken(f"group {group} is gone") from None
        return
    for member in members:
        await world.ask("leave", partial(_leave, group=group, member=member))
    received = await _drained(world, group)
    dead = await _dead_letters(world, topic, group)
    if twice := [place for place, times in dead.items() if times > 1]:
        raise Broken(f"dead letters of {group} are there twice: {twice}")
    for (of_group, place), known in promises.delivered.items():
        if of_group != group:
            continue
        if known.dead and place not in dead:
            raise Broken(f"{known.value!r} at {place} was rejected, and is no dead letter")
        if known.acked_at is not None and place in dead:
            raise Broken(f"{known.value!r} at {place} was acked, and is a dead letter")
    firsts = {value: place for place, value in sorted(promises.seen.items(), reverse=True) if place.topic == topic}
    for value, place in firsts.items():
        told = promises.delivered.get((group, place))
        if place not in received and place not in dead and not (told and told.may_be_acked):
            raise Broken(f"{value!r} at {place} does not come to {group}, and was not acked: {told}")


async def _leave(broker: Broker, group: str, member: str) -> bool:
    return await broker.operations.groups.leave(IN_PROCESS, group, member)


async def _members(broker: Broker, group: str) -> list[str]:
    return broker.operations.groups.member_ids(IN_PROCESS, group)


async def _drained(world: World, group: str) -> set[Place]:
    """All that a group still gets."""
    actor, received, quiet = Actor(99), set[Place](), 0
    while quiet < _QUIET_POLLS:
        held = await poll_from(world, actor, group, _POLL)
        quiet = 0 if held else quiet + 1
        received |= {each.delivered.place for each in held}
        actor.held = []
        await ack_all(world, actor, held)
    return received


async def _dead_letters(world: World, topic: str, group: str) -> Counter[Place]:
    try:
        letters = await world.node.run(
            lambda broker: broker.operations.dead_letters.browse(
                IN_PROCESS, topic, Filter(group=group), _LETTERS, max_bytes=_BYTES
            )
        )
    except TopicNotFound:
        return Counter()
    world.history.counts["dead letters"] += len(letters)
    world.history.counts["dead letters redriven"] += sum(each.redriven for each in letters)
    return Counter(Place(each.topic, each.origin_partition, each.origin_offset) for each in letters)


async def _group_names(broker: Broker) -> list[str]:
    return broker.operations.groups.names(IN_PROCESS)


async def _check_again_after_a_start(world: World) -> None:
    """What was settled in the end stays so after a power cut."""
    world.node.cut_power()
    await world.node.start()
    for group in await world.node.run(_group_names):
        if group not in QUEUES:
            continue
        actor = Actor(100)
        held = await poll_from(world, actor, group, PollBounds(100, 1 << 20))
        if held:
            raise Broken(f"{group} gets what was acked before a power cut: {held[0]}")
