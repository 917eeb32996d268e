"""What one coordinator of transactions decides: events in the journal of its shard, for as long as it is led here."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.broker.runtime.journal import Journal
from goqueue.coordination.shard_state import ShardState
from goqueue.coordination.transaction_records import TransactionsEvent
from goqueue.coordination.transactions import Transactions
from goqueue.model.errors import NotLeader


class CoordinatorJournal:
    """``journal`` is the shard's, for those who wait for it; events go through ``propose``."""

    def __init__(self, shard: int, journal: Journal[ShardState]) -> None:
        self.shard = shard
        self.journal = journal
        self.is_led = True
        """Until the shard is let go, and all that was begun is finished. From then on the journal has another life."""

    @property
    def state(self) -> Transactions:
        return self.journal.machine.transactions

    def propose(self, events: Sequence[TransactionsEvent]) -> None:
        if not self.is_led:
            raise NotLeader(f"this broker does not lead shard {self.shard}, which has the transaction, at present")
        self.journal.propose(events)
