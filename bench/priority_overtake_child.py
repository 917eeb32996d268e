"""Publishes critical messages behind a large background backlog and times the polls that bring them.

``python -m bench.priority_overtake_child FOLDER BACKLOG``
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from statistics import median

import uvloop

from bench.in_process_broker import TOPIC, broker_over
from bench.queue_under_test import fill, join, poll
from bench.report import note
from goqueue.broker.broker import Broker
from goqueue.model.message import Priority
from goqueue.model.publishing import NewMessage

_PARTITIONS = 3
_POLL = 100
_ROUNDS = 5
_TRIES = 50


async def measure(folder: Path, backlog: int) -> dict[str, object]:
    async with broker_over(folder / "data") as broker:
        await broker.create_topic(TOPIC, {"partitions": _PARTITIONS, "fsync": "interval"})
        note(f"writing {backlog:,} background messages")
        await fill(broker, backlog, _PARTITIONS, (Priority.BACKGROUND,))
    # A fresh start: nothing is in memory that was learnt while writing.
    async with broker_over(folder / "data") as broker:
        member = await join(broker, "overtaken")
        first_ms = await _overtake(broker, member)
        rounds = [[await _overtake(broker, member) for _ in range(_TRIES)] for _ in range(_ROUNDS)]
    return {
        "first_ms": first_ms,
        "worst_ms": [max(each) for each in rounds],
        "median_ms": [median(each) for each in rounds],
    }


async def _overtake(broker: Broker, member: str) -> float:
    """From the acknowledged publish to the answer of the next poll, which must begin with the message."""
    await broker.publish(TOPIC, [NewMessage(b"now", priority=Priority.CRITICAL)])
    started = time.perf_counter()
    found = await poll(broker, "overtaken", member, _POLL)
    took_ms = (time.perf_counter() - started) * 1_000
    if int(found[0].run.columns()["priority"][0]) != Priority.CRITICAL:
        raise RuntimeError("the critical message is not in the next poll's answer")
    return took_ms


if __name__ == "__main__":
    print(json.dumps(uvloop.run(measure(Path(sys.argv[1]), int(sys.argv[2])))))
