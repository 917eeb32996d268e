"""A Spark session on two cores beside a broker with a full topic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench.harness import BrokerProcess, broker_process, note, scratch_folder
from bench.workload import BATCH_MESSAGES, byte_batches
from goqueue.client.messages.outgoing_message import Outgoing
from goqueue.client.sync import Client
from goqueue.spark import session

TOPIC = "numbers"
MESSAGES = 10_000_000
"""Planning a query takes a second or more, whatever its size."""
_PARTITIONS = 2


@dataclass(frozen=True, slots=True)
class SparkUnderTest:
    spark: SparkSession
    broker: BrokerProcess
    client: Client
    data: Path
    scratch: Path
    partitions: int = _PARTITIONS

    def read(self, **options: str) -> DataFrame:
        return self.spark.read.format("goqueue").options(brokers=self.broker.address, topics=TOPIC, **options).load()


@contextmanager
def spark_under_test(messages: int = MESSAGES) -> Iterator[SparkUnderTest]:
    """``messages`` of 100 bytes lie in a topic of two partitions."""
    with scratch_folder() as scratch:
        data = scratch / "data"
        with broker_process(data, "--set=topic.fsync=interval") as broker, Client(broker.address) as client:
            client.create_topic(TOPIC, partitions=_PARTITIONS)
            if messages:
                note(f"writing {messages:,} messages")
                _fill(client, messages)
            spark = session("bench", "local[2]", {"spark.driver.memory": "4g"})
            try:
                yield SparkUnderTest(spark, broker, client, data, scratch)
            finally:
                spark.stop()


def _fill(client: Client, messages: int) -> None:
    values = [
        [Outgoing(value, partition=number % _PARTITIONS) for value in batch]
        for number, batch in enumerate(byte_batches())
    ]
    with client.producer() as producer:
        for batch in islice(cycle(values), messages // BATCH_MESSAGES):
            producer.send_many(TOPIC, batch)
