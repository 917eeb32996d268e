"""How fast a backup of a running broker is taken, and how long publishers wait meanwhile.

A gigabyte lies in the broker. ``goqueue backup`` writes it to a file on the same disk, while a client publishes a
durable message every few milliseconds; the same client before, without a backup, is the measure.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import uvloop

from bench.child import environment
from bench.harness import (
    BrokerProcess,
    Measured,
    broker_process,
    fsync_ms,
    note,
    percentile,
    rounded,
    run_module,
    scratch_folder,
)
from bench.in_process_broker import TOPIC
from goqueue.client.async_client import AsyncClient

RATE, P99 = "backup_mb_per_s", "backup_publish_p99"
_BYTES = 1_000_000_000
_PARTITIONS = 30
_EVERY_S = 0.004
_QUIET_S = 5.0
_RUNS = 3
_PROBE = "probe"


def measure(_wanted: Collection[str]) -> dict[str, Measured]:
    with scratch_folder() as folder:
        note(f"writing {_BYTES / 1e9:g} GB to topic {TOPIC!r}")
        run_module("bench.startup_writer", folder / "data", _BYTES, _PARTITIONS, "close", status=0)
        before_ms = fsync_ms(folder)
        with broker_process(folder / "data") as broker:
            return uvloop.run(_measure(broker, folder, before_ms))


async def _measure(broker: BrokerProcess, folder: Path, disk_ms: float) -> dict[str, Measured]:
    rates, slow = [], []
    async with AsyncClient(broker.address) as client:
        await client.create_topic(_PROBE, partitions=1)
        async with client.producer() as producer:

            async def publish_until(done: asyncio.Future[Any]) -> list[float]:
                took = []
                while not done.done():
                    began = time.perf_counter()
                    await (await producer.send(_PROBE, b"x" * 100))
                    took.append((time.perf_counter() - began) * 1_000)
                    await asyncio.sleep(_EVERY_S)
                return took

            quiet = await publish_until(asyncio.ensure_future(asyncio.sleep(_QUIET_S)))
            for number in range(_RUNS):
                memory_kb = _memory_kb(broker)
                taking = asyncio.ensure_future(asyncio.to_thread(_backup, broker, folder / f"{number}.tar"))
                slow.append(await publish_until(taking))
                told = await taking
                rates.append(told["file_bytes"] / told["seconds"] / 1e6)
                note(f"run {number + 1} of {_RUNS}: {rounded(rates[-1])} MB/s, p99 {percentile(slow[-1], 0.99):.2f} ms")
                grown_kb = _memory_kb(broker) - memory_kb
                (folder / f"{number}.tar").unlink()
    details = {
        "gigabytes": _BYTES / 1e9,
        "partitions": _PARTITIONS,
        "quiet_p50_ms": rounded(percentile(quiet, 0.5)),
        "quiet_p99_ms": rounded(percentile(quiet, 0.99)),
        "p50_ms": rounded(percentile(slow[-1], 0.5)),
        "worst_ms": rounded(max(max(each) for each in slow)),
        "grown_mb": rounded(grown_kb / 1_000),
        "disk_fsync_ms": rounded(disk_ms),
    }
    return {RATE: Measured(rates, details), P99: Measured([percentile(each, 0.99) for each in slow], details)}


def _backup(broker: BrokerProcess, file: Path) -> dict[str, float]:
    server = f"http://{broker.host}:{broker.port}"
    command = (sys.executable, "-m", "goqueue", "backup", str(file), "--json", "--server", server)
    ended = subprocess.run(command, stdout=subprocess.PIPE, env=environment(), check=True)
    told: dict[str, float] = json.loads(ended.stdout)
    return told


def _memory_kb(broker: BrokerProcess) -> int:
    lines = Path(f"/proc/{broker.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
