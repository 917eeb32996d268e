"""What the OpenAPI document tells: everything that can be sent or answered, and the same in every process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from behaviour.process import broker_process

METHODS = {"get", "post", "put", "patch", "delete"}


def served(data: Path) -> bytes:
    """By a broker in a process of its own."""
    with broker_process(data) as broker, broker.client() as client:
        return client.get("/openapi.json").raise_for_status().content


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONHASHSEED", "1")
        return served(tmp_path_factory.mktemp("document"))


@pytest.fixture(scope="module")
def document(made: bytes) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(made)
    return found


def described(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every operation, parameter and property, wherever it is, by its place."""
    for path, methods in document["paths"].items():
        for method in METHODS & methods.keys():
            operation = methods[method]
            yield f"{method} {path}", operation
            for parameter in operation.get("parameters", []):
                yield f"{method} {path} ?{parameter['name']}", parameter
    yield from properties_in(document, "")


def properties_in(part: Any, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Examples are left out: a value may have a field of any name."""
    if isinstance(part, list):
        for each in part:
            yield from properties_in(each, place)
    elif isinstance(part, dict):
        if part.get("type") == "object":
            for name, schema in part.get("properties", {}).items():
                yield f"{place}.{name}", schema
        for name, inner in part.items():
            if name != "examples":
                yield from properties_in(inner, f"{place}/{name}")


def test_every_operation_parameter_and_field_is_described(document: dict[str, Any]) -> None:
    found = dict(described(document))
    kinds = ("get /topics", "get /topics/{topic_name}/messages ?limit", "/components/schemas/PublishMessage.key")
    assert found.keys() >= set(kinds)
    assert [place for place, said in found.items() if not said.get("description", "").strip()] == []


def test_a_description_is_a_sentence(document: dict[str, Any]) -> None:
    texts = {place: said["description"].strip() for place, said in described(document)}
    assert [place for place, text in texts.items() if not text.endswith(".")] == []


def test_every_process_makes_the_same_document(made: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Sets of texts are in another order with another seed.
    monkeypatch.setenv("PYTHONHASHSEED", "2")
    assert served(tmp_path) == made


def test_no_value_is_made_up(document: dict[str, Any]) -> None:
    """Those that the framework invents stand at the schema of an answer; ours stand at fields and at whole answers."""
    schemas = document["components"]["schemas"]
    assert [name for name, schema in schemas.items() if "examples" in schema] == []


def test_a_body_may_be_too_large_or_packed_otherwise_wherever_there_is_one(document: dict[str, Any]) -> None:
    operations = {place: said for place, said in described(document) if "responses" in said}
    with_a_body = {place for place, said in operations.items() if "requestBody" in said}
    assert {"post /topics", "put /config", "post /admin/topics/{topic_name}/partitions"} <= with_a_body
    assert [place for place in with_a_body if not {"413", "415"} <= operations[place]["responses"].keys()] == []
