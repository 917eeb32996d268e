"""The configuration of a broker: one frozen tree with every default.

A row declares a setting: its default, its bounds and a sentence for the reference.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from goqueue.model.fields import choice, count, duration_ms, flag, ratio, size_bytes, text
from goqueue.model.group_settings import GroupSettings
from goqueue.model.topic_settings import TopicSettings

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class StorageConfig:
    """Where messages are stored, and how they are made durable."""

    path: str = text("./goqueue-data", (1, 4_096), "The data folder. Only one broker can use it at a time.")
    fsync_interval_ms: int = duration_ms(
        1_000, (10, 60_000), "How often topics with 'fsync: interval' are made durable."
    )
    checkpoint_interval_ms: int = duration_ms(
        10_000, (100, _HOUR_MS), "How often recovery points are written. A start after a crash scans everything newer."
    )
    index_interval_bytes: int = size_bytes(
        4_096, (256, 1 << 20), "How many bytes of log are between two entries of the time index."
    )
    max_open_files: int = count(900, (16, 1_000_000), "How many file descriptors all segments together may keep open.")
    lane_index_bytes: int = size_bytes(
        64 << 20,
        (1 << 20, 1 << 40),
        "How much memory the lane indexes of all segments may take; the least used are read again when needed.",
    )
    min_free_bytes: int = size_bytes(
        256 << 20, (0, 1 << 44), "Publishing is refused while the disk has less free space than this."
    )
    cleanup_interval_ms: int = duration_ms(30_000, (100, _HOUR_MS), "How often retention and compaction look for work.")
    compaction_min_dirty_ratio: float = ratio(
        0.5, (0.01, 1.0), "A partition is compacted when this share of its closed segments is not compacted yet."
    )
    compaction_max_keys: int = count(
        500_000, (1_000, 100_000_000), "How many keys one compaction pass holds in memory (about 150 bytes each)."
    )


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """The HTTP server and its limits."""

    host: str = text("127.0.0.1", (1, 255), "The address to listen on; loopback by default.")
    port: int = count(8080, (0, 65_535), "The port; 0 for a free one.")
    allowed_hosts: str = text(
        "",
        (0, 4_000),
        "Names of this broker in the Host header of requests, separated by commas; requests with other names are "
        "refused. localhost, addresses and http.host are always allowed; .example.com stands for all names below "
        "example.com, * for every name.",
    )
    max_body_bytes: int = size_bytes(
        24 << 20,
        (1 << 10, 1 << 30),
        "The largest request body. Parsing a body of the default size blocks the broker for about 40 ms.",
    )
    max_header_bytes: int = size_bytes(64 << 10, (1 << 10, 1 << 20), "The largest request line and headers together.")
    header_timeout_ms: int = duration_ms(
        10_000, (100, _HOUR_MS), "How long a client may take to send a request's headers."
    )
    body_timeout_ms: int = duration_ms(60_000, (100, _HOUR_MS), "How long a client may take to send a request's body.")
    write_timeout_ms: int = duration_ms(
        60_000, (100, _HOUR_MS), "How long a client may take to read any part of a response."
    )
    keep_alive_ms: int = duration_ms(75_000, (1_000, _HOUR_MS), "How long an idle connection is kept.")
    max_connections: int = count(
        4_096,
        (1, 1_000_000),
        "How many connections may be open; requests on further ones get 503, except for the health of the broker.",
    )
    max_concurrent_requests: int = count(
        512, (1, 100_000), "How many requests are served at once, without waiting reads; further ones get 503."
    )
    max_request_memory_bytes: int = size_bytes(
        256 << 20,
        (1 << 20, 1 << 40),
        "How many bytes of request bodies may be in memory at once; more requests get 503.",
    )
    max_unread_bytes: int = size_bytes(
        128 << 20,
        (1 << 20, 1 << 40),
        "How many bytes of responses may wait for slow clients; beyond that, requests get 503, and a client that reads "
        "nothing for 2 s is disconnected.",
    )
    max_waiting_reads: int = count(
        2_048, (1, 1_000_000), "How many reads may wait for messages at once; further ones get 503."
    )
    max_wait_ms: int = duration_ms(30_000, (0, 600_000), "The longest time that a read may wait for messages.")
    max_read_bytes: int = size_bytes(
        4 << 20,
        (1 << 10, 1 << 30),
        "The most bytes of frames that one read returns, unless a single message is larger.",
    )
    max_read_messages: int = count(10_000, (1, 1_000_000), "The most messages that one JSON read returns.")
    max_publish_messages: int = count(10_000, (1, 1_000_000), "The most messages in one JSON publish request.")
    shutdown_timeout_ms: int = duration_ms(15_000, (0, 600_000), "How long a stop waits for accepted requests.")


@dataclass(frozen=True, slots=True)
class GrpcConfig:
    """The gRPC server and its limits."""

    enabled: bool = flag(True, "Whether gRPC is served.")
    host: str = text("127.0.0.1", (1, 255), "The address to listen on; loopback by default.")
    port: int = count(9090, (0, 65_535), "The port; 0 for a free one.")
    advertised_address: str = text(
        "", (0, 255), "The address that clients are given to connect to, as host:port; empty for the one it listens on."
    )
    max_message_bytes: int = size_bytes(20 << 20, (2 << 20, 1 << 30), "The largest gRPC message in either direction.")
    max_connections: int = count(4_096, (1, 1_000_000), "How many connections may be open; more are closed at once.")
    max_concurrent_calls: int = count(
        2_048, (1, 1_000_000), "How many calls, including streams, are served at once; further ones are refused."
    )
    max_unread_bytes: int = size_bytes(
        128 << 20,
        (1 << 20, 1 << 40),
        "How many bytes of responses may wait for slow clients; beyond that, calls are refused. From half of it on, a "
        "client that reads nothing for 2 s (1 s more for each 16 MiB) is disconnected. Batches of streams have a limit "
        "of the same size; beyond that, streams get smaller batches, and larger messages wait.",
    )
    max_fetch_streams: int = count(
        1_024,
        (1, 1_000_000),
        "How many streams may fetch at once; further ones are refused. At most half of max_concurrent_calls.",
    )
    max_subscriptions: int = count(
        1_024,
        (1, 1_000_000),
        "How many members may subscribe at once; further ones are refused. At most half of max_concurrent_calls.",
    )
    max_in_flight_batches: int = count(
        64,
        (1, 10_000),
        "How many batches of one publish stream may wait for acknowledgement; then it is not read further.",
    )
    max_batch_bytes: int = size_bytes(
        1 << 20, (1 << 10, 1 << 30), "The most bytes of frames in one fetched batch, unless a single message is larger."
    )
    keep_alive_ms: int = duration_ms(60_000, (1_000, _HOUR_MS), "How often an idle connection is probed.")
    keep_alive_timeout_ms: int = duration_ms(
        20_000, (100, _HOUR_MS), "How long a probe may take before the connection is closed."
    )
    min_ping_interval_ms: int = duration_ms(
        10_000, (100, _HOUR_MS), "A client that pings more often than this is disconnected."
    )
    max_call_ms: int = duration_ms(
        60_000, (100, _HOUR_MS), "The longest time that a call other than a stream may take."
    )
    reflection: bool = flag(False, "Whether the API can be explored by tools such as grpcurl.")


@dataclass(frozen=True, slots=True)
class NativeConfig:
    """The server of the native protocol and its limits."""

    enabled: bool = flag(False, "Whether the native protocol is served.")
    host: str = text("127.0.0.1", (1, 255), "The address to listen on; loopback by default.")
    port: int = count(9191, (0, 65_535), "The port; 0 for a free one.")
    advertised_address: str = text(
        "", (0, 255), "The address that clients are given to connect to, as host:port; empty for the one it listens on."
    )
    max_message_bytes: int = size_bytes(20 << 20, (2 << 20, 1 << 30), "The largest message in either direction.")
    max_connections: int = count(4_096, (1, 1_000_000), "How many connections may be open; more are closed at once.")
    max_requests: int = count(
        256,
        (1, 100_000),
        "How many requests of one connection may wait for their answers; then it is not read further.",
    )
    max_streams: int = count(1_024, (1, 1_000_000), "How many streams may be open at once; further ones are refused.")
    max_batch_bytes: int = size_bytes(
        1 << 20, (1 << 10, 1 << 30), "The most bytes of frames in one batch of a stream, unless a message is larger."
    )
    max_unread_bytes: int = size_bytes(
        128 << 20,
        (1 << 20, 1 << 40),
        "How many bytes of answers may wait for slow clients; beyond that, calls are refused.",
    )
    max_call_ms: int = duration_ms(
        60_000, (100, _HOUR_MS), "The longest time that a call other than a stream may take."
    )
    hello_timeout_ms: int = duration_ms(
        10_000, (100, _HOUR_MS), "A client that has not greeted by then is disconnected."
    )
    idle_timeout_ms: int = duration_ms(
        120_000, (1_000, _HOUR_MS), "A client that sends nothing for so long, not even a ping, is disconnected."
    )


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    """Limits on what a broker holds."""

    max_topics: int = count(10_000, (1, 1_000_000), "How many topics there may be.")
    max_total_partitions: int = count(20_000, (1, 1_000_000), "How many partitions all topics together may have.")
    max_groups: int = count(10_000, (1, 1_000_000), "How many groups there may be.")
    max_group_members: int = count(1_000, (1, 100_000), "How many members a group may have.")
    max_group_partitions: int = count(10_000, (1, 1_000_000), "How many partitions a group may subscribe to.")
    max_poll_messages: int = count(1_000, (1, 100_000), "The most messages that one poll returns.")
    max_outstanding: int = count(
        100_000,
        (1, 10_000_000),
        "How many messages of one partition a group may have in flight, waiting for a retry or being dead-lettered; "
        "beyond that, no new ones are delivered.",
    )
    max_delayed: int = count(
        10_000_000,
        (0, 1_000_000_000),
        "How many delayed messages may wait in all topics. Each takes about 50 bytes of memory.",
    )
    max_parked: int = count(
        10_000, (1, 1_000_000), "Under 'ordering: key', how many messages of one partition may wait for their key."
    )
    max_producers_per_partition: int = count(
        10_000,
        (10, 1_000_000),
        "How many idempotent producers a partition remembers; beyond that, the one idle longest is forgotten.",
    )
    max_dedup_ids: int = count(
        500_000,
        (0, 100_000_000),
        "How many dedup ids of all topics are remembered; beyond that, messages with a dedup id are refused. Each "
        "takes about 200 bytes of memory.",
    )


@dataclass(frozen=True, slots=True)
class SchemasConfig:
    """The schema registry."""

    max_schemas: int = count(
        100_000,
        (1, 10_000_000),
        "How many schemas, how many subjects, and how many subjects with their own settings there may be.",
    )
    max_bytes: int = size_bytes(
        1 << 30, (1 << 20, 1 << 40), "How many bytes all schemas may have together, including permanently deleted ones."
    )
    max_versions: int = count(1_000, (1, 100_000), "How many versions a subject may have, including deleted ones.")
    parsed_bytes: int = size_bytes(
        8 << 20,
        (0, 1 << 30),
        "How many bytes of schema text are kept in parsed form; other schemas are parsed again when needed. A parsed "
        "schema takes up to 50 times the memory of its text.",
    )


@dataclass(frozen=True, slots=True)
class TransactionsConfig:
    """Transactions, and idempotent producers."""

    timeout_ms: int = duration_ms(
        60_000,
        (1_000, _HOUR_MS),
        "An open transaction is aborted after this time, unless its producer has set another timeout.",
    )
    max_timeout_ms: int = duration_ms(900_000, (1_000, 24 * _HOUR_MS), "The longest timeout that a producer may set.")
    prepared_timeout_ms: int = duration_ms(
        _HOUR_MS, (1_000, 7 * 24 * _HOUR_MS), "A prepared transaction that is not committed is aborted after this time."
    )
    max_open: int = count(10_000, (1, 1_000_000), "How many transactions may be open or prepared at once.")
    max_producers: int = count(100_000, (1, 10_000_000), "How many transactional ids may be in use.")
    producer_expiry_ms: int = duration_ms(
        24 * _HOUR_MS,
        (60_000, 365 * 24 * _HOUR_MS),
        "A producer that sends nothing for this long is forgotten: a retry of its last batch would be stored again.",
    )
    id_expiry_ms: int = duration_ms(
        7 * 24 * _HOUR_MS,
        (60_000, 3_650 * 24 * _HOUR_MS),
        "A transactional id that is not used for this long is forgotten.",
    )
    key_retention_ms: int = duration_ms(
        7 * 24 * _HOUR_MS,
        (60_000, 3_650 * 24 * _HOUR_MS),
        "How long the commit under an application key is remembered. The last key of a series (keys that end in # and "
        "a number) does not expire.",
    )
    max_keys: int = count(
        100_000,
        (1, 10_000_000),
        "How many application keys are remembered; beyond that, the oldest is forgotten. A key with many transactions "
        "counts once for every ten of them.",
    )


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The broker's own log lines, on standard error."""

    format: str = choice("console", ("console", "json"), "The format of a line: for people or for machines.")
    level: str = choice("info", ("debug", "info", "warning", "error"), "The least serious line that is written.")


