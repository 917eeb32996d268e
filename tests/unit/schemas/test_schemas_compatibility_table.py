"""The table of changes in docs/schemas.md is what the formats do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from goqueue.schemas.base import SchemaKind
from goqueue.schemas.parsing import parse_schema

PAGE = Path(__file__).parents[3] / "docs" / "schemas.md"
COLUMNS: tuple[tuple[str, SchemaKind], ...] = (
    ("avro", "AVRO"), ("closed", "JSON"), ("open", "JSON"), ("protobuf", "PROTOBUF"),
)  # fmt: skip
INT, TEXT = {"type": "integer"}, {"type": "string"}


def avro(*fields: Any, **more: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": list(fields), **more})


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def symbols(*names: str) -> Any:
    return {"type": "enum", "name": "E", "symbols": list(names)}


def objects(properties: dict[str, Any], *required: str) -> dict[str, str]:
    made = {"type": "object", "properties": properties, "required": list(required)}
    return {"closed": json.dumps({**made, "additionalProperties": False}), "open": json.dumps(made)}


def proto2(text: str) -> str:
    return f'syntax = "proto2"; message M {{ {text} }} enum E {{ X = 0; }}'


def proto3(text: str, values: str = "X = 0;", name: str = "M") -> str:
    return f'syntax = "proto3"; message {name} {{ {text} }} enum E {{ {values} }}'


A = field("a", "int")
CHANGES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "add a field that may be missing": (
        {"avro": avro(A), "protobuf": proto3("int32 a = 1;"), **objects({"a": INT})},
        {"avro": avro(A, field("b", "int", default=0)), "protobuf": proto3("int32 a = 1; string b = 2;"),
         **objects({"a": INT, "b": TEXT})},
    ),
    "add a field that must be there": (
        {"avro": avro(A), "protobuf": proto2("optional int32 a = 1;"), **objects({"a": INT})},
        {"avro": avro(A, field("b", "int")), "protobuf": proto2("optional int32 a = 1; required int32 b = 2;"),
         **objects({"a": INT, "b": TEXT}, "b")},
    ),
    "another name for a field": (
        {"avro": avro(A), "protobuf": proto3("int32 a = 1;"), **objects({"a": INT})},
        {"avro": avro(field("b", "int", aliases=["a"])), "protobuf": proto3("int32 b = 1;"), **objects({"b": INT})},
    ),
    "a wider type": (
        {"avro": avro(A), "protobuf": proto3("int32 a = 1;"), **objects({"a": INT})},
        {"avro": avro(field("a", "long")), "protobuf": proto3("int64 a = 1;"), **objects({"a": {"type": "number"}})},
    ),
    "another type": (
        {"avro": avro(A), "protobuf": proto3("int32 a = 1;"), **objects({"a": INT})},
        {"avro": avro(field("a", "string")), "protobuf": proto3("string a = 1;"), **objects({"a": TEXT})},
    ),
    "a new symbol of an enum": (
        {"avro": avro(field("a", symbols("X"))), "protobuf": proto3("E a = 1;"), **objects({"a": {"enum": ["X"]}})},
        {"avro": avro(field("a", symbols("X", "Y"))), "protobuf": proto3("E a = 1;", "X = 0; Y = 1;"),
         **objects({"a": {"enum": ["X", "Y"]}})},
    ),
    "a field may be null": (
        {"avro": avro(A), "protobuf": proto3("int32 a = 1;"), **objects({"a": INT})},
        {"avro": avro(field("a", ["null", "int"])), "protobuf": proto3("optional int32 a = 1;"),
         **objects({"a": {"type": ["integer", "null"]}})},
    ),
    "one more of a union": (
        {"avro": avro(field("a", ["null", "int"])), "protobuf": proto3("oneof o { int32 a = 1; }"),
         **objects({"a": {"oneOf": [INT, TEXT]}})},
        {"avro": avro(field("a", ["null", "int", "string"])),
         "protobuf": proto3("oneof o { int32 a = 1; string b = 2; }"),
         **objects({"a": {"oneOf": [INT, TEXT, {"type": "null"}]}})},
    ),
    "another name for a record or message": (
        {"avro": avro(A), "protobuf": proto3("int32 a = 1;")},
        {"avro": avro(A, name="S", aliases=["R"]), "protobuf": proto3("int32 a = 1;", name="N")},
    ),
    "another namespace or package": (
        {"avro": avro(A, name="p.R"), "protobuf": proto3("int32 a = 1;")},
        {"avro": avro(A, name="q.R"),
         "protobuf": proto3("int32 a = 1;").replace("message", "package q; message", 1)},
    ),
}  # fmt: skip
CHANGES["remove a field that may be missing"] = CHANGES["add a field that may be missing"][::-1]
CHANGES["remove a field that must be there"] = CHANGES["add a field that must be there"][::-1]


def rows() -> dict[str, list[str]]:
    lines = re.findall(r"^\| (.+?) \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$", PAGE.read_text(), re.MULTILINE)
    return {
        line[0]: [cell.split(",")[0].split(";")[0].split(":")[0].split(" (")[0] for cell in line[1:]] for line in lines
    }


def allowed(kind: SchemaKind, old: str, new: str) -> str:
    before, after = parse_schema(kind, old, {}), parse_schema(kind, new, {})
    backward, forward = not after.cannot_read(before), not before.cannot_read(after)
    return {(True, True): "both", (True, False): "backward", (False, True): "forward"}.get(
        (backward, forward), "neither"
    )


@pytest.mark.parametrize("change", CHANGES)
def test_the_page_says_what_each_format_allows(change: str) -> None:
    [told] = [cells for name, cells in rows().items() if name.startswith(change)]
    old, new = CHANGES[change]
    found = [allowed(kind, old[column], new[column]) if column in old else "–" for column, kind in COLUMNS]
    assert found == told


def test_every_row_of_the_page_is_shown_here() -> None:
    table = [name for name in rows() if name not in ("change", "---")]
    assert all(any(name.startswith(change) for change in CHANGES) for name in table)
    assert len(table) == len(CHANGES)
