"""``/metrics``: figures for Prometheus and other systems that read its format."""

from __future__ import annotations

from goqueue.api.http.bodies.answer import Answer
from goqueue.api.http.routes.broker_routes import BrokerRoutes
from goqueue.api.http.routing.declaration import Documented, get
from goqueue.api.http.server.request import Request
from goqueue.broker.operations import OPENMETRICS_TYPE, PLAIN_TYPE, wants_openmetrics

_EXAMPLE = """\
# HELP goqueue_topics Topics.
# TYPE goqueue_topics gauge
goqueue_topics 3
"""


class MetricsRoutes(BrokerRoutes):
    """Metrics."""

    tag = "Broker"

    @get(
        "/metrics",
        media_type="text/plain",
        answer=Documented("OpenMetrics if the request accepts it, else the text format of Prometheus.", _EXAMPLE, str),
        summary="Figures for monitoring systems",
    )
    async def metrics(self, request: Request) -> Answer:
        """All that can be measured, for Prometheus and those who speak its language: see docs/metrics.md."""
        openmetrics = wants_openmetrics(request.header(b"accept"))
        body = await self._operations.system.metrics(request.caller, openmetrics=openmetrics)
        return Answer(body, media_type=OPENMETRICS_TYPE if openmetrics else f"{PLAIN_TYPE}; charset=utf-8")
