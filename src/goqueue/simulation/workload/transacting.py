"""What simulated clients do in transactions: write to topics and ack what they have consumed, all or nothing."""

from __future__ import annotations

from functools import partial
from random import Random

from goqueue.broker.broker import Broker
from goqueue.broker.operations import IN_PROCESS, ManyCommitted, TransactionRef
from goqueue.model.errors import GoQueueError
from goqueue.simulation.processes import Killed
from goqueue.simulation.promises import Broken, Sent, Unit
from goqueue.simulation.workload.publishing import send
from goqueue.simulation.world import LOG, OUT, PASSING, WIDE, Actor, World, is_doubtful

_TIMEOUT_MS = 10_000
_FORMER = 5
_KEYS = 6


async def begin(world: World, actor: Actor, rng: Random) -> None:
    """As a producer with a name, which ends what the one before has left open, or as a new one without."""
    if actor.unit is not None:
        return
    name = rng.choice((f"producer-{actor.number}", f"producer-{actor.number}", None))
    for each in [each for each in world.prepared if name is not None and each.producer == name]:
        world.prepared.remove(each)
        world.doubtful.append(each)
    fences, asked_at = world.promises.fences, world.promises.tick()
    made = await world.ask(
        "init a producer", lambda broker: broker.operations.producers.init(IN_PROCESS, name, _TIMEOUT_MS)
    )
    if isinstance(made, GoQueueError | Killed):
        return
    fences.check((made.producer_id, made.epoch), asked_at, "a producer's id and epoch were given")
    for each in actor.former_units:
        if each.producer and each.producer == name:
            fences.end((each.reference.producer_id, each.reference.epoch))

    async def begun(broker: Broker) -> TransactionRef:
        opened = broker.operations.transactions.begin(IN_PROCESS, made.producer_id, made.epoch)
        return TransactionRef(made.producer_id, made.epoch, opened.transaction_id)

    reference = await world.ask("begin", begun)
    if not isinstance(reference, GoQueueError | Killed):
        actor.unit = Unit(reference, name or "")
        actor.former_units.append(actor.unit)
        del actor.former_units[:-_FORMER]


async def write(world: World, actor: Actor, rng: Random) -> None:
    if actor.unit is not None:
        await _write_in(world, actor.unit, rng)


async def _write_in(world: World, unit: Unit, rng: Random) -> None:
    messages = []
    for _ in range(rng.choice((1, 2, 5))):
        value = world.promises.new_value()
        key = rng.choice((None, b"%d" % rng.randrange(60)))
        messages.append(Sent(value, rng.choice((OUT, OUT, LOG, WIDE)), key, unit=unit))
        world.promises.sent[value] = messages[-1]
    for topic in (OUT, LOG, WIDE):
        of_topic = [each for each in messages if each.topic == topic]
        if of_topic:
            asked_at = world.promises.tick()
            if await send(world, topic, of_topic, rng, unit) is None:
                producer = (unit.reference.producer_id, unit.reference.epoch)
                world.promises.fences.check(producer, asked_at, "a batch was taken")


async def write_as_former(world: World, actor: Actor, rng: Random) -> None:
    """A producer that another took the place of, or whose transaction has ended, goes on."""
    former = [each for each in actor.former_units if each is not actor.unit]
    if former:
        unit = rng.choice(former)
        is_over, counted = unit.is_over, len(world.promises.sent)
        await _write_in(world, unit, rng)
        taken = [each for each in list(world.promises.sent.values())[counted:] if each.state == "told"]
        if is_over and any(each.unit is unit for each in taken):
            raise Broken(f"{unit.name} has ended ({unit.ending}), and takes messages")


async def ack(world: World, actor: Actor, rng: Random) -> None:
    unit = actor.unit
    held = [each for each in actor.held if each.delivered.group != PASSING]
    if unit is None or not held:
        return
    chosen = rng.sample(held, min(len(held), 3))
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


# Ends


async def commit(world: World, actor: Actor, rng: Random) -> None:
    unit, actor.unit = actor.unit, None
    if unit is not None:
        before = unit.ending
        _ask_to_commit(world, unit)
        ended = await world.ask(
            "commit",
            lambda broker: broker.operations.transactions.commit(IN_PROCESS, unit.name, unit.reference),
        )
        if ended is None:
            _committed(world, unit, before)
        elif not is_doubtful(ended):
            unit.ending = "aborted"


