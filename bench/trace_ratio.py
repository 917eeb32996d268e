"""What tracing every message costs: the processor time of a broker that traces nothing over that of one that does.

Two brokers do the same work in turn, A B B A, so that whatever else the machine does falls on both. Each turn is
followed by a pause in which the traces that are still in memory are written, and this counts, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path

import uvloop

from bench.client_under_test import TOPIC, ClientUnderTest
from bench.harness import Measured, broker_process, note, rounded, scratch_folder
from bench.queue_roundtrip import consume
from bench.workload import BATCH_MESSAGES, VALUE_BYTES, byte_batches
from goqueue.client.async_client import AsyncClient

PUBLISH, QUEUE = "trace_ratio", "trace_ratio_queue"
_MESSAGES = {PUBLISH: 500_000, QUEUE: 100_000}
_PAIRS = 8
_FLUSH_S = 0.5
_SIDES = {"off": "trace.sampling=0", "on": "trace.sampling=1"}

Turn = Callable[[ClientUnderTest, int], Awaitable[None]]


def measure(wanted: Collection[str]) -> Mapping[str, Measured]:
    turns: dict[str, Turn] = {PUBLISH: _publish, QUEUE: _round_trip}
    with scratch_folder() as folder:
        return {name: _compare(name, turn, folder / name) for name, turn in turns.items() if name in wanted}


def _compare(name: str, turn: Turn, folder: Path) -> Measured:
    with (
        broker_process(folder / "off", "--set", _SIDES["off"]) as off,
        broker_process(folder / "on", "--set", _SIDES["on"]) as on,
    ):
        used: dict[str, list[float]] = {"off": [], "on": []}

        async def run() -> None:
            async with AsyncClient(off.address) as first, AsyncClient(on.address) as second:
                sides = {"off": ClientUnderTest(first, off), "on": ClientUnderTest(second, on)}
                for under in sides.values():
                    await under.client.create_topic(TOPIC, partitions=3, fsync="interval")
                    await turn(under, -1)
                for number in range(_PAIRS):
                    for side in ("off", "on") if number % 2 else ("on", "off"):
                        before_s = sides[side].broker.cpu_s()
                        await turn(sides[side], number)
                        await asyncio.sleep(_FLUSH_S)
                        used[side].append(sides[side].broker.cpu_s() - before_s)
                    note(
                        f"{name}: pair {number + 1} of {_PAIRS}: {used['off'][-1]:.2f} s off, {used['on'][-1]:.2f} s on"
                    )

        uvloop.run(run())
        traces = on.request("GET", "/traces/stats")
    ratios = [without / traced for without, traced in zip(used["off"], used["on"], strict=True)]
    return Measured(
        ratios,
        {
            "messages_per_turn": _MESSAGES[name],
            "batch_messages": BATCH_MESSAGES,
            "value_bytes": VALUE_BYTES,
            "ratio_of_sums": rounded(sum(used["off"]) / sum(used["on"])),
            "broker_cpu_s": {side: rounded(sum(found)) for side, found in used.items()},
            "trace_events": traces["events_total"],
            "trace_file_bytes": traces["file_bytes"],
        },
    )


async def _publish(under: ClientUnderTest, _number: int) -> None:
    batches = byte_batches()
    async with under.client.producer(acks="leader") as producer:
        for number in range(_MESSAGES[PUBLISH] // BATCH_MESSAGES):
            await producer.send_many(TOPIC, batches[number % len(batches)])


async def _round_trip(under: ClientUnderTest, number: int) -> None:
    """Publish to a topic of its own, poll and ack all of it."""
    topic = f"{TOPIC}-{number + 1}"
    await under.client.create_topic(topic, partitions=3, fsync="interval")
    batches = byte_batches()
    async with under.client.producer(acks="leader") as producer:
        for batch in range(_MESSAGES[QUEUE] // BATCH_MESSAGES):
            await producer.send_many(topic, batches[batch % len(batches)])
    await consume(under, f"group-{number + 1}", _MESSAGES[QUEUE], topic)
