"""What Confluent's serializers write we read, what ours write theirs read, and the bytes are the same.

Both ask the same broker: theirs over HTTP, as the registry they know, ours over gRPC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema as TheirSchema
from confluent_kafka.schema_registry import SchemaReference as TheirReference
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry import avro as theirs_avro
from confluent_kafka.schema_registry import json_schema as theirs_json
from confluent_kafka.schema_registry import protobuf as theirs_protobuf
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import DESCRIPTOR as TIMESTAMP

from goqueue import (
    AvroDeserializer,
    AvroSerializer,
    Client,
    JsonDeserializer,
    JsonSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    Schema,
    SchemaReference,
)
from goqueue.testing import BrokerProcess, running_broker

_numbers = count()

ORDER = """
{"type": "record", "name": "Order", "namespace": "shop", "fields": [
  {"name": "id", "type": "long"},
  {"name": "customer", "type": "string"},
  {"name": "note", "type": ["null", "string"], "default": null},
  {"name": "items", "type": {"type": "array", "items": {"type": "record", "name": "Item", "fields": [
    {"name": "name", "type": "string"}, {"name": "price", "type": "double"}]}}},
  {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
  {"name": "tags", "type": {"type": "map", "values": "int"}}]}
"""
AN_ORDER = {
    "id": -(1 << 40),
    "customer": "Ada Ünal",
    "note": "leave it at the door",
    "items": [{"name": "lamp", "price": 12.5}, {"name": "chair", "price": 80.0}],
    "state": "PAID",
    "tags": {"red": 1, "big": -7},
}
JSON_ORDER = """
{"$schema": "http://json-schema.org/draft-07/schema#", "title": "Order", "type": "object",
 "properties": {"id": {"type": "integer"}, "customer": {"type": "string"},
                "items": {"type": "array", "items": {"type": "number"}}},
 "required": ["id"]}
"""
A_JSON_ORDER = {"id": 7, "customer": "Ada Ünal", "items": [1.5, 2, -3e-2]}


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with running_broker(settings={"storage.min_free_bytes": 0}) as broker:
        yield broker


@pytest.fixture(scope="module")
def client(broker: BrokerProcess) -> Iterator[Client]:
    with broker.client() as client:
        yield client


@pytest.fixture(scope="module")
def registry(broker: BrokerProcess) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": broker.url}) as registry:
        yield registry


@pytest.fixture
def topic() -> str:
    return f"orders-{next(_numbers)}"


def context(topic: str, field: str = MessageField.VALUE) -> SerializationContext:
    return SerializationContext(topic, field)


def test_avro_is_the_same_bytes_both_ways(client: Client, registry: SchemaRegistryClient, topic: str) -> None:
    ours = AvroSerializer(client.schemas, ORDER).serialize(topic, AN_ORDER)
    theirs = theirs_avro.AvroSerializer(registry, ORDER)(AN_ORDER, context(topic))
    assert ours == theirs
    assert client.schemas.subjects(topic) == [f"{topic}-value"]
    assert AvroDeserializer(client.schemas)(theirs) == AN_ORDER
    assert theirs_avro.AvroDeserializer(registry)(ours, context(topic)) == AN_ORDER


def test_avro_keys_have_a_subject_of_their_own(client: Client, registry: SchemaRegistryClient, topic: str) -> None:
    ours = AvroSerializer(client.schemas, '"string"').serialize(topic, "ada", "key")
    theirs = theirs_avro.AvroSerializer(registry, '"string"')("ada", context(topic, MessageField.KEY))
    assert ours == theirs
    assert client.schemas.versions(f"{topic}-key") == [1]


def test_plain_avro_bytes_have_no_length(client: Client, registry: SchemaRegistryClient, topic: str) -> None:
    ours = AvroSerializer(client.schemas, '"bytes"').serialize(topic, b"\x00\x01")
    assert ours == theirs_avro.AvroSerializer(registry, '"bytes"')(b"\x00\x01", context(topic))
    assert AvroDeserializer(client.schemas)(ours) == b"\x00\x01"
    assert theirs_avro.AvroDeserializer(registry)(ours, context(topic)) == b"\x00\x01"


def test_both_read_avro_into_the_same_reader_schema(client: Client, registry: SchemaRegistryClient, topic: str) -> None:
    newer = """
    {"type": "record", "name": "Order", "namespace": "shop", "fields": [
      {"name": "who", "type": "string", "aliases": ["customer"]},
      {"name": "id", "type": "double"},
      {"name": "rank", "type": "int", "default": 3}]}
    """
    written = theirs_avro.AvroSerializer(registry, ORDER)(AN_ORDER, context(topic))
    ours = AvroDeserializer(client.schemas, newer)(written)
    assert ours == theirs_avro.AvroDeserializer(registry, newer)(written, context(topic))
    assert ours == {"who": "Ada Ünal", "id": -float(1 << 40), "rank": 3}


def test_avro_that_refers_to_another_subject(client: Client, registry: SchemaRegistryClient, topic: str) -> None:
    item = '{"type": "record", "name": "Item", "namespace": "shop", "fields": [{"name": "name", "type": "string"}]}'
    items = '{"type": "array", "items": "shop.Item"}'
    cart = f'{{"type": "record", "name": "Cart", "fields": [{{"name": "items", "type": {items}}}]}}'
    subject = f"{topic}-item"
    client.schemas.register(subject, item)
    value = {"items": [{"name": "lamp"}]}
    ours = AvroSerializer(
        client.schemas, Schema(cart, references=(SchemaReference("shop.Item", subject, 1),))
    ).serialize(topic, value)
    given = TheirSchema(cart, "AVRO", [TheirReference("shop.Item", subject, 1)])
    theirs = theirs_avro.AvroSerializer(registry, given)(value, context(topic))
    assert ours == theirs
    assert AvroDeserializer(client.schemas)(theirs) == value
    assert theirs_avro.AvroDeserializer(registry)(ours, context(topic)) == value


def test_json_is_the_same_bytes_both_ways(client: Client, registry: SchemaRegistryClient, topic: str) -> None:
    ours = JsonSerializer(client.schemas, JSON_ORDER).serialize(topic, A_JSON_ORDER)
    theirs = theirs_json.JSONSerializer(JSON_ORDER, registry)(A_JSON_ORDER, context(topic))
    assert ours == theirs
    assert JsonDeserializer(client.schemas)(theirs) == A_JSON_ORDER
    reader = theirs_json.JSONDeserializer(None, schema_registry_client=registry)
    assert reader(ours, context(topic)) == A_JSON_ORDER


def protobuf_classes() -> Callable[[str], Any]:
    """Of a file that imports another, with messages in messages."""
    pool = DescriptorPool()
    pool.AddSerializedFile(TIMESTAMP.serialized_pb)
    money = FileDescriptorProto(name="shop/money.proto", package="shop", syntax="proto3")
    message = money.message_type.add(name="Money")
    message.field.add(name="cents", number=1, type=3, label=1)
    orders = FileDescriptorProto(name="shop/orders.proto", package="shop", syntax="proto3")
    orders.dependency.extend(["shop/money.proto", "google/protobuf/timestamp.proto"])
    first = orders.message_type.add(name="Order")
    first.field.add(name="id", number=1, type=3, label=1)
    first.field.add(name="total", number=2, type=11, label=1, type_name=".shop.Money")
    first.field.add(name="at", number=3, type=11, label=1, type_name=".google.protobuf.Timestamp")
    second = orders.message_type.add(name="Refund")
    second.nested_type.add(name="Cause").field.add(name="code", number=1, type=5, label=1)
    reason = second.nested_type.add(name="Reason")
    reason.field.add(name="text", number=1, type=9, label=1)
    second.field.add(name="reason", number=1, type=11, label=1, type_name=".shop.Refund.Reason")
    pool.AddSerializedFile(money.SerializeToString())
    pool.AddSerializedFile(orders.SerializeToString())
    return lambda name: GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}"))


@pytest.mark.parametrize("name", ["Order", "Refund", "Refund.Reason"])
def test_protobuf_is_the_same_bytes_both_ways(
    client: Client, registry: SchemaRegistryClient, topic: str, name: str
) -> None:
    kind = protobuf_classes()(name)
    value = {
        "Order": lambda: kind(id=7, total={"cents": 1250}, at={"seconds": 3}),
        "Refund": lambda: kind(reason={"text": "broken"}),
        "Refund.Reason": lambda: kind(text="broken"),
    }[name]()
    ours = ProtobufSerializer(client.schemas, kind).serialize(topic, value)
    theirs = theirs_protobuf.ProtobufSerializer(kind, registry)(value, context(topic))
    assert ours == theirs
    assert client.schemas.versions(f"{topic}-value") == [1]
    assert client.schemas.versions("shop/money.proto") == [1]
    assert ProtobufDeserializer(client.schemas, kind)(theirs) == value
    unguided = ProtobufDeserializer(client.schemas)(theirs)
    assert (unguided.DESCRIPTOR.full_name, unguided.SerializeToString()) == (f"shop.{name}", value.SerializeToString())
    assert theirs_protobuf.ProtobufDeserializer(kind, schema_registry_client=registry)(ours, context(topic)) == value


def test_messages_sent_by_one_are_read_by_the_other(client: Client, registry: SchemaRegistryClient, topic: str) -> None:
    client.create_topic(topic, partitions=1)
    write, read = theirs_avro.AvroSerializer(registry, ORDER), theirs_avro.AvroDeserializer(registry)
    with client.producer() as raw, client.producer(serializer=AvroSerializer(client.schemas, ORDER)) as producer:
        raw.send(topic, write(AN_ORDER, context(topic))).result()
        producer.send(topic, AN_ORDER).result()
    assert [record.value for record in client.read(topic, deserializer=AvroDeserializer(client.schemas))] == [
        AN_ORDER,
        AN_ORDER,
    ]
    assert [read(record.value, context(topic)) for record in client.read(topic)] == [AN_ORDER, AN_ORDER]