def _ask_to_commit(world: World, unit: Unit) -> None:
    if unit.ending != "aborted":
        unit.ending = "committing"
    for each in (*unit.acks, *unit.doubtful_acks):
        each.may_be_acked = True
    world.promises.commit_asked(unit.offsets)


def _committed(world: World, unit: Unit, before: str) -> None:
    if before == "aborted":
        raise Broken(f"{unit.name} was aborted, and is committed")
    unit.ending, unit.is_over = "committed", True
    world.history.counts["transactions committed"] += 1
    for each in unit.acks:
        world.promises.acked(each)
    world.promises.commit_told(unit.offsets)


async def abort(world: World, actor: Actor, rng: Random) -> None:
    unit, actor.unit = actor.unit, None
    if unit is not None:
        unit.ending = "aborted"
        ended = await world.ask("abort", partial(_abort, name=unit.name))
        unit.is_over = unit.is_over or ended is None


async def prepare(world: World, actor: Actor, rng: Random) -> None:
    """Leave it to others how a transaction ends."""
    unit, actor.unit = actor.unit, None
    if unit is None:
        return
    if unit.ending == "open":
        unit.ending = "preparing"
    ended = await world.ask(
        "prepare", lambda broker: broker.operations.transactions.prepare(IN_PROCESS, unit.name, unit.reference)
    )
    if not isinstance(ended, GoQueueError | Killed):
        unit.ending, unit.is_over = "prepared", True
        world.prepared.append(unit)
        world.history.counts["transactions prepared"] += 1
    elif is_doubtful(ended):
        world.doubtful.append(unit)
    else:
        unit.ending = "aborted"


async def commit_many(world: World, actor: Actor, rng: Random) -> None:
    """Commit some that were prepared, under a key under which others may have been committed."""
    key = f"key-{rng.randrange(_KEYS)}"
    chosen = world.prepared[: rng.choice((1, 2, 3))]
    if not chosen:
        return
    world.prepared = world.prepared[len(chosen) :]
    names = [each.name for each in chosen]
    for each in chosen:
        _ask_to_commit(world, each)
    asked_at = world.promises.tick()
    told = await world.ask(
        "commit many", lambda broker: broker.operations.transactions.commit_many(IN_PROCESS, key, names)
    )
    if isinstance(told, ManyCommitted):
        note_key(world, key, told.transactions, asked_at)
        for each in chosen:
            if each.name in told.transactions:
                _committed(world, each, "prepared")
            else:
                world.doubtful.append(each)
    else:
        world.doubtful += chosen


async def ask_for_key(world: World, actor: Actor, rng: Random) -> None:
    key = f"key-{rng.randrange(_KEYS)}"
    asked_at = world.promises.tick()
    told = await world.ask(
        "ask for a key", lambda broker: broker.operations.transactions.committed_under(IN_PROCESS, key)
    )
    if isinstance(told, GoQueueError | Killed):
        return
    if told is not None:
        note_key(world, key, told.transactions, asked_at)
    elif key in world.keys and world.keys[key][1] < asked_at:
        raise Broken(f"nothing is committed under {key}, and {world.keys[key][0]} was")


def note_key(world: World, key: str, names: list[str], asked_at: int) -> None:
    known, _ = world.keys.setdefault(key, (names, world.promises.tick()))
    if known != names:
        raise Broken(f"{known} were committed under {key}, and now it is {names}")


async def _commit(broker: Broker, name: str) -> None:
    await broker.operations.transactions.commit(IN_PROCESS, name)


async def _abort(broker: Broker, name: str) -> None:
    await broker.operations.transactions.abort(IN_PROCESS, name)


async def end_prepared(world: World) -> None:
    """In the end: commit what was told to be prepared, and let go of what may have been."""
    for unit in world.prepared:
        _ask_to_commit(world, unit)
        ended = await world.ask("commit what is prepared", partial(_commit, name=unit.name))
        if ended is not None:
            raise Broken(f"{unit.name} was prepared, and cannot be committed: {ended}")
        _committed(world, unit, "prepared")
    for unit in world.doubtful:
        ended = await world.ask("abort what may be prepared", partial(_abort, name=unit.name))
        if ended is None:
            unit.ending = "aborted"
