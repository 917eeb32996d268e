"""GoQueue: one message system instead of two, a log and a queue over the same topics.

>>> from goqueue import Client
>>> with Client("localhost:9090") as client, client.producer() as producer:
...     producer.send("orders", "2 tickets", key="ada").result()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from goqueue.model import errors

__version__ = "0.1.0"

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker
    from goqueue.broker.read import Bounds
    from goqueue.client.aio import AsyncClient
    from goqueue.client.avro_serializers import AvroDeserializer, AvroSerializer
    from goqueue.client.config import ClientConfig, ConsumerConfig, ProducerConfig
    from goqueue.client.consumer import AsyncConsumer
    from goqueue.client.delays import DelayedMessage, DelayStats
    from goqueue.client.delivery import AsyncReceivedMessage, ReceivedMessage
    from goqueue.client.groups import (
        DeadLetter,
        GroupInfo,
        GroupMember,
        GroupPartition,
        PeekedMessage,
        RedriveReport,
        ReliabilityStats,
    )
    from goqueue.client.json_serializers import JsonDeserializer, JsonSerializer
    from goqueue.client.lanes import GroupLane, GroupLanes, PartitionLane, PartitionLanes
    from goqueue.client.outgoing import Outgoing, Sent
    from goqueue.client.producer import AsyncProducer
    from goqueue.client.protobuf_serializers import ProtobufDeserializer, ProtobufSerializer
    from goqueue.client.reader import Batch, Record
    from goqueue.client.schemas import AsyncSchemas, Schema, SchemaProblem, SchemaReference, SchemaVersion
    from goqueue.client.serializers import as_text, from_json, to_json
    from goqueue.client.stream import TopicPartition
    from goqueue.client.sync import Client
    from goqueue.client.sync_consumer import Consumer
    from goqueue.client.sync_producer import Producer, Transaction
    from goqueue.client.sync_schemas import Schemas
    from goqueue.client.topics import PartitionInfo, PurgedPartition, TopicInfo
    from goqueue.client.tracing import extracted_context
    from goqueue.client.transaction import AsyncTransaction
    from goqueue.client.transactions import CommittedKey, TransactionInfo, TransactionPartition, TransactionStats
    from goqueue.client.verdicts import Reject, Retry
    from goqueue.model.config import Config
    from goqueue.model.errors import GoQueueError
    from goqueue.model.message import Message, Priority
    from goqueue.model.publishing import NewMessage, Published

_PLACES = {
    "AsyncClient": "client.aio",
    "AsyncConsumer": "client.consumer",
    "AsyncProducer": "client.producer",
    "AsyncReceivedMessage": "client.delivery",
    "AsyncSchemas": "client.schemas",
    "AsyncTransaction": "client.transaction",
    "AvroDeserializer": "client.avro_serializers",
    "AvroSerializer": "client.avro_serializers",
    "Batch": "client.reader",
    "Bounds": "broker.read",
    "Broker": "broker.broker",
    "Client": "client.sync",
    "ClientConfig": "client.config",
    "CommittedKey": "client.transactions",
    "Config": "model.config",
    "Consumer": "client.sync_consumer",
    "ConsumerConfig": "client.config",
    "DeadLetter": "client.groups",
    "DelayStats": "client.delays",
    "DelayedMessage": "client.delays",
    "GoQueueError": "model.errors",
    "GroupInfo": "client.groups",
    "GroupLane": "client.lanes",
    "GroupLanes": "client.lanes",
    "GroupMember": "client.groups",
    "GroupPartition": "client.groups",
    "JsonDeserializer": "client.json_serializers",
    "JsonSerializer": "client.json_serializers",
    "Message": "model.message",
    "NewMessage": "model.publishing",
    "Outgoing": "client.outgoing",
    "PartitionInfo": "client.topics",
    "PartitionLane": "client.lanes",
    "PartitionLanes": "client.lanes",
    "PeekedMessage": "client.groups",
    "Priority": "model.message",
    "Producer": "client.sync_producer",
    "ProducerConfig": "client.config",
    "ProtobufDeserializer": "client.protobuf_serializers",
    "ProtobufSerializer": "client.protobuf_serializers",
    "Published": "model.publishing",
    "PurgedPartition": "client.topics",
    "ReceivedMessage": "client.delivery",
    "Record": "client.reader",
    "RedriveReport": "client.groups",
    "Reject": "client.verdicts",
    "ReliabilityStats": "client.groups",
    "Retry": "client.verdicts",
    "Schema": "client.schemas",
    "SchemaProblem": "client.schemas",
    "SchemaReference": "client.schemas",
    "SchemaVersion": "client.schemas",
    "Schemas": "client.sync_schemas",
    "Sent": "client.outgoing",
    "TopicInfo": "client.topics",
    "TopicPartition": "client.stream",
    "Transaction": "client.sync_producer",
    "TransactionInfo": "client.transactions",
    "TransactionPartition": "client.transactions",
    "TransactionStats": "client.transactions",
    "as_text": "client.serializers",
    "extracted_context": "client.tracing",
    "from_json": "client.serializers",
    "to_json": "client.serializers",
}

__all__ = [
    "AsyncClient",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncReceivedMessage",
    "AsyncSchemas",
    "AsyncTransaction",
    "AvroDeserializer",
    "AvroSerializer",
    "Batch",
    "Bounds",
    "Broker",
    "Client",
    "ClientConfig",
    "CommittedKey",
    "Config",
    "Consumer",
    "ConsumerConfig",
    "DeadLetter",
    "DelayStats",
    "DelayedMessage",
    "GoQueueError",
    "GroupInfo",
    "GroupLane",
    "GroupLanes",
    "GroupMember",
    "GroupPartition",
    "JsonDeserializer",
    "JsonSerializer",
    "Message",
    "NewMessage",
    "Outgoing",
    "PartitionInfo",
    "PartitionLane",
    "PartitionLanes",
    "PeekedMessage",
    "Priority",
    "Producer",
    "ProducerConfig",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "Published",
    "PurgedPartition",
    "ReceivedMessage",
    "Record",
    "RedriveReport",
    "Reject",
    "ReliabilityStats",
    "Retry",
    "Schema",
    "SchemaProblem",
    "SchemaReference",
    "SchemaVersion",
    "Schemas",
    "Sent",
    "TopicInfo",
    "TopicPartition",
    "Transaction",
    "TransactionInfo",
    "TransactionPartition",
    "TransactionStats",
    "__version__",
    "as_text",
    "errors",
    "extracted_context",
    "from_json",
    "to_json",
]


def __getattr__(name: str) -> object:
    """Names are loaded when first used: the command line must not wait for gRPC and numpy to tell its version."""
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'goqueue' has no attribute {name!r}")
    return getattr(import_module(f"goqueue.{place}"), name)
