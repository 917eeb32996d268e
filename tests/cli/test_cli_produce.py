"""``goqueue produce`` against a broker in a process of its own."""

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

import pytest
from typer.testing import CliRunner, Result

from goqueue.cli.app import app
from goqueue.client.sync import Client
from goqueue.testing import BrokerProcess, running_broker

SCRIPT = str(Path(sys.executable).with_name("goqueue"))


@pytest.fixture(scope="module")
def client(broker: BrokerProcess) -> Iterator[Client]:
    with broker.client() as made:
        yield made


@pytest.fixture
def topic(client: Client) -> str:
    name = f"t-{uuid4().hex[:8]}"
    client.create_topic(name, partitions=3)
    return name


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(broker: BrokerProcess, *arguments: str, **given: Any) -> Result:
    return CliRunner().invoke(app, ["produce", *arguments], env={"GOQUEUE_SERVER": broker.url}, **given)


def started(broker: BrokerProcess, *arguments: str, **pipes: Any) -> subprocess.Popen[bytes]:
    environment = os.environ | {"GOQUEUE_SERVER": broker.url}
    return subprocess.Popen([SCRIPT, "produce", *arguments], env=environment, **pipes)


def rest_of(terminal: int) -> bytes:
    """All that is drawn until nobody draws any more; it comes in pieces."""
    output = b""
    try:
        while chunk := os.read(terminal, 65_536):
            output += chunk
    except OSError:
        pass  # Linux ends the reading of a closed terminal with an error.
    return output


def test_arguments_are_messages(broker: BrokerProcess, client: Client, topic: str) -> None:
    options = ["--key", "ada", "--header", "shop=north", "--header", "shop=south", "--priority", "high"]
    ran = run(broker, topic, "2 tickets", "3 tickets", *options)
    assert (ran.exit_code, ran.stdout) == (0, "")
    assert re.fullmatch(rf"2 messages stored in {topic} \(partition \d\) in \d+\.\d s\n", ran.stderr)
    first, second = client.read(topic)
    assert (first.value, second.value, first.key, first.priority) == (b"2 tickets", b"3 tickets", b"ada", 1)
    assert first.headers == (("shop", b"north"), ("shop", b"south"))


def test_lines_of_standard_input_and_of_files_are_messages(broker: BrokerProcess, client: Client, topic: str) -> None:
    assert run(broker, topic, "--quiet", "-p", "0", input="one\n\nthree").stderr == ""
    Path("a").write_text("four\r\nfive\n")
    Path("b").write_text("six\nseven")
    ran = run(broker, topic, "-p", "0", "--file", "a", "--file", "b", "--json")
    told = json.loads(ran.stdout)
    assert (told["stored"], told["partitions"], told["stopped_before"], ran.stderr) == (4, {"0": 4}, None, "")
    assert run(broker, topic, "-p", "0", "--whole", "--file", "b").exit_code == 0
    assert [each.value for each in client.read(topic)] == [
        b"one", b"", b"three", b"four", b"five", b"six", b"seven", b"six\nseven",
    ]  # fmt: skip


def test_offsets_are_printed(broker: BrokerProcess, client: Client, topic: str) -> None:
    ran = run(broker, topic, "--key-separator", r"\t", "--print-offsets", input="ada\tone\neve\ttwo\n")
    places = [tuple(map(int, line.split())) for line in ran.stdout.splitlines()]
    stored = {(each.partition, each.offset): (each.key, each.value) for each in client.read(topic)}
    assert [stored[place] for place in places] == [(b"ada", b"one"), (b"eve", b"two")]  # type: ignore[index]


def test_delayed_messages_wait(broker: BrokerProcess, client: Client, topic: str) -> None:
    ran = run(broker, topic, "tea", "--delay", "1d")
    assert ran.exit_code == 0 and ran.stderr.endswith("; 1 delayed\n")
    assert [each.value for each in client.delayed(topic)] == [b"tea"]
    assert run(broker, topic, "cake", "--deliver-at", "2090-01-01T00:00").exit_code == 0
    assert len(list(client.delayed(topic))) == 2


