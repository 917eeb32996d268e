"""Polls a small queue and a very large one, and prints how long each took and what in-flight messages cost.

``python -m bench.queue_growth_child FOLDER BACKLOG GROUPS IN_FLIGHT``
"""

from __future__ import annotations

import gc
import json
import sys
import time
from pathlib import Path
from statistics import median

import uvloop

from bench.in_process_broker import TOPIC, broker_over
from bench.own_memory import resident_bytes
from bench.queue_under_test import ack, fill, join, poll
from bench.report import note
from goqueue.broker.broker import Broker

_PARTITIONS = 3
_POLL = 100
_SMALL = 200_000
_POLLS = 300
_ROUNDS = 3


async def _poll_ms(broker: Broker, group: str, member: str) -> float:
    """The median of many polls; what they bring is acked, so that nothing piles up meanwhile."""
    found = []
    for _ in range(_POLLS):
        started = time.perf_counter()
        messages = await poll(broker, group, member, _POLL)
        found.append((time.perf_counter() - started) * 1_000)
        await ack(broker, group, messages)
    return median(found)


async def measure(folder: Path, backlog: int, groups: int, in_flight: int) -> dict[str, object]:
    async with broker_over(folder / "data") as broker:
        await broker.create_topic(TOPIC, {"partitions": _PARTITIONS, "fsync": "interval"})
        await fill(broker, _SMALL, _PARTITIONS)
        member = await join(broker, "small")
        await _poll_ms(broker, "small", member)
        before = [await _poll_ms(broker, "small", member) for _ in range(_ROUNDS)]
        note(f"writing {backlog:,} messages")
        await fill(broker, backlog, _PARTITIONS)
        members = {f"group-{number}": await join(broker, f"group-{number}") for number in range(groups)}
        gc.collect()
        empty_bytes = resident_bytes()
        note(f"{in_flight:,} messages in flight over {groups} groups")
        for group, each in members.items():
            for _ in range(in_flight // groups // _POLL):
                await poll(broker, group, each, _POLL)
        gc.collect()
        flying_bytes = resident_bytes() - empty_bytes
        after = [await _poll_ms(broker, "group-0", members["group-0"]) for _ in range(_ROUNDS)]
        singles = await _single_bytes(broker)
    return {
        "before_ms": before,
        "after_ms": after,
        "bytes_per_message": flying_bytes / in_flight,
        "bytes_per_message_polled_alone": singles,
    }


async def _single_bytes(broker: Broker, messages: int = 20_000) -> float:
    """The worst case: every message has a lease of its own."""
    member = await join(broker, "singles")
    gc.collect()
    before = resident_bytes()
    for _ in range(messages):
        await poll(broker, "singles", member, 1)
    gc.collect()
    return (resident_bytes() - before) / messages


if __name__ == "__main__":
    folder, *numbers = sys.argv[1:]
    print(json.dumps(uvloop.run(measure(Path(folder), *map(int, numbers)))))
