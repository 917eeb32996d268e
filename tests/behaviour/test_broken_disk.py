"""A disk that is full or fails while something is asked for: it is refused as what it is, and nothing else happens."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from behaviour.broken_disk import OPERATIONS, BrokenDisk
from behaviour.host import Host, config_for
from behaviour.raw import Answer, ask, request
from goqueue.model.config import TransactionsConfig

Ask = Callable[[str, str, Any], Answer]
FRAMES = "application/octet-stream"
REFUSALS = {"disk_full": 507, "storage_failed": 503, "overloaded": 503}


class Asked:
    """A broker with something of everything in it."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.ok("POST", "/topics", {"name": "t", "num_partitions": 1})
        self.ok("POST", "/topics/t/messages", {"messages": [{"value": "before"}, {"value": "later", "delay": "1h"}]})
        self.schema = {"schema": '{"type": "string"}'}
        self.ok("POST", "/subjects/old/versions", self.schema)
        joining = {"client_id": "c", "topics": ["t"], "kind": "shared"}
        self.member = self.ok("POST", "/groups/g/join", joining)["member_id"]
        polled = self.ok("GET", f"/groups/g/poll?member_id={self.member}&timeout=20s")["messages"]
        self.receipts = {"receipt_handles": [polled[0]["receipt_handle"]]}
        self.producer = self.ok("POST", "/producers/init", {"transactional_id": "x"})
        self.ids = {name: self.producer[name] for name in ("producer_id", "epoch")} | {"transactional_id": "x"}
        begun = self.ok("POST", "/transactions/begin", self.ids)
        self.ids["transaction_id"] = begun["transaction_id"]
        self.acks = {name: self.ids[name] for name in ("producer_id", "epoch", "transaction_id")}
        self.acks["receipts"] = self.receipts["receipt_handles"]
        self.ok("PUT", "/groups/idle", {"settings": {}})

    def __call__(self, method: str, path: str, body: Any = None, *, accept: str = "application/json") -> Answer:
        data = b"" if body is None else json.dumps(body).encode()
        return ask(self._host.port, request(method, path, data, f"Accept: {accept}"))

    def ok(self, method: str, path: str, body: Any = None) -> Any:
        answer = self(method, path, body)
        assert answer.status in (200, 201), answer.body
        return answer.json


REQUESTS: dict[str, Callable[[Asked], Answer]] = {
    "publish": lambda it: it("POST", "/topics/t/messages", {"messages": [{"value": "v"}]}),
    "publish with an id": lambda it: it("POST", "/topics/t/messages", {"messages": [{"value": "v", "dedup_id": "d"}]}),
    "publish for later": lambda it: it("POST", "/topics/t/messages", {"messages": [{"value": "v", "delay": "1h"}]}),
    "create a topic": lambda it: it("POST", "/topics", {"name": "new", "num_partitions": 2}),
    "change a topic": lambda it: it("PATCH", "/topics/t", {"settings": {"retention_ms": "1h"}}),
    "delete a topic": lambda it: it("DELETE", "/topics/t"),
    "purge a topic": lambda it: it("POST", "/admin/topics/t/purge", {}),
    "cancel a delayed message": lambda it: it("DELETE", "/topics/t/delayed/0/1"),
    "read a partition": lambda it: it("GET", "/topics/t/partitions/0/messages"),
    "read frames": lambda it: it("GET", "/topics/t/partitions/0/messages?max_bytes=1", accept=FRAMES),
    "read a topic": lambda it: it("GET", "/topics/t/messages?from_time=2020-01-01T00:00:00Z"),
    "list what is delayed": lambda it: it("GET", "/topics/t/delayed"),
    "peek": lambda it: it("GET", "/groups/g/messages"),
    "search traces": lambda it: it("GET", "/traces/search"),
    "look at figures": lambda it: it("GET", "/stats"),
    "look a schema up": lambda it: it("GET", "/schemas/ids/1"),
    "list the versions of a subject": lambda it: it("GET", "/subjects/old/versions/1"),
    "back up": lambda it: it("GET", "/admin/backup"),
    "set up a group": lambda it: it("PUT", "/groups/new", {"settings": {}}),
    "join a group": lambda it: it("POST", "/groups/new/join", {"client_id": "d", "topics": ["t"]}),
    "poll": lambda it: it("GET", f"/groups/g/poll?member_id={it.member}&timeout=0s"),
    "ack": lambda it: it("POST", "/messages/ack", it.receipts),
    "nack": lambda it: it("POST", "/messages/nack", it.receipts),
    "reject": lambda it: it("POST", "/messages/reject", it.receipts),
    "leave a group": lambda it: it("POST", "/groups/g/leave", {"member_id": it.member}),
    "reset a group": lambda it: it("POST", "/groups/g/reset", {"topic": "t", "to": "earliest"}),
    "delete a group": lambda it: it("DELETE", "/groups/idle"),
    "register a schema": lambda it: it("POST", "/subjects/new/versions", {"schema": '{"type": "int"}'}),
    "delete a subject": lambda it: it("DELETE", "/subjects/old"),
    "configure a subject": lambda it: it("PUT", "/config/old", {"compatibility": "FULL"}),
    "begin as a producer": lambda it: it("POST", "/producers/init", {}),
    "publish in a transaction": lambda it: it(
        "POST", "/transactions/publish", it.ids | {"topic": "t", "partition": 0, "value": "v"}
    ),
    "ack in a transaction": lambda it: it("POST", "/transactions/acks", it.acks),
    "prepare a transaction": lambda it: it("POST", "/transactions/prepare", it.ids),
    "commit a transaction": lambda it: it("POST", "/transactions/commit", it.ids),
    "abort a transaction": lambda it: it("POST", "/transactions/abort", it.ids),
}


