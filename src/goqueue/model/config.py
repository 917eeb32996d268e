"""The broker's configuration: one frozen tree, every default in it.

Where a value comes from (a file, the environment, a flag) is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from goqueue.model.fields import setting
from goqueue.model.group_settings import GroupSettings
from goqueue.model.topic_settings import TopicSettings

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class StorageConfig:
    """Where messages are kept, and how they are made durable."""

    path: str = setting(
        "./goqueue-data", "The data folder. One broker uses it at a time.", "text", minimum=1, maximum=4_096
    )
    fsync_interval_ms: int = setting(
        1_000,
        "How often topics with 'fsync: interval' are made durable.",
        "ms",
        minimum=10,
        maximum=60_000,
    )
    checkpoint_interval_ms: int = setting(
        10_000,
        "How often recovery points are written; a start after a crash scans what came since.",
        "ms",
        minimum=100,
        maximum=_HOUR_MS,
    )
    index_interval_bytes: int = setting(
        4_096,
        "How many bytes of log lie between two entries of the time index.",
        "bytes",
        minimum=256,
        maximum=1 << 20,
    )
    max_open_files: int = setting(
        900,
        "How many file descriptors segments may hold open together.",
        "count",
        minimum=16,
        maximum=1_000_000,
    )
    lane_index_bytes: int = setting(
        64 << 20,
        "How much memory the lane indexes of segments may take together; what is used least is read again when needed.",
        "bytes",
        minimum=1 << 20,
        maximum=1 << 40,
    )
    min_free_bytes: int = setting(
        256 << 20,
        "Publishing is refused while the disk has less room than this.",
        "bytes",
        minimum=0,
        maximum=1 << 44,
    )
    cleanup_interval_ms: int = setting(
        30_000,
        "How often retention and compaction look for work.",
        "ms",
        minimum=100,
        maximum=_HOUR_MS,
    )
    compaction_min_dirty_ratio: float = setting(
        0.5,
        "A partition is compacted when this share of its closed segments is new.",
        "ratio",
        minimum=0.01,
        maximum=1.0,
    )
    compaction_max_keys: int = setting(
        500_000,
        "How many keys one compaction pass holds in memory (about 150 bytes each).",
        "count",
        minimum=1_000,
        maximum=100_000_000,
    )


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """The HTTP server and its limits."""

    host: str = setting(
        "127.0.0.1", "The address to listen on; loopback unless told otherwise.", "text", minimum=1, maximum=255
    )
    port: int = setting(8080, "The port; 0 takes a free one.", "count", maximum=65_535)
    allowed_hosts: str = setting(
        "",
        "Names under which clients reach this broker, separated by commas; requests for others are refused. localhost, "
        "addresses and the host that is listened on are always allowed; .example.com stands for all names below "
        "example.com, * for every name.",
        "text",
        maximum=4_000,
    )
    max_body_bytes: int = setting(
        24 << 20,
        "The largest request body. The loop is held while a body is read, about 40 ms for the largest.",
        "bytes",
        minimum=1 << 10,
        maximum=1 << 30,
    )
    max_header_bytes: int = setting(
        64 << 10,
        "The largest request line and headers together.",
        "bytes",
        minimum=1 << 10,
        maximum=1 << 20,
    )
    header_timeout_ms: int = setting(
        10_000,
        "How long a client may take to send a request's headers.",
        "ms",
        minimum=100,
        maximum=_HOUR_MS,
    )
    body_timeout_ms: int = setting(
        60_000,
        "How long a client may take to send a request's body.",
        "ms",
        minimum=100,
        maximum=_HOUR_MS,
    )
    write_timeout_ms: int = setting(
        60_000,
        "How long a client may take to read any part of its answer.",
        "ms",
        minimum=100,
        maximum=_HOUR_MS,
    )
    keep_alive_ms: int = setting(75_000, "How long an idle connection is kept.", "ms", minimum=1_000, maximum=_HOUR_MS)
    max_connections: int = setting(
        4_096,
        "How many connections may be open; one more is answered 503, unless it asks for the broker's health.",
        "count",
        minimum=1,
        maximum=1_000_000,
    )
    max_concurrent_requests: int = setting(
        512,
        "How many requests are served at once, waiting reads apart; one more is answered 503.",
        "count",
        minimum=1,
        maximum=100_000,
    )
    max_request_memory_bytes: int = setting(
        256 << 20,
        "How many bytes of request bodies may be in memory together; more is answered 503.",
        "bytes",
        minimum=1 << 20,
        maximum=1 << 40,
    )
    max_unread_bytes: int = setting(
        128 << 20,
        "How many bytes of answers may wait for clients that do not read them; beyond, requests are answered 503, and "
        "who reads nothing for 2 s is cut off.",
        "bytes",
        minimum=1 << 20,
        maximum=1 << 40,
    )
    max_waiting_reads: int = setting(
        2_048,
        "How many reads may wait for messages at once; one more is answered 503.",
        "count",
        minimum=1,
        maximum=1_000_000,
    )
    max_wait_ms: int = setting(30_000, "The longest that a read may ask to wait.", "ms", minimum=0, maximum=600_000)
    max_read_bytes: int = setting(
        4 << 20,
        "The most bytes of frames that one read answers with (or one message).",
        "bytes",
        minimum=1 << 10,
        maximum=1 << 30,
    )
    max_read_messages: int = setting(
        10_000,
        "The most messages that one JSON read answers with.",
        "count",
        minimum=1,
        maximum=1_000_000,
    )
    max_publish_messages: int = setting(
        10_000,
        "The most messages that one JSON publish may carry.",
        "count",
        minimum=1,
        maximum=1_000_000,
    )
    shutdown_timeout_ms: int = setting(
        15_000,
        "How long a stop waits for requests that were accepted.",
        "ms",
        minimum=0,
        maximum=600_000,
    )


@dataclass(frozen=True, slots=True)
class GrpcConfig:
    """The gRPC server and its limits."""

    enabled: bool = setting(True, "Whether gRPC is served.", "flag")
    host: str = setting(
        "127.0.0.1", "The address to listen on; loopback unless told otherwise.", "text", minimum=1, maximum=255
    )
    port: int = setting(9090, "The port; 0 takes a free one.", "count", maximum=65_535)
    advertised_address: str = setting(
        "", "What clients are told to connect to, as host:port; empty: where it listens.", "text", maximum=255
    )
    max_message_bytes: int = setting(
        20 << 20, "The largest gRPC message in either direction.", "bytes", minimum=2 << 20, maximum=1 << 30
    )
    max_connections: int = setting(
        4_096,
        "How many connections may be open; one more is closed at once.",
        "count",
        minimum=1,
        maximum=1_000_000,
    )
    max_concurrent_calls: int = setting(
        2_048,
        "How many calls, streams included, are served at once; one more is refused.",
        "count",
        minimum=1,
        maximum=1_000_000,
    )
    max_unread_bytes: int = setting(
        128 << 20,
        "How many bytes of answers may wait for clients that do not read them; beyond, calls are refused. From half of "
        "it on, who takes no answer for 2 s is cut off (1 s more for each 16 MiB). As many again may be in batches of "
        "streams; beyond, streams get smaller batches, and messages that are larger wait.",
        "bytes",
        minimum=1 << 20,
        maximum=1 << 40,
    )
    max_fetch_streams: int = setting(
        1_024,
        "How many streams may fetch at once; one more is refused. Never more than half of max_concurrent_calls.",
        "count",
        minimum=1,
        maximum=1_000_000,
    )
    max_subscriptions: int = setting(
        1_024,
        "How many members may subscribe at once; one more is refused. Never more than half of max_concurrent_calls.",
        "count",
        minimum=1,
        maximum=1_000_000,
    )
    max_in_flight_batches: int = setting(
        64,
        "How many batches of one publish stream may wait for their answer; then the broker stops reading it.",
        "count",
        minimum=1,
        maximum=10_000,
    )
    max_batch_bytes: int = setting(
        1 << 20,
        "The most bytes of frames in one batch that is fetched (or one message).",
        "bytes",
        minimum=1 << 10,
        maximum=1 << 30,
    )
    keep_alive_ms: int = setting(
        60_000, "How often an idle connection is probed.", "ms", minimum=1_000, maximum=_HOUR_MS
    )
    keep_alive_timeout_ms: int = setting(
        20_000, "How long a probe may take before the connection is closed.", "ms", minimum=100, maximum=_HOUR_MS
    )
    min_ping_interval_ms: int = setting(
        10_000, "A client that pings more often than this is disconnected.", "ms", minimum=100, maximum=_HOUR_MS
    )
    max_call_ms: int = setting(
        60_000, "The longest that a call may take that is not a stream.", "ms", minimum=100, maximum=_HOUR_MS
    )
    reflection: bool = setting(False, "Whether the API can be explored by tools such as grpcurl.", "flag")


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    """Limits on what a broker holds."""

    max_topics: int = setting(10_000, "How many topics there may be.", "count", minimum=1, maximum=1_000_000)
    max_total_partitions: int = setting(
        20_000,
        "How many partitions there may be over all topics.",
        "count",
        minimum=1,
        maximum=1_000_000,
    )
    max_groups: int = setting(10_000, "How many groups there may be.", "count", minimum=1, maximum=1_000_000)
    max_group_members: int = setting(1_000, "How many members a group may have.", "count", minimum=1, maximum=100_000)
    max_group_partitions: int = setting(
        10_000, "How many partitions a group may subscribe to.", "count", minimum=1, maximum=1_000_000
    )
    max_poll_messages: int = setting(
        1_000, "The most messages that one poll answers with.", "count", minimum=1, maximum=100_000
    )
    max_outstanding: int = setting(
        100_000,
        "How many messages of one partition a group may have in flight, waiting for a retry or on their way to the "
        "dead letters; no new ones are delivered beyond.",
        "count",
        minimum=1,
        maximum=10_000_000,
    )
    max_delayed: int = setting(
        10_000_000,
        "How many delayed messages may wait in all topics together; each takes about 50 bytes of memory.",
        "count",
        minimum=0,
        maximum=1_000_000_000,
    )
    max_parked: int = setting(
        10_000,
        "Under 'ordering: key', how many messages of one partition may wait for their key.",
        "count",
        minimum=1,
        maximum=1_000_000,
    )
    max_producers_per_partition: int = setting(
        10_000,
        "How many idempotent producers a partition remembers; beyond, the one that was silent longest is forgotten.",
        "count",
        minimum=10,
        maximum=1_000_000,
    )
    max_dedup_ids: int = setting(
        500_000,
        "How many dedup ids are remembered over all topics; beyond, messages with one are refused. Each takes about "
        "200 bytes of memory.",
        "count",
        minimum=0,
        maximum=100_000_000,
    )


@dataclass(frozen=True, slots=True)
class SchemasConfig:
    """The schema registry."""

    max_schemas: int = setting(
        100_000,
        "How many schemas may be in use, how many subjects there may be, and how many may have settings of their own.",
        "count",
        minimum=1,
        maximum=10_000_000,
    )
    max_bytes: int = setting(
        1 << 30,
        "How many bytes all schemas may have together. Those that were deleted for good count as well.",
        "bytes",
        minimum=1 << 20,
        maximum=1 << 40,
    )
    max_versions: int = setting(
        1_000, "How many versions a subject may have, deleted ones included.", "count", minimum=1, maximum=100_000
    )
    parsed_bytes: int = setting(
        8 << 20,
        "Schemas of so many bytes of text are kept ready for use, and others are read again when they are needed. "
        "What is kept of one takes up to 50 times as much.",
        "bytes",
        minimum=0,
        maximum=1 << 30,
    )


@dataclass(frozen=True, slots=True)
class TransactionsConfig:
    """Transactions, and idempotent producers."""

    timeout_ms: int = setting(
        60_000,
        "A transaction that was neither committed nor aborted for so long is aborted, unless its producer asked for "
        "another timeout.",
        "ms",
        minimum=1_000,
        maximum=_HOUR_MS,
    )
    max_timeout_ms: int = setting(
        900_000, "The longest timeout that a producer may ask for.", "ms", minimum=1_000, maximum=24 * _HOUR_MS
    )
    prepared_timeout_ms: int = setting(
        _HOUR_MS,
        "A transaction that was prepared and not committed for so long is aborted.",
        "ms",
        minimum=1_000,
        maximum=7 * 24 * _HOUR_MS,
    )
    max_open: int = setting(
        10_000, "How many transactions may be open or prepared at once.", "count", minimum=1, maximum=1_000_000
    )
    max_producers: int = setting(
        100_000, "How many transactional ids may be in use.", "count", minimum=1, maximum=10_000_000
    )
    producer_expiry_ms: int = setting(
        24 * _HOUR_MS,
        "A producer that has sent nothing for so long is forgotten: a retry of its last batch would be stored again.",
        "ms",
        minimum=60_000,
        maximum=365 * 24 * _HOUR_MS,
    )
    id_expiry_ms: int = setting(
        7 * 24 * _HOUR_MS,
        "A transactional id that nobody has used for so long is forgotten.",
        "ms",
        minimum=60_000,
        maximum=3_650 * 24 * _HOUR_MS,
    )
    key_retention_ms: int = setting(
        7 * 24 * _HOUR_MS,
        "How long it is remembered what was committed under an application key. The last of a series (keys that end "
        "in # and a number) is not forgotten for its age.",
        "ms",
        minimum=60_000,
        maximum=3_650 * 24 * _HOUR_MS,
    )
    max_keys: int = setting(
        100_000,
        "How many application keys are remembered; beyond, the oldest is forgotten. One of many transactions counts "
        "for more, one for every ten.",
        "count",
        minimum=1,
        maximum=10_000_000,
    )


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The broker's own log lines, on standard error."""

    format: str = setting(
        "console", "How a line looks: for people or for machines.", "choice", choices=("console", "json")
    )
    level: str = setting(
        "info",
        "The least serious line that is written.",
        "choice",
        choices=("debug", "info", "warning", "error"),
    )


