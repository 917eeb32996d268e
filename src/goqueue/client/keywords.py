"""Types of the client's keyword arguments, for completion in editors and for type checkers.

Meaning, defaults and bounds are declared where the options are parsed: in ``ClientConfig``, ``ProducerConfig``,
``ConsumerConfig``, and in the settings of topics and groups. A test keeps both in step.
"""

from __future__ import annotations

from typing import Literal, TypedDict

from goqueue.client.consumer.rebalance import OnPartitions
from goqueue.client.messages.serializers import Deserializer
from goqueue.model.group_settings import GroupKind, GroupMode, Ordering, StartAt
from goqueue.model.topic_settings import Cleanup, Expired, FsyncPolicy, SchemaFraming, SchemaValidation

Milliseconds = float | str
"""A number of milliseconds, or a text with a unit: ``"7d"``, ``"1h30m"``."""
Size = float | str
"""A number of bytes, or a text with a unit: ``"64MiB"``."""


class ClientOptions(TypedDict, total=False):
    """Options of a client; see ``ClientConfig``."""

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
    """Options of ``producer``; see ``ProducerConfig``."""

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
    """Numeric settings of a group. ``None``: unlimited, or the topic's value."""

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
    """Options of ``consumer``: those of ``ConsumerConfig``, and settings of the group."""

    prefetch_batches: int
    max_lease_ms: Milliseconds
    auto_commit: bool
    settle_timeout_ms: Milliseconds
    close_timeout_ms: Milliseconds
    client_id: str


class GroupOptions(GroupTuning, total=False):
    """All settings of a group."""

    kind: GroupKind
    mode: GroupMode
    ordering: Ordering
    start: StartAt


class WorkerOptions(ConsumerOptions, total=False):
    """Options of ``worker``: everything that ``consumer`` takes."""

    kind: GroupKind | None
    mode: GroupMode | None
    ordering: Ordering | None
    start: StartAt | None
    instance_id: str
    deserializer: Deserializer | None
    on_assigned: OnPartitions | None
    on_revoked: OnPartitions | None


class TopicTuning(TypedDict, total=False):
    """Settings of a topic that can be changed while it is in use. ``None``: unlimited."""

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
    """All settings of a topic."""

    partitions: int
