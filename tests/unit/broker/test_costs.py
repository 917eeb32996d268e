"""Rule 25: what costs next to nothing is proven by work that is counted; benchmarks measure it in processor time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from behaviour.host import config_for
from doubles.frames import packed
from doubles.loop import on_a_loop
from doubles.work import calls_of
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.openmetrics.exposition import generate_latest

from goqueue.broker.broker import Broker
from goqueue.wire.batch import FrameRun, parse_batch
from goqueue.wire.frame import encode_frame
from goqueue.wire.internal_headers import ProducerStamp
from goqueue.wire.producer_frames import stamp_batch

TOPIC = "t"
FEW, MANY = 10, 1_000
A_BATCH = 60
"""Calls that a feature may cost for a batch, whatever the number of its messages."""
STOCK_OVER_OURS = 3
"""How many times as much the stock client's registry must do for a labelled series."""


@asynccontextmanager
async def broker_of(folder: Path, sampling: float = 1.0, partitions: int = 1) -> AsyncIterator[Broker]:
    config = config_for(folder, trace={"sampling": sampling})
    async with Broker(config) as broker:
        await broker.create_topic(TOPIC, {"partitions": partitions, "fsync": "never"})
        yield broker


def plain(messages: int) -> FrameRun:
    return parse_batch(packed([encode_frame(b"", b"v" * 100, b"", 1)] * messages))


async def cost_of_publishing(broker: Broker, messages: int) -> int:
    run = plain(messages)
    return await calls_of(lambda: broker.publish_frames(TOPIC, 0, run))


@on_a_loop
async def test_rule_25_tracing_costs_by_the_batch_and_not_by_the_message(tmp_path: Path) -> None:
    cost: dict[tuple[float, int], int] = {}
    for sampling in (0.0, 1.0):
        async with broker_of(tmp_path / str(sampling), sampling) as broker:
            for messages in (FEW, MANY):
                cost[sampling, messages] = await cost_of_publishing(broker, messages)
    tracing = {messages: cost[1.0, messages] - cost[0.0, messages] for messages in (FEW, MANY)}
    assert 0 < tracing[MANY] < A_BATCH
    assert abs(tracing[MANY] - tracing[FEW]) < FEW


@on_a_loop
async def test_rule_25_idempotence_costs_by_the_batch_and_not_by_the_message(tmp_path: Path) -> None:
    async with broker_of(tmp_path) as broker:
        idempotence: dict[int, int] = {}
        for messages in (FEW, MANY):
            producer = await broker.transactions.init(None, None)
            frames, number = [encode_frame(b"", b"v" * 100, b"", 1)] * messages, count()
            stamps = [
                ProducerStamp(producer.producer_id, producer.epoch, first, messages)
                for first in range(0, 7 * messages, messages)
            ]
            batches = [parse_batch(packed(stamp_batch(frames, stamp))) for stamp in stamps]
            stamped = await calls_of(
                lambda: broker.publish_frames(TOPIC, 0, batches[next(number)])  # noqa: B023
            )
            idempotence[messages] = stamped - await cost_of_publishing(broker, messages)
    assert 0 < idempotence[MANY] < A_BATCH
    assert abs(idempotence[MANY] - idempotence[FEW]) < FEW


@on_a_loop
async def test_rule_25_a_scrape_costs_next_to_nothing_for_each_of_its_series(tmp_path: Path) -> None:
    cost: dict[int, int] = {}
    lines: dict[int, int] = {}
    for partitions in (FEW, 20 * FEW):
        async with broker_of(tmp_path / str(partitions), partitions=partitions) as broker:
            text = await broker.metrics.scrape(openmetrics=True)
            lines[partitions] = text.count(b"\n")
            cost[partitions] = await calls_of(lambda: broker.metrics.scrape(openmetrics=True))
    more = lines[20 * FEW] - lines[FEW]
    assert more > 19 * FEW
    ours = (cost[20 * FEW] - cost[FEW]) / more
    assert STOCK_OVER_OURS * ours < await cost_of_a_stock_series()


async def cost_of_a_stock_series() -> float:
    registry = CollectorRegistry()
    counter = Counter("a_counter", "Counts.", ["topic", "partition"], registry=registry)
    for partition in range(MANY):
        counter.labels(TOPIC, partition).inc()

    async def scrape() -> None:
        generate_latest(registry)

    return await calls_of(scrape) / MANY
