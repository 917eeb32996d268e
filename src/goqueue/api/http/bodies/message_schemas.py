"""The bodies of requests and responses that carry messages, under the names that clients know; and of errors.

Fields may be added; none is renamed or dropped. Unknown fields in a request are refused, so that a typing error is
noticed by the one who made it.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from goqueue.api.http.bodies.fields import (
    CodeField,
    CompressedField,
    DedupIdField,
    DelayField,
    DeliverAtField,
    DueField,
    Encoding,
    EncodingField,
    ErrorField,
    HeadersField,
    HeaderValues,
    KeyField,
    NextOffsetField,
    OffsetField,
    OffsetsByPartition,
    PartitionField,
    PriorityField,
    PriorityNameField,
    RetriableField,
    StableField,
    TimestampField,
    ValueField,
)


class ErrorResponse(Struct, omit_defaults=True):
    """What went wrong; once more as clients of schema registries know it, where they ask."""

    error: ErrorField
    code: CodeField
    retriable: RetriableField
    error_code: Annotated[
        int | UnsetType, Meta(description="The error's number in registries, or the status; for their clients.")
    ] = UNSET
    message: Annotated[str | UnsetType, Meta(description="The same as error; for clients of registries.")] = UNSET


class Request(Struct, forbid_unknown_fields=True, gc=False):
    """A body that a client sends."""


class PublishMessage(Request):
    """A message to be stored; it says at most one of ``delay`` and ``deliverAt``."""

    value: Annotated[
        str | None,
        Meta(description="What the message says; null is a tombstone, which deletes its key when compacted."),
    ]
    key: Annotated[str | None, Meta(description="Decides the partition, if none is given; at most 65,535 bytes.")] = (
        None
    )
    partition: Annotated[
        int | None, Meta(description="Where to store it; left out, the key decides, or the partitions take turns.")
    ] = None
    delay: DelayField | None = None
    deliverAt: DeliverAtField | None = None
    priority: PriorityField | None = None
    headers: Annotated[
        dict[str, HeaderValues] | None,
        Meta(description="Values by name, or a list of them; at most 65,535 bytes in all. goqueue-… are the broker's."),
    ] = None
    encoding: Annotated[
        Encoding, Meta(description="How key, value and header values are written here: text is UTF-8.")
    ] = "text"
    timestamp: Annotated[
        str | None,
        Meta(
            description="The producer's (RFC 3339), at most the topic's max_timestamp_ahead_ms ahead; now if left out."
        ),
    ] = None
    ttl: Annotated[
        str | None, Meta(description="How long after its timestamp groups may still get it, such as 1h; at most 3650d.")
    ] = None
    dedup_id: DedupIdField | None = None


class PublishRequest(Request):
    """Messages are stored in this order within each partition."""

    messages: Annotated[
        list[PublishMessage],
        Meta(min_length=1, description="In the order in which they are stored; at most http.max_publish_messages."),
    ]


class PublishResult(Struct, omit_defaults=True, gc=False):
    """Where a message is, or why it is not stored."""

    partition: PartitionField | UnsetType = UNSET
    offset: Annotated[
        int | UnsetType,
        Meta(description="The message's place in its partition; one that is delayed gets another when due."),
    ] = UNSET
    priority: PriorityNameField | UnsetType = UNSET
    delayed: Annotated[bool | UnsetType, Meta(description="Whether it waits for its time.")] = UNSET
    deliverAt: DueField | UnsetType = UNSET
    duplicate: Annotated[
        bool | UnsetType, Meta(description="It was stored before, there, under the same dedup_id.")
    ] = UNSET
    error: ErrorField | UnsetType = UNSET
    code: CodeField | UnsetType = UNSET
    retriable: RetriableField | UnsetType = UNSET


class PublishResponse(Struct, omit_defaults=True):
    """If no message could be stored, the first reason is repeated at the top."""

    results: Annotated[list[PublishResult], Meta(description="One for each message, in order.")]
    error: Annotated[str | UnsetType, Meta(description="What is wrong with the first, if none could be stored.")] = (
        UNSET
    )
    code: CodeField | UnsetType = UNSET
    retriable: RetriableField | UnsetType = UNSET


class ConsumeMessage(Struct, omit_defaults=True, gc=False):
    """A message as it lies in the log."""

    partition: PartitionField
    offset: OffsetField
    timestamp: TimestampField
    value: ValueField
    priority: PriorityNameField
    encoding: EncodingField
    key: KeyField | UnsetType = UNSET
    headers: HeadersField | UnsetType = UNSET
    compressed: CompressedField = False


class ConsumeResponse(Struct, omit_defaults=True):
    """Messages of one partition."""

    messages: Annotated[list[ConsumeMessage], Meta(description="In offset order.")]
    next_offset: NextOffsetField
    high_watermark: Annotated[int, Meta(description="Where what is durable ends.")]
    last_stable_offset: StableField
    damaged: Annotated[
        list[int] | UnsetType, Meta(description="Offsets that were left out because they fail their checksum.")
    ] = UNSET


class ConsumeAllResponse(Struct, omit_defaults=True):
    """Messages of one or several partitions."""

    messages: Annotated[list[ConsumeMessage], Meta(description="Partition by partition, each in offset order.")]
    next_offsets: Annotated[OffsetsByPartition, Meta(description="By partition: the offset to go on at.")]
    last_stable_offsets: Annotated[OffsetsByPartition, Meta(description="By partition: where what is committed ends.")]
    next_offset: Annotated[
        int | UnsetType, Meta(description="The offset to go on at, if one partition was asked for.")
    ] = UNSET
    last_stable_offset: Annotated[
        int | UnsetType, Meta(description="Where what is committed ends, if one partition was asked for.")
    ] = UNSET
    damaged: Annotated[
        dict[str, list[int]] | UnsetType,
        Meta(description="By partition: offsets that were left out because they fail their checksum."),
    ] = UNSET


class DuplicateFrame(Struct):
    """A message of a batch, and where the one is that was stored before it."""

    place: Annotated[int, Meta(description="The message's place in the batch, counted from 0.")]
    partition: Annotated[int, Meta(description="The partition of the one that was stored before.")]
    offset: Annotated[int, Meta(description="The offset of the one that was stored before.")]


class FramesPublished(Struct, omit_defaults=True):
    """The batch is stored whole, at consecutive offsets, but for duplicates."""

    partition: PartitionField
    first_offset: Annotated[int, Meta(description="Where the batch begins; -1 if all of it was stored before.")]
    count: Annotated[int, Meta(description="How many messages the batch has.")]
    duplicates: Annotated[
        list[DuplicateFrame] | UnsetType, Meta(description="Messages that were not stored: their dedup ids are known.")
    ] = UNSET