@dataclass(frozen=True, slots=True)
class TraceConfig:
    """Which events of messages are recorded, and where they are exported."""

    sampling: float = ratio(1.0, (0.0, 1.0), "The share of messages that are traced; 0 turns tracing off.")
    memory_events: int = count(
        10_000,
        (100, 1_000_000),
        "How many events are kept in memory. An event that happens to many messages at once counts once.",
    )
    exporters: str = text(
        "file", (0, 100), "Where events and spans go, separated by commas: file, stdout, otlp, jaeger; empty for none."
    )
    file_bytes: int = size_bytes(64 << 20, (64 << 10, 1 << 30), "The size at which a new trace file is started.")
    retention_bytes: int = size_bytes(
        1 << 30, (1 << 20, 1 << 44), "How much disk space trace files may take; the oldest is deleted first."
    )
    retention_ms: int = duration_ms(
        7 * 24 * _HOUR_MS, (60_000, 3_650 * 24 * _HOUR_MS), "How long a trace file is kept."
    )
    search_bytes: int = size_bytes(
        1 << 30,
        (1 << 20, 1 << 44),
        "How much of trace files and messages one search reads. It reports what it has left out.",
    )
    export_per_second: int = count(
        1_000, (1, 50_000), "How many spans per second are exported to tracing systems; more are dropped and counted."
    )
    otlp_endpoint: str = text(
        "http://127.0.0.1:4317",
        (1, 2_000),
        "The address of the OpenTelemetry collector; port 4317 is usual for gRPC, 4318 for HTTP.",
    )
    otlp_protocol: str = choice("grpc", ("grpc", "http"), "The protocol of the collector.")
    otlp_headers: str = text(
        "", (0, 4_000), "Headers for the collector, such as a token: name=value, separated by commas.", secret=True
    )
    jaeger_host: str = text("127.0.0.1", (1, 255), "The host of the Jaeger agent.")
    jaeger_port: int = count(6_831, (1, 65_535), "The UDP port of the agent for compact Thrift.")


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """Limits of ``/metrics``."""

    max_topics: int = count(
        1_000, (1, 100_000), "How many topics have their own series; the others are counted together as '__other'."
    )
    max_groups: int = count(
        1_000, (1, 100_000), "How many groups have their own series; the others are counted together as '__other'."
    )
    max_partitions: int = count(
        5_000,
        (1, 1_000_000),
        "How many partitions, and lags of groups in partitions, have their own series; beyond that, only topics have.",
    )


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that can be configured. ``topic`` and ``group`` have the defaults of topics and groups."""

    storage: StorageConfig = field(default_factory=StorageConfig)
    topic: TopicSettings = field(default_factory=TopicSettings)
    group: GroupSettings = field(default_factory=GroupSettings)
    http: HttpConfig = field(default_factory=HttpConfig)
    grpc: GrpcConfig = field(default_factory=GrpcConfig)
    native: NativeConfig = field(default_factory=NativeConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    log: LogConfig = field(default_factory=LogConfig)
    schemas: SchemasConfig = field(default_factory=SchemasConfig)
    transactions: TransactionsConfig = field(default_factory=TransactionsConfig)
    trace: TraceConfig = field(default_factory=TraceConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
