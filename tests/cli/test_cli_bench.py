"""``goqueue bench`` against a broker in a process of its own: small runs, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from behaviour.terminal import Terminal
from behaviour.waiting import until
from typer.testing import CliRunner, Result

from goqueue.cli.app import app
from goqueue.client.sync import Client
from goqueue.testing import BrokerProcess, running_broker

SCRIPT = str(Path(sys.executable).with_name("goqueue"))


@pytest.fixture(scope="module")
def client(broker: BrokerProcess) -> Iterator[Client]:
    with broker.client() as made:
        yield made


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(client: Client) -> Iterator[None]:
    yield
    assert [name for name in client.list_topics() if name.startswith("goqueue-bench-")] == []
    assert client.list_groups() == []


def bench(broker: BrokerProcess, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", *arguments], env={"GOQUEUE_SERVER": broker.url})


def measured(broker: BrokerProcess, *arguments: str) -> dict[str, Any]:
    ran = bench(broker, "--json", *arguments)
    assert ran.exit_code == 0, ran.output
    found: dict[str, Any] = json.loads(ran.stdout)
    assert found["finished"] and all(stage["finished"] for stage in found["stages"])
    return found


def check_latency(latency: dict[str, Any], count: int) -> None:
    assert latency["count"] == sum(each["count"] for each in latency["ranges"]) == count
    told = [latency[f"{name}_ms"] for name in ("p50", "p90", "p99", "p99.9", "max")]
    assert told == sorted(told) and told[0] > 0


def test_it_publishes_and_reads_a_temporary_topic(broker: BrokerProcess) -> None:
    found = measured(broker, "--messages", "3000", "--size", "50", "--partitions", "2", "--fsync", "interval")
    assert (found["partitions"], found["fsync"], found["size_bytes"]) == (2, "interval", 50)
    assert found["shares_machine"] is True and found["temporary_topic"] is True
    published, read = found["stages"]
    assert [published["stage"], read["stage"]] == ["publish", "consume"]
    assert published["messages"] == read["messages"] == 3_000
    assert published["bytes"] == read["bytes"] == 150_000
    assert published["messages_per_s"] == pytest.approx(3_000 / published["seconds"], rel=0.01)
    check_latency(published["latency"][0], 6)


def test_it_is_told_in_words_and_bars(broker: BrokerProcess) -> None:
    ran = bench(broker, "--messages", "1000", "--mode", "publish")
    assert ran.exit_code == 0
    assert "The client runs on the broker's machine" in ran.stdout
    assert "3 partitions, fsync always, 100 bytes a message, 4 producers, batches of 500" in ran.stdout
    assert "publish: a batch of 500, until it is acknowledged" in ran.stdout
    assert "p99.9" in ran.stdout and "█" in ran.stdout


def test_at_a_pace_every_message_is_timed_from_when_it_was_due(broker: BrokerProcess) -> None:
    found = measured(broker, "--mode", "latency", "--rate", "400", "--messages", "120", "--linger", "0s")
    (stage,) = found["stages"]
    acknowledged, seen = stage["latency"]
    assert "acknowledged" in acknowledged["of"] and "reader" in seen["of"]
    check_latency(acknowledged, 120)
    check_latency(seen, 120)
    assert stage["seconds"] >= 119 / 400
    assert "client itself was late" in stage["remarks"][0]


def test_a_queue_is_polled_and_acked(broker: BrokerProcess) -> None:
    (stage,) = measured(broker, "--mode", "queue", "--messages", "700")["stages"]
    assert stage["messages"] == 700
    (acks,) = stage["latency"]
    check_latency(acks, acks["count"])


def test_a_queue_at_a_pace_is_timed_as_a_whole(broker: BrokerProcess) -> None:
    (stage,) = measured(broker, "--mode", "queue", "--rate", "400", "--for", "300ms")["stages"]
    assert stage["messages"] == 120
    whole = next(each for each in stage["latency"] if each["of"].endswith("until its ack is kept"))
    check_latency(whole, 120)


def test_a_time_is_kept(broker: BrokerProcess) -> None:
    (stage,) = measured(broker, "--mode", "publish", "--for", "300ms")["stages"]
    assert stage["seconds"] >= 0.3 and stage["messages"] % 500 == 0 and stage["messages"] > 0


def test_a_topic_of_ones_own_is_read_and_stays(broker: BrokerProcess, client: Client) -> None:
    client.create_topic("mine")
    with client.producer() as producer:
        producer.send_many("mine", [b"x" * 10] * 50)
    (stage,) = measured(broker, "--mode", "consume", "--topic", "mine")["stages"]
    assert (stage["messages"], stage["bytes"]) == (50, 500)
    unasked = bench(broker, "--topic", "mine", "--messages", "10")
    assert unasked.exit_code == 2 and "--yes" in unasked.stderr
    assert sum(each.latest_offset for each in client.describe_topic("mine").partitions) == 50
    measured(broker, "--topic", "mine", "--messages", "10", "--mode", "publish", "--yes")
    assert sum(each.latest_offset for each in client.describe_topic("mine").partitions) == 60
    assert bench(broker, "--topic", "nowhere", "--mode", "consume").exit_code == 4


@pytest.mark.parametrize(
    "wrong",
    [
        ["--messages", "5", "--for", "1s"],
        ["--size", "15"],
        ["--size", "17MiB"],
        ["--size", "1MiB", "--batch", "65"],
        ["--for", "2d"],
        ["--mode", "consume", "--rate", "5"],
        ["--topic", "mine", "--partitions", "2"],
        ["--linger", "2m"],
        ["--rate", "0"],
        ["--producers", "65"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_measured_is_refused(broker: BrokerProcess, wrong: list[str]) -> None:
    refused = bench(broker, *wrong)
    assert refused.exit_code == 2 and not refused.stdout


@pytest.mark.parametrize(("number", "mode"), [(signal.SIGTERM, "publish"), (signal.SIGINT, "queue")])
def test_stopped_it_tells_what_it_has_and_deletes_what_it_made(
    broker: BrokerProcess, client: Client, number: signal.Signals, mode: str
) -> None:
    command = [SCRIPT, "bench", "--json", "--rate", "200", "--for", "10m", "--mode", mode]
    environment = os.environ | {"GOQUEUE_SERVER": broker.url}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as running:

        def stored() -> int:
            topics = [name for name in client.list_topics() if name.startswith("goqueue-bench-")]
            return sum(each.latest_offset for name in topics for each in client.describe_topic(name).partitions)

        def acked() -> int:
            return sum(
                each.committed for name in client.list_groups() for each in client.describe_group(name).partitions
            )

        # So many that the first of them are acknowledged, and known to be, for long.
        until(lambda: stored() > 100 and (mode != "queue" or acked() > 100))
        running.send_signal(number)
        output, remarks = running.communicate(timeout=60)
    assert running.returncode == 130, remarks
    assert remarks.endswith("stopped; the temporary topic is deleted\n") and "Traceback" not in remarks
    found = json.loads(output)
    assert found["finished"] is False and found["stages"][0]["finished"] is False
    assert found["stages"][0]["messages"] > 0


def test_without_the_broker_a_second_signal_ends_it_and_names_what_is_left(tmp_path: Path) -> None:
    with running_broker(tmp_path / "data") as gone:
        command = [SCRIPT, "bench", "--rate", "200", "--for", "10m", "--mode", "publish"]
        environment = os.environ | {"GOQUEUE_SERVER": gone.url}
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as running:
            with gone.client() as client:
                until(client.list_topics)
                (name,) = client.list_topics()
                until(lambda: any(each.latest_offset for each in client.describe_topic(name).partitions))
            gone.kill()
            running.send_signal(signal.SIGINT)
            # Whoever is not patient asks again. (If both come before it looks they are one, and it ends later.)
            with suppress(subprocess.TimeoutExpired):
                running.wait(0.5)
            running.send_signal(signal.SIGINT)
            output, remarks = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "publish at 200/s (stopped)" in output
    assert f"goqueue topic delete {name} --yes" in remarks
    assert "is deleted" not in remarks and "Traceback" not in remarks


def test_on_a_terminal_it_shows_how_far_it_is(broker: BrokerProcess) -> None:
    command = [SCRIPT, "bench", "--rate", "200", "--messages", "40000", "--mode", "publish"]
    with Terminal(command, 120, 40, GOQUEUE_SERVER=broker.url) as terminal:
        terminal.shows(" of 40,000")
        terminal.interrupt()
        assert terminal.status() == 130
        assert "publish at 200/s (stopped)" in terminal.text


def test_no_broker_ends_with_3() -> None:
    assert CliRunner().invoke(app, ["bench", "--server", "http://127.0.0.1:1"]).exit_code == 3
