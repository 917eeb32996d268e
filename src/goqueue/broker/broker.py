"""The broker: everything put together, with no network.

All state is touched by one event loop. ``start`` recovers, ``close`` leaves a folder that starts without a scan.
"""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import Coroutine, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import UUID

import msgspec

from goqueue.broker.checkpoints import Checkpoints
from goqueue.broker.disk_guard import DiskGuard
from goqueue.broker.journal import Journal
from goqueue.broker.partition import Partition
from goqueue.broker.publish import Publisher
from goqueue.broker.read import Bounds, FramesRead, MessagesRead, read_frames, read_messages, start_of
from goqueue.broker.topic import Topic
from goqueue.broker.upkeep import Upkeep
from goqueue.coordination.catalog import Catalog, CatalogEvent, CatalogState, TopicRecord
from goqueue.model.config import Config, StorageConfig
from goqueue.model.errors import CorruptData, InvalidConfiguration, ShuttingDown, TopicNotFound
from goqueue.model.fields import did_you_mean
from goqueue.model.ids import check_topic_name
from goqueue.model.logging import get_logger
from goqueue.model.ports import Clock, Randomness, SystemClock, SystemRandomness
from goqueue.model.publishing import NewMessage, Outcome
from goqueue.model.settings import TopicSettings, parse_topic_settings
from goqueue.storage.checkpoint import CheckpointFile
from goqueue.storage.commit import CommitScheduler
from goqueue.storage.files import Files, OsFiles
from goqueue.storage.folder import DataFolder
from goqueue.storage.log import Log, LogOptions
from goqueue.storage.open_files import OpenFiles
from goqueue.storage.recovery import open_log
from goqueue.wire.batch import FrameRun

log = get_logger(__name__)

METADATA = "__metadata"
_PROGRESS_EVERY_S = 2.0
_OPEN_AT_A_STRETCH = 50
_MOST_COMPARED = 200
Result = TypeVar("Result")


