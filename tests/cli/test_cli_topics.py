"""``goqueue topic`` against a broker in a process of its own."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from behaviour.terminal import Terminal
from typer.testing import CliRunner, Result

from goqueue.cli.app import app
from goqueue.cli.connection.broker_http import BrokerHttp
from goqueue.model.errors import Overloaded
from goqueue.testing import BrokerProcess

SCRIPT = str(Path(sys.executable).with_name("goqueue"))


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.url, timeout=30, trust_env=False) as client:
        yield client


@pytest.fixture
def name() -> str:
    return f"orders-{uuid4().hex[:8]}"


def topic(broker: BrokerProcess, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["topic", *arguments], env={"GOQUEUE_SERVER": broker.url})


def done(broker: BrokerProcess, *arguments: str) -> str:
    ran = topic(broker, *arguments)
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def told(broker: BrokerProcess, *arguments: str) -> Any:
    return json.loads(done(broker, *arguments, "--json"))


def row(output: str, first: str) -> list[str]:
    """The cells of the line that begins so."""
    (line,) = [each for each in output.splitlines() if each.split()[:1] == [first]]
    return line.split()


def filled(client: httpx.Client, name: str, *values: str, **settings: Any) -> None:
    client.post("/topics", json={"name": name, "settings": {"partitions": 1, **settings}}).raise_for_status()
    messages = [{"value": value, "partition": 0} for value in values]
    if messages:
        client.post(f"/topics/{name}/messages", json={"messages": messages}).raise_for_status()


def in_a_terminal(broker: BrokerProcess, *arguments: str, types: str) -> tuple[int, str]:
    """The exit status and what a terminal shows when the command is run in one and someone ``types``."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"GOQUEUE_SERVER": broker.url, "TERM": "xterm", "COLUMNS": "120"}
    command = [SCRIPT, "topic", *arguments]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        os.write(ours, types.encode())
        shown = b""
        try:
            while chunk := os.read(ours, 65_536):
                shown += chunk
        except OSError:
            pass  # Linux ends the reading of a closed terminal with an error.
        os.close(ours)
        return process.wait(), shown.decode()


def test_a_topic_is_made_listed_described_and_deleted(broker: BrokerProcess, client: httpx.Client, name: str) -> None:
    made = done(broker, "create", name, "--partitions", "2", "--set", "retention_ms=30d", "--set", "fsync=interval")
    assert made == f"{name} is made, with 2 partitions\n"
    client.post(f"/topics/{name}/messages", json={"messages": [{"value": "a", "partition": 1}]}).raise_for_status()
    listed = done(broker, "list")
    assert listed.splitlines()[0].split() == ["name", "partitions", "offsets", "size", "segments"]
    assert row(listed, name)[1:3] == ["2", "1"]
    (found,) = [each for each in told(broker, "list") if each["name"] == name]
    assert (found["partitions"], found["messages"]) == (2, 1)
    shown = done(broker, "describe", name)
    assert row(shown, "retention_ms") == ["retention_ms", "30d", "set", "for", "this", "topic"]
    assert row(shown, "max_retries") == ["max_retries", "3"]
    assert (row(shown, "0"), row(shown, "1")) == (["0", "0", "0", "0"], ["1", "0", "1", "1"])
    assert told(broker, "describe", name)["settings"]["retention_ms"] == 30 * 86_400_000
    assert done(broker, "delete", name, "--yes") == f"{name} is deleted\n"
    assert topic(broker, "describe", name).exit_code == 4


def test_a_topic_that_is_there_is_refused_or_fine(broker: BrokerProcess, name: str) -> None:
    assert told(broker, "create", name) == {"name": name, "partitions": 3, "created": True}
    again = topic(broker, "create", name)
    assert (again.exit_code, again.stdout) == (1, "")
    assert "hint: Use it, choose another name, or say --if-not-exists.\n" in again.stderr
    assert told(broker, "create", name, "-p", "7", "--if-not-exists")["created"] is False
    assert done(broker, "create", name, "--if-not-exists") == f"{name} was there already, with 3 partitions\n"


def test_settings_are_changed_and_given_back(broker: BrokerProcess, name: str) -> None:
    done(broker, "create", name, "--set", "max_retries=7")
    changed = done(broker, "alter", name, "--set", "retention_ms=1h30m", "--unset", "max_retries")
    assert row(changed, "retention_ms") == ["retention_ms", "7d", "1h30m", "set", "for", "this", "topic"]
    assert row(changed, "max_retries")[:4] == ["max_retries", "7", "3", "as"]
    answer = told(broker, "alter", name, "--set", "retention_ms=unlimited", "--set", "dead_letter_topic=")
    assert answer["overrides"] == ["dead_letter_topic", "retention_ms"]
    assert answer["settings"]["retention_ms"] is None


