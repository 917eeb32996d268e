"""The HTTP application over a broker."""

from __future__ import annotations

from goqueue.api.http.registry.compatibility import CompatibilityRoutes, RegistryMetadataRoutes
from goqueue.api.http.registry.registry_ids import SchemaIdRoutes
from goqueue.api.http.registry.registry_settings import RegistryConfigRoutes, RegistryModeRoutes
from goqueue.api.http.registry.registry_subjects import SubjectRoutes, SubjectVersionRoutes
from goqueue.api.http.routes.damage import DamageRoutes
from goqueue.api.http.routes.dead_letters import DeadLetterRoutes
from goqueue.api.http.routes.delays import DelayRoutes
from goqueue.api.http.routes.documentation import DocumentationRoutes
from goqueue.api.http.routes.groups import GroupRoutes
from goqueue.api.http.routes.lanes import LaneRoutes
from goqueue.api.http.routes.messages import MessageRoutes
from goqueue.api.http.routes.peek import PeekRoutes
from goqueue.api.http.routes.poll import PollRoutes
from goqueue.api.http.routes.publish import PublishRoutes
from goqueue.api.http.routes.queue import QueueRoutes
from goqueue.api.http.routes.system import SystemRoutes
from goqueue.api.http.routes.topics import TopicRoutes
from goqueue.api.http.routes.traces import TraceRoutes
from goqueue.api.http.routes.transaction_control import TransactionControlRoutes
from goqueue.api.http.routes.transactions import TransactionRoutes
from goqueue.api.http.routing.declaration import routes_of
from goqueue.api.http.routing.router import Router
from goqueue.api.http.server.admission import Admission
from goqueue.api.http.server.connection_limits import ConnectionLimits
from goqueue.broker.operations import CallerProtocol, Operations
from goqueue.model.config import HttpConfig


def create_app(
    operations: Operations, config: HttpConfig, grpc_port: int = 0, crowd: ConnectionLimits | None = None
) -> Admission:
    """An ASGI application. ``grpc_port``: where the same broker serves gRPC, if it does."""
    routes = routes_of(
        [
            SystemRoutes(operations, grpc_port),
            TopicRoutes(operations, config),
            DamageRoutes(operations, config),
            PublishRoutes(operations, config),
            MessageRoutes(operations, config),
            GroupRoutes(operations, config),
            PollRoutes(operations, config),
            PeekRoutes(operations, config),
            QueueRoutes(operations, config),
            DeadLetterRoutes(operations, config),
            DelayRoutes(operations, config),
            LaneRoutes(operations, config),
            TraceRoutes(operations, config),
            TransactionRoutes(operations, config),
            TransactionControlRoutes(operations),
            RegistryMetadataRoutes(operations),
            SubjectRoutes(operations),
            SubjectVersionRoutes(operations),
            SchemaIdRoutes(operations),
            CompatibilityRoutes(operations),
            RegistryConfigRoutes(operations),
            RegistryModeRoutes(operations),
        ]
    )
    documentation = routes_of([DocumentationRoutes(routes, operations.config)])
    requests = operations.requests(CallerProtocol.HTTP)
    return Admission(config, Router([*routes, *documentation], requests), requests, crowd)
