"""What simulated clients publish, read, delay and cancel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from random import Random
from typing import Any

from goqueue.broker.broker import Broker
from goqueue.broker.operations import IN_PROCESS, Bounds
from goqueue.model.clock import NANOS_PER_SECOND
from goqueue.model.errors import GoQueueError, TopicExists, TopicNotFound
from goqueue.model.publish_result import Published
from goqueue.model.publishing import NewMessage, Outcome
from goqueue.simulation.processes import Killed
from goqueue.simulation.promises import Broken, Place, Sent, State, Unit
from goqueue.simulation.world import BRIEF, COMES_AND_GOES, KEYED, LOG, TIDY, WIDE, WORK, Actor, World, is_doubtful

_KEYS = (b"a", b"b", b"c")
_MANY_KEYS = tuple(b"%d" % number for number in range(60))
_KEPT_NS = 15 * NANOS_PER_SECOND
"""At least so long a message is there whose topic keeps it for twice as long; clocks are moved by less."""
_READ_BYTES = 64 << 10
_LONG_VALUE = 4_000
_RETRY_S = 0.2


async def publish(world: World, actor: Actor, rng: Random) -> None:
    topic = rng.choice((LOG, LOG, WORK, WORK, KEYED, TIDY, WIDE, WIDE, BRIEF))
    await send(world, topic, [new_message(world, topic, rng) for _ in range(rng.choice((1, 1, 2, 5, 20)))], rng)


async def publish_delayed(world: World, actor: Actor, rng: Random) -> None:
    topic = rng.choice((LOG, WORK, WIDE))
    delay_ms = rng.choice((1, 10, 100, 2_000, 20_000))
    await send(
        world, topic, [new_message(world, topic, rng) for _ in range(rng.choice((1, 3)))], rng, delay_ms=delay_ms
    )


async def publish_once(world: World, actor: Actor, rng: Random) -> None:
    """A client that repeats a publish with a dedup id until it is answered."""
    message = new_message(world, LOG, rng)
    for attempt in count():  # noqa: B007
        if not is_doubtful(await send(world, LOG, [message], rng, dedup_id=message.value[:7].hex())):
            break
        await asyncio.sleep(_RETRY_S)
    if attempt and message.state == "refused":
        # An attempt before may have stored it.
        message.state = "asked"


def new_message(world: World, topic: str, rng: Random) -> Sent:
    value = world.promises.new_value() + b"." * rng.choice((0, 0, 0, rng.randrange(_LONG_VALUE)))
    keys = _MANY_KEYS if topic == WIDE else _KEYS
    key = rng.choice(keys) if topic in (KEYED, TIDY) else rng.choice((None, rng.choice(keys)))
    message = world.promises.sent[value] = Sent(value, topic, key)
    return message


async def send(
    world: World, topic: str, messages: list[Sent], rng: Random, unit: Unit | None = None, **options: Any
) -> object:
    """Publish messages; the error of the last one that failed."""
    new = [
        NewMessage(each.value, each.key, priority=rng.choice((2, 2, 2, rng.randrange(5))), **options)
        for each in messages
    ]

    async def published(broker: Broker) -> list[Outcome]:
        opened = None if unit is None else broker.operations.transactions.ongoing(IN_PROCESS, unit.reference)
        return await broker.publish(topic, new, opened)

    outcomes = await world.ask(f"publish {len(new)} to {topic}", published)
    problem: object = None
    for number, message in enumerate(messages):
        outcome = outcomes[number] if isinstance(outcomes, list) else outcomes
        if isinstance(outcome, Published):
            _stored(world, message, outcome)
            world.history.counts["messages delayed" if message.due_ns else "messages stored"] += 1
        else:
            problem = outcome
            if not is_doubtful(outcome):
                message.state = "refused"
    return problem


def _stored(world: World, message: Sent, outcome: Published) -> None:
    message.state, message.told_ns = "told", world.node.clock.now_ns()
    message.due_ns = outcome.deliver_at_ns
    message.place = Place(message.topic, outcome.partition, outcome.offset)


# Reading


async def read(world: World, actor: Actor, rng: Random) -> None:
    topic = rng.choice(list(world.topics))
    partition = rng.randrange(world.partitions(topic))
    highest = world.promises.watermarks.get((topic, partition), 0)
    offset = rng.choice((0, rng.randrange(highest + 1)))
    now_ns = world.node.clock.now_ns()
    young = [each for each in world.promises.sent.values() if each.told_ns > now_ns - _KEPT_NS]
    asked_for = 0 if topic == BRIEF else offset
    found: dict[int, bytes] = {}
    next_offset = await read_from(world, topic, partition, asked_for, found)
    while topic == BRIEF and next_offset:
        next_offset = await read_from(world, topic, partition, next_offset, found)
    if topic == BRIEF and next_offset is None:
        for message in young:
            if message.topic == BRIEF and message.place is not None and message.place.offset not in found:
                raise Broken(f"{message.value!r} is gone before its time: {message}")


async def read_from(
    world: World, topic: str, partition: int, offset: int, found: dict[int, bytes] | None = None
) -> int | None:
    """Read some messages and hold them against what was promised; where to go on, ``None`` if that was all, 0 if it
    cannot be known. ``found`` gets what was read."""
    asked_at = world.promises.tick()
    answer = await world.ask(
        f"read {topic}/{partition} from {offset}",
        lambda broker: broker.read(topic, partition, Bounds(_READ_BYTES), offset=offset),
    )
    if isinstance(answer, GoQueueError | Killed):
        return 0
    last = offset - 1
    for message in answer.messages:
        if message.offset <= last:
            raise Broken(f"{topic}/{partition}: offset {message.offset} comes after {last}")
        last = message.offset
        world.promises.read(Place(topic, partition, message.offset), message.value or b"", asked_at)
        if found is not None:
            found[message.offset] = message.value or b""
    world.promises.watermark(topic, partition, answer.high_watermark)
    return answer.next_offset if answer.messages else None


# Delayed messages


async def cancel(world: World, actor: Actor, rng: Random) -> None:
    message = _waiting(world, rng)
    if message is None or message.place is None:
        return
    topic, partition, offset = message.place
    before, message.cancel = message.cancel, "asked" if message.cancel != "told" else "told"
    ended = await world.ask(
        f"cancel {topic}/{partition}/{offset}",
        lambda broker: broker.operations.delays.cancel(IN_PROCESS, topic, partition, offset),
    )
    if ended is None:
        message.cancel = "told"
    elif not is_doubtful(ended) and message.cancel == "asked":
        # Another client may be cancelling it at the same time.
        message.cancel = before


async def reschedule(world: World, actor: Actor, rng: Random) -> None:
    message = _waiting(world, rng)
    if message is None or message.place is None:
        return
    topic, partition, offset = message.place
    delay_ms = rng.choice((0, 50, 5_000))
    await world.ask(
        f"reschedule {topic}/{partition}/{offset}",
        lambda broker: broker.operations.delays.reschedule(IN_PROCESS, topic, partition, offset, delay_ms=delay_ms),
    )


def _waiting(world: World, rng: Random) -> Sent | None:
    now_ns = world.node.clock.now_ns()
    waiting = [each for each in world.promises.sent.values() if each.due_ns is not None and each.due_ns > now_ns]
    return rng.choice(waiting) if waiting else None


# Topics


async def make_topic(world: World, actor: Actor, rng: Random) -> None:
    await _change_topic(
        world, "told", TopicExists, lambda broker: broker.create_topic(COMES_AND_GOES, {"partitions": 1})
    )


async def drop_topic(world: World, actor: Actor, rng: Random) -> None:
    await _change_topic(world, "refused", TopicNotFound, lambda broker: broker.delete_topic(COMES_AND_GOES))


async def _change_topic(
    world: World,
    becomes: State,
    is_so: type[GoQueueError],
    operation: Callable[[Broker], Coroutine[object, object, object]],
) -> None:
    if COMES_AND_GOES in world.busy:
        return
    world.busy.add(COMES_AND_GOES)
    promises = world.promises
    before, promises.topic = promises.topic, "asked"
    ended = await world.ask(f"{operation.__qualname__.partition('.')[0]}", operation)
    if is_doubtful(ended):
        promises.topic_doubtful_in = world.node.starts
    elif not isinstance(ended, GoQueueError | Killed):
        promises.topic = becomes
    elif isinstance(ended, is_so) and (before != "asked" or world.node.starts > promises.topic_doubtful_in):
        # After a failed fsync, what was asked for may still come with the next start.
        promises.topic = becomes
    else:
        promises.topic = before
    world.busy.discard(COMES_AND_GOES)
