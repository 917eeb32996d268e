"""Dead letters that were copied, or were not, when the broker stopped: a start finds out, and copies each once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from doubles.async_tests import until
from doubles.group_broker import DEAD, GROUP, Desk, desk
from doubles.group_ledger import settled
from doubles.group_movers import mover_of, movers
from doubles.loop import on_a_loop
from doubles.power_loss import PowerLossDisk

from goqueue.broker.dead_letters import dead_letter_mover
from goqueue.broker.dead_letters.dead_letter_mover import DeadLetterMover, _Since
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.shards import dead_letter_topics
from goqueue.delivery.events import Moved, Target
from goqueue.delivery.queue import Queue
from goqueue.model.message import Message
from goqueue.model.publishing import NewMessage

NOTHING_PENDING = 0
"""Of ``Random``: a crash that keeps nothing of what was not fsynced."""


def power_lost(disk: PowerLossDisk) -> PowerLossDisk:
    """What is left of a disk that had not begun with anything by itself."""
    rng = Random(NOTHING_PENDING)
    rng.choice = lambda options: options[0]  # type: ignore[method-assign]
    return disk.crash(rng)


@contextmanager
def stopped_before_it_is_noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[asyncio.Event]:
    """Copies are made and durable; that they are is never noted. The event tells of the first."""
    copied = asyncio.Event()
    append = DeadLetterMover._append

    async def append_and_stop(self: DeadLetterMover, *args: Any) -> int:
        await append(self, *args)
        copied.set()
        return await asyncio.Event().wait()  # type: ignore[return-value]

    with monkeypatch.context() as patched:
        patched.setattr(DeadLetterMover, "_append", append_and_stop)
        yield copied


async def killed(at: Desk) -> PowerLossDisk:
    """What its process would leave now; it goes on, and nobody looks."""
    for task in [task for mover in movers(at.groups) for task in mover._tasks.values()]:
        task.cancel()
    return power_lost(at.disk)


async def letters(at: Desk) -> list[bytes]:
    await settled(at.broker)
    return [each.value for each in await at.stored(DEAD)]


async def dead_letters_that_are_not_durable(at: Desk) -> None:
    """The topic has three messages of somebody else that a power loss takes."""
    await at.broker.create_topic(DEAD, {"partitions": 1, "fsync": "never"})
    await at.publish(b"theirs", b"theirs", b"theirs", topic=DEAD)


@on_a_loop
async def test_a_message_gets_to_dead_letters_that_end_sooner_than_when_it_was_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Earlier versions noted where the log ended, be that durable or not."""

    def target_in(topic: Topic, number: int) -> Target:
        return Target(topic.name, topic.record.topic_id, number, topic.partitions[number].log.end_offset)

    monkeypatch.setattr(dead_letter_topics, "target_in", target_in)
    async with desk() as at:
        await dead_letters_that_are_not_durable(at)
        await at.publish(b"poison")
        mover_of(at.groups)._stopping.set()
        await at.settle("reject", await at.poll())
        left = power_lost(at.disk)
    async with desk(left, join=False) as at:
        assert await letters(at) == [b"poison"]


@on_a_loop
async def test_rule_16_a_copy_is_found_although_a_power_loss_had_cut_what_was_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three lives: decided, then cut and copied, then looked for."""
    async with desk() as at:
        await dead_letters_that_are_not_durable(at)
        await at.publish(b"poison")
        mover_of(at.groups)._stopping.set()
        await at.settle("reject", await at.poll())
        left = power_lost(at.disk)
    with stopped_before_it_is_noted(monkeypatch) as copied:
        async with desk(left, join=False) as at:
            await copied.wait()
            left = await killed(at)
    async with desk(left, join=False) as at:
        assert await letters(at) == [b"poison"]


@on_a_loop
async def test_rule_16_a_copy_is_found_behind_a_transaction_that_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prepared one stays open over a start, and readers see nothing of what lies behind it."""
    async with desk() as at:
        await at.broker.create_topic(DEAD, {"partitions": 1})
        producer = await at.broker.transactions.init(None)
        transaction = at.broker.transactions.begin(producer.producer_id, producer.epoch)
        await at.broker.publish(DEAD, [NewMessage(b"theirs")], transaction)
        await at.broker.transactions.prepare(transaction.transaction_id)
        await at.publish(b"poison")
        with stopped_before_it_is_noted(monkeypatch) as copied:
            await at.settle("reject", await at.poll())
            await copied.wait()
            left = await killed(at)
    async with desk(left, join=False) as at:
        await settled(at.broker)
        await at.broker.transactions.abort(transaction.transaction_id)
        assert await letters(at) == [b"poison"]


@on_a_loop
async def test_dead_letters_that_were_made_anew_are_looked_through_from_their_beginning() -> None:
    """What was in doubt lay in the topic before them."""
    async with desk() as at:
        await at.broker.create_topic(DEAD, {"partitions": 1})
        await at.publish(b"theirs", b"theirs", b"theirs", topic=DEAD)
        await at.publish(b"poison")
        log = at.broker.topic(DEAD).partitions[0].log
        log.fail("its disk")
        await at.settle("reject", await at.poll())
        await until(lambda: at.groups.held_up())
        [queue] = [queue for queue in at.groups.shards.find(GROUP).queues() if queue.moving]
        # As if the failure had come when the copy was written already.
        mover_of(at.groups)._progress[queue.key].doubtful[0] = _Since(at.broker.topic(DEAD).record.topic_id, 3)
        await at.broker.delete_topic(DEAD)
        await at.broker.create_topic(DEAD, {"partitions": 1})
        assert await letters(at) == [b"poison"]


@on_a_loop
async def test_dead_letters_that_were_made_anew_before_a_start_are_looked_through_from_their_beginning() -> None:
    async with desk() as at:
        await at.broker.create_topic(DEAD, {"partitions": 1})
        await at.publish(b"theirs", b"theirs", b"theirs", topic=DEAD)
        await at.publish(b"poison")
        mover_of(at.groups)._stopping.set()
        await at.settle("reject", await at.poll())
        await at.broker.delete_topic(DEAD)
        await at.broker.create_topic(DEAD, {"partitions": 1})
        disk = at.disk
    async with desk(disk, join=False) as at:
        assert await letters(at) == [b"poison"]


@on_a_loop
async def test_what_comes_while_the_last_transfer_ends_is_moved_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async with desk() as at:
        await at.publish(b"first", b"second")
        first, second = await at.poll()
        run = DeadLetterMover._run

        async def run_and_reject(self: DeadLetterMover, queue: Queue) -> None:
            await run(self, queue)
            if second.receipt not in rejected:
                rejected.append(second.receipt)
                await at.settle("reject", [second])

        rejected: list[str] = []
        monkeypatch.setattr(DeadLetterMover, "_run", run_and_reject)
        await at.settle("reject", [first])
        await until(lambda: rejected)
        assert await letters(at) == [b"first", b"second"]


@on_a_loop
async def test_a_message_that_is_done_otherwise_while_it_is_read_is_not_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with desk() as at:
        await at.publish(b"first", b"second")
        got = await at.poll()
        read = dead_letter_mover._message
        done: list[int] = []

        async def read_and_be_done(partition: Partition, offset: int) -> Message | None:
            found = await read(partition, offset)
            if not done:
                done.append(offset)
                [queue] = at.groups.shards.find(GROUP).queues()
                at.groups.shards.change(GROUP, [Moved(queue.key, [0, 1])])
            return found

        monkeypatch.setattr(dead_letter_mover, "_message", read_and_be_done)
        await at.settle("reject", got)
        assert await letters(at) == [b"second"]
        assert done == [0]
