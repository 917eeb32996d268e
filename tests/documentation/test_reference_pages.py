"""How the pages of the reference are made, from small examples and from all that there is to describe."""

from __future__ import annotations

import re
from typing import Any

import pytest
import typer

from goqueue.cli.app import app
from goqueue.wire.proto import goqueue_pb2
from reference_pages import http_types
from reference_pages.command_page import command_page
from reference_pages.grpc_page import grpc_page
from reference_pages.http_page import HttpPage
from reference_pages.markdown import anchor, sentences, table
from reference_pages.python_page import python_page
from site_lists import with_lists

ERROR = {"properties": {"error": {"type": "string"}}, "required": ["error"]}


def _answer(name: str, said: str = "Request fulfilled, document follows") -> dict[str, Any]:
    return {"description": said, "content": {"application/json": {"schema": _reference(name)}}}


def _reference(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _request(summary: str, **more: Any) -> dict[str, Any]:
    return {"tags": ["Things"], "summary": summary, "responses": {"200": _answer("Thing")}, **more}


def _page(paths: dict[str, Any], **schemas: Any) -> str:
    known = {"Thing": {"properties": {"size": {"type": "integer"}}, "required": ["size"]}, "ErrorResponse": ERROR}
    return HttpPage({"paths": paths, "components": {"schemas": known | schemas}}).text()


def test_a_request_has_its_parameters_its_body_and_its_answer() -> None:
    parameters = [
        {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}},
        {"name": "limit", "in": "query", "required": False, "schema": {"type": "integer", "minimum": 1, "default": 5}},
    ]
    body = {"content": {"application/json": {"schema": _reference("New")}}}
    new = {"properties": {"word": {"type": "string", "description": "What to say."}}, "required": ["word"]}
    page = _page({"/things/{name}": {"post": _request("Make one", parameters=parameters, requestBody=body)}}, New=new)
    assert "### POST /things/{name}\n\nMake one.\n" in page
    assert "| `limit` | query | integer | At least 1. `5` unless given. |" in page
    assert "**Body**\n\n| Field | Type | Meaning |\n| --- | --- | --- |\n| `word` | string | What to say. |" in page
    assert "**Answer 200**\n\n| Field | Type |\n| --- | --- |\n| `size` | integer |" in page


def test_a_path_of_the_registry_is_told_once_whichever_comes_first() -> None:
    both = {path: {"get": _request("List")} for path in ("/schemas/subjects", "/subjects")}
    page = _page(both)
    assert page == _page(dict(reversed(both.items())))
    assert page.count("\n### GET ") == 1
    assert "### GET /subjects\n\nList.\n\nThe same at `/schemas/subjects`." in page


def test_a_path_of_the_registry_that_does_something_else_is_told_by_itself() -> None:
    page = _page({"/stats": {"get": _request("Of the broker")}, "/schemas/stats": {"get": _request("Of schemas")}})
    assert "### GET /stats\n\nOf the broker.\n" in page
    assert "### GET /schemas/stats\n\nOf schemas.\n" in page
    assert "The same at" not in page


def test_a_request_says_what_it_does_and_what_is_to_be_known_of_it() -> None:
    page = _page({"/things": {"get": _request("List things", description="The latest first.")}})
    assert "### GET /things\n\nList things. The latest first.\n" in page


def test_an_error_that_means_something_else_here_says_so() -> None:
    usual, other = _answer("ErrorResponse", "It is not there."), _answer("ErrorResponse", "It is gone.")
    paths = {f"/{name}": {"get": _request("Look")} for name in "abc"}
    for name, answer in zip("abc", (usual, usual, other), strict=True):
        paths[f"/{name}"]["get"]["responses"] = {"200": _answer("Thing"), "404": answer}
    page = _page(paths)
    assert page.count("Errors: [404](#errors).") == 2
    assert page.count("Errors: [404](#errors) (It is gone).") == 1
    assert "| 404 | It is not there. |" in page


