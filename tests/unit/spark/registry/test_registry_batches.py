"""Batches of framed values with a real registry: evolution both ways, and what cannot be read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue import AvroDeserializer, AvroSerializer, JsonDeserializer, JsonSerializer, ProtobufDeserializer, errors
from goqueue.client.schemas.schemas import Schema
from goqueue.client.sync import Client
from goqueue.schemas.base import SchemaKind
from goqueue.spark.registry import registry_decoding, schema_columns
from goqueue.spark.registry.registry_decoding import BatchDecoder, decode_batch
from goqueue.spark.registry.registry_encoding import BatchEncoder, encode_batch
from goqueue.spark.source import clients
from goqueue.testing import BrokerProcess, running_broker
from goqueue.wire.registry_framing import encode_message_indexes, encode_schema_id

_numbers = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with running_broker(settings={"storage.min_free_bytes": 0}) as broker:
        yield broker


@pytest.fixture(scope="module")
def client(broker: BrokerProcess) -> Iterator[Client]:
    with broker.client() as client:
        yield client


@pytest.fixture
def subject() -> str:
    return f"subject-{next(_numbers)}"


def avro(*fields: tuple[str, Any] | tuple[str, Any, Any]) -> str:
    names = ("name", "type", "default")
    return json.dumps(
        {"type": "record", "name": "Order", "fields": [dict(zip(names, each, strict=False)) for each in fields]}
    )


def json_schema(**properties: Any) -> str:
    return json.dumps({"type": "object", "properties": properties})


def proto(fields: str) -> str:
    return f'syntax = "proto3"; message Order {{ {fields} }} message Other {{ string x = 1; }}'


INT, LONG, TEXT = {"type": "integer"}, {"type": "number"}, {"type": "string"}
OLD_AND_NEW: dict[SchemaKind, tuple[str, str]] = {
    "AVRO": (
        avro(("id", "int"), ("gone", "string", "-")),
        avro(("id", "long"), ("note", "string", "none"), ("more", ["null", "int"], None)),
    ),
    "JSON": (
        json_schema(id=INT, gone=TEXT),
        json_schema(id=LONG, note={"type": "string", "default": "none"}, more=INT),
    ),
    "PROTOBUF": (
        proto("int32 id = 1; string gone = 2;"),
        proto("int64 id = 1; string note = 3; optional int32 more = 4;"),
    ),
}


def registered(client: Client, subject: str, text: str, kind: SchemaKind) -> Schema:
    return client.schemas.register(subject, text, kind).schema


def both(client: Client, subject: str, kind: SchemaKind) -> tuple[Schema, Schema]:
    old, new = OLD_AND_NEW[kind]
    # The registry does not have to agree: the test is about reading.
    first = registered(client, subject, old, kind)
    return first, registered(client, f"{subject}-2", new, kind)


def write(client: Client, schema: Schema, *rows: Any) -> list[bytes]:
    names = {name: None for row in rows for name in row}
    table = pa.array([{name: row.get(name) for name in names} for row in rows])
    found: list[bytes] = BatchEncoder(client.schemas, "s", schema).encode(table).to_pylist()
    return found


def read(client: Client, schema: Schema, *values: bytes | None) -> tuple[list[Any], dict[int, str]]:
    found, wrong = BatchDecoder(client.schemas, schema).decode(pa.array(values, pa.binary()))
    return found.to_pylist(), wrong


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_values_of_the_old_schema_are_read_with_the_new_and_the_other_way(
    client: Client, subject: str, kind: SchemaKind
) -> None:
    old, new = both(client, subject, kind)
    values = write(client, old, {"id": 1, "gone": "x"}) + write(client, new, {"id": 2, "note": "n", "more": 3})
    note = "" if kind == "PROTOBUF" else "none"
    wanted = [{"id": 1, "note": note, "more": None}, {"id": 2, "note": "n", "more": 3}]
    assert read(client, new, *values) == (wanted, {})
    absent = {"AVRO": "-", "JSON": None, "PROTOBUF": ""}[kind]
    found, wrong = read(client, old, *values)
    if kind == "AVRO":
        # Numbers widen in one direction only.
        assert found == [{"id": 1, "gone": "x"}, None]
        assert wrong == {
            1: f"the value cannot be read with schema {new.id}: long was written, which cannot be read as int"
        }
        old = registered(client, f"{subject}-3", avro(("id", "long"), ("gone", "string", "-")), "AVRO")
        found, wrong = read(client, old, *values)
    assert (found, wrong) == ([{"id": 1, "gone": "x"}, {"id": 2, "gone": absent}], {})


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_what_cannot_be_read_is_null_and_told_and_harms_nobody_else(
    client: Client, subject: str, kind: SchemaKind
) -> None:
    schema, _ = both(client, subject, kind)
    [good] = write(client, schema, {"id": 1, "gone": "x"})
    unknown, cut = encode_schema_id(4_000_000) + good[5:], good[:-1]
    values = [good, None, b"", b"{    }", unknown, cut, b"\x00\x00", good]
    found, wrong = read(client, schema, *values)
    row = {"id": 1, "gone": "x"}
    assert found == [row, None, None, None, None, None, None, row]
    assert [*wrong] == [2, 3, 4, 5, 6]
    assert "begins with 0x7b" in wrong[3]
    assert "4000000" in wrong[4]
    assert f"schema {schema.id}" in wrong[5]


def test_a_schema_of_another_kind_is_told_for_its_values_only(client: Client, subject: str) -> None:
    avro_schema, json_one = both(client, subject, "AVRO")[0], both(client, f"{subject}-j", "JSON")[0]
    values = write(client, json_one, {"id": 1}) + write(client, avro_schema, {"id": 1, "gone": "x"})
    found, wrong = read(client, avro_schema, *values)
    assert found == [None, {"id": 1, "gone": "x"}]
    assert wrong == {0: f"schema {json_one.id} is of kind JSON; this deserializer reads AVRO"}


def test_a_row_that_arrow_refuses_is_found_among_many(client: Client, subject: str) -> None:
    schema = registered(client, subject, json_schema(id=INT), "JSON")
    header = encode_schema_id(schema.id)
    whole = {5: b'{"id": 5.0}', 6: b'{"id": 6e0}'}
    bad = {17: b'{"id": 1.5}', 600: b'{"id": 99999999999999999999}', 999: b'{"id": "x"}'}
    values = [header + (whole | bad).get(place, b'{"id": %d}' % place) for place in range(1_000)]
    found, wrong = read(client, schema, *values)
    assert [*wrong] == [*bad]
    assert "`$.id`" in wrong[999]
    assert [row and row["id"] for row in found] == [None if place in bad else place for place in range(1_000)]


def test_another_message_of_the_schema_is_no_value_unless_it_is_asked_for(client: Client, subject: str) -> None:
    schema, _ = both(client, subject, "PROTOBUF")
    value = encode_schema_id(schema.id) + encode_message_indexes([1]) + b"\x0a\x01y"
    found, wrong = read(client, schema, value, encode_schema_id(schema.id) + encode_message_indexes([9]))
    assert found == [None, None]
    assert "is a Other; Order is read here" in wrong[0]
    assert "is no message of its schema" in wrong[1]
    others = BatchDecoder(client.schemas, schema, "Other").decode(pa.array([value]))
    assert others[0].to_pylist() == [{"x": "y"}]
    again = BatchEncoder(client.schemas, subject, schema, "Other").encode(others[0])
    assert again.to_pylist() == [value]


@given(st.lists(st.binary(max_size=40), max_size=20))
@settings(max_examples=25, deadline=None)
def test_no_bytes_whatever_stop_a_batch(client: Client, contents: list[bytes]) -> None:
    for kind in OLD_AND_NEW:
        schema, _ = both(client, f"any-{kind}", kind)
        values = [encode_schema_id(schema.id) + each for each in contents]
        found, wrong = read(client, schema, *values)
        assert len(found) == len(values)
        assert {place for place, each in enumerate(found) if each is None} >= wrong.keys()


def test_what_is_written_is_read_by_the_clients_of_every_format(client: Client, subject: str) -> None:
    row = {"id": 1, "gone": "x"}
    values = {kind: write(client, both(client, subject + kind, kind)[0], row)[0] for kind in OLD_AND_NEW}
    assert AvroDeserializer(client.schemas)(values["AVRO"]) == row
    assert JsonDeserializer(client.schemas)(values["JSON"]) == row
    message = ProtobufDeserializer(client.schemas)(values["PROTOBUF"])
    assert (message.id, message.gone) == (1, "x")


def test_what_the_clients_write_is_read(client: Client, subject: str) -> None:
    old, new = OLD_AND_NEW["AVRO"]
    written = AvroSerializer(client.schemas, old).serialize(subject, {"id": 1, "gone": "x"})
    reader = registered(client, f"{subject}-value", new, "AVRO")
    assert read(client, reader, written) == ([{"id": 1, "note": "none", "more": None}], {})
    plain = registered(client, f"{subject}-b", '"bytes"', "AVRO")
    assert read(client, plain, AvroSerializer(client.schemas, '"bytes"').serialize("b", b"\x01\x02")) == (
        [b"\x01\x02"],
        {},
    )
    told = JsonSerializer(client.schemas, OLD_AND_NEW["JSON"][0]).serialize(f"{subject}-j", {"id": 2, "z": 1})
    reader = client.schemas.latest(f"{subject}-j-value").schema
    assert read(client, reader, told) == ([{"id": 2, "gone": None}], {})


def test_unions_are_written_as_the_member_that_is_set(client: Client, subject: str) -> None:
    kinds = ["null", "long", "string", {"type": "enum", "name": "E", "symbols": ["A", "B"]}]
    schema = registered(client, subject, avro(("u", kinds), ("l", {"type": "array", "items": kinds[1:3]})), "AVRO")
    rows = [
        {"u": {"member0": 4, "member1": None, "member2": None}, "l": [{"member0": None, "member1": "x"}]},
        {"u": {"member0": None, "member1": "B", "member2": None}, "l": []},
        {"u": {"member0": None, "member1": None, "member2": "B"}, "l": [{"member0": 1, "member1": None}]},
        {"u": None, "l": []},
    ]
    values = write(client, schema, *rows)
    assert [AvroDeserializer(client.schemas)(each)["u"] for each in values] == [4, "B", "B", None]
    assert read(client, schema, *values) == (rows, {})


@pytest.mark.parametrize(
    ("kind", "row", "named"),
    [
        ("AVRO", {"id": None, "gone": "x"}, r"Order\.id"),
        ("AVRO", {"gone": "x"}, "id"),
        ("AVRO", {"id": 2**40, "gone": "x"}, "id: Integer value 1099511627776"),
        ("JSON", {"id": 1, "other": 2}, "other: the schema has no such field; it has id, gone"),
        ("PROTOBUF", {"id": "x"}, "id: string is given, and int32 is wanted"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_and_its_field_named(
    client: Client, subject: str, kind: SchemaKind, row: Any, named: str
) -> None:
    schema, _ = both(client, subject, kind)
    with pytest.raises(errors.InvalidMessage, match=named):
        write(client, schema, row)


def test_json_that_breaks_a_rule_of_its_schema_is_not_written(client: Client, subject: str) -> None:
    text = json.dumps({"type": "object", "properties": {"n": {"type": "integer", "maximum": 5}}, "required": ["n"]})
    schema = registered(client, subject, text, "JSON")
    with pytest.raises(errors.InvalidMessage, match=f"schema {schema.id} of subject 's': /n: the value is greater"):
        write(client, schema, {"n": 5}, {"n": 6})
    with pytest.raises(errors.InvalidMessage, match="/n: "):
        write(client, schema, {"n": None})


def test_the_reader_may_refer_to_other_schemas(client: Client, subject: str) -> None:
    part = client.schemas.register(f"{subject}-part", '{"type": "enum", "name": "Kind", "symbols": ["A", "B"]}')
    reference = {"name": "Kind", "subject": part.subject, "version": part.version}
    from goqueue import SchemaReference

    given = Schema(avro(("kind", "Kind")), "AVRO", (SchemaReference(**reference),))
    schema = client.schemas.register(subject, given).schema
    assert read(client, schema, *write(client, schema, {"kind": "B"})) == ([{"kind": "B"}], {})


def test_a_worker_asks_for_each_schema_once_and_keeps_its_reader(
    broker: BrokerProcess, client: Client, subject: str
) -> None:
    schema, _ = both(client, subject, "AVRO")
    brokers = (broker.address,)
    bytes_ = encode_batch(brokers, subject, schema, "", pa.array([{"id": 1, "gone": "x"}, None]))
    values = pa.concat_arrays([bytes_, pa.array([b"?"])])
    found = decode_batch(brokers, schema, "", "corrupt", values).to_pylist()
    assert found == [
        {"value": {"id": 1, "gone": "x"}, "_corrupt": None},
        {"value": None, "_corrupt": None},
        {"value": None, "_corrupt": {"error": found[2]["_corrupt"]["error"], "bytes": b"?"}},
    ]
    known = registry_decoding._decoder_for.cache_info().misses
    assert decode_batch(brokers, schema, "", "corrupt", values).to_pylist() == found
    assert registry_decoding._decoder_for.cache_info().misses == known
    assert decode_batch(brokers, schema, "", "null", values).to_pylist()[2] is None
    with pytest.raises(errors.InvalidMessage, match="value 2 of a batch of 3 cannot be read"):
        decode_batch(brokers, schema, "", "fail", values)
    clients.client_for(brokers).close()
    clients._clients.clear()


def test_values_are_not_called_corrupt_because_the_registry_is_away() -> None:
    with Client("127.0.0.1:1", connect_timeout_ms=100) as away:
        reader = BatchDecoder(away.schemas, Schema(OLD_AND_NEW["AVRO"][0], "AVRO"))
        with pytest.raises(errors.BrokerUnavailable):
            reader.decode(pa.array([encode_schema_id(1) + b"\x02\x00"]))


def test_what_is_wrong_is_told_when_the_function_is_called(
    broker: BrokerProcess, client: Client, subject: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(errors.SubjectNotFound):
        schema_columns.from_registry("value", subject, brokers=broker.address)
    registered(client, subject, OLD_AND_NEW["AVRO"][0], "AVRO")
    with pytest.raises(errors.VersionNotFound):
        schema_columns.from_registry("value", subject, brokers=[broker.address], version=7)
    tree = '{"type": "record", "name": "T", "fields": [{"name": "t", "type": ["null", "T"]}]}'
    registered(client, f"{subject}-tree", tree, "AVRO")
    with pytest.raises(errors.InvalidSchema, match=r"\.t: T lies within itself"):
        schema_columns.from_registry("value", f"{subject}-tree", brokers=broker.address)
    with monkeypatch.context() as patch, pytest.raises(errors.BrokerUnavailable):
        patch.setattr(schema_columns, "Client", partial(Client, connect_timeout_ms=100))
        schema_columns.from_registry("value", subject, brokers="127.0.0.1:1")
    with pytest.raises(errors.InvalidConfiguration, match="on_error is 'drop'"):
        schema_columns.from_registry("value", subject, on_error="drop")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidConfiguration, match="no schema to register"):
        schema_columns.to_registry("value", subject, version="register")
    with pytest.raises(errors.InvalidConfiguration, match="give only one"):
        schema_columns.to_registry("value", subject, version=2, schema="{}")
    with pytest.raises(errors.InvalidConfiguration, match="brokers is empty"):
        schema_columns.to_registry("value", subject, brokers=" , ")
