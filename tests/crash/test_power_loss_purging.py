"""What a purge has removed stays removed after a power loss at any call, and what came later stays."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from random import Random

import pytest
from doubles.group_scripts import started
from doubles.inline import InlineExecutor
from doubles.ledger import Broken
from doubles.power_loss import PowerLossDisk
from doubles.wait_sites import without

import goqueue.storage.log.group_commit
from goqueue.broker.broker import Broker
from goqueue.broker.partitions.read import Bounds
from goqueue.broker.runtime.checkpoints import Checkpoints
from goqueue.model.publish_result import Published
from goqueue.model.publishing import NewMessage
from goqueue.storage.log.recoverable import Recoverable

ALL = Bounds(1 << 20, 1_000)
VALUE = b"x" * 20_000


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Many recoveries report what they find; nothing is up to threads."""
    monkeypatch.setattr(goqueue.storage.log.group_commit, "ThreadPoolExecutor", lambda *_, **__: InlineExecutor())
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class Life:
    """A broker, what it has answered, and what a power loss would have left at every call."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.disk = PowerLossDisk()
        self.stored: set[int] = set()
        self.earliest = 0
        self.waiting = 0
        self.left: list[tuple[PowerLossDisk, set[int], int, int]] = []

    def _put_aside(self) -> None:
        self.left.append((self.disk.crash(self.rng), set(self.stored), self.earliest, self.waiting))

    async def live(self, fsync: str) -> None:
        broker = await started(self.disk)
        await broker.create_topic("t", {"partitions": 1, "segment_bytes": "64KiB", "fsync": fsync})
        self.disk.before_call = self._put_aside
        await self._publish(broker, 8)
        await self._purge(broker)
        await self._publish(broker, 3)
        await broker.publish("t", [NewMessage(b"later", partition=0, delay_ms=86_400_000)])
        self.waiting = 1 if fsync == "always" else 0
        await self._purge(broker)
        self.waiting = 1
        await self._publish(broker, 5)
        await asyncio.gather(self._purge(broker), self._publish(broker, 2))
        self.disk.before_call = lambda: None
        await broker.close()

    async def _publish(self, broker: Broker, count: int) -> None:
        for _ in range(count):
            (stored,) = await broker.publish("t", [NewMessage(VALUE, partition=0)])
            assert isinstance(stored, Published)
            if broker.topic("t").settings.fsync == "always":
                self.stored.add(stored.offset)

    async def _purge(self, broker: Broker) -> None:
        # From here on they may be gone; once it is answered they are.
        end = broker.topic("t").partitions[0].stable_end
        self.stored = {offset for offset in self.stored if offset >= end}
        (purged,) = await broker.purge_topic("t")
        self.earliest = purged.earliest

    async def check(self) -> None:
        for disk, stored, earliest, waiting in self.left:
            broker = await started(disk)
            try:
                if broker.damage():
                    raise Broken(f"a power loss looks like damage: {broker.damage()}")
                start = broker.topic("t").partitions[0].log.start_offset
                if start < earliest:
                    raise Broken(f"it began at {earliest}, and begins at {start}")
                found = {message.offset for message in (await broker.read("t", 0, ALL)).messages}
                if stored - found:
                    raise Broken(f"{sorted(stored - found)} are gone")
                if broker.delays.pending < waiting:
                    raise Broken("a delayed message is gone")
            finally:
                await broker.close()


def lived(seed: int, fsync: str) -> Life:
    life = Life(seed)
    asyncio.run(life.live(fsync))
    asyncio.run(life.check())
    return life


@pytest.mark.parametrize("fsync", ["always", "interval"])
@pytest.mark.parametrize("seed", range(2))
def test_what_was_purged_stays_so_after_a_power_loss_at_any_call(seed: int, fsync: str) -> None:
    assert len(lived(seed, fsync).left) >= 20


@pytest.fixture
def no_points(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Recovery points are never written while a broker lives: a start goes by what shards have journaled."""
    save = Checkpoints.save

    async def pretend(checkpoints: Checkpoints, recoverables: list[Recoverable]) -> None:
        """As ``save`` does it, only that nothing is written."""
        for each in recoverables:
            checkpoints.points[checkpoints._name(each.log.folder)] = each.recovery_point()

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "save", pretend)
        yield
    assert Checkpoints.save is save


@pytest.mark.parametrize("fsync", ["always", "interval"])
@pytest.mark.usefixtures("no_points")
def test_what_was_purged_stays_so_by_the_journals_of_shards_alone(fsync: str) -> None:
    lived(0, fsync)


@pytest.mark.parametrize("wait", ["await all_settled", "durable"])
@pytest.mark.usefixtures("no_points")
def test_it_would_come_back_if_nobody_waited_for_the_disk(wait: str) -> None:
    with without(f"broker/shards/start_moves.py  note_starts  {wait}  1"), pytest.raises(Broken):
        for seed in range(10):
            lived(seed, "interval")
