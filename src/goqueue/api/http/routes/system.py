"""The broker about itself: health, version, figures."""

from __future__ import annotations

import platform
from typing import Annotated

from litestar import Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import QueryParameter

from goqueue.api.http.bodies.errors import documented
from goqueue.api.http.bodies.system_schemas import (
    BrokerFacts,
    HealthCheckResult,
    HealthResponse,
    LivenessResponse,
    ReadinessResponse,
    RootResponse,
    StatsResponse,
    TopicStats,
    VersionResponse,
)
from goqueue.api.http.caller import AnyRequest, caller_of
from goqueue.broker.operations import Check, Operations
from goqueue.model.clock import NANOS_PER_MS
from goqueue.model.units import format_duration_ms, format_instant_ns
from goqueue.version import __version__

_TAGS = ["Broker"]
_LIVENESS_503 = ResponseSpec(
    LivenessResponse, generate_examples=False, description="Something is wrong that a restart cures."
)


def system_routes(operations: Operations, grpc_port: int) -> list[HTTPRouteHandler]:
    def now() -> str:
        return format_instant_ns(operations.clock.now_ns())

    def uptime() -> str:
        return format_duration_ms(operations.uptime_ms())

    @get(
        "/",
        tags=_TAGS,
        responses={
            **documented(),
            303: ResponseSpec(None, generate_examples=False, description="To the page, for those who accept HTML."),
        },
        summary="What this is, and where to go on",
    )
    async def root(request: AnyRequest) -> Response[RootResponse | None]:
        """A browser is led to the page; clients of registries see that there is one by any answer."""
        if "text/html" in request.headers.get("accept", ""):
            return Response(None, status_code=303, headers={"Location": "/docs"})
        return Response(RootResponse("goqueue", __version__, "/docs", "/openapi.json", "/readyz"))

    @get("/health", tags=_TAGS, responses=documented(), summary="How the broker is")
    async def health(request: AnyRequest) -> HealthResponse:
        """What keeps it from doing all of its work, and what stored data was found damaged or gone."""
        caller = caller_of(request)
        problems = [*operations.system.problems(caller).values(), *operations.system.damage(caller)]
        return HealthResponse("degraded" if problems else "ok", now(), problems[:100])

    def liveness(checks: dict[str, Check]) -> Response[LivenessResponse]:
        needs_restart = any(check.needs_restart for check in checks.values())
        body = LivenessResponse("fail" if needs_restart else "pass", now(), uptime(), _told(checks))
        return Response(body, status_code=503 if needs_restart else 200)

    @get(
        "/livez",
        tags=_TAGS,
        responses={**documented(), 503: _LIVENESS_503},
        summary="Whether the process works",
    )
    async def live(request: AnyRequest) -> Response[LivenessResponse]:
        """Answers 503 while something is wrong that a restart cures, and tells what."""
        checks = operations.system.readiness(caller_of(request))
        return liveness({name: check for name, check in checks.items() if check.needs_restart})

    @get(
        "/healthz",
        tags=_TAGS,
        responses={**documented(), 503: _LIVENESS_503},
        summary="Whether the process works, and whatever is not as it should be",
    )
    async def healthy(request: AnyRequest) -> Response[LivenessResponse]:
        """Answers 503 as /livez does; its message tells of all that is wrong."""
        return liveness(operations.system.checks(caller_of(request)))

    @get(
        "/readyz",
        tags=_TAGS,
        responses={
            **documented(),
            503: ResponseSpec(ReadinessResponse, generate_examples=False, description="Not ready."),
        },
        summary="Whether the broker takes messages",
    )
    async def ready(
        request: AnyRequest,
        verbose: Annotated[bool, QueryParameter(description="Tell of each part, too.")] = False,
    ) -> Response[ReadinessResponse]:
        """Answers 503 while some part that writing needs does not work, or while the broker is stopping."""
        caller = caller_of(request)
        checks = operations.system.checks(caller) if verbose else operations.system.readiness(caller)
        is_ready = all(check.status != "fail" for check in checks.values())
        body = ReadinessResponse("pass" if is_ready else "fail", now(), uptime(), _told(checks))
        if verbose:
            body.checks = {
                name: HealthCheckResult(check.status, check.message, format_duration_ms(check.took_ns // NANOS_PER_MS))
                for name, check in checks.items()
            }
            size = operations.system.size(caller)
            body.broker = BrokerFacts(operations.node_id, size.topics, size.size_bytes)
        return Response(body, status_code=200 if is_ready else 503)

    @get("/version", tags=_TAGS, responses=documented(), summary="Which version this is")
    async def version() -> VersionResponse:
        """Also that of its Python, and where it serves gRPC."""
        return VersionResponse(__version__, platform.python_version(), grpc_port)

    @get("/stats", tags=_TAGS, responses=documented(), summary="How much the broker holds")
    async def stats(request: AnyRequest) -> StatsResponse:
        """Topic by topic and in all, and how much room the disk has."""
        found = operations.system.stats(caller_of(request))
        topics = {
            each.name: TopicStats(each.partitions, each.messages, each.size_bytes, each.segments, each.damaged_messages)
            for each in found.topics
        }
        return StatsResponse(
            node_id=operations.node_id,
            uptime=uptime(),
            topics=len(topics),
            total_size_bytes=sum(each.size_bytes for each in topics.values()),
            topic_stats=topics,
            fsync_rounds=found.fsync_rounds,
            disk_free_bytes=found.disk_free_bytes,
        )

    return [root, health, live, healthy, ready, version, stats]


def _told(checks: dict[str, Check]) -> str:
    """What is wrong, the worst first."""
    wrong = sorted((each.status, f"{name}: {each.message}") for name, each in checks.items() if each.status != "pass")
    return "; ".join(told for _, told in wrong)
