"""The structures of the HTTP contract, as typed clients declare them.

A field of another type is refused, as a Go struct refuses it; fields that were added are passed over. What the earlier
server always sends has no default here.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import httpx
import msgspec
from msgspec import Struct

T = TypeVar("T")
Instant = str
Duration = str


def decoded(answer: httpx.Response, kind: type[T], status: int = 200) -> T:
    assert answer.status_code == status, answer.text
    return msgspec.json.decode(answer.content, type=kind, strict=True)


class ErrorResponse(Struct):
    error: str


class HealthResponse(Struct):
    status: Literal["ok", "degraded", "fail"]
    timestamp: Instant


class LivenessResponse(Struct):
    status: Literal["pass", "fail"]
    timestamp: Instant
    uptime: Duration
    message: str


class HealthCheckResult(Struct):
    status: Literal["pass", "warn", "fail"]
    message: str
    latency: Duration


class BrokerOfReadiness(Struct):
    node_id: str
    topic_count: int
    total_size: int


class ReadinessResponse(Struct):
    status: Literal["pass", "fail"]
    timestamp: Instant
    uptime: Duration
    message: str
    checks: dict[str, HealthCheckResult]
    broker: BrokerOfReadiness


class VersionResponse(Struct):
    version: str
    git_commit: str
    build_time: str
    go_version: str


class StatsResponse(Struct):
    node_id: str
    uptime: Duration
    topics: int
    total_size_bytes: int
    topic_stats: dict[str, Any]


class TopicListResponse(Struct):
    topics: list[str]


class CreateTopicResponse(Struct):
    name: str
    partitions: int
    created: bool


class PartitionOffsets(Struct):
    earliest: int
    latest: int


class TopicDetails(Struct):
    name: str
    partitions: int
    total_messages: int
    total_size_bytes: int
    partition_offsets: dict[str, PartitionOffsets]


class DeleteTopicResponse(Struct):
    deleted: bool
    name: str


class PublishResult(Struct):
    partition: int
    offset: int
    priority: str
    delayed: bool
    deliverAt: Instant = ""  # noqa: N815
    error: str = ""


class PublishResponse(Struct):
    results: list[PublishResult]


class ConsumeMessage(Struct):
    offset: int
    timestamp: Instant
    value: str
    priority: str
    key: str = ""


class ConsumeResponse(Struct):
    messages: list[ConsumeMessage]
    next_offset: int


class DelayedMessage(Struct):
    topic: str
    partition: int
    offset: int
    deliver_at: Instant
    priority: str


class DelayedMessagesResponse(Struct):
    messages: list[DelayedMessage]
    count: int


class CancelledResponse(Struct):
    cancelled: bool


class GroupListResponse(Struct):
    groups: list[str]


class GroupMember(Struct):
    member_id: str
    client_id: str
    assigned_partitions: list[str]


class GroupDetails(Struct):
    group_id: str
    state: Literal["stable", "rebalancing", "dead"]
    members: list[GroupMember]
    generation: int
    protocol: str


class JoinGroupResponse(Struct):
    member_id: str
    generation: int
    leader_id: str
    partitions: list[int]
    members: list[str]
    assigned_partitions: list[str]
    rebalance_required: bool


class JoinAsInGo(JoinGroupResponse):
    leader: str = ""


class JoinAsInPython(JoinGroupResponse):
    leader: bool = False


class HeartbeatResponse(Struct):
    rebalance_required: bool
    state: str


class LeaveGroupResponse(Struct):
    left: bool


class PollMessage(Struct):
    topic: str
    partition: int
    offset: int
    value: str
    timestamp: Instant
    receipt_handle: str
    key: str = ""


class PollResponse(Struct):
    messages: list[PollMessage]


class OffsetsResponse(Struct):
    offsets: dict[str, dict[str, int]]


class CommittedResponse(Struct):
    committed: bool


class AckResponse(Struct):
    acknowledged: bool


class NackResponse(Struct):
    requeued: bool


class RejectResponse(Struct):
    rejected: bool
    dlq_topic: str


class ExtendResponse(Struct):
    extended: bool
    new_deadline: Instant


class ReliabilityStats(Struct):
    acks_total: int
    nacks_total: int
    rejects_total: int
    dlq_messages: int
    visibility_extensions: int


class PriorityStats(Struct):
    messages_by_priority: dict[str, int]
    avg_wait_time_by_priority: dict[str, Duration]


class DelayStats(Struct):
    pending_count: int
    delivered_count: int
    cancelled_count: int
    avg_delay: Duration


class RegisterSchemaResponse(Struct):
    id: int


class SchemaVersion(Struct):
    subject: str
    version: int
    id: int
    schema: str


class Schema(Struct):
    schema: str


class CompatibilityConfig(Struct):
    compatibilityLevel: str  # noqa: N815


class SchemaStats(Struct):
    subjects: int
    schemas: int
    versions: int


class InitProducerResponse(Struct):
    producer_id: int
    epoch: int


class SuccessResponse(Struct):
    success: bool


class BeginTransactionResponse(Struct):
    transaction_id: str


class TransactionalPublishResponse(Struct):
    partition: int
    offset: int


class EndTransactionResponse(Struct):
    status: Literal["committed", "aborted"]


class TransactionInfo(Struct):
    transaction_id: str
    producer_id: int
    state: Literal["ongoing", "preparing_commit", "preparing_abort", "completed_commit", "completed_abort"]
    started_at: Instant


class TransactionListResponse(Struct):
    transactions: list[TransactionInfo]


class TransactionStats(Struct):
    active_transactions: int
    committed_total: int
    aborted_total: int
    avg_duration: Duration


class TraceEvent(Struct):
    timestamp: Instant
    event_type: str
    details: str


class Trace(Struct):
    trace_id: str
    topic: str
    partition: int
    offset: int
    status: Literal["completed", "error", "pending"]
    events: list[TraceEvent]


class TraceListResponse(Struct):
    traces: list[Trace]


class TracerStats(Struct):
    traces_total: int
    traces_completed: int
    traces_error: int
    avg_latency: Duration