class Broker:
    """``async with Broker("./data") as broker:`` or ``start`` and ``close``; a ``Config`` sets more than the path."""

    def __init__(
        self,
        config: Config | Path | str,
        *,
        files: Files | None = None,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        if not isinstance(config, Config):
            config = Config(storage=StorageConfig(path=str(config)))
        self.config = config
        self.clock: Clock = clock or SystemClock()
        self._files: Files = files or OsFiles()
        self._randomness: Randomness = randomness or SystemRandomness()
        self._root = Path(config.storage.path).absolute()
        self._topics: dict[str, Topic] = {}
        self._commands: set[asyncio.Task[Any]] = set()
        self._started_ns = self.clock.monotonic_ns()
        self._running = False
        self._closing = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Life

    async def start(self) -> None:
        """Take the data folder, recover every log, begin upkeep."""
        storage = self.config.storage
        root = self._root
        try:
            self._folder = DataFolder(self._files, root)
        except OSError as error:
            raise InvalidConfiguration(f"storage.path: {root} cannot be used: {error.strerror or error}") from None
        try:
            self._open_files = OpenFiles(self._files, storage.max_open_files)
            self._commits = CommitScheduler(self._files, root)
            checkpoint_file = CheckpointFile(self._files, self._folder.checkpoint)
            self._checkpoints = Checkpoints(self._files, root, checkpoint_file, self._commits)
            self.disk = DiskGuard(self._files, root, storage.min_free_bytes, self.clock)
            self._publisher = Publisher(self.disk, self.clock)
            self._metadata = self._open_log(self._folder.logs / METADATA / "0", self.config.topic)
            if self._metadata.missing is not None:
                # Without it every topic would look like a stranger's folder.
                raise CorruptData(
                    f"{self._metadata.folder}: {self._metadata.missing}; restore the data folder from a backup"
                )
            self._catalog: Journal[Catalog] = Journal(
                self._metadata, self._commits, self._folder.snapshots / METADATA, Catalog, CatalogState, CatalogEvent
            )
            await self._open_topics()
            await self._settle_folders()
        except BaseException:
            self._folder.close()
            raise
        self._upkeep = Upkeep(self, storage, self._commits, self._checkpoints, self.disk)
        self._upkeep.start()
        self._running = True

    def stop_accepting(self) -> None:
        """Refuse new publishes and wake every reader that waits."""
        self._closing = True
        for topic in self._topics.values():
            for partition in topic.partitions:
                partition.stop_waiting()

    async def close(self) -> None:
        """Finish what was accepted, make everything durable, let go of the folder. Doing it twice does no harm."""
        if not self._running:
            return
        self._running = False
        self.stop_accepting()
        await asyncio.gather(*self._commands, return_exceptions=True)
        await self._upkeep.stop()
        logs = list(self.logs())
        await self._checkpoints.save(logs)
        await self._commits.close()
        for each in logs:
            each.close()
        self._folder.close()

    def _open_log(self, folder: Path, settings: TopicSettings) -> Log:
        return open_log(
            self._open_files, folder, self._log_options(settings), self.clock.now_ns, self._checkpoints.point(folder)
        )

    def _log_options(self, settings: TopicSettings) -> LogOptions:
        return LogOptions(
            settings.segment_bytes, self.config.storage.index_interval_bytes, compacted=settings.cleanup == "compact"
        )

    async def _open_topics(self) -> None:
        records = self._catalog.machine.state.topics.values()
        total = sum(record.partitions for record in records)
        opened, said_at = 0, time.monotonic()
        for record in records:
            self._topics[record.name] = await self._open_topic(record)
            opened += record.partitions
            if time.monotonic() - said_at > _PROGRESS_EVERY_S:
                said_at = time.monotonic()
                log.info("recovering", partitions_done=opened, partitions_total=total)

    async def _open_topic(self, record: TopicRecord) -> Topic:
        settings = self._effective(record)
        folder = self._folder.topic_folder(record.name, record.topic_id)
        partitions = []
        for number in range(record.partitions):
            if number % _OPEN_AT_A_STRETCH == _OPEN_AT_A_STRETCH - 1:
                await asyncio.sleep(0)
            place = folder / str(number)
            if not self._files.exists(place):
                log.error("a partition's folder is missing; it begins empty", topic=record.name, partition=number)
            partitions.append(Partition(self._open_log(place, settings), self._commits, settings.fsync))
        return Topic(record, settings, partitions)

    async def _settle_folders(self) -> None:
        """Remove folders of deleted topics; set aside those that nobody knows, unless they are empty."""
        state = self._catalog.machine.state
        for topic_id, folder in self._folder.topic_folders().items():
            if topic_id in state.topics:
                continue
            if topic_id not in state.deleted and self._folder.has_messages(folder):
                log.error("a folder belongs to no topic and is set aside", folder=folder.name, moved_to="orphans")
                self._folder.set_aside(folder)
            else:
                self._folder.remove_topic(folder)
        for topic_id in list(state.deleted):
            await self._forget_deleted(topic_id)

    # Topics

    def topic(self, name: str) -> Topic:
        found = self._topics.get(name)
        if found is None:
            nearly = did_you_mean(name, self._topics) if len(self._topics) <= _MOST_COMPARED else ""
            raise TopicNotFound(f"topic {name[:200]!r} does not exist{nearly}")
        return found

    def topic_names(self) -> list[str]:
        return sorted(self._topics)

    def running_topics(self) -> Iterable[Topic]:
        return self._topics.values()

    def logs(self) -> Iterable[Log]:
        yield self._metadata
        for topic in self._topics.values():
            for partition in topic.partitions:
                yield partition.log

    async def create_topic(self, name: str, raw_settings: dict[str, object] | None = None) -> Topic:
        """Make a topic; it is durable when this returns."""
        self._check_open()
        return await self._to_the_end(self._create_topic(name, raw_settings or {}))

    async def _create_topic(self, name: str, raw_settings: dict[str, object]) -> Topic:
        self.disk.check()
        overrides = parse_topic_settings(raw_settings)
        partitions = overrides.pop("partitions", self.config.topic.partitions)
        topic_id = UUID(bytes=self._randomness.random_bytes(16), version=4).hex
        record = TopicRecord(topic_id, check_topic_name(name), partitions, self.clock.now_ns(), overrides)
        limits = self.config.limits

        def decide(catalog: Catalog) -> list[CatalogEvent]:
            return catalog.decide_create(record, limits.max_topics, limits.max_total_partitions)

        # Looked at before any folder is made, and again when it is: another create may come in between.
        await self._catalog.submit(lambda catalog: decide(catalog)[:0])
        folder = self._folder.topic_folder(name, topic_id)
        await asyncio.to_thread(self._folder.create_partitions, folder, partitions)
        # Everything that can fail comes before the event: a topic that exists is one that works.
        topic = None
        try:
            topic = await self._open_topic(record)
            await self._catalog.submit(decide)
        except BaseException:
            if topic is not None:
                topic.close()
            await asyncio.to_thread(self._files.remove_tree, folder)
            raise
        self._topics[name] = topic
        log.info("topic created", topic=name, partitions=partitions)
        return topic

    async def change_topic(self, name: str, raw_settings: dict[str, object]) -> Topic:
        """Change a topic's settings while it is in use."""
        self._check_open()
        return await self._to_the_end(self._change_topic(name, raw_settings))

    async def _change_topic(self, name: str, raw_settings: dict[str, object]) -> Topic:
        topic = self.topic(name)
        changes = parse_topic_settings(raw_settings, existing=True)
        # Only what was decided here takes effect: the catalog may hold later changes that are not durable yet.
        for event in await self._catalog.submit(lambda catalog: catalog.decide_change(name, changes)):
            record = msgspec.structs.replace(topic.record, overrides=event.overrides)
            settings = self._effective(record)
            topic.change(record, settings, self._log_options(settings))
        return topic

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and its messages. If this is interrupted after it was decided, the next start finishes it."""
        self._check_open()
        await self._to_the_end(self._delete_topic(name))

    async def _delete_topic(self, name: str) -> None:
        topic = self.topic(name)
        await self._catalog.submit(lambda catalog: catalog.decide_delete(name))
        del self._topics[name]
        topic.close()
        folder = self._folder.topic_folder(name, topic.record.topic_id)
        await asyncio.to_thread(self._folder.remove_topic, folder)
        await self._forget_deleted(topic.record.topic_id)
        log.info("topic deleted", topic=name)

    async def _forget_deleted(self, topic_id: str) -> None:
        await self._catalog.submit(lambda catalog: catalog.decide_purged(topic_id))

    async def _to_the_end(self, command: Coroutine[Any, Any, Result]) -> Result:
        """Carry a command out whole even if the one who asked goes away: it may already be decided."""
        task = asyncio.create_task(command)
        self._commands.add(task)
        task.add_done_callback(self._commands.discard)
        return await asyncio.shield(task)

    def _effective(self, record: TopicRecord) -> TopicSettings:
        overrides: dict[str, Any] = {"partitions": record.partitions} | record.overrides
        return self.config.topic.with_overrides(overrides)

    async def snapshot_if_due(self) -> None:
        if self._catalog.snapshot_due:
            await self._catalog.snapshot()

    # Messages

    async def publish(self, name: str, messages: Sequence[NewMessage]) -> list[Outcome]:
        """Store messages; one outcome for each, in order."""
        self._check_open()
        return await self._publisher.publish(self.topic(name), messages)

    async def publish_frames(self, name: str, partition: int, run: FrameRun) -> int:
        """Store a batch that a client has encoded, whole or not at all; return its first offset."""
        self._check_open()
        return await self._publisher.publish_frames(self.topic(name), partition, run)

    def append_frames(self, name: str, partition: int, run: FrameRun) -> tuple[int, asyncio.Future[None]]:
        """Like ``publish_frames`` without waiting: the first offset, and a future for the acknowledgement."""
        self._check_open()
        return self._publisher.append_frames(self.topic(name), partition, run)

    async def read(
        self, name: str, number: int, bounds: Bounds, *, offset: int | None = None, from_time_ns: int | None = None
    ) -> MessagesRead:
        partition = self._readable(name, number)
        return await read_messages(partition, start_of(partition, offset, from_time_ns), bounds)

    async def read_frames(
        self, name: str, number: int, bounds: Bounds, *, offset: int | None = None, from_time_ns: int | None = None
    ) -> FramesRead:
        partition = self._readable(name, number)
        return await read_frames(partition, start_of(partition, offset, from_time_ns), bounds)

    def _readable(self, name: str, number: int) -> Partition:
        if not self._running and self._closing:
            raise ShuttingDown("the broker has stopped", retry_after_s=1)
        return self.topic(name).partition(number)

    # Itself

    @property
    def node_id(self) -> str:
        """The host's name, until nodes are configured."""
        return platform.node()

    def fsync_rounds(self) -> int:
        return self._commits.rounds

    def uptime_ms(self) -> int:
        return (self.clock.monotonic_ns() - self._started_ns) // 1_000_000

    def problems(self) -> dict[str, str]:
        """What keeps the broker from doing all of its work, by part."""
        found = {}
        failed = [str(each.folder.relative_to(self._folder.root)) for each in self.logs() if each.failure]
        if failed:
            found["storage"] = f"{len(failed)} partitions take no writes since their disk failed: {failed[:5]}"
        if self.disk.is_full():
            found["disk"] = f"{self.disk.free_bytes} bytes free, less than storage.min_free_bytes"
        if self._closing:
            found["shutdown"] = "the broker is stopping"
        return found

    @property
    def is_stopping(self) -> bool:
        return self._closing

    def damage(self) -> list[str]:
        """What was found to be damaged or gone, a line for each partition."""
        found = []
        for topic in self._topics.values():
            for number, partition in enumerate(topic.partitions):
                if partition.log.missing is not None:
                    found.append(f"{topic.name}/{number}: {partition.log.missing}")
                if partition.damaged:
                    found.append(f"{topic.name}/{number}: {len(partition.damaged)} damaged messages were left out")
        return found

    def _check_open(self) -> None:
        if self._closing:
            raise ShuttingDown("the broker is stopping and takes nothing new", retry_after_s=1)
