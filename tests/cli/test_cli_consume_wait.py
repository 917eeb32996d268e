"""``goqueue consume --follow`` while its broker does not answer."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from goqueue.testing import BrokerProcess

SCRIPT = str(Path(sys.executable).with_name("goqueue"))
PATIENCE_S = 60


@pytest.fixture(scope="module", autouse=True)
def _topic(broker: BrokerProcess) -> None:
    with broker.client() as client:
        client.create_topic("t", partitions=1)


@contextmanager
def following(broker: BrokerProcess, *options: str, asks: bool = True) -> Iterator[subprocess.Popen[str]]:
    """It has printed a message and, unless it never ``asks`` how its broker is, has been answered."""
    command = [SCRIPT, "consume", "t", "--follow", "--server", broker.url, *options]
    before = versions_told(broker)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ran:
        try:
            publish(broker)
            assert ran.stdout is not None and ran.stdout.readline()
            # It finds its broker by the first answer, and watches it from the second one on.
            deadline = time.monotonic() + PATIENCE_S
            while asks and versions_told(broker) < before + 2:
                assert time.monotonic() < deadline, "it does not ask"
                time.sleep(0.01)
            yield ran
        finally:
            ran.kill()


def versions_told(broker: BrokerProcess) -> int:
    """How often ``GET /version`` was answered."""
    with urllib.request.urlopen(f"{broker.url}/metrics") as response:
        figures = response.read().decode()
    return sum(int(float(count)) for count in re.findall(r'endpoint="GET /version",code="200"} (\S+)', figures))


def publish(broker: BrokerProcess) -> None:
    with broker.client() as client, client.producer() as producer:
        producer.send_many("t", ["again"])


@pytest.mark.parametrize("options", [[], ["--group", "g"]])
def test_it_says_once_that_it_waits_and_once_that_it_goes_on(broker: BrokerProcess, options: list[str]) -> None:
    with following(broker, *options) as ran:
        assert ran.stdout is not None and ran.stderr is not None
        broker.process.send_signal(signal.SIGSTOP)
        try:
            said = ran.stderr.readline()
        finally:
            broker.process.send_signal(signal.SIGCONT)
        instant = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
        assert re.fullmatch(
            rf"no answer from {re.escape(broker.url)} since {instant}; waiting for it\. Ctrl-C ends it\n", said
        )
        assert ran.stderr.readline() == f"{broker.url} answers; going on\n"
        ran.send_signal(signal.SIGINT)
        _, rest = ran.communicate(timeout=PATIENCE_S)
    assert ran.returncode == 0
    assert rest.startswith("interrupted after ") and rest.count("\n") == 1


def test_nothing_is_said_of_it_to_programs(broker: BrokerProcess) -> None:
    """Its neighbour is asked by the same broker at the same pace, and tells of the same outage."""
    with following(broker, "--json", asks=False) as silent, following(broker) as telling:
        broker.process.send_signal(signal.SIGSTOP)
        try:
            assert telling.stderr is not None and telling.stderr.readline()
        finally:
            broker.process.send_signal(signal.SIGCONT)
        assert telling.stderr.readline().endswith("going on\n")
        silent.send_signal(signal.SIGINT)
        _, said = silent.communicate(timeout=PATIENCE_S)
    assert said.startswith("interrupted after ") and said.count("\n") == 1
