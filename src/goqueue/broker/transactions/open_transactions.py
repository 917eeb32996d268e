"""The transactions that have not ended, and how the last of the others did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from goqueue.broker.transactions.open_transaction import OpenTransaction
from goqueue.model.errors import TransactionAborted, TransactionConflict, TransactionNotFound
from goqueue.model.fields import shown

_REMEMBERED = 10_000


class OpenTransactions:
    """``is_committed`` tells what the journal knows."""

    def __init__(self, is_committed: Callable[[str], bool]) -> None:
        self._in_journal = is_committed
        self._by_id: dict[str, OpenTransaction] = {}
        self._by_producer: dict[int, OpenTransaction] = {}
        self.reasons: dict[str, str] = {}
        """Why transactions were aborted, of the last that were."""
        self._empty: dict[str, None] = {}
        """Transactions that were committed and had done nothing, the last of them: the journal knows none of these."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, transaction_id: str) -> bool:
        return transaction_id in self._by_id

    def all(self) -> list[OpenTransaction]:
        """The oldest first."""
        return list(self._by_id.values())

    def get(self, transaction_id: str) -> OpenTransaction | None:
        return self._by_id.get(transaction_id)

    def of(self, producer_id: int) -> OpenTransaction | None:
        return self._by_producer.get(producer_id)

    def find(self, transaction_id: str) -> OpenTransaction:
        found = self._by_id.get(transaction_id)
        if found is None:
            reason = self.reasons.get(transaction_id)
            if reason is not None:
                raise TransactionAborted(f"transaction {transaction_id} was aborted: {reason}")
            if self.is_committed(transaction_id):
                raise TransactionConflict(f"transaction {transaction_id} is committed")
            raise TransactionNotFound(f"there is no transaction {shown(transaction_id)}")
        return found

    def ongoing(self, producer_id: int, epoch: int, transaction_id: str | None) -> OpenTransaction:
        """The one to which a producer may add something; without an id, the one that it has."""
        found = self._by_producer.get(producer_id) if transaction_id is None else self.find(transaction_id)
        if found is None:
            raise TransactionNotFound(
                f"producer {producer_id} has no transaction open{self._last_reason(producer_id, epoch)}"
            )
        if found.producer_id != producer_id or found.epoch != epoch:
            raise TransactionConflict(f"transaction {found.transaction_id} is another producer's")
        found.check_ongoing()
        return found

    def _last_reason(self, producer_id: int, epoch: int) -> str:
        start = f"{producer_id}-{epoch}-"
        reasons = [reason for each, reason in reversed(self.reasons.items()) if each.startswith(start)]
        return f"; its last one was aborted: {reasons[0]}" if reasons else ""

    def is_known(self, transaction_id: str) -> bool:
        """Whether it is open, or how it ended is remembered."""
        return transaction_id in self._by_id or transaction_id in self.reasons or self.is_committed(transaction_id)

    def is_committed(self, transaction_id: str) -> bool:
        return transaction_id in self._empty or self._in_journal(transaction_id)

    def states(self) -> Mapping[str, int]:
        """How many transactions are in each state."""
        found: dict[str, int] = {}
        for each in self._by_id.values():
            found[each.state] = found.get(each.state, 0) + 1
        return found

    # Changing

    def add(self, transaction: OpenTransaction) -> None:
        self._by_id[transaction.transaction_id] = transaction
        self._by_producer[transaction.producer_id] = transaction

    def note_empty(self, transaction: OpenTransaction) -> None:
        """It is committed and has done nothing."""
        self._empty[transaction.transaction_id] = None
        _keep_last(self._empty)

    def note_aborted(self, transaction_id: str, reason: str) -> None:
        """What comes late for it must not begin it."""
        self.reasons[transaction_id] = reason
        _keep_last(self.reasons)

    def forget(self, transaction: OpenTransaction, reason: str | None = None) -> None:
        """It has ended; ``reason``: why it was aborted, if it was."""
        if reason is not None:
            self.note_aborted(transaction.transaction_id, reason)
        self._by_id.pop(transaction.transaction_id, None)
        if self._by_producer.get(transaction.producer_id) is transaction:
            del self._by_producer[transaction.producer_id]


def _keep_last(kept: dict[str, Any]) -> None:
    while len(kept) > _REMEMBERED:
        del kept[next(iter(kept))]
