"""What simulated clients poll, settle and commit."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from goqueue.broker.operations import IN_PROCESS, Delivery, Filter, Join, PollBounds, SettlementRequest, Verb
from goqueue.model.errors import GoQueueError, GroupNotFound, StaleReceipt, UnknownMember
from goqueue.simulation.processes import Killed
from goqueue.simulation.promises import Broken, Place
from goqueue.simulation.world import (
    KEYED,
    LOG,
    QUEUE_SETTINGS,
    QUEUES,
    STREAM,
    WORK,
    Actor,
    Held,
    World,
)
from goqueue.wire.decoding import decode_run

_POLL_BYTES = 1 << 20
_SESSION_MS = 20_000
_HELD = 200
_REDRIVEN = 10


async def member_of(world: World, actor: Actor, group: str) -> str | None:
    """The actor's member of a group; it joins if it has none."""
    if group in actor.members:
        return actor.members[group]
    topic = QUEUES.get(group, LOG)
    settings = QUEUE_SETTINGS.get(group, {"mode": "stream"})
    request = Join(f"actor-{actor.number}", [topic], settings, session_timeout_ms=_SESSION_MS)
    joined = await world.ask(f"join {group}", lambda broker: broker.operations.groups.join(IN_PROCESS, group, request))
    if isinstance(joined, GoQueueError | Killed):
        return None
    actor.members[group] = joined.member_id
    return joined.member_id


async def leave(world: World, actor: Actor, rng: Random) -> None:
    group = rng.choice([*QUEUES, STREAM])
    member = actor.members.pop(group, None)
    if member is not None:
        await world.ask(f"leave {group}", lambda broker: broker.operations.groups.leave(IN_PROCESS, group, member))


async def poll(world: World, actor: Actor, rng: Random) -> None:
    bounds = PollBounds(rng.choice((1, 3, 20)), _POLL_BYTES, wait_ms=rng.choice((0, 0, 0, 300)))
    await poll_from(world, actor, rng.choice(list(QUEUES)), bounds)


async def poll_from(world: World, actor: Actor, group: str, bounds: PollBounds) -> list[Held]:
    member = await member_of(world, actor, group)
    if member is None:
        return []
    asked_at = world.promises.tick()
    found = await world.ask(
        f"poll {group}", lambda broker: broker.operations.queues.poll(IN_PROCESS, group, member, bounds)
    )
    if isinstance(found, GoQueueError | Killed):
        _forget_member(actor, group, found)
        return []
    held = []
    for delivery in found:
        for message in decode_run(delivery.run)[0]:
            place = Place(delivery.topic, delivery.partition, message.offset)
            told = world.promises.deliver(group, place, message.value or b"", delivery.count, asked_at)
            held.append(Held(told, delivery.receipt(message.offset) or "", delivery.count))
    world.history.note("got", *(each.delivered.value[:7].decode() for each in held))
    world.history.counts["messages delivered"] += len(held)
    actor.held += held
    del actor.held[:-_HELD]
    return held


def _forget_member(actor: Actor, group: str, error: object) -> None:
    if isinstance(error, UnknownMember | GroupNotFound):
        actor.members.pop(group, None)


# Settling


async def ack(world: World, actor: Actor, rng: Random) -> None:
    await ack_all(world, actor, _some(actor, rng))


async def ack_all(world: World, actor: Actor, chosen: list[Held]) -> None:
    for each in chosen:
        each.delivered.may_be_acked = True
    for each, problem in zip(chosen, await _settle(world, chosen, Verb.ACK), strict=True):
        if problem is None:
            world.promises.acked(each.delivered)
            world.history.counts["messages acked"] += 1
            actor.done.append(each)
    del actor.done[:-_HELD]


async def ack_again(world: World, actor: Actor, rng: Random) -> None:
    """A client that does not know that its ack was answered repeats it."""
    chosen = rng.sample(actor.done, min(len(actor.done), 3))
    for each, problem in zip(chosen, await _settle(world, chosen, Verb.ACK), strict=True):
        if isinstance(problem, StaleReceipt):
            raise Broken(f"{each.delivered.value!r} was acked, and its ack cannot be repeated: {problem}")


