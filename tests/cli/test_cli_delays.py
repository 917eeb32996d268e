"""``goqueue delay`` against a broker in a process of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
from typer.testing import CliRunner, Result

from goqueue.cli.app import app
from goqueue.cli.commands.delay import delay_calls
from goqueue.cli.connection import many_calls
from goqueue.cli.connection.broker_http import BrokerHttp, NoBroker
from goqueue.testing import BrokerProcess


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.url, timeout=30) as made:
        yield made


@pytest.fixture
def topic(http: httpx.Client) -> str:
    """Three messages wait in partition 0, at offsets 0 to 2, the last of them longest; another is large."""
    name = f"t-{uuid4().hex[:8]}"
    http.post("/topics", json={"name": name, "num_partitions": 2}).raise_for_status()
    messages: list[dict[str, Any]] = [
        {"value": f"reminder {at}", "key": f"c{at}", "partition": 0, "delay": f"{at + 1}h"} for at in range(3)
    ]
    messages.append({"value": "x" * 100_000, "partition": 1, "delay": "10d"})
    http.post(f"/topics/{name}/messages", json={"messages": messages}).raise_for_status()
    return name


def run(broker: BrokerProcess, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["delay", *arguments], env={"GOQUEUE_SERVER": broker.url})


def done(broker: BrokerProcess, *arguments: str) -> Result:
    result = run(broker, *arguments)
    assert result.exit_code == 0, result.output
    return result


def waiting(http: httpx.Client, topic: str) -> list[tuple[int, int]]:
    found = http.get(f"/topics/{topic}/delayed").json()["messages"]
    return [(each["partition"], each["offset"]) for each in found]


def test_what_waits_is_listed_the_next_due_first(broker: BrokerProcess, topic: str) -> None:
    lines = done(broker, "list", topic).stdout.splitlines()
    assert re.split(r"  +", lines[0]) == ["partition", "offset", "due at", "in", "key", "value"]
    assert re.fullmatch(r"0 +0 +[0-9: -]+ +(59m\d\ds|1h00m) +c0 +reminder 0", lines[1])
    assert [line.split()[:2] for line in lines[1:]] == [["0", "0"], ["0", "1"], ["0", "2"], ["1", "0"]]
    assert lines[4].endswith("(100,000 bytes)") and re.search(r"  \d{4}-\d\d-\d\d [0-9:]{8}  ", lines[4])
    some = done(broker, "list", topic, "--limit", "1")
    assert len(some.stdout.splitlines()) == 2 and some.stderr == "3 more; --limit shows more of them\n"
    found = json.loads(done(broker, "list", topic, "--limit", "2", "--json").stdout)
    assert (found["total"], [each["value"] for each in found["messages"]]) == (4, ["reminder 0", "reminder 1"])


def test_one_is_put_off_or_brought_forward(broker: BrokerProcess, http: httpx.Client, topic: str) -> None:
    put_off = done(broker, "reschedule", topic, "0", "0", "--delay", "5h").stdout
    assert re.fullmatch(r"it is due at [0-9: -]+, in (5h00m|4h59m)\n", put_off)
    assert waiting(http, topic)[:3] == [(0, 1), (0, 2), (0, 0)]
    moved = json.loads(done(broker, "reschedule", topic, "0", "0", "--at", "2099-01-31T12:00:00Z", "--json").stdout)
    assert moved["deliver_at"] == "2099-01-31T12:00:00Z"
    assert done(broker, "reschedule", topic, "0", "1", "--delay", "0s").stdout == "it is due now\n"
    assert run(broker, "reschedule", topic, "1", "9", "--delay", "1h").exit_code == 4
    for when in ([], ["--delay", "1h", "--at", "2099-01-31T12:00:00Z"], ["--delay", "soon"], ["--at", "soon"]):
        assert run(broker, "reschedule", topic, "0", "2", *when).exit_code == 2


def test_some_are_taken_back(broker: BrokerProcess, http: httpx.Client, topic: str) -> None:
    assert done(broker, "cancel", topic, "0", "0").stdout == "1 taken back\n"
    gone = run(broker, "cancel", topic, "0", "0")
    assert gone.exit_code == 4 and "goqueue delay list" in gone.stderr
    mixed = run(broker, "cancel", topic, "0", "0", "0", "1", "1", "0")
    assert mixed.exit_code == 1
    lines = mixed.stdout.splitlines()
    assert lines[0].split() == ["partition", "offset", "problem"]
    assert lines[1].split()[:2] == ["0", "0"] and lines[2:] == ["2 taken back"]
    assert waiting(http, topic) == [(0, 2)]


def test_all_are_taken_back_if_that_is_meant(broker: BrokerProcess, http: httpx.Client, topic: str) -> None:
    refused = run(broker, "cancel", topic, "--all")
    assert refused.exit_code == 2 and "--yes" in refused.stderr
    assert len(waiting(http, topic)) == 4
    assert done(broker, "cancel", topic, "--all", "--yes").stdout == "4 taken back\n"
    assert waiting(http, topic) == []
    assert done(broker, "cancel", topic, "--all").stderr == "nothing waits\n"
    assert done(broker, "list", topic).stderr == "nothing waits\n"
    assert http.get(f"/topics/{topic}/messages").json()["messages"] == []


@pytest.mark.parametrize("places", [[], ["0"], ["0", "1", "0"], ["0", "x"], ["0", "1", "--all"]])
def test_what_cannot_be_meant_is_refused_before_anyone_is_asked(places: list[str]) -> None:
    result = CliRunner().invoke(app, ["delay", "cancel", "t", *places], env={"GOQUEUE_SERVER": "http://127.0.0.1:1"})
    assert result.exit_code == 2, result.output


def test_a_topic_that_is_not_there_is_said(broker: BrokerProcess) -> None:
    for arguments in (["list", "nowhere"], ["cancel", "nowhere", "0", "1"], ["cancel", "nowhere", "--all"]):
        assert run(broker, *arguments).exit_code == 4


def test_a_partition_that_does_not_exist_is_told_before_anything_is_changed(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    wrong = run(broker, "cancel", topic, "0", "0", "9", "1")
    assert wrong.exit_code == 4 and "has no partition 9" in wrong.stderr and "goqueue topic describe" in wrong.stderr
    assert len(waiting(http, topic)) == 4


@pytest.mark.parametrize("how", [[], ["--json"]])
@pytest.mark.parametrize("which", [["--all", "--yes"], ["0", "0", "0", "1", "0", "2"]])
def test_what_was_taken_back_is_told_before_the_error(
    broker: BrokerProcess, topic: str, which: list[str], how: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delay_calls, "_BATCH_SIZE", 1)
    send, taken = BrokerHttp.send, []

    def broken(self: BrokerHttp, method: str, path: list[str], *more: Any, **named: Any) -> Any:
        if method == "DELETE":
            taken.append(path)
            if len(taken) == 2:
                raise NoBroker("the connection broke")
        return send(self, method, path, *more, **named)

    monkeypatch.setattr(BrokerHttp, "send", broken)
    result = run(broker, "cancel", topic, *which, *how)
    assert result.exit_code == 3 and "error: the connection broke" in result.stderr and len(taken) == 2
    assert json.loads(result.stdout)["cancelled"] == 1 if how else result.stdout.endswith("1 taken back\n")


def test_many_are_taken_back_and_looked_at_over_a_few_connections(
    broker: BrokerProcess, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"t-{uuid4().hex[:8]}"
    http.post("/topics", json={"name": name, "num_partitions": 1}).raise_for_status()
    messages = [{"value": f"v{at}", "delay": "1h"} for at in range(1_000)]
    http.post(f"/topics/{name}/messages", json={"messages": messages}).raise_for_status()
    connect, made = many_calls.connection_to, []

    def counted(*asked: Any) -> Any:
        made.append(asked)
        return connect(*asked)

    monkeypatch.setattr(many_calls, "connection_to", counted)
    found = json.loads(done(broker, "list", name, "--limit", "1000", "--json").stdout)
    assert sorted(each["value"] for each in found["messages"]) == sorted(each["value"] for each in messages)
    assert 1 <= len(made) <= many_calls.AT_ONCE
    made.clear()
    assert done(broker, "cancel", name, "--all", "--yes").stdout == "1,000 taken back\n"
    assert 1 <= len(made) <= many_calls.AT_ONCE
    assert waiting(http, name) == []


def test_help_tells_what_is_not_asked_about(broker: BrokerProcess) -> None:
    assert "named are taken back without asking; --all asks first" in done(broker, "cancel", "-h").stdout
