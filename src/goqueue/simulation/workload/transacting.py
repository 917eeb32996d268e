"""What simulated clients do in transactions: write to topics and ack what they have consumed, all or nothing."""

from __future__ import annotations

from functools import partial
from random import Random

from goqueue.broker.broker import Broker
from goqueue.broker.operations import IN_PROCESS, ManyCommitted, TransactionRef
from goqueue.model.errors import GoQueueError
from goqueue.simulation.processes import Killed
from goqueue.simulation.promises import Broken, Sent, Unit
from goqueue.simulation.workload.numbering import send_numbered, stored_numbered
from goqueue.simulation.workload.publishing import send
from goqueue.simulation.world import LOG, OUT, PASSING, WIDE, Actor, Batch, Sequence, World, is_doubtful

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

    await _begin_as(world, actor, rng, Sequence(made.producer_id, made.epoch, name or ""))


async def begin_again(world: World, actor: Actor, rng: Random) -> None:
    """The same producer begins its next transaction, and goes on to count."""
    sequence = actor.numbered.get(actor.former_units[-1]) if actor.former_units else None
    if actor.unit is None and sequence is not None:
        await _begin_as(world, actor, rng, sequence)


async def _begin_as(world: World, actor: Actor, rng: Random, sequence: Sequence) -> None:
    claimed = rng.choice((*[None] * 9, "another"))

    async def begun(broker: Broker) -> TransactionRef:
        opened = broker.operations.transactions.begin(
            IN_PROCESS, sequence.producer_id, sequence.epoch, transactional_id=claimed
        )
        return TransactionRef(sequence.producer_id, sequence.epoch, opened.transaction_id)

    reference = await world.ask("begin", begun)
    if isinstance(reference, GoQueueError | Killed):
        return
    if claimed is not None:
        raise Broken(f"{reference} was begun as {claimed!r}, which is not the name of its producer")
    actor.unit = Unit(reference, sequence.name)
    actor.former_units.append(actor.unit)
    del actor.former_units[:-_FORMER]
    if rng.random() < 0.5 or sequence.next:
        # The others leave it to the broker to count what they write.
        actor.numbered[actor.unit] = sequence


async def write(world: World, actor: Actor, rng: Random) -> None:
    if actor.unit in actor.numbered:
        await _write_numbered(world, actor, actor.unit, rng)
    elif actor.unit is not None:
        await _write_in(world, actor.unit, rng)


async def _write_numbered(world: World, actor: Actor, unit: Unit, rng: Random) -> None:
    topic = rng.choice((OUT, LOG, WIDE))
    partition = rng.randrange(min(2, world.partitions(topic)))
    sequence = actor.numbered[unit]
    messages = [Sent(world.promises.new_value(), topic, unit=unit) for _ in range(rng.choice((1, 2, 5)))]
    world.promises.sent |= {each.value: each for each in messages}
    batch = Batch(messages, sequence.next_in(topic, partition))
    answer = await send_numbered(world, sequence, topic, partition, batch, unit)
    if isinstance(answer, int):
        sequence.sent(topic, partition, batch)
        stored_numbered(world, batch, partition, answer)
    elif is_doubtful(answer):
        # What comes next is not known.
        del actor.numbered[unit]
    else:
        for each in messages:
            each.state = "refused"


async def write_again(world: World, actor: Actor, rng: Random) -> None:
    """A batch of a transaction that has ended arrives late a second time: by itself, or in the transaction after it."""
    known = [
        (unit, sequence, place, batch)
        for unit, sequence in actor.numbered.items()
        for place, batch in sequence.last.items()
        if unit.is_over and batch.messages[0].unit is unit and unit.ending in ("committed", "aborted")
    ]
    if not known:
        return
    unit, sequence, (topic, partition), batch = rng.choice(known)
    following = actor.unit if actor.unit in actor.numbered and actor.numbered[actor.unit] is sequence else None
    # What was aborted may be lost since, and then it is new.
    only_in = unit.over_in if unit.ending == "aborted" else None
    answer = await send_numbered(world, sequence, topic, partition, batch, following, only_in)
    first = batch.messages[0].place
    is_known = unit.ending == "committed" and following is None and first is not None
    if isinstance(answer, int) and not (is_known and first is not None and answer == first.offset):
        raise Broken(f"{batch.messages[0].value!r} of {unit.name} ({unit.ending}) is at {first}, and taken at {answer}")


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
    unit.ending, unit.is_over, unit.over_in = "committed", True, world.node.starts
    world.history.counts["transactions committed"] += 1
    for each in unit.acks:
        world.promises.acked(each)
    world.promises.commit_told(unit.offsets)


async def abort(world: World, actor: Actor, rng: Random) -> None:
    unit, actor.unit = actor.unit, None
    if unit is not None:
        unit.ending = "aborted"
        ended = await world.ask("abort", partial(_abort, name=unit.name))
        if ended is None:
            unit.is_over, unit.over_in = True, world.node.starts


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
