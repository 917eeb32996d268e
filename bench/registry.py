"""Every figure by name, with its target."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from bench import (
    aborted_read,
    backup_online,
    client_publish,
    client_read,
    client_send,
    delay_burst,
    delay_error,
    delay_publish,
    delay_restart,
    exactly_once,
    group_rebalance,
    group_stream,
    http_publish,
    log_append,
    log_growth,
    log_memory,
    log_read,
    priority_overtake,
    priority_ratio,
    publish_partitions,
    queue_growth,
    queue_roundtrip,
    queue_wakeup,
    schema_lookup,
    schema_validate,
    scrape,
    spark_archive,
    spark_read,
    spark_write,
    startup,
    trace_ratio,
    truncation_pause,
    walks,
)
from bench.figure import Better, Figure, Measured

Measure = Callable[[Collection[str]], Mapping[str, Measured]]
"""Given the names that are wanted, measure at least those of them that it knows."""


@dataclass(frozen=True, slots=True)
class Bench:
    """A figure that can be asked for. Figures with the same ``measure`` come from the same run."""

    name: str
    description: str
    unit: str
    target: float
    better: Better
    measure: Measure

    def figure(self, measured: Measured) -> Figure:
        return Figure(self.name, self.unit, self.target, self.better, measured)


def _alone(name: str, measure: Callable[[], Measured]) -> Measure:
    return lambda _wanted: {name: measure()}


def _single(_wanted: Collection[str]) -> Mapping[str, Measured]:
    return http_publish.measure_single()


def _walks(_wanted: Collection[str]) -> Mapping[str, Measured]:
    return walks.measure()


_RATE = "messages/s"

_ALL = (
    Bench(
        "log_append_interval",
        "a log takes batches of 1000 from wire bytes on, fsync every second",
        _RATE,
        1_000_000,
        "higher",
        _alone("log_append_interval", log_append.measure_interval),
    ),
    Bench(
        "log_append_always",
        "the same with every batch durable before its writer goes on, 4 writers",
        _RATE,
        700_000,
        "higher",
        _alone("log_append_always", log_append.measure_always),
    ),
    Bench(
        "publish_always_300_partitions_p99",
        "a durable publish of one message, 16 writers over 300 partitions",
        "ms",
        20,
        "lower",
        _alone("publish_always_300_partitions_p99", publish_partitions.measure),
    ),
    Bench(
        "log_read_frames",
        "frames read back 1 MB at a time, undecoded, page cache warm",
        "MB/s",
        1_500,
        "higher",
        _alone("log_read_frames", log_read.measure_frames),
    ),
    Bench(
        "log_read_messages",
        "the same decoded, every checksum verified",
        _RATE,
        700_000,
        "higher",
        _alone("log_read_messages", log_read.measure_messages),
    ),
    Bench(
        "http_publish_batch",
        "JSON bodies of 1000 messages to a broker process, fsync always",
        _RATE,
        200_000,
        "higher",
        _alone("http_publish_batch", http_publish.measure_batch),
    ),
    Bench(
        http_publish.SINGLE,
        "one message a request over 16 connections, fsync always",
        _RATE,
        5_000,
        "higher",
        _single,
    ),
    Bench(
        http_publish.SINGLE_P99,
        "the time that such a request takes",
        "ms",
        10,
        "lower",
        _single,
    ),
    Bench(
        "client_publish_interval",
        "send_many of 1000 over gRPC to a broker process, fsync every second",
        _RATE,
        300_000,
        "higher",
        _alone("client_publish_interval", client_publish.measure_interval),
    ),
    Bench(
        "client_publish_always",
        "the same with every batch durable before its answer",
        _RATE,
        200_000,
        "higher",
        _alone("client_publish_always", client_publish.measure_always),
    ),
    Bench(
        "client_send_p99",
        "a single send() awaited before the next, no linger, fsync always",
        "ms",
        5,
        "lower",
        _alone("client_send_p99", client_send.measure_single),
    ),
    Bench(
        "client_paced_p99",
        "10,000 send() calls a second, from when each was due, default linger, fsync always",
        "ms",
        10,
        "lower",
        _alone("client_paced_p99", client_send.measure_paced),
    ),
    Bench(
        "client_read_messages",
        "a topic read over gRPC, decoded, every checksum verified",
        _RATE,
        400_000,
        "higher",
        _alone("client_read_messages", client_read.measure_messages),
    ),
    Bench(
        "client_read_frames",
        "the same as batches of frames, undecoded",
        _RATE,
        1_000_000,
        "higher",
        _alone("client_read_frames", client_read.measure_frames),
    ),
    Bench(
        "log_growth",
        "time of the last 100,000 of 10 million appends over the first",
        "ratio",
        1.2,
        "lower",
        _alone("log_growth", log_growth.measure),
    ),
    Bench(
        truncation_pause.NAME,
        "the longest that the loop is held while a full segment is cut at its start, in its middle, near its end",
        "ms",
        5,
        "lower",
        _alone(truncation_pause.NAME, truncation_pause.measure),
    ),
    Bench(
        "log_memory",
        "peak memory of a broker that takes 10 million messages and is read at random",
        "MB",
        200,
        "lower",
        _alone("log_memory", log_memory.measure),
    ),
    Bench(
        startup.CLEAN,
        "from process start to ready with 1,000 partitions after a clean stop",
        "s",
        10,
        "lower",
        startup.measure,
    ),
    Bench(
        startup.AFTER_KILL,
        "the same after kill -9, half of the data behind the recovery points",
        "s",
        10,
        "lower",
        startup.measure,
    ),
    Bench(
        "queue_roundtrip_interval",
        "one consumer polls and acks by the hundred over gRPC, messages fsynced every second, acks always",
        _RATE,
        60_000,
        "higher",
        _alone("queue_roundtrip_interval", queue_roundtrip.measure_interval),
    ),
    Bench(
        "queue_roundtrip_always",
        "the same with every message durable before it is seen",
        _RATE,
        40_000,
        "higher",
        _alone("queue_roundtrip_always", queue_roundtrip.measure_always),
    ),
    Bench(
        "group_stream",
        "a group of one reads a topic as a stream and commits every 10,000",
        _RATE,
        300_000,
        "higher",
        _alone("group_stream", group_stream.measure),
    ),
    Bench(
        queue_wakeup.P50,
        "from send() to a consumer that waits, half of all messages",
        "ms",
        5,
        "lower",
        queue_wakeup.measure,
    ),
    Bench(queue_wakeup.P99, "the same, 99 of 100 messages", "ms", 15, "lower", queue_wakeup.measure),
    Bench(
        queue_growth.GROWTH,
        "a poll of 100 with a backlog of 10 million and 1 million in flight over 100 groups, over one with little",
        "ratio",
        1.5,
        "lower",
        queue_growth.measure,
    ),
    Bench(
        queue_growth.IN_FLIGHT_BYTES,
        "memory for each message in flight, 1 million of them",
        "bytes",
        300,
        "lower",
        queue_growth.measure,
    ),
    Bench(
        "rebalance_seconds",
        "100 members join a sticky group of 300 partitions one after the other, one leaves",
        "s",
        1,
        "lower",
        _alone("rebalance_seconds", group_rebalance.measure),
    ),
    Bench(
        "delay_publish",
        "send_many of 1000 delayed messages over gRPC to a broker process, fsync always",
        _RATE,
        100_000,
        "higher",
        _alone("delay_publish", delay_publish.measure),
    ),
    Bench(
        "delay_burst_seconds",
        "from the due time of 100,000 messages until all of them are visible and durable",
        "s",
        1,
        "lower",
        _alone("delay_burst_seconds", delay_burst.measure),
    ),
    Bench(
        delay_error.P50,
        "from the due time of a message to a consumer that waits for it, half of all messages",
        "ms",
        10,
        "lower",
        delay_error.measure,
    ),
    Bench(delay_error.P99, "the same, 99 of 100 messages", "ms", 25, "lower", delay_error.measure),
    Bench(
        delay_restart.SECONDS,
        "from process start to ready with 1 million delayed messages after kill -9",
        "s",
        5,
        "lower",
        delay_restart.measure,
    ),
    Bench(
        delay_restart.MEMORY,
        "memory for each delayed message, 1 million of them",
        "bytes",
        150,
        "lower",
        delay_restart.measure,
    ),
    Bench(
        priority_ratio.BY_BATCH,
        "polls and acks with five lanes mixed as five producers send them, over the same with one",
        "ratio",
        0.8,
        "higher",
        priority_ratio.measure,
    ),
    Bench(
        priority_ratio.BY_MESSAGE,
        "the same with another lane for every message",
        "ratio",
        0.8,
        "higher",
        priority_ratio.measure,
    ),
    Bench(
        trace_ratio.PUBLISH,
        "processor time of a broker that traces nothing over one that traces every message, publishing",
        "ratio",
        0.95,
        "higher",
        trace_ratio.measure,
    ),
    Bench(
        trace_ratio.QUEUE,
        "the same for publishing, polling and acking",
        "ratio",
        0.95,
        "higher",
        trace_ratio.measure,
    ),
    Bench(
        exactly_once.IDEMPOTENT,
        "processor time of plain publishing over that of idempotent producers, batches of 1000",
        "ratio",
        0.95,
        "higher",
        _alone(exactly_once.IDEMPOTENT, exactly_once.measure_idempotence),
    ),
    Bench(
        exactly_once.TRANSACTIONS,
        "processor time of plain publishing over that of transactions of 1000 messages, all durable",
        "ratio",
        0.7,
        "higher",
        _alone(exactly_once.TRANSACTIONS, exactly_once.measure_transactions),
    ),
    Bench(
        exactly_once.RATE,
        "transactions of 100 messages, one after the other, each durable",
        "transactions/s",
        300,
        "higher",
        _alone(exactly_once.RATE, exactly_once.measure_rate),
    ),
    Bench(
        aborted_read.NAME,
        "committed messages read among 100,000 aborted transactions, over a partition without any",
        "ratio",
        0.8,
        "higher",
        _alone(aborted_read.NAME, aborted_read.measure),
    ),
    Bench(
        schema_validate.JSON,
        "messages checked against a JSON Schema and stored, in batches of a thousand, no network",
        "messages/s",
        100_000,
        "higher",
        schema_validate.measure,
    ),
    Bench(
        schema_validate.AVRO,
        "the same against an Avro schema",
        "messages/s",
        80_000,
        "higher",
        schema_validate.measure,
    ),
    Bench(
        "priority_overtake_ms",
        "a poll that brings a critical message from behind 5 million background ones, the worst of 50",
        "ms",
        50,
        "lower",
        _alone("priority_overtake_ms", priority_overtake.measure),
    ),
    Bench(
        "schema_lookup",
        "GET /schemas/ids/{id} over 16 connections, 100 schemas of 20 fields",
        "lookups/s",
        5_000,
        "higher",
        _alone("schema_lookup", schema_lookup.measure),
    ),
    Bench(
        "scrape_ms",
        "the text of /metrics with 1,000 partitions and a group that reads them all",
        "ms",
        50,
        "lower",
        _alone("scrape_ms", scrape.measure),
    ),
    Bench(
        spark_read.FILES,
        "Spark on two cores reads all columns of a topic from its files, every checksum verified",
        _RATE,
        2_000_000,
        "higher",
        spark_read.measure,
    ),
    Bench(spark_read.GRPC, "the same over gRPC", _RATE, 600_000, "higher", spark_read.measure),
    Bench(
        spark_read.GROWTH,
        "time that Spark takes for twice the messages, from files",
        "ratio",
        2.1,
        "lower",
        spark_read.measure,
    ),
    Bench(
        spark_write.WRITE,
        "a streaming query on two cores copies a topic to another, exactly once",
        _RATE,
        250_000,
        "higher",
        spark_write.measure_write,
    ),
    Bench(
        spark_write.LATENCY,
        "from send() to a reader behind a running query, 10,000 messages a second, 95 of 100 messages",
        "s",
        2,
        "lower",
        spark_write.measure_latency,
    ),
    Bench(
        spark_archive.ARCHIVE,
        "Spark on two cores brings a topic to a lake of Parquet files, from its files, exactly once",
        _RATE,
        400_000,
        "higher",
        spark_archive.measure,
    ),
    Bench(
        spark_archive.GROWTH,
        "time that it takes for twice the messages",
        "ratio",
        2.1,
        "lower",
        spark_archive.measure,
    ),
    Bench(
        backup_online.RATE,
        "a backup of a running broker with a gigabyte, to a file on the same disk, checked as it is written",
        "MB/s",
        200,
        "higher",
        backup_online.measure,
    ),
    Bench(
        backup_online.P99,
        "a durable publish of one message meanwhile",
        "ms",
        30,
        "lower",
        backup_online.measure,
    ),
    Bench(
        "walk_publish_hops",
        "a batch is published over gRPC: calls from one file of the broker to another",
        "calls",
        45,
        "lower",
        _walks,
    ),
    Bench(
        "walk_poll_hops",
        "one message of a queue is polled over HTTP: calls from one file of the broker to another",
        "calls",
        119,
        "lower",
        _walks,
    ),
    Bench(
        "walk_ack_hops",
        "a message is acked over HTTP: calls from one file of the broker to another",
        "calls",
        51,
        "lower",
        _walks,
    ),
    Bench(
        "walk_delay_hops",
        "a message is delayed over gRPC and becomes visible: calls from one file of the broker to another",
        "calls",
        118,
        "lower",
        _walks,
    ),
    Bench(
        "walk_commit_hops",
        "a transaction is committed over gRPC: calls from one file of the broker to another",
        "calls",
        83,
        "lower",
        _walks,
    ),
)

BENCHES = {bench.name: bench for bench in _ALL}

GROUPS = {"walks": tuple(name for name in BENCHES if name.startswith("walk_"))}
"""Names that stand for several figures of one run."""
