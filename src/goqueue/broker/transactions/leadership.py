"""Leading shards, and letting go of them, with all that they have: groups, queues of partitions, transactions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from goqueue.broker.groups.group_service import GroupService
from goqueue.broker.shards.shard import Shard
from goqueue.broker.transactions.transaction_service import TransactionService


@dataclass(frozen=True, slots=True)
class Leadership:
    _groups: GroupService
    _transactions: TransactionService

    async def lead(self, shards: Sequence[Shard]) -> None:
        """Serve shards that were let go."""
        await self._groups.lead(shards)
        await self._transactions.lead(shards)

    async def let_go(self, shard: Shard) -> None:
        """Stop serving a shard while the others go on. Requests that concern it are refused with ``NotLeader``."""
        # What transactions have under way needs the queues.
        await self._transactions.let_go(shard)
        await self._groups.shards.let_go(shard)
