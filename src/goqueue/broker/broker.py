"""The broker: everything put together, with no network.

All state is touched by one event loop. ``start`` recovers, ``close`` leaves a folder that starts without a scan.
``Broker`` is the in-process face of ``operations``, as HTTP and gRPC are its faces on the network.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from goqueue.broker.delays.delayed_messages import Delays
from goqueue.broker.delays.firing import Firing
from goqueue.broker.events.event_recorder import EventRecorder
from goqueue.broker.groups.group_service import GroupService
from goqueue.broker.in_process import InProcessFace
from goqueue.broker.metrics.health import Health
from goqueue.broker.metrics.metrics import Metrics
from goqueue.broker.operations import Gate, Operations
from goqueue.broker.partitions.running_topics import RunningTopics
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.publishing.appending import Appender
from goqueue.broker.publishing.publish import Publisher
from goqueue.broker.publishing.schema_rejects import SchemaRejects
from goqueue.broker.registry.schema_check import SchemaCheck
from goqueue.broker.registry.schema_registry import SchemaRegistry
from goqueue.broker.runtime.checkpoints import Checkpoints
from goqueue.broker.runtime.disk_guard import DiskGuard
from goqueue.broker.runtime.file_freeze import FileFreeze
from goqueue.broker.runtime.journal import Journal
from goqueue.broker.runtime.journal_kinds import CATALOG, SCHEMAS, SHARD_STATE
from goqueue.broker.runtime.journals import Journals
from goqueue.broker.runtime.timer_service import TimerService
from goqueue.broker.shards.dead_letter_topics import dead_letter_topic, find_or_make
from goqueue.broker.shards.earlier_groups import convert_earlier_groups
from goqueue.broker.shards.shard_directory import Shards
from goqueue.broker.topics.topic_commands import TopicCommands
from goqueue.broker.topics.topic_opening import TopicOpener
from goqueue.broker.tracing.message_traces import MessageTraces
from goqueue.broker.tracing.trace_export import TraceExport
from goqueue.broker.tracing.trace_search import TraceSearch
from goqueue.broker.transactions.coordinators import Coordinators
from goqueue.broker.transactions.earlier_transactions import convert_earlier_transactions
from goqueue.broker.transactions.leadership import Leadership
from goqueue.broker.transactions.producer_fencing import ProducerFencing
from goqueue.broker.transactions.transaction_service import TransactionService
from goqueue.broker.upkeep.backups import Backups
from goqueue.broker.upkeep.producer_files import ProducerFiles
from goqueue.broker.upkeep.restore_fencing import RECEIPT_KEY_BYTES, skip_issued_ids
from goqueue.broker.upkeep.upkeep import Upkeep
from goqueue.coordination.catalog import Catalog
from goqueue.coordination.schemas import Schemas
from goqueue.coordination.shard_state import ShardState
from goqueue.model.clock import Clock, Randomness, SystemClock, SystemRandomness
from goqueue.model.config import Config, StorageConfig
from goqueue.model.errors import LinkInDataFolder
from goqueue.model.ids import TopicId
from goqueue.model.message import Message
from goqueue.storage.files.checkpoint import CheckpointFile
from goqueue.storage.files.data_folder import TRACES, DataFolder
from goqueue.storage.files.disk_errors import unusable
from goqueue.storage.files.files import Files, OsFiles
from goqueue.storage.log.group_commit import GroupCommit
from goqueue.storage.log.log import Log
from goqueue.storage.log.open_files import OpenFiles
from goqueue.storage.log.recoverable import Recoverable

Result = TypeVar("Result")


class Broker(InProcessFace):
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
        self._root = Path(config.storage.path).absolute()
        self._files: Files = files or OsFiles(self._root)
        self.randomness: Randomness = randomness or SystemRandomness()
        self.topics = RunningTopics()
        self._commands: set[asyncio.Task[Any]] = set()
        self._started_ns = self.clock.monotonic_ns()
        self.metrics = Metrics(self)
        self._gate = Gate()
        self.operations = Operations(self, self._gate)
        """The front door: all that can be asked of this broker."""
        self._running = False

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
        try:
            self._folder = DataFolder(self._files, self._root)
        except LinkInDataFolder:
            raise
        except OSError as error:
            raise unusable(self._root, error) from None
        async with AsyncExitStack() as undo:
            undo.callback(self._folder.close)
            self._open_storage()
            self.tracing = TraceExport(
                self.config.trace,
                self._files,
                self._root / TRACES,
                self.clock,
                self.node_id,
                self.topics.find,
                self.disk.is_full,
            )
            undo.push_async_callback(self.tracing.stop)
            self._open_journals()
            self._make_publishing()
            opener = await self._open_topics()
            journals = await self._open_shards()
            await skip_issued_ids(self._folder, self._catalog, self._schema_journal, self.randomness)
            await self._open_groups(opener, journals)
            undo.push_async_callback(self.groups.stop)
            await self.groups.start()
            await self._open_transactions()
            undo.pop_all()
        self._begin()
        self._running = True

    def _open_storage(self) -> None:
        storage, root = self.config.storage, self._root
        self._open_files = OpenFiles(self._files, storage.max_open_files, storage.lane_index_bytes)
        self._commits = GroupCommit(self._files, root, self.clock.monotonic_ns, self.metrics.fsync.observe)
        checkpoint_file = CheckpointFile(self._files, self._folder.checkpoint)
        self.stillness = FileFreeze()
        self.checkpoints = Checkpoints(self._files, root, checkpoint_file, self._commits, self.stillness)
        self.disk: DiskGuard = DiskGuard(self._files, root, storage.min_free_bytes, self.clock)

    def _open_journals(self) -> None:
        self._journals = Journals(
            self._folder, self._open_files, self._commits, self.checkpoints, self.config, self.clock, self.stillness
        )
        self._catalog: Journal[Catalog] = self._journals.open(CATALOG)
        self._schema_journal: Journal[Schemas] = self._journals.open(SCHEMAS)

    def _make_publishing(self) -> None:
        """Everything that has a part in a publish, but for the topics themselves."""
        self.clockwork = TimerService(self.clock)
        self.notes = EventRecorder(self.tracing.tracer, self.clock, self.topics.by_id.get)
        self._firing = Firing(self.clockwork, self.clock, self.disk.check, self.config.limits.max_delayed)
        self.delays = Delays(self._firing, self.clock, self.topics)
        self.schemas = SchemaRegistry(self._schema_journal, self.config.schemas)
        self._schema_check = SchemaCheck(self.schemas)
        self._refusals = SchemaRejects(self._schema_check, self.notes, self._dead_letter_topic)
        self._coordinators = Coordinators(self._catalog)
        self._producers = ProducerFencing(
            self._catalog, self._coordinators, self.config.transactions, self.clock, self.randomness
        )
        self._appender = Appender(
            self._refusals, self._producers.check, self.config.limits.max_producers_per_partition, self.clock
        )
        self.producer_files = ProducerFiles(self.stillness, self.clock, self.config)
        self.publisher = Publisher(
            self.disk, self.clock, self._firing.timers, self._refusals, self._appender, self.metrics.publish
        )

    async def _open_topics(self) -> TopicOpener:
        opener = TopicOpener(
            self._folder,
            self._journals,
            self._commits,
            self.checkpoints,
            self._firing,
            self.notes,
            self.config,
            self.clock,
        )
        await opener.open_all(self._catalog.machine.state.topics.values(), self.topics)
        return opener

    async def _open_shards(self) -> dict[int, Journal[ShardState]]:
        """Their journals, which have everything that earlier versions had elsewhere when this returns."""
        journals = self._journals.open_shards(SHARD_STATE)
        await convert_earlier_groups(self._folder, self._journals, self.topics, journals)
        await convert_earlier_transactions(self._folder, self._journals, self._catalog, journals)
        return journals

    async def _open_groups(self, opener: TopicOpener, journals: Mapping[int, Journal[ShardState]]) -> None:
        key = self.randomness.random_bytes(RECEIPT_KEY_BYTES)
        await self._catalog.submit(lambda catalog: catalog.decide_receipt_key(key))
        shards = Shards(self, journals, self._catalog.machine.state.receipt_key, self.clockwork)
        self.groups: GroupService = GroupService(shards, self._create_to_the_end, self.disk.check)
        self.topic_commands = TopicCommands(
            self.topics,
            self._catalog,
            opener,
            self.stillness,
            self.disk.check,
            self.randomness,
            self.groups.subscriptions.topic_created,
            self.groups.subscriptions.topic_deleted,
        )
        await self.topic_commands.tidy_folders()

    async def _open_transactions(self) -> None:
        """Before anyone reads or polls: what was committed is seen, and what was not is not."""
        self.transactions = TransactionService(
            self._coordinators,
            self._producers,
            self.groups,
            self.topics,
            self.stillness,
            self.config.transactions,
            self.clock,
            self.randomness,
            self.clockwork,
        )
        self.leadership = Leadership(self.groups, self.transactions)
        await self.transactions.start()

    def _begin(self) -> None:
        """Everything is recovered: from here on things are done without being asked for."""
        storage, trace = self.config.storage, self.config.trace
        self.traces = MessageTraces(self, self.groups, self.tracing, trace.search_bytes)
        self.trace_search = TraceSearch(self.traces, trace.search_bytes)
        self.delays.start()
        self.tracing.start()
        self._upkeep = Upkeep(self, storage, self._commits, self.checkpoints, self.disk, self.stillness)
        self._upkeep.start()
        self.backups = Backups(
            self._files, self._folder, self.recoverables, self.checkpoints, self.stillness, self.clock, self.node_id
        )
        self.health = Health(
            self,
            self._commits,
            self._open_files,
            self._upkeep,
            self._journals.by_what_stands_still(),
            self.metrics.loop_delay,
        )
        self.metrics.start()

    def stop_accepting(self) -> None:
        """Refuse new publishes and wake every reader that waits."""
        self._gate.stop_accepting()
        self.backups.stop_accepting()
        self.groups.shards.stop_waiting()
        for topic in self.running_topics():
            for partition in topic.partitions:
                partition.stop_waiting()

    async def close(self) -> None:
        """Finish what was accepted, make everything durable, let go of the folder. Doing it twice does no harm."""
        if not self._running:
            return
        self._running = False
        self._gate.close()
        self.stop_accepting()
        await asyncio.gather(*self._commands, return_exceptions=True)
        await self.backups.stop()
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
        await self.producer_files.save(self.running_topics(), everything=True)
        recoverables = list(self.recoverables())
        await self.checkpoints.save(recoverables)
        await self._commits.close()
        await self.tracing.stop()
        for each in recoverables:
            each.log.close()
        self._folder.close()

    # Topics

    def topic(self, name: str) -> Topic:
        return self.topics.find(name)

    def topic_by_id(self, topic_id: TopicId) -> Topic | None:
        return self.topics.by_id.get(topic_id)

    def topic_names(self) -> list[str]:
        return sorted(self.topics.by_name)

    def running_topics(self) -> Iterable[Topic]:
        return self.topics.by_name.values()

    def logs(self) -> Iterable[Log]:
        return (each.log for each in self.recoverables())

    def recoverables(self) -> Iterable[Recoverable]:
        """Every log, with what is derived from it."""
        yield from map(Recoverable, self._journals.logs())
        for topic in self.running_topics():
            for partition in topic.partitions:
                yield partition.derived

    async def _create_to_the_end(self, name: str, raw_settings: dict[str, object]) -> Topic:
        return await self.to_the_end(self.topic_commands.create(name, raw_settings))

    async def to_the_end(self, command: Coroutine[Any, Any, Result]) -> Result:
        """Carry a command out whole even if its caller is cancelled: it may already be decided."""
        task = asyncio.create_task(command)
        self._commands.add(task)
        task.add_done_callback(self._commands.discard)
        return await asyncio.shield(task)

    async def snapshot_if_due(self) -> None:
        await self._journals.snapshot_if_due()

    # Messages

    async def is_misfit(self, name: str, message: Message) -> bool:
        """Whether a topic would refuse the message for its schema."""
        return bool((await self._refusals.among_messages(self.topics.find(name), [message])).reasons)

    async def _dead_letter_topic(self, topic: Topic) -> Topic | None:
        """Made when it is first needed; ``None`` if the topic is one itself."""
        name = dead_letter_topic(self, topic)
        if name is None:
            return None
        return self.topics.by_name.get(name) or await find_or_make(self, self._create_to_the_end, topic, name)

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

    @property
    def is_stopping(self) -> bool:
        return self._gate.is_stopping

    def check_open(self) -> None:
        """For work under way that must not go on once the broker begins to stop."""
        self._gate.check_open()
