"""``goqueue trace`` against a broker in a process of its own, in a pipe and in a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from behaviour.http_member import Member, answered, publish, settle
from behaviour.waiting import until
from typer.testing import CliRunner, Result

from goqueue.cli.app import app
from goqueue.testing import BrokerProcess

SCRIPT = str(Path(sys.executable).with_name("goqueue"))
REASON = "declined: \x1b[31mred\x1b[0m " + "and so on " * 12
CLOCK = re.compile(r"^\d\d:\d\d:\d\d\.\d{3}  ")


@pytest.fixture(scope="module")
def client(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.url, timeout=30, trust_env=False) as client:
        yield client


@pytest.fixture(scope="module")
def given_up(client: httpx.Client) -> str:
    """A topic whose one message was nacked, delivered again, rejected and became a dead letter."""
    client.post("/topics", json={"name": "orders", "num_partitions": 1})
    publish(client, "orders", "a", key="c\x07-17")
    member = Member(client, "billing", "orders", client_id="wörker")
    answered(settle(client, "nack", member.receipts(timeout="30s")[0], reason="later", delay="0s"))
    answered(settle(client, "reject", member.receipts(timeout="30s")[0], reason=REASON))
    until(lambda: events(client, "orders", 0)[-1] == "dlq")
    return "orders"


def events(client: httpx.Client, topic: str, offset: int) -> list[str]:
    query: dict[str, Any] = {"topic": topic, "partition": 0, "offset": offset}
    [found] = answered(client.get("/traces/search", params=query))["traces"]
    return [each["event_type"] for each in found["events"]]


def environment(broker: BrokerProcess, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    return kept | {"GOQUEUE_SERVER": broker.url, "TERM": "xterm-256color"} | more


def piped(broker: BrokerProcess, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, "trace", *arguments], capture_output=True, text=True, env=environment(broker, **environ), timeout=60
    )


def asked(broker: BrokerProcess, *arguments: str) -> Result:
    """The same without a process of its own, which takes its time to start."""
    return CliRunner().invoke(app, ["trace", *arguments], env={"GOQUEUE_SERVER": broker.url})


def in_a_terminal(broker: BrokerProcess, *arguments: str, **environ: str) -> str:
    ours, theirs = pty.openpty()
    command = [SCRIPT, "trace", *arguments]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(broker, **environ)):
        os.close(theirs)
        output = b""
        try:
            while chunk := os.read(ours, 65_536):
                output += chunk
        except OSError:
            pass  # Linux ends the reading of a closed terminal with an error.
        os.close(ours)
    return output.decode()


def words(timeline: list[str]) -> list[str]:
    """What happened, without when."""
    return [re.sub(r"-[0-9a-f]{16}\b", "-1", line.split("| ")[1]) for line in timeline if CLOCK.match(line)]


def test_a_message_is_told_of_plainly_in_a_pipe(broker: BrokerProcess, given_up: str) -> None:
    ran = piped(broker, given_up, "0", "0")
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = ran.stdout.splitlines()
    assert lines[0] == r"message orders/0/0  key c\x07-17"
    assert lines[2].startswith("status  dead-lettered after ")
    shown = REASON.strip().replace("\x1b", r"\x1b")
    told = words(lines)
    assert [re.sub(r", until \d\d:\d\d:\d\d$", "", line).rstrip() for line in told] == [
        "published",
        "delivered to wörker-1 of group billing, attempt 1",
        "nacked by wörker-1 of group billing: later",
        "redelivered to wörker-1 of group billing, attempt 2",
        f"rejected by wörker-1 of group billing: {shown}",
        f"dead-lettered to orders.dlq/0/0 for group billing: {shown}",
    ]
    assert lines[-1].rstrip() == f"now     billing  dead-lettered: {shown}"
    assert "\x1b" not in ran.stdout


def test_a_pipe_without_such_letters_gets_them_written_out(broker: BrokerProcess, given_up: str) -> None:
    ran = piped(broker, given_up, "0", "0", PYTHONIOENCODING="ascii")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert r"delivered to w\xf6rker-" in ran.stdout


def test_the_place_the_trace_id_and_the_dead_letter_tell_the_same(broker: BrokerProcess, given_up: str) -> None:
    by_place = asked(broker, "orders/0/0", "--json")
    found = json.loads(by_place.stdout)
    assert found["events"][-1]["event_type"] == "dlq"
    for arguments in ([found["trace_id"].upper()], ["orders.dlq", "0", "0"]):
        assert json.loads(asked(broker, *arguments, "--json").stdout) == found


@pytest.mark.parametrize("columns", [80, 100])
def test_in_a_terminal_it_has_colours_and_fits(broker: BrokerProcess, given_up: str, columns: int) -> None:
    output = in_a_terminal(broker, given_up, "0", "0", COLUMNS=str(columns))
    assert "\x1b[1;31mdead-lettered after " in output
    assert "\x1b[33mnacked by wörker-" in output
    lines = re.sub(r"\x1b\[[0-9;]*m", "", output).splitlines()
    assert "\x1b" not in "".join(lines)
    assert max(map(len, lines)) <= columns
    assert [line[33] for line in lines if CLOCK.match(line)] == ["┌", "├", "├", "├", "├", "└"]


def test_in_a_terminal_colours_can_be_off(broker: BrokerProcess, given_up: str) -> None:
    output = in_a_terminal(broker, given_up, "0", "0", NO_COLOR="1")
    assert "├ nacked by wörker-" in re.sub(r"\x1b\[[0-9;]*m", "", output)
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", output)


def test_the_latest_are_listed_and_can_be_chosen_from(
    broker: BrokerProcess, client: httpx.Client, given_up: str
) -> None:
    client.post("/topics", json={"name": "mails", "num_partitions": 1})
    publish(client, "mails", "a", "b", key="ada")
    listed = asked(broker, "--limit", "3").stdout.splitlines()
    assert [line.split()[1] for line in listed] == ["message", "mails/0/1", "mails/0/0", "orders/0/0"]
    for arguments in (["--status", "error"], ["--group", "billing"], ["--topic", "orders", "--partition", "0"]):
        _, line = asked(broker, *arguments, "--since", "1h").stdout.splitlines()
        assert line.split()[1:4] == ["orders/0/0", r"c\x07-17", "error"]
    _, *lines = asked(broker, "--key", "ada").stdout.splitlines()
    assert [line.split()[1] for line in lines] == ["mails/0/1", "mails/0/0"]
    nothing = asked(broker, "--topic", "mails", "--slower-than", "1h")
    assert (nothing.exit_code, nothing.stdout) == (0, "")
    assert nothing.stderr == "no message that is traced fits\n"
    assert "\x1b[31merror" in in_a_terminal(broker)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["orders", "0", "999"], 4, "nothing is known of offset 999 of partition 0 of 'orders'"),
        (["0123456789abcdef0123456789abcdef"], 4, "no message belongs to trace 0123456789abcdef0123456789abcdef"),
        (["order", "0", "0"], 4, "topic 'order' does not exist"),
        (["orders", "7", "0"], 4, "partition 7"),
        (["0" * 32], 2, "is no trace id"),
        (["orders", "0", "99999999999999999999"], 2, "the offset is '99999999999999999999'"),
        (["orders", "0", "9999999999999999999"], 4, "nothing is known of offset"),
        (["--partition", "0"], 2, "a partition is asked for, but no topic"),
        (["--from", "2030-01-02T00:00:00Z", "--to", "2030-01-01T00:00:00Z"], 2, "start lies after end"),
        (["--server", "http://127.0.0.1:1"], 3, "no broker can be reached at http://127.0.0.1:1"),
    ],
)
def test_what_cannot_be_told_is_a_sentence_and_a_status(
    broker: BrokerProcess, given_up: str, arguments: list[str], status: int, said: str
) -> None:
    ran = asked(broker, *arguments)
    assert (ran.exit_code, ran.stdout) == (status, ""), ran.stderr
    assert said in ran.stderr
    assert isinstance(ran.exception, SystemExit)


def test_following_goes_on_until_the_message_is_settled(broker: BrokerProcess, client: httpx.Client) -> None:
    client.post("/topics", json={"name": "followed", "num_partitions": 1})
    publish(client, "followed", "a")
    # It is silent while the command starts.
    member = Member(client, "followers", "followed", session_timeout="10m")
    command = [SCRIPT, "trace", "followed", "0", "0", "-f"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(broker)) as following:
        assert following.stdout is not None
        lines: list[str] = []
        reader = threading.Thread(target=lambda: lines.extend(following.stdout or ()))
        reader.start()
        until(lambda: any("published" in line for line in lines), within_s=60)
        [receipt] = member.receipts(timeout="30s")
        until(lambda: any("delivered to worker-" in line for line in lines))
        assert following.poll() is None
        answered(settle(client, "ack", receipt))
        assert following.wait(30) == 0
        reader.join()
    told = [re.sub(r", until .*", "", line) for line in words([line.rstrip("\n") for line in lines])]
    assert told == [
        "published",
        "delivered to worker-1 of group followers, attempt 1",
        "acked by worker-1 of group followers",
    ]
    assert lines[-2].startswith("status  completed in ")
    assert lines[-1] == "now     followers  done\n"
