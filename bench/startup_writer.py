"""Spreads messages over a topic's partitions, then closes the broker or kills its own process.

``python -m bench.startup_writer FOLDER BYTES PARTITIONS close|kill``
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import uvloop

from bench.in_process_broker import TOPIC, broker_over
from bench.workload import wire_batches
from goqueue.broker.broker import Broker
from goqueue.wire.batch import parse_batch

_LONGEST_CHECKPOINT_INTERVAL_MS = 3_600_000


async def write(folder: Path, size_bytes: int, partitions: int, *, kill: bool) -> None:
    broker = broker_over(folder, checkpoint_interval_ms=_LONGEST_CHECKPOINT_INTERVAL_MS)
    async with broker:
        if TOPIC not in broker.topic_names():
            await broker.create_topic(TOPIC, {"partitions": partitions, "fsync": "interval"})
        written = await _fill(broker, size_bytes // partitions, partitions)
        print(json.dumps({"written_bytes": written}), flush=True)
        if kill:
            os.kill(os.getpid(), signal.SIGKILL)


async def _fill(broker: Broker, bytes_each: int, partitions: int) -> int:
    runs = [parse_batch(wire) for wire in wire_batches()]
    written = 0
    for partition in range(partitions):
        while written < (partition + 1) * bytes_each:
            run = runs[written % len(runs)]
            await broker.publish_frames(TOPIC, partition, run)
            written += len(run.frames)
    return written


if __name__ == "__main__":
    uvloop.run(write(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), kill=sys.argv[4] == "kill"))
