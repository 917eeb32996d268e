"""Producers with ids: a retry of theirs is not stored twice, and a transaction is always one of theirs."""

from __future__ import annotations

from typing import Annotated

from litestar import post
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody, PathParameter

from goqueue.api.http.bodies.errors import documented
from goqueue.api.http.bodies.transaction_schemas import (
    InitProducerRequest,
    InitProducerResponse,
    ProducerHeartbeatRequest,
    ProducerHeartbeatResponse,
)
from goqueue.api.http.caller import AnyRequest, caller_of
from goqueue.api.http.server.openapi import answer
from goqueue.broker.operations import Operations

_TAGS = ["Transactions"]
_PRODUCER = {"producer_id": 4_514_783_002_117_349, "epoch": 0, "timeout_ms": 60_000}


def producer_routes(operations: Operations) -> list[HTTPRouteHandler]:
    @post(
        "/producers/init",
        tags=_TAGS,
        status_code=200,
        responses={**documented(413), 200: answer(InitProducerResponse, "Its id and epoch.", _PRODUCER)},
        summary="Get a producer's id, taking over from whoever had its transactional id",
    )
    async def init_producer(request: AnyRequest, data: JSONBody[InitProducerRequest]) -> InitProducerResponse:
        """The one before is fenced, and what it left open is aborted, or finished if its commit was decided."""
        found = await operations.producers.init(caller_of(request), data.transactional_id or None, data.timeout_ms)
        return InitProducerResponse(found.producer_id, found.epoch, found.timeout_ms)

    @post(
        "/producers/{producer_id:int}/heartbeat",
        tags=_TAGS,
        status_code=200,
        responses=documented(404, 409, 413),
        summary="Ask whether a producer is still the one",
    )
    async def heartbeat_producer(
        request: AnyRequest,
        producer_id: Annotated[int, PathParameter(description="As init answered it.")],
        data: JSONBody[ProducerHeartbeatRequest],
    ) -> ProducerHeartbeatResponse:
        """It is an error if someone has taken over. The end of a transaction is not put off by it."""
        operations.producers.heartbeat(caller_of(request), producer_id, data.epoch)
        return ProducerHeartbeatResponse(success=True)

    return [init_producer, heartbeat_producer]