def test_all_of_them_are_deleted_or_none(broker: BrokerProcess, client: httpx.Client, name: str) -> None:
    for each in (name, f"{name}-2"):
        filled(client, each)
    missing = topic(broker, "delete", name, "nobody", f"{name}-2", "--yes")
    assert (missing.exit_code, missing.stdout) == (4, "")
    assert "'goqueue topic list' shows those" in missing.stderr
    assert told(broker, "delete", name, "nobody", f"{name}-2", name, "--if-exists", "--yes") == {
        "deleted": [name, f"{name}-2"]
    }
    none = topic(broker, "delete", name, "--if-exists", "--yes")
    assert (none.exit_code, none.stdout, none.stderr) == (0, "", "there was nothing to delete\n")


def test_a_topic_is_purged(broker: BrokerProcess, client: httpx.Client, name: str) -> None:
    filled(client, name, *"abc")
    later = {"messages": [{"value": "later", "partition": 0, "delay": "1h"}]}
    client.post(f"/topics/{name}/messages", json=later).raise_for_status()
    assert "0 messages removed" in done(broker, "purge", name, "--before", "1d", "--yes")
    assert told(broker, "purge", name, "--before", "2020-01-01T00:00:00Z", "-y")["removed_messages"] == 0
    ran = topic(broker, "purge", name, "--yes")
    assert row(ran.stdout, "0") == ["0", "0", "4", "3"]
    assert ran.stdout.endswith("3 messages removed\n")
    assert ran.stderr == "1 delayed message will still come\n"
    assert told(broker, "purge", name, "--partition", "0", "--yes")["partitions"] == [
        {"partition": 0, "earliest_before": 4, "earliest": 4, "removed_messages": 0, "delayed_messages": 1}
    ]
    assert client.get(f"/topics/{name}/partitions/0/messages").json()["messages"] == []


def test_whoever_destroys_in_a_terminal_is_asked(broker: BrokerProcess, client: httpx.Client, name: str) -> None:
    filled(client, name, "a", "b")
    status, shown = in_a_terminal(broker, "purge", name, types="n\n")
    assert status == 1
    assert f"Remove up to 2 messages from {name}? That cannot be undone. [y/N]: " in shown
    assert "nothing was changed" in shown
    assert f"the broker is {broker.url} (GOQUEUE_SERVER)" in shown
    status, shown = in_a_terminal(broker, "delete", name, types="n\n")
    assert (status, f"Delete {name} with up to 2 messages? That cannot be undone. [y/N]: " in shown) == (1, True)
    assert len(client.get(f"/topics/{name}/partitions/0/messages").json()["messages"]) == 2
    status, shown = in_a_terminal(broker, "purge", name, types="y\n")
    assert (status, "2 messages removed" in shown) == (0, True)


def test_ctrl_c_at_a_question_interrupts_and_changes_nothing(
    broker: BrokerProcess, client: httpx.Client, name: str
) -> None:
    filled(client, name, "a")
    with Terminal([SCRIPT, "topic", "delete", name], GOQUEUE_SERVER=broker.url) as terminal:
        terminal.shows("[y/N]")
        terminal.interrupt()
        assert terminal.status() == 130
        assert "nothing was changed" in terminal.text
        assert "Aborted" not in terminal.text
    assert client.get(f"/topics/{name}").status_code == 200


def test_the_end_of_input_at_a_question_is_a_no(broker: BrokerProcess, client: httpx.Client, name: str) -> None:
    filled(client, name, "a")
    status, shown = in_a_terminal(broker, "delete", name, types="\x04")
    assert (status, "nothing was changed" in shown, "Aborted" in shown) == (1, True, False)
    assert client.get(f"/topics/{name}").status_code == 200


