"""How fast committed messages are read where many transactions were aborted, over a partition that has none.

A hundred thousand aborted transactions lie between committed batches of ten, so that every sixth record is one that
nobody sees. Both topics hold the same committed messages and are read in turn over gRPC: as messages, which is the
figure, and as undecoded frames, which is told beside it.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from bench.harness import Measured, broker_process, note, rounded, scratch_folder
from bench.workload import VALUE_BYTES, byte_batches
from goqueue.broker.broker import Broker
from goqueue.client.async_client import AsyncClient
from goqueue.model.publishing import NewMessage
from goqueue.wire.batch import join_frames, parse_batch
from goqueue.wire.frame import encode_frame

NAME = "aborted_read_ratio"
_ABORTED = 100_000
_COMMITTED_BETWEEN = 10
_PAIRS = 7
_PLAIN, _MIXED = "plain", "mixed"
_SAID_EVERY = 20_000

Reader = Callable[[AsyncClient, str, int], Awaitable[None]]


def measure() -> Measured:
    with scratch_folder() as folder:
        data = folder / "data"
        uvloop.run(_write(data))
        with broker_process(data) as broker:
            return uvloop.run(_read(broker.address))


async def _write(data: Path) -> None:
    values = byte_batches()[0]
    batch = join_frames([encode_frame(b"", value, b"", time.time_ns()) for value in values[:_COMMITTED_BETWEEN]], 0)
    wire = batch.to_wire()
    lost = [NewMessage(value) for value in values[:1]]
    async with Broker(data) as broker:
        for name in (_PLAIN, _MIXED):
            await broker.create_topic(name, {"partitions": 1, "fsync": "never"})
        producer = await broker.transactions.init()
        for number in range(_ABORTED):
            for name in (_PLAIN, _MIXED):
                broker.append_frames(name, 0, parse_batch(wire))
            transaction = broker.transactions.begin(producer.producer_id, producer.epoch)
            await broker.publish(_MIXED, lost, transaction)
            await broker.transactions.abort(transaction.transaction_id)
            if number % _SAID_EVERY == 0:
                note(f"{NAME}: {number:,} of {_ABORTED:,} transactions aborted")
                await asyncio.sleep(0)


async def _read(address: str) -> Measured:
    readers: dict[str, Reader] = {"messages": _messages, "frames": _frames}
    rates: dict[tuple[str, str], list[float]] = {(kind, name): [] for kind in readers for name in (_PLAIN, _MIXED)}
    expected = _ABORTED * _COMMITTED_BETWEEN
    async with AsyncClient(address) as client:
        for kind, name in rates:
            await readers[kind](client, name, expected)
        for number in range(_PAIRS):
            for kind, name in rates if number % 2 else reversed(rates):
                began_s = time.perf_counter()
                await readers[kind](client, name, expected)
                rates[kind, name].append(expected / (time.perf_counter() - began_s))
            told = ", ".join(f"{rates[each][-1]:,.0f} {each[1]} as {each[0]}" for each in rates)
            note(f"{NAME}: pair {number + 1} of {_PAIRS}: {told}")
    return Measured(
        _ratios(rates, "messages"),
        {
            "committed_messages": expected,
            "aborted_transactions": _ABORTED,
            "value_bytes": VALUE_BYTES,
            "per_second": {" ".join(each): rounded(sum(found) / len(found)) for each, found in rates.items()},
            "ratio_of_frames": rounded(statistics.median(_ratios(rates, "frames"))),
        },
    )


def _ratios(rates: dict[tuple[str, str], list[float]], kind: str) -> list[float]:
    return [mixed / plain for mixed, plain in zip(rates[kind, _MIXED], rates[kind, _PLAIN], strict=True)]


async def _messages(client: AsyncClient, topic: str, expected: int) -> None:
    count = 0
    async for _ in client.read(topic):
        count += 1
    _check(topic, count, expected)


async def _frames(client: AsyncClient, topic: str, expected: int) -> None:
    count = 0
    async for batch in client.read_batches(topic):
        count += len(batch.run)
    _check(topic, count, expected)


def _check(topic: str, count: int, expected: int) -> None:
    if count != expected:
        raise RuntimeError(f"read {count} messages of {topic}, {expected} were committed")
