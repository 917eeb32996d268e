"""A broker that is killed under load, again and again, on the same folder.

``GOQUEUE_KILLS`` says how often (4 unless told otherwise), ``GOQUEUE_SEED`` repeats the choices of a run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from behaviour.load import (
    Connection,
    Gone,
    Ledger,
    Publishers,
    content_of,
    frames_writer,
    json_writer,
)
from behaviour.process import BrokerProcess, broker_process

KILLS = int(os.environ.get("GOQUEUE_KILLS", "4"))
TOPICS = {"singles": 2, "batches": 3, "frames": 2}
RETENTIONS_MS = (1_000_000, 2_000_000, 3_000_000)


@pytest.fixture
def rng() -> Iterator[Random]:
    seed = os.environ.get("GOQUEUE_SEED") or str(time.time_ns())
    print(f"GOQUEUE_SEED={seed}")  # noqa: T201
    yield Random(seed)


@dataclass(frozen=True)
class Stored:
    offset: int
    value: str | None
    key: str | None
    number: int
    """The header ``n``, or 0."""


def read_partition(connection: Connection, topic: str, partition: int) -> tuple[int, list[Stored]]:
    """Everything; from the beginning again if retention has overtaken the reader, which it may."""
    for _ in range(20):
        try:
            return read_partition_once(connection, topic, partition)
        except AssertionError as error:
            if "offset_out_of_range" not in str(error):
                raise
    raise AssertionError(f"retention of {topic} is faster than any reader")


def read_partition_once(connection: Connection, topic: str, partition: int) -> tuple[int, list[Stored]]:
    """The earliest offset, and everything that is there."""
    found: list[Stored] = []
    bounds = connection.json("GET", f"/topics/{topic}")["partition_offsets"][str(partition)]
    offset = bounds["earliest"]
    while True:
        path = f"/topics/{topic}/partitions/{partition}/messages?limit=10000&offset={offset}"
        page = connection.json("GET", path)
        found += [
            Stored(each["offset"], each["value"], each.get("key"), int(each.get("headers", {}).get("n", 0)))
            for each in page["messages"]
        ]
        if page["next_offset"] >= bounds["latest"]:
            return bounds["earliest"], found
        assert page["next_offset"] > offset
        offset = page["next_offset"]


def check_messages(connection: Connection, ledger: Ledger) -> None:
    """Everything acknowledged is there, once, where it was said to be, whole, in order; nothing is made up."""
    seen: set[str] = set()
    places: set[tuple[str, int, int]] = set()
    for topic, partitions in TOPICS.items():
        for partition in range(partitions):
            earliest, stored = read_partition(connection, topic, partition)
            assert earliest == 0
            assert [each.offset for each in stored] == list(range(len(stored))), (topic, partition)
            last: dict[str, str] = {}
            for each in stored:
                assert each.value is not None
                assert each.value in ledger.sent, f"half a message, or one that nobody sent: {each}"
                assert each.value not in seen, f"stored twice: {each}"
                seen.add(each.value)
                places.add((topic, partition, each.offset))
                writer, number = each.value.split(" ")[0].split("-")
                assert last.get(writer, "") < number, f"out of order: {each}"
                last[writer] = number
                known = ledger.acknowledged.get((topic, partition, each.offset))
                assert known in {None, each.value}, f"another message is where {known} was acknowledged: {each}"
    lost = ledger.acknowledged.keys() - places
    assert not lost, f"{len(lost)} acknowledged messages are lost, such as {sorted(lost)[:5]}"


class TopicChurn:
    """Creates, changes and deletes topics, and knows which states of each are possible."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.possible: dict[str, set[int | None]] = {}

    def write(self, connection: Connection, values: Any, rng: Random) -> None:
        name = f"churn-{rng.randrange(6)}"
        states = self.possible.setdefault(name, {None})
        (now,) = states
        wanted: int | None = rng.choice([each for each in (*RETENTIONS_MS, None) if each != now])
        states.add(wanted)
        settings = {"retention_ms": wanted}
        if wanted is None:
            connection.json("DELETE", f"/topics/{name}")
        elif now is None:
            connection.json("POST", "/topics", {"name": name, "settings": settings, "num_partitions": 1})
        else:
            connection.json("PATCH", f"/topics/{name}", {"settings": settings})
        states.remove(now)

    def check(self, connection: Connection) -> None:
        topics = connection.json("GET", "/topics")["topics"]
        assert set(topics) <= self.possible.keys() | TOPICS.keys()
        for name, states in self.possible.items():
            actual = None
            if name in topics:
                actual = connection.json("GET", f"/topics/{name}")["settings"]["retention_ms"]
            assert actual in states, f"{name} is {actual}, which is none of {states}"
            self.possible[name] = {actual}


def restarts_whole(broker: BrokerProcess) -> None:
    """Its log has nothing worse than torn tails."""
    errors = [event for event in broker.events() if event["level"] == "error"]
    assert not errors, errors


