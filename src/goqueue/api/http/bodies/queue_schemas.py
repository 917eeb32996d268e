"""The bodies of requests and responses about messages that were polled, and about dead letters."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from goqueue.api.http.bodies.fields import CodeField, ErrorField, ReceiptField, RetriableField
from goqueue.api.http.bodies.message_schemas import ConsumeMessage, Request
from goqueue.broker.operations.limits import (
    MAX_NAMED_LETTERS,
    MAX_REASON_LENGTH,
    MAX_REDRIVE_RATE,
    MAX_REDRIVEN,
    MAX_SETTLED_AT_ONCE,
)

MAX_OFFSET = (1 << 63) - 1
ReasonField = Annotated[str, Meta(max_length=MAX_REASON_LENGTH, description="What went wrong; dead letters tell it.")]
DeadLetterTopicField = Annotated[
    str, Meta(description="Where it goes; left out of a dead letter, which stays where it lies.")
]
LetterPartitionField = Annotated[int, Meta(description="The partition of the dead-letter topic.")]
LetterOffsetField = Annotated[int, Meta(description="The offset in the dead-letter topic.")]


class SettleRequest(Request, kw_only=True):
    """Says exactly one of the two."""

    receipt_handle: ReceiptField | None = None
    receipt_handles: (
        Annotated[
            list[str],
            Meta(min_length=1, max_length=MAX_SETTLED_AT_ONCE, description="Many at once; each has its own result."),
        ]
        | None
    ) = None


class AckRequest(SettleRequest, kw_only=True):
    """Done."""

    consumer_id: Annotated[str | None, Meta(description="Not looked at: the receipt says it all.")] = None


class NackRequest(SettleRequest, kw_only=True):
    """To be tried again."""

    delay: Annotated[str | None, Meta(description="After so long, at most 12h; left out, the topic's backoff.")] = None
    reason: ReasonField | None = None


class RejectRequest(SettleRequest, kw_only=True):
    """To the dead letters at once."""

    reason: ReasonField | None = None


class ExtendVisibilityRequest(SettleRequest, kw_only=True):
    """To be hidden from others for longer."""

    timeout: Annotated[str, Meta(description="For so long from now, such as 5m; at most 12h.")]


class SettleResult(Struct, omit_defaults=True):
    """What became of one receipt: ``ok``, or an error."""

    ok: Annotated[bool | UnsetType, Meta(description="True if it was done; left out if not.")] = UNSET
    dlq_topic: DeadLetterTopicField | UnsetType = UNSET
    error: ErrorField | UnsetType = UNSET
    code: CodeField | UnsetType = UNSET
    retriable: RetriableField | UnsetType = UNSET


Results = Annotated[
    list[SettleResult] | UnsetType, Meta(description="With receipt_handles: one for each of them, in order.")
]


class AckResponse(Struct, omit_defaults=True):
    """What was done is durable."""

    acknowledged: Annotated[bool, Meta(description="Whether all of them were acked.")]
    results: Results = UNSET


class NackResponse(Struct, omit_defaults=True):
    """As for ack."""

    requeued: Annotated[bool, Meta(description="Whether all of them are to be tried again.")]
    results: Results = UNSET


class RejectResponse(Struct, omit_defaults=True):
    """As for ack."""

    rejected: Annotated[bool, Meta(description="Whether all of them were rejected.")]
    dlq_topic: DeadLetterTopicField | UnsetType = UNSET
    results: Results = UNSET


class ExtendVisibilityResponse(Struct, omit_defaults=True):
    """As for ack."""

    extended: Annotated[bool, Meta(description="Whether all of them got more time.")]
    new_deadline: Annotated[str, Meta(description="Until then nobody else gets the message (RFC 3339).")]
    results: Results = UNSET


class ReliabilityStats(Struct):
    """Messages, counted since the broker started."""

    acks_total: Annotated[int, Meta(description="Were acked.")]
    nacks_total: Annotated[int, Meta(description="Were nacked.")]
    rejects_total: Annotated[int, Meta(description="Were rejected.")]
    dlq_messages: Annotated[int, Meta(description="Became dead letters, for whatever reason.")]
    visibility_extensions: Annotated[int, Meta(description="Got more time.")]
    redeliveries: Annotated[int, Meta(description="Were delivered again.")]
    visibility_timeouts: Annotated[int, Meta(description="Were not settled in time.")]
    redriven: Annotated[int, Meta(description="Dead letters that were sent back.")]
    expired: Annotated[int, Meta(description="Were too old for their time to live when a poll came to them.")]


class DeadLetterMessage(ConsumeMessage, kw_only=True):
    """A dead letter: ``partition``, ``offset`` and ``timestamp`` tell where and since when it is one."""

    topic: Annotated[str, Meta(description="The topic that it came from.")]
    origin_partition: Annotated[int, Meta(description="The partition that it came from.")]
    origin_offset: Annotated[int, Meta(description="The offset that it had there.")]
    origin_timestamp: Annotated[str, Meta(description="The timestamp that it had there (RFC 3339).")]
    group: Annotated[str, Meta(description="The group that could not use it; empty if it did not fit its schema.")]
    error: Annotated[str, Meta(description="Why it is one.")]
    deliveries: Annotated[int, Meta(description="How often it was delivered before.")]
    redriven: Annotated[bool, Meta(description="Whether it was sent back.")]


class LetterPlace(Struct):
    """Where a dead letter lies."""

    partition: LetterPartitionField
    offset: LetterOffsetField


class DeadLettersResponse(Struct, omit_defaults=True):
    """Dead letters of a topic."""

    dlq_topic: Annotated[str, Meta(description="The topic that they lie in.")]
    messages: Annotated[list[DeadLetterMessage], Meta(description="By partition and offset.")]
    next: Annotated[
        LetterPlace | UnsetType, Meta(description="Where to go on: from_partition, from_offset; left out at the end.")
    ] = UNSET


class NamedLetter(Request):
    """A dead letter by its place."""

    partition: LetterPartitionField
    offset: LetterOffsetField


class RedriveRequest(Request):
    """Which dead letters go back: those that nothing here excludes."""

    group: Annotated[str | None, Meta(description="Only those of this group.")] = None
    error: Annotated[str | None, Meta(description="Only those whose error has this text in it.")] = None
    since: Annotated[
        str | None, Meta(description="Only those that became one at this instant or later (RFC 3339).")
    ] = None
    until: Annotated[str | None, Meta(description="Only those that became one before this instant (RFC 3339).")] = None
    messages: (
        Annotated[list[NamedLetter], Meta(min_length=1, max_length=MAX_NAMED_LETTERS, description="Only these.")] | None
    ) = None
    limit: (
        Annotated[int, Meta(ge=1, description=f"The most to send back; {MAX_REDRIVEN:,} if left out, and at most.")]
        | None
    ) = None
    rate: (
        Annotated[
            float, Meta(gt=0, description=f"In messages per second, at most {MAX_REDRIVE_RATE:,}; for 5 s a call.")
        ]
        | None
    ) = None
    delay: Annotated[str | None, Meta(description="They wait so long in their topics, as delayed messages do.")] = None
    dry_run: Annotated[bool, Meta(description="Only tell what would be sent back.")] = False
    from_partition: Annotated[
        int, Meta(ge=0, le=MAX_OFFSET, description="Where to begin: next of the answer before.")
    ] = 0
    from_offset: Annotated[int, Meta(ge=0, le=MAX_OFFSET, description="Where to begin in that partition.")] = 0


class RedriveResponse(Struct):
    """What was sent back, or would be."""

    matched: Annotated[int, Meta(description="Dead letters that fit and can go back.")]
    redriven: Annotated[int, Meta(description="How many of them were sent back.")]
    already: Annotated[int, Meta(description="Fit as well, but were redriven before.")]
    unreachable: Annotated[
        int, Meta(description="Fit as well, but their topic or group is gone, or they do not fit the topic's schema.")
    ]
    by_topic: Annotated[dict[str, int], Meta(description="How many matched, by the topic that they came from.")]
    more: Annotated[bool, Meta(description="There are more that fit: call again from next.")]
    next: Annotated[LetterPlace | UnsetType, Meta(description="Where the next that fits lies.")] = UNSET
