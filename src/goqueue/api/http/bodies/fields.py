"""Fields of several bodies, parameters of several paths, and what they mean: the OpenAPI document tells it of each."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from goqueue.wire.internal_headers import MAX_DEDUP_ID_BYTES

Encoding = Literal["text", "base64"]
GroupStateName = Literal["stable", "rebalancing", "dead"]
HeaderValues = str | list[str]
"""One value, or several under the same name."""
OffsetsByPartition = dict[str, int]
OffsetsByTopic = dict[str, OffsetsByPartition]

# Where something is

TopicField = Annotated[str, Meta(description="The topic's name.")]
GroupField = Annotated[str, Meta(description="The group's name.")]
PartitionField = Annotated[int, Meta(description="The partition's number, counted from 0.")]
OffsetField = Annotated[int, Meta(description="The message's place in its partition.")]
NextOffsetField = Annotated[int, Meta(description="The offset to go on at.")]
StableField = Annotated[
    int, Meta(description="Where what is committed ends; read_committed shows nothing from there on.")
]
NextPageField = Annotated[str, Meta(description="To be given as after for the next page; left out on the last one.")]

# What a message has

PriorityField = Annotated[
    str | int, Meta(description="critical, high, normal, low, background, or 0 to 4.", examples=["high"])
]
PriorityNameField = Annotated[str, Meta(description="critical, high, normal, low or background.")]
DelayField = Annotated[
    str, Meta(description="Not to be seen for so long; zero is now, the year 2200 the latest.", examples=["30s"])
]
DeliverAtField = Annotated[
    str,
    Meta(
        description="Not to be seen before (RFC 3339, until 2200); what has passed is now.",
        examples=["2030-01-01T09:00:00Z"],
    ),
]
DueField = Annotated[str, Meta(description="When it is due (RFC 3339).")]
DedupIdField = Annotated[
    str,
    Meta(
        description=f"The application's own for what it sends, 1 to {MAX_DEDUP_ID_BYTES} bytes. Another message with "
        "the same id is not stored within the topic's dedup_window_ms.",
        examples=["order-1"],
    ),
]
TimestampField = Annotated[str, Meta(description="The message's timestamp (RFC 3339).")]
KeyField = Annotated[str, Meta(description="The message's key; left out if it has none.")]
ValueField = Annotated[str | None, Meta(description="What the message says; null is a tombstone.")]
HeadersField = Annotated[
    dict[str, HeaderValues], Meta(description="Values by name: a list where a name has several; left out if none.")
]
EncodingField = Annotated[
    Encoding,
    Meta(description="How key, value and header values are written: base64 if they are not text, or if asked for."),
]
CompressedField = Annotated[
    bool, Meta(description="The value is still packed (zstd): the answer had no room for it, or it cannot be unpacked.")
]
ReceiptField = Annotated[str, Meta(description="As the poll answered it: receipt_handle of a message.")]
DeliveriesField = Annotated[int, Meta(description="How often the group was given it.")]

# Who works for a group

MemberIdField = Annotated[str, Meta(description="The member, as the join answered it.")]
AssignedField = Annotated[list[str], Meta(description="Partitions that the member gets messages of, such as orders-0.")]
RevokingField = Annotated[
    list[str], Meta(description="Partitions that go to others when what the member has of them is settled.")
]
SettingsField = Annotated[dict[str, Any], Meta(description="All settings in effect, by name.")]
OverridesField = Annotated[list[str], Meta(description="Names of the settings that are its own, not the defaults.")]

# Errors

ErrorField = Annotated[str, Meta(description="What is wrong, for people.")]
CodeField = Annotated[str, Meta(description="What is wrong, as a stable name: see docs/errors.md.")]
RetriableField = Annotated[bool, Meta(description="Whether the same request may succeed later.")]

# Parameters

TopicPath = TopicField
PartitionPath = PartitionField
GroupPath = GroupField
DelayedOffsetPath = Annotated[int, Meta(description="The message's offset, as its publish answered it.")]
TransactionPath = Annotated[str, Meta(description="The transaction's id, as begin answered it.")]
AfterParameter = Annotated[str | None, Meta(description="Where to go on: next of the page before.")]
EncodingParameter = Annotated[
    Encoding | None, Meta(description="base64: every message so; text or nothing: only those that are not text.")
]
