"""The front door: one method for each thing that a protocol can ask of the broker, grouped by resource.

HTTP, gRPC and the in-process ``Broker`` come in here and import no other room. Each operation takes a ``Caller`` first
and passes the gate, where the broker's being open is checked and where permission, quota and audit belong. Types that
operations take and return are exported here.
"""

from __future__ import annotations

from goqueue.broker.dead_letters.redrive import DeadLetter, Filter, Redriven
from goqueue.broker.delays.delayed_messages import DelayedMessage, DelayStats
from goqueue.broker.groups.group_offsets import PartitionLag
from goqueue.broker.groups.group_service import GroupStateName
from goqueue.broker.groups.membership import Assignment, Join
from goqueue.broker.metrics.health import Check
from goqueue.broker.operations.all_operations import Operations
from goqueue.broker.operations.caller import ANONYMOUS, IN_PROCESS, Caller, CallerProtocol
from goqueue.broker.operations.gate import OPERATIONS, Gate, Operation, Resource, ResourceOperations, Served
from goqueue.broker.operations.groups import GroupDescription, MemberDescription
from goqueue.broker.operations.host import Host
from goqueue.broker.operations.publishing import AppendedBatch
from goqueue.broker.operations.reading import StartAt
from goqueue.broker.operations.schemas import WHOLE_REGISTRY, SchemaOperations
from goqueue.broker.operations.system import TopicStats
from goqueue.broker.operations.topics import PartitionState, TopicDescription, described
from goqueue.broker.operations.traces import Place, TracesFound, TransactionsByProducer
from goqueue.broker.operations.transactions import TransactionRef, TransactionStats, acks_in
from goqueue.broker.partitions.read import Bounds, FramesRead, MessagesRead, decoded
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.queues.lane_report import GroupLanes, LaneOfGroup, LaneOfPartition, PartitionLanes, average_waits_ns
from goqueue.broker.queues.peek import Peek, Peeked, PeekPage, PeekState
from goqueue.broker.queues.polling import Delivery, PollBounds
from goqueue.broker.queues.tally import Tally
from goqueue.broker.registry.compatibility_check import Verdict
from goqueue.broker.registry.schema_draft import SchemaDraft, check_subject
from goqueue.broker.registry.schema_registry import Registered
from goqueue.broker.runtime.time_slices import TimeSlice
from goqueue.broker.tracing.trace_search import Criteria
from goqueue.broker.transactions.commit_abort import Known
from goqueue.broker.transactions.commit_keys import ManyCommitted
from goqueue.broker.transactions.open_transactions import OpenTransaction
from goqueue.broker.upkeep.backups import Backup
from goqueue.broker.upkeep.damage import Loss
from goqueue.broker.upkeep.purge import PurgedPartition
from goqueue.coordination.schema_records import Reference, SchemaRecord, Version, quoted
from goqueue.delivery.settlement_requests import LeaseClaim, SettlementRequest, Verb
from goqueue.observe.exposition import OPENMETRICS_TYPE, PLAIN_TYPE, wants_openmetrics
from goqueue.observe.requests import Endpoint, Requests
from goqueue.schemas.base import KINDS as SCHEMA_KINDS

__all__ = [
    "ANONYMOUS",
    "IN_PROCESS",
    "OPENMETRICS_TYPE",
    "OPERATIONS",
    "PLAIN_TYPE",
    "SCHEMA_KINDS",
    "WHOLE_REGISTRY",
    "AppendedBatch",
    "Assignment",
    "Backup",
    "Bounds",
    "Caller",
    "CallerProtocol",
    "Check",
    "Criteria",
    "DeadLetter",
    "DelayStats",
    "DelayedMessage",
    "Delivery",
    "Endpoint",
    "Filter",
    "FramesRead",
    "Gate",
    "GroupDescription",
    "GroupLanes",
    "GroupStateName",
    "Host",
    "Join",
    "Known",
    "LaneOfGroup",
    "LaneOfPartition",
    "LeaseClaim",
    "Loss",
    "ManyCommitted",
    "MemberDescription",
    "MessagesRead",
    "OpenTransaction",
    "Operation",
    "Operations",
    "PartitionLag",
    "PartitionLanes",
    "PartitionState",
    "Peek",
    "PeekPage",
    "PeekState",
    "Peeked",
    "Place",
    "PollBounds",
    "PurgedPartition",
    "Redriven",
    "Reference",
    "Registered",
    "Requests",
    "Resource",
    "ResourceOperations",
    "SchemaDraft",
    "SchemaOperations",
    "SchemaRecord",
    "Served",
    "SettlementRequest",
    "StartAt",
    "Tally",
    "TimeSlice",
    "Topic",
    "TopicDescription",
    "TopicStats",
    "TracesFound",
    "TransactionRef",
    "TransactionStats",
    "TransactionsByProducer",
    "Verb",
    "Verdict",
    "Version",
    "acks_in",
    "average_waits_ns",
    "check_subject",
    "decoded",
    "described",
    "quoted",
    "wants_openmetrics",
]
