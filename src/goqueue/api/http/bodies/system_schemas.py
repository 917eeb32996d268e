"""The bodies of responses in which the broker tells about itself."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

NowField = Annotated[str, Meta(description="The broker's time (RFC 3339).")]
UptimeField = Annotated[str, Meta(description="How long the broker has been running, such as 1h30m.")]
WrongField = Annotated[str, Meta(description="What is wrong, the worst first; empty if nothing is.")]
NodeField = Annotated[str, Meta(description="The name of the broker's host.")]
TotalSizeField = Annotated[int, Meta(description="The size of all topics' logs in bytes.")]


class RootResponse(Struct):
    """Where to go on."""

    name: Annotated[str, Meta(description="Always goqueue.")]
    version: Annotated[str, Meta(description="The broker's.")]
    docs: Annotated[str, Meta(description="A page to try the API, for people.")]
    openapi: Annotated[str, Meta(description="The API, for programs.")]
    health: Annotated[str, Meta(description="Whether the broker takes messages.")]


class HealthResponse(Struct):
    """Whether everything works."""

    status: Annotated[
        Literal["ok", "degraded", "fail"],
        Meta(description="degraded: some writing does not work, or something stored is damaged or gone."),
    ]
    timestamp: NowField
    problems: Annotated[list[str], Meta(description="What is wrong, at most 100 of them.")]


class LivenessResponse(Struct):
    """Whether the process works at all."""

    status: Annotated[Literal["pass", "fail"], Meta(description="fail: something is wrong that a restart cures.")]
    timestamp: NowField
    uptime: UptimeField
    message: WrongField


class HealthCheckResult(Struct):
    """One part of the broker."""

    status: Annotated[
        Literal["pass", "warn", "fail"],
        Meta(description="fail: some writing does not work; warn: something needs to be seen to."),
    ]
    message: Annotated[str, Meta(description="What is wrong and what to do about it; empty if nothing is.")]
    latency: Annotated[
        str, Meta(description="How long what was looked at takes, such as 12ms, where that means something.")
    ]


class BrokerFacts(Struct):
    """What the broker holds."""

    node_id: NodeField
    topic_count: Annotated[int, Meta(description="How many topics there are.")]
    total_size: TotalSizeField


class ReadinessResponse(Struct, omit_defaults=True):
    """Whether the broker takes messages."""

    status: Annotated[Literal["pass", "fail"], Meta(description="fail: not everything that is sent can be taken.")]
    timestamp: NowField
    uptime: UptimeField
    message: WrongField
    checks: Annotated[
        dict[str, HealthCheckResult] | UnsetType, Meta(description="The parts of the broker by name, if verbose.")
    ] = UNSET
    broker: Annotated[BrokerFacts | UnsetType, Meta(description="What the broker holds, if verbose.")] = UNSET


class VersionResponse(Struct):
    """Which version this is, and where gRPC is."""

    version: Annotated[str, Meta(description="The broker's version.")]
    python_version: Annotated[str, Meta(description="The version of the Python that runs it.")]
    grpc_port: Annotated[int, Meta(description="Where the same broker serves gRPC; 0: nowhere.")] = 0
    git_commit: Annotated[str, Meta(description="Empty; kept for older clients.")] = ""
    build_time: Annotated[str, Meta(description="Empty; kept for older clients.")] = ""
    go_version: Annotated[str, Meta(description="Empty; kept for older clients.")] = ""


class TopicStats(Struct):
    """How much a topic holds."""

    partitions: Annotated[int, Meta(description="How many it has.")]
    messages: Annotated[int, Meta(description="Offsets from the earliest to the latest, of all partitions.")]
    size_bytes: Annotated[int, Meta(description="The size of its logs.")]
    segments: Annotated[int, Meta(description="How many files its logs have for messages.")]
    damaged_messages: Annotated[int, Meta(description="Messages that were found to fail their checksum.")]


class StatsResponse(Struct):
    """How much the broker holds."""

    node_id: NodeField
    uptime: UptimeField
    topics: Annotated[int, Meta(description="How many there are.")]
    total_size_bytes: TotalSizeField
    topic_stats: Annotated[dict[str, TopicStats], Meta(description="By topic: how much it holds.")]
    fsync_rounds: Annotated[int, Meta(description="How often data was written through to the disk, since the start.")]
    disk_free_bytes: Annotated[int, Meta(description="How much room the disk of the data has.")]
