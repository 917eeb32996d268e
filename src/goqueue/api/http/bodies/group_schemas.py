"""The bodies of requests and responses about groups, under the names that clients know."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from goqueue.api.http.bodies.fields import (
    AssignedField,
    CompressedField,
    EncodingField,
    GroupField,
    GroupStateName,
    HeadersField,
    KeyField,
    MemberIdField,
    OffsetField,
    OffsetsByTopic,
    OverridesField,
    PartitionField,
    PriorityNameField,
    RevokingField,
    SettingsField,
    TimestampField,
    TopicField,
    ValueField,
)
from goqueue.api.http.bodies.message_schemas import Request
from goqueue.broker.operations.limits import MAX_NAMED_PARTITIONS
from goqueue.model.group_settings import GroupKind, GroupMode, Ordering

StateField = Annotated[GroupStateName, Meta(description="rebalancing: partitions change hands.")]
GenerationField = Annotated[int, Meta(description="Which assignment of partitions holds; each change has a new one.")]
SessionField = Annotated[
    str, Meta(description="A member that neither polls nor sends a heartbeat for so long, such as 30s, is out.")
]
CommitField = Annotated[
    dict[str, dict[int, int]],
    Meta(description='By topic and partition: everything below is done, such as {"orders": {"0": 17}}.'),
]
OnlyInField = Annotated[int, Meta(ge=0, description="If it is given, the offsets hold only in that generation.")]


class GroupListResponse(Struct):
    """The names of groups."""

    groups: Annotated[list[str], Meta(description="Names in alphabetical order.")]


class GroupMember(Struct, omit_defaults=True):
    """Someone who works for a group."""

    member_id: Annotated[str, Meta(description="The member's name in the group: its client_id and something random.")]
    client_id: Annotated[str, Meta(description="As the member calls itself.")]
    assigned_partitions: AssignedField
    revoking_partitions: RevokingField
    in_flight: Annotated[int, Meta(description="How many messages it was given and has not settled.")]
    topics: Annotated[list[str], Meta(description="What it wants to work on.")]
    session_timeout: SessionField
    instance_id: Annotated[str, Meta(description="As the join gave it; left out if it gave none.")] = ""


class LagOfPartition(Struct):
    """Where a group is in one partition."""

    topic: TopicField
    partition: PartitionField
    committed: Annotated[int, Meta(description="Where what the group is done with, without a gap, ends.")]
    latest: Annotated[int, Meta(description="The offset that the next message gets.")]
    lag: Annotated[int, Meta(description="How many messages the group is not done with.")]
    in_flight: Annotated[int, Meta(description="How many of them some member has.")]
    waiting: Annotated[
        int, Meta(description="How many of them are to be tried again, or are on their way to the dead letters.")
    ]
    owner: Annotated[str | None, Meta(description="The member that the partition is assigned to; null if none is.")]
    held_back: Annotated[
        int,
        Meta(
            description="How many messages nobody gets yet, and lag does not count: they are part of a transaction "
            "that has not ended, or lie behind one. 'goqueue txn list' shows which that is."
        ),
    ]


class GroupDetails(Struct):
    """A group, its settings in effect, who works for it and how far it is."""

    group_id: GroupField
    state: StateField
    members: Annotated[list[GroupMember], Meta(description="Who works for it.")]
    generation: GenerationField
    protocol: Annotated[str, Meta(description="The same as kind among the settings.")]
    settings: SettingsField
    overrides: OverridesField
    lag: Annotated[list[LagOfPartition], Meta(description="Where it is in each partition, by topic and number.")]
    total_lag: Annotated[int, Meta(description="How many messages it is not done with, over all partitions.")]
    total_held_back: Annotated[int, Meta(description="How many messages transactions hold back, over all partitions.")]


class ConfigureGroupRequest(Request):
    """What is not named stays."""

    settings: Annotated[dict[str, Any], Meta(description="By name: see docs/configuration.md, group.")] = field(
        default_factory=dict
    )


class DeleteGroupResponse(Struct):
    """The group is gone, with its offsets; a new one of that name inherits nothing."""

    deleted: Annotated[bool, Meta(description="Always true; what cannot be deleted is an error.")]


class JoinGroupRequest(Request):
    """The first join makes the group, with these settings."""

    client_id: Annotated[str, Meta(description="Who it is, in printable characters.")]
    topics: Annotated[list[str], Meta(description="What it wants to work on.")]
    session_timeout: Annotated[
        str | None,
        Meta(description="1s to 30m: not heard of for so long, it is out; left out, the group's session_timeout_ms."),
    ] = None
    kind: Annotated[GroupKind | None, Meta(description="How members share the work, as among the settings.")] = None
    mode: Annotated[
        GroupMode | None, Meta(description="queue: receipts settle messages; stream: offsets are committed.")
    ] = None
    ordering: Annotated[
        Ordering | None, Meta(description="key: of the messages with the same key one is out at a time, in order.")
    ] = None
    instance_id: Annotated[str, Meta(description="A process that comes back under it takes the place that it had.")] = (
        ""
    )
    auto_commit: Annotated[
        bool, Meta(description="Of a stream: what a poll answered is committed by later polls and by leaving.")
    ] = False
    settings: Annotated[
        dict[str, Any],
        Meta(
            description="By name: see docs/configuration.md, group. mode and ordering never change, kind only while "
            "nobody is in the group."
        ),
    ] = field(default_factory=dict)


class JoinGroupResponse(Struct):
    """What the member is called and what it has.

    There must be no field ``leader``: clients of the earlier server declare it, some as a boolean and some as a text.
    """

    member_id: Annotated[str, Meta(description="To be sent with everything that the member does.")]
    generation: GenerationField
    leader_id: Annotated[str, Meta(description="The first among the members; nothing depends on it.")]
    assigned_partitions: AssignedField
    partitions: Annotated[
        list[int], Meta(description="The numbers of assigned_partitions, for members that want a single topic.")
    ]
    members: Annotated[list[str], Meta(description="Every member of the group, this one included.")]
    rebalance_required: Annotated[bool, Meta(description="Always false: what is assigned is told here.")]
    revoking_partitions: RevokingField
    heartbeat_interval: Annotated[str, Meta(description="How often to send a heartbeat, unless it polls, such as 3s.")]
    session_timeout: SessionField


class HeartbeatRequest(Request):
    """A sign of life."""

    member_id: MemberIdField
    generation: Annotated[int, Meta(ge=0, description="The last that the member was told.")]


class HeartbeatResponse(Struct):
    """What the member has now."""

    rebalance_required: Annotated[
        bool, Meta(description="The request's generation is not the present one: go on with what is answered here.")
    ]
    state: StateField
    generation: GenerationField
    assigned_partitions: AssignedField
    revoking_partitions: RevokingField


class LeaveGroupRequest(Request):
    """Who leaves."""

    member_id: MemberIdField
    if_idle: Annotated[bool, Meta(description="Stay if anything is in flight.")] = False


class LeaveGroupResponse(Struct):
    """Whether the member is out."""

    left: Annotated[bool, Meta(description="false: it stays, for if_idle was asked for and something is in flight.")]


class PollMessage(Struct, omit_defaults=True, kw_only=True, gc=False):
    """A message for this member."""

    topic: TopicField
    partition: PartitionField
    offset: OffsetField
    value: ValueField
    receipt_handle: Annotated[
        str | UnsetType, Meta(description="Settles the message; left out in a stream, which commits offsets.")
    ] = UNSET
    deliveries: Annotated[
        int | UnsetType, Meta(description="How often the group was given it, this time included; left out in a stream.")
    ] = UNSET
    key: KeyField | UnsetType = UNSET
    headers: HeadersField | UnsetType = UNSET
    timestamp: TimestampField
    priority: PriorityNameField
    encoding: EncodingField
    compressed: CompressedField = False


class PollResponse(Struct, omit_defaults=True):
    """What the member is to work on."""

    messages: Annotated[list[PollMessage], Meta(description="Empty if none came in time.")]
    next_offsets: Annotated[
        OffsetsByTopic | UnsetType,
        Meta(description="By topic and partition: what a stream commits when it is done with these messages."),
    ] = UNSET
    damaged: Annotated[
        dict[str, dict[str, list[int]]] | UnsetType,
        Meta(description="By topic and partition: offsets that were left out because they are damaged or lost."),
    ] = UNSET


class OffsetsResponse(Struct):
    """How far a group is."""

    offsets: Annotated[
        OffsetsByTopic, Meta(description="By topic and partition: where what the group is done with ends.")
    ]


class CommitOffsetsRequest(Request):
    """What is done."""

    member_id: MemberIdField
    offsets: CommitField
    generation: OnlyInField | None = None


class CommitOffsetsResponse(Struct):
    """The offsets survive a crash."""

    committed: Annotated[bool, Meta(description="Always true; what cannot be committed is an error.")]


class ResetOffsetsRequest(Request):
    """Says exactly one of ``to``, ``offset`` and ``instant``."""

    topic: TopicField
    partitions: (
        Annotated[
            list[int],
            Meta(min_length=1, max_length=MAX_NAMED_PARTITIONS, description="Only these; all of them if left out."),
        ]
        | None
    ) = None
    to: Annotated[Literal["earliest", "latest"] | None, Meta(description="Begin at an end of each partition.")] = None
    offset: Annotated[int, Meta(ge=0, description="Begin at this offset.")] | None = None
    instant: Annotated[
        str | None, Meta(description="Begin at the first message at or after this instant (RFC 3339).")
    ] = None


class ResetOffsetsResponse(Struct):
    """Where the group begins again; receipts from before are void."""

    reset: Annotated[bool, Meta(description="Always true; what cannot be reset is an error.")]
    offsets: Annotated[OffsetsByTopic, Meta(description="By topic and partition: where the group begins again.")]
