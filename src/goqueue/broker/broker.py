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

from goqueue.broker.appending import Appended, Appender
from goqueue.broker.checkpoints import Checkpoints
from goqueue.broker.clockwork import Clockwork
from goqueue.broker.dead_letter_topics import dead_letter_topic, find_or_make
from goqueue.broker.dedup import DedupIds, Room
from goqueue.broker.delays import Delays
from goqueue.broker.disk_guard import DiskGuard
from goqueue.broker.group_shards import GroupShards
from goqueue.broker.groups import GroupService
from goqueue.broker.health import Health
from goqueue.broker.journal import Journal
from goqueue.broker.journals import Journals
from goqueue.broker.metrics import Metrics
from goqueue.broker.notes import Notes
from goqueue.broker.open_transaction import OpenTransaction
from goqueue.broker.partition import Partition
from goqueue.broker.producer_files import ProducerFiles
from goqueue.broker.publish import Publisher
from goqueue.broker.read import Bounds, FramesRead, MessagesRead, read_frames, read_messages, start_of
from goqueue.broker.refused import ALL_FIT, Refusals, Refused
from goqueue.broker.schema_check import SchemaCheck
from goqueue.broker.schema_registry import SchemaRegistry
from goqueue.broker.topic import Topic
from goqueue.broker.trace_search import TraceSearch
from goqueue.broker.traces import Traces
from goqueue.broker.tracing import Tracing
from goqueue.broker.transaction_ends import TransactionEnds
from goqueue.broker.transactions import TransactionService
from goqueue.broker.upkeep import Upkeep
from goqueue.coordination.catalog import Catalog, CatalogEvent, TopicRecord
from goqueue.coordination.groups import Groups, GroupsEvent
from goqueue.coordination.schema_records import SchemasEvent
from goqueue.coordination.schemas import Schemas
from goqueue.coordination.transactions import Transactions, TransactionsEvent
from goqueue.model.config import Config, StorageConfig
from goqueue.model.errors import (
    InvalidConfiguration,
    InvalidRequest,
    ShuttingDown,
    TopicNotFound,
)
from goqueue.model.fields import did_you_mean, shown
from goqueue.model.ids import check_topic_name
from goqueue.model.logging import get_logger
from goqueue.model.message import Message
from goqueue.model.ports import Clock, Randomness, SystemClock, SystemRandomness
from goqueue.model.publishing import NewMessage, Outcome
from goqueue.model.sequences import SEQUENCES
from goqueue.model.settings import TopicSettings, parse_topic_settings
from goqueue.observe.trace_event import place_name
from goqueue.storage.checkpoint import CheckpointFile
from goqueue.storage.commit import CommitScheduler
from goqueue.storage.files import Files, OsFiles
from goqueue.storage.folder import DataFolder
from goqueue.storage.log import Log, LogOptions
from goqueue.storage.open_files import OpenFiles
from goqueue.wire.batch import FrameRun

log = get_logger(__name__)

