"""Which journals a broker has, for the broker itself and for whoever examines its folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic

from goqueue.broker.runtime.journal import Machine
from goqueue.broker.runtime.shard_placement import SHARDS
from goqueue.coordination.catalog import Catalog, CatalogEvent
from goqueue.coordination.schema_records import SchemasEvent
from goqueue.coordination.schemas import Schemas
from goqueue.coordination.shard_state import JournaledEvent, ShardState
from goqueue.coordination.transaction_records import TransactionsEvent
from goqueue.coordination.transactions import Transactions


@dataclass(frozen=True, slots=True)
class JournalKind(Generic[Machine]):
    """``holds``: what is in it, for people. ``without`` it: what stands still if it fails."""

    name: str
    make: Callable[[], Machine]
    events: Any
    holds: str
    without: str
    snapshot_every: int = 1_000
    """How many events lie between two snapshots."""
    shards: range | None = None
    """Their numbers, fixed for good: ``shard_placement`` decides in which of them state is kept."""

    @property
    def numbers(self) -> range:
        """Of its journals; a kind without shards has one."""
        return range(1) if self.shards is None else self.shards

    def snapshot_name(self, shard: int) -> str:
        return self.name if self.shards is None else f"{self.name}-{shard}"


CATALOG = JournalKind(
    "__metadata", Catalog, CatalogEvent, "which topics there are", "topics cannot be made, changed or deleted"
)
SCHEMAS = JournalKind("__schemas", Schemas, SchemasEvent, "the schemas", "schemas cannot be registered or deleted")
TRANSACTIONS = JournalKind(
    "__transactions",
    Transactions,
    TransactionsEvent,
    "how transactions ended",
    "no transaction can be committed",
    snapshot_every=10_000,
)
SHARD_STATE = JournalKind(
    "__shards",
    ShardState,
    JournaledEvent,
    "which groups there are, and what they have done in their partitions",
    "groups and partitions of shard {shard} deliver and settle nothing",
    snapshot_every=20_000,
    shards=range(1, SHARDS),
)
EARLIER_GROUPS = JournalKind(
    "__groups",
    ShardState,
    JournaledEvent,
    "where groups are",
    "groups of the earlier shard {shard} deliver and settle nothing",
    shards=range(4),
)
"""Until format 3: groups with all of their queues, by name. A start converts them (``earlier_groups``)."""

EARLIER_CONVERTED = EARLIER_GROUPS.name + ".converted"
"""What their folder is called once they are converted, until it is removed."""

KINDS: dict[str, JournalKind[Any]] = {
    kind.name: kind for kind in (CATALOG, SCHEMAS, TRANSACTIONS, SHARD_STATE, EARLIER_GROUPS)
}
