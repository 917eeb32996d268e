"""From bytes to lines, and from lines to messages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.cli.commands.produce import produce_input
from goqueue.cli.commands.produce.produce_input import (
    Block,
    NotReadable,
    Source,
    TooLarge,
    blocks,
    check_readable,
    read_whole,
)
from goqueue.cli.commands.produce.produce_rows import Chunk, Defaults, chunks, json_parser, key_parser, plain_parser
from goqueue.client.messages.outgoing_message import Outgoing
from goqueue.model.errors import InvalidMessage

NOW = Event()


def lines_of(path: Path) -> list[bytes]:
    found: list[bytes] = []
    for block in blocks(Source(str(path)), NOW):
        assert block.first == len(found) + 1
        found += block.lines
    return found


@given(content=st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b"bcd", b"\r"])).map(b"".join), size=st.integers(1, 9))
def test_lines_are_the_same_however_they_are_read(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, size: int
) -> None:
    path = tmp_path_factory.getbasetemp() / f"lines-{os.getpid()}"
    path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(produce_input, "_BLOCK_BYTES", size)
        expected = [line.removesuffix(b"\r") for line in content.split(b"\n")]
        assert lines_of(path) == (expected[:-1] if content.endswith(b"\n") or not content else expected)


def test_a_line_without_end_is_told_and_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce_input, "_BLOCK_BYTES", 10)
    monkeypatch.setattr(produce_input, "MAX_LINE_BYTES", 25)
    path = tmp_path / "lines"
    path.write_bytes(b"one\n" + b"x" * 100 + b"\nthree\nfour")
    found = list(blocks(Source(str(path)), NOW))
    assert [(each.first, each.lines) for each in found if not each.too_long] == [
        (1, [b"one"]), (3, [b"three"]), (4, [b"four"]),
    ]  # fmt: skip
    assert [each.first for each in found if each.too_long] == [2]
    with pytest.raises(TooLarge, match="more than the 50 bytes"):
        read_whole(Source(str(path)), 50, NOW)


def test_files_that_are_not_there_are_told_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(NotReadable, match="not there"):
        check_readable([Source(str(tmp_path / "nothing"))])
    assert "path" in NotReadable.remedy
    with pytest.raises(NotReadable, match="is a folder"):
        check_readable([Source(str(tmp_path))])


def test_plain_lines_go_as_they_are_unless_there_is_something_to_add() -> None:
    assert plain_parser(Defaults()) is None
    parse = plain_parser(Defaults(key=b"ada", priority=1))
    assert parse is not None and parse(b"v") == Outgoing(b"v", key=b"ada", priority=1)


def test_keys_stand_before_the_first_separator() -> None:
    parse = key_parser(Defaults(), "::")
    assert parse(b"ada::a::b") == Outgoing(b"a::b", key=b"ada", priority=2)
    with pytest.raises(InvalidMessage, match="no '::'"):
        parse(b"ada:a")


def row(line: str, for_all: Defaults | None = None, *, ignore_partition: bool = False) -> Outgoing:
    found = json_parser(for_all or Defaults(), ignore_partition=ignore_partition)(line.encode())
    assert isinstance(found, Outgoing)
    return found


def test_a_row_says_what_the_message_is() -> None:
    found = row(
        '{"value": "v", "key": "k", "headers": {"a": "1", "b": ["2", "3"]}, "priority": "high", "partition": 2,'
        ' "timestamp": "2026-01-31T12:00:00Z", "delay": "5s", "ttl": "1h", "dedup_id": "d"}'
    )
    assert found == Outgoing(
        b"v",
        key=b"k",
        headers=[("a", b"1"), ("b", b"2"), ("b", b"3")],
        partition=2,
        priority=1,
        timestamp=1_769_860_800_000_000_000,
        delay=timedelta(seconds=5),
        ttl=timedelta(hours=1),
        dedup_id="d",
    )
    assert row('{"value": {"total":  1.50}}').value == b'{"total":  1.50}'
    assert row('{"value": "AP8=", "key": "Aw==", "encoding": "base64"}') == Outgoing(
        b"\x00\xff", key=b"\x03", priority=2
    )
    assert row('{"value": null, "key": "k"}').value is None
    assert row('{"value": "v", "deliverAt": "2030-01-01T00:00:00Z"}').deliver_at == 1_893_456_000_000_000_000
    assert row('{"value": "v", "partition": 2}', ignore_partition=True).partition is None


def test_what_a_row_says_goes_before_the_options() -> None:
    for_all = Defaults(b"all", (("a", b"0"), ("z", b"9")), 1, 3, timedelta(1))
    found = row('{"value": "v", "key": "own", "headers": {"a": "1"}, "deliver_at": "2030-01-01T00:00:00Z"}', for_all)
    assert (found.key, found.headers, found.partition, found.priority) == (b"own", [("z", b"9"), ("a", b"1")], 1, 3)
    assert found.delay is None and found.deliver_at is not None
    assert row('{"value": "v"}', for_all).delay == timedelta(1)


def test_what_was_read_from_a_topic_loses_what_the_broker_had_added() -> None:
    read = '{"topic": "t", "offset": 7, "value": "v", "headers": {"a": "1", "goqueue-ttl-ms": "5000", "goqueue-x": ""}}'
    found = row(read)
    assert (found.headers, found.ttl) == ([("a", b"1")], timedelta(seconds=5))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", r"not JSON \(the input data was truncated"),
        ("{x", r"not JSON \(the JSON is malformed"),
        ("17", "expected 'object'"),
        ('{"value": 1, "kye": 2}', "no column 'kye'.*did you mean 'key'"),
        ('{"key": "k"}', "no value"),
        ('{"value": "v", "partition": "one"}', r"expected 'int | null'.*partition"),
        ('{"value": "v", "priority": "urgent"}', "priority 'urgent'"),
        ('{"value": "v", "delay": "soon"}', "delay: 'soon' is not a duration"),
        ('{"value": "v", "delay": "1s", "deliverAt": "2030-01-01T00:00:00Z"}', "more than one of"),
        ('{"value": "v", "timestamp": "noon"}', "timestamp: 'noon' is not an instant"),
        ('{"value": "?", "encoding": "base64"}', "value: not valid base64"),
        ('{"value": 5, "encoding": "base64"}', "value: it is not a text"),
        ('{"value": "v", "encoding": "hex"}', "encoding: it is text or base64"),
        ("[" * 5_000, "nested too deeply|not JSON|expected"),
    ],
)
def test_a_bad_row_is_told(line: str, why: str) -> None:
    with pytest.raises(InvalidMessage, match=why):
        row(line)


def some_blocks(*lines: bytes) -> Iterator[Block]:
    yield Block("f", 1, list(lines), 10)


def test_nothing_behind_a_bad_line_is_taken_unless_it_is_skipped() -> None:
    given = (b'{"value": "a"}', b"", b"?", b'{"value": "b"}')
    parse = json_parser(Defaults(), ignore_partition=False)
    (found,) = chunks(some_blocks(*given), parse, skip_bad=False)
    assert ([each.value for each in found.messages], list(found.lines), found.bad[0][0]) == ([b"a"], [1], 3)  # type: ignore[union-attr]
    (found,) = chunks(some_blocks(*given), parse, skip_bad=True)
    assert (list(found.lines), len(found.bad)) == ([1, 4], 1)
    assert str(found.problem(*found.bad[0])).startswith("line 3 of f: it is not JSON")


def test_parts_of_a_chunk_are_all_of_it() -> None:
    chunk = Chunk("f", [b"%d" % each for each in range(7)], range(1, 8), 100, [(8, "bad")])
    parts = list(chunk.parts(3))
    assert [len(part.messages) for part in parts] == [3, 3, 1]
    assert [line for part in parts for line in part.lines] == list(range(1, 8))
    assert [list(part.bad) for part in parts] == [[], [], [(8, "bad")]]
    assert abs(sum(part.size_bytes for part in parts) - 100) <= 2


def test_a_file_that_is_more_than_a_message_is_no_matter_of_bad_lines() -> None:
    with pytest.raises(TooLarge) as refused:
        read_whole(Source("/dev/zero"), 20 << 20, NOW)
    assert "has more than the 20,971,520 bytes that a message may have" in str(refused.value)
    assert "--whole" in refused.value.remedy and "--skip-bad" not in refused.value.remedy
