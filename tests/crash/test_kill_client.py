"""A producer and a reader that live on while their broker is killed, restarted and stalled.

``GOQUEUE_KILLS`` says how often (4 unless told otherwise), ``GOQUEUE_SEED`` repeats the choices of a run.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from pathlib import Path
from random import Random

import pytest
from behaviour.waiting import until as become_true
from doubles.async_tests import until
from doubles.loop import on_a_loop

from goqueue import AsyncClient, AsyncProducer, Client, Published
from goqueue.testing import BrokerProcess

KILLS = int(os.environ.get("GOQUEUE_KILLS", "4"))
PARTITIONS = 3
KEYS = [b"key-%d" % number for number in range(7)]
IMPATIENT = {"request_timeout_ms": 300, "connect_timeout_ms": 60_000, "retry_backoff_ms": 10, "max_backoff_ms": 100}


@pytest.fixture
def rng() -> Random:
    seed = os.environ.get("GOQUEUE_SEED") or str(time.time_ns())
    print(f"GOQUEUE_SEED={seed}")  # noqa: T201
    return Random(seed)


class Restarting:
    """A broker that comes back on the same folder and the same port."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self.broker = BrokerProcess(data)
        self.address = self.broker.address

    def create_topic(self, partitions: int) -> None:
        with self.broker.client() as client:
            client.create_topic("t", partitions=partitions)

    def ends(self) -> list[int]:
        with self.broker.client() as client:
            return [each.latest_offset for each in client.describe_topic("t").partitions]

    async def restart(self, end: Callable[[], object]) -> None:
        await asyncio.to_thread(end)
        self.broker = await asyncio.to_thread(BrokerProcess, self._data, grpc_port=self.broker.grpc_port)

    async def kill(self) -> None:
        await self.restart(self.broker.kill)

    async def stop_and_start(self) -> None:
        await self.restart(self.broker.stop)

    @asynccontextmanager
    async def stalled(self) -> AsyncIterator[None]:
        os.kill(self.broker.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.broker.process.pid, signal.SIGCONT)

    def close(self) -> None:
        if self.broker.process.poll() is None:
            self.broker.kill()


class Sending:
    """Sends numbered messages for every key without end, and notes where each was acknowledged."""

    def __init__(self, producer: AsyncProducer, rng: Random) -> None:
        self._producer = producer
        self._rng = rng
        self.acknowledged: dict[tuple[bytes, int], Published] = {}
        self.sent: dict[bytes, int] = dict.fromkeys(KEYS, 0)
        self.failures: list[BaseException] = []
        self._ending = False
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while not self._ending:
            key = self._rng.choice(KEYS)
            number = self.sent[key]
            self.sent[key] += 1
            value = b"%s %d %s" % (key, number, b"." * self._rng.randrange(400))
            delivery = await self._producer.send("t", value, key=key)
            delivery.add_done_callback(lambda done, at=(key, number): self._settled(at, done))
            if number % 50 == 0:
                await asyncio.sleep(0)

    def _settled(self, at: tuple[bytes, int], done: asyncio.Future[Published]) -> None:
        if (error := done.exception()) is not None:
            self.failures.append(error)
        else:
            self.acknowledged[at] = done.result()

    async def more(self, count: int) -> None:
        """Wait until so many more are acknowledged."""
        goal = len(self.acknowledged) + count
        await until(lambda: len(self.acknowledged) >= goal or self.failures or self._task.done())

    async def end(self) -> None:
        self._ending = True
        await self._task
        await self._producer.flush()
        # One turn, for the callbacks of the last ones.
        await asyncio.sleep(0)


