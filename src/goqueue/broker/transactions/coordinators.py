"""Which coordinator a producer, a transaction, a transactional id and a commit key have, of those that are led here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from goqueue.broker.runtime.journal import Journal
from goqueue.broker.runtime.shard_placement import shard_of_commit_key, shard_of_transactional_id
from goqueue.broker.transactions.coordinator import Coordinator
from goqueue.broker.transactions.open_transactions import OpenTransaction
from goqueue.coordination.catalog import Catalog
from goqueue.coordination.issued_ids import IssuedIds
from goqueue.coordination.transaction_records import producer_of
from goqueue.model.errors import NotLeader, TransactionNotFound
from goqueue.model.fields import shown


class Coordinators:
    """``by_shard`` has those that are led, also while they take up what their journals know."""

    def __init__(self, catalog: Journal[Catalog]) -> None:
        self._catalog = catalog
        self.by_shard: dict[int, Coordinator] = {}

    @property
    def ids(self) -> IssuedIds:
        return self._catalog.machine.ids

    @property
    def serving(self) -> list[Coordinator]:
        """In the order of their shards."""
        return [each for _, each in sorted(self.by_shard.items()) if each.is_serving]

    # Finding

    def of_producer(self, producer_id: int) -> Coordinator:
        return self._serving(self.ids.shard_of(producer_id))

    def name_of(self, producer_id: int) -> str:
        """The transactional id of a producer; empty if it has none, or that is not known here."""
        found = self.by_shard.get(self.ids.shard_of(producer_id))
        return "" if found is None else found.state.name_of(producer_id)

    def of_name(self, name: str) -> Coordinator:
        return self._serving(shard_of_transactional_id(name))

    def of_key(self, key: str) -> Coordinator:
        """The one that decides what is committed under an application key."""
        return self._serving(shard_of_commit_key(key))

    def of(self, transaction_id: str) -> Coordinator:
        """The one of a transaction, which may be over, or never have been."""
        producer_id = producer_of(transaction_id)
        if producer_id is not None:
            shard = self.ids.shard_of(producer_id)
            if shard in self.by_shard or self.ids.number_of(producer_id) is not None:
                return self._serving(shard)
        raise TransactionNotFound(f"there is no transaction {shown(transaction_id)}")

    def _serving(self, shard: int) -> Coordinator:
        found = self.by_shard.get(shard)
        if found is None or not found.is_serving:
            raise NotLeader(f"this broker does not lead shard {shard}, which coordinates the producer, at present")
        return found

    # Of all together

    def open_count(self) -> int:
        return sum(len(each.opened) for each in self.by_shard.values())

    def states(self) -> Mapping[str, int]:
        """How many transactions are in each state."""
        return Counter(each.state for each in self.all_open())

    def all_open(self) -> list[OpenTransaction]:
        """Transactions that have not ended, the oldest first."""
        found: Iterable[OpenTransaction] = (one for each in self.serving for one in each.opened.all())
        return sorted(found, key=lambda each: each.started_ns)
