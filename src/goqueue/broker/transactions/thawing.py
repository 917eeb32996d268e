"""Giving back what groups hold for transactions that are over, when shards are led again.

Who held it may have been aborted while the shard of the queue was not led, or was open when its own shard was let go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from goqueue.broker.queues.transactional_acks import TransactionalAcks
from goqueue.broker.transactions.coordinators import Coordinators
from goqueue.coordination.transaction_records import producer_of
from goqueue.delivery.in_flight_batch import HOLDER_PREFIX
from goqueue.model.errors import GoQueueError, StorageFailed
from goqueue.model.logging import get_logger

log = get_logger(__name__)

_TRY_AGAIN_S = 1.0


class Thawing:
    def __init__(self, coordinators: Coordinators, acks: TransactionalAcks) -> None:
        self._coordinators = coordinators
        self._acks = acks
        self._later: asyncio.Task[None] | None = None

    def thaw(self) -> None:
        """What is held for a transaction whose coordinator is led here, and does not know it any more, is delivered
        again. What cannot be given back for now is tried again."""
        try:
            self._acks.thaw_where(self._is_over())
        except StorageFailed:
            raise
        except GoQueueError as error:
            log.error("messages of aborted transactions cannot be given back for now", error=str(error))
            if self._later is None:
                self._later = asyncio.create_task(self._try_again())

    def _is_over(self) -> Callable[[str], bool]:
        """Of the member that holds messages for a transaction, whether that has ended."""
        shard_of = self._coordinators.ids.shard_of
        holders = {
            each.shard: {one.holder for one in each.opened.all()} | each.completion.holders
            for each in self._coordinators.serving
        }

        def is_over(holder: str) -> bool:
            producer_id = producer_of(holder.removeprefix(HOLDER_PREFIX))
            if producer_id is None:
                return True
            known = holders.get(shard_of(producer_id))
            return known is not None and holder not in known

        return is_over

    async def _try_again(self) -> None:
        try:
            await asyncio.sleep(_TRY_AGAIN_S)
        finally:
            self._later = None
        try:
            self.thaw()
        except StorageFailed as error:
            log.error("messages of aborted transactions stay back until a restart", error=str(error))

    async def stop(self) -> None:
        if self._later is not None:
            self._later.cancel()
            await asyncio.gather(self._later, return_exceptions=True)
