"""What simulated clients do in transactions: write to topics and ack what they have consumed, all or nothing."""

from __future__ import annotations

from random import Random

from goqueue.broker.broker import Broker
from goqueue.broker.operations import IN_PROCESS, TransactionRef
from goqueue.model.errors import GoQueueError
from goqueue.simulation.processes import Killed
from goqueue.simulation.promises import Sent, Unit
from goqueue.simulation.publishing import send
from goqueue.simulation.world import LOG, OUT, Actor, World, is_doubtful

_TIMEOUT_MS = 10_000


async def begin(world: World, actor: Actor, rng: Random) -> None:
    if actor.unit is not None:
        return
    made = await world.ask(
        "init a producer",
        lambda broker: broker.operations.producers.init(IN_PROCESS, f"producer-{actor.number}", _TIMEOUT_MS),
    )
    if isinstance(made, GoQueueError | Killed):
        return

    async def begun(broker: Broker) -> TransactionRef:
        opened = broker.operations.transactions.begin(IN_PROCESS, made.producer_id, made.epoch)
        return TransactionRef(made.producer_id, made.epoch, opened.transaction_id)

    reference = await world.ask("begin", begun)
    if not isinstance(reference, GoQueueError | Killed):
        actor.unit = Unit(reference)


async def write(world: World, actor: Actor, rng: Random) -> None:
    if actor.unit is None:
        return
    messages = []
    for _ in range(rng.choice((1, 2, 5))):
        value = world.promises.new_value()
        messages.append(Sent(value, rng.choice((OUT, OUT, LOG)), unit=actor.unit))
        world.promises.sent[value] = messages[-1]
    for topic in (OUT, LOG):
        of_topic = [each for each in messages if each.topic == topic]
        if of_topic:
            await send(world, topic, of_topic, rng, actor.unit)


async def ack(world: World, actor: Actor, rng: Random) -> None:
    unit = actor.unit
    if unit is None or not actor.held:
        return
    chosen = rng.sample(actor.held, min(len(actor.held), 3))
    actor.held = [each for each in actor.held if each not in chosen]
    receipts = [each.receipt for each in chosen]
    ended = await world.ask(
        "ack in a transaction",
        lambda broker: broker.operations.transactions.add_acks(IN_PROCESS, unit.reference, receipts),
    )
    if not isinstance(ended, GoQueueError | Killed):
        unit.acks += [each.delivered for each in chosen]
    elif is_doubtful(ended):
        unit.doubtful_acks += [each.delivered for each in chosen]


async def commit(world: World, actor: Actor, rng: Random) -> None:
    unit, actor.unit = actor.unit, None
    if unit is None:
        return
    if unit.ending == "open":
        unit.ending = "committing"
    for each in (*unit.acks, *unit.doubtful_acks):
        each.may_be_acked = True
    ended = await world.ask(
        "commit",
        lambda broker: broker.operations.transactions.commit(IN_PROCESS, unit.name, unit.reference),
    )
    if ended is None:
        unit.ending = "committed"
        world.history.counts["transactions committed"] += 1
        for each in unit.acks:
            world.promises.acked(each)
    elif not is_doubtful(ended):
        unit.ending = "aborted"


async def abort(world: World, actor: Actor, rng: Random) -> None:
    unit, actor.unit = actor.unit, None
    if unit is not None:
        unit.ending = "aborted"
        await world.ask("abort", lambda broker: broker.operations.transactions.abort(IN_PROCESS, unit.name))
