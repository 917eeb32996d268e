"""What idempotent producers publish: their batches are numbered, so that one that is sent again is stored once."""

from __future__ import annotations

import asyncio
from itertools import count
from random import Random

from goqueue.broker.broker import Broker
from goqueue.broker.operations import IN_PROCESS, AppendedBatch
from goqueue.model.errors import GoQueueError
from goqueue.simulation.processes import Killed
from goqueue.simulation.promises import Broken, Place, Unit
from goqueue.simulation.workload.publishing import new_message
from goqueue.simulation.world import LOG, WIDE, Actor, Batch, Sequence, World, is_doubtful
from goqueue.wire.batch import FrameRun, join_frames
from goqueue.wire.frame import encode_frame
from goqueue.wire.internal_headers import ProducerStamp
from goqueue.wire.producer_frames import stamp_batch

_RETRY_S = 0.2
_FORMER = 3
_NO_HEADERS = b""


async def start_numbering(world: World, actor: Actor, rng: Random) -> None:
    """A producer begins, in place of the one that the client had if it has a name."""
    name = rng.choice((f"sequence-{actor.number}", None))
    made = await world.ask("init a producer", lambda broker: broker.operations.producers.init(IN_PROCESS, name))
    if isinstance(made, GoQueueError | Killed):
        return
    if actor.sequence is not None:
        actor.former_sequences.append(actor.sequence)
        del actor.former_sequences[:-_FORMER]
    for each in actor.former_sequences:
        if each.name and each.name == name:
            world.promises.fences.end((each.producer_id, each.epoch))
    actor.sequence = Sequence(made.producer_id, made.epoch, name or "")


async def publish_numbered(world: World, actor: Actor, rng: Random) -> None:
    """Send the next batch, again and again until it is known what became of it."""
    sequence = actor.sequence
    if sequence is None:
        return
    topic = rng.choice((LOG, WIDE))
    partition = rng.randrange(min(2, world.partitions(topic)))
    # One message: of several a torn write may leave the last, and recovery keeps those without the stamp of the first.
    batch = Batch([new_message(world, topic, rng)], sequence.next_in(topic, partition))
    for attempt in count():  # noqa: B007
        answer = await send_numbered(world, sequence, topic, partition, batch)
        if not is_doubtful(answer):
            break
        await asyncio.sleep(_RETRY_S)
    if isinstance(answer, int):
        sequence.sent(topic, partition, batch)
        stored_numbered(world, batch, partition, answer)
    elif attempt == 0:
        for each in batch.messages:
            each.state = "refused"
    else:
        # An attempt before may have stored it, and what comes next is not known: the producer ends here.
        actor.sequence = None


async def publish_numbered_again(world: World, actor: Actor, rng: Random) -> None:
    """A batch arrives late a second time: it is known, and not stored again."""
    known = [(sequence, *place) for sequence in _sequences(actor) for place in sequence.last]
    if not known:
        return
    sequence, topic, partition = rng.choice(known)
    batch = sequence.last[topic, partition]
    answer = await send_numbered(world, sequence, topic, partition, batch)
    first = batch.messages[0].place
    if isinstance(answer, int) and first is not None and answer != first.offset:
        raise Broken(f"{batch.messages[0].value!r} is at {first}, and was stored again at {answer}")


async def publish_out_of_order(world: World, actor: Actor, rng: Random) -> None:
    """The batches between are missing: it is refused where the producer is known."""
    known = [(sequence, *place) for sequence in _sequences(actor) for place in sequence.last]
    if not known:
        return
    sequence, topic, partition = rng.choice(known)
    batch = Batch([new_message(world, topic, rng)], sequence.next_in(topic, partition) + rng.choice((1, 7)))
    answer = await send_numbered(world, sequence, topic, partition, batch)
    if isinstance(answer, int):
        raise Broken(f"{batch.messages[0].value!r} was stored at {answer}, and batches before it are missing")
    if not is_doubtful(answer):
        batch.messages[0].state = "refused"


def _sequences(actor: Actor) -> list[Sequence]:
    return [*actor.former_sequences, *([] if actor.sequence is None else [actor.sequence])]


async def send_numbered(
    world: World,
    sequence: Sequence,
    topic: str,
    partition: int,
    batch: Batch,
    unit: Unit | None = None,
    only_in: int | None = None,
) -> object:
    """The first offset, or why there is none; ``only_in``: only to this start of the broker."""
    now_ns = world.node.clock.now_ns()
    frames = [encode_frame(each.key or b"", each.value, _NO_HEADERS, now_ns) for each in batch.messages]
    stamp = ProducerStamp(sequence.producer_id, sequence.epoch, batch.first_sequence, len(frames))
    joined = join_frames(stamp_batch(frames, stamp), now_ns)
    run = FrameRun(memoryview(joined.frames), joined.positions)

    async def appended(broker: Broker) -> int:
        if only_in is not None and world.node.starts != only_in:
            raise Killed("the start of the broker that this is for")
        reference = None if unit is None else unit.reference
        found = broker.operations.publishing.append(IN_PROCESS, topic, partition, run, reference)
        if not isinstance(found, AppendedBatch):
            found = await found
        await found.durable()
        return found.first_offset

    asked_at = world.promises.tick()
    answer = await world.ask(f"publish {len(frames)} numbered to {topic}/{partition}", appended)
    if isinstance(answer, int):
        world.promises.fences.check((sequence.producer_id, sequence.epoch), asked_at, "a batch was taken")
    return answer


def stored_numbered(world: World, batch: Batch, partition: int, first: int) -> None:
    now_ns = world.node.clock.now_ns()
    for number, message in enumerate(batch.messages):
        message.state, message.told_ns = "told", now_ns
        message.place = Place(message.topic, partition, first + number)
    world.history.counts["messages stored"] += len(batch.messages)
