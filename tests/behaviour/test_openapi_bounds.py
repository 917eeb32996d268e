"""The OpenAPI document is as strict as the broker: of each pair one value is right for both, the other for neither."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import jsonschema_rs
import pytest

from behaviour.host import Host, config_for
from behaviour.raw import ask, request

MESSAGES = "/topics/t/messages"
READ = "/topics/t/partitions/0/messages"
TEMPLATES = {
    READ: "/topics/{topic_name}/partitions/{partition_id}/messages",
    MESSAGES: "/topics/{topic_name}/messages",
    "/groups/g/poll": "/groups/{group_id}/poll",
}
FIELDS = [
    ("partition", 0, -1),
    ("partition", 1, 10_000),
    ("delay", "1h", "1 hour"),
    ("deliverAt", "2030-01-01T09:00:00Z", "2030"),
    ("priority", "high", "urgent"),
    ("priority", 4, 5),
    ("priority", 0, -1),
    ("ttl", "1h", "soon"),
    ("encoding", "text", "hex"),
    ("timestamp", "2020-01-01T00:00:00.5+01:00", "2020-01-01 00:00"),
    ("dedup_id", "d", ""),
    ("dedup_id", "e", "d" * 300),
]
JOINS = [
    ({"client_id": "c"}, {"client_id": ""}),
    ({"client_id": "x" * 200}, {"client_id": "x" * 201}),
    ({"client_id": "ü ö"}, {"client_id": "a\tb"}),
    ({"instance_id": "i" * 200}, {"instance_id": "i" * 201}),
    ({"instance_id": ""}, {"instance_id": "a\nb"}),
    ({"topics": ["t"]}, {"topics": []}),
    ({"topics": ["t"] * 1_000}, {"topics": ["t"] * 1_001}),
]
CHANGES = [
    ({"settings": {"retention_ms": "7d"}}, {"settings": {"partitions": 3}}),
    ({"settings": {}}, {"settings": {"retention": 1}}),
    ({"unset": ["retention_ms"]}, {"unset": ["retention"]}),
    ({"unset": []}, {"unset": ["partitions"]}),
]
PRODUCERS = [({"timeout_ms": 900_000}, {"timeout_ms": 900_001}), ({"timeout_ms": 1}, {"timeout_ms": 0})]
BODIES = [
    *(("POST", "/groups/{group_id}/join", {"client_id": "c", "topics": ["t"]}, *pair) for pair in JOINS),
    *(("PATCH", "/topics/{topic_name}", {}, *pair) for pair in CHANGES),
    *(("POST", "/producers/init", {}, *pair) for pair in PRODUCERS),
]
PARAMETERS = [
    (READ, "limit", "120", "121"),
    (READ, "max_bytes", "2048", "2049"),
    (READ, "offset", "0", "-1"),
    (READ, "wait", "1ms", "1"),
    (READ, "from_time", "2020-01-01T00:00:00Z", "yesterday"),
    (READ, "isolation", "read_committed", "dirty"),
    (READ, "encoding", "base64", "hex"),
    (MESSAGES, "partition", "0", "-1"),
    (MESSAGES, "limit", "1", "0"),
    ("/groups/g/poll", "max_messages", "110", "111"),
    ("/groups/g/poll", "timeout", "0s", "never"),
]
TOPICS = [
    ({"name": "a.b-c_1"}, {"name": "a b"}),
    ({"name": "x" * 200}, {"name": "x" * 201}),
    ({"name": "_a"}, {"name": "__a"}),
    ({"name": "..."}, {"name": ".."}),
    ({"num_partitions": 1}, {"num_partitions": 0}),
    ({"num_partitions": 2}, {"num_partitions": 10_001}),
    ({"retention_hours": 1}, {"retention_hours": -1}),
    ({"settings": {"retention_ms": "7d"}}, {"settings": {"retention": "7d"}}),
    ({"settings": {"retention_ms": None}}, {"settings": {"retention_ms": True}}),
    ({"settings": {"segment_bytes": 1 << 20}}, {"settings": {"segment_bytes": 1}}),
    ({"settings": {"fsync": "always"}}, {"settings": {"fsync": "sometimes"}}),
]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    http = {"max_read_messages": 120, "max_read_bytes": 2_048, "max_publish_messages": 3}
    config = config_for(tmp_path_factory.mktemp("bounds"), http=http, limits={"max_poll_messages": 110})
    host = Host(replace(config), http=True)
    assert ask(host.port, request("POST", "/topics", b'{"name": "t", "num_partitions": 2}')).status == 201
    yield host
    host.stop()


@pytest.fixture(scope="module")
def document(host: Host) -> dict[str, Any]:
    made: dict[str, Any] = ask(host.port, request("GET", "/openapi.json")).json
    return made


def allows(document: dict[str, Any], schema: dict[str, Any], value: object) -> bool:
    whole = {**schema, "components": document["components"]}
    return bool(jsonschema_rs.validator_for(whole).is_valid(value))


def body_schema(document: dict[str, Any], path: str, method: str = "post") -> dict[str, Any]:
    content = document["paths"][path][method]["requestBody"]["content"]
    schema: dict[str, Any] = content["application/json"]["schema"]
    return schema


def took(host: Host, path: str, body: object) -> bool:
    answer = ask(host.port, request("POST", path, json.dumps(body).encode()))
    assert answer.status < 500
    return answer.status < 300


@pytest.mark.parametrize(("field", "right", "wrong"), FIELDS)
def test_a_message_is_taken_if_the_document_allows_it(
    host: Host, document: dict[str, Any], field: str, right: object, wrong: object
) -> None:
    schema = body_schema(document, "/topics/{topic_name}/messages")
    for value, is_right in ((right, True), (wrong, False)):
        body = {"messages": [{"value": "v", field: value}]}
        assert allows(document, schema, body) is is_right
        assert took(host, MESSAGES, body) is is_right


def test_as_many_messages_are_taken_as_the_document_allows(host: Host, document: dict[str, Any]) -> None:
    schema = body_schema(document, "/topics/{topic_name}/messages")
    for count, is_right in ((0, False), (1, True), (3, True), (4, False)):
        body = {"messages": [{"value": "v"}] * count}
        assert allows(document, schema, body) is is_right
        assert took(host, MESSAGES, body) is is_right


@pytest.mark.parametrize(("right", "wrong"), TOPICS)
def test_a_topic_is_made_if_the_document_allows_it(
    host: Host, document: dict[str, Any], right: dict[str, Any], wrong: dict[str, Any]
) -> None:
    name = f"n{len(host.broker.topic_names())}"
    for fields, is_right in ((right, True), (wrong, False)):
        body = {"name": name, **fields}
        assert allows(document, body_schema(document, "/topics"), body) is is_right
        assert took(host, "/topics", body) is is_right


@pytest.mark.parametrize(("method", "path", "fields", "right", "wrong"), BODIES)
def test_other_bodies_are_taken_if_the_document_allows_them(
    host: Host,
    document: dict[str, Any],
    method: str,
    path: str,
    fields: dict[str, Any],
    right: dict[str, Any],
    wrong: dict[str, Any],
) -> None:
    schema = body_schema(document, path, method.lower())
    place = path.format(group_id="bodies", topic_name="t")
    for given, is_right in ((right, True), (wrong, False)):
        body = fields | given
        assert allows(document, schema, body) is is_right
        answer = ask(host.port, request(method, place, json.dumps(body).encode()))
        assert (answer.status == 200) is is_right, answer.body
        assert answer.status in {200, 400}


def test_the_id_of_a_trace_is_looked_up_if_the_document_allows_it(host: Host, document: dict[str, Any]) -> None:
    (parameter,) = document["paths"]["/traces/{trace_id}"]["get"]["parameters"]
    for text, is_right in (("0aF" + "0" * 29, True), ("0" * 32, False), ("a" * 31, False), ("g" * 32, False)):
        assert allows(document, parameter["schema"], text) is is_right
        assert ask(host.port, request("GET", f"/traces/{text}")).status == (404 if is_right else 400)


@pytest.mark.parametrize(("path", "name", "right", "wrong"), PARAMETERS)
def test_a_parameter_is_taken_if_the_document_allows_it(
    host: Host, document: dict[str, Any], path: str, name: str, right: str, wrong: str
) -> None:
    parameters = document["paths"][TEMPLATES[path]]["get"]["parameters"]
    (schema,) = (each["schema"] for each in parameters if each["name"] == name)
    for text, is_right in ((right, True), (wrong, False)):
        value: object = int(text) if text.lstrip("-").isdigit() and name != "wait" else text
        assert allows(document, schema, value) is is_right
        query = f"{path}?{name}={quote(text)}" + ("&member_id=m" if "poll" in path else "")
        answer = ask(host.port, request("GET", query))
        assert (answer.status != 400) is is_right, answer.body


def test_bounds_of_whole_numbers_are_whole(document: dict[str, Any]) -> None:
    def floats(part: Any) -> list[float]:
        if isinstance(part, dict | list):
            inner = part.values() if isinstance(part, dict) else part
            return [each for one in inner for each in floats(one)]
        return [part] if isinstance(part, float) and part.is_integer() else []

    assert floats(document) == []
