"""Transactions of many clients while their broker is killed and their ids are taken over: whole or not at all.

``GOQUEUE_KILLS`` says how often (3 unless told otherwise), ``GOQUEUE_SEED`` repeats the choices of a run.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from doubles.async_tests import until
from doubles.loop import on_a_loop
from doubles.transaction_checker import check
from doubles.transaction_history import Notes, Outcome
from doubles.transaction_load import (
    INPUTS,
    TOPICS,
    Client,
    Feeder,
    Follower,
    Processor,
    Reader,
    StreamProcessor,
    Writer,
    end_what_is_open,
    read_everything,
    read_inputs,
)
from doubles.transaction_tasks import TaskWriter

from goqueue import AsyncClient
from goqueue.model.errors import ProducerFenced, TransactionAborted
from goqueue.testing import BrokerProcess, running_broker

KILLS = int(os.environ.get("GOQUEUE_KILLS", "3"))
PATIENCE_S = 120.0
IMPATIENT = {"request_timeout_ms": 5_000, "connect_timeout_ms": 120_000, "retry_backoff_ms": 10, "max_backoff_ms": 100}
SETTINGS: dict[str, object] = {
    "storage.checkpoint_interval_ms": "100ms",
    "storage.min_free_bytes": "0",
    # What a client could not end for a broker that was away is ended then, and holds up nobody for longer.
    "transactions.timeout_ms": "10s",
}
OF_INPUTS = {"partitions": 2, "visibility_timeout_ms": 2_000, "max_retries": 1_000, "retry_backoff_ms": 0}


@pytest.fixture
def rng() -> Random:
    seed = os.environ.get("GOQUEUE_SEED") or str(time.time_ns())
    print(f"GOQUEUE_SEED={seed}")  # noqa: T201
    return Random(seed)


class Crowd:
    """All clients, each a task of its own; a task that fails fails the test."""

    def __init__(self) -> None:
        self.clients: dict[Client, asyncio.Task[None]] = {}

    def add(self, client: Client) -> None:
        self.clients[client] = asyncio.create_task(client.run())

    def of(self, *kinds: type[Client]) -> list[Client]:
        return [client for client in self.clients if isinstance(client, kinds)]

    def check(self) -> None:
        for task in self.clients.values():
            if task.done():
                task.result()

    async def end(self, *kinds: type[Client]) -> None:
        ending = self.of(*kinds)
        for client in ending:
            client.ending = True
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(self.clients[client] for client in ending))

    async def cancel(self) -> None:
        for task in self.clients.values():
            task.cancel()
        await asyncio.gather(*self.clients.values(), return_exceptions=True)


async def more_commits(notes: Notes, crowd: Crowd, count: int) -> None:
    goal = notes.outcomes[Outcome.COMMITTED] + count

    def reached() -> bool:
        crowd.check()
        return notes.outcomes[Outcome.COMMITTED] >= goal

    await until(reached, PATIENCE_S)


async def lag(client: AsyncClient) -> int:
    """What the groups have not done yet."""
    groups = [await client.describe_group(group) for group in INPUTS.values()]
    return sum(each.lag for group in groups for each in group.partitions)


def assert_clean(notes: Notes) -> None:
    anomalies = check(notes.history)
    assert not anomalies, (Counter(each.kind for each in anomalies), anomalies[:5])


@pytest.mark.timeout(400 + 20 * KILLS)
@on_a_loop
async def test_transactions_are_whole_and_seen_once_through_kills_and_takeovers(tmp_path: Path, rng: Random) -> None:
    notes, crowd = Notes(), Crowd()
    broker = BrokerProcess(tmp_path, settings=SETTINGS)
    try:
        async with AsyncClient(broker.address, **IMPATIENT) as client:
            for topic, count in TOPICS.items():
                await client.create_topic(topic, partitions=count)
            for topic in INPUTS:
                await client.create_topic(topic, **OF_INPUTS)
            kinds = [Writer] * 4 + [Processor] * 2 + [StreamProcessor] * 2 + [TaskWriter] * 2 + [Reader] * 2 + [Feeder]
            for number, kind in enumerate(kinds):
                crowd.add(kind(f"{kind.__name__} {number}", client, notes, Random(rng.random())))
            followers = [Follower(topic, client, notes, Random(rng.random())) for topic in TOPICS]
            for follower in followers:
                crowd.add(follower)
            writers = [each for each in crowd.clients if isinstance(each, Writer)]
            for _ in range(KILLS):
                await more_commits(notes, crowd, rng.randint(1, 100))
                await asyncio.to_thread(broker.kill)
                broker = await asyncio.to_thread(BrokerProcess, tmp_path, grpc_port=broker.grpc_port, settings=SETTINGS)
            await more_commits(notes, crowd, 50)
            await until(lambda: any(each.fenced for each in writers), PATIENCE_S)

            await crowd.end(Feeder)
            deadline = time.monotonic() + PATIENCE_S
            while left := await lag(client):
                crowd.check()
                assert time.monotonic() < deadline, f"{left} inputs are never done"
            await crowd.end(Writer, Processor, StreamProcessor, TaskWriter, Reader)
            await end_what_is_open(client, [each.name for each in crowd.of(Writer, Processor, StreamProcessor)])
            assert sorted(await read_inputs(client)) == sorted(notes.history.inputs)
            await read_everything(client, notes.history)
            assert_clean(notes)
            stored = sum(map(len, notes.history.log.values()))
            await until(lambda: sum(each.seen for each in followers) >= stored, PATIENCE_S)
        assert_clean(notes)
        assert notes.outcomes[Outcome.ABORTED] > 0
        assert broker.stop() == 0
    finally:
        await crowd.cancel()
        if broker.process.poll() is None:
            broker.kill()
    found = Counter(each.outcome.value for each in notes.history.transactions)
    print(f"{dict(found)}, {stored} values, {len(notes.history.reads)} reads, {len(notes.history.inputs)} inputs")  # noqa: T201


@on_a_loop
async def test_a_producer_that_was_fenced_does_not_take_its_id_back(tmp_path: Path) -> None:
    """It has to begin anew after a transaction that was aborted for it, and does not know yet of its successor."""
    with running_broker(tmp_path) as broker:
        async with AsyncClient(broker.address) as client:
            await client.create_topic("t")
            fenced, successor = client.producer(transactional_id="x"), client.producer(transactional_id="x")
            first = await fenced.begin()
            await first.send_many("t", ["never"])
            await client.abort_transaction(first.id)
            with pytest.raises(TransactionAborted):
                await first.commit()
            second = await successor.begin()
            with pytest.raises(ProducerFenced):
                await fenced.begin()
            await second.send("t", "still there")
            await second.commit()
            assert [record.value async for record in client.read("t")] == [b"still there"]
