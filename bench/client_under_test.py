"""The client in the bench's own process, a broker in another, both on the same cores."""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import uvloop

from bench.harness import BrokerProcess, Measured, broker_process, fsync_ms, note, rounded, scratch_folder
from bench.workload import BATCH_MESSAGES, VALUE_BYTES, byte_batches
from goqueue.client.async_client import AsyncClient
from goqueue.model.topic_settings import FsyncPolicy

TOPIC = "bench"
_PARTITIONS = 3


@dataclass(frozen=True, slots=True)
class ClientUnderTest:
    """A client, and the broker that it talks to. The topic is there and empty."""

    client: AsyncClient
    broker: BrokerProcess

    def check_stored(self, acknowledged: int) -> None:
        """Nothing acknowledged may be missing, or a fast figure means nothing."""
        stored = self.broker.request("GET", f"/topics/{TOPIC}")["total_messages"]
        if stored != acknowledged:
            raise RuntimeError(f"{acknowledged} messages were acknowledged, the topic holds {stored}")


class Work:
    """What the processors did for a number of messages, on both sides."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._wall_s = time.perf_counter()
        self._client_s = time.process_time()
        self._broker_s = broker.cpu_s()

    def per_message(self, messages: int) -> dict[str, object]:
        client_s, broker_s = time.process_time() - self._client_s, self._broker.cpu_s() - self._broker_s
        return {
            "messages": messages,
            "client_cpu_us_per_message": rounded(client_s / messages * 1e6),
            "broker_cpu_us_per_message": rounded(broker_s / messages * 1e6),
            "client_cpu_share": rounded(client_s / (time.perf_counter() - self._wall_s)),
        }


async def fill_topic(under: ClientUnderTest, messages: int) -> None:
    """Something to consume."""
    note(f"writing {messages:,} messages to read")
    batches = byte_batches()
    async with under.client.producer(acks="leader") as producer:
        for number in range(messages // BATCH_MESSAGES):
            await producer.send_many(TOPIC, batches[number % len(batches)])
    under.check_stored(messages)


def measure_client(fsync: FsyncPolicy, work: Callable[[ClientUnderTest], Awaitable[Measured]]) -> Measured:
    """Run ``work`` under uvloop against a fresh broker whose topic has three partitions."""

    async def run(broker: BrokerProcess) -> Measured:
        async with AsyncClient(broker.address) as client:
            await client.create_topic(TOPIC, partitions=_PARTITIONS, fsync=fsync)
            # What the bench itself has loaded is not the client's to collect; all that comes now is.
            gc.collect()
            gc.freeze()
            return await work(ClientUnderTest(client, broker))

    with scratch_folder() as folder:
        before_ms = fsync_ms(folder)
        with broker_process(folder / "data") as broker:
            measured = uvloop.run(run(broker))
        disk_ms = [rounded(before_ms), rounded(fsync_ms(folder))]
    shape = {"value_bytes": VALUE_BYTES, "partitions": _PARTITIONS, "fsync": fsync, "disk_fsync_ms": disk_ms}
    return Measured(measured.runs, {**measured.details, **shape})


def measure_figures(
    fsync: FsyncPolicy, work: Callable[[ClientUnderTest], Awaitable[Mapping[str, Measured]]]
) -> Mapping[str, Measured]:
    """The same for several figures of one run."""
    found: dict[str, Measured] = {}

    async def run(under: ClientUnderTest) -> Measured:
        found.update(await work(under))
        return Measured([0.0], {})

    shape = measure_client(fsync, run).details
    return {name: Measured(each.runs, {**each.details, **shape}) for name, each in found.items()}
