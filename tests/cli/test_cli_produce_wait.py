"""``goqueue produce`` while its broker does not answer."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from behaviour.terminal import Terminal

from goqueue.testing import BrokerProcess, running_broker

SCRIPT = str(Path(sys.executable).with_name("goqueue"))
PATIENCE_S = 60


@pytest.fixture(scope="module", autouse=True)
def _topic(broker: BrokerProcess) -> None:
    with broker.client() as client:
        client.create_topic("t", partitions=1)


@contextmanager
def stopped(broker: BrokerProcess) -> Iterator[None]:
    """It is there and does nothing."""
    broker.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        broker.process.send_signal(signal.SIGCONT)


@contextmanager
def producing(broker: BrokerProcess, *options: str) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    command = [SCRIPT, "produce", "t", "--server", broker.url, *options]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as ran:
        try:
            yield ran
        finally:
            ran.kill()


def send(ran: subprocess.Popen[str], line: str) -> None:
    assert ran.stdin is not None
    ran.stdin.write(f"{line}\n")
    ran.stdin.flush()


def send_the_first(ran: subprocess.Popen[str]) -> None:
    """And wait until it is stored."""
    send(ran, "one")
    assert ran.stdout is not None and ran.stdout.readline()


def test_it_says_once_that_it_waits_and_once_that_it_goes_on(broker: BrokerProcess) -> None:
    with producing(broker, "--print-offsets") as ran:
        assert ran.stderr is not None
        send_the_first(ran)
        with stopped(broker):
            send(ran, "two")
            assert ran.stderr.readline() == (
                f"no answer from {broker.url} for 2 s; waiting for it, up to 60s (--timeout). "
                "Ctrl-C is safe: it ends with what is under way, and says what is not known to be stored\n"
            )
        assert ran.stderr.readline() == f"{broker.url} answers; going on\n"
        _, rest = ran.communicate("three\n", timeout=PATIENCE_S)
    assert ran.returncode == 0
    assert rest.startswith("3 messages stored in t ") and rest.count("\n") == 1


def test_a_broker_that_stays_away_is_told_once_and_nothing_goes_on() -> None:
    with running_broker() as broker:
        with broker.client() as client:
            client.create_topic("t", partitions=1)
        with producing(broker, "--print-offsets", "--timeout", "5s") as ran:
            send_the_first(ran)
            broker.kill()
            _, said = ran.communicate("two\n", timeout=PATIENCE_S)
    assert ran.returncode == 3
    assert said.startswith(f"no answer from {broker.url} for 2 s; waiting for it, up to 5s (--timeout). ")
    assert said.count("no answer from") == 1 and "going on" not in said
    assert "[delivery_timeout]\n" in said


def test_a_full_disk_is_told_as_what_it_is_and_not_as_silence(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker, broker.client() as client:
        client.create_topic("t", partitions=1)
    with running_broker(tmp_path, settings={"storage.min_free_bytes": 1 << 44}) as broker:
        with producing(broker, "--timeout", "5s") as ran:
            _, said = ran.communicate("one\n", timeout=PATIENCE_S)
        assert "no answer from" not in said
        assert re.match(
            rf"{broker.url} answers, and has not done this for 2 s: .* free, less than storage\.min_free_bytes .*; "
            r"trying again, up to 5s \(--timeout\)",
            said,
        )
    assert ran.returncode == 1
    assert re.search(
        r"error: not acknowledged within 5000 ms; .* GiB free, .* \[disk_full\]\nhint: Free some space", said
    )


def test_an_interrupt_before_anything_is_sent_ends_it_at_once(broker: BrokerProcess) -> None:
    with stopped(broker), producing(broker) as ran:
        assert ran.stderr is not None
        assert ran.stderr.readline().endswith(" Ctrl-C is safe: nothing was sent yet\n")
        ran.send_signal(signal.SIGINT)
        # The broker is still stopped.
        assert ran.communicate(timeout=PATIENCE_S / 2) == ("", "interrupted, nothing was sent\n")
    assert ran.returncode == 130


@pytest.mark.parametrize("option", ["--quiet", "--json"])
def test_nothing_is_said_of_it_in_a_pipe_if_so_wanted(broker: BrokerProcess, option: str) -> None:
    with stopped(broker), producing(broker, option, "--timeout", "4s") as ran:
        _, said = ran.communicate("one\n", timeout=PATIENCE_S)
    assert ran.returncode == 3
    assert said.startswith("error: ") and "no answer from" not in said


def test_the_bar_is_drawn_around_it(broker: BrokerProcess, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("".join(f"line {number}\n" for number in range(3_000)))
    command = [SCRIPT, "produce", "t", "--file", str(file), "--rate", "1000"]
    with Terminal(command, width=200, GOQUEUE_SERVER=broker.url) as terminal:
        terminal.shows("B/s")
        with stopped(broker):
            terminal.shows("known to be stored")
        terminal.shows("answers; going on")
        assert terminal.status() == 0
    # Each is a line of its own.
    lines = [line.rpartition("\r")[2].rstrip() for line in terminal.text.split("\r\n")]
    assert len([line for line in lines if line.startswith(f"no answer from {broker.url} ")]) == 1
    assert lines.count(f"{broker.url} answers; going on") == 1
    assert "3,000 messages stored in t" in terminal.text
