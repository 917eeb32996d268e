"""Writes delayed messages, tells what each takes of memory, then closes the broker or kills its own process.

``python -m bench.delay_writer FOLDER MESSAGES close|kill``
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
from pathlib import Path

import uvloop

from bench.in_process_broker import TOPIC, broker_over
from bench.own_memory import resident_bytes
from bench.workload import BATCH_MESSAGES, wire_batches
from goqueue.wire.batch import parse_batch

_PARTITIONS = 3
_DAY_NS = 86_400 * 10**9


async def write(folder: Path, messages: int, *, kill: bool) -> None:
    async with broker_over(folder) as broker:
        await broker.create_topic(TOPIC, {"partitions": _PARTITIONS, "fsync": "interval"})
        now_ns = time.time_ns()
        warm = [parse_batch(wire) for wire in wire_batches()]
        for number in range(100):
            await broker.publish_frames(TOPIC, number % _PARTITIONS, warm[number % len(warm)])
        batches = [[parse_batch(wire) for wire in wire_batches(due_ns=now_ns + day * _DAY_NS)] for day in (1, 2, 5, 30)]
        gc.collect()
        before = resident_bytes()
        for number in range(messages // BATCH_MESSAGES):
            runs = batches[number % len(batches)]
            await broker.publish_frames(TOPIC, number % _PARTITIONS, runs[number % len(runs)])
        gc.collect()
        print(json.dumps({"bytes_per_message": (resident_bytes() - before) / messages}), flush=True)
        if kill:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    given, count, end = sys.argv[1:]
    uvloop.run(write(Path(given), int(count), kill=end == "kill"))
