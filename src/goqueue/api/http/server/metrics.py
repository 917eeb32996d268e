"""``/metrics``: figures for Prometheus and those who speak its language; and counting what HTTP requests there are."""

from __future__ import annotations

import re
from typing import Any

from litestar import MediaType, Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Example

from goqueue.api.http.bodies.errors import documented
from goqueue.api.http.caller import AnyRequest, caller_of
from goqueue.broker.operations import (
    OPENMETRICS_TYPE,
    PLAIN_TYPE,
    Endpoint,
    Operations,
    Requests,
    wants_openmetrics,
)

_EXAMPLE = """\
# HELP goqueue_topics Topics.
# TYPE goqueue_topics gauge
goqueue_topics 3
"""
_PARAMETER = re.compile(r"_([a-z])")


def metrics_routes(operations: Operations) -> list[HTTPRouteHandler]:
    @get(
        "/metrics",
        tags=["Broker"],
        media_type=MediaType.TEXT,
        responses={
            **documented(),
            200: ResponseSpec(
                str,
                media_type=MediaType.TEXT,
                description="OpenMetrics if the request accepts it, else the text format of Prometheus.",
                generate_examples=False,
                examples=[Example(value=_EXAMPLE)],
            ),
        },
        summary="Figures for monitoring systems",
    )
    async def metrics(request: AnyRequest) -> Response[bytes]:
        """All that can be measured, for Prometheus and those who speak its language: see docs/metrics.md."""
        openmetrics = wants_openmetrics(request.headers.get("accept", ""))
        body = await operations.system.metrics(caller_of(request), openmetrics=openmetrics)
        return Response(body, media_type=OPENMETRICS_TYPE if openmetrics else PLAIN_TYPE)

    return [metrics]


def endpoint_of(scope: Any, requests: Requests) -> Endpoint:
    """The route that a request was for, by its pattern. Only a route that was found has one, so there are not many."""
    template = scope.get("path_template")
    if template is None:
        return requests.other
    method = scope["method"]
    found = requests.find((method, template))
    if found is None:
        found = requests.endpoint((method, template), f"{method} {_pattern(template)}")
    return found


def _pattern(template: str) -> str:
    """Without the version, which says the same, and with parameters spelt as the documentation does."""
    path = template.removeprefix("/v1") or "/"
    return re.sub(r"\{[^}]*\}", lambda match: _PARAMETER.sub(lambda part: part[1].upper(), match[0]), path)
