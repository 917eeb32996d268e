"""``goqueue txn`` against a broker in a process of its own."""

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
from goqueue.testing import BrokerProcess


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.url, timeout=30) as made:
        yield made


def run(broker: BrokerProcess, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["txn", *arguments], env={"GOQUEUE_SERVER": broker.url})


def begun(client: httpx.Client, name: str, topic: str, **more: str) -> str:
    """A transaction that has written one message."""
    client.post("/topics", json={"name": topic}).raise_for_status()
    producer: dict[str, Any] = client.post("/producers/init", json={"transactional_id": name}).raise_for_status().json()
    mine = {"producer_id": producer["producer_id"], "epoch": producer["epoch"]}
    transaction = client.post("/transactions/begin", json={**mine, **more}).raise_for_status().json()["transaction_id"]
    body = {**mine, "topic": topic, "value": "v", "partition": 0}
    client.post("/transactions/publish", json=body).raise_for_status()
    return str(transaction)


def test_what_hangs_is_listed_looked_at_and_aborted(broker: BrokerProcess, client: httpx.Client) -> None:
    name, topic = f"app-{uuid4().hex[:8]}", f"t-{uuid4().hex[:8]}"
    transaction = begun(client, name, topic)
    listed = run(broker, "list")
    titles = listed.output.splitlines()[0]
    assert listed.exit_code == 0
    assert titles.split() == ["id", "name", "state", "age", "ends", "in", "messages", "topics"]
    (line,) = [each for each in listed.output.splitlines() if each.startswith(transaction)]
    cells = [each for each in re.split(r"  +", line) if each]
    assert (cells[1], cells[2], cells[5:]) == (name, "ongoing", ["1", topic])
    # Of its timeout of a minute something is left.
    assert cells[4] == "1m00s" or re.fullmatch(r"[0-9.]+ s", cells[4])
    shown = run(broker, "show", transaction).output
    assert "aborted at the latest: " in shown and "(in " in shown and " ago)" in shown
    assert not re.search("[0-9]{9}Z", shown + listed.output), "nobody reads nanoseconds"
    assert [topic, "0", "0", "1"] in [line.split() for line in shown.splitlines()]
    assert "messages: 1" in shown
    ended = run(broker, "abort", transaction, "--reason", "it hangs")
    assert (ended.exit_code, ended.output) == (0, f"{transaction} is aborted\n")
    assert transaction not in run(broker, "list").output
    after = json.loads(run(broker, "show", transaction, "--json").output)
    assert (after["state"], after["reason"]) == ("completed_abort", "an operator asked for it: it hangs")
    counted = json.loads(run(broker, "stats", "--json").output)
    assert counted["aborted_total"] >= 1
    words = [line.split("  ")[0] for line in run(broker, "stats").output.splitlines()]
    assert words[1:3] == ["open", "of these prepared"]


def test_a_topic_shows_only_what_has_written_to_it(broker: BrokerProcess, client: httpx.Client) -> None:
    one, other = (f"t-{uuid4().hex[:8]}" for _ in range(2))
    wanted, _ = begun(client, "one", one), begun(client, "other", other)
    lines = run(broker, "list", "--topic", one).output.splitlines()
    assert [line.split()[0] for line in lines] == ["id", wanted]
    found = json.loads(run(broker, "list", "--topic", one, "--json").output)
    assert (found["total"], found["transactions"][0]["topics"]) == (1, [one])
    assert run(broker, "list", "--topic", "none").output == "no transaction is open that has written to 'none'\n"


def test_what_has_no_name_is_known_by_the_key_that_it_was_begun_for(
    broker: BrokerProcess, client: httpx.Client
) -> None:
    topic = f"t-{uuid4().hex[:8]}"
    transaction = begun(client, "", topic, for_key="spark/q/7")
    (line,) = [each for each in run(broker, "list").output.splitlines() if each.startswith(transaction)]
    assert re.search("  for spark/q/7 +ongoing  ", line)
    assert "to be committed under: spark/q/7\n" in run(broker, "show", transaction).output
    run(broker, "abort", transaction)


def test_a_list_fits_a_terminal(broker: BrokerProcess, client: httpx.Client) -> None:
    topic = "t" * 80 + uuid4().hex[:8]
    transaction = begun(client, "n" * 200, topic)
    lines = run(broker, "list", "--topic", topic).output.splitlines()
    assert len(lines) == 2 and lines[1].startswith(transaction)
    assert all(len(line) <= 100 for line in lines)
    assert "nnn..." in lines[1] and lines[1].endswith("ttt...")


@pytest.mark.parametrize(
    "text", ["", "stats", "keys", "a/b", "9-0-nothing", "1-0-f40b0548fafd4da8x", "9-0-F40B0548FAFD4DA8"]
)
@pytest.mark.parametrize("command", ["show", "abort"])
def test_what_is_no_id_is_said_before_anyone_is_asked(command: str, text: str) -> None:
    result = CliRunner().invoke(app, ["txn", command, text], env={"GOQUEUE_SERVER": "http://127.0.0.1:1"})
    assert result.exit_code == 2
    assert f"error: {text!r} is not the id of a transaction" in result.output
    assert "4514783002117349-0-f40b0548fafd4da8" in result.output and "goqueue txn list" in result.output


def test_a_transaction_that_is_not_there_is_no_traceback(broker: BrokerProcess) -> None:
    for command in ("show", "abort"):
        result = run(broker, command, "9-0-f40b0548fafd4da8")
        assert result.exit_code == 4
        assert "error: there is no transaction" in result.output
        assert "hint: See 'goqueue txn list'" in result.output


def test_none_is_said_in_words(broker: BrokerProcess, client: httpx.Client) -> None:
    for each in client.get("/transactions").json()["transactions"]:
        client.post(f"/transactions/{each['transaction_id']}/abort").raise_for_status()
    result = run(broker, "list")
    assert (result.exit_code, result.output) == (0, "no transaction is open\n")
