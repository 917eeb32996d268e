"""Which topics exist, and what was set for them; which ids of producers were given.

Pure: ``decide_*`` look at the state and return events or raise; ``apply`` changes the state. Ids and times come in as
arguments.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from goqueue.coordination.issued_ids import IdKeyMade, IdsConverted, IdsEvent, IdsReserved, IdsSkipped, IssuedIds
from goqueue.model.errors import InvalidRequest, TopicExists, TopicNotFound
from goqueue.model.ids import TopicId

_TOPICS = "catalog"
_IDS = "ids"


class TopicRecord(msgspec.Struct, frozen=True):
    """A topic as the catalog knows it. ``overrides`` are the settings that differ from the broker's defaults.

    ``first_shard`` is the shard of partition 0, if it does not follow from the id: dead letters are in the shard of
    the messages that they are copies of.
    """

    topic_id: TopicId
    name: str
    partitions: int
    created_at_ns: int
    overrides: dict[str, Any] = {}
    first_shard: int = 0


class TopicCreated(msgspec.Struct, frozen=True, tag="topic_created"):
    """A topic exists from now on."""

    topic: TopicRecord


class TopicChanged(msgspec.Struct, frozen=True, tag="topic_changed"):
    """A topic's overrides are these from now on, all of them."""

    topic_id: TopicId
    overrides: dict[str, Any]


class TopicDeleted(msgspec.Struct, frozen=True, tag="topic_deleted"):
    """A topic's name is free again; its folder is still to be removed."""

    topic_id: TopicId


class TopicPurged(msgspec.Struct, frozen=True, tag="topic_purged"):
    """Nothing is left of a deleted topic."""

    topic_id: TopicId


class ReceiptKeyMade(msgspec.Struct, frozen=True, tag="receipt_key_made"):
    """Receipts are proved with this key from now on."""

    key: bytes


CatalogEvent = TopicCreated | TopicChanged | TopicDeleted | TopicPurged | ReceiptKeyMade | IdsEvent


class CatalogState(msgspec.Struct):
    """What a snapshot holds of topics."""

    topics: dict[TopicId, TopicRecord] = {}
    deleted: dict[TopicId, str] = {}
    """Names of deleted topics by id, until their folders are gone: only these may be removed at a start."""
    receipt_key: bytes = b""


class Catalog:
    """The state machine of ``__metadata``."""

    def __init__(self) -> None:
        self.state = CatalogState()
        self.ids = IssuedIds()
        """Those of producers."""
        self._ids_by_name: dict[str, TopicId] = {}

    def find(self, name: str, topic_id: TopicId | None = None) -> TopicRecord:
        """The topic of this name; if an id is given, only that one and no namesake that came after it."""
        found = self._ids_by_name.get(name)
        if found is None or topic_id not in {None, found}:
            raise TopicNotFound(f"topic {name!r} does not exist")
        return self.state.topics[found]

    def decide_create(self, topic: TopicRecord, max_topics: int, max_total_partitions: int) -> list[CatalogEvent]:
        if topic.name in self._ids_by_name:
            raise TopicExists(f"topic {topic.name!r} exists already")
        if len(self.state.topics) >= max_topics:
            raise InvalidRequest(f"there are {max_topics} topics already, the most that limits.max_topics allows")
        total = sum(other.partitions for other in self.state.topics.values()) + topic.partitions
        if total > max_total_partitions:
            raise InvalidRequest(
                f"with this topic there would be {total} partitions; limits.max_total_partitions allows "
                f"{max_total_partitions}"
            )
        return [TopicCreated(topic)]

    def decide_change(
        self, name: str, changes: dict[str, Any], topic_id: TopicId | None = None, unset: Collection[str] = ()
    ) -> list[CatalogEvent]:
        topic = self.find(name, topic_id)
        overrides = {each: value for each, value in topic.overrides.items() if each not in unset} | changes
        return [TopicChanged(topic.topic_id, overrides)] if overrides != topic.overrides else []

    def decide_delete(self, name: str, topic_id: TopicId | None = None) -> list[CatalogEvent]:
        return [TopicDeleted(self.find(name, topic_id).topic_id)]

    def decide_purged(self, topic_id: TopicId) -> list[CatalogEvent]:
        return [TopicPurged(topic_id)] if topic_id in self.state.deleted else []

    def decide_receipt_key(self, key: bytes, *, renew: bool = False) -> list[CatalogEvent]:
        """Made once: receipts must stay good after a restart."""
        return [] if self.state.receipt_key and not renew else [ReceiptKeyMade(key)]

    def apply(self, event: CatalogEvent) -> None:
        state = self.state
        match event:
            case TopicCreated(topic):
                state.topics[topic.topic_id] = topic
                self._ids_by_name[topic.name] = topic.topic_id
            case TopicChanged(topic_id, overrides):
                state.topics[topic_id] = msgspec.structs.replace(state.topics[topic_id], overrides=overrides)
            case TopicDeleted(topic_id):
                name = state.topics.pop(topic_id).name
                del self._ids_by_name[name]
                state.deleted[topic_id] = name
            case TopicPurged(topic_id):
                del state.deleted[topic_id]
            case ReceiptKeyMade(key):
                state.receipt_key = key
            case IdsReserved() | IdsSkipped() | IdKeyMade() | IdsConverted():
                self.ids.apply(event)

    # Snapshots

    def parts(self) -> list[str]:
        # Earlier versions knew of no ids here, and the oldest snapshots have what there is in one part.
        return [_TOPICS] if self.ids.is_empty else [_TOPICS, _IDS]

    def part_of(self, event: CatalogEvent) -> str:
        return _IDS if isinstance(event, IdsReserved | IdsSkipped | IdKeyMade | IdsConverted) else _TOPICS

    def dump(self, part: str) -> bytes:
        return self.ids.dump() if part == _IDS else msgspec.json.encode(self.state)

    def restore(self, part: str, payload: bytes) -> None:
        if part == _IDS:
            self.ids.restore(payload)
            return
        self.state = msgspec.json.decode(payload, type=CatalogState)
        self._ids_by_name = {topic.name: topic_id for topic_id, topic in self.state.topics.items()}