@dataclass(frozen=True, slots=True)
class TraceConfig:
    """What is remembered of every message's way, and where it is sent."""

    sampling: float = setting(
        1.0, "The share of messages that are traced; 0 turns tracing off.", "ratio", minimum=0.0, maximum=1.0
    )
    memory_events: int = setting(
        10_000,
        "How many events are kept in memory; one covers all messages that it happened to at once.",
        "count",
        minimum=100,
        maximum=1_000_000,
    )
    exporters: str = setting(
        "file",
        "Where events and spans go, separated by commas: file, stdout, otlp, jaeger; empty for nowhere.",
        "text",
        maximum=100,
    )
    file_bytes: int = setting(
        64 << 20,
        "When a trace file has this size, the next is begun.",
        "bytes",
        minimum=64 << 10,
        maximum=1 << 30,
    )
    retention_bytes: int = setting(
        1 << 30,
        "How much room trace files may take together; the oldest is deleted first.",
        "bytes",
        minimum=1 << 20,
        maximum=1 << 44,
    )
    retention_ms: int = setting(
        7 * 24 * _HOUR_MS,
        "How long a trace file is kept.",
        "ms",
        minimum=60_000,
        maximum=3_650 * 24 * _HOUR_MS,
    )
    search_bytes: int = setting(
        1 << 30,
        "How much one search reads of trace files and messages; what it has not seen by then it says.",
        "bytes",
        minimum=1 << 20,
        maximum=1 << 44,
    )
    export_per_second: int = setting(
        1_000,
        "How many spans a second are made for tracing systems; more are dropped and counted.",
        "count",
        minimum=1,
        maximum=50_000,
    )
    otlp_endpoint: str = setting(
        "http://127.0.0.1:4317",
        "Where the OpenTelemetry collector listens; 4317 is usual for gRPC, 4318 for HTTP.",
        "text",
        minimum=1,
        maximum=2_000,
    )
    otlp_protocol: str = setting("grpc", "How it is spoken to.", "choice", choices=("grpc", "http"))
    otlp_headers: str = setting(
        "",
        "Headers sent along, such as a token: name=value, separated by commas.",
        "text",
        maximum=4_000,
        secret=True,
    )
    jaeger_host: str = setting("127.0.0.1", "Where the Jaeger agent is.", "text", minimum=1, maximum=255)
    jaeger_port: int = setting(
        6_831, "The agent's UDP port for Thrift in its compact form.", "count", minimum=1, maximum=65_535
    )


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """What ``/metrics`` shows."""

    max_topics: int = setting(
        1_000,
        "How many topics have figures of their own; the others are counted together, as '__other'.",
        "count",
        minimum=1,
        maximum=100_000,
    )
    max_groups: int = setting(
        1_000,
        "How many groups have figures of their own; the others are counted together, as '__other'.",
        "count",
        minimum=1,
        maximum=100_000,
    )
    max_partitions: int = setting(
        5_000,
        "How many partitions have figures of their own, and how many a group has of its lag; beyond, topics have.",
        "count",
        minimum=1,
        maximum=1_000_000,
    )


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that can be configured. ``topic`` and ``group`` hold what is so unless one of them says otherwise."""

    storage: StorageConfig = field(default_factory=StorageConfig)
    topic: TopicSettings = field(default_factory=TopicSettings)
    group: GroupSettings = field(default_factory=GroupSettings)
    http: HttpConfig = field(default_factory=HttpConfig)
    grpc: GrpcConfig = field(default_factory=GrpcConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    log: LogConfig = field(default_factory=LogConfig)
    schemas: SchemasConfig = field(default_factory=SchemasConfig)
    transactions: TransactionsConfig = field(default_factory=TransactionsConfig)
    trace: TraceConfig = field(default_factory=TraceConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
