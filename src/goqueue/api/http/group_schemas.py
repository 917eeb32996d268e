"""The bodies of requests and responses about groups, under the names that clients know."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from goqueue.api.http.schemas import Encoding, HeaderValues, Request
from goqueue.model.group_settings import GroupKind, GroupMode, Ordering

GroupStateName = Literal["stable", "rebalancing", "dead"]
Generation = Annotated[int, Meta(ge=0)]
OffsetsByTopic = dict[str, dict[int, int]]
"""By topic and partition."""
MAX_NAMED_PARTITIONS = 10_000


class GroupListResponse(Struct):
    """Names in alphabetical order."""

    groups: list[str]


class GroupMember(Struct, omit_defaults=True):
    """``in_flight``: how many messages it was given and has not settled."""

    member_id: str
    client_id: str
    assigned_partitions: list[str]
    revoking_partitions: list[str]
    in_flight: int
    topics: list[str]
    session_timeout: str
    instance_id: str = ""


class LagOfPartition(Struct):
    """Where a group is in one partition. ``lag``: how many messages it has not done with.

    ``in_flight`` of them some member has, ``waiting`` are to be tried again. ``held_back``: how many messages nobody
    gets yet, and ``lag`` does not count, because they are part of a transaction that has not ended or lie behind one;
    'goqueue transactions list' shows which that is.
    """

    topic: str
    partition: int
    committed: int
    latest: int
    lag: int
    in_flight: int
    waiting: int
    owner: str | None
    held_back: int


class GroupDetails(Struct):
    """A group, its settings in effect, who works for it and how far it is. ``rebalancing``: partitions change hands.

    ``total_lag`` and ``total_held_back`` are those of all of its partitions.
    """

    group_id: str
    state: GroupStateName
    members: list[GroupMember]
    generation: int
    protocol: str
    settings: dict[str, Any]
    overrides: list[str]
    lag: list[LagOfPartition]
    total_lag: int
    total_held_back: int


class ConfigureGroupRequest(Request):
    """``settings`` are those of the configuration reference, section group; what is not named stays."""

    settings: dict[str, Any] = field(default_factory=dict)


class DeleteGroupResponse(Struct):
    """The group is gone, with its offsets; a new one of that name inherits nothing."""

    deleted: bool


class JoinGroupRequest(Request):
    """The first join makes the group, with these ``settings``; ``kind``, ``mode`` and ``ordering`` are three of them.

    ``instance_id``: a process that comes back under it takes the place that it had.
    """

    client_id: str
    topics: list[str]
    session_timeout: str | None = None
    kind: GroupKind | None = None
    mode: GroupMode | None = None
    ordering: Ordering | None = None
    instance_id: str = ""
    auto_commit: bool = False
    settings: dict[str, Any] = field(default_factory=dict)


class JoinGroupResponse(Struct):
    """Send a heartbeat every ``heartbeat_interval``, or poll; after ``session_timeout`` without either it is out."""

    member_id: str
    generation: int
    leader: bool
    assigned_partitions: list[str]
    rebalance_required: bool
    revoking_partitions: list[str]
    heartbeat_interval: str
    session_timeout: str


class HeartbeatRequest(Request):
    """``generation`` is the last that the member was told."""

    member_id: str
    generation: Generation


class HeartbeatResponse(Struct):
    """``rebalance_required``: the request's generation is not the present one; go on with what is answered here."""

    rebalance_required: bool
    state: GroupStateName
    generation: int
    assigned_partitions: list[str]
    revoking_partitions: list[str]


class LeaveGroupRequest(Request):
    """What the member has in flight goes to others at once."""

    member_id: str


class LeaveGroupResponse(Struct):
    """The member is out."""

    left: bool


class PollMessage(Struct, omit_defaults=True, kw_only=True, gc=False):
    """A message for this member. ``receipt_handle`` settles it; in a stream there is none, offsets are committed.

    ``compressed``: the value is still packed (zstd), because the answer had no room for what it unpacks to.
    """

    topic: str
    partition: int
    offset: int
    value: str | None
    receipt_handle: str | UnsetType = UNSET
    deliveries: int | UnsetType = UNSET
    key: str | UnsetType = UNSET
    headers: dict[str, HeaderValues] | UnsetType = UNSET
    timestamp: str
    priority: str
    encoding: Encoding
    compressed: bool = False


class PollResponse(Struct, omit_defaults=True):
    """None if none came in time. ``next_offsets``: what a stream commits when it is done with these messages."""

    messages: list[PollMessage]
    next_offsets: dict[str, dict[str, int]] | UnsetType = UNSET


class OffsetsResponse(Struct):
    """By topic and partition: where what the group is done with ends."""

    offsets: dict[str, dict[str, int]]


class CommitOffsetsRequest(Request):
    """Everything below these offsets is done. With ``generation`` the commit holds only in that one."""

    member_id: str
    offsets: OffsetsByTopic
    generation: Generation | None = None


class CommitOffsetsResponse(Struct):
    """The offsets survive a crash."""

    committed: bool


class ResetOffsetsRequest(Request):
    """One of ``to``, ``offset`` and ``instant``; all partitions unless some are named."""

    topic: str
    partitions: Annotated[list[int], Meta(min_length=1, max_length=MAX_NAMED_PARTITIONS)] | None = None
    to: Literal["earliest", "latest"] | None = None
    offset: Annotated[int, Meta(ge=0)] | None = None
    instant: str | None = None


class ResetOffsetsResponse(Struct):
    """Where the group begins again; receipts from before are void."""

    reset: bool
    offsets: dict[str, dict[str, int]]
