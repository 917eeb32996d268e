"""All operations of a broker, by resource, and what protocols need beside them."""

from __future__ import annotations

from collections.abc import Callable

from goqueue.broker.operations.caller import CallerProtocol
from goqueue.broker.operations.dead_letters import DeadLetterOperations
from goqueue.broker.operations.delays import DelayOperations
from goqueue.broker.operations.gate import Gate
from goqueue.broker.operations.groups import GroupOperations
from goqueue.broker.operations.host import Host
from goqueue.broker.operations.offsets import OffsetOperations
from goqueue.broker.operations.publishing import PublishingOperations
from goqueue.broker.operations.queues import QueueOperations
from goqueue.broker.operations.reading import ReadingOperations
from goqueue.broker.operations.schemas import SchemaOperations
from goqueue.broker.operations.system import MaintenanceOperations, SystemOperations
from goqueue.broker.operations.topics import TopicOperations
from goqueue.broker.operations.traces import TraceOperations
from goqueue.broker.operations.transactions import ProducerOperations, TransactionOperations
from goqueue.model.clock import Clock
from goqueue.model.config import Config
from goqueue.model.errors import TopicNotFound
from goqueue.observe.requests import Requests


class Operations:
    """The front door of a broker: every protocol asks for things here, and nowhere else.

    Operations can be called once the broker has started. What stands beside them in this class is no operation: it
    neither shows nor changes what the broker stores, and is there before the broker has started.
    """

    def __init__(self, host: Host, gate: Gate) -> None:
        self._host = host
        self._gate = gate
        self.dead_letters = DeadLetterOperations(host, gate)
        self.delays = DelayOperations(host, gate)
        self.groups = GroupOperations(host, gate)
        self.maintenance = MaintenanceOperations(host, gate)
        self.offsets = OffsetOperations(host, gate)
        self.producers = ProducerOperations(host, gate)
        self.publishing = PublishingOperations(host, gate)
        self.queues = QueueOperations(host, gate)
        self.reading = ReadingOperations(host, gate)
        self.schemas = SchemaOperations(host, gate)
        self.system = SystemOperations(host, gate)
        self.topics = TopicOperations(host, gate)
        self.traces = TraceOperations(host, gate)
        self.transactions = TransactionOperations(host, gate)

    # Beside the operations

    @property
    def config(self) -> Config:
        return self._host.config

    @property
    def clock(self) -> Clock:
        return self._host.clock

    @property
    def node_id(self) -> str:
        """The node that answers."""
        return self._host.node_id

    @property
    def is_stopping(self) -> bool:
        """Whether streams should end, so that their clients go elsewhere."""
        return self._gate.is_stopping

    def uptime_ms(self) -> int:
        return self._host.uptime_ms()

    def requests(self, protocol: CallerProtocol) -> Requests:
        """Where the requests of a protocol of the network are counted, for metrics."""
        metrics = self._host.metrics
        by_protocol = {
            CallerProtocol.HTTP: metrics.http,
            CallerProtocol.GRPC: metrics.grpc,
            CallerProtocol.NATIVE: metrics.native,
        }
        return by_protocol[protocol]

    def count_connections(self, protocol: CallerProtocol, count: Callable[[], int]) -> None:
        """Have metrics ask ``count`` for how many connections of a protocol are open."""
        self._host.metrics.connections[protocol.value] = count

    def max_message_bytes(self, topic: str) -> int:
        """How large a message that an operation has returned may be when it is unpacked.

        The broker's default if the topic was deleted a moment ago: its messages are here all the same.
        """
        try:
            return self._host.topics.find(topic).settings.max_message_bytes
        except TopicNotFound:
            return self.config.topic.max_message_bytes
