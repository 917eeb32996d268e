"""Whatever is published to a topic with a schema, however costly: everyone else goes on."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from doubles.loop import on_a_loop

from goqueue.broker.broker import Broker
from goqueue.broker.registry.schema_draft import SchemaDraft
from goqueue.model.config import Config, StorageConfig
from goqueue.model.publish_result import Published
from goqueue.model.publishing import NewMessage

MOST_STALL_S = 0.5
"""Far more than is allowed, for machines that have other work, and far less than it was without bounds."""
ATTEMPTS = 4


def alternatives() -> str:
    return json.dumps({"type": "array", "items": {"anyOf": [{"const": f"x{number}"} for number in range(900)]}})


def divisors() -> str:
    return json.dumps({"type": "array", "items": {"allOf": [{"multipleOf": 1.5} for _ in range(900)]}})


def chain() -> str:
    """Each record of one field, which is the one before."""
    kinds: list[Any] = [
        {"type": "record", "name": f"R{at}", "fields": [{"name": "f", "type": f"R{at - 1}" if at else "int"}]}
        for at in range(100)
    ]
    fields = [{"name": f"x{at}", "type": ["null", each]} for at, each in enumerate(kinds)]
    fields.append({"name": "all", "type": {"type": "array", "items": "R99"}})
    return json.dumps({"type": "record", "name": "T", "fields": fields})


def wide(label: str, count: int) -> str:
    fields = "".join(f"{label} string {'x' * 50}{at} = {at};" for at in range(1, count + 1))
    return 'syntax = "proto2"; message A { repeated B b = 1; } message B { ' + fields + "}"


HEAD = b"\x00" * 100 + b"\xd0\x0f"
ITEMS = b"\x00" * 1_000
HOSTILE = {
    "JSON with many alternatives": (
        "JSON", alternatives(),
        [json.dumps(["x899"] * count).encode() for count in (10, 1_000, 6_000, 100_000)] + [b'["y"]'],
    ),
    "JSON with many divisors": ("JSON", divisors(), [json.dumps([3] * count).encode() for count in (1, 300, 250_000)]),
    "Avro with many records in one another": (
        "AVRO", chain(), [HEAD + ITEMS + b"\x00", HEAD + ITEMS + b"\x00x", HEAD + ITEMS * 30, HEAD + ITEMS * 900],
    ),
    "Protobuf that misses many fields": ("PROTOBUF", wide("required", 60), [b"\x0a\x00" * 10, b"\x0a\x00" * 100_000]),
    "Protobuf with many fields": ("PROTOBUF", wide("optional", 4_000), [b"\x0a\x00" * 10, b"\x0a\x00" * 400_000]),
}  # fmt: skip


async def longest_stall_s(broker: Broker, values: list[bytes]) -> float:
    """How long the loop was away at most while these were published, each alone and then together."""
    longest = 0.0

    async def look() -> None:
        nonlocal longest
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - before)

    looking = asyncio.create_task(look())
    try:
        for each in values:
            await broker.publish("t", [NewMessage(each, partition=0)])
        outcomes = await broker.publish("t", [NewMessage(each, partition=0) for each in values * 3])
    finally:
        looking.cancel()
    assert [isinstance(each, Published) for each in outcomes][len(values) - 1] is False
    return longest


@pytest.mark.parametrize("name", HOSTILE)
@on_a_loop
async def test_a_hostile_value_does_not_hold_up_the_broker(tmp_path: Path, name: str) -> None:
    kind, text, values = HOSTILE[name]
    async with Broker(Config(storage=StorageConfig(path=str(tmp_path), min_free_bytes=0))) as broker:
        await broker.schemas.register("t-value", SchemaDraft(text, kind))
        await broker.create_topic("t", {"partitions": 1, "schema_validation": "on", "max_message_bytes": 2 << 20})
        await broker.publish("t", [NewMessage(values[0], partition=0)])
        stalls: list[float] = []
        # Others may use the cores for a while; a value that is not bounded is so each time.
        while len(stalls) < ATTEMPTS and (not stalls or min(stalls) >= MOST_STALL_S):
            stalls.append(await longest_stall_s(broker, values))
        assert min(stalls) < MOST_STALL_S
