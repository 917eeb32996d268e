"""The HTTP application over a broker."""

from __future__ import annotations

from litestar import Litestar
from litestar.types import ASGIApp, Receive, Scope, Send

from goqueue.api.http.bodies.encoded_path import keeping_slashes
from goqueue.api.http.bodies.errors import EXCEPTION_HANDLERS
from goqueue.api.http.bodies.query import refuse_unknown_parameters
from goqueue.api.http.registry.registry import registry_routes
from goqueue.api.http.registry.registry_path import RegistryPath
from goqueue.api.http.routes.backup import backup_routes
from goqueue.api.http.routes.damage import damage_routes
from goqueue.api.http.routes.dead_letters import dead_letter_routes
from goqueue.api.http.routes.delays import delay_routes
from goqueue.api.http.routes.groups import group_routes
from goqueue.api.http.routes.lanes import lane_routes
from goqueue.api.http.routes.messages import message_routes
from goqueue.api.http.routes.peek import peek_routes
from goqueue.api.http.routes.poll import poll_routes
from goqueue.api.http.routes.producers import producer_routes
from goqueue.api.http.routes.publish import PublishPath, publish_json
from goqueue.api.http.routes.purging import purge_routes
from goqueue.api.http.routes.queue import queue_routes
from goqueue.api.http.routes.system import system_routes
from goqueue.api.http.routes.topics import topic_routes
from goqueue.api.http.routes.traces import trace_routes
from goqueue.api.http.routes.transaction_control import KEYS, transaction_control_routes
from goqueue.api.http.routes.transactions import transaction_routes
from goqueue.api.http.server.admission import Admission
from goqueue.api.http.server.connection_limits import ConnectionLimits
from goqueue.api.http.server.metrics import metrics_routes
from goqueue.api.http.server.openapi import documentation_routes
from goqueue.broker.operations import CallerProtocol, Operations
from goqueue.model.config import HttpConfig

_SMALL_BODY_BYTES = 1 << 20
_VERSION = "/v1"


def create_app(
    operations: Operations, config: HttpConfig, grpc_port: int = 0, crowd: ConnectionLimits | None = None
) -> ASGIApp:
    """Every path at the root, and again under ``/v1``. ``grpc_port``: where the same broker serves gRPC, if it does."""
    admission = Admission(config, operations.requests(CallerProtocol.HTTP), crowd)
    publish = publish_json(operations, config)
    routes = [
        *system_routes(operations, grpc_port),
        *metrics_routes(operations),
        *backup_routes(operations),
        *topic_routes(operations),
        *purge_routes(operations),
        *damage_routes(operations),
        *message_routes(operations, admission, config, publish),
        *group_routes(operations),
        *poll_routes(operations, admission, config),
        *peek_routes(operations, admission, config),
        *queue_routes(operations),
        *dead_letter_routes(operations, admission, config),
        *delay_routes(operations, config),
        *lane_routes(operations),
        *trace_routes(operations),
        *producer_routes(operations),
        *transaction_routes(operations),
        *transaction_control_routes(operations),
        *registry_routes(operations),
    ]
    app = Litestar(
        route_handlers=[*routes, *documentation_routes(routes, operations.config)],
        before_request=refuse_unknown_parameters,
        exception_handlers=EXCEPTION_HANDLERS,
        openapi_config=None,
        # Admission bounds all bodies together. Those that carry no messages are small: decoding 30 MB takes seconds.
        request_max_body_size=_SMALL_BODY_BYTES,
        logging_config=None,
    )
    framework = keeping_slashes(KEYS, versioned(app))
    return admission.wrap(
        PublishPath(publish, config.max_publish_messages, RegistryPath(operations.schemas, framework))
    )


def versioned(app: ASGIApp) -> ASGIApp:
    """Serves every path under ``/v1`` as well. Registering each twice would double the time that a start takes."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path.startswith(f"{_VERSION}/") or path == _VERSION:
            scope["path"] = path.removeprefix(_VERSION) or "/"
            scope["raw_path"] = scope["raw_path"].removeprefix(_VERSION.encode()) or b"/"
        await app(scope, receive, send)

    return serve
