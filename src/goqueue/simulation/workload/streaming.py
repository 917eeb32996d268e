"""What simulated clients read as streams, and the offsets that they commit."""

from __future__ import annotations

from random import Random

from goqueue.broker.broker import Broker
from goqueue.broker.operations import IN_PROCESS, Delivery, PollBounds
from goqueue.model.errors import GoQueueError
from goqueue.model.ids import partition_key
from goqueue.simulation.processes import Killed
from goqueue.simulation.promises import Broken, Offsets, Place
from goqueue.simulation.workload.members import member_of, note_answer
from goqueue.simulation.world import OUT, READERS, STREAMS, Actor, Membership, World, is_doubtful
from goqueue.wire.decoding import decode_run

_POLL_BYTES = 1 << 20


async def stream(world: World, actor: Actor, rng: Random) -> None:
    group = rng.choice(list(STREAMS))
    member = await member_of(world, actor, group)
    if member is None:
        return
    found = await read_on(world, actor, member, PollBounds(rng.choice((1, 10, 100)), _POLL_BYTES))
    if found and rng.random() < 0.7:
        await commit(world, actor, member, found, in_generation=rng.random() < 0.5)


async def read_on(world: World, actor: Actor, member: Membership, bounds: PollBounds) -> list[Delivery]:
    group = member.group
    asked_at, asked_s = world.promises.tick(), world.loop.time()
    found = await world.ask(
        f"read on as {group}",
        lambda broker: broker.operations.queues.poll(IN_PROCESS, group, member.member_id, bounds),
    )
    note_answer(world, actor, member, asked_at, asked_s, found)
    if isinstance(found, GoQueueError | Killed):
        return []
    for delivery in found:
        for message in decode_run(delivery.run)[0]:
            place = Place(delivery.topic, delivery.partition, message.offset)
            world.promises.read(place, message.value or b"", asked_at)
    return found


async def commit(
    world: World, actor: Actor, member: Membership, found: list[Delivery], *, in_generation: bool = False
) -> None:
    group, topic = member.group, world.topic_of(member.group)
    offsets = {topic: {each.partition: each.next_offset for each in found}}
    generation = member.generation if in_generation else None
    unit = actor.unit
    asked = as_offsets(group, offsets)
    asked_at, asked_s = world.promises.tick(), world.loop.time()
    if unit is not None and not in_generation:
        ended: object = await world.ask(
            "offsets in a transaction",
            lambda broker: broker.operations.transactions.add_offsets(
                IN_PROCESS, unit.reference, group, member.member_id, offsets
            ),
        )
        if not isinstance(ended, GoQueueError | Killed):
            unit.offsets |= asked
        elif is_doubtful(ended):
            # They may be part of it, and it may be committed.
            world.promises.commit_asked(asked)
        return
    world.promises.commit_asked(asked)
    ended = await world.ask(
        f"commit {offsets}",
        lambda broker: broker.operations.offsets.commit(IN_PROCESS, group, member.member_id, offsets, generation),
    )
    note_answer(world, actor, member, asked_at, asked_s, ended)
    if ended is None:
        _check_generation(world, group, generation, asked_at)
        world.promises.commit_told(asked)


def _check_generation(world: World, group: str, generation: int | None, asked_at: int) -> None:
    name = f"the generation of {group}"
    # Under 'sticky' who had a partition before has it still, unless it was told otherwise.
    if group == READERS and generation is not None and world.promises.fences.was_passed(name, generation, asked_at):
        raise Broken(f"offsets of generation {generation} were committed, after {name} was higher")


def as_offsets(group: str, offsets: dict[str, dict[int, int]]) -> Offsets:
    return {(group, topic, number): offset for topic, own in offsets.items() for number, offset in own.items()}


async def commit_as_former(world: World, actor: Actor, rng: Random) -> None:
    """A client that was taken for dead goes on: as a member that has left, or in a generation that is over."""
    chosen = [each for each in actor.former if each.group in STREAMS]
    chosen += [each for group, each in actor.members.items() if group in STREAMS]
    if not chosen:
        return
    member = rng.choice(chosen)
    # The last is no topic of theirs.
    topic = rng.choice((*[world.topic_of(member.group)] * 5, OUT))
    partition = rng.randrange(world.partitions(topic))
    generation = rng.choice((None, member.generation))
    # What is committed already: if that is taken, nothing changes.
    told, _ = world.promises.committed.get((member.group, topic, partition), (0, 0))

    async def committed(broker: Broker) -> str:
        group, found = broker.groups.shards.find(member.group).group, broker.topics.find(topic)
        # Nothing comes between this and the broker's look at it.
        owner = group.state.owners.get(partition_key(found.record.topic_id, partition), "nobody")
        await broker.operations.offsets.commit(
            IN_PROCESS, member.group, member.member_id, {topic: {partition: told}}, generation
        )
        return owner

    asked_at, asked_s = world.promises.tick(), world.loop.time()
    owner = await world.ask(f"commit as a former {member.group}", committed)
    note_answer(world, actor, member, asked_at, asked_s, owner)
    if isinstance(owner, str):
        _check_generation(world, member.group, generation, asked_at)
        if owner != member.member_id:
            raise Broken(f"{member} has committed {topic}/{partition}, which is of {owner}")


async def fetch_offsets(world: World, actor: Actor, rng: Random) -> None:
    """What a client is told to be committed is durable."""
    group = rng.choice(list(STREAMS))
    told = await world.ask(
        f"fetch offsets of {group}", lambda broker: broker.operations.offsets.committed(IN_PROCESS, group)
    )
    if isinstance(told, GoQueueError | Killed):
        return
    for place, offset in as_offsets(group, {topic: dict(own) for topic, own in told.items()}).items():
        if place[1:] in world.promises.purges:
            continue
        if offset > world.promises.committed.get(place, (0, 0))[1]:
            raise Broken(f"{place} is at {offset}, which no one has committed")
        if offset:
            world.promises.commit_told({place: offset})
