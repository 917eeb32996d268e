"""How far Spark reads the files of a data folder: where a broker is at work in it, no further than that says."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from behaviour.host import config_for

from goqueue.broker.broker import Broker
from goqueue.model.publishing import NewMessage
from goqueue.spark.source.file_transport import FileTransport
from goqueue.spark.source.positions import Bounds, TopicPartition
from goqueue.spark.source.transports import BrokerTransport

T0 = TopicPartition("t", 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five messages."""

    async def fill() -> None:
        async with Broker(config_for(tmp_path)) as broker:
            await broker.create_topic("t", {"partitions": 1})
            await broker.publish("t", [NewMessage(b"%d" % number) for number in range(5)])

    asyncio.run(fill())
    return tmp_path


class _Partition:
    earliest_offset, latest_offset, stable_end, size_bytes = 2, 4, 3, 0


class _TopicInfo:
    """What a broker says of a log of which the first two messages have expired, the last one is not durable and the one
    before it lies in a transaction that is open."""

    def __init__(self, topic_id: str) -> None:
        self.id = topic_id
        self.partitions = [_Partition()]


def bounds(folder: Path, monkeypatch: pytest.MonkeyPatch, *, beside_a_broker: bool, uncommitted: bool) -> Bounds:
    topic_id = FileTransport(folder, None, uncommitted=False, fail_on_data_loss=True).bounds(["t"])[T0].topic_id
    monkeypatch.setattr(BrokerTransport, "describe", lambda transport, topic: _TopicInfo(topic_id))
    brokers = ("localhost:1",) if beside_a_broker else None
    return FileTransport(folder, brokers, uncommitted=uncommitted, fail_on_data_loss=True).bounds(["t"])[T0]


@pytest.mark.parametrize(("uncommitted", "end"), [(False, 3), (True, 4)])
def test_files_are_read_only_as_far_as_their_broker_shows_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch, uncommitted: bool, end: int
) -> None:
    found = bounds(folder, monkeypatch, beside_a_broker=True, uncommitted=uncommitted)
    assert (found.earliest, found.end) == (2, end)


@pytest.mark.parametrize("uncommitted", [False, True])
def test_files_that_nobody_uses_are_read_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch, uncommitted: bool
) -> None:
    found = bounds(folder, monkeypatch, beside_a_broker=False, uncommitted=uncommitted)
    assert (found.earliest, found.end) == (0, 5)
