"""The page about the native protocol against the code that speaks it."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from goqueue.model.config import NativeConfig
from goqueue.wire.native.message import HEADER, PREFACE, VERSION, MessageFlag
from goqueue.wire.native.operations import CALLS, Operation
from goqueue.wire.native.publish import MAX_BATCHES, EntryKind, dump_publish, dump_published, stored_entry
from goqueue.wire.native.read import dump_credit, dump_read
from goqueue.wire.proto import goqueue_pb2 as pb

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()


def table_behind(text: str) -> list[list[str]]:
    """The rows of the first table behind a text, without its header."""
    lines = PAGE[PAGE.index(text) :].splitlines()
    first = next(place for place, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def sizes(rows: list[list[str]]) -> list[int]:
    return [int(row[1]) for row in rows if row[1]]


def test_the_header_has_the_fields_of_the_page() -> None:
    assert sizes(table_behind("## Messages")) == [4, 2, 1, 1, 4, 4]
    assert sum(sizes(table_behind("## Messages"))) == HEADER.size == 16
    assert f"`{PREFACE.decode().replace(chr(10), chr(92) + 'n')}`" in PAGE
    bits = re.findall(r"bit \d \((\d)\) (answer|error|more|the client)", PAGE)
    assert [int(bit) for bit, _ in bits] == [int(flag) for flag in MessageFlag]
    assert table_behind("## Messages")[3] == ["version", "1", str(VERSION)]


def test_the_operations_of_the_page_are_those_that_there_are() -> None:
    listed = {row[0]: int(row[1]) for row in table_behind("## Operations")}
    assert listed == {each.name: each.value for each in Operation}
    calls = {}
    for numbers, names in table_behind("Everything else is a **call**"):
        first, last = (int(number, 16) for number in numbers.split(" to "))
        service, _, methods = names.partition(": ")
        found = methods.split(", ")
        assert last - first + 1 == len(found)
        calls.update({first + place: f"{service}.{method}" for place, method in enumerate(found)})
    assert calls == CALLS


def test_every_call_with_one_answer_of_the_grpc_api_has_a_number() -> None:
    expected = {
        f"{service.name}.{method.name}"
        for service in pb.DESCRIPTOR.services_by_name.values()
        for method in service.methods
        if service.name != "Messages" and not method.server_streaming
    }
    assert expected == set(CALLS.values())


def test_the_heads_have_the_fields_of_the_page() -> None:
    request = table_behind("## Publishing")
    assert len(dump_publish(0, [(b"t", 0, 1)])) == sum(sizes(request)) - 4 + len(b"t"), "without a transaction"
    assert len(dump_publish(0, [(b"t", 0, 1)], b"x")) == sum(sizes(request)) + len(b"tx")
    assert f"1 to {MAX_BATCHES}" in request[2][2]
    answer = table_behind("Each batch is stored whole or not at all")
    assert len(dump_published([stored_entry(0, 1)])) == sum(sizes(answer)) - 4
    kinds = re.findall(r"(\d) (stored with more|stored|refused)", answer[1][2])
    assert [int(kind) for kind, _ in kinds] == [int(kind) for kind in EntryKind]
    assert len(dump_read(0, 0, 0)) == sum(sizes(table_behind("## Reading")))
    assert len(dump_credit(1)) == 8


def test_the_limits_of_the_page_are_the_settings() -> None:
    names = {field.name for field in fields(NativeConfig)}
    rows = [row for row in table_behind("## Limits") if row[1]]
    assert rows and all(row[1].strip("`").removeprefix("native.") in names for row in rows)