async def nack(world: World, actor: Actor, rng: Random) -> None:
    chosen = _some(actor, rng)
    await _settle(world, chosen, Verb.NACK, delay_ms=rng.choice((None, 0, 700)))


async def reject(world: World, actor: Actor, rng: Random) -> None:
    chosen = _some(actor, rng)[:3]
    for each, problem in zip(chosen, await _settle(world, chosen, Verb.REJECT, reason="bad"), strict=True):
        if problem is None:
            world.promises.died(each.delivered)
            world.history.counts["messages rejected"] += 1


async def extend(world: World, actor: Actor, rng: Random) -> None:
    chosen = rng.sample(actor.held, min(len(actor.held), 3))
    await _settle(world, chosen, Verb.EXTEND, delay_ms=rng.choice((100, 5_000)))


async def _settle(
    world: World, chosen: Sequence[Held], verb: Verb, delay_ms: int | None = None, reason: str = ""
) -> Sequence[object]:
    """A problem for each, ``None`` where there was none."""
    if not chosen:
        return []
    receipts = [each.receipt for each in chosen]
    order = SettlementRequest(verb, delay_ms, reason)
    outcomes = await world.ask(
        f"{verb} {len(chosen)}",
        lambda broker: broker.operations.queues.settle_receipts(IN_PROCESS, receipts, order),
    )
    world.history.note(
        "settled", *(type(each).__name__ for each in outcomes if each) if isinstance(outcomes, list) else ""
    )
    return outcomes if isinstance(outcomes, list) else [outcomes] * len(chosen)


def _some(actor: Actor, rng: Random) -> list[Held]:
    """Take some messages out of the actor's hands."""
    chosen = rng.sample(actor.held, min(len(actor.held), rng.choice((1, 2, 20))))
    actor.held = [each for each in actor.held if each not in chosen]
    return chosen


# Streams


async def stream(world: World, actor: Actor, rng: Random) -> None:
    member = await member_of(world, actor, STREAM)
    if member is None:
        return
    bounds = PollBounds(rng.choice((1, 10, 100)), _POLL_BYTES)
    found = await world.ask(
        "poll a stream", lambda broker: broker.operations.queues.poll(IN_PROCESS, STREAM, member, bounds)
    )
    if isinstance(found, GoQueueError | Killed):
        _forget_member(actor, STREAM, found)
        return
    for delivery in found:
        for message in decode_run(delivery.run)[0]:
            world.promises.read(Place(delivery.topic, delivery.partition, message.offset), message.value or b"")
    if found and rng.random() < 0.7:
        await _commit(world, actor, member, found)


async def _commit(world: World, actor: Actor, member: str, found: list[Delivery]) -> None:
    offsets = {LOG: {each.partition: each.next_offset for each in found}}
    committed = world.promises.committed
    for partition, offset in offsets[LOG].items():
        told, asked = committed.get((STREAM, LOG, partition), (0, 0))
        committed[STREAM, LOG, partition] = (told, max(asked, offset))
    ended = await world.ask(
        f"commit {offsets}",
        lambda broker: broker.operations.offsets.commit(IN_PROCESS, STREAM, member, offsets),
    )
    if ended is None:
        for partition, offset in offsets[LOG].items():
            told, asked = committed[STREAM, LOG, partition]
            committed[STREAM, LOG, partition] = (max(told, offset), asked)


# Dead letters


async def redrive(world: World, actor: Actor, rng: Random) -> None:
    topic = rng.choice((WORK, KEYED))
    world.promises.may_redrive |= {
        each.value for each in world.promises.delivered.values() if each.place.topic == topic
    }
    await world.ask(
        f"redrive {topic}",
        lambda broker: broker.operations.dead_letters.redrive(IN_PROCESS, topic, Filter(), _REDRIVEN, None),
    )
