"""What must hold before a transaction can be prepared or committed: all of it is there, and on the disk."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from goqueue.broker.groups.group_service import GroupService
from goqueue.broker.transactions.aborting import Aborting
from goqueue.broker.transactions.open_transaction import OpenTransaction
from goqueue.model.errors import GoQueueError, TransactionAborted


class Known(NamedTuple):
    """What a producer that has begun a transaction itself was told of it: in which life of the broker all of it was
    done, and how many messages it has."""

    incarnation: int
    messages: int


class TransactionDurability:
    """What does not hold is aborted."""

    def __init__(self, groups: GroupService, aborting: Aborting, incarnation: int) -> None:
        self._groups = groups
        self._aborting = aborting
        self._incarnation = incarnation

    async def check_whole(self, transaction: OpenTransaction, knows: Known | None) -> None:
        """A start aborts what is open. What comes after it may have begun the transaction anew, without the rest."""
        if knows is None or transaction.state != "ongoing":
            return
        if knows != Known(self._incarnation, transaction.messages):
            await self._aborting.give_up(transaction, "the broker was started again while it was open")

    async def make_safe(self, transaction: OpenTransaction) -> None:
        """Bring everything that it has written to the disk, whatever its topics promise otherwise."""
        try:
            _check_topics(transaction)
            touches = transaction.touched.values()
            await asyncio.gather(*[each.partition.durable(each.end) for each in touches])
            for name in {each.group for each in transaction.acks}:
                await self._groups.shards.journal(name).settled()
            # A topic may have been deleted meanwhile: then it cannot be committed whole.
            _check_topics(transaction)
        except GoQueueError as error:
            reason = f"what it has written cannot be made safe: {error}"
            before, transaction.state = transaction.state, "preparing_abort"
            await self._aborting.aborted(transaction, reason, before)
            raise TransactionAborted(f"transaction {transaction.transaction_id} was aborted: {reason}") from error


def _check_topics(transaction: OpenTransaction) -> None:
    for each in transaction.touched.values():
        if each.topic.closed:
            raise TransactionAborted(f"topic {each.topic.name!r} was deleted")
