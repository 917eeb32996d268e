"""What must hold in the end, when nothing fails any more."""

from __future__ import annotations

import asyncio
from functools import partial

from goqueue.broker.broker import Broker
from goqueue.broker.operations import IN_PROCESS, ManyCommitted
from goqueue.model.errors import GoQueueError
from goqueue.simulation.processes import Killed
from goqueue.simulation.promises import DEAD, Broken, Place, Sent
from goqueue.simulation.queue_checks import check_again_after_a_start, check_queue, check_stream
from goqueue.simulation.view_checks import check_views
from goqueue.simulation.workload.publishing import read_from
from goqueue.simulation.workload.transacting import end_prepared
from goqueue.simulation.world import BRIEF, CHECKED, COMES_AND_GOES, QUEUES, STREAMS, TIDY, World

_FORGETFUL = (TIDY, BRIEF)
"""Topics that lose messages by their settings."""
_LONGEST_S = 600


async def check_everything(world: World) -> None:
    """Undo all faults, start once more, and hold what is there against what was told."""
    await _heal(world)
    await end_prepared(world)
    await _until_nothing_is_delayed(world)
    await _check_what_is_read(world)
    await _check_topics(world)
    await _check_keys_of_commits(world)
    await _check_misfits(world)
    for group in STREAMS:
        await _check_offsets(world, group)
        await check_stream(world, group)
    for group in QUEUES:
        await check_queue(world, group)
    await check_again_after_a_start(world)


async def _heal(world: World) -> None:
    world.node.disk.quota = None
    world.node.disk.sync_fault = lambda site, count: False
    world.loop.slowness = 1.0
    await world.node.stop()
    world.promises.broker_is_gone()
    await world.node.start()
    if problems := await world.node.run(_problems):
        raise Broken(f"the broker is not well after a start: {problems}")
    await check_views(world)


async def _problems(broker: Broker) -> dict[str, str]:
    return broker.problems()


async def _until_nothing_is_delayed(world: World) -> None:
    for _ in range(_LONGEST_S):
        waiting = [await _delayed(world, topic) for topic in world.topics]
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
    for topic in world.topics:
        for partition in range(world.partitions(topic)):
            offset = await read_from(world, topic, partition, 0)
            while offset:
                offset = await read_from(world, topic, partition, offset)
            if offset is not None:
                raise Broken(f"{topic}/{partition} cannot be read")
    found = world.promises.seen
    for place, value in before.items():
        if place.topic in world.topics and place.topic not in _FORGETFUL and found.get(place) != value:
            raise Broken(f"{place} was read as {value!r}, and is {found.get(place)!r}")
    by_value: dict[bytes, list[Place]] = {}
    for place, value in found.items():
        by_value.setdefault(value, []).append(place)
    for message in world.promises.sent.values():
        places = by_value.get(message.value, [])
        if message.topic not in _FORGETFUL:
            _check_message(message, places, redriven=message.value in world.promises.may_redrive)
    _check_units(world, by_value)
    _check_keys(world, found)


def _check_message(message: Sent, places: list[Place], *, redriven: bool) -> None:
    if message.must_be_seen and not places:
        raise Broken(f"{message.value!r} is lost: {message}")
    if len(places) > 1 and not redriven:
        raise Broken(f"{message.value!r} is there {len(places)} times: {places}")
    if message.must_be_seen and message.due_ns is None and message.place not in places:
        raise Broken(f"{message.value!r} was stored at {message.place}, and is at {places}")


def _check_units(world: World, by_value: dict[bytes, list[Place]]) -> None:
    """Of a transaction whose commit was not answered, all is there or nothing."""
    seen: dict[object, set[bool]] = {}
    for message in world.promises.sent.values():
        if message.unit is not None and message.state == "told" and not message.may_be_gone:
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
    if missing := world.topics.keys() - set(names):
        raise Broken(f"topics are gone: {missing}")


async def _topic_names(broker: Broker) -> list[str]:
    return broker.topic_names()


async def _check_keys_of_commits(world: World) -> None:
    for key, (names, _) in world.keys.items():
        told = await world.node.run(partial(_committed_under, key=key))
        if told is None or told.transactions != names:
            raise Broken(f"{names} were committed under {key}, and now it is {told}")


async def _committed_under(broker: Broker, key: str) -> ManyCommitted | None:
    return await broker.operations.transactions.committed_under(IN_PROCESS, key)


async def _check_misfits(world: World) -> None:
    """What does not fit its schema is with the dead letters."""
    letters = f"{CHECKED}{DEAD}"
    misfits = [each for each in world.promises.sent.values() if not each.fits and each.state == "told"]
    found: dict[int, bytes] = {}
    offset = await read_from(world, letters, 0, 0, found) if misfits else None
    while offset:
        offset = await read_from(world, letters, 0, offset, found)
    if missing := [each for each in misfits if each.value not in found.values()]:
        raise Broken(f"these do not fit their schema, and are no dead letters: {missing}")


async def _check_offsets(world: World, group: str) -> None:
    answer = await world.ask("fetch offsets", partial(_offsets, group=group))
    for (of_group, topic, partition), (told, asked) in world.promises.committed.items():
        if of_group != group:
            continue
        if isinstance(answer, GoQueueError | Killed):
            if told:
                raise Broken(f"the offsets of a stream are gone: {answer}")
            continue
        there = answer.get(topic, {}).get(partition, 0)
        if told > there or (there > asked and (topic, partition) not in world.promises.purges):
            raise Broken(f"{topic}/{partition} was committed up to {told} (asked: {asked}), and is at {there}")


async def _offsets(broker: Broker, group: str) -> dict[str, dict[int, int]]:
    return await broker.operations.offsets.committed(IN_PROCESS, group)
