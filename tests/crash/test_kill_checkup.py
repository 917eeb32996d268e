"""A broker that has everything to do, and what it would leave if it were killed at some instant: a check-up finds it
healthy, always.

``GOQUEUE_KILLS`` says at how many instants (8 unless told otherwise), ``GOQUEUE_SEED`` repeats the choices of a run.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from pathlib import Path
from random import Random

import pytest
from behaviour.process import BrokerProcess, broker_process
from behaviour.waiting import until
from doubles.backup_load import Load

from goqueue import AsyncClient
from goqueue.broker.checkup.folder_checkup import Checkup, CheckupOptions
from goqueue.storage.checkup.findings import Finding, Severity

KILLS = int(os.environ.get("GOQUEUE_KILLS", "8"))
PURGED = ("plain", "clicks", "later", "ledger", "unsynced")
BUSY = (
    "--set=storage.checkpoint_interval_ms=100",
    "--set=storage.cleanup_interval_ms=100",
    "--set=storage.compaction_min_dirty_ratio=0.1",
    "--set=topic.segment_bytes=65536",
)


def left_by(broker: BrokerProcess, copy: Path) -> Path:
    """What is there if it is killed now. It goes on afterwards."""
    broker.process.send_signal(signal.SIGSTOP)
    try:
        os.waitpid(broker.process.pid, os.WUNTRACED)
        return Path(shutil.copytree(broker.data, copy))
    finally:
        broker.process.send_signal(signal.SIGCONT)


def found_in(root: Path) -> list[Finding]:
    report = Checkup(root, CheckupOptions()).run()
    assert report.checked_bytes
    return [each for each in report.every_finding() if each.severity is not Severity.NOTE]


@pytest.mark.timeout(120 + 20 * KILLS)
def test_whatever_instant_a_broker_is_killed_at_its_folder_is_healthy(tmp_path: Path) -> None:
    seed = os.environ.get("GOQUEUE_SEED") or os.urandom(4).hex()
    print(f"GOQUEUE_SEED={seed}")  # noqa: T201
    rng = Random(seed)
    ending = asyncio.Event()
    found: list[Finding] = []

    async def purge(client: AsyncClient) -> None:
        while not ending.is_set():
            await client.purge_topic(rng.choice(PURGED))
            await asyncio.sleep(rng.random() * 0.1)

    async def load() -> None:
        port = broker.wait_for_event("listening")["grpc_port"]
        async with AsyncClient(f"127.0.0.1:{port}") as client:
            work = Load(client, Random(seed))
            async with work.running(), asyncio.TaskGroup() as tasks:
                tasks.create_task(purge(client))
                for number in range(KILLS):
                    acked, wanted = len(work.known.acked), rng.randint(1, 40)
                    await asyncio.to_thread(until, lambda: len(work.known.acked) >= acked + wanted, 120)  # noqa: B023
                    copy = await asyncio.to_thread(left_by, broker, tmp_path / f"{number}")
                    found.extend(await asyncio.to_thread(found_in, copy))
                    shutil.rmtree(copy)
                ending.set()

    with broker_process(tmp_path / "data", *BUSY) as broker:
        asyncio.run(load())
    assert found == []
