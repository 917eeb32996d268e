"""How a client, a producer and a consumer behave. Every default is here, with its bounds."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from goqueue.model.errors import InvalidConfiguration
from goqueue.model.fields import parse_fields, setting

_HOUR_MS = 3_600_000


class _Checked:
    """Refuses values out of bounds, naming every one of them."""

    __slots__ = ()

    def __post_init__(self) -> None:
        kind = type(self)
        given = {name: getattr(self, name) for name in (field.name for field in dataclasses.fields(kind))}  # type: ignore[arg-type]
        values, problems = parse_fields(kind, given)
        if problems:
            raise InvalidConfiguration("; ".join(problems))
        for name, value in values.items():
            object.__setattr__(self, name, value)


DEFAULT_ADDRESS = "localhost:9090"


@dataclass(frozen=True, slots=True)
class ClientConfig(_Checked):
    """What a client does about the network."""

    connect_timeout_ms: int = setting(
        10_000, "How long to look for a broker before giving up.", "ms", minimum=1, maximum=_HOUR_MS
    )
    request_timeout_ms: int = setting(
        30_000, "How long one request to a broker may take.", "ms", minimum=1, maximum=_HOUR_MS
    )
    retry_backoff_ms: int = setting(
        50,
        "The first pause before trying again; each further one is twice as long, with jitter.",
        "ms",
        minimum=1,
        maximum=60_000,
    )
    max_backoff_ms: int = setting(2_000, "The longest pause before trying again.", "ms", minimum=1, maximum=_HOUR_MS)
    max_message_bytes: int = setting(
        20 << 20, "The largest gRPC message in either direction.", "bytes", minimum=2 << 20, maximum=1 << 30
    )
    keep_alive_ms: int = setting(
        30_000, "How often an idle connection is probed.", "ms", minimum=10_000, maximum=_HOUR_MS
    )
    metadata_max_age_ms: int = setting(
        30_000,
        "How long to trust what is known of a topic's partitions and their leaders.",
        "ms",
        minimum=1,
        maximum=_HOUR_MS,
    )
    exit_timeout_ms: int = setting(
        10_000,
        "How long a program that ends without closing its client waits for messages to be acknowledged.",
        "ms",
        minimum=1,
        maximum=_HOUR_MS,
    )
    prefetch_batches: int = setting(4, "How many batches a reader fetches ahead.", "count", minimum=1, maximum=1_000)


@dataclass(frozen=True, slots=True)
class ProducerConfig(_Checked):
    """When a batch leaves, how much may wait, and what is promised."""

    batch_messages: int = setting(
        100, "A batch leaves when it has so many messages.", "count", minimum=1, maximum=100_000
    )
    batch_bytes: int = setting(64 << 10, "A batch leaves when it is so large.", "bytes", minimum=1, maximum=1 << 20)
    linger_ms: int = setting(
        5, "A batch leaves when its first message has waited so long; 0: at once.", "ms", minimum=0, maximum=60_000
    )
    buffer_bytes: int = setting(
        32 << 20,
        "How many bytes of messages may wait for their acknowledgement.",
        "bytes",
        minimum=1 << 16,
        maximum=1 << 40,
    )
    block: bool = setting(True, "Whether sending waits when the buffer is full; else it raises BufferFull.", "flag")
    acks: Literal["none", "leader", "all"] = setting(
        "all", "When a message counts as delivered.", "choice", choices=("none", "leader", "all")
    )
    delivery_timeout_ms: int = setting(
        120_000,
        "How long a message may take, retries included, before it fails.",
        "ms",
        minimum=1,
        maximum=24 * _HOUR_MS,
    )
    inject_trace_context: bool = setting(
        True,
        "Whether messages sent inside an OpenTelemetry span carry it to consumers, as traceparent and tracestate.",
        "flag",
    )
    idempotent: bool = setting(
        True,
        "Whether the broker knows a batch that is sent again, so that a retry is never stored twice.",
        "flag",
    )


@dataclass(frozen=True, slots=True)
class ConsumerConfig(_Checked):
    """How much a consumer has in hand, and what it does by itself."""

    max_in_flight: int = setting(
        1_000,
        "How many messages of a queue the consumer has at most, waiting in it or being handled; never more than the "
        "group's max_in_flight. It fetches as many as it is asked for, and ahead of that what it handles within a "
        "quarter of a second.",
        "count",
        minimum=1,
        maximum=100_000,
    )
    prefetch_batches: int = setting(
        4, "How many batches of a stream are fetched ahead.", "count", minimum=1, maximum=1_000
    )
    max_lease_ms: int = setting(
        _HOUR_MS,
        "How long the consumer keeps a message hidden from others by extending its lease; 0: it does not extend.",
        "ms",
        minimum=0,
        maximum=7 * 24 * _HOUR_MS,
    )
    auto_commit: bool = setting(
        True, "Whether a consumer of a stream commits by itself what its user has finished.", "flag"
    )
    auto_commit_ms: int = setting(5_000, "How often it does.", "ms", minimum=10, maximum=_HOUR_MS)
    settle_timeout_ms: int = setting(
        60_000,
        "How long an ack, nack, reject, extension or commit may take, retries included, before it fails.",
        "ms",
        minimum=1,
        maximum=24 * _HOUR_MS,
    )
    close_timeout_ms: int = setting(
        10_000, "How long closing waits for the broker's last answers.", "ms", minimum=1, maximum=_HOUR_MS
    )
    session_timeout_ms: int = setting(
        0,
        "How long the group waits for a consumer whose connection broke before others get its work; 0: as long as "
        "the group's setting says.",
        "ms",
        minimum=0,
        maximum=30 * 60_000,
    )
    client_id: str = setting(
        "", "What the consumer is called in its group; empty: host and process.", "text", minimum=0, maximum=150
    )