@pytest.fixture
def disk() -> BrokenDisk:
    return BrokenDisk()


@pytest.fixture
def host(tmp_path: Path, disk: BrokenDisk) -> Iterator[Host]:
    # Files are opened again and again, and new ones begun.
    config = config_for(tmp_path, storage={"max_open_files": 16})
    host = Host(replace(config, transactions=TransactionsConfig()), http=True, files=disk)
    yield host
    host.stop()


EVERYWHERE = [("open", "ENOSPC"), ("read", "EIO"), ("write", "ENOSPC"), ("write", "EIO"), ("fsync", "EIO")]
WITH_FOLDERS = {"publish", "create a topic", "reject", "look at figures"}
CASES = [
    (name, operation, error)
    for name in REQUESTS
    for operation in OPERATIONS
    for error in ("ENOSPC", "EIO")
    if (operation, error) in EVERYWHERE or name in WITH_FOLDERS
]


@pytest.mark.parametrize(("name", "operation", "error"), CASES)
def test_what_meets_a_broken_disk_is_refused_for_that_reason_or_not_concerned(
    host: Host, disk: BrokenDisk, name: str, operation: str, error: str, caplog: pytest.LogCaptureFixture
) -> None:
    asked = Asked(host)
    with disk.broken(operation, getattr(errno, error)):
        answer = REQUESTS[name](asked)
    if answer.status >= 300:
        code = answer.json["code"]
        assert REFUSALS.get(code) == answer.status, answer.body
        assert disk.fails
        assert answer.json["retriable"] == (code != "storage_failed")
    assert [record for record in caplog.records if record.levelname == "ERROR" and record.exc_info] == []


@pytest.mark.parametrize("operation", ["mkdir", "fsync"])
@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
def test_a_topic_that_could_not_be_made_leaves_nothing_behind(
    host: Host, disk: BrokenDisk, operation: str, error: str, tmp_path: Path
) -> None:
    asked = Asked(host)
    before = sorted(path.name for path in (tmp_path / "logs").iterdir())
    with disk.broken(operation, getattr(errno, error)):
        assert REQUESTS["create a topic"](asked).status in REFUSALS.values()
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == before
    if operation == "mkdir":
        # Nothing was written, so nothing is in doubt.
        assert asked.ok("GET", "/topics") == {"topics": ["t"]}
        asked.ok("POST", "/topics", {"name": "new", "num_partitions": 2})