def test_nothing_behind_a_bad_line_is_sent(broker: BrokerProcess, client: Client, topic: str) -> None:
    rows = '{"value": "a"}\n{"value": {"b": 2}}\n{"valeu": "c"}\n{"value": "d"}\n'
    ran = run(broker, topic, "--jsonl", input=rows)
    assert ran.exit_code == 2
    assert "error: line 3 of standard input: there is no column 'valeu'" in ran.stderr
    assert "2 messages stored" in ran.stderr and "hint: " in ran.stderr
    assert sorted(each.value for each in client.read(topic)) == [b"a", b'{"b": 2}']
    ran = run(broker, topic, "--jsonl", "--skip-bad", "--json", input=rows)
    told = json.loads(ran.stdout)
    assert (ran.exit_code, told["stored"], told["bad"]) == (5, 3, 1)
    assert ran.stderr.startswith("left out: line 3 of standard input: ")


def test_what_the_broker_refuses_is_told_with_its_line(broker: BrokerProcess, client: Client, topic: str) -> None:
    rows = '{"value": "a"}\n{"value": "b", "partition": 7}\n{"value": "c", "timestamp": "2099-01-01T00:00:00Z"}\n'
    ran = run(broker, topic, "--jsonl", input=rows)
    assert ran.exit_code == 2 and "error: line 2 of standard input: " in ran.stderr
    assert ran.stderr.splitlines()[-2].endswith(" [partition_not_found]")
    ran = run(broker, topic, "--jsonl", "--skip-bad", input=rows)
    assert ran.exit_code == 5
    assert [line.split(":")[1] for line in ran.stderr.splitlines()[:2]] == [
        " line 2 of standard input", " line 3 of standard input",
    ]  # fmt: skip
    assert [each.value for each in client.read(topic)] == [b"a", b"a"]


@pytest.mark.parametrize(
    ("arguments", "status", "why"),
    [
        (["{topic}", "x", "--partition", "3"], 4, "has 3 partitions, 0 to 2; there is no 3"),
        (["nothing-there", "x"], 4, "goqueue topic create"),
        (["{topic}", "x", "--file", "f"], 2, "VALUE and --file do not go together"),
        (["{topic}", "--file", "nothing"], 2, "nothing is not there"),
        (["{topic}", "x", "--header", "shop"], 2, "NAME=VALUE"),
        (["{topic}", "x", "--priority", "urgent"], 2, "one of critical"),
        (["{topic}", "x", "--delay", "5"], 2, "not a duration"),
        (["{topic}", "x", "--delay", "5s", "--deliver-at", "2090-01-01T00:00"], 2, "do not go together"),
        (["{topic}", "x", "--rate", "0"], 2, "it must be at least 1"),
        (["{topic}", "x", "--whole"], 2, "about files"),
        (["{topic}", "x", "--header", "goqueue-x=1"], 2, "value 1: header"),
    ],
)
def test_a_wrong_request_stores_nothing(
    broker: BrokerProcess, client: Client, topic: str, arguments: list[str], status: int, why: str
) -> None:
    ran = run(broker, *(each.format(topic=topic) for each in arguments))
    assert ran.exit_code == status and why in ran.stderr, ran.stderr
    assert list(client.read(topic)) == []


def test_a_rate_is_kept(broker: BrokerProcess, client: Client, topic: str) -> None:
    told = json.loads(run(broker, topic, "--rate", "500", "--json", input="x\n" * 250).stdout)
    assert told["stored"] == 250 and told["seconds"] >= 0.4


