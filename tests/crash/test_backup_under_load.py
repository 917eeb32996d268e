"""Backups of a broker that has everything to do, again and again: each one is a whole broker of one instant."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import httpx
import pytest
from behaviour import process
from behaviour.process import BrokerProcess, broker_process
from behaviour.waiting import until
from doubles.backup_load import Copy, Known, Load
from doubles.effort import THOROUGH
from typer.testing import CliRunner

from goqueue import AsyncClient
from goqueue.api.grpc.server import GrpcServer
from goqueue.broker.broker import Broker
from goqueue.cli.app import app
from goqueue.model.config import Config, GrpcConfig, StorageConfig

BACKUPS = 20 if THOROUGH else 3
BETWEEN_S = 1.0
AT_WORK = {"compacted", "retention removes messages", "topic deleted"}
"""What a broker tells once everything that a backup may meet is going on."""
LATE = {"goqueue.client", "goqueue.broker.groups.membership"}
"""On a slow machine clients may be late with an ack, and the members of before are missed."""
BUSY = (
    "--set=storage.checkpoint_interval_ms=100",
    "--set=storage.cleanup_interval_ms=100",
    "--set=storage.compaction_min_dirty_ratio=0.1",
    "--set=topic.segment_bytes=65536",
)
OFTEN = """
from goqueue.broker.runtime.journal import Journal
assert isinstance(Journal.snapshot_due, property)
Journal.snapshot_due = property(lambda self: self.log.durable_offset - self._snapshot_at >= 50)
from goqueue.cli.main import main
main()
"""


def take(broker: BrokerProcess, file: Path) -> None:
    command = [sys.executable, "-m", "goqueue", "backup", str(file), "--server", broker.url]
    taken = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert taken.returncode == 0, taken.stderr


def client_of(broker: BrokerProcess) -> AsyncClient:
    return AsyncClient(f"127.0.0.1:{broker.wait_for_event('listening')['grpc_port']}")


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots of journals are taken all the time, so that backups meet them."""
    monkeypatch.setattr(process, "COMMAND", (sys.executable, "-c", OFTEN, "serve"))


@pytest.mark.usefixtures("often")
@pytest.mark.timeout(600)
def test_every_backup_is_the_whole_broker_at_one_instant(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    seed = os.environ.get("GOQUEUE_SEED") or os.urandom(4).hex()
    print(f"GOQUEUE_SEED={seed}")  # noqa: T201
    taken: list[tuple[Path, Known, Known]] = []

    async def load() -> None:
        async with client_of(broker) as client:
            work = Load(client, Random(seed))
            async with work.running():
                await asyncio.to_thread(until, lambda: is_at_work(broker, work), 120)
                for number in range(BACKUPS):
                    acked = len(work.known.acked)
                    await asyncio.sleep(BETWEEN_S)
                    await asyncio.to_thread(until, lambda: len(work.known.acked) > acked, 120)  # noqa: B023
                    before, file = work.known.copy(), tmp_path / f"{number}.tar"
                    await asyncio.to_thread(take, broker, file)
                    taken.append((file, before, work.known.copy()))

    with broker_process(tmp_path / "data", *BUSY) as broker:
        asyncio.run(load())
        # The broker tidies up when the client has everything.
        until(lambda: names_of_events(broker).count("backup ended") == BACKUPS)
        until(lambda: not (tmp_path / "data" / "backup-links").exists())
        assert "upkeep failed, it will be tried again" not in names_of_events(broker)
    assert len({len(before.acked) for _, before, _ in taken}) == BACKUPS

    caplog.set_level(logging.WARNING)
    for file, before, after in taken:
        asyncio.run(check(restored(file, tmp_path / file.stem), before, after))
    said = [record.getMessage() for record in caplog.records if not record.name.startswith(tuple(LATE))]
    assert said == []


def names_of_events(broker: BrokerProcess) -> list[str]:
    return [event["event"] for event in broker.events()]


def is_at_work(broker: BrokerProcess, work: Load) -> bool:
    snapshots = broker.data / "snapshots"
    seen = set(names_of_events(broker)) >= AT_WORK and snapshots.exists() and any(snapshots.iterdir())
    return seen and work.deleted_topics > 5


def restored(file: Path, data: Path) -> Path:
    made = CliRunner().invoke(app, ["restore", str(file), str(data)])
    assert made.exit_code == 0, made.output
    return data


async def check(data: Path, before: Known, after: Known) -> None:
    """Start a broker on it, and see what clients find."""
    config = Config(storage=StorageConfig(path=str(data), min_free_bytes=0), grpc=GrpcConfig(port=0))
    async with Broker(config) as broker:
        assert broker.damage() == []
        server = GrpcServer(broker.operations, config.grpc)
        server.bind()
        await server.start()
        try:
            async with AsyncClient(f"127.0.0.1:{server.port}") as client:
                await Copy(client, before, after).check()
        finally:
            server.leave()
            await server.stop(1)


def fill(client: httpx.Client) -> None:
    """40 MB, so that a backup is not over when its first piece is there."""
    client.post("/topics", json={"name": "big", "settings": {"partitions": 1}}).raise_for_status()
    for _ in range(20):
        messages = [{"value": "x" * 100_000}] * 20
        client.post("/topics/big/messages", json={"messages": messages}).raise_for_status()


def test_links_do_not_outlive_the_client_nor_a_killed_broker(tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "cut.tar"
    links = data / "backup-links"
    with broker_process(data) as broker, broker.client() as client:
        fill(client)
        with broker.client() as leaving, leaving.stream("GET", "/admin/backup") as answer:
            # Kept: an iterator that goes closes the connection.
            pieces = answer.iter_raw()
            next(pieces)
            assert list(links.iterdir()), "there is nothing to leave behind"
            refused = client.get("/admin/backup")
            assert (refused.status_code, refused.json()["code"]) == (409, "backup_underway")
        until(lambda: not links.exists(), 60)
        with client.stream("GET", "/admin/backup") as answer, file.open("wb") as output:
            pieces = answer.iter_raw()
            output.write(next(pieces))
            broker.kill()
            with pytest.raises(httpx.TransportError):
                for piece in pieces:
                    output.write(piece)
    assert list(links.iterdir())
    refused_file = CliRunner().invoke(app, ["restore", str(file), str(tmp_path / "restored")])
    assert refused_file.exit_code == 1
    assert "breaks off" in refused_file.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut.tar", "data"]
    with broker_process(data) as broker, broker.client() as client:
        assert not links.exists()
        assert client.get("/topics/big").json()["total_messages"] == 400
        # One who asked for a backup and takes nothing of it does not keep a broker from stopping.
        with broker.client() as idle, idle.stream("GET", "/admin/backup"):
            assert list(links.iterdir())
            assert broker.stop() == 0
        assert not links.exists()
