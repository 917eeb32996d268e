"""Few delayed messages are looked up and ended one by one, many as columns: what comes of it is the same."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest
from behaviour.host import config_for
from doubles.loop import on_a_loop

from goqueue.broker.broker import Broker
from goqueue.broker.partitions.partition_delays import PartitionDelays
from goqueue.delivery import delay_index as delay_index_module
from goqueue.delivery.delay_index import PendingDelays


def numbers(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.int64)


@pytest.mark.parametrize("few", [0, 1, 8, 1_000])
@on_a_loop
async def test_the_same_wait_and_the_same_are_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    chance = Random(few)
    async with Broker(config_for(tmp_path)) as broker:
        await broker.create_topic("t", {"partitions": 1})
        partition = broker.topic("t").partitions[0]
        delays, expected = (
            PartitionDelays(partition.log, partition.producers, lambda: partition.durable_end),
            PendingDelays(),
        )
        end = 0
        for _ in range(60):
            size = chance.choice([1, 1, 2, 12])
            offsets = numbers(list(range(end, end + size)))
            dues = numbers([chance.randrange(1, 50) for _ in range(size)])
            end += size
            monkeypatch.setattr(delay_index_module, "_FEW", few)
            delays.added(offsets, dues)
            expected.add_many(offsets, dues)
            asked = numbers([chance.randrange(end + 3) for _ in range(chance.choice([0, 1, 5, 20]))])
            times = numbers([expected.due(offset) or chance.randrange(-1, 50) for offset in asked.tolist()])
            times[: len(times) // 3] = chance.randrange(-1, 50)
            are_due = delays.pending.is_due(asked, times).tolist()
            # Some are not there, and some are named twice.
            gone = numbers([chance.randrange(end + 3) for _ in range(chance.choice([0, 1, 3, 12]))])
            delays.ended(gone)
            monkeypatch.setattr(delay_index_module, "_FEW", -1)
            assert are_due == expected.is_due(asked, times).tolist()
            expected.remove_many(gone)
            assert len(delays) == len(expected)
            assert [each.tolist() for each in delays.pending.entries()] == [
                each.tolist() for each in expected.entries()
            ]
