"""``goqueue group`` against a broker in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from typer.testing import CliRunner, Result

from goqueue.cli.app import app
from goqueue.cli.commands.group import group_reset, lag_watch
from goqueue.cli.connection.broker_http import NoBroker
from goqueue.model.errors import GroupNotFound, ShuttingDown
from goqueue.testing import BrokerProcess

SCRIPT = str(Path(sys.executable).with_name("goqueue"))


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.url, timeout=30, trust_env=False) as client:
        yield client


class Worked:
    """A topic of two partitions with ten messages, and a group with one member that has two in flight."""

    def __init__(self, client: httpx.Client) -> None:
        serial = uuid4().hex[:8]
        self.topic, self.group, self.client = f"t-{serial}", f"g-{serial}", client
        client.post("/topics", json={"name": self.topic, "num_partitions": 2}).raise_for_status()
        messages = [{"value": f"{at}", "partition": 0 if at < 7 else 1} for at in range(10)]
        client.post(f"/topics/{self.topic}/messages", json={"messages": messages}).raise_for_status()
        joining = {"client_id": "desk", "topics": [self.topic], "kind": "shared", "settings": {"max_retries": 9}}
        # It says nothing any more, and stays a member for as long as a test may take.
        joining["session_timeout"] = "10m"
        joined = client.post(f"/groups/{self.group}/join", json=joining).raise_for_status().json()
        self.member = joined["member_id"]
        query = {"member_id": self.member, "max_messages": 2}
        client.get(f"/groups/{self.group}/poll", params=query).raise_for_status()

    def leave(self) -> None:
        left = self.client.post(f"/groups/{self.group}/leave", json={"member_id": self.member})
        left.raise_for_status()

    def committed(self) -> dict[str, int]:
        found: dict[str, int] = self.client.get(f"/groups/{self.group}/offsets").json()["offsets"][self.topic]
        return found


@pytest.fixture
def worked(client: httpx.Client) -> Worked:
    return Worked(client)


def group(broker: BrokerProcess, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["group", *arguments], env={"GOQUEUE_SERVER": broker.url})


def done(broker: BrokerProcess, *arguments: str) -> str:
    ran = group(broker, *arguments)
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def told(broker: BrokerProcess, *arguments: str) -> Any:
    return json.loads(done(broker, *arguments, "--json"))


def row(output: str, first: str) -> list[str]:
    (line,) = [each for each in output.splitlines() if each.split()[:1] == [first]]
    return line.split()


def test_groups_are_listed(broker: BrokerProcess, worked: Worked) -> None:
    listed = done(broker, "list")
    assert listed.splitlines()[0].split() == ["name", "kind", "mode", "state", "members", "in", "flight", "lag"]
    assert row(listed, worked.group) == [worked.group, "shared", "queue", "stable", "1", "2", "10"]
    worked.leave()
    (found,) = [each for each in told(broker, "list") if each["name"] == worked.group]
    assert (found["state"], found["members"], found["lag"]) == ("empty", 0, 10)


def test_a_group_is_described(broker: BrokerProcess, worked: Worked) -> None:
    shown = done(broker, "describe", worked.group)
    assert row(shown, "max_retries") == ["max_retries", "9", "set", "for", "this", "group"]
    assert row(shown, "visibility_timeout_ms") == ["visibility_timeout_ms", "topic"]
    assert row(shown, worked.member) == [worked.member, "desk", "2", f"{worked.topic}-0,", f"{worked.topic}-1"]
    assert row(shown, "all") == ["all", "10", "2", "0"]
    assert told(broker, "describe", worked.group)["group_id"] == worked.group


def test_the_lag_is_shown_and_can_be_asked_for(broker: BrokerProcess, worked: Worked) -> None:
    shown = done(broker, "lag", worked.group)
    lines = [line.split() for line in shown.splitlines() if line.startswith(worked.topic)]
    assert [(line[1], line[3], line[4]) for line in lines] == [("0", "7", "7"), ("1", "3", "3")]
    answer = told(broker, "lag", worked.group, "--topic", worked.topic)
    assert (answer["total_lag"], answer["total_in_flight"], len(answer["partitions"])) == (10, 2, 2)
    assert group(broker, "lag", worked.group, "--at-most", "9").exit_code == 5
    assert group(broker, "lag", worked.group, "--at-most", "10").exit_code == 0


def test_what_a_member_gave_back_is_named_so_and_not_as_a_failure(broker: BrokerProcess, worked: Worked) -> None:
    worked.leave()
    shown = done(broker, "lag", worked.group)
    assert shown.splitlines()[0].endswith("  lag  in flight  given back")
    assert row(shown, "all") == ["all", "10", "0", "2"]
    assert told(broker, "lag", worked.group)["total_waiting"] == 2


def test_the_lag_is_watched_until_it_is_interrupted(broker: BrokerProcess, worked: Worked) -> None:
    environment = os.environ | {"GOQUEUE_SERVER": broker.url}
    command = [SCRIPT, "group", "lag", worked.group, "--watch", "--every", "100ms", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None and process.stderr is not None
        first, second = (json.loads(process.stdout.readline()) for _ in range(2))
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr.read() == b""
    assert (first["lag"], first["change_per_second"], second["change_per_second"]) == (10, None, 0.0)


def test_a_group_is_set_back_and_forward(broker: BrokerProcess, worked: Worked) -> None:
    reset = ["reset", worked.group, worked.topic]
    dry = group(broker, *reset, "--to", "latest", "--dry-run")
    assert (dry.exit_code, "nothing was changed" in dry.stderr) == (0, True)
    assert (row(dry.stdout, "0"), row(dry.stdout, "1")) == (
        ["0", "0", "7", "7", "forward"],
        ["1", "0", "3", "3", "forward"],
    )
    assert worked.committed() == {"0": 0, "1": 0}
    assert row(done(broker, *reset, "--to", "latest", "--yes"), "0") == ["0", "0", "7", "7", "forward"]
    assert worked.committed() == {"0": 7, "1": 3}
    answer = told(broker, *reset, "--to", "2", "--partition", "0", "--yes")
    assert answer["partitions"] == [{"partition": 0, "from": 7, "to": 2}]
    assert worked.committed() == {"0": 2, "1": 3}
    assert row(done(broker, *reset, "--to", "earliest", "--yes"), "1") == ["1", "3", "0", "3", "back"]
    assert worked.committed() == {"0": 0, "1": 0}


def test_a_group_is_set_to_an_instant(broker: BrokerProcess, worked: Worked) -> None:
    until = time.time() + 60
    while (now := datetime.now(UTC)) == datetime.now(UTC):
        assert time.time() < until
    late = {"messages": [{"value": "late", "partition": 0}]}
    worked.client.post(f"/topics/{worked.topic}/messages", json=late).raise_for_status()
    reset = ["reset", worked.group, worked.topic]
    for when, at in ((now.isoformat(), 7), ("1h", 0)):
        dry = told(broker, *reset, "--to", when, "--dry-run")["partitions"]
        assert (dry[0]["to"], told(broker, *reset, "--to", when, "--yes")["partitions"]) == (at, [
            {**dry[0], "to": at}, dry[1],
        ])  # fmt: skip
        assert worked.committed()["0"] == at


def test_a_topic_that_is_new_to_a_group_is_told_so(broker: BrokerProcess, worked: Worked, client: httpx.Client) -> None:
    other = Worked(client)
    assert row(done(broker, "reset", worked.group, other.topic, "--to", "0", "--dry-run"), "0")[1:] == [
        "0", "new", "to", "the", "group",
    ]  # fmt: skip


def test_groups_without_members_are_deleted(broker: BrokerProcess, worked: Worked) -> None:
    used = group(broker, "delete", worked.group, "--yes")
    assert (used.exit_code, "they must leave first" in used.stderr) == (1, True)
    assert "hint: Stop its members first: 'goqueue group describe NAME' shows them." in used.stderr
    with httpx.Client(base_url=broker.url, timeout=30, trust_env=False) as client:
        other = f"{worked.group}-other"
        client.put(f"/groups/{other}", json={}).raise_for_status()
        both = group(broker, "delete", other, worked.group, "--yes", "--json")
        assert (both.exit_code, both.stdout) == (1, "")
        assert client.get(f"/groups/{other}").status_code == 200
    worked.leave()
    missing = group(broker, "delete", worked.group, "nobody", "--yes")
    assert (missing.exit_code, missing.stdout) == (4, "")
    assert done(broker, "delete", worked.group, "nobody", "--if-exists", "--yes") == f"{worked.group} is deleted\n"
    none = group(broker, "delete", worked.group, "--if-exists", "--yes")
    assert (none.exit_code, none.stdout, none.stderr) == (0, "", "there was nothing to delete\n")


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["describe", "nobody"], 4, "hint: 'goqueue group list' shows those"),
        (["lag", "nobody"], 4, "hint: 'goqueue group list' shows those"),
        (["lag", "GROUP", "--topic", "nothing"], 4, "topic 'nothing' does not exist"),
        (["lag", "GROUP", "--watch", "--every", "1ms"], 2, "'1ms' is out of range"),
        (["lag", "GROUP", "--watch", "--at-most", "1"], 2, "use one of them"),
        (["describe", ""], 2, "a group has a name; this one is empty"),
        (["lag", ""], 2, "a group has a name; this one is empty"),
        (["lag", "GROUP", "--topic", ""], 2, "a topic has a name; this one is empty"),
        (["delete", "", "--yes"], 2, "a group has a name; this one is empty"),
        (["reset", "GROUP", "", "--to", "0", "--yes"], 2, "a topic has a name; this one is empty"),
        (["reset", "GROUP", "TOPIC", "--to", "never", "--yes"], 2, "'never' is neither earliest nor latest"),
        (["reset", "GROUP", "TOPIC", "--to", "2026-99-99", "--yes"], 2, "is not an instant"),
        (["reset", "GROUP", "TOPIC", "--to", "8", "--yes"], 2, "partition 0: offset 8 is not there; there are 0 to 7"),
        (["reset", "GROUP", "TOPIC", "--to", "8", "--yes"], 2, "hint: 'goqueue topic describe NAME' shows where each"),
        (["reset", "GROUP", "TOPIC", "--to", "0", "--partition", "2", "--yes"], 4, "there is no 2"),
        (["reset", "GROUP", "nothing", "--to", "0", "--yes"], 4, "hint: 'goqueue topic list' shows those"),
        (["reset", "nobody", "TOPIC", "--to", "0", "--yes"], 4, "group 'nobody' does not exist"),
        (["list", "--server", "http://127.0.0.1:1"], 3, "no broker can be reached"),
    ],
)
def test_what_cannot_be_done_is_a_sentence_and_a_status(
    broker: BrokerProcess, worked: Worked, arguments: list[str], status: int, said: str
) -> None:
    given = {"GROUP": worked.group, "TOPIC": worked.topic}
    ran = group(broker, *(given.get(each, each) for each in arguments))
    assert (ran.exit_code, ran.stdout) == (status, ""), ran.output
    assert said in ran.stderr
    assert worked.committed() == {"0": 0, "1": 0}


def test_a_reset_asks_with_what_it_would_change(broker: BrokerProcess, worked: Worked) -> None:
    ran = group(broker, "reset", worked.group, worked.topic, "--to", "latest")
    assert ran.exit_code == 2
    assert row(ran.stdout, "0") == ["0", "0", "7", "7", "forward"]
    assert worked.committed() == {"0": 0, "1": 0}


def test_where_to_go_is_read_as_it_is_written() -> None:
    assert group_reset.parse_target("latest") == {"to": "latest"}
    assert group_reset.parse_target("17") == {"offset": 17}
    assert group_reset.parse_target("2026-01-31T12:00:00Z") == {"instant": "2026-01-31T12:00:00Z"}
    ago = datetime.fromisoformat(group_reset.parse_target("1h30m")["instant"])
    assert 5_390 < (datetime.now(UTC) - ago).total_seconds() < 5_500


def test_deleting_a_group_without_members_asks_first(broker: BrokerProcess, worked: Worked) -> None:
    worked.leave()
    ran = group(broker, "delete", worked.group)
    assert (ran.exit_code, "nobody can be asked here; say --yes" in ran.stderr) == (2, True)


def test_the_lag_on_a_topic_that_a_group_does_not_read_is_no_lag(broker: BrokerProcess, worked: Worked) -> None:
    other = f"{worked.topic}-other"
    with httpx.Client(base_url=broker.url, timeout=30, trust_env=False) as client:
        client.post("/topics", json={"name": other}).raise_for_status()
    ran = group(broker, "lag", worked.group, "--topic", other, "--at-most", "0")
    assert (ran.exit_code, ran.stdout) == (4, "")
    assert f"group {worked.group} does not read topic {other}" in ran.stderr


def test_a_watch_waits_for_a_broker_that_goes_away(
    capsys: pytest.CaptureFixture[str],
) -> None:
    looks: Iterator[int | Exception] = iter(
        [10, NoBroker("no broker can be reached"), ShuttingDown("it stops"), 4, GroupNotFound("it is gone")]
    )

    def look() -> list[dict[str, Any]]:
        found = next(looks)
        if isinstance(found, Exception):
            raise found
        return [{"lag": found, "in_flight": 0, "waiting": 0}]

    with pytest.raises(GroupNotFound):
        lag_watch.watch(look, 0, as_json=True)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line.get("lag") for line in lines] == [10, None, None, 4]
    assert [line.get("away") for line in lines] == [None, "no broker can be reached", "it stops", None]
    looks = iter([7, NoBroker("no broker can be reached"), GroupNotFound("it is gone")])
    with pytest.raises(GroupNotFound):
        lag_watch.watch(look, 0, as_json=False)
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 2 and "in flight     given back    change/s" in said.out
    assert "trying again: no broker can be reached" in said.err


def test_a_watch_of_a_broker_that_never_was_ends() -> None:
    def look() -> list[dict[str, Any]]:
        raise NoBroker("no broker can be reached")

    with pytest.raises(NoBroker):
        lag_watch.watch(look, 0, as_json=True)
