"""Making, changing and deleting topics: each is decided in the catalog, and takes effect when that is durable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

import msgspec

from goqueue.broker.partitions.running_topics import RunningTopics
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.runtime.file_freeze import FileFreeze
from goqueue.broker.runtime.journal import Journal
from goqueue.broker.topics.topic_opening import TopicOpener
from goqueue.coordination.catalog import Catalog, CatalogEvent, TopicRecord
from goqueue.model.clock import Randomness
from goqueue.model.errors import GoQueueError
from goqueue.model.ids import TopicId
from goqueue.model.logging import get_logger
from goqueue.model.names import check_topic_name
from goqueue.model.topic_settings import check_unset, parse_topic_settings
from goqueue.storage.files.disk_errors import told

log = get_logger(__name__)


@dataclass(eq=False, repr=False)
class TopicCommands:
    _topics: RunningTopics
    _catalog: Journal[Catalog]
    _opener: TopicOpener
    _stillness: FileFreeze
    _check_room: Callable[[], None]
    _randomness: Randomness
    _on_created: Callable[[Topic], None]
    _on_deleted: Callable[[Topic], None]

    async def tidy_folders(self) -> None:
        """Remove folders of deleted topics; set aside those that nobody knows, unless they are empty."""
        state = self._catalog.machine.state
        for topic_id, folder in self._opener.folder.topic_folders().items():
            if topic_id in state.topics:
                continue
            if topic_id not in state.deleted and self._opener.folder.has_messages(folder):
                log.error("a folder belongs to no topic and is set aside", folder=folder.name, moved_to="orphans")
                self._opener.folder.set_aside(folder)
            else:
                self._opener.folder.remove_topic(folder)
        for topic_id in list(state.deleted):
            await self._forget_deleted(topic_id)

    async def create(self, name: str, raw_settings: dict[str, object]) -> Topic:
        self._check_room()
        overrides = parse_topic_settings(raw_settings)
        partitions = overrides.pop("partitions", self._opener.config.topic.partitions)
        topic_id = TopicId(UUID(bytes=self._randomness.random_bytes(16), version=4).hex)
        now_ns, first_shard = self._opener.clock.now_ns(), self._first_shard_of_source(name)
        record = TopicRecord(topic_id, check_topic_name(name), partitions, now_ns, overrides, first_shard)
        limits = self._opener.config.limits

        def decide(catalog: Catalog) -> list[CatalogEvent]:
            return catalog.decide_create(record, limits.max_topics, limits.max_total_partitions)

        # Looked at before any folder is made, and again when it is: another create may come in between.
        await self._catalog.submit(lambda catalog: decide(catalog)[:0])
        folder = self._opener.folder.topic_folder(name, topic_id)
        # Everything that can fail comes before the event: a topic that exists is one that works.
        topic = None
        try:
            await asyncio.to_thread(self._opener.folder.create_partitions, folder, partitions)
            topic = await self._opener.open(record)
            # A backup has the event and the topic, or neither: it is known in the step in which this block ends.
            async with self._stillness.changing():
                await self._catalog.submit(decide)
        except BaseException as error:
            if topic is not None:
                self._opener.close(topic)
            await asyncio.to_thread(self._opener.folder.files.remove_tree, folder)
            if isinstance(error, OSError):
                raise told(error, f"making the folders of topic {name!r}") from error
            raise
        self._topics.add(topic)
        self._on_created(topic)
        log.info("topic created", topic=name, partitions=partitions)
        return topic

    def _first_shard_of_source(self, name: str) -> int:
        """A topic for dead letters has its partitions in the shards of those that the messages come from; 0 for
        other topics."""
        sources = (topic for topic in self._topics.by_name.values() if topic.dead_letter_name == name)
        return next((topic.shards[0] for topic in sources), 0)

    async def change(self, name: str, raw_settings: dict[str, object], unset: Sequence[str]) -> Topic:
        topic = self._topics.find(name)
        changes = parse_topic_settings(raw_settings, existing=True)
        gone = check_unset(unset, raw_settings)
        # Only what was decided here takes effect: the catalog may hold later changes that are not durable yet.
        topic_id = topic.record.topic_id
        for event in await self._catalog.submit(lambda catalog: catalog.decide_change(name, changes, topic_id, gone)):
            self._opener.change(topic, msgspec.structs.replace(topic.record, overrides=event.overrides))
            log.info("topic changed", topic=name, settings=changes, **({"unset": sorted(gone)} if gone else {}))
        return topic

    async def delete(self, name: str) -> None:
        """If this is interrupted after it was decided, the next start finishes it."""
        topic = self._topics.find(name)
        # By its id: the name may be free already, or that of another topic that is coming.
        topic_id = topic.record.topic_id
        await self._catalog.submit(lambda catalog: catalog.decide_delete(name, topic_id))
        self._topics.remove(topic)
        self._opener.close(topic)
        self._on_deleted(topic)
        folder = self._opener.folder.topic_folder(name, topic_id)
        log.info("topic deleted", topic=name)
        try:
            async with self._stillness.changing():
                await asyncio.to_thread(self._opener.folder.remove_topic, folder)
            await self._forget_deleted(topic_id)
        except (OSError, GoQueueError) as error:
            # It is deleted all the same, so its caller is not told of an error.
            log.error("files of a deleted topic are left for the next start to remove", topic=name, exc_info=error)

    async def _forget_deleted(self, topic_id: TopicId) -> None:
        await self._catalog.submit(lambda catalog: catalog.decide_purged(topic_id))
