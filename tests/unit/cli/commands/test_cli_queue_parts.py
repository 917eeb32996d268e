"""Parts of ``goqueue queue`` that need no broker."""

from __future__ import annotations

import getpass
import io
import json
import platform
import sys
from typing import Any

import pytest
import typer

from goqueue.cli.commands.queue import queue_settle
from goqueue.cli.commands.queue.queue_member import client_name, is_own_member
from goqueue.cli.commands.queue.queue_settle import read_receipts, settle_all
from goqueue.cli.connection.broker_http import BrokerHttp
from goqueue.cli.terminal import output, progress
from goqueue.cli.terminal.message_text import row_fields
from goqueue.cli.terminal.output import JsonList


def at_host(monkeypatch: pytest.MonkeyPatch, host: str) -> str:
    monkeypatch.setattr(platform, "node", lambda: host)
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")
    return client_name()


@pytest.mark.parametrize(
    ("other", "is_own"),
    [("vm", True), ("vm-2", False), ("vm-12345678", False), ("v", False), ("vm.example.com", False)],
)
def test_members_are_known_by_the_whole_name_of_their_host(
    monkeypatch: pytest.MonkeyPatch, other: str, is_own: bool
) -> None:
    name = at_host(monkeypatch, other)
    member = {"instance_id": f"{name}-0123abcd-0123abcd"}
    at_host(monkeypatch, "vm")
    assert is_own_member(member) is is_own
    assert not is_own_member({}) and not is_own_member({"instance_id": "cli-ada@vm-mine"})


def test_names_that_are_too_long_or_odd_do_not_collide(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {at_host(monkeypatch, host) for host in ("h" * 300, "h" * 301, "h" * 120 + "2", "a\nb", "a\tb", "a_b")}
    assert len(names) == 6
    assert all(len(name) <= 100 and name.isprintable() for name in names)


def given(monkeypatch: pytest.MonkeyPatch, text: bytes) -> io.BytesIO:
    raw = io.BytesIO(text)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(raw))
    return raw


def test_no_more_is_read_than_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_settle, "MOST_RECEIPTS", 3)
    raw = given(monkeypatch, b"a\nb\n\nc\n")
    assert read_receipts(["-"]) == ["a", "b", "c"]
    raw = given(monkeypatch, b"a\n" * 1_000)
    with pytest.raises(typer.BadParameter, match="at most 3 receipts"):
        read_receipts(["-"])
    assert raw.tell() == 8


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_settle, "_LONGEST_LINE", 1 << 20)
    raw = given(monkeypatch, b"x" * (3 << 20))
    with pytest.raises(typer.BadParameter, match="more than 1 MiB"):
        read_receipts(["-"])
    assert raw.tell() == (1 << 20) + 1


@pytest.mark.parametrize("text", [b"\xff", b'{"receipt_handle": "\xff"}', b'{"receipt_handle": 1}', b"{", b"a\x1bb"])
def test_what_is_no_receipt_is_refused(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    given(monkeypatch, text + b"\n")
    with pytest.raises(typer.BadParameter, match="is no receipt"):
        read_receipts(["-"])


def test_the_bar_ends_at_its_total(monkeypatch: pytest.MonkeyPatch) -> None:
    advanced: list[int] = []

    class Counting:
        def __enter__(self) -> Counting:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def advance(self, amount: int = 1) -> None:
            advanced.append(amount)

    def settled(self: BrokerHttp, *_: object, body: dict[str, Any]) -> dict[str, Any]:
        return {"results": [{"ok": True}] * len(body["receipt_handles"])}

    monkeypatch.setattr(progress, "progress_bar", lambda *_, **__: Counting())
    monkeypatch.setattr(BrokerHttp, "send", settled)
    settle_all(BrokerHttp("h", 1), "ack", "acked", [str(at) for at in range(1_500)], {}, as_json=False)
    assert advanced == [1_000, 500]


@pytest.mark.parametrize("items", [[], [{"a": [1, {"b": "x\ny"}]}], [{"a": "\u2028ä"}, {}]])
def test_a_list_that_is_written_as_it_comes_looks_like_the_whole(
    items: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    document = JsonList("messages")
    document.begin({"dlq_topic": "ö", "n": None})
    for item in items:
        document.add([item])
    document.end({"more": False})
    written = capsys.readouterr().out
    whole = {"dlq_topic": "ö", "n": None, "messages": items, "more": False}
    assert json.loads(written) == whole
    output.print_json(whole)
    assert capsys.readouterr().out == written


def test_of_a_message_in_a_table_only_the_beginning_is_held() -> None:
    message = {"value": "x" * 1_000_000, "key": "k", "offset": 7, "headers": {"h": "y" * 1_000}, "redriven": False}
    assert row_fields(message) == {"value": "x" * 300, "key": "k", "offset": 7, "redriven": False}
