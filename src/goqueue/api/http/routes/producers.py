"""Producers with ids: a retry of theirs is not stored twice, and a transaction is always one of theirs."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from goqueue.api.http.bodies.transaction_schemas import (
    InitProducerRequest,
    InitProducerResponse,
    ProducerHeartbeatRequest,
    ProducerHeartbeatResponse,
)
from goqueue.api.http.routes.broker_routes import BrokerRoutes
from goqueue.api.http.routing.declaration import Documented, post
from goqueue.broker.operations import Caller

_PRODUCER = {"producer_id": 4_514_783_002_117_349, "epoch": 0, "timeout_ms": 60_000}


class ProducerRoutes(BrokerRoutes):
    """Producers with ids."""

    tag = "Transactions"

    @post(
        "/producers/init",
        errors=(413,),
        answer=Documented("Its id and epoch.", _PRODUCER),
        summary="Get a producer's id, taking over from the producer that had its transactional id",
    )
    async def init_producer(self, caller: Caller, data: InitProducerRequest) -> InitProducerResponse:
        """The one before is fenced, and what it left open is aborted, or finished if its commit was decided."""
        found = await self._operations.producers.init(caller, data.transactional_id or None, data.timeout_ms)
        return InitProducerResponse(found.producer_id, found.epoch, found.timeout_ms)

    @post(
        "/producers/{producer_id}/heartbeat", errors=(404, 409, 413), summary="Ask whether a producer is still the one"
    )
    async def heartbeat_producer(
        self,
        caller: Caller,
        producer_id: Annotated[int, Meta(description="As init answered it.")],
        data: ProducerHeartbeatRequest,
    ) -> ProducerHeartbeatResponse:
        """It is an error if someone has taken over. The end of a transaction is not put off by it."""
        self._operations.producers.heartbeat(caller, producer_id, data.epoch)
        return ProducerHeartbeatResponse(success=True)