class Following:
    """Reads the whole topic from the beginning and goes on reading; every offset must come once and in order."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self.seen: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async for record in self._client.read("t", follow=True):
            mine = self.seen[record.partition]
            assert record.offset == len(mine), f"offset {record.offset} after {len(mine) - 1}"
            mine.append(record.value)

    async def reach(self, ends: list[int]) -> None:
        await until(lambda: self.task.done() or [len(mine) for mine in self.seen.values()] == ends)
        if self.task.done():
            await self.task
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def check(sending: Sending, stored: dict[int, list[bytes]]) -> int:
    """Nothing acknowledged is lost, order within a key is kept; returns how many were stored more than once."""
    assert not sending.failures, sending.failures[:3]
    assert len(sending.acknowledged) == sum(sending.sent.values())
    places: dict[tuple[bytes, int], list[tuple[int, int]]] = defaultdict(list)
    for partition, values in stored.items():
        for offset, value in enumerate(values):
            key, number, _ = value.split(b" ", 2)
            places[key, int(number)].append((partition, offset))
    for at, place in sending.acknowledged.items():
        # Tried again only while it was not acknowledged: what was acknowledged is the last that was stored.
        assert places[at][-1] == (place.partition, place.offset), (at, place, places[at])
    for key in KEYS:
        for which in (0, -1):
            offsets = [places[key, number][which] for number in range(sending.sent[key])]
            assert offsets == sorted(offsets), f"{key!r} is out of order"
    return sum(len(each) - 1 for each in places.values())


@on_a_loop
async def test_a_producer_and_a_reader_live_through_kills_restarts_and_stalls(tmp_path: Path, rng: Random) -> None:
    with closing(Restarting(tmp_path)) as restarting:
        restarting.create_topic(PARTITIONS)
        async with AsyncClient(restarting.address, **IMPATIENT) as client, client.producer() as producer:
            following = Following(client)
            sending = Sending(producer, rng)
            for number in range(KILLS):
                await sending.more(rng.randint(1, 3_000))
                if number % 4 == 1:
                    await restarting.stop_and_start()
                elif number % 4 == 3:
                    async with restarting.stalled():
                        await until(lambda: client._directory._leaders["t"].stale_at == 0)
                else:
                    await restarting.kill()
            await sending.more(1_000)
            await sending.end()
            await following.reach(await asyncio.to_thread(restarting.ends))
            twice = check(sending, following.seen)
            stored: dict[int, list[bytes]] = {each: [] for each in range(PARTITIONS)}
            async for record in client.read("t"):
                stored[record.partition].append(record.value)
            assert stored == following.seen
        print(f"{len(sending.acknowledged)} acknowledged, {twice} of them stored more than once")  # noqa: T201
        assert restarting.broker.stop() == 0


@on_a_loop
async def test_a_follower_from_the_latest_misses_nothing_over_a_restart(tmp_path: Path) -> None:
    with closing(Restarting(tmp_path)) as restarting:
        restarting.create_topic(1)
        async with AsyncClient(restarting.address, **IMPATIENT) as client, client.producer() as producer:
            await producer.send_many("t", [b"old"])
            reader = client._reader("t", 0, "latest", True, "read_committed")
            waiting = asyncio.ensure_future(reader.next())
            await until(lambda: reader._next_offsets == {0: 1})
            await restarting.stop_and_start()
            async with AsyncClient(restarting.address) as other, other.producer() as elsewhere:
                await elsewhere.send_many("t", [b"first", b"second"])
            batch = await waiting
            assert batch is not None
            assert [record.value for record in batch.records()] == [b"first", b"second"]
            await reader.close()


def test_threads_that_wait_for_their_messages_live_through_a_kill(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    with broker.client() as patient:
        patient.create_topic("t", partitions=2)
    with Client(broker.address, **IMPATIENT) as client, client.producer() as producer, ThreadPoolExecutor(4) as pool:

        def send(who: int) -> list[Published]:
            return [producer.send("t", b"%d %d" % (who, number), key=b"%d" % who).result() for number in range(300)]

        working = [pool.submit(send, who) for who in range(4)]
        with broker.client() as patient:
            become_true(lambda: sum(each.latest_offset for each in patient.describe_topic("t").partitions))
        broker.kill()
        with closing(_Closing(BrokerProcess(tmp_path, grpc_port=broker.grpc_port))) as second:
            places = [each.result(60) for each in working]
            values = {(record.partition, record.offset): record.value for record in client.read("t")}
            for who, mine in enumerate(places):
                assert [values[place.partition, place.offset] for place in mine] == [
                    b"%d %d" % (who, number) for number in range(300)
                ]
            assert second.broker.stop() == 0


class _Closing:
    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker

    def close(self) -> None:
        if self.broker.process.poll() is None:
            self.broker.kill()
