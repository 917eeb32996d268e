from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from doubles.connections import wrap
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from goqueue import (
    AvroDeserializer,
    AvroSerializer,
    JsonDeserializer,
    JsonSerializer,
    Outgoing,
    ProtobufDeserializer,
    ProtobufSerializer,
    Schema,
    SchemaReference,
    errors,
)
from goqueue.client.schemas import avro_serializers
from goqueue.testing import BrokerProcess
from goqueue.wire.registry_framing import encode_message_indexes, encode_schema_id

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "who", "type": "string"}],
}
WITH_NOTE = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": "none"}]}
WITH_TOTAL = {**ORDER, "fields": [*ORDER["fields"], {"name": "total", "type": "int"}]}
AN_ORDER = {"id": 7, "who": "ada"}
NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
JSON_ORDER = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "who": {"type": "string"}},
    "required": ["id"],
}


def protobuf(*names: str, package: str = "shop") -> Callable[[str], Any]:
    file = FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name in names:
        message = file.message_type.add(name=name)
        message.field.add(name="id", number=1, type=3, label=1)
        message.field.add(name="who", number=2, type=9, label=1)
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return lambda name: GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The calls that leave meanwhile, by the name of what they send."""
    sent: list[str] = []

    def counting(call: Any) -> Any:
        async def counted_call(self: Any, method: Any, request: Any, **more: Any) -> Any:
            sent.append(type(request).__name__)
            return await call(self, method, request, **more)

        return counted_call

    with monkeypatch.context() as patched:
        wrap(patched, "call", counting)
        yield sent


# The registry


def test_the_registry_is_at_hand(broker: BrokerProcess, topic: str) -> None:
    subject = f"{topic}-value"
    with broker.client() as client:
        schemas = client.schemas
        first = schemas.register(subject, ORDER)
        second = schemas.register(subject, WITH_NOTE)
        assert (first.subject, first.version, second.version) == (subject, 1, 2)
        assert schemas.get(first.id) == first.schema
        assert (schemas.latest(subject), schemas.version(subject, 1)) == (second, first)
        assert schemas.find(subject, ORDER) == first
        assert (schemas.versions(subject), schemas.subjects(topic)) == ([1, 2], [subject])
        assert schemas.check(subject, WITH_NOTE) == []
        [problem] = schemas.check(subject, WITH_TOTAL, version="latest")
        assert (problem.version, problem.rule) == (2, "READER_FIELD_MISSING_DEFAULT_VALUE")
        assert str(problem).startswith("READER_FIELD_MISSING_DEFAULT_VALUE at /fields/2 (version 2): ")
        assert schemas.delete(subject, 2) == [2]
        assert schemas.latest(subject) == first
        assert schemas.delete(subject) == [1]
        assert schemas.delete(subject, permanent=True) == [1, 2]
        with pytest.raises(errors.SubjectNotFound, match=subject):
            schemas.latest(subject)


def test_more_subjects_than_one_answer_holds_are_all_listed(
    broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("goqueue.client.schemas.schemas._SUBJECTS_PER_PAGE", 2)
    with broker.client() as client:
        names = [f"{topic}-{number}" for number in range(5)]
        for name in reversed(names):
            client.schemas.register(name, ORDER)
        assert client.schemas.subjects(topic) == names


def test_what_cannot_change_is_asked_for_once(
    broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with broker.client() as client, counted(monkeypatch) as sent:
        made = client.schemas.register("once-" + topic, ORDER)
        for _ in range(3):
            assert client.schemas.register("once-" + topic, ORDER) == made
            assert client.schemas.get(made.id) == made.schema
        assert sent == ["RegisterSchemaRequest"]
    with broker.client() as client, counted(monkeypatch) as sent:
        for _ in range(3):
            client.schemas.get(made.id)
        assert sent == ["GetSchemaRequest"]


@pytest.mark.parametrize("version", [0, -1, 1 << 40, "first", 1.5])
def test_what_is_no_version_is_refused(broker: BrokerProcess, version: Any) -> None:
    with broker.client() as client, pytest.raises(errors.InvalidRequest, match=r"version|registry"):
        client.schemas.version("any", version)


# Sending and reading


def test_values_of_every_kind_come_back_as_they_were(broker: BrokerProcess, wide_topic: str) -> None:
    message_class = protobuf("Order")("Order")
    with broker.client() as client:
        schemas = client.schemas
        kinds: list[tuple[Any, Any, Any]] = [
            (AvroSerializer(schemas, ORDER), AvroDeserializer(schemas), AN_ORDER),
            (JsonSerializer(schemas, JSON_ORDER), JsonDeserializer(schemas), AN_ORDER),
            (
                ProtobufSerializer(schemas, message_class),
                ProtobufDeserializer(schemas, message_class),
                message_class(id=7, who="ada"),
            ),
        ]
        for number, (serializer, deserializer, value) in enumerate(kinds):
            topic = f"{wide_topic}-{number}"
            client.create_topic(topic, partitions=1)
            with client.producer(serializer=serializer) as producer:
                producer.send(topic, value).result()
                producer.send_many(topic, [value, Outgoing(value, key="k"), Outgoing(None, key="k")])
            found = [record.value for record in client.read(topic, deserializer=deserializer)]
            assert found == [value, value, value, None]


def test_every_way_of_reading_knows_the_schemas_in_time(broker: BrokerProcess, topic: str, group: str) -> None:
    with broker.client() as client:
        for schema in (ORDER, WITH_NOTE):
            with client.producer(serializer=AvroSerializer(client.schemas, schema)) as producer:
                producer.send(topic, AN_ORDER | ({"note": "new"} if schema is WITH_NOTE else {})).result()
    expected = [AN_ORDER, AN_ORDER | {"note": "new"}]
    with broker.client() as client:
        with client.consumer(
            f"{group}-s", topic, mode="stream", deserializer=AvroDeserializer(client.schemas)
        ) as consumer:
            assert [next(consumer).value for _ in range(2)] == expected
        with client.consumer(f"{group}-q", topic, deserializer=AvroDeserializer(client.schemas)) as consumer:
            assert [next(consumer).value for _ in range(2)] == expected
        found: list[Any] = []

        def handle(message: Any) -> None:
            found.append(message.value)
            if len(found) == 2:
                handled.set()

        handled = threading.Event()
        consumer = client.consumer(f"{group}-w", topic, deserializer=AvroDeserializer(client.schemas))
        working = threading.Thread(target=lambda: consumer.run(handle, signals=False))
        working.start()
        assert handled.wait(30)
        consumer.close()
        working.join()
        assert sorted(map(str, found)) == sorted(map(str, expected))


async def test_every_way_of_reading_knows_the_schemas_in_time_on_a_loop(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async with broker.async_client() as client:
        for schema in (ORDER, WITH_NOTE):
            async with client.producer(serializer=AvroSerializer(client.schemas, schema)) as producer:
                await producer.send(topic, AN_ORDER | ({"note": "new"} if schema is WITH_NOTE else {}))
    expected = [AN_ORDER, AN_ORDER | {"note": "new"}]
    async with broker.async_client() as client:
        read = client.read(topic, deserializer=AvroDeserializer(client.schemas))
        assert [record.value async for record in read] == expected
        options = {"deserializer": AvroDeserializer(client.schemas)}
        async with client.consumer(f"{group}-s", topic, mode="stream", **options) as consumer:
            assert [(await anext(consumer)).value for _ in range(2)] == expected
        options = {"deserializer": AvroDeserializer(client.schemas)}
        async with client.consumer(f"{group}-q", topic, **options) as consumer:
            assert [(await anext(consumer)).value for _ in range(2)] == expected


async def test_many_who_send_at_once_ask_the_registry_once(
    broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker.async_client() as client:
        with counted(monkeypatch) as sent:
            async with client.producer(serializer=AvroSerializer(client.schemas, ORDER)) as producer:
                await asyncio.gather(*(producer.send(topic, AN_ORDER) for _ in range(50)))
                await producer.send(topic, AN_ORDER)
        assert sent.count("RegisterSchemaRequest") == 1
        assert not {"GetSchemaRequest", "GetSchemaVersionRequest"} & set(sent)


def test_keys_have_a_schema_of_their_own(broker: BrokerProcess, wide_topic: str) -> None:
    with broker.client() as client:
        keys = AvroSerializer(client.schemas, '"string"')
        with client.producer(key_serializer=keys) as producer:
            places = {producer.send(wide_topic, "v", key="ada").result().partition for _ in range(3)}
            places |= {each.partition for each in producer.send_many(wide_topic, [Outgoing("v", key="ada")] * 3)}
            producer.send(wide_topic, "v").result()
        assert len(places) == 1
        assert client.schemas.subjects(wide_topic) == [f"{wide_topic}-key"]
        read = AvroDeserializer(client.schemas)
        found = [record.key if record.key is None else read(record.key) for record in client.read(wide_topic)]
        assert sorted(found, key=str) == [None, *["ada"] * 6]


def test_json_takes_dataclasses_and_makes_what_it_is_told(broker: BrokerProcess, topic: str) -> None:
    @dataclass
    class Order:
        id: int
        who: str

    with broker.client() as client:
        with client.producer(serializer=JsonSerializer(client.schemas, JSON_ORDER)) as producer:
            producer.send(topic, Order(7, "ada")).result()
        decode = msgspec.json.Decoder(Order).decode
        [record] = client.read(topic, deserializer=JsonDeserializer(client.schemas, decode=decode))
        assert record.value == Order(7, "ada")


# Which schema


def test_values_are_written_with_the_latest_schema(broker: BrokerProcess, topic: str) -> None:
    with broker.client() as client:
        client.schemas.register(f"{topic}-value", ORDER)
        now = AvroSerializer(client.schemas, use_latest=True, latest_max_age=0)
        kept = AvroSerializer(client.schemas, use_latest=True)
        first = client.schemas.latest(f"{topic}-value")
        assert (
            kept.serialize(topic, AN_ORDER)
            == now.serialize(topic, AN_ORDER)
            == encode_schema_id(first.id) + b"\x0e\x06ada"
        )
        second = client.schemas.register(f"{topic}-value", WITH_NOTE)
        assert now.serialize(topic, AN_ORDER) == encode_schema_id(second.id) + b"\x0e\x06ada\x08none"
        assert kept.serialize(topic, AN_ORDER) == encode_schema_id(first.id) + b"\x0e\x06ada"
        # A subject that has none any more does not stop who knows one.
        with broker.client() as other:
            other.schemas.delete(f"{topic}-value")
        assert now.serialize(topic, AN_ORDER) == encode_schema_id(second.id) + b"\x0e\x06ada\x08none"


async def test_when_the_latest_schema_is_old_it_is_asked_for_once_however_long_nobody_asked(
    broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker.async_client() as client:
        await client.schemas.register(f"{topic}-value", ORDER)
        write = AvroSerializer(client.schemas, use_latest=True, latest_max_age=60)
        known = await write.bind(topic)
        long_ago = asyncio.get_running_loop().time() - 3_600
        write._bound.put(f"{topic}-value", (known, long_ago))
        with counted(monkeypatch) as sent:
            await asyncio.gather(*(write.bind(topic) for _ in range(10)))
        assert sent == ["GetSchemaVersionRequest"]


def test_what_was_deleted_is_not_written_with_any_more(broker: BrokerProcess, topic: str) -> None:
    subject = f"{topic}-value"
    with broker.client() as client:
        write = AvroSerializer(client.schemas, ORDER)
        strict = AvroSerializer(client.schemas, ORDER, auto_register=False)
        latest = AvroSerializer(client.schemas, use_latest=True)
        elsewhere = AvroSerializer(client.schemas, ORDER, subject=f"{topic}-other")
        for each in (write, strict, latest, elsewhere):
            each.serialize(topic, AN_ORDER)
        client.schemas.delete(subject)
        for each in (strict, latest):
            with pytest.raises(errors.SubjectNotFound):
                each.serialize(topic, AN_ORDER)
        write.serialize(topic, AN_ORDER)
        assert client.schemas.versions(subject) == [2]
        assert list(elsewhere._bound._cached) == [f"{topic}-other"]


async def test_what_is_registered_while_it_is_deleted_is_asked_for_again(
    broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = f"{topic}-value"
    async with broker.async_client() as client:

        def registering(call: Any) -> Any:
            async def register_first(self: Any, method: Any, request: Any, **more: Any) -> Any:
                if type(request).__name__ == "DeleteSubjectRequest":
                    await client.schemas.register(subject, ORDER)
                return await call(self, method, request, **more)

            return register_first

        wrap(monkeypatch, "call", registering)
        await client.schemas.register(subject, ORDER)
        assert await client.schemas.delete(subject) == [1]
        await client.schemas.register(subject, ORDER)
        assert await client.schemas.versions(subject) == [2]


async def test_large_schemas_are_made_ready_by_a_thread(
    broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = {**ORDER, "doc": "long " * 1_000}
    threads: list[int] = []
    compile_schema = avro_serializers._compile

    def noting(schema: Any) -> Any:
        threads.append(threading.get_ident())
        return compile_schema(schema)

    monkeypatch.setattr(avro_serializers, "_compile", noting)
    async with broker.async_client() as client:
        for schema in (ORDER, large):
            threads.clear()
            written = await AvroSerializer(client.schemas, schema).serialize(topic, AN_ORDER)
            assert await AvroDeserializer(client.schemas).read(written) == AN_ORDER
            assert [each == threading.get_ident() for each in threads] == [schema is ORDER] * 2


def test_values_are_written_with_a_pinned_version_or_under_another_subject(broker: BrokerProcess, topic: str) -> None:
    with broker.client() as client:
        first = client.schemas.register(topic, ORDER)
        client.schemas.register(topic, WITH_NOTE)
        pinned = AvroSerializer(client.schemas, version=1, subject=topic)
        assert pinned.serialize("elsewhere", AN_ORDER) == encode_schema_id(first.id) + b"\x0e\x06ada"
        assert client.schemas.subjects("elsewhere") == []


def test_without_auto_register_a_schema_has_to_be_there(broker: BrokerProcess, topic: str) -> None:
    with broker.client() as client:
        strict = AvroSerializer(client.schemas, ORDER, auto_register=False)
        with pytest.raises(errors.SubjectNotFound, match=f"'{topic}-value'"):
            strict.serialize(topic, AN_ORDER)
        client.schemas.register(f"{topic}-value", WITH_NOTE)
        with pytest.raises(errors.SchemaNotFound, match="no such schema"):
            strict.serialize(topic, AN_ORDER)
        assert client.schemas.versions(f"{topic}-value") == [1]
        client.schemas.register(f"{topic}-value", ORDER)
        assert strict.serialize(topic, AN_ORDER)[5:] == b"\x0e\x06ada"


def test_a_schema_that_does_not_fit_is_not_sent_with(broker: BrokerProcess, topic: str) -> None:
    with broker.client() as client:
        client.schemas.register(f"{topic}-value", ORDER)
        with client.producer(serializer=AvroSerializer(client.schemas, WITH_TOTAL)) as producer:
            for _ in range(2):
                with pytest.raises(errors.IncompatibleSchema, match="READER_FIELD_MISSING_DEFAULT_VALUE at /fields/2"):
                    producer.send(topic, AN_ORDER | {"total": 1})
        assert list(client.read(topic)) == []


def test_a_subject_without_a_schema_is_told(broker: BrokerProcess, topic: str) -> None:
    with (
        broker.client() as client,
        client.producer(serializer=AvroSerializer(client.schemas, use_latest=True)) as producer,
    ):
        with pytest.raises(errors.SubjectNotFound, match=f"'{topic}-value'"):
            producer.send(topic, AN_ORDER)
        with pytest.raises(errors.SubjectNotFound, match=f"'{topic}-value'"):
            producer.send_many(topic, [AN_ORDER])


def test_a_schema_of_another_kind_is_refused(broker: BrokerProcess, topic: str) -> None:
    with broker.client() as client:
        client.schemas.register(f"{topic}-value", JSON_ORDER, "JSON")
        with pytest.raises(errors.InvalidSchema, match="has a JSON schema; this serializer writes AVRO"):
            AvroSerializer(client.schemas, use_latest=True).serialize(topic, AN_ORDER)
        written = JsonSerializer(client.schemas, use_latest=True).serialize(topic, AN_ORDER)
        with pytest.raises(errors.InvalidSchema, match="is of kind JSON; this deserializer reads AVRO"):
            AvroDeserializer(client.schemas)(written)


@pytest.mark.parametrize(
    "options",
    [{}, {"use_latest": True, "version": 1}, {"schema": ORDER, "version": 1}, {"schema": ORDER, "use_latest": True}],
)
def test_it_has_to_be_clear_which_schema_is_meant(broker: BrokerProcess, options: dict[str, Any]) -> None:
    with broker.client() as client, pytest.raises(errors.InvalidConfiguration, match="either a schema"):
        AvroSerializer(client.schemas, **options)


def test_wrong_arguments_are_refused(broker: BrokerProcess) -> None:
    with broker.client() as client:
        with pytest.raises(errors.InvalidConfiguration, match=r"give client\.schemas"):
            AvroSerializer(client, ORDER)  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidConfiguration, match="needs one of kind AVRO"):
            AvroSerializer(client.schemas, Schema("{}", "JSON"))
        with pytest.raises(errors.InvalidConfiguration, match="no class"):
            ProtobufSerializer(client.schemas, dict)  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidConfiguration, match="needs to know the topic"):
            AvroSerializer(client.schemas, ORDER)(AN_ORDER)
        with pytest.raises(errors.InvalidSchema, match="neither a text nor JSON"):
            AvroSerializer(client.schemas, {"type": object()})


# What does not fit


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"id": "x", "who": "ada"}, r"shop\.Order\.id: 'x' is no long"),
        ({"who": "ada"}, r"shop\.Order\.id: None is no long"),
        ({"id": 1 << 70, "who": "ada"}, r"shop\.Order\.id"),
        ("ada", "'ada' is no record shop.Order"),
        (object(), "is no record shop.Order"),
    ],
)
def test_an_avro_value_that_does_not_fit_is_refused_with_the_place(
    broker: BrokerProcess, topic: str, value: Any, why: str
) -> None:
    with broker.client() as client, client.producer(serializer=AvroSerializer(client.schemas, ORDER)) as producer:
        with pytest.raises(errors.InvalidMessage, match=f"of subject '{topic}-value': .*{why}"):
            producer.send(topic, value)
        with pytest.raises(errors.NotAllStored, match=why) as failure:
            producer.send_many(topic, [AN_ORDER, value, AN_ORDER])
        assert isinstance(failure.value.failures[1], errors.InvalidMessage)
        assert len(list(client.read(topic))) == 2


def test_avro_looks_closely_if_asked_to(broker: BrokerProcess, topic: str) -> None:
    schema = {"type": "record", "name": "Price", "fields": [{"name": "cents", "type": "int"}]}
    with broker.client() as client:
        assert AvroSerializer(client.schemas, schema).serialize(topic, {"cents": 3.7})[5:] == b"\x06"
        careful = AvroSerializer(client.schemas, schema, validate=True)
        for wrong in (3.7, 1 << 40):
            with pytest.raises(errors.InvalidMessage, match=r"Price\.cents: .* is no int"):
                careful.serialize(topic, {"cents": wrong})
        assert careful.serialize(topic, {"cents": 3})[5:] == b"\x06"


def test_a_json_value_that_does_not_fit_is_refused_with_the_place(broker: BrokerProcess, topic: str) -> None:
    with broker.client() as client:
        checked = JsonSerializer(client.schemas, JSON_ORDER)
        with client.producer(serializer=checked) as producer:
            with pytest.raises(errors.InvalidMessage, match="/id"):
                producer.send(topic, {"id": "x"})
            with pytest.raises(errors.InvalidMessage, match="cannot be written as JSON"):
                producer.send(topic, {"id": object()})
        unchecked = JsonSerializer(client.schemas, JSON_ORDER, validate=False).serialize(topic, {"id": "x"})
        with pytest.raises(errors.InvalidMessage, match=r"does not fit schema .*/id"):
            JsonDeserializer(client.schemas)(unchecked)
        assert JsonDeserializer(client.schemas, validate=False)(unchecked) == {"id": "x"}
        with pytest.raises(errors.InvalidMessage, match="cannot be read as JSON"):
            JsonDeserializer(client.schemas, validate=False)(unchecked[:-1])


def test_a_protobuf_value_of_another_class_is_refused(broker: BrokerProcess, topic: str) -> None:
    classes = protobuf("Order", "Refund")
    with broker.client() as client:
        write = ProtobufSerializer(client.schemas, classes("Order"))
        with pytest.raises(errors.InvalidMessage, match=r"is a Refund; this serializer writes shop\.Order"):
            write.serialize(topic, classes("Refund")(id=1))
        refund = ProtobufSerializer(client.schemas, classes("Refund")).serialize(topic, classes("Refund")(id=1))
        with pytest.raises(errors.InvalidMessage, match=r"is a shop\.Refund; this deserializer reads shop\.Order"):
            ProtobufDeserializer(client.schemas, classes("Order"))(refund)
        read = ProtobufDeserializer(client.schemas)
        assert read(refund).id == 1
        header = refund[:5]
        with pytest.raises(errors.InvalidMessage, match=r"no message at \[2\]"):
            read(header + encode_message_indexes([2]))
        with pytest.raises(errors.InvalidMessage, match=r"is no shop\.Order"):
            read(header + b"\x00\xff\xff")
        with pytest.raises(errors.InvalidMessage, match="ends before"):
            read(header)


def test_protobuf_is_written_at_its_place_in_the_latest_schema(broker: BrokerProcess, topic: str) -> None:
    mine, other = protobuf("Order")("Order"), protobuf("Refund", "Order")
    with broker.client() as client:
        ProtobufSerializer(client.schemas, other("Refund")).serialize(topic, other("Refund")())
        latest = client.schemas.latest(f"{topic}-value")
        written = ProtobufSerializer(client.schemas, mine, use_latest=True).serialize(topic, mine(id=3))
        assert written == encode_schema_id(latest.id) + b"\x02\x02" + mine(id=3).SerializeToString()
        strange = protobuf("Parcel")("Parcel")
        with pytest.raises(errors.InvalidSchema, match=r"has no message shop\.Parcel"):
            ProtobufSerializer(client.schemas, strange, use_latest=True).serialize(topic, strange())


# Reading what others wrote


def test_an_old_value_is_read_as_the_reader_knows_it(broker: BrokerProcess, topic: str) -> None:
    with broker.client() as client:
        with client.producer(serializer=AvroSerializer(client.schemas, ORDER)) as producer:
            producer.send(topic, AN_ORDER).result()
        latest = client.schemas.register(f"{topic}-value", WITH_NOTE)
        for reader in (WITH_NOTE, latest.schema):
            [record] = client.read(topic, deserializer=AvroDeserializer(client.schemas, reader))
            assert record.value == AN_ORDER | {"note": "none"}
        [record] = client.read(topic, deserializer=AvroDeserializer(client.schemas))
        assert record.value == AN_ORDER
        with pytest.raises(errors.InvalidMessage, match="READER_FIELD_MISSING_DEFAULT_VALUE at /fields/2"):
            list(client.read(topic, deserializer=AvroDeserializer(client.schemas, WITH_TOTAL)))


def test_a_json_value_has_to_fit_the_reader_if_there_is_one(broker: BrokerProcess, topic: str) -> None:
    with broker.client() as client:
        written = JsonSerializer(client.schemas, JSON_ORDER).serialize(topic, {"id": 7})
        strict = {**JSON_ORDER, "required": ["id", "who"]}
        with pytest.raises(errors.InvalidMessage, match="does not fit the reader's schema"):
            JsonDeserializer(client.schemas, strict)(written)
        assert JsonDeserializer(client.schemas)(written) == {"id": 7}


def test_what_has_no_schema_or_an_unknown_one_is_told(broker: BrokerProcess, topic: str) -> None:
    with broker.client() as client:
        read = AvroDeserializer(client.schemas)
        with pytest.raises(errors.InvalidMessage, match="begins with 0x7b"):
            read(b'{"id": 7}')
        with pytest.raises(errors.InvalidMessage, match="this one has 2"):
            read(b"\x00\x01")
        for _ in range(2):
            with pytest.raises(errors.SchemaNotFound, match="4000000000"):
                read(encode_schema_id(4_000_000_000) + b"\x00")


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"", "/id"), (b"\x0e\x06ad", "/who"), (b"\x0e\x06ada\x00", "left over"), (b"\x0e\x02\xff", "not UTF-8")],
)
def test_avro_bytes_that_do_not_fit_are_refused_with_the_place(
    broker: BrokerProcess, topic: str, content: bytes, why: str
) -> None:
    with broker.client() as client:
        made = client.schemas.register(f"{topic}-value", ORDER)
        with pytest.raises(errors.InvalidMessage, match=f"cannot be read with schema {made.id}: .*{why}"):
            AvroDeserializer(client.schemas)(encode_schema_id(made.id) + content)


@pytest.mark.parametrize(
    ("schema", "content", "why"),
    [
        (NODE, b"\x02" * 300_000 + b"\x00", "more than 500 deep"),
        ({"type": "array", "items": ["null", NODE]}, b"\x02" + b"\x02" * 501 + b"\x00\x00", "more than 500 deep"),
        ({"type": "map", "values": NODE}, b"\x02\x02k" + b"\x02" * 501 + b"\x00\x00", "more than 500 deep"),
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\xff\xff\x7f\x00", "take no bytes"),
        (
            {"type": "array", "items": {"type": "record", "name": "Empty", "fields": []}},
            b"\xfe\xff\xff\xff\xff\xff\x7f\x00",
            "take no bytes",
        ),
    ],
)
def test_a_few_bytes_that_stand_for_a_lot_end_no_reader(
    broker: BrokerProcess, topic: str, schema: Any, content: bytes, why: str
) -> None:
    with broker.client() as client:
        made = client.schemas.register(f"{topic}-value", schema)
        with pytest.raises(errors.InvalidMessage, match=why):
            AvroDeserializer(client.schemas)(encode_schema_id(made.id) + content)


def test_a_value_that_is_too_deep_to_be_written_is_refused(broker: BrokerProcess, topic: str) -> None:
    def nested(depth: int) -> Any:
        value = None
        for _ in range(depth):
            value = {"next": value}
        return value

    with broker.client() as client:
        write, read = AvroSerializer(client.schemas, NODE), AvroDeserializer(client.schemas)
        assert read(write.serialize(topic, nested(500))) == nested(500)
        for depth in (501, 50_000):
            with pytest.raises(errors.InvalidMessage, match="up to 500 deep"):
                write.serialize(topic, nested(depth))


def test_a_type_within_itself_is_read(broker: BrokerProcess, topic: str) -> None:
    schema = {
        "type": "record",
        "name": "Many",
        "fields": [
            {"name": "numbers", "type": {"type": "map", "values": {"type": "array", "items": "double"}}},
            {"name": "raw", "type": {"type": "fixed", "name": "Two", "size": 2}},
            {"name": "flags", "type": {"type": "array", "items": "boolean"}},
            {"name": "nothing", "type": {"type": "array", "items": "null"}},
            {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "OLD"]}},
            {"name": "nodes", "type": {"type": "array", "items": NODE}},
        ],
    }
    value = {
        "numbers": {"a": [1.5, 2.5], "b": []},
        "raw": b"xy",
        "flags": [True, False],
        "nothing": [None, None],
        "state": "OLD",
        "nodes": [{"next": {"next": {"next": None}}}, {"next": None}],
    }
    with broker.client() as client:
        written = AvroSerializer(client.schemas, schema).serialize(topic, value)
        assert AvroDeserializer(client.schemas)(written) == value


def test_schemas_that_refer_to_others_are_read(broker: BrokerProcess, topic: str) -> None:
    with broker.client() as client:
        client.schemas.register(topic, ORDER)
        orders = Schema(
            '{"type": "array", "items": "shop.Order"}', references=(SchemaReference("shop.Order", topic, 1),)
        )
        written = AvroSerializer(client.schemas, orders).serialize(topic, [AN_ORDER])
    with broker.client() as client:
        assert AvroDeserializer(client.schemas)(written) == [AN_ORDER]


def test_a_message_that_cannot_be_read_fails_where_it_is_handled(broker: BrokerProcess, topic: str, group: str) -> None:
    with broker.client() as client:
        with client.producer() as producer:
            producer.send_many(topic, [encode_schema_id(4_000_000_001) + b"x", b"{}"])
        with client.producer(serializer=AvroSerializer(client.schemas, ORDER)) as producer:
            producer.send(topic, AN_ORDER).result()
        with client.consumer(group, topic, deserializer=AvroDeserializer(client.schemas)) as consumer:
            unknown, plain, good = (next(consumer) for _ in range(3))
            with pytest.raises(errors.SchemaNotFound):
                _ = unknown.value
            with pytest.raises(errors.InvalidMessage):
                _ = plain.value
            assert good.value == AN_ORDER


async def test_on_a_loop_a_value_from_elsewhere_is_read_by_awaiting_it(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client:
        written = await AvroSerializer(client.schemas, ORDER).serialize(topic, AN_ORDER)
        read = AvroDeserializer(client.schemas)
        with pytest.raises(errors.ClientError, match="not asked for yet"):
            read(written)
        assert await read.read(written) == AN_ORDER
        assert read(written) == AN_ORDER
        with pytest.raises(errors.SchemaNotFound):
            await read.read(encode_schema_id(4_000_000_002))


async def test_who_waits_for_a_schema_hears_that_the_client_was_closed(broker: BrokerProcess) -> None:
    client = broker.async_client()
    asking = asyncio.ensure_future(client.schemas.get(4_000_000_003))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(errors.ClientClosed):
        await asking
