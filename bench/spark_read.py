"""How fast Spark reads a topic: straight from its files, and over gRPC."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from pyspark.sql import DataFrame

from bench.harness import Measured, note, rounded
from bench.spark_under_test import MESSAGES, TOPIC, SparkUnderTest, spark_under_test

FILES = "spark_read_files"
GRPC = "spark_read_grpc"
GROWTH = "spark_read_growth"
_RUNS = 3
_WARM_UP = 4
"""Spark's own code gets faster for as long as that."""


def measure(wanted: Collection[str]) -> Mapping[str, Measured]:
    """All columns of every message, every checksum verified, to nowhere."""
    found: dict[str, Measured] = {}
    with spark_under_test() as under:
        if {FILES, GROWTH} & set(wanted):
            found |= _from_files(under)
        if GRPC in wanted:
            found[GRPC] = _over_grpc(under)
    return found


def _from_files(under: SparkUnderTest) -> dict[str, Measured]:
    rates = [_rate(FILES, under, 1, path=str(under.data)) for _ in range(_RUNS + _WARM_UP)][_WARM_UP:]
    value_only = [_rate(FILES, under, 1, path=str(under.data), columns="value") for _ in range(3)]
    half = [_seconds(under, MESSAGES // 2, path=str(under.data)) for _ in range(_RUNS)]
    whole = [_seconds(under, MESSAGES, path=str(under.data)) for _ in range(_RUNS)]
    growth = [long / short for long, short in zip(sorted(whole), sorted(half), strict=True)]
    return {
        FILES: Measured(rates, {"messages": MESSAGES, "value_column_only": rounded(max(value_only))}),
        GROWTH: Measured(growth, {"messages": MESSAGES}),
    }


def _over_grpc(under: SparkUnderTest) -> Measured:
    rates = [_rate(GRPC, under, 1) for _ in range(_RUNS + 1)][1:]
    return Measured(rates, {"messages": MESSAGES})


def _rate(label: str, under: SparkUnderTest, factor: int, **options: str) -> float:
    rate = factor * MESSAGES / _seconds(under, MESSAGES, **options)
    note(f"{label}: {rounded(rate):,}")
    return rate


def _seconds(under: SparkUnderTest, messages: int, **options: str) -> float:
    partitions = {str(number): messages // under.partitions for number in range(under.partitions)}
    frame = under.read(endingPosition=f'{{"{TOPIC}": {str(partitions).replace(chr(39), chr(34))}}}', **options)
    started = time.perf_counter()
    _to_nowhere(frame)
    return time.perf_counter() - started


def _to_nowhere(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()
