"""What is damaged or gone is never passed over without a word."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from behaviour.host import config_for

from goqueue.broker.broker import Broker
from goqueue.broker.partitions.read import Bounds
from goqueue.model.errors import CorruptData
from goqueue.model.publishing import NewMessage

EVERYTHING = Bounds(1 << 24)


def run(root: Path, work: Callable[[Broker], Awaitable[None]]) -> None:
    async def inside() -> None:
        async with Broker(config_for(root)) as broker:
            await work(broker)

    asyncio.run(inside())


def filled(root: Path, messages: int = 400) -> list[Path]:
    """A stopped broker's topic of several segments; its log files in order."""

    async def work(broker: Broker) -> None:
        await broker.create_topic("t", {"partitions": 1, "segment_bytes": "64KiB"})
        for number in range(messages):
            await broker.publish("t", [NewMessage(b"%04d" % number + b"x" * 996)])

    run(root, work)
    return sorted(root.glob("logs/t~*/0/*.log"))


def test_a_damaged_message_is_left_out_named_and_remembered(tmp_path: Path) -> None:
    path = filled(tmp_path)[0]
    data = bytearray(path.read_bytes())
    at = data.index(b"0005")
    data[at] ^= 1
    path.write_bytes(bytes(data))

    async def work(broker: Broker) -> None:
        for _ in range(3):
            read = await broker.read("t", 0, Bounds(1 << 20, 10))
            assert read.damaged == [5]
            assert [message.offset for message in read.messages] == [0, 1, 2, 3, 4, 6, 7, 8, 9]
        assert broker.damage() == ["t/0: offset 5 fails its checksum"]

    run(tmp_path, work)


@pytest.mark.parametrize("place", [0, 2, -1])
def test_a_segment_that_is_gone_is_reported(tmp_path: Path, place: int, caplog: pytest.LogCaptureFixture) -> None:
    logs = filled(tmp_path)
    assert len(logs) > 4
    logs[place].unlink()

    async def work(broker: Broker) -> None:
        assert len(broker.damage()) == 1
        assert "gone" in broker.damage()[0]
        read = await broker.read("t", 0, EVERYTHING)
        assert 0 < len(read.messages) < 400
        await broker.publish("t", [NewMessage(b"next")])
        assert broker.topic("t").partitions[0].high_watermark == 401

    run(tmp_path, work)
    assert "messages are missing" in caplog.text


def test_a_whole_log_is_not_reported(tmp_path: Path) -> None:
    filled(tmp_path)

    async def work(broker: Broker) -> None:
        assert broker.damage() == []
        await broker.create_topic("never-written", {"partitions": 3})
        await broker.change_topic("t", {"retention_bytes": "1MiB"})
        await broker._upkeep.expire()
        broker.topic("t").partitions[0].log.roll()

    run(tmp_path, work)

    async def again(broker: Broker) -> None:
        assert broker.damage() == []

    run(tmp_path, again)


def test_a_broker_without_its_metadata_does_not_take_topics_for_strangers(tmp_path: Path) -> None:
    logs = filled(tmp_path)
    for path in (tmp_path / "logs" / "__metadata" / "0").iterdir():
        path.unlink()
    with pytest.raises(CorruptData, match="backup"):
        asyncio.run(Broker(config_for(tmp_path)).start())
    assert all(path.exists() for path in logs)


def test_a_publish_to_very_many_partitions_lets_others_in_between(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        await broker.create_topic("wide", {"partitions": 400})
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        watching = asyncio.create_task(others())
        await broker.publish("wide", [NewMessage(b"v", partition=number) for number in range(400)])
        watching.cancel()
        assert turns >= 40

    run(tmp_path, work)