def test_a_body_of_many_requests_is_told_once() -> None:
    page = _page({path: {"get": _request("Look")} for path in ("/a", "/b")})
    assert page.count("| `size` | integer |") == 1
    assert page.count("**Answer 200**: [Thing](#thing).") == 2


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"type": "array", "items": {"type": "string"}}, "list of string"),
        ({"oneOf": [{"type": "integer"}, {"type": "null"}]}, "integer"),
        ({"type": ["null", "string"], "enum": ["text", "base64", None]}, "`text` or `base64`"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "object, each value integer"),
        ({"type": "string", "format": "binary"}, "bytes"),
        ({"allOf": [{"$ref": "#/components/schemas/Thing"}], "description": "It."}, "[Thing](#thing)"),
        ({}, "anything"),
    ],
)
def test_a_type_is_written_for_people(schema: dict[str, Any], written: str) -> None:
    assert http_types.type_of(schema) == written


def test_a_bound_that_every_number_keeps_is_not_told() -> None:
    largest: list[float] = [2**63 - 1, float(2**63 - 1)]
    assert [http_types.meaning({"minimum": 1, "maximum": most}) for most in largest] == ["At least 1.", "At least 1."]
    assert http_types.meaning({"maximum": 1_000}) == "At most 1,000."


def test_a_default_is_told_of_what_is_asked_and_of_what_is_answered() -> None:
    assert http_types.meaning({"default": False}) == "`false` unless given."
    assert http_types.meaning({"default": True}, is_asked=False) == "`true` if absent."


def test_every_call_and_every_message_of_the_proto_is_told() -> None:
    page = grpc_page()
    for service in goqueue_pb2.DESCRIPTOR.services_by_name.values():
        told = page.partition(f"## Service {service.name}\n")[2].partition("\n## ")[0]
        assert [name for name in service.methods_by_name if f"| `{name}` |" not in told] == []
    for name, message in goqueue_pb2.DESCRIPTOR.message_types_by_name.items():
        told = page.partition(f"\n### {name}\n")[2].partition("\n### ")[0]
        assert [field for field in message.fields_by_name if f"| `{field}` |" not in told] == []
    assert "| `PublishStream` | a stream of [PublishRequest](#publishrequest) |" in page
    assert "| `misfits` | map of uint32 to string |" in page


def test_every_command_is_told_with_all_of_its_options() -> None:
    page = command_page()
    commands = {"goqueue": typer.main.get_command(app)}
    while commands:
        name, command = commands.popitem()
        commands |= {f"{name} {child}": own for child, own in getattr(command, "commands", {}).items()}
        told = re.split(r"\n##+ ", page.partition(f"# {name}\n")[2])[0]
        assert told, name
        options = [option for parameter in command.params for option in parameter.opts if option.startswith("--")]
        assert [option for option in options if not re.search(rf"{option}\b", told)] == [], name


def test_the_help_of_a_command_does_not_follow_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = command_page()
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERMINAL_WIDTH", "40")
    assert command_page() == wide


def test_methods_of_bases_are_told_and_linked() -> None:
    page = python_page()
    assert "#### `Client.dead_letters`" in page
    assert "As [`AsyncClient.producer`](#asyncclientproducer)." in page
    assert 'addresses: str | list[str] = "localhost:9090"' in page
    assert "\\n### `Producer`\n\n```python" not in page


def test_a_column_without_anything_is_left_out() -> None:
    assert table(("A", "B"), [("x|y", ""), ("z", "")]) == "| A |\n| --- |\n| x\\|y |\n| z |"
    assert table(("A",), []) == ""


def test_a_page_that_a_comment_names_is_linked() -> None:
    assert sentences("See\n docs/frames.md.") == "See [frames](../frames.md)."


@pytest.mark.parametrize(
    ("heading", "target"),
    [("GET /topics/{topic_name}", "#get-topicstopic_name"), ("goqueue dlq list", "#goqueue-dlq-list")],
)
def test_a_heading_is_linked_to_by_its_words(heading: str, target: str) -> None:
    assert anchor(heading) == target


def test_what_belongs_to_an_item_is_set_in_by_four() -> None:
    text = (
        "Do:\n1. this\n\n   ```sh\n   ls\n   ```\n2. that\n\nEnd\n2. no list\n```text\n- code\n  code\n```\n- a\n  b\n"
    )
    assert with_lists(text) == (
        "Do:\n\n1. this\n\n    ```sh\n    ls\n    ```\n\n2. that\n\nEnd\n2. no list\n"
        "```text\n- code\n  code\n```\n\n- a\n    b\n"
    )
