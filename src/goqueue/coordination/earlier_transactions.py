"""The state machine of ``__transactions``, where versions up to format 4 kept transactions and the ids of producers.

It is read to convert it and to examine it; nothing is added to it any more.
"""

from __future__ import annotations

from collections.abc import Callable

from goqueue.coordination.issued_ids import IdKeyMade, IdsConverted, IdsReserved, IdsSkipped, IssuedIds
from goqueue.coordination.transaction_records import CoordinatorEvent, KeyUsed, ProducerNamed, TransactionsEvent
from goqueue.coordination.transaction_records import producer_of as producer_of_transaction
from goqueue.coordination.transactions import Transactions

EarlierEvent = TransactionsEvent | IdsReserved | IdsSkipped | IdKeyMade
_IDS = "ids"


class EarlierTransactions:
    def __init__(self) -> None:
        self.ids = IssuedIds()
        self.transactions = Transactions()

    # What becomes of it

    def named_ids(self, shard_of_name: Callable[[str], int]) -> dict[int, int]:
        """The shards of ids that have a transactional id. All others belong to one shard."""
        known = self.transactions
        found = {producer.producer_id: shard_of_name(name) for name, producer in known.producers()}
        for each in (*known.prepared.values(), *known.decided.values()):
            if each.name:
                found.setdefault(each.producer_id, shard_of_name(each.name))
        return found

    def converted_ids(self, shard_of_name: Callable[[str], int]) -> IdsConverted:
        return self.ids.converted(self.named_ids(shard_of_name))

    def divide(
        self,
        states: Callable[[int], Transactions],
        shard_of_name: Callable[[str], int],
        shard_of_key: Callable[[str], int],
        shard_of_id: Callable[[int], int],
    ) -> None:
        """Add everything to the states of the shards' coordinators."""
        known = self.transactions
        for name, producer in known.producers():
            states(shard_of_name(name)).apply(ProducerNamed(name, producer))
        for key, used in known.used_keys():
            states(shard_of_key(key)).apply(KeyUsed(key, used))
        for transaction_id, record in known.prepared.items():
            states(shard_of_id(record.producer_id)).prepared[transaction_id] = record
        for transaction_id, record in known.decided.items():
            states(shard_of_id(record.producer_id)).decided[transaction_id] = record
        for transaction_id in known.committed:
            producer_id = producer_of_transaction(transaction_id)
            if producer_id is not None:
                states(shard_of_id(producer_id)).committed[transaction_id] = None

    # As a journal's state machine

    def apply(self, event: EarlierEvent) -> None:
        if isinstance(event, CoordinatorEvent):
            self.transactions.apply(event)
        else:
            self.ids.apply(event)

    def parts(self) -> list[str]:
        return [_IDS, *self.transactions.parts()]

    def part_of(self, event: EarlierEvent) -> str:
        return self.transactions.part_of(event) if isinstance(event, CoordinatorEvent) else _IDS

    def dump(self, part: str) -> bytes:
        return self.ids.dump() if part == _IDS else self.transactions.dump(part)

    def restore(self, part: str, payload: bytes) -> None:
        if part == _IDS:
            self.ids.restore(payload)
        else:
            self.transactions.restore(part, payload)
