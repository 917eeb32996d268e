"""The bodies of requests and responses about topics."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from goqueue.api.http.bodies.fields import OverridesField, PartitionField, SettingsField, TopicField
from goqueue.api.http.bodies.message_schemas import Request
from goqueue.model.topic_settings import MAX_PARTITIONS

RemovedField = Annotated[int, Meta(description="How many messages were removed.")]
DelayedField = Annotated[int, Meta(description="How many messages wait for their time, and will still come.")]


class CreateTopicRequest(Request):
    """A topic's name, and what it does not take from the broker's defaults."""

    name: Annotated[
        str,
        Meta(description="1 to 200 ASCII letters, digits, '.', '_' or '-'; names that begin with __ are the broker's."),
    ]
    num_partitions: Annotated[
        int | None, Meta(description=f"The same as partitions among the settings, 1 to {MAX_PARTITIONS:,}.")
    ] = None
    retention_hours: Annotated[
        int | None, Meta(description="The same as retention_ms among the settings, in hours.")
    ] = None
    settings: Annotated[
        dict[str, Any], Meta(description="By name: see docs/configuration.md, topic. Others are the broker's defaults.")
    ] = field(default_factory=dict)


class CreateTopicResponse(Struct):
    """The topic exists and survives a crash."""

    name: TopicField
    partitions: Annotated[int, Meta(description="How many it has.")]
    created: Annotated[bool, Meta(description="Always true; what cannot be made is an error.")]


class ChangeTopicRequest(Request):
    """What is named in neither stays."""

    settings: Annotated[
        dict[str, Any], Meta(description="To be set, by name: see docs/configuration.md, topic. Not partitions.")
    ] = field(default_factory=dict)
    unset: Annotated[list[str], Meta(description="Names of settings that follow the broker's defaults again.")] = field(
        default_factory=list
    )


class AddPartitionsRequest(Request):
    """How many partitions the topic is to have."""

    count: Annotated[int, Meta(ge=1, le=MAX_PARTITIONS, description="How many there are to be, not how many more.")]
    replica_assignments: Annotated[
        dict[str, list[str]], Meta(description="By partition: the nodes that it is to be on.")
    ] = field(default_factory=dict)


class TopicListResponse(Struct):
    """The names of topics."""

    topics: Annotated[list[str], Meta(description="Names in alphabetical order.")]


class PartitionOffsets(Struct):
    """Where a partition begins and ends."""

    earliest: Annotated[int, Meta(description="The offset of the first message that is still there.")]
    latest: Annotated[int, Meta(description="The offset that the next message gets.")]
    last_stable_offset: Annotated[
        int, Meta(description="Readers see what lies below; it stays behind latest while a transaction is open there.")
    ]


class TopicDetails(Struct):
    """A topic, its settings in effect, and how much it holds."""

    name: TopicField
    partitions: Annotated[int, Meta(description="How many it has.")]
    total_messages: Annotated[int, Meta(description="Offsets from earliest to latest, of all partitions.")]
    total_size_bytes: Annotated[int, Meta(description="The size of its logs.")]
    partition_offsets: Annotated[
        dict[str, PartitionOffsets], Meta(description="By partition: where it begins and ends.")
    ]
    id: Annotated[str, Meta(description="Its own: another topic of the same name has another one.")]
    created_at: Annotated[str, Meta(description="When it was made (RFC 3339).")]
    settings: SettingsField
    overrides: OverridesField


class DeleteTopicResponse(Struct):
    """The topic is gone, and nothing of it comes back."""

    deleted: Annotated[bool, Meta(description="Always true; what cannot be deleted is an error.")]
    name: TopicField


class PurgeRequest(Request):
    """Which messages go: those that nothing here excludes."""

    partition: Annotated[int, Meta(ge=0, lt=MAX_PARTITIONS, description="Only this one; all if left out.")] | None = (
        None
    )
    before: Annotated[
        str | None, Meta(description="Only what is before this instant (RFC 3339); all that readers see if left out.")
    ] = None


class PurgedPartition(Struct):
    """What was removed from one partition."""

    partition: PartitionField
    earliest_before: Annotated[int, Meta(description="The offset that it began with before.")]
    earliest: Annotated[int, Meta(description="The offset that it begins with now.")]
    removed_messages: RemovedField
    delayed_messages: DelayedField


class PurgeResponse(Struct):
    """What was removed does not come back. Delayed messages and those of open transactions stay."""

    topic: TopicField
    removed_messages: RemovedField
    delayed_messages: DelayedField
    partitions: Annotated[list[PurgedPartition], Meta(description="The same, partition by partition.")]
