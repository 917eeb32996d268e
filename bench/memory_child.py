"""Fills a broker, reads from it at random, and prints the most memory that this process ever had.

``python -m bench.memory_child FOLDER MESSAGES``
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path

import uvloop

from bench.in_process_broker import TOPIC, broker_over
from bench.own_memory import peak_bytes
from bench.workload import BATCH_MESSAGES, wire_batches
from goqueue.broker.broker import Broker
from goqueue.broker.partitions.read import Bounds
from goqueue.wire.batch import parse_batch

_PARTITIONS = 3
_BATCHES_PER_READ = 16
_FRAMES = Bounds(max_bytes=1 << 20)
_DECODED = Bounds(max_bytes=1 << 20, max_messages=1_000)
_SEED = 5


async def fill_and_read(folder: Path, messages: int) -> dict[str, int]:
    wires = wire_batches()
    chance = random.Random(_SEED)
    batches = messages // BATCH_MESSAGES
    before, reads = peak_bytes(), 0
    async with broker_over(folder / "data") as broker:
        await broker.create_topic(TOPIC, {"partitions": _PARTITIONS, "fsync": "interval"})
        for number in range(batches):
            await broker.publish_frames(TOPIC, number % _PARTITIONS, parse_batch(wires[number % len(wires)]))
            await asyncio.sleep(0)
            if number % _BATCHES_PER_READ == 0:
                await _read_somewhere(broker, chance)
                reads += 1
        log_bytes = sum(partition.log.size_bytes for partition in broker.topic(TOPIC).partitions)
    return {"peak_bytes": peak_bytes(), "before_bytes": before, "log_bytes": log_bytes, "reads": reads}


async def _read_somewhere(broker: Broker, chance: random.Random) -> None:
    number = chance.randrange(_PARTITIONS)
    offset = chance.randrange(broker.topic(TOPIC).partition(number).high_watermark + 1)
    await broker.read_frames(TOPIC, number, _FRAMES, offset=offset)
    await broker.read(TOPIC, number, _DECODED, offset=offset)


if __name__ == "__main__":
    print(json.dumps(uvloop.run(fill_and_read(Path(sys.argv[1]), int(sys.argv[2])))))