def test_everything_acknowledged_survives_kills_at_random_moments(tmp_path: Path, rng: Random) -> None:
    ledger = Ledger()
    publishers = Publishers(ledger, rng.randrange(1 << 30))
    churn = TopicChurn(ledger)
    with broker_process(tmp_path, "--set", "topic.segment_bytes=64KiB") as broker:
        connection = Connection(broker.port)
        for topic, partitions in TOPICS.items():
            connection.json("POST", "/topics", {"name": topic, "num_partitions": partitions})
        connection.close()
    for _ in range(KILLS):
        options = ["--set", "topic.segment_bytes=64KiB"]
        if rng.random() < 0.5:
            options += ["--set", "storage.checkpoint_interval_ms=100ms"]
        with broker_process(tmp_path, *options) as broker:
            restarts_whole(broker)
            connection = Connection(broker.port)
            check_messages(connection, ledger)
            churn.check(connection)
            connection.close()
            publishers.start(
                broker.port,
                [
                    json_writer(ledger, "singles", 1, keys=50),
                    json_writer(ledger, "singles", 1),
                    json_writer(ledger, "batches", 100, keys=1_000),
                    frames_writer(ledger, "frames", 0, 500),
                    frames_writer(ledger, "frames", 1, 20),
                    churn.write,
                ],
            )
            ledger.wait_for_acks(rng.randint(1, 6_000))
            broker.kill()
            publishers.join()
    with broker_process(tmp_path) as broker:
        connection = Connection(broker.port)
        check_messages(connection, ledger)
        churn.check(connection)
        connection.close()
        assert broker.stop() == 0
    print(f"{ledger.acks} messages were acknowledged, {len(ledger.sent)} sent")  # noqa: T201


class Counters:
    """One counter for each key, which only goes up; the last value of a key is known within what is in doubt."""

    def __init__(self, topic: str, keys: int) -> None:
        self._topic = topic
        self._sent = {f"key-{number}": 0 for number in range(keys)}
        self._acknowledged = dict(self._sent)

    def write(self, connection: Connection, values: Any, rng: Random) -> None:
        values(1)
        keys = [rng.choice(list(self._sent)) for _ in range(rng.randint(1, 80))]
        messages = []
        for key in keys:
            self._sent[key] += 1
            number = self._sent[key]
            messages.append({"key": key, "value": self._value(key, number), "headers": {"n": str(number)}})
        made = {key: self._sent[key] for key in keys}
        connection.json("POST", f"/topics/{self._topic}/messages", {"messages": messages})
        self._acknowledged |= made

    def _value(self, key: str, number: int) -> str | None:
        return None if number % 10 == 0 else content_of(f"{key}={number}", 100)

    def check(self, connection: Connection) -> None:
        last: dict[str, int] = {}
        offsets: list[int] = []
        _, stored = read_partition(connection, self._topic, 0)
        for each in stored:
            offsets.append(each.offset)
            assert each.key is not None
            assert each.value == self._value(each.key, each.number), f"half a message: {each}"
            assert last.get(each.key, 0) < each.number, f"an older value of {each.key} follows a newer one"
            last[each.key] = each.number
        assert offsets == sorted(set(offsets))
        for key, acknowledged in self._acknowledged.items():
            assert acknowledged <= last.get(key, 0) <= self._sent[key], (key, acknowledged, last.get(key))


def test_the_last_value_of_every_key_survives_kills_during_compaction_and_retention(
    tmp_path: Path, rng: Random
) -> None:
    options = (
        *("--set", "storage.cleanup_interval_ms=100ms"),
        *("--set", "storage.checkpoint_interval_ms=100ms"),
        *("--set", "storage.compaction_min_dirty_ratio=0.01"),
        *("--set", "topic.segment_bytes=64KiB"),
    )
    ledger = Ledger()
    publishers = Publishers(ledger, rng.randrange(1 << 30))
    counters = Counters("compacted", keys=60)
    with broker_process(tmp_path, *options) as broker:
        connection = Connection(broker.port)
        for name, settings in (("compacted", {"cleanup": "compact"}), ("expiring", {"retention_bytes": "1MiB"})):
            connection.json("POST", "/topics", {"name": name, "num_partitions": 1, "settings": settings})
        connection.close()
    for _ in range(max(2, KILLS // 2)):
        with broker_process(tmp_path, *options) as broker:
            restarts_whole(broker)
            check_cleaned(broker.port, counters, ledger)
            publishers.start(broker.port, [counters.write, frames_writer(ledger, "expiring", 0, 500)])
            ledger.wait_for_acks(rng.randint(1_000, 12_000))
            broker.kill()
            publishers.join()
    with broker_process(tmp_path, *options) as broker:
        check_cleaned(broker.port, counters, ledger)
        assert broker.stop() == 0


def check_cleaned(port: int, counters: Counters, ledger: Ledger) -> None:
    connection = Connection(port)
    try:
        counters.check(connection)
        earliest, stored = read_partition(connection, "expiring", 0)
        assert [each.offset for each in stored] == list(range(earliest, earliest + len(stored)))
        there = {each.offset: each.value for each in stored}
        for (topic, _, offset), value in ledger.acknowledged.items():
            if topic == "expiring" and offset >= earliest:
                assert there.get(offset) == value, f"offset {offset} was acknowledged and is not there"
    except Gone as gone:
        raise AssertionError(f"the broker went away while it was read: {gone}") from gone
    finally:
        connection.close()