METADATA = "__metadata"
GROUPS = "__groups"
SCHEMAS = "__schemas"
TRANSACTIONS = "__transactions"
TRACES = "traces"
_GROUP_SHARDS = 4
"""Fixed for good: a group's name decides where it is kept."""
_GROUP_SNAPSHOT_EVERY = 20_000
_TRANSACTION_SNAPSHOT_EVERY = 10_000
_KEY_BYTES = 32
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
        self.randomness: Randomness = randomness or SystemRandomness()
        self._root = Path(config.storage.path).absolute()
        self._topics: dict[str, Topic] = {}
        self._topics_by_id: dict[str, Topic] = {}
        self._commands: set[asyncio.Task[Any]] = set()
        self._dedup_room = Room(config.limits.max_dedup_ids)
        self._started_ns = self.clock.monotonic_ns()
        self.metrics = Metrics(self)
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
        tracing: Tracing | None = None
        try:
            self._open_files = OpenFiles(self._files, storage.max_open_files, storage.lane_index_bytes)
            self._commits = CommitScheduler(self._files, root, self.clock.monotonic_ns)
            self._commits.on_round = self.metrics.note_fsync
            checkpoint_file = CheckpointFile(self._files, self._folder.checkpoint)
            self._checkpoints = Checkpoints(self._files, root, checkpoint_file, self._commits)
            self.disk = DiskGuard(self._files, root, storage.min_free_bytes, self.clock)
            self.clockwork = Clockwork(self.clock)
            self.tracing = tracing = Tracing(
                self.config.trace, self._files, root / TRACES, self.clock, self.node_id, self.topic, self.disk.is_full
            )
            self.notes = Notes(self.tracing.tracer, self.clock, self.topic_by_id)
            self.delays = Delays(
                self.clockwork,
                self.clock,
                self._files,
                self._commits,
                self.disk.check,
                self.topic,
                self.config.limits.max_delayed,
                self.notes,
            )
            self._journals = Journals(
                self._folder, self._open_files, self._commits, self._checkpoints, self.config, self.clock
            )
            journal = self._journals.open
            without = "topics cannot be made, changed or deleted"
            self._catalog: Journal[Catalog] = journal(METADATA, Catalog, CatalogEvent, 1_000, without)
            without = "schemas cannot be registered or deleted"
            self._schema_journal: Journal[Schemas] = journal(SCHEMAS, Schemas, SchemasEvent, 1_000, without)
            self.schemas = SchemaRegistry(self._schema_journal, self.config.schemas, self.check_open)
            self._schema_check = SchemaCheck(self.schemas)
            self._refusals = Refusals(
                self._schema_check, self.delays, self._commits, self.notes, self._dead_letter_topic
            )
            self._transaction_journal: Journal[Transactions] = journal(
                TRANSACTIONS,
                Transactions,
                TransactionsEvent,
                _TRANSACTION_SNAPSHOT_EVERY,
                "no transaction can be committed",
            )
            self.transactions = TransactionService(
                self._transaction_journal,
                self.config.transactions,
                self._commits,
                self.clock,
                self.randomness,
                self.clockwork,
            )
            self._appender = Appender(
                self.delays,
                self._refusals,
                self.transactions.check_producer,
                self.config.limits.max_producers_per_partition,
                self.clock,
            )
            self.producer_files = ProducerFiles(self._files, self._commits, self.clock, self.config)
            self._publisher = Publisher(
                self.disk, self.clock, self.delays, self._refusals, self._appender, self.metrics.publish
            )
            await self._open_topics()
            await self._settle_folders()
            await self._open_groups()
            await self._open_transactions()
        except BaseException:
            self._folder.close()
            if tracing is not None:
                await tracing.stop()
            raise
        self.traces = Traces(self, self.groups, self.tracing, self.config.trace.search_bytes)
        self.trace_search = TraceSearch(self.traces, self.config.trace.search_bytes)
        self.delays.start()
        self.tracing.start()
        self._upkeep = Upkeep(self, storage, self._commits, self._checkpoints, self.disk)
        self._upkeep.start()
        self.health = Health(self, self._commits, self._open_files, self._upkeep, self._journals.by_what_stands_still())
        self.metrics.start()
        self.health.loop_delay_ns = self.metrics.loop_delay.worst_ns
        self._running = True

    def stop_accepting(self) -> None:
        """Refuse new publishes and wake every reader that waits."""
        self._closing = True
        self.groups.shards.stop()
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
        await self._refusals.buried()
        self._schema_check.close()
        await self.schemas.close()
        self.clockwork.stop()
        await self.transactions.stop()
        await self.delays.stop()
        await self.groups.stop()
        await self._upkeep.stop()
        await self.metrics.stop()
        await self.delays.save(everything=True)
        await self.producer_files.save(self._topics.values(), everything=True)
        logs = list(self.logs())
        await self._checkpoints.save(logs)
        await self._commits.close()
        await self.tracing.stop()
        for each in logs:
            each.close()
        self._folder.close()

    async def _open_groups(self) -> None:
        key = self.randomness.random_bytes(_KEY_BYTES)
        await self._catalog.submit(lambda catalog: catalog.decide_receipt_key(key))
        self._group_journals: list[Journal[Groups]] = [
            self._journals.open(
                GROUPS,
                Groups,
                GroupsEvent,
                _GROUP_SNAPSHOT_EVERY,
                f"groups of shard {number} deliver and settle nothing",
                number,
            )
            for number in range(_GROUP_SHARDS)
        ]
        shards = GroupShards(self, self._group_journals, self._catalog.machine.state.receipt_key, self.clockwork)
        self.groups: GroupService = GroupService(shards, self._commits, self._create_topic, self.disk.check)
        try:
            await self.groups.start()
        except BaseException:
            await self.groups.stop()
            raise

    async def _open_transactions(self) -> None:
        """Before anyone reads or polls: what was committed is seen, and what was not is not."""
        self._transaction_ends = TransactionEnds(
            self._transaction_journal, self.groups, self.delays, self._commits, self.clock, self.notes
        )
        try:
            await self.transactions.start(
                self.groups, self._transaction_ends, self._topics.values(), self._topics_by_id.get
            )
        except BaseException:
            await self.groups.stop()
            raise

    def _log_options(self, settings: TopicSettings) -> LogOptions:
        return LogOptions(
            settings.segment_bytes, self.config.storage.index_interval_bytes, compacted=settings.cleanup == "compact"
        )

    async def _open_topics(self) -> None:
        records = self._catalog.machine.state.topics.values()
        total = sum(record.partitions for record in records)
        opened, said_at = 0, time.monotonic()
        for record in records:
            self._know(await self._open_topic(record))
            opened += record.partitions
            if time.monotonic() - said_at > _PROGRESS_EVERY_S:
                said_at = time.monotonic()
                log.info("recovering", partitions_done=opened, partitions_total=total)

    def _know(self, topic: Topic) -> None:
        self._topics[topic.name] = self._topics_by_id[topic.record.topic_id] = topic

    async def _open_topic(self, record: TopicRecord) -> Topic:
        settings = self._effective(record)
        folder = self._folder.topic_folder(record.name, record.topic_id)
        partitions = []
        dedup = DedupIds(self._dedup_room)
        for number in range(record.partitions):
            if number % _OPEN_AT_A_STRETCH == _OPEN_AT_A_STRETCH - 1:
                await asyncio.sleep(0)
            place = folder / str(number)
            if not self._files.exists(place):
                log.error("a partition's folder is missing; it begins empty", topic=record.name, partition=number)
            opened_log = self._journals.open_log(place, self._log_options(settings))
            partition = Partition(opened_log, self._commits, settings.fsync, place_name(record.name, number))
            producers, point, now_ns = partition.producers, self._checkpoints.point(place), self.clock.now_ns()
            producers.recover(self._files, point, now_ns)
            dedup.restore(number, producers.loaded_ids, producers.found_ids, now_ns)
            producers.loaded_ids, producers.found_ids = [], []
            self.delays.opened(partition, point)
            partitions.append(partition)
        return Topic(record, settings, partitions, dedup)

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

    def topic_by_id(self, topic_id: str) -> Topic | None:
        return self._topics_by_id.get(topic_id)

    def topic_names(self) -> list[str]:
        return sorted(self._topics)

    def running_topics(self) -> Iterable[Topic]:
        return self._topics.values()

    def logs(self) -> Iterable[Log]:
        yield from self._journals.logs()
        for topic in self._topics.values():
            for partition in topic.partitions:
                yield partition.log

    async def create_topic(self, name: str, raw_settings: dict[str, object] | None = None) -> Topic:
        """Make a topic; it is durable when this returns."""
        self.check_open()
        return await self._to_the_end(self._create_topic(name, raw_settings or {}))

    async def _create_topic(self, name: str, raw_settings: dict[str, object]) -> Topic:
        self.disk.check()
        overrides = parse_topic_settings(raw_settings)
        partitions = overrides.pop("partitions", self.config.topic.partitions)
        topic_id = UUID(bytes=self.randomness.random_bytes(16), version=4).hex
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
                self.delays.forget(topic.partitions)
            await asyncio.to_thread(self._files.remove_tree, folder)
            raise
        self._know(topic)
        self.groups.topic_created(topic)
        log.info("topic created", topic=name, partitions=partitions)
        return topic

    async def change_topic(self, name: str, raw_settings: dict[str, object]) -> Topic:
        """Change a topic's settings while it is in use."""
        self.check_open()
        return await self._to_the_end(self._change_topic(name, raw_settings))

    async def _change_topic(self, name: str, raw_settings: dict[str, object]) -> Topic:
        topic = self.topic(name)
        changes = parse_topic_settings(raw_settings, existing=True)
        # Only what was decided here takes effect: the catalog may hold later changes that are not durable yet.
        topic_id = topic.record.topic_id
        for event in await self._catalog.submit(lambda catalog: catalog.decide_change(name, changes, topic_id)):
            record = msgspec.structs.replace(topic.record, overrides=event.overrides)
            settings = self._effective(record)
            topic.change(record, settings, self._log_options(settings))
            log.info("topic changed", topic=name, settings=changes)
        return topic

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and its messages. If this is interrupted after it was decided, the next start finishes it."""
        self.check_open()
        await self._to_the_end(self._delete_topic(name))

    async def _delete_topic(self, name: str) -> None:
        topic = self.topic(name)
        # By its id: the name may be free already, or that of another topic that is coming.
        topic_id = topic.record.topic_id
        await self._catalog.submit(lambda catalog: catalog.decide_delete(name, topic_id))
        if self._topics.get(name) is topic:
            del self._topics[name]
        del self._topics_by_id[topic_id]
        topic.close()
        self.delays.forget(topic.partitions)
        self.groups.topic_deleted(topic)
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
        await self._journals.snapshot_if_due()

    # Messages

    async def publish(
        self,
        name: str,
        messages: Sequence[NewMessage],
        transaction: OpenTransaction | None = None,
        sequence: int | None = None,
    ) -> list[Outcome]:
        """Store messages; one outcome for each, in order. In a transaction nobody sees them before it is committed."""
        self.check_open()
        if sequence is not None and (transaction is None or len(messages) != 1 or not 0 <= sequence < SEQUENCES):
            raise InvalidRequest(
                f"sequence is {shown(sequence)}; it is a number from 0 to {SEQUENCES - 1}, for one message of a "
                "transaction"
            )
        return await self._publisher.publish(self.topic(name), messages, transaction, sequence)

    async def publish_frames(self, name: str, partition: int, run: FrameRun) -> int:
        """Store a batch that a client has encoded, whole or not at all; return its first offset."""
        self.check_open()
        return await self._publisher.publish_frames(self.topic(name), partition, run)

    async def refused_frames(self, name: str, run: FrameRun, *, in_transaction: bool = False) -> Refused:
        """What of a batch does not fit its topic's schema; raises unless the topic makes that dead letters."""
        return await self._publisher.refused_frames(self.topic(name), run, in_transaction=in_transaction)

    def append_frames(
        self,
        name: str,
        partition: int,
        run: FrameRun,
        refused: Refused = ALL_FIT,
        transaction: OpenTransaction | None = None,
    ) -> Appended:
        """Like ``publish_frames`` without waiting: where the batch is, and a future for the acknowledgement.

        ``refused`` is what ``refused_frames`` found in the batch just before.
        """
        self.check_open()
        return self._publisher.append_frames(self.topic(name), partition, run, refused, transaction)

    async def is_misfit(self, name: str, message: Message) -> bool:
        """Whether a topic would refuse the message for its schema."""
        return bool((await self._refusals.among_messages(self.topic(name), [message])).reasons)

    async def _dead_letter_topic(self, topic: Topic) -> Topic | None:
        """Made when it is first needed; ``None`` if the topic is one itself."""
        name = dead_letter_topic(self, topic)
        if name is None:
            return None
        # To the end: a topic that is decided must not be given up by a producer that goes away.
        return self._topics.get(name) or await self._to_the_end(find_or_make(self, self._create_topic, topic, name))

    async def read(
        self, name: str, number: int, bounds: Bounds, *, offset: int | None = None, from_time_ns: int | None = None
    ) -> MessagesRead:
        partition = self._readable(name, number)
        found = await read_messages(partition, start_of(partition, offset, from_time_ns), bounds)
        partition.note_read(len(found.messages), found.size_bytes)
        return found

    async def read_frames(
        self, name: str, number: int, bounds: Bounds, *, offset: int | None = None, from_time_ns: int | None = None
    ) -> FramesRead:
        partition = self._readable(name, number)
        found = await read_frames(partition, start_of(partition, offset, from_time_ns), bounds)
        if found.run is not None:
            partition.note_read(len(found.run), len(found.run.frames))
        return found

    def _readable(self, name: str, number: int) -> Partition:
        if not self._running and self._closing:
            raise ShuttingDown("the broker has stopped", retry_after_s=1)
        return self.topic(name).partition(number)

    # Itself

    @property
    def node_id(self) -> str:
        """The host's name, until nodes are configured."""
        return platform.node()

    def known_batches(self) -> int:
        """How many batches came again and were not stored again."""
        return self._appender.known_batches

    def fsync_rounds(self) -> int:
        return self._commits.rounds

    def uptime_ms(self) -> int:
        return (self.clock.monotonic_ns() - self._started_ns) // 1_000_000

    def problems(self) -> dict[str, str]:
        """What keeps the broker from doing all of its work, by part."""
        return self.health.problems()

    @property
    def is_stopping(self) -> bool:
        return self._closing

    def damage(self) -> list[str]:
        """What was found to be damaged or gone, a line for each partition."""
        return self.health.damage()

    def check_open(self) -> None:
        if self._closing:
            raise ShuttingDown("the broker is stopping and takes nothing new", retry_after_s=1)
