"""The broker about itself: health, version, figures."""

from __future__ import annotations

import platform
import time

from litestar import Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromQuery

import goqueue
from goqueue.api.http.errors import documented
from goqueue.api.http.schemas import (
    BrokerFacts,
    HealthCheckResult,
    HealthResponse,
    LivenessResponse,
    ReadinessResponse,
    StatsResponse,
    TopicStats,
    VersionResponse,
)
from goqueue.broker.broker import Broker
from goqueue.broker.topic import Topic
from goqueue.model.units import format_duration_ms, format_instant_ns

_TAGS = ["Broker"]
_PARTS = ("storage", "disk", "shutdown")


def system_routes(broker: Broker) -> list[HTTPRouteHandler]:
    def now() -> str:
        return format_instant_ns(broker.clock.now_ns())

    def uptime() -> str:
        return format_duration_ms(broker.uptime_ms())

    @get("/health", tags=_TAGS, responses=documented(), summary="How the broker is")
    async def health() -> HealthResponse:
        problems = [*broker.problems().values(), *broker.damage()]
        return HealthResponse("degraded" if problems else "ok", now(), problems[:100])

    @get(["/healthz", "/livez"], tags=_TAGS, responses=documented(), summary="Whether the process works")
    async def live() -> LivenessResponse:
        return LivenessResponse("pass", now(), uptime(), "")

    @get(
        "/readyz",
        tags=_TAGS,
        responses={
            **documented(),
            503: ResponseSpec(ReadinessResponse, generate_examples=False, description="Not ready."),
        },
        summary="Whether the broker takes messages",
    )
    async def ready(verbose: FromQuery[bool] = False) -> Response[ReadinessResponse]:
        began = time.perf_counter_ns()
        problems = broker.problems()
        took = format_duration_ms((time.perf_counter_ns() - began) // 1_000_000)
        body = ReadinessResponse("fail" if problems else "pass", now(), uptime(), "; ".join(problems.values()))
        if verbose:
            body.checks = {
                part: HealthCheckResult("fail" if part in problems else "pass", problems.get(part, ""), took)
                for part in _PARTS
            }
            topics = list(broker.running_topics())
            body.broker = BrokerFacts(broker.node_id, len(topics), sum(_size(topic) for topic in topics))
        return Response(body, status_code=503 if problems else 200)

    @get("/version", tags=_TAGS, responses=documented(), summary="Which version this is")
    async def version() -> VersionResponse:
        return VersionResponse(goqueue.__version__, platform.python_version())

    @get("/stats", tags=_TAGS, responses=documented(), summary="How much the broker holds")
    async def stats() -> StatsResponse:
        topics = {topic.name: _stats(topic) for topic in broker.running_topics()}
        return StatsResponse(
            node_id=broker.node_id,
            uptime=uptime(),
            topics=len(topics),
            total_size_bytes=sum(each.size_bytes for each in topics.values()),
            topic_stats=topics,
            fsync_rounds=broker.fsync_rounds(),
            disk_free_bytes=broker.disk.look(),
        )

    return [health, live, ready, version, stats]


def _size(topic: Topic) -> int:
    return sum(partition.log.size_bytes for partition in topic.partitions)


def _stats(topic: Topic) -> TopicStats:
    return TopicStats(
        partitions=len(topic.partitions),
        messages=sum(each.high_watermark - each.log.start_offset for each in topic.partitions),
        size_bytes=_size(topic),
        segments=sum(len(each.log.segments) for each in topic.partitions),
        damaged_messages=sum(len(each.damaged) for each in topic.partitions),
    )
