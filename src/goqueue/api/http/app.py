"""The HTTP application over a broker."""

from __future__ import annotations

from litestar import Litestar, Router
from litestar.types import ASGIApp

from goqueue.api.http.admission import Admission
from goqueue.api.http.errors import EXCEPTION_HANDLERS
from goqueue.api.http.messages import message_routes
from goqueue.api.http.openapi import documentation_routes
from goqueue.api.http.publish import PublishPath, publish_json
from goqueue.api.http.query import refuse_unknown_parameters
from goqueue.api.http.system import system_routes
from goqueue.api.http.topics import topic_routes
from goqueue.broker.broker import Broker
from goqueue.model.config import HttpConfig


def create_app(broker: Broker, config: HttpConfig) -> ASGIApp:
    """Every path at the root, and again under ``/v1``."""
    admission = Admission(config)
    publish = publish_json(broker, config)
    routes = [*system_routes(broker), *topic_routes(broker), *message_routes(broker, admission, config, publish)]
    app = Litestar(
        route_handlers=[*routes, Router("/v1", route_handlers=routes), *documentation_routes(routes)],
        before_request=refuse_unknown_parameters,
        exception_handlers=EXCEPTION_HANDLERS,
        openapi_config=None,
        # Bodies are bounded by Admission, which counts all of them together.
        request_max_body_size=None,
        logging_config=None,
    )
    return admission.wrap(PublishPath(publish, config.max_publish_messages, app))
