"""What simulated clients poll and settle."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from goqueue.broker.operations import IN_PROCESS, Filter, PollBounds, SettlementRequest, Verb
from goqueue.model.errors import GoQueueError, StaleReceipt
from goqueue.simulation.processes import Killed
from goqueue.simulation.promises import Broken, Place
from goqueue.simulation.workload.members import member_of, note_answer
from goqueue.simulation.world import (
    IN_ORDER,
    KEYED,
    PASSING,
    QUEUES,
    SPREAD,
    WIDE,
    WORK,
    WORKERS,
    Actor,
    Held,
    Membership,
    World,
)
from goqueue.wire.decoding import decode_run

_POLL_BYTES = 1 << 20
_HELD = 200
_REDRIVEN = 10


async def poll(world: World, actor: Actor, rng: Random) -> None:
    bounds = PollBounds(rng.choice((1, 3, 20)), _POLL_BYTES, wait_ms=rng.choice((0, 0, 0, 300)))
    group = rng.choice((WORKERS, WORKERS, IN_ORDER, IN_ORDER, SPREAD, SPREAD, PASSING))
    if group == PASSING:
        async with world.passing.lock:
            await poll_from(world, actor, group, bounds)
    else:
        await poll_from(world, actor, group, bounds)


async def poll_as_former(world: World, actor: Actor, rng: Random) -> None:
    """A client that was taken for dead goes on."""
    former = [each for each in actor.former if each.group in QUEUES]
    if former:
        await poll_as(world, actor, rng.choice(former), PollBounds(20, _POLL_BYTES))


async def poll_from(world: World, actor: Actor, group: str, bounds: PollBounds) -> list[Held]:
    member = await member_of(world, actor, group)
    return [] if member is None else await poll_as(world, actor, member, bounds)


async def poll_as(world: World, actor: Actor, member: Membership, bounds: PollBounds) -> list[Held]:
    group = member.group
    asked_at, asked_s = world.promises.tick(), world.loop.time()
    found = await world.ask(
        f"poll {group}", lambda broker: broker.operations.queues.poll(IN_PROCESS, group, member.member_id, bounds)
    )
    note_answer(world, actor, member, asked_at, asked_s, found)
    if isinstance(found, GoQueueError | Killed):
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
    done = [each for each in actor.done if each.delivered.group != PASSING]
    chosen = rng.sample(done, min(len(done), 3))
    for each, problem in zip(chosen, await _settle(world, chosen, Verb.ACK), strict=True):
        if isinstance(problem, StaleReceipt):
            raise Broken(f"{each.delivered.value!r} was acked, and its ack cannot be repeated: {problem}")


async def nack(world: World, actor: Actor, rng: Random) -> None:
    chosen = _some(actor, rng)
    await _settle(world, chosen, Verb.NACK, delay_ms=rng.choice((None, 0, 700)))


async def reject(world: World, actor: Actor, rng: Random) -> None:
    chosen = [each for each in _some(actor, rng) if each.delivered.group != PASSING][:3]
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


# Dead letters


async def redrive(world: World, actor: Actor, rng: Random) -> None:
    topic = rng.choice((WORK, KEYED, WIDE))
    world.promises.may_redrive |= {
        each.value for each in world.promises.delivered.values() if each.place.topic == topic
    }
    await world.ask(
        f"redrive {topic}",
        lambda broker: broker.operations.dead_letters.redrive(IN_PROCESS, topic, Filter(), _REDRIVEN, None),
    )
