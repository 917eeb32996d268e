"""GoQueue: one message system instead of two, a log and a queue over the same topics.

>>> from goqueue import Client
>>> with Client("localhost:9090") as client, client.producer() as producer:
...     producer.send("orders", "2 tickets", key="ada").result()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from goqueue.model import errors
from goqueue.version import __version__

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker
    from goqueue.broker.partitions.read import Bounds
    from goqueue.client.admin.delays import DelayedMessage, DelayStats
    from goqueue.client.admin.groups import (
        DeadLetter,
        GroupInfo,
        GroupLane,
        GroupLanes,
        GroupMember,
        GroupPartition,
        PartitionLane,
        PartitionLanes,
        PeekedMessage,
        RedriveReport,
        ReliabilityStats,
    )
    from goqueue.client.admin.transactions import CommittedKey, TransactionInfo, TransactionPartition, TransactionStats
    from goqueue.client.async_client import AsyncClient
    from goqueue.client.connection.config import ClientConfig, ConsumerConfig, ProducerConfig
    from goqueue.client.connection.topics import PartitionInfo, PurgedPartition, TopicInfo
    from goqueue.client.consumer.consumer import AsyncConsumer
    from goqueue.client.consumer.delivery import AsyncReceivedMessage, ReceivedMessage
    from goqueue.client.consumer.handler_result import Reject, Retry
    from goqueue.client.consumer.reader import Batch, Record
    from goqueue.client.consumer.stream_source import TopicPartition
    from goqueue.client.messages.outgoing_message import Outgoing, Sent
    from goqueue.client.messages.serializers import as_text, from_json, to_json
    from goqueue.client.messages.tracing import extracted_context
    from goqueue.client.producer.producer import AsyncProducer
    from goqueue.client.producer.transaction import AsyncTransaction
    from goqueue.client.schemas.avro_serializers import AvroDeserializer, AvroSerializer
    from goqueue.client.schemas.json_serializers import JsonDeserializer, JsonSerializer
    from goqueue.client.schemas.protobuf_serializers import ProtobufDeserializer, ProtobufSerializer
    from goqueue.client.schemas.schemas import (
        AsyncSchemas,
        Schema,
        SchemaProblem,
        SchemaReference,
        Schemas,
        SchemaVersion,
    )
    from goqueue.client.sync import Client
    from goqueue.client.sync_consumer import Consumer
    from goqueue.client.sync_producer import Producer, Transaction
    from goqueue.model.config import Config
    from goqueue.model.errors import GoQueueError
    from goqueue.model.message import Message, Priority
    from goqueue.model.publish_result import Published
    from goqueue.model.publishing import NewMessage

_PLACES = {
    "AsyncClient": "client.async_client",
    "AsyncConsumer": "client.consumer.consumer",
    "AsyncProducer": "client.producer.producer",
    "AsyncReceivedMessage": "client.consumer.delivery",
    "AsyncSchemas": "client.schemas.schemas",
    "AsyncTransaction": "client.producer.transaction",
    "AvroDeserializer": "client.schemas.avro_serializers",
    "AvroSerializer": "client.schemas.avro_serializers",
    "Batch": "client.consumer.reader",
    "Bounds": "broker.partitions.read",
    "Broker": "broker.broker",
    "Client": "client.sync",
    "ClientConfig": "client.connection.config",
    "CommittedKey": "client.admin.transactions",
    "Config": "model.config",
    "Consumer": "client.sync_consumer",
    "ConsumerConfig": "client.connection.config",
    "DeadLetter": "client.admin.groups",
    "DelayStats": "client.admin.delays",
    "DelayedMessage": "client.admin.delays",
    "GoQueueError": "model.errors",
    "GroupInfo": "client.admin.groups",
    "GroupLane": "client.admin.groups",
    "GroupLanes": "client.admin.groups",
    "GroupMember": "client.admin.groups",
    "GroupPartition": "client.admin.groups",
    "JsonDeserializer": "client.schemas.json_serializers",
    "JsonSerializer": "client.schemas.json_serializers",
    "Message": "model.message",
    "NewMessage": "model.publishing",
    "Outgoing": "client.messages.outgoing_message",
    "PartitionInfo": "client.connection.topics",
    "PartitionLane": "client.admin.groups",
    "PartitionLanes": "client.admin.groups",
    "PeekedMessage": "client.admin.groups",
    "Priority": "model.message",
    "Producer": "client.sync_producer",
    "ProducerConfig": "client.connection.config",
    "ProtobufDeserializer": "client.schemas.protobuf_serializers",
    "ProtobufSerializer": "client.schemas.protobuf_serializers",
    "Published": "model.publish_result",
    "PurgedPartition": "client.connection.topics",
    "ReceivedMessage": "client.consumer.delivery",
    "Record": "client.consumer.reader",
    "RedriveReport": "client.admin.groups",
    "Reject": "client.consumer.handler_result",
    "ReliabilityStats": "client.admin.groups",
    "Retry": "client.consumer.handler_result",
    "Schema": "client.schemas.schemas",
    "SchemaProblem": "client.schemas.schemas",
    "SchemaReference": "client.schemas.schemas",
    "SchemaVersion": "client.schemas.schemas",
    "Schemas": "client.schemas.schemas",
    "Sent": "client.messages.outgoing_message",
    "TopicInfo": "client.connection.topics",
    "TopicPartition": "client.consumer.stream_source",
    "Transaction": "client.sync_producer",
    "TransactionInfo": "client.admin.transactions",
    "TransactionPartition": "client.admin.transactions",
    "TransactionStats": "client.admin.transactions",
    "as_text": "client.messages.serializers",
    "extracted_context": "client.messages.tracing",
    "from_json": "client.messages.serializers",
    "to_json": "client.messages.serializers",
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