def test_what_was_deleted_is_told_when_the_next_one_fails(
    broker: BrokerProcess, client: httpx.Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in (name, f"{name}-2"):
        filled(client, each)
    send = BrokerHttp.send

    def refuse_the_second(self: BrokerHttp, method: str, path: Sequence[str], *rest: Any, **named: Any) -> Any:
        if (method, list(path)) == ("DELETE", ["topics", f"{name}-2"]):
            raise Overloaded("too much")
        return send(self, method, path, *rest, **named)

    monkeypatch.setattr(BrokerHttp, "send", refuse_the_second)
    ran = topic(broker, "delete", name, f"{name}-2", "--yes", "--json")
    assert (ran.exit_code, json.loads(ran.stdout)) == (1, {"deleted": [name]})
    assert "too much" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["describe", ""], 2, "a topic has a name; this one is empty"),
        (["alter", "", "--set", "fsync=never"], 2, "a topic has a name; this one is empty"),
        (["create", ""], 2, "a topic has a name; this one is empty"),
        (["delete", "", "--yes"], 2, "a topic has a name; this one is empty"),
        (["delete", "NAME", "", "--yes"], 2, "a topic has a name; this one is empty"),
        (["purge", "", "--yes"], 2, "a topic has a name; this one is empty"),
        (["list", "--server", "nowhere-at-all"], 3, "nor is there a context 'nowhere-at-all'"),
        (["delete", "NAME"], 2, "nobody can be asked here; say --yes"),
        (["purge", "NAME"], 2, "nobody can be asked here; say --yes"),
        (["purge", "NAME", "--partition", "7", "--yes"], 4, "there is no partition 7"),
        (["purge", "NAME", "--before", "yesterday", "--yes"], 2, "'yesterday' is not an instant"),
        (["purge", "nobody", "--yes"], 4, "topic 'nobody' does not exist"),
        (["describe", "nobody"], 4, "hint: 'goqueue topic list' shows those"),
        (["create", "a b"], 2, "hint: Use 1 to 200 ASCII letters"),
        (["create", "__a"], 2, "Choose a name that does not begin with '__'"),
        (["create", "new", "--set", "retention"], 2, "'retention' is no setting; write FIELD=VALUE"),
        (["create", "new", "--set", "max_retries=1", "--set", "max_retries=2"], 2, "is set twice"),
        (["create", "new", "--partitions", "2", "--set", "partitions=3"], 2, "say the same"),
        (["create", "new", "--set", "max_retry=1"], 2, "max_retry: no such setting; did you mean 'max_retries'?"),
        (["alter", "NAME"], 2, "say what to change"),
        (["alter", "NAME", "--set", "partitions=9"], 2, "cannot be changed once the topic exists"),
        (["alter", "NAME", "--unset", "partitions"], 2, "cannot be changed once the topic exists"),
        (["alter", "NAME", "--unset", "max_retry"], 2, "'max_retry': no such setting; did you mean 'max_retries'?"),
        (["alter", "NAME", "--unset", "fsync", "--set", "fsync=never"], 2, "fsync: set and unset at once"),
        (["list", "--server", "http://127.0.0.1:1"], 3, "no broker can be reached"),
    ],
)
def test_what_cannot_be_done_is_a_sentence_and_a_status(
    broker: BrokerProcess, client: httpx.Client, name: str, arguments: list[str], status: int, said: str
) -> None:
    filled(client, name, "a")
    before = client.get(f"/topics/{name}").json()
    ran = topic(broker, *(name if each == "NAME" else each for each in arguments))
    assert (ran.exit_code, ran.stdout) == (status, ""), ran.output
    assert said in ran.stderr
    assert client.get(f"/topics/{name}").json() == before


def test_a_compacted_topic_is_not_purged(broker: BrokerProcess, client: httpx.Client, name: str) -> None:
    filled(client, name, cleanup="compact")
    ran = topic(broker, "purge", name, "--yes")
    assert (ran.exit_code, "set its cleanup to 'delete' before it is purged" in ran.stderr) == (2, True)


def test_an_open_transaction_is_told(broker: BrokerProcess, client: httpx.Client, name: str) -> None:
    filled(client, name, "a")
    producer = client.post("/producers/init", json={}).raise_for_status().json()
    mine = {"producer_id": producer["producer_id"], "epoch": producer["epoch"]}
    begun = client.post("/transactions/begin", json=mine).raise_for_status().json()["transaction_id"]
    body = {**mine, "topic": name, "value": "b", "partition": 0}
    client.post("/transactions/publish", json=body).raise_for_status()
    behind = {"messages": [{"value": "c", "partition": 0}]}
    client.post(f"/topics/{name}/messages", json=behind).raise_for_status()
    assert row(done(broker, "describe", name), "0")[4:] == ["a", "transaction", "is", "open", "from", "1", "on"]
    assert told(broker, "purge", name, "--yes")["removed_messages"] == 1
    client.post(f"/transactions/{begun}/abort", json={}).raise_for_status()
