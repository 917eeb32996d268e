"""Configuration of clients, producers and consumers: every option with its default and its bounds."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from goqueue.model.errors import InvalidConfiguration
from goqueue.model.fields import parse_fields, setting

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

    connect_timeout_ms: int = setting(
        10_000, "How long to try to reach a broker before failing.", "ms", minimum=1, maximum=_HOUR_MS
    )
    request_timeout_ms: int = setting(30_000, "Timeout of one request to a broker.", "ms", minimum=1, maximum=_HOUR_MS)
    retry_backoff_ms: int = setting(
        50,
        "Pause before the first retry; doubled for each further one, with jitter.",
        "ms",
        minimum=1,
        maximum=60_000,
    )
    max_backoff_ms: int = setting(2_000, "Longest pause between retries.", "ms", minimum=1, maximum=_HOUR_MS)
    max_message_bytes: int = setting(
        20 << 20, "Largest gRPC message in either direction.", "bytes", minimum=2 << 20, maximum=1 << 30
    )
    keep_alive_ms: int = setting(
        30_000, "Interval of keep-alive probes on an idle connection.", "ms", minimum=10_000, maximum=_HOUR_MS
    )
    metadata_max_age_ms: int = setting(
        30_000,
        "How long a topic's partitions and their leaders are cached.",
        "ms",
        minimum=1,
        maximum=_HOUR_MS,
    )
    exit_timeout_ms: int = setting(
        10_000,
        "How long a program that ends without closing its client waits for acknowledgements.",
        "ms",
        minimum=1,
        maximum=_HOUR_MS,
    )
    prefetch_batches: int = setting(4, "How many batches a reader prefetches.", "count", minimum=1, maximum=1_000)


@dataclass(frozen=True, slots=True)
class ProducerConfig(_Validated):
    """Batching, buffering and delivery guarantees of a producer."""

    batch_messages: int = setting(
        100, "A batch is sent when it has this many messages.", "count", minimum=1, maximum=100_000
    )
    batch_bytes: int = setting(64 << 10, "A batch is sent when it has this size.", "bytes", minimum=1, maximum=1 << 20)
    linger_ms: int = setting(
        5, "A batch is sent when its first message has waited this long; 0: at once.", "ms", minimum=0, maximum=60_000
    )
    buffer_bytes: int = setting(
        32 << 20,
        "Largest total size of unacknowledged messages.",
        "bytes",
        minimum=1 << 16,
        maximum=1 << 40,
    )
    block: bool = setting(True, "Whether send waits while the buffer is full; otherwise it raises BufferFull.", "flag")
    acks: Literal["none", "leader", "all"] = setting(
        "all", "Which acknowledgement a send waits for.", "choice", choices=("none", "leader", "all")
    )
    delivery_timeout_ms: int = setting(
        120_000,
        "Timeout for the delivery of a message, retries included.",
        "ms",
        minimum=1,
        maximum=24 * _HOUR_MS,
    )
    inject_trace_context: bool = setting(
        True,
        "Whether messages sent inside an OpenTelemetry span carry it as traceparent and tracestate headers.",
        "flag",
    )
    idempotent: bool = setting(
        True,
        "Whether the broker deduplicates retried batches, so that a retry is never stored twice.",
        "flag",
    )


@dataclass(frozen=True, slots=True)
class ConsumerConfig(_Validated):
    """Prefetch, leases and commits of a consumer."""

    max_in_flight: int = setting(
        1_000,
        "Most messages of a queue in flight in this consumer, buffered or being handled; never more than the group's "
        "max_in_flight. It fetches as many as are requested, and prefetches as many as it handles within a quarter of "
        "a second.",
        "count",
        minimum=1,
        maximum=100_000,
    )
    prefetch_batches: int = setting(
        4, "How many batches of a stream are prefetched.", "count", minimum=1, maximum=1_000
    )
    max_lease_ms: int = setting(
        _HOUR_MS,
        "How long the consumer extends a message's lease, to keep it hidden from others; 0: it does not extend.",
        "ms",
        minimum=0,
        maximum=7 * 24 * _HOUR_MS,
    )
    auto_commit: bool = setting(True, "Whether a consumer of a stream commits finished offsets by itself.", "flag")
    auto_commit_ms: int = setting(5_000, "Interval of automatic commits.", "ms", minimum=10, maximum=_HOUR_MS)
    settle_timeout_ms: int = setting(
        60_000,
        "Timeout of an ack, nack, reject, extension or commit, retries included.",
        "ms",
        minimum=1,
        maximum=24 * _HOUR_MS,
    )
    close_timeout_ms: int = setting(
        10_000, "How long close waits for the broker's last responses.", "ms", minimum=1, maximum=_HOUR_MS
    )
    session_timeout_ms: int = setting(
        0,
        "How long the group keeps the partitions and messages of a consumer whose connection broke; 0: the group's "
        "session_timeout_ms.",
        "ms",
        minimum=0,
        maximum=30 * 60_000,
    )
    client_id: str = setting(
        "", "Name of the consumer in its group; empty: host and process id.", "text", minimum=0, maximum=150
    )
