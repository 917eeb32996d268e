"""The parts of a broker that operations use. Most exist only once it has started: they are looked up on each call."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any, Protocol, TypeVar

from goqueue.broker.delays.delayed_messages import Delays
from goqueue.broker.groups.group_service import GroupService
from goqueue.broker.metrics.health import Health
from goqueue.broker.metrics.metrics import Metrics
from goqueue.broker.partitions.running_topics import RunningTopics
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.publishing.publish import Publisher
from goqueue.broker.registry.schema_registry import SchemaRegistry
from goqueue.broker.runtime.checkpoints import Checkpoints
from goqueue.broker.runtime.disk_guard import DiskGuard
from goqueue.broker.runtime.file_freeze import FileFreeze
from goqueue.broker.topics.topic_commands import TopicCommands
from goqueue.broker.tracing.message_traces import MessageTraces
from goqueue.broker.tracing.trace_export import TraceExport
from goqueue.broker.tracing.trace_search import TraceSearch
from goqueue.broker.transactions.transaction_service import TransactionService
from goqueue.broker.upkeep.backups import Backups
from goqueue.broker.upkeep.producer_files import ProducerFiles
from goqueue.model.clock import Clock
from goqueue.model.config import Config
from goqueue.storage.log.log import Log
from goqueue.storage.log.recoverable import Recoverable

Result = TypeVar("Result")


class Host(Protocol):
    """A broker as operations see it."""

    backups: Backups
    checkpoints: Checkpoints
    clock: Clock
    config: Config
    delays: Delays
    disk: DiskGuard
    groups: GroupService
    health: Health
    metrics: Metrics
    producer_files: ProducerFiles
    publisher: Publisher
    schemas: SchemaRegistry
    stillness: FileFreeze
    topic_commands: TopicCommands
    topics: RunningTopics
    trace_search: TraceSearch
    traces: MessageTraces
    tracing: TraceExport
    transactions: TransactionService

    @property
    def node_id(self) -> str: ...

    def fsync_rounds(self) -> int: ...

    def logs(self) -> Iterable[Log]: ...

    def recoverables(self) -> Iterable[Recoverable]: ...

    def running_topics(self) -> Iterable[Topic]: ...

    def topic(self, name: str) -> Topic: ...

    def topic_names(self) -> list[str]: ...

    async def to_the_end(self, command: Coroutine[Any, Any, Result]) -> Result:
        """Carry a command out whole even if its caller is cancelled: it may already be decided."""
        ...

    def uptime_ms(self) -> int: ...
