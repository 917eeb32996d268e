"""The broker as a whole: health, version, figures, and a backup of everything that it holds."""

from __future__ import annotations

import platform
from collections.abc import AsyncIterator
from typing import Annotated

from msgspec import Meta

from goqueue.api.http.bodies.answer import Answer, json_answer
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
from goqueue.api.http.routing.declaration import Controller, Documented, get
from goqueue.api.http.server.request import Request
from goqueue.broker.operations import OPENMETRICS_TYPE, PLAIN_TYPE, Backup, Caller, Check, Operations, wants_openmetrics
from goqueue.model.clock import NANOS_PER_MS
from goqueue.model.errors import RequestTimeout
from goqueue.model.units import format_duration_ms, format_instant_ns
from goqueue.version import __version__

_LIVENESS = Documented(kind=LivenessResponse)
_LIVENESS_503 = Documented("Something is wrong that a restart cures.", kind=LivenessResponse)
_TAR = "application/x-tar"
_METRICS = """\
# HELP goqueue_topics Topics.
# TYPE goqueue_topics gauge
goqueue_topics 3
"""


class SystemRoutes(Controller):
    """The broker itself: health, version, statistics, metrics, a backup."""

    tag = "Broker"

    def __init__(self, operations: Operations, grpc_port: int) -> None:
        self._operations = operations
        self._grpc_port = grpc_port

    @get(
        "/",
        answer=Documented(kind=RootResponse),
        others={303: Documented("To the page, for those who accept HTML.")},
        summary="What this is, and where to go on",
    )
    async def root(self, request: Request) -> Answer:
        """A browser is led to the page; clients of registries see that there is one by any answer."""
        if "text/html" in request.header(b"accept"):
            return Answer(b"", 303, "", {"Location": "/docs"})
        return json_answer(RootResponse("goqueue", __version__, "/docs", "/openapi.json", "/readyz"))

    @get("/health", summary="How the broker is")
    async def health(self, caller: Caller) -> HealthResponse:
        """What keeps it from doing all of its work, and what stored data was found damaged or gone."""
        problems = [*self._operations.system.problems(caller).values(), *self._operations.system.damage(caller)]
        return HealthResponse("degraded" if problems else "ok", self._now(), problems[:100])

    @get("/livez", answer=_LIVENESS, others={503: _LIVENESS_503}, summary="Whether the process works")
    async def live(self, caller: Caller) -> Answer:
        """Answers 503 while something is wrong that a restart cures, and tells what."""
        checks = self._operations.system.readiness(caller)
        return self._liveness({name: check for name, check in checks.items() if check.needs_restart})

    @get(
        "/healthz",
        answer=_LIVENESS,
        others={503: _LIVENESS_503},
        summary="Whether the process works, and whatever is not as it should be",
    )
    async def healthy(self, caller: Caller) -> Answer:
        """Answers 503 as /livez does; its message tells of all that is wrong."""
        return self._liveness(self._operations.system.checks(caller))

    @get(
        "/readyz",
        answer=Documented(kind=ReadinessResponse),
        others={503: Documented("Not ready.", kind=ReadinessResponse)},
        summary="Whether the broker takes messages",
    )
    async def ready(
        self, caller: Caller, verbose: Annotated[bool, Meta(description="Tell of each part, too.")] = False
    ) -> Answer:
        """Answers 503 while some part that writing needs does not work, or while the broker is stopping."""
        checks = self._operations.system.checks(caller) if verbose else self._operations.system.readiness(caller)
        is_ready = all(check.status != "fail" for check in checks.values())
        body = ReadinessResponse("pass" if is_ready else "fail", self._now(), self._uptime(), _explained(checks))
        if verbose:
            body.checks = {
                name: HealthCheckResult(check.status, check.message, format_duration_ms(check.took_ns // NANOS_PER_MS))
                for name, check in checks.items()
            }
            size = self._operations.system.size(caller)
            body.broker = BrokerFacts(self._operations.node_id, size.topics, size.size_bytes)
        return json_answer(body, 200 if is_ready else 503)

    @get("/version", summary="Which version this is")
    async def version(self) -> VersionResponse:
        """Also that of its Python, and where it serves gRPC."""
        return VersionResponse(__version__, platform.python_version(), self._grpc_port)

    @get("/stats", summary="How much the broker holds")
    async def stats(self, caller: Caller) -> StatsResponse:
        """Topic by topic and in all, and how much room the disk has."""
        found = self._operations.system.stats(caller)
        topics = {
            each.name: TopicStats(each.partitions, each.messages, each.size_bytes, each.segments, each.damaged_messages)
            for each in found.topics
        }
        return StatsResponse(
            node_id=self._operations.node_id,
            uptime=self._uptime(),
            topics=len(topics),
            total_size_bytes=sum(each.size_bytes for each in topics.values()),
            topic_stats=topics,
            fsync_rounds=found.fsync_rounds,
            disk_free_bytes=found.disk_free_bytes,
        )

    @get(
        "/metrics",
        media_type="text/plain",
        answer=Documented("OpenMetrics if the request accepts it, else the text format of Prometheus.", _METRICS, str),
        summary="Figures for monitoring systems",
    )
    async def metrics(self, request: Request) -> Answer:
        """All that can be measured, for Prometheus and those who speak its language: see docs/metrics.md."""
        openmetrics = wants_openmetrics(request.header(b"accept"))
        body = await self._operations.system.metrics(request.caller, openmetrics=openmetrics)
        return Answer(body, media_type=OPENMETRICS_TYPE if openmetrics else f"{PLAIN_TYPE}; charset=utf-8")

    @get(
        "/admin/backup",
        media_type=_TAR,
        errors=(409,),
        has_effects=True,
        answer=Documented("A tar for 'goqueue restore'. It is whole if its last file is manifest.json.", kind=bytes),
        summary="A backup: the state at one instant, while the broker runs",
    )
    async def backup(self, caller: Caller) -> Answer:
        """Everything that the broker holds, for 'goqueue restore'. There is one at a time."""
        begun = await self._operations.maintenance.begin_backup(caller)
        return Answer(_pieces(begun), 200, _TAR, {"GoQueue-Backup-Bytes": str(begun.size_bytes)})

    def _liveness(self, checks: dict[str, Check]) -> Answer:
        needs_restart = any(check.needs_restart for check in checks.values())
        body = LivenessResponse("fail" if needs_restart else "pass", self._now(), self._uptime(), _explained(checks))
        return json_answer(body, 503 if needs_restart else 200)

    def _now(self) -> str:
        return format_instant_ns(self._operations.clock.now_ns())

    def _uptime(self) -> str:
        return format_duration_ms(self._operations.uptime_ms())


def _explained(checks: dict[str, Check]) -> str:
    """What is wrong, the worst first."""
    wrong = sorted((each.status, f"{name}: {each.message}") for name, each in checks.items() if each.status != "pass")
    return "; ".join(told for _, told in wrong)


async def _pieces(backup: Backup) -> AsyncIterator[bytes]:
    try:
        while piece := await backup.next():
            yield piece
    finally:
        backup.end(RequestTimeout("the client that took the backup has left"))
