"""How fast ``archive`` brings a topic to a lake of Parquet files, exactly once."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from itertools import cycle, islice

from bench.harness import Measured, note, rounded
from bench.spark_under_test import TOPIC, SparkUnderTest, spark_under_test
from bench.workload import BATCH_MESSAGES, byte_batches
from goqueue.client.messages.outgoing_message import Outgoing
from goqueue.spark.pipelines.archive import PIPELINE
from goqueue.spark.pipelines.definitions.settings import Settings
from goqueue.spark.pipelines.running.context import Context
from goqueue.spark.pipelines.running.runner import run

ARCHIVE = "spark_archive"
GROWTH = "spark_archive_growth"
_MESSAGES = 2_000_000
_HALF = "half"
_RUNS = 4


def measure(wanted: Collection[str]) -> Mapping[str, Measured]:
    """All columns of every message, read from the topic's files, written, fsynced and committed; no compaction.

    The time is that of the query, its start included.
    """
    with spark_under_test(_MESSAGES) as under:
        whole = [_seconds(under, TOPIC, _MESSAGES, path=str(under.data)) for _ in range(_RUNS)][1:]
        over_grpc = [_seconds(under, TOPIC, _MESSAGES) for _ in range(2)]
        details = {"messages": _MESSAGES, "over_grpc": rounded(_MESSAGES / min(over_grpc))}
        found = {ARCHIVE: Measured([_MESSAGES / each for each in whole], details)}
        if GROWTH in wanted:
            _fill_half(under)
            half = [_seconds(under, _HALF, _MESSAGES // 2, path=str(under.data)) for _ in range(_RUNS - 1)]
            growth = [long / short for long, short in zip(sorted(whole), sorted(half), strict=True)]
            found[GROWTH] = Measured(growth, {"messages": _MESSAGES})
    return found


def _seconds(under: SparkUnderTest, topic: str, messages: int, **options: str) -> float:
    lake = under.scratch / "lake"
    given = {"topics": topic, "lake": str(lake), "compact": "false", "decode": "false", **options}
    settings = Settings(PIPELINE.settings, given)
    context = Context("archive", settings, under.broker.address, str(lake), given_session=under.spark)
    summary = run(PIPELINE, context)
    if summary.numbers["messages archived"] != messages:
        raise RuntimeError(f"{summary.numbers['messages archived']} messages are in the lake, not {messages}")
    shutil.rmtree(lake)
    seconds: float = summary.numbers["seconds"]
    note(f"{ARCHIVE}: {'from files' if options else 'over gRPC'}, {messages:,}: {rounded(messages / seconds):,}")
    return seconds


def _fill_half(under: SparkUnderTest) -> None:
    under.client.create_topic(_HALF, partitions=under.partitions)
    batches = [
        [Outgoing(value, partition=number % under.partitions) for value in batch]
        for number, batch in enumerate(byte_batches())
    ]
    with under.client.producer() as producer:
        for batch in islice(cycle(batches), _MESSAGES // 2 // BATCH_MESSAGES):
            producer.send_many(_HALF, batch)
