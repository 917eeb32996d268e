"""Which journals a broker has, for the broker itself and for whoever examines its folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic

from goqueue.broker.runtime.journal import Machine
from goqueue.broker.runtime.shard_placement import SHARD_NUMBERS
from goqueue.coordination.catalog import Catalog, CatalogEvent
from goqueue.coordination.earlier_transactions import EarlierEvent, EarlierTransactions
from goqueue.coordination.schema_records import SchemasEvent
from goqueue.coordination.schemas import Schemas
from goqueue.coordination.shard_state import JournaledEvent, ShardState


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
    is_earlier: bool = False
    """Whether only earlier versions have it: a start converts it."""

    @property
    def converted_name(self) -> str:
        """What the folder of an earlier kind is called once it is converted, until it is removed."""
        return f"{self.name}.converted"

    @property
    def numbers(self) -> range:
        """Of its journals; a kind without shards has one."""
        return range(1) if self.shards is None else self.shards

    def snapshot_name(self, shard: int) -> str:
        return self.name if self.shards is None else f"{self.name}-{shard}"


CATALOG = JournalKind(
    "__metadata",
    Catalog,
    CatalogEvent,
    "which topics there are, and which ids producers were given",
    "topics cannot be made, changed or deleted, and new producers get no ids",
)
SCHEMAS = JournalKind("__schemas", Schemas, SchemasEvent, "the schemas", "schemas cannot be registered or deleted")
SHARD_STATE = JournalKind(
    "__shards",
    ShardState,
    JournaledEvent,
    "which groups there are, what they have done in their partitions, and how transactions ended",
    "groups and partitions of shard {shard} deliver and settle nothing, and its transactions cannot be committed",
    snapshot_every=20_000,
    shards=SHARD_NUMBERS,
)
EARLIER_GROUPS = JournalKind(
    "__groups",
    ShardState,
    JournaledEvent,
    "where groups are",
    "groups of the earlier shard {shard} deliver and settle nothing",
    shards=range(4),
    is_earlier=True,
)
"""Until format 3: groups with all of their queues, by name (``earlier_groups``)."""
EARLIER_TRANSACTIONS = JournalKind(
    "__transactions",
    EarlierTransactions,
    EarlierEvent,
    "how transactions ended",
    "transactions cannot be converted",
    is_earlier=True,
)
"""Until format 4: all transactions, and the ids of producers (``earlier_transactions``)."""

KINDS: dict[str, JournalKind[Any]] = {
    kind.name: kind for kind in (CATALOG, SCHEMAS, SHARD_STATE, EARLIER_GROUPS, EARLIER_TRANSACTIONS)
}
