"""A folder of the version before shards is converted whole, whenever the power is cut meanwhile (rule 4)."""

from __future__ import annotations

import asyncio
import json
import logging
import tarfile
from collections.abc import Iterator
from contextlib import suppress
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

ARCHIVE = Path(__file__).parents[1] / "behaviour" / "earlier_folders" / "format-3.tar.gz"
ROOT = Path("/srv/goqueue")
EARLIER = ROOT / "logs" / "__groups"
EARLIER_SNAPSHOT = ROOT / "snapshots" / "__groups-0"
CONFIG = Config(storage=StorageConfig(path=str(ROOT), min_free_bytes=0))
STEP = 1 if THOROUGH else 3


@pytest.fixture(autouse=True)
def _inline(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What threads do is done at once, so that every run makes the same calls; hundreds of starts report nothing."""
    monkeypatch.setattr(goqueue.storage.log.group_commit, "ThreadPoolExecutor", lambda *_, **__: InlineExecutor())
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def kept_folder() -> tuple[PowerLossDisk, ManualClock]:
    """The folder as its broker left it, all of it on the disk, and the time at which it was made."""
    disk, clock = PowerLossDisk(), ManualClock()
    folders = {ROOT, *ROOT.parents}
    with tarfile.open(ARCHIVE) as archive:
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
    # Of a journal that has nothing but a snapshot: it must not come back when it is removed.
    write_atomically(disk, EARLIER_SNAPSHOT, b'{"begin": 0, "end": 0, "parts": []}')
    for folder in sorted(folders):
        disk.sync_dir(folder)
    return disk, clock


def started(disk: PowerLossDisk, clock: ManualClock) -> dict[str, list[PartitionLag]]:
    """What the groups of a folder know after a start."""

    async def run() -> dict[str, list[PartitionLag]]:
        broker = Broker(CONFIG, files=disk, clock=clock)
        await broker.start()
        found = {name: broker.groups.offsets.lag(name) for name in broker.groups.shards.names() if name != "later"}
        # From here on the journals of shards have more than the conversion gave them.
        await broker.groups.configure("later", {})
        await broker.close()
        return found

    return asyncio.run(run())


def test_a_conversion_that_a_power_loss_interrupts_at_any_call_loses_nothing() -> None:
    kept, clock = kept_folder()
    whole = kept.crash(Random(0))
    expected = started(whole, clock)
    assert sum(each.in_flight for each in expected["workers"]) > 0, "something is at stake"
    assert not whole.exists(EARLIER) and b"__groups" not in whole.content(ROOT / "checkpoint")
    begun = done = 0
    for at in range(1, whole.calls, STEP):
        disk = kept.crash(Random(0))
        disk.fail_at = at
        with suppress(PowerLoss, StorageFailed):
            started(disk, clock)
        after = disk.crash(Random(at))
        begun += after.exists(ROOT / "snapshots" / "__shards-1") and after.exists(EARLIER)
        done += not after.exists(EARLIER)
        assert started(after, clock) == expected, f"the power was cut at call {at}"
        # A recovery point of a log that is not there would be damage to the doctor.
        assert not after.exists(EARLIER) and b"__groups" not in after.content(ROOT / "checkpoint")
        assert not after.crash(Random(at)).exists(EARLIER_SNAPSHOT)
    assert begun > 5 and done > 0


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
def test_earlier_journals_that_are_not_there_are_not_taken_for_empty_ones(is_converted: bool) -> None:
    disk, clock = kept_folder()
    if is_converted:
        disk.rename(EARLIER, EARLIER.with_name("__groups.converted"))
    else:
        disk.remove_tree(EARLIER)
    with pytest.raises(CorruptData, match="missing"):
        started(disk, clock)