def test_an_interrupt_finishes_what_is_under_way(broker: BrokerProcess, client: Client, topic: str) -> None:
    with started(
        broker, topic, "--print-offsets", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as ran:
        assert ran.stdin and ran.stdout and ran.stderr
        ran.stdin.write(b"one\ntwo\n")
        ran.stdin.flush()
        # Sent at once, though there is more to come.
        assert len([ran.stdout.readline() for _ in range(2)]) == 2
        ran.send_signal(signal.SIGINT)
        assert ran.wait(30) == 130
        told = ran.stderr.read().decode()
    assert told.startswith("interrupted\n") and "2 messages stored" in told
    assert sorted(each.value for each in client.read(topic)) == [b"one", b"two"]


def test_a_bar_is_drawn_on_a_terminal(broker: BrokerProcess, client: Client, topic: str) -> None:
    Path("many").write_text("".join(f"line {number}\n" for number in range(100_000)))
    ours, theirs = pty.openpty()
    with started(broker, topic, "--file", "many", stdin=theirs, stdout=theirs, stderr=theirs) as ran:
        os.close(theirs)
        output = rest_of(ours)
        os.close(ours)
    assert ran.returncode == 0
    drawn = output.decode()
    assert "B/s" in drawn or " of 1.09 MB" in drawn
    assert "100,000 messages stored" in drawn


def test_no_bar_is_drawn_where_somebody_types(broker: BrokerProcess, client: Client, topic: str) -> None:
    ours, theirs = pty.openpty()
    with started(broker, topic, "-", "--print-offsets", stdin=theirs, stdout=subprocess.PIPE, stderr=theirs) as ran:
        os.close(theirs)
        assert ran.stdout
        os.write(ours, b"one\n")
        assert ran.stdout.readline().endswith(b" 0\n")
        os.write(ours, b"\x04")
        assert ran.wait(30) == 0
    drawn = rest_of(ours).decode()
    os.close(ours)
    assert "1 message stored" in drawn and "messages/s" not in drawn and "\x1b" not in drawn


def test_only_what_may_be_stored_behind_a_refused_line_is_warned_of(broker: BrokerProcess, topic: str) -> None:
    bad, good = '{"value": "b", "partition": 7}\n', '{"value": "a"}\n'
    assert "some may be stored already" in run(broker, topic, "--jsonl", input=good + bad + good).stderr
    assert "some may be stored already" not in run(broker, topic, "--jsonl", input=good + bad).stderr


def test_a_whole_file_that_is_refused_is_told_without_a_line(broker: BrokerProcess, topic: str) -> None:
    Path("picture").write_bytes(b"\x00\n\x01")
    ran = run(broker, topic, "--whole", "--file", "picture", "--header", "goqueue-x=1")
    assert ran.exit_code == 2 and "error: picture: " in ran.stderr, ran.stderr
    assert " line" not in ran.stderr and "some may be stored" not in ran.stderr


def test_one_partition_is_one(broker: BrokerProcess, client: Client) -> None:
    name = f"t-{uuid4().hex[:8]}"
    client.create_topic(name, partitions=1)
    assert "has 1 partition, 0; there is no 1" in run(broker, name, "x", "-p", "1").stderr


def test_what_is_known_by_its_dedup_id_is_not_stored_again(broker: BrokerProcess, client: Client, topic: str) -> None:
    rows = "".join(f'{{"value": "v", "key": "k", "dedup_id": "{number}"}}\n' for number in range(3))
    first, second = (json.loads(run(broker, topic, "--jsonl", "--json", input=rows).stdout) for _ in range(2))
    assert (first["stored"], first["duplicates"]) == (3, 0)
    assert (second["stored"], second["duplicates"], second["partitions"]) == (0, 3, {})
    assert len(list(client.read(topic))) == 3


def test_what_was_told_as_stored_survives_a_kill(tmp_path: Path) -> None:
    data = tmp_path / "data"
    # Their places are more than a pipe holds: it is not at its end before the broker is killed, whoever is slow.
    Path("many").write_bytes(b"".join(b"%d\n" % number for number in range(100_000)))
    with running_broker(data) as broker:
        with broker.client() as client:
            client.create_topic("t", partitions=3)
        with started(
            broker, "t", "--file", "many", "--print-offsets", "--rate", "20000", "--timeout", "5s",
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as ran:  # fmt: skip
            assert ran.stdout and ran.stderr
            told = [ran.stdout.readline() for _ in range(1_000)]
            broker.kill()
            told += ran.stdout.readlines()
            assert ran.wait(60) == 3
            summary = ran.stderr.read().decode()
    assert (
        f"{len(told):,} messages stored in t" in summary
        and "the first that is not known to be stored is line " in summary
    )
    assert "some may be stored already" in summary and "--timeout" in summary
    with running_broker(data) as broker, broker.client() as client:
        stored = {(each.partition, each.offset): each.value for each in client.read("t")}
        places = [tuple(map(int, line.split())) for line in told]
        assert [stored[place] for place in places] == [b"%d" % number for number in range(len(told))]  # type: ignore[index]
        # Tried again or not, none is there twice.
        assert len(set(stored.values())) == len(stored)
