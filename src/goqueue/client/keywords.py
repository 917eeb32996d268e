"""The keywords of a client's methods, with their types, so that editors complete them and type checkers see slips.

What they mean, their defaults and their bounds are declared where they are parsed: in ``ClientConfig``,
``ProducerConfig``, ``ConsumerConfig``, and in the settings of topics and groups. A test holds both together.
"""

from __future__ import annotations

from typing import Literal, TypedDict

from goqueue.client.consumer.rebalance import OnPartitions
from goqueue.client.messages.serializers import Deserializer
from goqueue.model.group_settings import GroupKind, GroupMode, Ordering, StartAt
from goqueue.model.settings import Cleanup, Expired, FsyncPolicy, SchemaFraming, SchemaValidation

Milliseconds = float | str
"""A number of milliseconds, or a text with its unit: ``"7d"``, ``"1h30m"``."""
Size = float | str
"""A number of bytes, or a text with its unit: ``"64MiB"``."""


class ClientOptions(TypedDict, total=False):
    """Of a client, as in ``ClientConfig``."""

    connect_timeout_ms: Milliseconds
    request_timeout_ms: Milliseconds
    retry_backoff_ms: Milliseconds
    max_backoff_ms: Milliseconds
    max_message_bytes: Size
    keep_alive_ms: Milliseconds
    metadata_max_age_ms: Milliseconds
    exit_timeout_ms: Milliseconds
    prefetch_batches: int


class ProducerOptions(TypedDict, total=False):
    """Of ``producer``, as in ``ProducerConfig``."""

    batch_messages: int
    batch_bytes: Size
    linger_ms: Milliseconds
    buffer_bytes: Size
    block: bool
    acks: Literal["none", "leader", "all"]
    delivery_timeout_ms: Milliseconds
    inject_trace_context: bool
    idempotent: bool


class GroupTuning(TypedDict, total=False):
    """The settings of a group that are numbers; ``None``: unlimited, or as the topic says."""

    max_in_flight: int
    visibility_timeout_ms: Milliseconds | None
    max_retries: int | None
    retry_backoff_ms: Milliseconds | None
    max_retry_backoff_ms: Milliseconds | None
    session_timeout_ms: Milliseconds
    handover_timeout_ms: Milliseconds
    auto_commit_ms: Milliseconds
    idle_expiry_ms: Milliseconds | None


class ConsumerOptions(GroupTuning, total=False):
    """Of ``consumer``: those in ``ConsumerConfig``, and settings of its group."""

    prefetch_batches: int
    max_lease_ms: Milliseconds
    auto_commit: bool
    settle_timeout_ms: Milliseconds
    close_timeout_ms: Milliseconds
    client_id: str


class GroupOptions(GroupTuning, total=False):
    """Every setting of a group."""

    kind: GroupKind
    mode: GroupMode
    ordering: Ordering
    start: StartAt


class WorkerOptions(ConsumerOptions, total=False):
    """Of ``worker``: whatever ``consumer`` takes."""

    kind: GroupKind | None
    mode: GroupMode | None
    ordering: Ordering | None
    start: StartAt | None
    instance_id: str
    deserializer: Deserializer | None
    on_assigned: OnPartitions | None
    on_revoked: OnPartitions | None


class TopicTuning(TypedDict, total=False):
    """The settings of a topic that can be changed while it is in use; ``None`` is unlimited."""

    retention_ms: Milliseconds | None
    retention_bytes: Size | None
    segment_bytes: Size
    cleanup: Cleanup
    tombstone_retention_ms: Milliseconds
    fsync: FsyncPolicy
    max_message_bytes: Size
    max_timestamp_ahead_ms: Milliseconds
    dedup_window_ms: Milliseconds
    visibility_timeout_ms: Milliseconds
    max_retries: int
    retry_backoff_ms: Milliseconds
    max_retry_backoff_ms: Milliseconds
    dead_letter_topic: str
    schema_validation: SchemaValidation
    schema_subject: str
    schema_framing: SchemaFraming
    message_ttl_ms: Milliseconds | None
    expired_messages: Expired
    critical_weight: int
    high_weight: int
    normal_weight: int
    low_weight: int
    background_weight: int
    lane_starvation_ms: Milliseconds


class TopicOptions(TopicTuning, total=False):
    """Every setting of a topic."""

    partitions: int
