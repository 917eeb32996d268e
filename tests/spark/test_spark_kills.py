"""A query copies one topic to another while its driver and its broker are killed: everything arrives, once each.

``GOQUEUE_SPARK_KILLS`` says how often (2 unless told otherwise: one of each), ``GOQUEUE_SEED`` repeats the choices.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import doubles.spark_copy
import pytest
from behaviour.waiting import until

from goqueue.client.messages.outgoing_message import Outgoing
from goqueue.client.sync import Client
from goqueue.testing import BrokerProcess

KILLS = int(os.environ.get("GOQUEUE_SPARK_KILLS", "2"))
PARTITIONS = 2
AT_ONCE, MOST_AHEAD = 50, 150
PATIENCE_S = 240.0
LOOK_EVERY_S = 0.1
MICRO_BATCH_S = 0.5
SETTINGS: dict[str, object] = {"storage.min_free_bytes": "0"}


class Driver:
    """A query with a Python and a Java process of its own."""

    def __init__(self, broker: BrokerProcess, folder: Path) -> None:
        self._log = folder / "driver.log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, doubles.spark_copy.__file__, "local[2]", broker.address, str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def has_died(self) -> bool:
        return self.process.poll() is not None

    def kill(self) -> None:
        """Python and Java at once. Workers notice that and end, after a while; what they send until then is late."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        status = self.process.wait(PATIENCE_S)
        assert status == 0, self.told()

    def told(self) -> str:
        return self._log.read_text(errors="replace")[-5_000:]

    def left(self) -> list[int]:
        """Everything that it has started and that is still there; workers have process groups of their own."""
        found = []
        for each in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, _, session = each.read_text().rpartition(")")[2].split()[:4]
            except OSError:
                continue
            if int(session) == self.process.pid and state != "Z":
                found.append(int(each.parent.name))
        return found


class Copying:
    """Both topics, and what is known of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broker = BrokerProcess(folder / "data", settings=SETTINGS)
        self.client = Client(self.broker.address, request_timeout_ms=30_000, connect_timeout_ms=60_000)
        for topic in ("in", "out"):
            self.client.create_topic(topic, partitions=PARTITIONS)
        self.sent = 0
        self.seen: Counter[bytes] = Counter()
        self._next = [0] * PARTITIONS
        self.drivers = [Driver(self.broker, folder)]
        self.died = 0

    def go_on(self) -> None:
        """Publish if the query needs more to do, and read what it has written."""
        if self.drivers[-1].has_died:
            # Tasks are tried again, but not for ever: when a broker is away at a bad moment a query may give up.
            self.died += 1
            self.drivers.append(Driver(self.broker, self.folder))
        if self.sent - self.seen.total() < MOST_AHEAD:
            values = [b"%d" % number for number in range(self.sent, self.sent + AT_ONCE)]
            with self.client.producer() as producer:
                producer.send_many("in", [Outgoing(value, key=value) for value in values])
            self.sent += AT_ONCE
        self.look()

    def look(self) -> None:
        for number in range(PARTITIONS):
            for record in self.client.read("out", number, self._next[number]):
                self.seen[record.value] += 1
                self._next[number] = record.offset + 1
        twice = [value for value, count in self.seen.items() if count > 1]
        assert not twice, f"{len(twice)} messages were written more than once: {twice[:5]}"

    def until_more(self, count: int) -> None:
        goal, deadline = self.seen.total() + count, time.monotonic() + PATIENCE_S
        while self.seen.total() < goal:
            assert time.monotonic() < deadline, f"the query is stuck:\n{self.drivers[-1].told()}"
            self.go_on()
            # The query needs the processor more.
            time.sleep(LOOK_EVERY_S)

    def kill_driver(self) -> None:
        self.drivers[-1].kill()
        self.drivers.append(Driver(self.broker, self.folder))

    def kill_broker(self) -> None:
        self.broker.kill()
        ports = {"http_port": self.broker.http_port, "grpc_port": self.broker.grpc_port}
        self.broker = BrokerProcess(self.folder / "data", settings=SETTINGS, **ports)

    def end(self) -> None:
        """Let the query copy what is left."""
        (self.folder / "stop").touch()
        self.drivers[-1].end()
        self.look()

    def close(self) -> None:
        for driver in self.drivers:
            if not driver.has_died:
                driver.kill()
        self.client.close()
        if self.broker.process.poll() is None:
            self.broker.kill()
        deadline = time.monotonic() + PATIENCE_S
        while left := [each for driver in self.drivers for each in driver.left()]:
            assert time.monotonic() < deadline, f"processes {left} are left"
            time.sleep(0.05)


@pytest.fixture
def copying(tmp_path: Path) -> Iterator[Copying]:
    made = Copying(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.timeout(300 + 120 * KILLS)
def test_what_is_copied_while_driver_and_broker_are_killed_is_there_once_each(copying: Copying) -> None:
    seed = os.environ.get("GOQUEUE_SEED") or str(time.time_ns())
    print(f"GOQUEUE_SEED={seed}")  # noqa: T201
    rng = Random(seed)
    both = [copying.kill_driver, copying.kill_broker]
    kills = [*both, *rng.choices(both, k=KILLS)][:KILLS]
    rng.shuffle(kills)
    for kill in kills:
        copying.until_more(rng.randint(1, 3 * doubles.spark_copy.MESSAGES_PER_BATCH))
        # So that it comes at any moment of a micro-batch.
        time.sleep(rng.random() * MICRO_BATCH_S)
        kill()
    copying.until_more(1)
    copying.end()
    assert copying.sent > 0
    assert set(copying.seen) == {b"%d" % number for number in range(copying.sent)}
    # What a killed driver has left open is ended by the next one, long before its time is over (a minute).
    until(lambda: copying.client.transactions() == [])
    assert copying.died <= kills.count(copying.kill_broker)
