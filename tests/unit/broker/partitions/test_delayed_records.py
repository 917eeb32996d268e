"""Originals of delayed messages: whether they are checked one by one or by columns, the same ones are found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from behaviour.host import config_for
from doubles.loop import on_a_loop

from goqueue.broker.broker import Broker
from goqueue.broker.partitions import delayed_records as originals_module
from goqueue.broker.partitions.delayed_records import read_delayed_records
from goqueue.broker.partitions.partition import Partition
from goqueue.model.publishing import NewMessage

HOUR_MS = 3_600_000
COUNT = 6
FRAME_BYTES = 100 + 34 + 2 + 26
CHECKSUM_AT, OFFSET_AT, FLAGS_AGAIN_AT, VALUE_AT = 4, 15, 25, 40


def change(data: bytearray, place: int, at: int) -> None:
    data[place * FRAME_BYTES + at] ^= 0x40


DAMAGES: dict[str, tuple[Callable[[bytearray], None], set[int]]] = {
    "none": (lambda data: None, set()),
    "magic": (lambda data: change(data, 0, 0), {0}),
    "version": (lambda data: change(data, 2, 2), {2}),
    "checksum": (lambda data: change(data, 3, CHECKSUM_AT), {3}),
    "offset": (lambda data: change(data, 4, OFFSET_AT), {4}),
    "flags again": (lambda data: change(data, 1, FLAGS_AGAIN_AT), {1}),
    "value": (lambda data: change(data, COUNT - 1, VALUE_AT), {COUNT - 1}),
}


def damaged(root: Path, damage: Callable[[bytearray], None]) -> bytearray:
    """Change what lies in the only log; what lies there then."""
    [path] = root.glob("logs/t~*/0/*.log")
    data = bytearray(path.read_bytes())
    assert len(data) == COUNT * FRAME_BYTES
    damage(data)
    with path.open("r+b") as file:
        file.write(data)
    return data


async def found_in(partition: Partition, wanted: list[int]) -> dict[int, bytes]:
    found, looked = await read_delayed_records(partition, wanted, 1 << 20)
    assert looked == len(wanted)
    return {offset: bytes(frame) for offset, frame in found.items()}


@pytest.mark.parametrize("few", [0, 32])
@pytest.mark.parametrize("kind", list(DAMAGES))
@on_a_loop
async def test_what_is_damaged_is_not_found_and_the_rest_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, few: int
) -> None:
    monkeypatch.setattr(originals_module, "_FEW", few)
    damage, expected_lost = DAMAGES[kind]
    async with Broker(config_for(tmp_path)) as broker:
        await broker.create_topic("t", {"partitions": 1})
        for number in range(COUNT):
            await broker.publish("t", [NewMessage(b"%d" % number + bytes(99), delay_ms=HOUR_MS)])
        partition = broker.topic("t").partitions[0]
        data = damaged(tmp_path, damage)
        found = await found_in(partition, list(range(COUNT)))
        assert set(found) == set(range(COUNT)) - expected_lost
        assert all(frame == data[offset * FRAME_BYTES :][:FRAME_BYTES] for offset, frame in found.items())
        assert partition.damaged == expected_lost


@pytest.mark.parametrize("few", [0, 32])
@on_a_loop
async def test_only_what_is_asked_for_and_delayed_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(originals_module, "_FEW", few)
    async with Broker(config_for(tmp_path)) as broker:
        await broker.create_topic("t", {"partitions": 1})
        for number in range(COUNT):
            await broker.publish("t", [NewMessage(b"v", delay_ms=0 if number == 2 else HOUR_MS)])
        partition = broker.topic("t").partitions[0]
        assert set(await found_in(partition, [1, 2, 4])) == {1, 4}
