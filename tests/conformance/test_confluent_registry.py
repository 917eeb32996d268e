"""The schema registry as the client of Confluent's registry uses it, unchanged."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from behaviour.process import BrokerProcess
from confluent_kafka.schema_registry import (
    AsyncSchemaRegistryClient,
    ConfigCompatibilityLevel,
    Metadata,
    MetadataProperties,
    Rule,
    RuleKind,
    RuleMode,
    RuleSet,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
    ServerConfig,
)


def avro_record(*fields: Any, name: str = "Order") -> Schema:
    made = [each if isinstance(each, dict) else {"name": each, "type": "string"} for each in fields]
    return Schema(json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": made}), "AVRO")


FIRST = avro_record("id")
SECOND = avro_record("id", {"name": "note", "type": "string", "default": ""})
NOT_BACKWARD = avro_record("id", "total")


@pytest.fixture
def registry(broker: BrokerProcess) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": broker.url}) as client:
        yield client


def code_of(call: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[int, int]:
    """Status and code of the error that a call raises."""
    with pytest.raises(SchemaRegistryError) as raised:
        call(*arguments, **options)
    assert raised.value.error_message
    return raised.value.http_status_code, raised.value.error_code


# Registering and looking up


def test_a_schema_is_registered_once_and_found_by_everything_it_has(
    registry: SchemaRegistryClient, subject: str
) -> None:
    schema_id = registry.register_schema(subject, FIRST)
    registry.clear_caches()
    assert registry.register_schema(subject, FIRST) == schema_id
    registry.clear_caches()
    again = registry.register_schema_full_response(subject, FIRST)
    assert (again.schema_id, again.version, again.subject) == (schema_id, 1, subject)
    registry.clear_caches()
    assert registry.get_schema(schema_id).schema_str == FIRST.schema_str
    assert registry.get_schema(schema_id, subject_name=subject).schema_type == "AVRO"
    found = registry.lookup_schema(subject, FIRST)
    assert (found.schema_id, found.version, found.schema.schema_str) == (schema_id, 1, FIRST.schema_str)
    latest = registry.get_latest_version(subject)
    assert (latest.schema_id, latest.version, latest.subject) == (schema_id, 1, subject)
    assert latest.guid is not None
    assert registry.get_schema_by_guid(latest.guid).schema_str == FIRST.schema_str
    assert registry.get_version(subject, 1).schema_id == schema_id
    assert registry.get_version(subject, "latest").schema_id == schema_id
    assert registry.get_subjects_by_schema_id(schema_id, subject_name=subject) == [subject]
    [version] = registry.get_schema_versions(schema_id, subject_name=subject)
    assert (version.subject, version.version) == (subject, 1)
    assert {"AVRO", "JSON", "PROTOBUF"} == set(registry.get_schema_types())
    assert subject in registry.get_subjects(subject_prefix=subject)
    assert registry.get_versions(subject) == [1]


def test_one_schema_has_one_id_under_all_subjects(registry: SchemaRegistryClient, subject: str) -> None:
    schema = avro_record("id", name=subject.replace("-", "_"))
    first = registry.register_schema(subject, schema)
    assert registry.register_schema(f"{subject}-other", schema) == first
    assert registry.get_subjects_by_schema_id(first) == [subject, f"{subject}-other"]
    assert registry.get_subjects_by_schema_id(first, offset=1, limit=1) == [f"{subject}-other"]


def test_spacing_and_the_order_of_keys_make_no_other_schema(registry: SchemaRegistryClient, subject: str) -> None:
    schema_id = registry.register_schema(subject, FIRST)
    document = json.loads(FIRST.schema_str)
    turned = json.dumps(dict(reversed(document.items())), indent=4)
    assert registry.register_schema(subject, Schema(turned, "AVRO")) == schema_id
    assert registry.get_versions(subject) == [1]


def test_normalizing_makes_one_schema_of_two_ways_to_write_it(registry: SchemaRegistryClient, subject: str) -> None:
    schema_id = registry.register_schema(subject, FIRST, normalize_schemas=True)
    longer = json.loads(FIRST.schema_str)
    longer["fields"][0]["type"] = {"type": "string"}
    longer["name"] = f"{longer.pop('namespace')}.{longer['name']}"
    schema = Schema(json.dumps(longer), "AVRO")
    registry.clear_caches()
    assert registry.register_schema(subject, schema, normalize_schemas=True) == schema_id
    assert registry.lookup_schema(subject, schema, normalize_schemas=True).version == 1


def test_metadata_and_rules_are_kept_and_make_another_version(registry: SchemaRegistryClient, subject: str) -> None:
    rules = RuleSet(
        None,
        [Rule("check", "", RuleKind.CONDITION, RuleMode.WRITE, "CEL", None, None, "size(id) > 1", None, None, False)],
    )
    metadata = Metadata(None, MetadataProperties({"owner": "shop"}), [])
    plain_id = registry.register_schema(subject, FIRST)
    schema = Schema(FIRST.schema_str, "AVRO", metadata=metadata, rule_set=rules)
    schema_id = registry.register_schema(subject, schema)
    assert schema_id != plain_id
    registry.clear_caches()
    found = registry.get_latest_version(subject)
    assert found.version == 2
    assert found.schema.metadata == metadata
    assert found.schema.rule_set is not None
    assert [rule.expr for rule in found.schema.rule_set.domain_rules or ()] == ["size(id) > 1"]
    assert registry.get_schema(schema_id).metadata == metadata
    assert registry.get_latest_with_metadata(subject, {"owner": "shop"}).version == 2
    assert code_of(registry.get_latest_with_metadata, subject, {"owner": "nobody"}) == (404, 40403)


def test_a_schema_is_found_without_the_metadata_that_its_version_has(
    registry: SchemaRegistryClient, subject: str
) -> None:
    metadata = Metadata(None, MetadataProperties({"owner": "shop"}), [])
    schema_id = registry.register_schema(subject, Schema(FIRST.schema_str, "AVRO", metadata=metadata))
    registry.clear_caches()
    assert registry.lookup_schema(subject, FIRST).schema_id == schema_id
    assert registry.register_schema(subject, FIRST) == schema_id
    assert registry.get_versions(subject) == [1]


def test_what_is_not_there_has_its_code(registry: SchemaRegistryClient, subject: str) -> None:
    assert code_of(registry.get_schema, 2_000_000_000) == (404, 40403)
    assert code_of(registry.get_schema_by_guid, str(uuid.uuid4())) == (404, 40403)
    assert code_of(registry.get_versions, subject) == (404, 40401)
    assert code_of(registry.get_latest_version, subject) == (404, 40401)
    assert code_of(registry.lookup_schema, subject, FIRST) == (404, 40401)
    assert code_of(registry.delete_subject, subject) == (404, 40401)
    registry.register_schema(subject, FIRST)
    assert code_of(registry.get_version, subject, 7) == (404, 40402)
    assert code_of(registry.delete_version, subject, 7) == (404, 40402)
    assert code_of(registry.lookup_schema, subject, SECOND) == (404, 40403)


@pytest.mark.parametrize("text", ["", "{", '{"type":"nothing"}', '"shop.Order"', '{"type":"record","name":"a-b"}'])
def test_a_broken_schema_is_refused(registry: SchemaRegistryClient, subject: str, text: str) -> None:
    assert code_of(registry.register_schema, subject, Schema(text, "AVRO")) == (422, 42201)


def test_an_unknown_kind_of_schema_is_refused(registry: SchemaRegistryClient, subject: str) -> None:
    assert code_of(registry.register_schema, subject, Schema("{}", "XML")) == (422, 42201)


# Evolving


def test_an_incompatible_schema_is_refused_and_told_why(registry: SchemaRegistryClient, subject: str) -> None:
    registry.register_schema(subject, FIRST)
    with pytest.raises(SchemaRegistryError) as raised:
        registry.register_schema(subject, NOT_BACKWARD)
    assert (raised.value.http_status_code, raised.value.error_code) == (409, 409)
    for part in ("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/1", "version 1", "give it a default"):
        assert part in raised.value.error_message
    assert registry.test_compatibility(subject, NOT_BACKWARD) is False
    assert registry.test_compatibility(subject, SECOND) is True
    assert registry.test_compatibility(subject, SECOND, version=1, verbose=True) is True
    assert registry.register_schema(subject, SECOND) > 0
    assert registry.test_compatibility_all_versions(subject, FIRST) is True
    assert code_of(registry.test_compatibility, subject, FIRST, version=9) == (404, 40402)


def test_anything_fits_to_a_subject_that_is_not_there(registry: SchemaRegistryClient, subject: str) -> None:
    assert registry.test_compatibility(subject, FIRST) is True
    assert registry.test_compatibility_all_versions(subject, FIRST) is True
    assert code_of(registry.test_compatibility, subject, FIRST, version=1)[0] == 404


@pytest.mark.parametrize(
    ("level", "fits"),
    [
        ("NONE", {"add", "add with default", "remove", "remove with default"}),
        ("BACKWARD", {"add with default", "remove", "remove with default"}),
        ("FORWARD", {"add", "add with default", "remove with default"}),
        ("FULL", {"add with default", "remove with default"}),
    ],
)
@pytest.mark.parametrize("transitive", [False, True])
def test_each_compatibility_allows_its_changes(
    registry: SchemaRegistryClient, subject: str, level: str, fits: set[str], transitive: bool
) -> None:
    level = level if level == "NONE" or not transitive else f"{level}_TRANSITIVE"
    registry.set_compatibility(subject, level)
    registry.register_schema(subject, avro_record("id", "city", {"name": "note", "type": "string", "default": ""}))
    note = {"name": "note", "type": "string", "default": ""}
    changes = {
        "add": avro_record("id", "city", note, "total"),
        "add with default": avro_record("id", "city", note, {"name": "tip", "type": "int", "default": 0}),
        "remove": avro_record("id", note),
        "remove with default": avro_record("id", "city"),
    }
    assert {name for name, each in changes.items() if registry.test_compatibility(subject, each)} == fits


def test_transitive_levels_look_at_all_versions(registry: SchemaRegistryClient, subject: str) -> None:
    registry.set_compatibility(subject, "NONE")
    for each in (avro_record("id", "old"), avro_record("id")):
        registry.register_schema(subject, each)
    older = avro_record("id", {"name": "old", "type": "int", "default": 0})
    registry.set_compatibility(subject, "BACKWARD")
    assert registry.test_compatibility_all_versions(subject, older) is True
    registry.set_compatibility(subject, "BACKWARD_TRANSITIVE")
    assert registry.test_compatibility_all_versions(subject, older) is False
    assert code_of(registry.register_schema, subject, older) == (409, 409)


def test_configurations_are_set_and_deleted(registry: SchemaRegistryClient, subject: str) -> None:
    assert registry.get_compatibility() == "BACKWARD"
    assert code_of(registry.get_compatibility, subject) == (404, 40408)
    assert registry.set_compatibility(subject, "FULL")["compatibility"] == "FULL"  # type: ignore[index]
    assert registry.get_compatibility(subject) == "FULL"
    assert code_of(registry.set_compatibility, subject, "SOMEHOW") == (422, 42203)
    config = ServerConfig(
        compatibility=ConfigCompatibilityLevel.FORWARD,
        compatibility_group="major",
        default_metadata=Metadata(None, MetadataProperties({"owner": "shop"}), []),
    )
    registry.set_config(subject, config)
    found = registry.get_config(subject)
    assert found.compatibility_level == ConfigCompatibilityLevel.FORWARD
    assert found.compatibility_group == "major"
    assert found.default_metadata == config.default_metadata
    assert registry.delete_config(subject).compatibility_level == ConfigCompatibilityLevel.FORWARD
    assert code_of(registry.get_config, subject) == (404, 40408)


def test_what_holds_for_all_is_set_and_deleted(registry: SchemaRegistryClient, subject: str) -> None:
    try:
        registry.set_compatibility(level="NONE")
        assert registry.get_compatibility() == "NONE"
        registry.register_schema(subject, FIRST)
        registry.register_schema(subject, NOT_BACKWARD)
    finally:
        registry.delete_config()
    assert registry.get_config().compatibility_level == ConfigCompatibilityLevel.BACKWARD
    assert registry.test_compatibility(subject, avro_record("other")) is False


# Modes


def test_modes_are_set_and_hold(registry: SchemaRegistryClient, subject: str) -> None:
    assert registry.get_global_mode() == "READWRITE"
    assert code_of(registry.get_mode, subject) == (404, 40409)
    registry.register_schema(subject, FIRST)
    assert registry.update_mode(subject, "READONLY") == "READONLY"
    assert registry.get_mode(subject) == "READONLY"
    assert code_of(registry.register_schema, subject, SECOND) == (422, 42205)
    assert code_of(registry.delete_subject, subject) == (422, 42205)
    registry.clear_caches()
    assert registry.register_schema(subject, FIRST) > 0
    assert code_of(registry.update_mode, subject, "SOMEHOW") == (422, 42204)
    assert code_of(registry.update_mode, subject, "IMPORT") == (422, 42205)
    assert registry.update_mode(subject, "IMPORT", force=True) == "IMPORT"
    assert registry.delete_mode(subject) == "IMPORT"
    assert registry.register_schema(subject, SECOND) > 0


def test_a_mode_for_all_overrides_those_of_subjects(registry: SchemaRegistryClient, subject: str) -> None:
    registry.update_mode(subject, "READWRITE")
    try:
        registry.update_global_mode("READONLY")
        assert registry.register_schema(subject, FIRST) > 0
        registry.update_global_mode("READONLY_OVERRIDE")
        assert code_of(registry.register_schema, subject, SECOND) == (422, 42205)
    finally:
        registry.update_global_mode("READWRITE")
    assert registry.register_schema(subject, SECOND) > 0


# Deleting


def test_versions_are_deleted_softly_and_then_for_good(registry: SchemaRegistryClient, subject: str) -> None:
    ids = [registry.register_schema(subject, each) for each in (FIRST, SECOND)]
    assert code_of(registry.delete_version, subject, 1, permanent=True) == (404, 40407)
    assert registry.delete_version(subject, 1) == 1
    assert code_of(registry.delete_version, subject, 1) == (404, 40406)
    registry.clear_caches()
    assert registry.get_versions(subject) == [2]
    assert registry.get_versions(subject, deleted=True) == [1, 2]
    assert registry.get_versions(subject, deleted_only=True) == [1]
    assert registry.get_schema(ids[0]).schema_str == FIRST.schema_str
    assert code_of(registry.lookup_schema, subject, FIRST) == (404, 40403)
    assert registry.lookup_schema(subject, FIRST, deleted=True).schema_id == ids[0]
    assert registry.get_version(subject, 1, deleted=True).schema_id == ids[0]
    assert registry.delete_version(subject, 1, permanent=True) == 1
    assert registry.get_versions(subject, deleted=True) == [2]


def test_a_subject_is_deleted_softly_and_comes_again_under_the_next_version(
    registry: SchemaRegistryClient, subject: str
) -> None:
    schema_id = registry.register_schema(subject, FIRST)
    registry.set_compatibility(subject, "FULL")
    assert registry.delete_subject(subject) == [1]
    registry.clear_caches()
    assert registry.get_subjects(subject_prefix=subject) == []
    assert code_of(registry.get_compatibility, subject) == (404, 40408)
    assert code_of(registry.delete_subject, subject) == (404, 40404)
    assert registry.get_subjects(subject_prefix=subject, deleted=True) == [subject]
    assert registry.get_subjects(subject_prefix=subject, deleted_only=True) == [subject]
    assert registry.register_schema(subject, FIRST) == schema_id
    assert registry.get_versions(subject) == [2]


def test_an_id_is_gone_with_its_last_version_and_never_comes_back_for_another(
    registry: SchemaRegistryClient, subject: str
) -> None:
    schema = avro_record("id", name=subject.replace("-", "_"))
    schema_id = registry.register_schema(subject, schema)
    registry.delete_subject(subject)
    registry.delete_subject(subject, permanent=True)
    registry.clear_caches()
    assert code_of(registry.get_schema, schema_id) == (404, 40403)
    other = registry.register_schema(subject, avro_record("other", name=subject.replace("-", "_")))
    assert other > schema_id
    assert registry.get_versions(subject) == [1]
    assert registry.register_schema(f"{subject}-more", schema) == schema_id


# References


def test_references_hold_what_they_refer_to(registry: SchemaRegistryClient, subject: str) -> None:
    address = avro_record("street", name="Address")
    registry.register_schema(subject, address)
    reference = SchemaReference("shop.Address", subject, 1)
    order = avro_record("id", {"name": "to", "type": "shop.Address"})
    schema = Schema(order.schema_str, "AVRO", references=[reference])
    schema_id = registry.register_schema(f"{subject}-order", schema)
    registry.clear_caches()
    assert registry.get_schema(schema_id).references == [reference]
    assert registry.get_referenced_by(subject, 1) == [schema_id]
    assert registry.get_referenced_by(subject) == [schema_id]
    assert code_of(registry.delete_version, subject, 1) == (422, 42206)
    assert code_of(registry.delete_subject, subject) == (422, 42206)
    registry.clear_caches()
    resolved = json.loads(registry.get_schema(schema_id, fmt="resolved").schema_str)
    assert resolved["fields"][1]["type"]["fields"] == [{"name": "street", "type": "string"}]
    registry.delete_subject(f"{subject}-order")
    assert registry.get_referenced_by(subject, 1) == []
    assert registry.delete_subject(subject) == [1]


def test_a_reference_to_nothing_is_refused(registry: SchemaRegistryClient, subject: str) -> None:
    order = avro_record("id", {"name": "to", "type": "shop.Address"})
    schema = Schema(order.schema_str, "AVRO", references=[SchemaReference("shop.Address", f"{subject}-none", 1)])
    assert code_of(registry.register_schema, subject, schema) == (422, 42201)


# Names and contexts


@pytest.mark.parametrize("name", ["common/address.proto", "a b", "ünï-cödé", "50%", "%2F", "a?b#c&d=e", "x:y"])
def test_subjects_may_have_odd_names(registry: SchemaRegistryClient, subject: str, name: str) -> None:
    name = f"{subject} {name}"
    schema_id = registry.register_schema(name, FIRST)
    registry.clear_caches()
    assert registry.get_latest_version(name).schema_id == schema_id
    assert registry.lookup_schema(name, FIRST).subject == name
    assert registry.test_compatibility(name, SECOND) is True
    registry.set_compatibility(name, "NONE")
    assert registry.get_compatibility(name) == "NONE"
    registry.update_mode(name, "READWRITE")
    assert registry.get_mode(name) == "READWRITE"
    assert registry.get_subjects(subject_prefix=name) == [name]
    assert registry.delete_version(name, 1) == 1


def test_contexts_keep_subjects_apart(registry: SchemaRegistryClient, broker: BrokerProcess, subject: str) -> None:
    inside = f":.{subject}:orders"
    registry.register_schema(inside, FIRST)
    assert f".{subject}" in registry.get_contexts()
    assert "." in registry.get_contexts()
    assert registry.get_subjects(subject_prefix=f":.{subject}:") == [inside]
    with SchemaRegistryClient({"url": f"{broker.url}/contexts/.{subject}"}) as client:
        assert client.get_versions("orders") == [1]
        assert client.get_latest_version("orders").subject == inside
        client.register_schema("orders", SECOND)
        assert client.get_subjects() == [inside]
        assert client.test_compatibility("orders", NOT_BACKWARD) is False
        client.set_compatibility(level="NONE")
        assert client.test_compatibility("orders", NOT_BACKWARD) is True
        client.set_compatibility("orders", "BACKWARD")
    assert registry.get_compatibility(inside) == "BACKWARD"
    assert registry.get_compatibility() == "BACKWARD"
    assert registry.get_versions(inside) == [1, 2]


# The other client


def test_the_asynchronous_client_works_as_well(broker: BrokerProcess, subject: str) -> None:
    async def use() -> None:
        async with AsyncSchemaRegistryClient({"url": broker.url}) as client:
            schema_id = await client.register_schema(subject, FIRST)
            assert (await client.lookup_schema(subject, FIRST)).schema_id == schema_id
            ids = await asyncio.gather(*(client.register_schema(subject, SECOND) for _ in range(5)))
            assert len(set(ids)) == 1
            assert await client.get_versions(subject) == [1, 2]
            with pytest.raises(SchemaRegistryError) as raised:
                await client.register_schema(subject, NOT_BACKWARD)
            assert raised.value.error_code == 409
            assert await client.delete_subject(subject) == [1, 2]

    asyncio.run(use())


# The other formats

PROTO = 'syntax = "proto3";\npackage shop;\nmessage Order {\n  int64 id = 1;\n}\n'
EVOLUTIONS = {
    "JSON": (
        '{"type": "object", "properties": {"id": {"type": "integer"}}, "additionalProperties": false}',
        '{"type": "object", "properties": {"id": {"type": "integer"}, "note": {"type": "string"}}, '
        '"additionalProperties": false}',
        '{"type": "object", "properties": {"id": {"type": "string"}}, "additionalProperties": false}',
    ),
    "PROTOBUF": (
        PROTO,
        PROTO.replace("id = 1;", "id = 1;\n  string note = 2;"),
        PROTO.replace("int64 id", "string id"),
    ),
}


@pytest.mark.parametrize("kind", EVOLUTIONS)
def test_the_other_formats_are_registered_looked_up_and_evolved(
    registry: SchemaRegistryClient, subject: str, kind: str
) -> None:
    first, second, wrong = (Schema(text, kind) for text in EVOLUTIONS[kind])
    schema_id = registry.register_schema(subject, first)
    registry.clear_caches()
    found = registry.get_schema(schema_id)
    assert (found.schema_type, found.schema_str) == (kind, first.schema_str)
    assert registry.lookup_schema(subject, first).version == 1
    assert registry.test_compatibility(subject, second) is True
    assert registry.test_compatibility(subject, wrong) is False
    assert code_of(registry.register_schema, subject, wrong) == (409, 409)
    assert registry.register_schema(subject, second) > schema_id
    assert registry.get_latest_version(subject).version == 2
    assert code_of(registry.register_schema, subject, Schema("{", kind)) == (422, 42201)
    assert code_of(registry.register_schema, subject, FIRST) == (409, 409)


@pytest.mark.parametrize("kind", EVOLUTIONS)
def test_normalized_lookups_find_what_was_registered_as_it_was_written(
    registry: SchemaRegistryClient, subject: str, kind: str
) -> None:
    written = {
        "JSON": ('{"required":["b","a"],"type":["object"]}', '{"type": ["object"], "required": ["a", "b"]}'),
        "PROTOBUF": (PROTO, PROTO.replace("message", "\n\n// An order.\nmessage").replace("  int64", "int64")),
    }[kind]
    one, other = (Schema(text, kind) for text in written)
    schema_id = registry.register_schema(subject, one)
    registry.clear_caches()
    assert registry.lookup_schema(subject, other, normalize_schemas=True).schema_id == schema_id
    assert registry.register_schema(subject, other, normalize_schemas=True) == schema_id
    assert registry.get_versions(subject) == [1]


def test_protobuf_files_import_one_another_by_the_names_of_their_references(
    registry: SchemaRegistryClient, subject: str
) -> None:
    path = f"{subject}/address.proto"
    registry.register_schema(
        path, Schema('syntax = "proto3"; package shop; message Address { string city = 1; }', "PROTOBUF")
    )
    text = f'syntax = "proto3"; package shop; import "{path}"; message Order {{ Address to = 1; }}'
    order = Schema(text, "PROTOBUF", references=[SchemaReference(path, path, 1)])
    schema_id = registry.register_schema(subject, order)
    registry.clear_caches()
    assert registry.get_schema(schema_id).references == [SchemaReference(path, path, 1)]
    assert registry.get_referenced_by(path, 1) == [schema_id]
    assert registry.get_schema(schema_id, fmt="serialized").schema_str
