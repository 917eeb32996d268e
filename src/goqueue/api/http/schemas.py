"""The bodies of requests and responses, under the names that clients know.

Fields may be added; none is renamed or dropped. Unknown fields in a request are refused, so that a typing error is
noticed by the one who made it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from goqueue.wire.internal_headers import MAX_DEDUP_ID_BYTES

Encoding = Literal["text", "base64"]
HeaderValues = str | list[str]
"""One value, or several under the same name."""

# What the fields of a message mean, for the OpenAPI document.
PriorityField = Annotated[
    str | int, Meta(description="critical, high, normal, low, background, or 0 to 4.", examples=["high"])
]
DelayField = Annotated[str, Meta(description="Not to be seen for so long.", examples=["30s"])]
DeliverAtField = Annotated[
    str, Meta(description="Not to be seen before (RFC 3339).", examples=["2030-01-01T09:00:00Z"])
]

DedupIdField = Annotated[
    str,
    Meta(
        description=f"The application's own for what it sends, 1 to {MAX_DEDUP_ID_BYTES} bytes.", examples=["order-1"]
    ),
]


class ErrorResponse(Struct, omit_defaults=True):
    """What went wrong. ``code`` is stable; ``retriable`` tells whether the same request may succeed later.

    ``error_code`` and ``message`` are the same once more, as clients of schema registries know it.
    """

    error: str
    code: str
    retriable: bool
    error_code: int | UnsetType = UNSET
    message: str | UnsetType = UNSET


class Request(Struct, forbid_unknown_fields=True, gc=False):
    """A body that a client sends."""


class CreateTopicRequest(Request):
    """``settings`` are those of the configuration reference, section topic."""

    name: str
    num_partitions: int | None = None
    retention_hours: int | None = None
    settings: dict[str, Any] = {}


class CreateTopicResponse(Struct):
    """The topic exists and survives a crash."""

    name: str
    partitions: int
    created: bool


class ChangeTopicRequest(Request):
    """Settings to change; the others stay."""

    settings: dict[str, Any]


class TopicListResponse(Struct):
    """Names in alphabetical order."""

    topics: list[str]


class PartitionOffsets(Struct):
    """``latest`` is the offset that the next message gets; readers see what lies below ``last_stable_offset``.

    The two differ while a transaction is open that has written to the partition.
    """

    earliest: int
    latest: int
    last_stable_offset: int


class TopicDetails(Struct):
    """A topic, its settings in effect, and how much it holds."""

    name: str
    partitions: int
    total_messages: int
    total_size_bytes: int
    partition_offsets: dict[str, PartitionOffsets]
    id: str
    created_at: str
    settings: dict[str, Any]
    overrides: list[str]


class DeleteTopicResponse(Struct):
    """The topic is gone, and nothing of it comes back."""

    deleted: bool
    name: str


class PublishMessage(Request):
    """``encoding`` says how key, value and header values are written. A null value deletes the key when compacted.

    ``ttl``: how long groups may still get it, such as ``1h``, counted from its timestamp. ``delay`` or ``deliverAt``:
    nobody sees it before; a delay of zero, or a time that has passed, is now.

    ``dedup_id``: another message with the same id is not stored within the topic's ``dedup_window_ms``.
    """

    value: str | None
    key: str | None = None
    partition: int | None = None
    delay: DelayField | None = None
    deliverAt: DeliverAtField | None = None  # noqa: N815
    priority: PriorityField | None = None
    headers: dict[str, HeaderValues] | None = None
    encoding: Encoding = "text"
    timestamp: str | None = None
    ttl: str | None = None
    dedup_id: DedupIdField | None = None


class PublishRequest(Request):
    """Messages are stored in this order within each partition."""

    messages: Annotated[list[PublishMessage], Meta(min_length=1)]


class PublishResult(Struct, omit_defaults=True, gc=False):
    """Where a message is, or why it is not stored. One that is ``delayed`` gets another offset when it is due.

    ``duplicate``: it was stored before, there, under the same ``dedup_id``.
    """

    partition: int | UnsetType = UNSET
    offset: int | UnsetType = UNSET
    priority: str | UnsetType = UNSET
    delayed: bool | UnsetType = UNSET
    deliverAt: str | UnsetType = UNSET  # noqa: N815
    duplicate: bool | UnsetType = UNSET
    error: str | UnsetType = UNSET
    code: str | UnsetType = UNSET
    retriable: bool | UnsetType = UNSET


class PublishResponse(Struct, omit_defaults=True):
    """One result for each message, in order. If none could be stored, the first reason is repeated at the top."""

    results: list[PublishResult]
    error: str | UnsetType = UNSET
    code: str | UnsetType = UNSET
    retriable: bool | UnsetType = UNSET


class ConsumeMessage(Struct, omit_defaults=True, gc=False):
    """A message. ``encoding`` is ``base64`` when the bytes are not text, or when asked for."""

    partition: int
    offset: int
    timestamp: str
    value: str | None
    priority: str
    encoding: Encoding
    key: str | UnsetType = UNSET
    headers: dict[str, HeaderValues] | UnsetType = UNSET
    compressed: bool = False


class ConsumeResponse(Struct, omit_defaults=True):
    """Messages in offset order; go on at ``next_offset``. ``last_stable_offset``: where what is committed ends."""

    messages: list[ConsumeMessage]
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    damaged: list[int] | UnsetType = UNSET
    """Offsets that were left out because they fail their checksum."""


class ConsumeAllResponse(Struct, omit_defaults=True):
    """Messages of one or several partitions; go on at ``next_offsets`` of each.

    ``last_stable_offsets``: where what is committed ends.
    """

    messages: list[ConsumeMessage]
    next_offsets: dict[str, int]
    last_stable_offsets: dict[str, int]
    next_offset: int | UnsetType = UNSET
    last_stable_offset: int | UnsetType = UNSET
    damaged: dict[str, list[int]] | UnsetType = UNSET


class DuplicateFrame(Struct):
    """A message of a batch, by its place in it, and where the one is that was stored before it."""

    place: int
    partition: int
    offset: int


class FramesPublished(Struct, omit_defaults=True):
    """The batch is stored whole, at consecutive offsets, but for ``duplicates``: their dedup ids are known.

    If all of it was stored before, ``first_offset`` is -1.
    """

    partition: int
    first_offset: int
    count: int
    duplicates: list[DuplicateFrame] | UnsetType = UNSET


class HealthResponse(Struct):
    """``degraded``: some writing does not work, or something stored is damaged or gone; ``problems`` say what."""

    status: Literal["ok", "degraded", "fail"]
    timestamp: str
    problems: list[str]


class LivenessResponse(Struct):
    """Whether the process works at all."""

    status: Literal["pass", "fail"]
    timestamp: str
    uptime: str
    message: str


class HealthCheckResult(Struct):
    """One part of the broker."""

    status: Literal["pass", "warn", "fail"]
    message: str
    latency: str


class BrokerFacts(Struct):
    """What the broker holds."""

    node_id: str
    topic_count: int
    total_size: int


class ReadinessResponse(Struct, omit_defaults=True):
    """Whether the broker takes messages; ``verbose`` adds the parts."""

    status: Literal["pass", "fail"]
    timestamp: str
    uptime: str
    message: str
    checks: dict[str, HealthCheckResult] | UnsetType = UNSET
    broker: BrokerFacts | UnsetType = UNSET


class VersionResponse(Struct):
    """``git_commit``, ``build_time`` and ``go_version`` are kept for older clients."""

    version: str
    python_version: str
    git_commit: str = ""
    build_time: str = ""
    go_version: str = ""


class TopicStats(Struct):
    """How much a topic holds."""

    partitions: int
    messages: int
    size_bytes: int
    segments: int
    damaged_messages: int


class StatsResponse(Struct):
    """How much the broker holds, and how many fsync rounds it took."""

    node_id: str
    uptime: str
    topics: int
    total_size_bytes: int
    topic_stats: dict[str, TopicStats]
    fsync_rounds: int
    disk_free_bytes: int
