"""What groups must get in the end, and what they must not get."""

from __future__ import annotations

from collections import Counter
from functools import partial

from goqueue.broker.broker import Broker
from goqueue.broker.operations import IN_PROCESS, Filter, PollBounds
from goqueue.model.errors import GroupNotFound, TopicNotFound
from goqueue.simulation.promises import Broken, Place
from goqueue.simulation.view_checks import check_views
from goqueue.simulation.workload.consuming import ack_all, poll_from
from goqueue.simulation.workload.members import member_of
from goqueue.simulation.workload.streaming import commit, read_on
from goqueue.simulation.world import PASSING, QUEUES, Actor, World
from goqueue.wire.decoding import decode_run

_LETTERS = 10_000
_BYTES = 64 << 20
_POLL = PollBounds(100, 1 << 20, wait_ms=3_000)
_QUIET_POLLS = 2
_READ_ON = PollBounds(1_000, 1 << 20)


async def check_queue(world: World, group: str) -> None:
    """What is neither acked nor a dead letter comes; what is does not."""
    promises, topic = world.promises, QUEUES[group]
    if not await _all_have_left(world, group):
        return
    received = await _drained(world, group)
    if group == PASSING and not world.passing.is_known:
        return
    dead = await _dead_letters(world, topic, group)
    if group != PASSING:
        # That one may have been set back behind a dead letter.
        _check_letters(world, group, dead)
    firsts = {value: place for place, value in sorted(promises.seen.items(), reverse=True) if place.topic == topic}
    for value, place in firsts.items():
        if promises.sent[value].may_be_gone:
            # A purge that failed may have let groups go on behind it, and then not have come to the disk.
            continue
        told = promises.delivered.get((group, place))
        if place not in received and place not in dead and not (told and told.may_be_acked):
            raise Broken(f"{value!r} at {place} does not come to {group}, and was not acked: {told}")


def _check_letters(world: World, group: str, dead: Counter[Place]) -> None:
    if twice := [place for place, times in dead.items() if times > 1]:
        raise Broken(f"dead letters of {group} are there twice: {twice}")
    for (of_group, place), known in world.promises.delivered.items():
        if of_group != group:
            continue
        # One that was purged before it was moved is gone.
        if known.dead and place not in dead and not world.promises.sent[known.value].may_be_gone:
            raise Broken(f"{known.value!r} at {place} was rejected, and is no dead letter")
        if known.acked_at is not None and place in dead:
            raise Broken(f"{known.value!r} at {place} was acked, and is a dead letter")


async def check_stream(world: World, group: str) -> None:
    """Whoever reads on gets everything behind what is committed, in order."""
    topic = world.topic_of(group)
    if not await _all_have_left(world, group):
        return
    offsets = await world.node.run(partial(_committed, group=group))
    # What goes back from the dead letters is for the group that it came from, and what was purged may come or not.
    purged = {value for value, message in world.promises.sent.items() if message.may_be_gone}
    others = world.promises.may_redrive | purged
    actor, received, quiet = Actor(98), dict[int, list[int]](), 0
    member = await member_of(world, actor, group)
    if member is None:
        raise Broken(f"nobody can join {group}")
    while quiet < _QUIET_POLLS:
        found = await read_on(world, actor, member, _READ_ON)
        quiet = 0 if found else quiet + 1
        for delivery in found:
            own = received.setdefault(delivery.partition, [])
            own += [each.offset for each in decode_run(delivery.run)[0] if each.value not in others]
        if found:
            await commit(world, actor, member, found)
    seen = [place for place, value in world.promises.seen.items() if place.topic == topic and value not in others]
    for partition in range(world.partitions(topic)):
        first = offsets.get(topic, {}).get(partition, 0)
        wanted = sorted(each.offset for each in seen if each.partition == partition and each.offset >= first)
        if received.get(partition, []) != wanted:
            raise Broken(f"{group} is at {first} of {topic}/{partition}, and gets {received.get(partition)}: {wanted}")


async def _committed(broker: Broker, group: str) -> dict[str, dict[int, int]]:
    return await broker.operations.offsets.committed(IN_PROCESS, group)


async def _all_have_left(world: World, group: str) -> bool:
    """Whether there is such a group."""
    try:
        members = await world.node.run(partial(_members, group=group))
    except GroupNotFound:
        is_wanted = world.passing.state == "told" if group == PASSING else _was_used(world, group)
        if is_wanted:
            raise Broken(f"group {group} is gone") from None
        return False
    if group == PASSING and world.passing.state == "refused":
        raise Broken(f"group {group} is there, and was deleted")
    if group == PASSING:
        limit = (await world.node.run(_limit)) if world.passing.limits else 0
        if limit and limit not in world.passing.limits:
            raise Broken(f"{group} has max_in_flight {limit}, and was given {world.passing.limits}")
    for member in members:
        await world.ask("leave", partial(_leave, group=group, member=member))
    return True


def _was_used(world: World, group: str) -> bool:
    return any(each == group for each, _ in world.promises.delivered) or any(
        told for (each, _, _), (told, _) in world.promises.committed.items() if each == group
    )


async def _limit(broker: Broker) -> int:
    return (await broker.operations.groups.describe(IN_PROCESS, PASSING)).settings.max_in_flight


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


async def check_again_after_a_start(world: World) -> None:
    """What was settled in the end stays so after a power cut."""
    world.node.cut_power()
    await world.node.start()
    await check_views(world)
    for group in await world.node.run(_group_names):
        if group not in QUEUES:
            continue
        actor = Actor(100)
        held = await poll_from(world, actor, group, PollBounds(100, 1 << 20))
        if held:
            raise Broken(f"{group} gets what was acked before a power cut: {held[0]}")
