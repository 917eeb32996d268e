"""The schema registry over plain HTTP: paths, media types, error codes, odd names, limits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

import goqueue
from behaviour.host import Host, config_for
from behaviour.raw import ask, request

V1 = "application/vnd.schemaregistry.v1+json"
PLAIN = "application/vnd.schemaregistry+json"
JSON = "application/json"
SCHEMA = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})
WIDER = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]})
OTHER = json.dumps({"type": "record", "name": "R", "fields": [{"name": "b", "type": "int"}]})


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    host = Host(config_for(tmp_path_factory.mktemp("registry")), http=True)
    yield host
    host.stop()


@pytest.fixture
def client(host: Host) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=host.url, timeout=30, trust_env=False) as client:
        yield client


@pytest.fixture
def subject(client: httpx.Client, name: str) -> str:
    register(client, name)
    return name


def register(client: httpx.Client, subject: str, schema: str = SCHEMA, **body: Any) -> dict[str, Any]:
    answer = client.post(f"/subjects/{quote(subject, safe='')}/versions", json={"schema": schema, **body})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def refused(answer: httpx.Response) -> tuple[int, int, str]:
    """Status, their code and ours; the text is there under both names."""
    body = answer.json()
    assert body["error"] == body["message"]
    assert isinstance(body["retriable"], bool)
    return answer.status_code, body["error_code"], body["code"]


# Media types and paths


@pytest.mark.parametrize("sent", [V1, PLAIN, JSON, f"{V1}; charset=utf-8", "application/octet-stream"])
def test_bodies_of_every_name_for_json_are_taken(client: httpx.Client, name: str, sent: str) -> None:
    body = json.dumps({"schema": SCHEMA})
    answer = client.post(f"/subjects/{name}/versions", content=body, headers={"Content-Type": sent})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("accepted", "told"),
    [
        ("*/*", V1), (V1, V1), (PLAIN, PLAIN), (JSON, JSON), (f"{V1}, {PLAIN}, {JSON}", V1),
        (f"{PLAIN}, {JSON}", PLAIN),
        ("application/*", V1), (f"{JSON}, */*", JSON), ("*/*;q=0.1", V1), ("", V1), (V1.upper(), V1),
        (f"{V1};q=0.1, {JSON};q=0.9", JSON), (f"{V1};q=0, */*", PLAIN), (f"{JSON}; charset=utf-8", JSON),
        ("text/html, application/xml;q=0.9, */*;q=0.8", V1),
    ],
)  # fmt: skip
def test_answers_have_the_name_that_is_asked_for(client: httpx.Client, subject: str, accepted: str, told: str) -> None:
    schema_id = client.get(f"/subjects/{subject}/versions/latest").json()["id"]
    for path in ("/subjects", f"/schemas/ids/{schema_id}", f"/subjects/{subject}/versions/1/schema", "/config"):
        answer = client.get(path, headers={"Accept": accepted})
        assert (answer.status_code, answer.headers["content-type"]) == (200, told), path


@pytest.mark.parametrize("accepted", ["text/html", "application/xml, text/*", f"{V1};q=0", "*/*;q=0"])
def test_a_client_that_takes_no_name_for_json_is_told_which_there_are(
    client: httpx.Client, subject: str, accepted: str
) -> None:
    for path in ("/subjects", "/schemas/ids/1", f"/v1/subjects/{subject}/versions/1", "/schemas/config"):
        answer = client.get(path, headers={"Accept": accepted})
        assert refused(answer) == (406, 406, "not_acceptable"), path
        assert f"{V1}, {PLAIN}, {JSON}" in answer.json()["message"]
    assert client.get("/topics", headers={"Accept": accepted}).status_code == 200


@pytest.mark.parametrize(
    ("accepted", "told"), [(V1, V1), (f"{V1}, {JSON}", V1), (PLAIN, PLAIN), (JSON, JSON), ("*/*", JSON)]
)
def test_errors_have_the_name_that_is_asked_for_too(client: httpx.Client, accepted: str, told: str) -> None:
    for path in ("/schemas/ids/99999", "/subjects/none/versions", "/schemas/ids/x/schema"):
        answer = client.get(path, headers={"Accept": accepted})
        assert (answer.status_code >= 400, answer.headers["content-type"]) == (True, told), path
    assert client.get("/topics/none", headers={"Accept": accepted}).headers["content-type"] == JSON


def test_clients_find_out_that_there_is_a_registry(client: httpx.Client) -> None:
    assert client.get("/").status_code == 200
    for prefix in ("", "/v1"):
        assert client.get(f"{prefix}/metadata/id").json()["scope"]["clusters"]
        assert client.get(f"{prefix}/metadata/version").json()["version"] == goqueue.__version__


def test_levels_and_modes_are_taken_in_any_case_and_the_mode_goes_back_to_its_default(
    client: httpx.Client, subject: str
) -> None:
    assert client.put(f"/config/{subject}", json={"compatibility": "full"}).json()["compatibility"] == "FULL"
    assert client.put("/mode", json={"mode": "readonly"}).json() == {"mode": "READONLY"}
    assert client.delete("/mode").json() == {"mode": "READONLY"}
    assert client.get("/mode").json() == {"mode": "READWRITE"}


def test_a_body_without_a_schema_is_told_as_such(client: httpx.Client, name: str) -> None:
    for path in (f"/subjects/{name}/versions", f"/compatibility/subjects/{name}/versions"):
        answer = client.post(path, json={"schemaType": "AVRO"})
        assert refused(answer) == (422, 42201, "invalid_schema")
        assert "schema" in answer.json()["error"]


@pytest.mark.parametrize("prefix", ["", "/schemas", "/v1", "/v1/schemas"])
def test_every_path_is_there_again_under_schemas_and_v1(client: httpx.Client, name: str, prefix: str) -> None:
    def ask(method: str, path: str, **options: Any) -> Any:
        answer = client.request(method, prefix + path, **options)
        assert answer.status_code == 200, (path, answer.text)
        return answer.json()

    name = f"{name}{prefix.replace('/', '-')}"
    body = {"schema": SCHEMA, "schemaType": "AVRO"}
    made = ask("POST", f"/subjects/{name}/versions", json=body)
    assert ask("POST", f"/subjects/{name}", json=body)["version"] == 1
    assert name in ask("GET", "/subjects")
    assert ask("GET", f"/subjects/{name}/versions") == [1]
    assert ask("GET", f"/subjects/{name}/versions/latest")["id"] == made["id"]
    assert ask("GET", f"/subjects/{name}/versions/-1")["id"] == made["id"]
    assert ask("GET", f"/subjects/{name}/versions/1/schema") == json.loads(SCHEMA)
    assert ask("GET", f"/subjects/{name}/versions/1/referencedby") == []
    path = f"/compatibility/subjects/{name}/versions"
    assert ask("POST", path, json=body | {"schema": WIDER}) == {"is_compatible": True}
    assert ask("POST", f"{path}/latest?verbose=true", json=body | {"schema": OTHER})["messages"]
    assert ask("PUT", f"/config/{name}", json={"compatibility": "FULL"})["compatibility"] == "FULL"
    assert ask("GET", f"/config/{name}")["compatibilityLevel"] == "FULL"
    assert ask("DELETE", f"/config/{name}")["compatibilityLevel"] == "FULL"
    assert ask("GET", f"/config/{name}?defaultToGlobal=true")["compatibilityLevel"] == "BACKWARD"
    assert ask("PUT", f"/mode/{name}", json={"mode": "READONLY"}) == {"mode": "READONLY"}
    assert ask("GET", f"/mode/{name}") == {"mode": "READONLY"}
    assert ask("DELETE", f"/mode/{name}") == {"mode": "READONLY"}
    assert ask("GET", f"/mode/{name}?defaultToGlobal=true") == {"mode": "READWRITE"}
    assert "." in ask("GET", "/contexts")
    assert ask("DELETE", f"/subjects/{name}/versions/1") == 1
    assert ask("DELETE", f"/subjects/{name}/versions/1?permanent=true") == 1


@pytest.mark.parametrize(
    ("prefix", "kind"),
    [
        ("/schemas", "JSON"), ("//schemas/", "JSON"), ("/v1//schemas", "JSON"), ("/contexts/.q/schemas", "JSON"),
        ("/v1/contexts/.q/schemas", "JSON"), ("", "AVRO"), ("/v1/", "AVRO"), ("/contexts/.q", "AVRO"),
    ],
)  # fmt: skip
def test_a_schema_without_a_type_is_of_that_of_its_route_however_the_path_is_spelt(
    host: Host, name: str, prefix: str, kind: str
) -> None:
    # A client library would normalize the path.
    path = f"{prefix}/subjects/{name}/versions"
    made = ask(
        host.port, request("POST", path, json.dumps({"schema": '"string"' if kind == "AVRO" else "{}"}).encode())
    )
    assert (made.status, made.json.get("schemaType", "AVRO")) == (200, kind)


def test_schemas_are_found_by_id_and_guid(client: httpx.Client, subject: str) -> None:
    version = client.get(f"/subjects/{subject}/versions/1").json()
    for prefix in ("", "/v1"):
        found = client.get(f"{prefix}/schemas/ids/{version['id']}").json()
        assert found == {"schema": SCHEMA, "guid": version["guid"]}
        slow = client.get(f"{prefix}/schemas/ids/{version['id']}?fetchMaxId=true").json()
        assert slow == {**found, "maxId": slow["maxId"]}
        assert slow["maxId"] >= version["id"]
        assert client.get(f"{prefix}/schemas/ids/{version['id']}/schema").text == SCHEMA
        assert subject in client.get(f"{prefix}/schemas/ids/{version['id']}/subjects").json()
        used = client.get(f"{prefix}/schemas/ids/{version['id']}/versions?subject={subject}").json()
        assert used == [{"subject": subject, "version": 1}]
        assert client.get(f"{prefix}/schemas/guids/{version['guid']}").json()["schema"] == SCHEMA
        assert set(client.get(f"{prefix}/schemas/types").json()) == {"AVRO", "JSON", "PROTOBUF"}
        assert client.get(f"{prefix}/schemas/stats").json()["subjects"] >= 1
        listed = client.get(f"{prefix}/schemas?subjectPrefix={subject}&latestOnly=true").json()
        assert [each["version"] for each in listed if each["subject"] == subject] == [1]


def test_what_is_unknown_in_a_query_or_a_body_is_passed_over(client: httpx.Client, subject: str) -> None:
    assert client.get(f"/subjects/{subject}/versions/1?later=true&x=y").status_code == 200
    assert client.get("/subjects?whatever=1").status_code == 200
    assert client.get(f"/schemas/ids/1?x={subject}").status_code == 200
    answer = client.post(f"/subjects/{subject}/versions?new=1", json={"schema": SCHEMA, "schemaTags": [], "x": {}})
    assert answer.status_code == 200


# Errors


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("GET", "/schemas/ids/999999", None, (404, 40403, "schema_not_found")),
        ("GET", "/schemas/ids/999999?format=x", None, (404, 40403, "schema_not_found")),
        ("GET", "/schemas/ids/99999999999999999999", None, (404, 404, "not_found")),
        ("GET", "/schemas/ids/abc", None, (404, 404, "not_found")),
        ("GET", "/schemas/ids/abc/subjects", None, (404, 404, "not_found")),
        ("GET", "/schemas/ids/-1", None, (404, 40403, "schema_not_found")),
        ("GET", "/schemas/ids/999999/versions", None, (404, 40403, "schema_not_found")),
        ("GET", "/schemas/guids/x", None, (404, 40403, "schema_not_found")),
        ("GET", "/subjects/nobody/versions", None, (404, 40401, "subject_not_found")),
        ("GET", "/subjects/nobody/versions/1", None, (404, 40401, "subject_not_found")),
        ("POST", "/subjects/nobody", {"schema": SCHEMA}, (404, 40401, "subject_not_found")),
        ("DELETE", "/subjects/nobody", None, (404, 40401, "subject_not_found")),
        ("GET", "/subjects/{}/versions/9", None, (404, 40402, "version_not_found")),
        ("GET", "/subjects/{}/versions/2147483647", None, (404, 40402, "version_not_found")),
        ("GET", "/subjects/{}/versions/2147483648", None, (422, 42202, "invalid_version")),
        ("GET", "/subjects/{}/versions/0", None, (422, 42202, "invalid_version")),
        ("GET", "/subjects/{}/versions/x", None, (422, 42202, "invalid_version")),
        ("DELETE", "/subjects/{}/versions/9", None, (404, 40402, "version_not_found")),
        ("DELETE", "/subjects/{}/versions/1?permanent=true", None, (404, 40407, "version_not_soft_deleted")),
        ("DELETE", "/subjects/{}?permanent=true", None, (404, 40405, "subject_not_soft_deleted")),
        ("POST", "/subjects/{}", {"schema": WIDER}, (404, 40403, "schema_not_found")),
        ("POST", "/subjects/{}", {"schema": "{"}, (422, 42201, "invalid_schema")),
        ("POST", "/subjects/{}/versions", {"schema": ""}, (422, 42201, "invalid_schema")),
        ("POST", "/subjects/{}/versions", {"schema": SCHEMA, "schemaType": "X"}, (422, 42201, "invalid_schema")),
        ("POST", "/subjects/{}/versions", {"schema": OTHER}, (409, 409, "incompatible_schema")),
        ("POST", "/subjects/{}/versions", {"schema": WIDER, "id": 5}, (422, 42205, "subject_read_only")),
        ("POST", "/subjects/{}/versions", {}, (422, 42201, "invalid_schema")),
        ("POST", "/subjects/{}/versions", {"schema": 3}, (400, 400, "invalid_request")),
        ("POST", "/subjects/%0A/versions", {"schema": SCHEMA}, (422, 42208, "invalid_subject")),
        ("POST", "/compatibility/subjects/{}/versions/7", {"schema": SCHEMA}, (404, 40402, "version_not_found")),
        ("POST", "/compatibility/subjects/nobody/versions/7", {"schema": SCHEMA}, (404, 40402, "version_not_found")),
        ("POST", "/compatibility/subjects/{}/versions/x", {"schema": SCHEMA}, (422, 42202, "invalid_version")),
        ("POST", "/compatibility/subjects/{}/versions", {"schema": "{"}, (422, 42201, "invalid_schema")),
        ("GET", "/config/{}", None, (404, 40408, "subject_not_configured")),
        ("DELETE", "/config/{}", None, (404, 40408, "subject_not_configured")),
        ("PUT", "/config/{}", {"compatibility": "X"}, (422, 42203, "invalid_compatibility")),
        ("PUT", "/config", {"compatibility": "X"}, (422, 42203, "invalid_compatibility")),
        ("GET", "/mode/{}", None, (404, 40409, "mode_not_configured")),
        ("PUT", "/mode/{}", {"mode": "X"}, (422, 42204, "invalid_mode")),
        ("PUT", "/mode", {"mode": "IMPORT"}, (422, 42205, "subject_read_only")),
        ("GET", "/subjects/{}/metadata?key=a&value=b", None, (404, 40403, "schema_not_found")),
    ],
)
def test_every_error_has_its_codes(
    client: httpx.Client, subject: str, method: str, path: str, body: Any, expected: tuple[int, int, str]
) -> None:
    assert refused(client.request(method, path.replace("{}", subject), json=body)) == expected


@pytest.mark.parametrize(
    ("method", "path", "body", "words"),
    [
        ("GET", "/schemas/ids/999999", None, "Schema not found"),
        ("GET", "/schemas/guids/x", None, "Schema not found"),
        ("GET", "/schemas/ids/abc", None, "HTTP 404 Not Found"),
        ("GET", "/subjects/nobody/versions", None, "Subject 'nobody' not found."),
        ("GET", "/subjects/nobody/versions/1", None, "Subject 'nobody' not found."),
        ("GET", "/subjects/it's/versions", None, "Subject 'it's' not found."),
        ("DELETE", "/subjects/nobody", None, "Subject 'nobody' not found."),
        ("GET", "/subjects/{}/versions/9", None, "Version 9 not found."),
        ("DELETE", "/subjects/{}/versions/9", None, "Version 9 not found."),
        ("POST", "/compatibility/subjects/nobody/versions/9", {"schema": SCHEMA}, "Version 9 not found."),
        ("GET", "/subjects/{}/versions/a", None, "The specified version 'a' is not a valid version id."),
        ("DELETE", "/subjects/{}?permanent=true", None, "Subject '{}' was not deleted first"),
        ("DELETE", "/subjects/{}/versions/1?permanent=true", None, "Subject '{}' Version 1 was not deleted first"),
        ("POST", "/subjects/{}", {"schema": WIDER}, "Schema not found"),
        ("POST", "/subjects/{}", {"schema": "{"}, "Invalid schema"),
        ("POST", "/subjects/{}/versions", {"schema": "{"}, "Invalid schema"),
        ("POST", "/subjects/{}/versions", {}, "Invalid schema"),
        ("POST", "/subjects/{}/versions", {"schema": SCHEMA, "schemaType": "X"}, "Invalid schema"),
        (
            "POST",
            "/subjects/{}/versions",
            {"schema": SCHEMA, "references": [{"name": "R", "subject": "nobody", "version": 1}]},
            "Invalid schema",
        ),
        ("POST", "/compatibility/subjects/{}/versions/1", {"schema": "{"}, "Invalid schema"),
        (
            "POST",
            "/subjects/{}/versions",
            {"schema": OTHER},
            'Schema being registered is incompatible with an earlier schema for subject "{}"',
        ),
        ("POST", "/subjects/{}/versions", {"schema": WIDER, "id": 5}, "Subject {} is not in import mode"),
        ("GET", "/config/{}", None, "Subject '{}' does not have subject-level compatibility configured"),
        ("GET", "/mode/{}", None, "Subject '{}' does not have subject-level mode configured"),
        (
            "PUT",
            "/config",
            {"compatibility": "X"},
            "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
            "forward_transitive, and full_transitive",
        ),
        ("PUT", "/mode/{}", {"mode": "X"}, "Invalid mode. Valid values are READWRITE, READONLY"),
        ("PUT", "/mode", {"mode": "IMPORT"}, "Cannot import since found existing subjects"),
        ("POST", "/subjects/%0A/versions", {"schema": SCHEMA}, "The specified subject '\\n' is not a valid subject"),
    ],
)
def test_errors_begin_with_the_words_that_clients_of_registries_look_for(
    client: httpx.Client, subject: str, method: str, path: str, body: Any, words: str
) -> None:
    answer = client.request(method, path.replace("{}", subject), json=body)
    told = answer.json()
    assert told["message"] == told["error"]
    assert told["message"].startswith(words.replace("{}", subject)), told
    assert "Invalid schema: Invalid schema" not in told["message"]


def test_deleted_twice_begins_with_the_words_that_clients_look_for(client: httpx.Client, subject: str) -> None:
    register(client, subject, WIDER)
    client.delete(f"/subjects/{subject}/versions/2")
    again = client.delete(f"/subjects/{subject}/versions/2").json()["message"]
    assert again.startswith(f"Subject '{subject}' Version 2 was soft deleted.")
    client.delete(f"/subjects/{subject}")
    assert client.delete(f"/subjects/{subject}").json()["message"].startswith(f"Subject '{subject}' was soft deleted.")


def test_what_is_referred_to_and_what_is_read_only_is_told_in_their_words(client: httpx.Client, subject: str) -> None:
    register(client, f"{subject}-user", '{"type":"array","items":"R"}', references=[_reference(subject)])
    told = client.delete(f"/subjects/{subject}/versions/1").json()["message"]
    place = f"{{magic=1,keytype=SCHEMA,subject={subject},version=1}}"
    assert told.startswith(f"One or more references exist to the schema {place}.")
    client.put(f"/mode/{subject}", json={"mode": "READONLY"})
    for answer in (
        client.delete(f"/subjects/{subject}"),
        client.post(f"/subjects/{subject}/versions", json={"schema": WIDER}),
    ):
        assert answer.json()["message"].startswith(f"Subject {subject} is in read-only mode")


def _reference(subject: str) -> dict[str, Any]:
    return {"name": "R", "subject": subject, "version": 1}


@pytest.mark.parametrize(
    "schema",
    [
        '{"type": "string"}',
        '{"type": "string", "name": "Label"}',
        '{"name": "Label", "namespace": "a.b", "doc": "d", "aliases": ["L"], "type": "string"}',
        '{"type": {"type": "string", "name": "Label"}}',
    ],
)
def test_a_primitive_type_is_the_same_schema_with_a_name_and_without(
    client: httpx.Client, name: str, schema: str
) -> None:
    plain = register(client, f"{name}-plain", '"string"')
    assert register(client, name, schema)["id"] == plain["id"]
    for text in (schema, '"string"'):
        found = client.post(f"/subjects/{name}", json={"schema": text})
        assert (found.status_code, found.json()["version"]) == (200, 1)


@pytest.mark.parametrize("field", ["validateFields", "normalize"])
@pytest.mark.parametrize("value", [0, 1])
def test_a_flag_of_a_configuration_may_be_a_number(client: httpx.Client, subject: str, field: str, value: int) -> None:
    for path in (f"/config/{subject}", f"/schemas/config/{subject}"):
        assert client.put(path, json={field: value}).json() == {field: bool(value)}
        assert client.get(path).json()[field] is bool(value)
        assert client.delete(path).status_code == 200


def test_a_protobuf_schema_keeps_its_package(client: httpx.Client, name: str) -> None:
    text = 'syntax = "proto3"; package {}; message Order {{ string id = 1; }}'
    register(client, name, text.format("shop"), schemaType="PROTOBUF")
    moved = client.post(f"/subjects/{name}/versions", json={"schema": text.format("store"), "schemaType": "PROTOBUF"})
    assert refused(moved) == (409, 409, "incompatible_schema")
    assert "PACKAGE_CHANGED at /" in moved.json()["message"]


def test_deleted_twice_is_told(client: httpx.Client, subject: str) -> None:
    register(client, subject, WIDER)
    assert client.delete(f"/subjects/{subject}/versions/latest").json() == 2
    assert refused(client.delete(f"/subjects/{subject}/versions/2")) == (404, 40406, "version_soft_deleted")
    assert client.delete(f"/subjects/{subject}").json() == [1]
    assert refused(client.delete(f"/subjects/{subject}")) == (404, 40404, "subject_soft_deleted")
    assert client.delete(f"/subjects/{subject}?permanent=true").json() == [1, 2]
    assert refused(client.delete(f"/subjects/{subject}")) == (404, 40401, "subject_not_found")


def test_what_is_referred_to_stays(client: httpx.Client, subject: str) -> None:
    body = {"references": [{"name": "R", "subject": subject, "version": -1}]}
    made = register(client, f"{subject}-user", '{"type":"array","items":"R"}', **body)
    assert made["references"] == [{"name": "R", "subject": subject, "version": 1}]
    assert client.get(f"/subjects/{subject}/versions/1/referencedby").json() == [made["id"]]
    assert refused(client.delete(f"/subjects/{subject}")) == (422, 42206, "schema_is_referenced")
    resolved = client.get(f"/schemas/ids/{made['id']}?format=resolved").json()
    assert json.loads(resolved["schema"])["items"]["name"] == "R"


def test_a_refusal_says_rule_place_version_and_remedy(client: httpx.Client, subject: str) -> None:
    answer = client.post(f"/subjects/{subject}/versions", json={"schema": OTHER})
    message = answer.json()["message"]
    for part in ("BACKWARD", "READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/0", "version 1", "give it a default"):
        assert part in message
    path = f"/compatibility/subjects/{subject}/versions/latest"
    told = client.post(f"{path}?verbose=true", json={"schema": OTHER}).json()
    assert told["is_compatible"] is False
    assert "READER_FIELD_MISSING_DEFAULT_VALUE at /fields/0 (version 1)" in told["messages"][0]
    assert client.post(path, json={"schema": OTHER}).json() == {"is_compatible": False}


def test_anything_fits_to_the_latest_of_nothing(client: httpx.Client, name: str) -> None:
    for path in ("", "/latest"):
        answer = client.post(f"/compatibility/subjects/{name}/versions{path}", json={"schema": SCHEMA})
        assert answer.json() == {"is_compatible": True}


# Lists


def test_lists_come_in_pages_and_with_what_is_deleted(client: httpx.Client, name: str) -> None:
    subjects = [f"{name}-{letter}" for letter in "abcd"]
    for each in subjects:
        register(client, each)
    client.delete(f"/subjects/{subjects[1]}")

    def listed(**query: Any) -> list[str]:
        found: list[str] = client.get("/subjects", params={"subjectPrefix": f"{name}-", **query}).json()
        return found

    assert listed() == [subjects[0], *subjects[2:]]
    assert listed(deleted="true") == subjects
    assert listed(deletedOnly="true") == [subjects[1]]
    assert listed(deleted="true", offset=1, limit=2) == subjects[1:3]
    assert listed(offset=2, limit=-1) == [subjects[3]]
    assert listed(offset=9) == []
    assert client.get("/subjects", params={"subjectPrefix": f":*:{name}-a"}).json() == [subjects[0]]
    schema_id = client.get(f"/subjects/{subjects[0]}/versions/1").json()["id"]
    for path in ("/subjects", "/schemas", f"/schemas/ids/{schema_id}/subjects", f"/schemas/ids/{schema_id}/versions"):
        assert client.get(path, params={"offset": 10**25}).json() == []
    for number in range(3):
        register(client, subjects[0], json.dumps(json.loads(SCHEMA) | {"doc": str(number)}))
    client.delete(f"/subjects/{subjects[0]}/versions/2")
    versions = f"/subjects/{subjects[0]}/versions"
    assert client.get(versions).json() == [1, 3, 4]
    assert client.get(f"{versions}?deleted=true").json() == [1, 2, 3, 4]
    assert client.get(f"{versions}?deletedOnly=true").json() == [2]
    assert client.get(f"{versions}?offset=1&limit=1").json() == [3]
    assert client.get(f"{versions}/2?deleted=true").json()["deleted"] is True
    listed_schemas = client.get("/schemas", params={"subjectPrefix": f"{name}-", "deleted": True, "limit": 3}).json()
    assert [(each["subject"], each["version"]) for each in listed_schemas] == [
        (subjects[0], 1),
        (subjects[0], 2),
        (subjects[0], 3),
    ]


# Names


@pytest.mark.parametrize(
    "name_like", ["{}/x.proto", "{} ü ☃ \U0001f600", ":.{}:orders", "{}%2F", "{}%", "{}?&=#", "..{}", "{}+"]
)
def test_subjects_have_any_printable_characters(client: httpx.Client, name: str, name_like: str) -> None:
    subject = name_like.format(name)
    path = quote(subject, safe="")
    assert register(client, subject)["version"] == 1
    for prefix in ("", "/schemas", "/v1"):
        assert client.get(f"{prefix}/subjects/{path}/versions/1").json()["subject"] == subject
        assert client.put(f"{prefix}/config/{path}", json={"compatibility": "NONE"}).status_code == 200
        body = {"schema": OTHER, "schemaType": "AVRO"}
        answer = client.post(f"{prefix}/compatibility/subjects/{path}/versions/latest", json=body)
        assert answer.json() == {"is_compatible": True}
    assert subject in client.get("/subjects").json()
    assert client.delete(f"/subjects/{path}/versions/1").json() == 1


def test_a_context_in_the_path_stands_before_the_subject(client: httpx.Client, name: str) -> None:
    context = f"/contexts/.{name}"
    path = f"{context}/subjects/{quote('a/b', safe='')}/versions"
    assert client.post(path, json={"schema": SCHEMA}).json()["version"] == 1
    assert client.get(f"{context}/subjects").json() == [f":.{name}:a/b"]
    assert client.get(f"/v1{context}/subjects/{quote('a/b', safe='')}/versions/1").json()["subject"] == f":.{name}:a/b"
    assert client.put(f"{context}/config", json={"compatibility": "NONE"}).status_code == 200
    assert client.get(f"{context}/config/x?defaultToGlobal=true").json()["compatibilityLevel"] == "NONE"
    assert client.get("/config").json()["compatibilityLevel"] == "BACKWARD"
    assert client.get(f"{context}/schemas/types").status_code == 200
    assert client.get("/contexts/./subjects").status_code in (200, 404)


def test_settings_of_one_subject_are_changed_one_by_one(client: httpx.Client, subject: str) -> None:
    path = f"/config/{subject}"
    client.put(path, json={"compatibility": "FULL", "normalize": True, "alias": "other"})
    client.put(path, json={"alias": None, "compatibilityGroup": "major"})
    assert client.get(path).json() == {"compatibilityLevel": "FULL", "normalize": True, "compatibilityGroup": "major"}


# Limits


def test_schemas_have_a_largest_size(client: httpx.Client, name: str) -> None:
    big = json.dumps({"type": "record", "name": "R", "doc": "x" * 1_040_000, "fields": []})
    made = register(client, name, big)
    assert client.get(f"/schemas/ids/{made['id']}").json()["schema"] == big
    escaped = "".join(f"\\u{ord(each):04x}" for each in big)
    more = json.dumps({"metadata": {"properties": {"a": "x" * 200_000}}, "ruleSet": {"a": "x" * 200_000}})
    body = f'{{"schema":"{escaped}",{more[1:]}'
    assert client.post(f"/subjects/{name}/versions", content=body).json()["schema"] == big
    answer = client.post(f"/subjects/{name}/versions", json={"schema": big + " " * 20_000})
    assert refused(answer)[0] == 400
    assert client.post(f"/subjects/{name}/versions", content=b"x" * (9 << 20)).status_code == 413


@pytest.mark.parametrize(
    "schema", ["[" * 500_000, '{"type":' * 100_000, '"' + "\\ud800" + '"', "\x00", '{"type":"record"}' * 1_000]
)
def test_hostile_schemas_are_refused(client: httpx.Client, name: str, schema: str) -> None:
    assert refused(client.post(f"/subjects/{name}/versions", json={"schema": schema}))[:2] == (422, 42201)


@pytest.mark.parametrize(
    "body", [b"", b"[", b"null", b'{"schema":"\\ud800"}', b'{"schema":"\xff"}', b"[" * 100_000, b'{"schema":{}}']
)
def test_broken_bodies_are_refused(client: httpx.Client, name: str, body: bytes) -> None:
    answer = client.post(f"/subjects/{name}/versions", content=body, headers={"Content-Type": V1})
    assert refused(answer)[:2] == (400, 400)


def test_metadata_and_rules_are_told_as_they_were_sent(client: httpx.Client, name: str) -> None:
    extra = {"metadata": {"properties": {"a": "1"}, "tags": {"x": ["y"]}}, "ruleSet": {"domainRules": [{"name": "r"}]}}
    made = register(client, name, **extra)
    for path in (f"/schemas/ids/{made['id']}", f"/subjects/{name}/versions/1"):
        found = client.get(path).json()
        assert {key: found[key] for key in extra} == extra
    assert client.get(f"/subjects/{name}/metadata?key=a&value=1").json()["version"] == 1


@pytest.mark.parametrize("field", ["metadata", "ruleSet"])
def test_metadata_and_rules_have_a_largest_size_and_are_objects(client: httpx.Client, name: str, field: str) -> None:
    def sent(value: Any) -> httpx.Response:
        return client.post(f"/subjects/{name}/versions", json={"schema": SCHEMA, field: value})

    room = (256 << 10) - len('{"a":""}')
    assert sent({"a": "x" * room}).status_code == 200
    assert refused(sent({"a": "x" * (room + 1)}))[:2] == (422, 42201)
    assert refused(sent([]))[:2] == (400, 400)
    assert sent([]).json()["error"].startswith(f"{field}: Expected `object | null`, got")
    assert sent(None).status_code == 200


def test_a_configuration_has_a_largest_size_and_its_objects_are_objects(client: httpx.Client, name: str) -> None:
    kept = {"defaultMetadata": {"properties": {"a": "1"}}, "overrideRuleSet": {"domainRules": []}}
    assert client.put(f"/config/{name}", json=kept).json() == kept
    large = {"a": "x" * 200_000}
    answer = client.put(f"/config/{name}", json={"defaultMetadata": large, "overrideMetadata": large})
    assert refused(answer)[:2] == (400, 400)
    assert refused(client.put(f"/config/{name}", json={"defaultRuleSet": 1}))[:2] == (400, 400)
    assert client.get(f"/config/{name}").json().items() >= kept.items()
    assert "defaultMetadata" not in client.put(f"/config/{name}", json={"defaultMetadata": None}).json()
