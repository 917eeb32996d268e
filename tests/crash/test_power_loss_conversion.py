"""Folders of earlier versions are converted whole, whenever the power is cut meanwhile (rule 4)."""

from __future__ import annotations

import asyncio
import json
import logging
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from behaviour.clock import ManualClock
from behaviour.earlier_folders.make import TOLD
from doubles.effort import THOROUGH
from doubles.inline import InlineExecutor
from doubles.power_loss import PowerLoss, PowerLossDisk

import goqueue.storage.log.group_commit
from goqueue.broker.broker import Broker
from goqueue.broker.groups.group_offsets import PartitionLag
from goqueue.model.config import Config, StorageConfig
from goqueue.model.errors import CorruptData, StorageFailed
from goqueue.storage.files.atomic import write_atomically

ARCHIVES = Path(__file__).parents[1] / "behaviour" / "earlier_folders"
ROOT = Path("/srv/goqueue")
GROUPS = ROOT / "logs" / "__groups"
TRANSACTIONS = ROOT / "logs" / "__transactions"
EARLIER = {3: [GROUPS, TRANSACTIONS], 4: [TRANSACTIONS]}
"""By format, the journals that are converted."""
EARLIER_SNAPSHOTS = [ROOT / "snapshots" / "__groups-0", ROOT / "snapshots" / "__transactions"]
CONFIG = Config(storage=StorageConfig(path=str(ROOT), min_free_bytes=0))
STEP = 1 if THOROUGH else 3


@pytest.fixture(autouse=True)
def _inline(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What threads do is done at once, so that every run makes the same calls; hundreds of starts report nothing."""
    monkeypatch.setattr(goqueue.storage.log.group_commit, "ThreadPoolExecutor", lambda *_, **__: InlineExecutor())
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def kept_folder(version: int = 3) -> tuple[PowerLossDisk, ManualClock]:
    """The folder as its broker left it, all of it on the disk, and the time at which it was made."""
    disk, clock = PowerLossDisk(), ManualClock()
    folders = {ROOT, *ROOT.parents}
    with tarfile.open(ARCHIVES / f"format-{version}.tar.gz") as archive:
        for member in archive:
            content = archive.extractfile(member)
            if member.name == TOLD and content is not None:
                clock = ManualClock(int((json.load(content)["made_at_s"] + 1) * 1_000_000_000))
            elif member.name.startswith("data"):
                path = ROOT / Path(member.name).relative_to("data")
                folders.add(path.parent)
                if content is None:
                    disk.make_dirs(path)
                else:
                    file = disk.open(path, create=True)
                    file.write(0, content.read())
                    file.sync()
    # Of journals that have nothing but a snapshot: it must not come back when it is removed.
    for path in EARLIER_SNAPSHOTS:
        write_atomically(disk, path, b'{"begin": 0, "end": 0, "parts": []}')
    for folder in sorted(folders):
        disk.sync_dir(folder)
    return disk, clock


@dataclass(frozen=True)
class Known:
    """What is known in a folder after a start."""

    groups: dict[str, list[PartitionLag]]
    prepared: list[str]
    producers: dict[str, tuple[int, int]]
    keys: list[str]


def started(disk: PowerLossDisk, clock: ManualClock) -> Known:
    async def run() -> Known:
        broker = Broker(CONFIG, files=disk, clock=clock)
        await broker.start()
        states = [each.state for each in broker.transactions.coordinators.serving]
        producers = {
            name: (each.producer_id, each.epoch) for one in states for name, each in one.producers() if name != "later"
        }
        found = Known(
            {name: broker.groups.offsets.lag(name) for name in broker.groups.shards.names() if name != "later"},
            sorted(each.transaction_id for each in broker.transactions.coordinators.all_open()),
            producers,
            sorted(key for one in states for key, _ in one.used_keys()),
        )
        for each in producers.values():
            broker.transactions.producers.check(*each)
        # From here on the journals of shards have more than the conversion gave them.
        await broker.groups.configure("later", {})
        await broker.transactions.init("later")
        await broker.close()
        return found

    return asyncio.run(run())


def knows_of(disk: PowerLossDisk, paths: list[Path]) -> bool:
    points = disk.content(ROOT / "checkpoint")
    return any(disk.exists(path) or path.name.encode() in points for path in paths)


@pytest.mark.parametrize("version", [3, 4])
def test_a_conversion_that_a_power_loss_interrupts_at_any_call_loses_nothing(version: int) -> None:
    kept, clock = kept_folder(version)
    whole = kept.crash(Random(0))
    expected = started(whole, clock)
    assert sum(each.in_flight for each in expected.groups["workers"]) > 0, "something is at stake"
    assert expected.prepared and (version == 3 or (set(expected.producers) == {"first", "second"} and expected.keys))
    assert not knows_of(whole, EARLIER[version])
    half_done = done = 0
    for at in range(1, whole.calls, STEP):
        disk = kept.crash(Random(0))
        disk.fail_at = at
        with suppress(PowerLoss, StorageFailed):
            started(disk, clock)
        after = disk.crash(Random(at))
        half_done += at > 1 and after.exists(TRANSACTIONS)
        done += not after.exists(TRANSACTIONS)
        assert started(after, clock) == expected, f"the power was cut at call {at}"
        # A recovery point of a log that is not there would be damage to the doctor.
        assert not knows_of(after, EARLIER[version])
        for path in EARLIER_SNAPSHOTS if version == 3 else EARLIER_SNAPSHOTS[1:]:
            assert not after.crash(Random(at)).exists(path)
    assert half_done > 5 and done > 0


@pytest.mark.parametrize("number", [1, 10, 23])
@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "damaged"])
def test_a_converted_state_that_is_lost_is_not_taken_for_an_empty_one(number: int, is_gone: bool) -> None:
    """It is in the snapshot alone until the shard takes another."""
    disk, clock = kept_folder()
    started(disk, clock)
    path = ROOT / "snapshots" / f"__shards-{number}"
    disk.release_locks()
    if is_gone:
        disk.remove(path)
    else:
        disk.damage(path, lambda content: content[:-3])
    with pytest.raises(CorruptData, match="snapshot"):
        started(disk, clock)


@pytest.mark.parametrize("is_converted", [True, False], ids=["named as converted", "gone"])
@pytest.mark.parametrize("version", [3, 4])
def test_earlier_journals_that_are_not_there_are_not_taken_for_empty_ones(version: int, is_converted: bool) -> None:
    disk, clock = kept_folder(version)
    earlier = EARLIER[version][0]
    if is_converted:
        disk.rename(earlier, earlier.with_name(f"{earlier.name}.converted"))
    else:
        disk.remove_tree(earlier)
    with pytest.raises(CorruptData, match="missing"):
        started(disk, clock)
