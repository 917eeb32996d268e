"""Configuration of clients, producers and consumers: every option with its default and its bounds."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from goqueue.model.errors import InvalidConfiguration
from goqueue.model.fields import choice, count, duration_ms, flag, parse_fields, size_bytes, text

_HOUR_MS = 3_600_000


class _Validated:
    """Rejects values out of bounds, and names all of them in one error."""

    __slots__ = ()

    def __post_init__(self) -> None:
        kind = type(self)
        raw = {name: getattr(self, name) for name in (field.name for field in dataclasses.fields(kind))}  # type: ignore[arg-type]
        values, problems = parse_fields(kind, raw)
        if problems:
            raise InvalidConfiguration("; ".join(problems))
        for name, value in values.items():
            object.__setattr__(self, name, value)


DEFAULT_ADDRESS = "localhost:9090"


@dataclass(frozen=True, slots=True)
class ClientConfig(_Validated):
    """Timeouts, retries and limits of a client's connections."""

    connect_timeout_ms: int = duration_ms(10_000, (1, _HOUR_MS), "How long to try to reach a broker before failing.")
    request_timeout_ms: int = duration_ms(30_000, (1, _HOUR_MS), "Timeout of one request to a broker.")
    retry_backoff_ms: int = duration_ms(
        50, (1, 60_000), "Pause before the first retry; doubled for each further one, with jitter."
    )
    max_backoff_ms: int = duration_ms(2_000, (1, _HOUR_MS), "Longest pause between retries.")
    max_message_bytes: int = size_bytes(20 << 20, (2 << 20, 1 << 30), "Largest gRPC message in either direction.")
    keep_alive_ms: int = duration_ms(30_000, (10_000, _HOUR_MS), "Interval of keep-alive probes on an idle connection.")
    metadata_max_age_ms: int = duration_ms(
        30_000, (1, _HOUR_MS), "How long a topic's partitions and their leaders are cached."
    )
    exit_timeout_ms: int = duration_ms(
        10_000, (1, _HOUR_MS), "How long a program that ends without closing its client waits for acknowledgements."
    )
    prefetch_batches: int = count(4, (1, 1_000), "How many batches a reader prefetches.")


@dataclass(frozen=True, slots=True)
class ProducerConfig(_Validated):
    """Batching, buffering and delivery guarantees of a producer."""

    batch_messages: int = count(100, (1, 100_000), "A batch is sent when it has this many messages.")
    batch_bytes: int = size_bytes(64 << 10, (1, 1 << 20), "A batch is sent when it has this size.")
    linger_ms: int = duration_ms(
        5, (0, 60_000), "A batch is sent when its first message has waited this long; 0: at once."
    )
    buffer_bytes: int = size_bytes(32 << 20, (1 << 16, 1 << 40), "Largest total size of unacknowledged messages.")
    block: bool = flag(True, "Whether send waits while the buffer is full; otherwise it raises BufferFull.")
    acks: Literal["none", "leader", "all"] = choice(
        "all", ("none", "leader", "all"), "Which acknowledgement a send waits for."
    )
    delivery_timeout_ms: int = duration_ms(
        120_000, (1, 24 * _HOUR_MS), "Timeout for the delivery of a message, retries included."
    )
    inject_trace_context: bool = flag(
        True, "Whether messages sent inside an OpenTelemetry span carry it as traceparent and tracestate headers."
    )
    idempotent: bool = flag(
        True, "Whether the broker deduplicates retried batches, so that a retry is never stored twice."
    )


@dataclass(frozen=True, slots=True)
class ConsumerConfig(_Validated):
    """Prefetch, leases and commits of a consumer."""

    max_in_flight: int = count(
        1_000,
        (1, 100_000),
        "Most messages of a queue in flight in this consumer, buffered or being handled; never more than the group's "
        "max_in_flight. It fetches as many as are requested, and prefetches as many as it handles within a quarter of "
        "a second.",
    )
    prefetch_batches: int = count(4, (1, 1_000), "How many batches of a stream are prefetched.")
    max_lease_ms: int = duration_ms(
        _HOUR_MS,
        (0, 7 * 24 * _HOUR_MS),
        "How long the consumer extends a message's lease, to keep it hidden from others; 0: it does not extend.",
    )
    auto_commit: bool = flag(True, "Whether a consumer of a stream commits finished offsets by itself.")
    auto_commit_ms: int = duration_ms(5_000, (10, _HOUR_MS), "Interval of automatic commits.")
    settle_timeout_ms: int = duration_ms(
        60_000, (1, 24 * _HOUR_MS), "Timeout of an ack, nack, reject, extension or commit, retries included."
    )
    close_timeout_ms: int = duration_ms(10_000, (1, _HOUR_MS), "How long close waits for the broker's last responses.")
    session_timeout_ms: int = duration_ms(
        0,
        (0, 30 * 60_000),
        "How long the group keeps the partitions and messages of a consumer whose connection broke; 0: the group's "
        "session_timeout_ms.",
    )
    client_id: str = text("", (0, 150), "Name of the consumer in its group; empty: host and process id.")
