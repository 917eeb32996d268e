"""How fast Spark writes to a topic exactly once, and how long a message takes through a running query."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from datetime import UTC, datetime

from bench.harness import Measured, note, percentile, rounded
from bench.spark_under_test import TOPIC, SparkUnderTest, spark_under_test
from goqueue.client.messages.outgoing_message import Outgoing
from goqueue.client.sync import Client

WRITE = "spark_write"
MESSAGES = 3_000_000
LATENCY = "spark_latency_p95"
_WRITE_RUNS = 4
_TARGET = "written"
_RATE = 10_000
_LATENCY_S = 40
_WARM_UP_S = 15
_TICK_S = 0.05


def measure_write(wanted: Collection[str]) -> Mapping[str, Measured]:
    """A streaming query from one topic to another: read, cross into Spark and back, written in transactions."""
    with spark_under_test(MESSAGES) as under:
        rates = [_copy(under, number) for number in range(_WRITE_RUNS)]
    return {WRITE: Measured(rates[1:], {"messages": MESSAGES, "triggers": 3})}


def _copy(under: SparkUnderTest, number: int) -> float:
    """The time that the micro-batches took, as Spark tells it: a query's start is not counted."""
    target = f"{_TARGET}-{number}"
    under.client.create_topic(target, partitions=2)
    stream = under.spark.readStream.format("goqueue")
    stream = stream.options(brokers=under.broker.address, topics=TOPIC, columns="key,value")
    query = (
        stream.option("maxMessagesPerTrigger", str(MESSAGES // 3))
        .load()
        .writeStream.format("goqueue")
        .options(brokers=under.broker.address, topic=target)
        .option("checkpointLocation", str(under.scratch / target))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    took_ms = sum(progress.durationMs["triggerExecution"] for progress in query.recentProgress if progress.numInputRows)
    partitions = under.client.describe_topic(target).partitions
    written = sum(each.stable_end for each in partitions)
    if written < MESSAGES:
        raise RuntimeError(f"{written} messages are in {target}, {MESSAGES} were to be written")
    under.client.delete_topic(target)
    rate = MESSAGES / (took_ms / 1_000)
    note(f"{WRITE}: {rounded(rate):,}")
    return rate


def measure_latency(wanted: Collection[str]) -> Mapping[str, Measured]:
    """From when a message was sent to when it can be read behind a query, 10,000 messages a second."""
    with spark_under_test(0) as under:
        under.client.create_topic(_TARGET, partitions=2)
        query = (
            under.spark.readStream.format("goqueue")
            .options(brokers=under.broker.address, topics=TOPIC, columns="value")
            .load()
            .writeStream.format("goqueue")
            .options(brokers=under.broker.address, topic=_TARGET)
            .option("checkpointLocation", str(under.scratch / "latency"))
            .start()
        )
        stop = threading.Event()
        sender = threading.Thread(target=_send, args=(under, stop))
        sender.start()
        try:
            latencies = _latencies(under)
        finally:
            stop.set()
            sender.join()
            query.stop()
    p95 = percentile(latencies, 0.95) / 1_000
    details = {"p50": rounded(percentile(latencies, 0.5) / 1_000), "messages": len(latencies), "rate": _RATE}
    return {LATENCY: Measured([p95], details)}


def _send(under: SparkUnderTest, stop: threading.Event) -> None:
    """Values are the times at which they were sent."""
    with under.client.producer() as producer:
        began, sent = time.monotonic(), 0
        while not stop.is_set():
            due = int((time.monotonic() - began) * _RATE) - sent
            now = b"%d" % time.time_ns()
            producer.send_many(TOPIC, [Outgoing(now.ljust(100), partition=sent // 500 % 2) for _ in range(due)])
            sent += due
            stop.wait(_TICK_S)


def _latencies(under: SparkUnderTest) -> list[float]:
    """In milliseconds, of everything that arrived after the warm-up."""
    found: list[float] = []
    until = time.time() + _WARM_UP_S + _LATENCY_S
    counted_from = time.time_ns() + _WARM_UP_S * 10**9
    with Client(under.broker.address) as client:
        for batch in client.read_batches(_TARGET, start=datetime.now(UTC), follow=True):
            now_ns = time.time_ns()
            sent = [int(record.value) for record in batch.records()]
            found += [(now_ns - at) / 1e6 for at in sent if at >= counted_from]
            if time.time() > until:
                return found
    return found
