"""The bodies of requests and responses about delayed messages."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from goqueue.api.http.bodies.fields import (
    CompressedField,
    DelayField,
    DeliverAtField,
    DueField,
    EncodingField,
    HeadersField,
    KeyField,
    NextPageField,
    PartitionField,
    PriorityNameField,
    TimestampField,
    TopicField,
)
from goqueue.api.http.bodies.message_schemas import Request


class DelayedMessage(Struct, omit_defaults=True, kw_only=True):
    """A message that waits. Of one that cannot be read only the place and the time are told."""

    topic: TopicField
    partition: PartitionField
    offset: Annotated[int, Meta(description="As its publish answered it; when it is due it gets another one.")]
    deliver_at: DueField
    timestamp: TimestampField | UnsetType = UNSET
    priority: PriorityNameField | UnsetType = UNSET
    size_bytes: Annotated[int | UnsetType, Meta(description="The size of its value as it is stored.")] = UNSET
    encoding: EncodingField | UnsetType = UNSET
    key: KeyField | UnsetType = UNSET
    headers: HeadersField | UnsetType = UNSET
    value: Annotated[
        str | UnsetType | None, Meta(description="What it says; null is a tombstone. Left out where many are listed.")
    ] = UNSET
    compressed: CompressedField = False


class DelayedMessagesResponse(Struct, omit_defaults=True):
    """What waits in a topic."""

    messages: Annotated[list[DelayedMessage], Meta(description="The next due first.")]
    count: Annotated[int, Meta(description="How many this page has.")]
    total: Annotated[int, Meta(description="How many wait in the whole topic.")]
    next: NextPageField | UnsetType = UNSET


class RescheduleRequest(Request):
    """Says exactly one of the two; a delay counts from now."""

    delay: DelayField | None = None
    deliverAt: DeliverAtField | None = None


class CancelDelayedResponse(Struct):
    """Nobody will ever see the message, not even after a crash."""

    cancelled: Annotated[bool, Meta(description="Always true; what does not wait is an error.")]


class DelayStats(Struct, omit_defaults=True):
    """Over all topics; all but ``pending_count`` and ``next_due`` since the broker started."""

    pending_count: Annotated[int, Meta(description="How many messages wait now.")]
    delivered_count: Annotated[int, Meta(description="Became visible at their time.")]
    cancelled_count: Annotated[int, Meta(description="Were taken back.")]
    rescheduled_count: Annotated[int, Meta(description="Got another time.")]
    lost_count: Annotated[int, Meta(description="Were damaged on the disk when due.")]
    avg_delay: Annotated[str, Meta(description="How long those that were delivered had waited, such as 1m30s.")]
    next_due: Annotated[
        str | UnsetType, Meta(description="When the next message is due (RFC 3339); left out if none waits.")
    ] = UNSET
