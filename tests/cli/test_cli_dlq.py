"""``goqueue dlq`` against a broker in a process of its own."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from behaviour.waiting import until
from typer.testing import CliRunner, Result

from goqueue.cli.app import app
from goqueue.cli.commands.dlq import dlq
from goqueue.cli.connection.broker_http import BrokerHttp, NoBroker
from goqueue.testing import BrokerProcess

SCRIPT = str(Path(sys.executable).with_name("goqueue"))


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.url, timeout=30) as made:
        yield made


def run(broker: BrokerProcess, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["dlq", *arguments], env={"GOQUEUE_SERVER": broker.url})


def done(broker: BrokerProcess, *arguments: str) -> Result:
    result = run(broker, *arguments)
    assert result.exit_code == 0, result.output
    return result


def dead(http: httpx.Client, reasons: list[str], group: str = "billing", **settings: str) -> str:
    """A topic with a dead letter for each reason, when they are there."""
    topic = f"t-{uuid4().hex[:8]}"
    http.post("/topics", json={"name": topic, "num_partitions": 1, "settings": settings}).raise_for_status()
    messages = [
        {"value": f'{{"order":{at}}}', "key": f"c{at}", "headers": {"shop": ["north", "\x1b[1m"]}}
        for at in range(len(reasons))
    ]
    http.post(f"/topics/{topic}/messages", json={"messages": messages}).raise_for_status()
    joining = {"client_id": "desk", "topics": [topic], "kind": "shared"}
    member = http.post(f"/groups/{group}/join", json=joining).raise_for_status().json()["member_id"]
    left = list(reasons)
    while left:
        parameters = {"member_id": member, "max_messages": 1000, "timeout": "5s"}
        for message in http.get(f"/groups/{group}/poll", params=parameters).raise_for_status().json()["messages"]:
            body = {"receipt_handle": message["receipt_handle"], "reason": left.pop(0)}
            http.post("/messages/reject", json=body).raise_for_status()
    http.post(f"/groups/{group}/leave", json={"member_id": member}).raise_for_status()
    until(lambda: len(letters(http, topic)) == len(reasons))
    return topic


def letters(http: httpx.Client, topic: str) -> list[Any]:
    answer = http.get(f"/topics/{topic}/dead-letters", params={"limit": 10_000})
    return list(answer.json()["messages"]) if answer.status_code == 200 else []


def test_letters_are_listed_and_chosen(broker: BrokerProcess, http: httpx.Client) -> None:
    topic = dead(http, ["no such city", "no such city", "too heavy"])
    lines = done(broker, "list", topic).stdout.splitlines()
    titles = ["partition", "offset", "died", "was", "group", "deliveries", "error", "key", "sent back"]
    assert re.split(r"  +", lines[0]) == titles
    assert re.fullmatch(rf"0 +0 +[0-9:]{{8}} +{topic}/0/0 +billing +1 +no such city +c0", lines[1])
    assert len(lines) == 4

    def offsets(*arguments: str) -> list[int]:
        found = json.loads(done(broker, "list", topic, *arguments, "--json").stdout)
        assert found["dlq_topic"] == f"{topic}.dlq"
        return [each["offset"] for each in found["messages"]]

    assert offsets("--error", "heavy") == [2]
    assert offsets("--group", "nobody") == []
    assert offsets("--since", "1h") == [0, 1, 2] and offsets("--until", "1h") == []
    assert offsets("--since", "2099-01-01T00:00:00Z") == []
    assert offsets("--limit", "2") == [0, 1]
    assert done(broker, "list", topic, "--limit", "3").stderr == ""
    assert json.loads(done(broker, "list", topic, "--limit", "3", "--json").stdout)["more"] is False
    assert json.loads(done(broker, "list", topic, "--limit", "2", "--json").stdout)["more"] is True
    assert done(broker, "list", topic, "--limit", "2").stderr == "there are more; --limit shows more of them\n"
    assert done(broker, "list", topic, "--error", "cold").stderr == "no dead letter fits\n"


def test_without_a_topic_it_tells_where_there_are_any_and_why(broker: BrokerProcess, http: httpx.Client) -> None:
    bin_name = f"bin-{uuid4().hex[:8]}"
    topic, other = dead(http, ["slow"] * 3 + ["odd"]), dead(http, ["odd"], "audit", dead_letter_topic=bin_name)
    shown = done(broker, "list").stdout.splitlines()
    assert re.split(r"  +", shown[0]) == ["topic", "group", "error", "dead letters", "sent back"]
    rows = [re.split(r"  +", line) for line in shown[1:]]
    assert [topic, "billing", "slow", "3", "0"] in rows and [topic, "billing", "odd", "1", "0"] in rows
    assert [other, "audit", "odd", "1", "0"] in rows
    found = json.loads(done(broker, "list", "--group", "audit", "--json").stdout)
    assert [(each["topic"], each["dlq_topic"]) for each in found["dead_letters"]] == [(other, bin_name)]
    assert found["complete"]
    assert re.search(r"\d+ more kinds; --limit", done(broker, "list", "--limit", "1").stderr)


def test_one_letter_is_shown_whole(broker: BrokerProcess, http: httpx.Client) -> None:
    topic = dead(http, ["no such city"])
    shown = done(broker, "show", topic, "0", "0").stdout
    assert shown.startswith(f"{topic}.dlq/0/0\n  error: no such city\n  group: billing\n  deliveries: 1\n  died: ")
    assert f"  was: {topic}/0/0\n" in shown and '  | {\n  |   "order": 0\n  | }\n' in shown
    assert "  header shop: north\n  header shop: \\x1b[1m\n" in shown and "\x1b" not in shown
    assert shown.endswith(f"its story: goqueue trace {topic} 0 0\n")
    # What it says is of use.
    story = CliRunner().invoke(app, ["trace", topic, "0", "0"], env={"GOQUEUE_SERVER": broker.url})
    assert story.exit_code == 0 and "no such city" in story.stdout
    whole = json.loads(done(broker, "show", f"{topic}.dlq", "0", "0", "--json").stdout)
    assert (whole["topic"], whole["origin_offset"], whole["key"]) == (topic, 0, "c0")
    for place in (["0", "7"], ["5", "0"]):
        missing = run(broker, "show", topic, *place)
        assert missing.exit_code == 4 and "there is no dead letter" in missing.stderr
        assert "goqueue dlq list" in missing.stderr


def test_a_topic_that_never_had_any_has_none(broker: BrokerProcess, http: httpx.Client) -> None:
    topic = f"t-{uuid4().hex[:8]}"
    http.post("/topics", json={"name": topic}).raise_for_status()
    assert done(broker, "list", topic).stderr == "no dead letters\n"
    assert done(broker, "redrive", topic).stdout == "0 sent back\n"
    for command in ("list", "redrive"):
        missing = run(broker, command, "nowhere")
        assert missing.exit_code == 4 and "hint: 'goqueue topic list'" in missing.stderr
    gone = run(broker, "show", topic, "0", "0")
    assert gone.exit_code == 4 and "there is no dead letter" in gone.stderr


def test_they_go_back_once_and_only_those_that_are_meant(broker: BrokerProcess, http: httpx.Client) -> None:
    topic = dead(http, ["slow", "slow", "odd", "odd"])
    would = done(broker, "redrive", topic, "--error", "slow", "--dry-run").stdout.splitlines()
    assert re.split(r"  +", would[1]) == [f"would go back to {topic}", "2"]
    assert not any(each["redriven"] for each in letters(http, topic))
    assert json.loads(done(broker, "redrive", topic, "--dry-run", "--json").stdout)["matched"] == 4
    one = json.loads(done(broker, "redrive", topic, "--message", "0:1", "--yes", "--json").stdout)
    assert (one["matched"], one["redriven"], one["by_topic"]) == (1, 1, {topic: 1})
    assert [each["redriven"] for each in letters(http, topic)] == [False, True, False, False]
    assert done(broker, "redrive", topic, "--error", "slow", "--yes").stdout == "1 sent back, 1 were before\n"
    assert done(broker, "redrive", topic, "--rate", "1000", "--yes").stdout == "2 sent back, 2 were before\n"
    # Nothing is left to ask about.
    assert done(broker, "redrive", topic).stdout == "0 sent back, 4 were before\n"
    assert "  yes" in done(broker, "list", topic).stdout


def test_they_may_wait_before_they_are_seen_again(broker: BrokerProcess, http: httpx.Client) -> None:
    topic = dead(http, ["slow"])
    done(broker, "redrive", topic, "--delay", "1h", "--yes")
    assert http.get(f"/topics/{topic}/delayed").json()["total"] == 1


def test_nothing_is_sent_where_nobody_can_be_asked(broker: BrokerProcess, http: httpx.Client) -> None:
    topic = dead(http, ["slow"])
    refused = run(broker, "redrive", topic)
    assert refused.exit_code == 2 and "--yes" in refused.stderr
    assert not letters(http, topic)[0]["redriven"]


@pytest.mark.parametrize(("typed", "status", "is_sent"), [("n\n", 1, False), ("y\n", 0, True)])
def test_a_person_is_asked_with_the_number(
    broker: BrokerProcess, http: httpx.Client, typed: str, status: int, is_sent: bool
) -> None:
    topic = dead(http, ["slow", "slow"])
    ours, theirs = pty.openpty()
    environment = {**os.environ, "GOQUEUE_SERVER": broker.url, "TERM": "xterm-256color"}
    command = [SCRIPT, "dlq", "redrive", topic]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as running:
        os.close(theirs)
        os.write(ours, typed.encode())
        seen = b""
        try:
            while chunk := os.read(ours, 65_536):
                seen += chunk
        except OSError:
            pass  # Linux ends the reading of a closed terminal with an error.
        os.close(ours)
    assert running.returncode == status
    assert f"Send 2 dead letters back to {topic} (2)?" in seen.decode()
    assert ("2 sent back" if is_sent else "nothing was changed") in seen.decode()
    assert [each["redriven"] for each in letters(http, topic)] == [is_sent, is_sent]


def test_it_can_be_stopped_between_pages_and_goes_on_where_it_was(broker: BrokerProcess, http: httpx.Client) -> None:
    topic = dead(http, ["slow"] * 30)
    # A page has what a second allows: one letter.
    command = [SCRIPT, "dlq", "redrive", topic, "--rate", "1", "--yes", "--server", broker.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        while not any(each["redriven"] for each in letters(http, topic)):
            assert running.poll() is None
        running.send_signal(signal.SIGINT)
        output, errors = running.communicate(timeout=60)
    sent = sum(each["redriven"] for each in letters(http, topic))
    assert (running.returncode, output) == (130, f"{sent} sent back\n")
    assert 0 < sent < 30 and "the same command goes on with it" in errors
    again = done(broker, "redrive", topic, "--yes").stdout
    assert again == f"{30 - sent} sent back, {sent} were before\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["redrive", "t", "--message", "17"],
        ["redrive", "t", "--message", "a:b"],
        ["redrive", "t", "--rate", "0"],
        ["redrive", "t", "--delay", "soon"],
        ["list", "t", "--since", "yesterday"],
        ["list", "--limit", "0"],
        ["show", "t", "0", "-1"],
        ["show", "t", "0"],
    ],
)
def test_what_cannot_be_meant_is_refused_before_anyone_is_asked(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["dlq", *arguments], env={"GOQUEUE_SERVER": "http://127.0.0.1:1"})
    assert result.exit_code == 2, result.output


def test_letters_that_do_not_exist_are_named_and_nothing_goes_back(broker: BrokerProcess, http: httpx.Client) -> None:
    topic = dead(http, ["slow", "slow"])
    missing = run(broker, "redrive", topic, "--message", "0:1", "--message", "0:99", "--yes")
    assert missing.exit_code == 4 and "at partition 0, offset 99" in missing.stderr
    assert "goqueue dlq list" in missing.stderr
    assert not any(each["redriven"] for each in letters(http, topic))
    # One that is there and does not fit is no mistake.
    other = done(broker, "redrive", topic, "--message", "0:1", "--group", "nosuch", "--yes")
    assert (other.stdout, other.stderr) == ("0 sent back\n", "nothing to send back\n")
    assert done(broker, "redrive", topic, "--group", "nosuch", "--dry-run").stderr == "nothing to send back\n"


@pytest.mark.parametrize("how", [[], ["--json"]])
def test_what_went_back_is_told_before_the_error(
    broker: BrokerProcess, http: httpx.Client, how: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = dead(http, ["slow"] * 5)
    monkeypatch.setattr(dlq, "_REDRIVE_PAGE", 2)
    send, pages = BrokerHttp.send, []

    def broken(self: BrokerHttp, method: str, path: list[str], *more: Any, **named: Any) -> Any:
        answer = send(self, method, path, *more, **named)
        if path[-1] == "redrive" and answer["redriven"]:
            pages.append(answer)
            if len(pages) == 2:
                raise NoBroker("the connection broke")
        return answer

    monkeypatch.setattr(BrokerHttp, "send", broken)
    result = run(broker, "redrive", topic, "--yes", *how)
    assert result.exit_code == 3 and "error: the connection broke" in result.stderr
    assert "the same command goes on" in result.stderr
    assert json.loads(result.stdout)["redriven"] == 2 if how else result.stdout == "2 sent back\n"
