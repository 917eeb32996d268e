"""Writers made of tasks: each prepares a transaction of its own, and a run's are all committed under its job's key."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import TypeVar

from doubles.transaction_history import Outcome, Transaction
from doubles.transaction_load import Client
from goqueue import AsyncProducer
from goqueue.model.errors import GoQueueError, TransactionAborted, TransactionNotFound

Answer = TypeVar("Answer")


class TaskWriter(Client):
    """Does one job after the other, some of them twice at the same time: of two runs one counts, and it counts whole.

    A run is noted as one transaction, since that is what it must look like.
    """

    async def run(self) -> None:
        for job in count():
            if self.ending:
                return
            async with asyncio.TaskGroup() as runs:
                for number in range(self.rng.choice([1, 1, 2])):
                    runs.create_task(self._run(f"{self.name}, job {job}", number))

    async def _run(self, key: str, number: int) -> None:
        noted = self.notes.begin(f"{key}, run {number}", 0)
        begun: list[str] = []
        async with self.client.producer() as producer:
            try:
                for _ in range(self.rng.randint(1, 3)):
                    await self._do_a_task(producer, noted, begun)
                is_wanted = self.rng.random() > 0.1
            except GoQueueError:
                # Its broker was away. Others will run the job again.
                is_wanted = False
        if is_wanted:
            self.notes.commit(noted)
            committed = await until_answered(lambda: self.client.commit_many(key, begun))
            is_wanted = committed.transaction_ids == begun
            assert is_wanted or not set(begun) & set(committed.transaction_ids)
        self.notes.answered(noted, Outcome.COMMITTED if is_wanted else Outcome.ABORTED)
        if not is_wanted:
            await asyncio.gather(*map(self._abort, begun))

    async def _do_a_task(self, producer: AsyncProducer, noted: Transaction, begun: list[str]) -> None:
        tx = await producer.begin()
        begun.append(tx.id)
        for _ in range(self.rng.randint(1, 3)):
            await self.append(tx, noted)
        await tx.prepare()

    async def _abort(self, transaction_id: str) -> None:
        # One that was never prepared is gone when its broker is.
        with suppress(TransactionAborted, TransactionNotFound):
            await until_answered(lambda: self.client.abort_transaction(transaction_id))


async def until_answered(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Whoever does not know whether it was done asks again."""
    while True:
        try:
            return await ask()
        except GoQueueError as error:
            if not error.retriable:
                raise
        await asyncio.sleep(0.02)
