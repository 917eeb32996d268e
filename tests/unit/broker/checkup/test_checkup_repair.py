"""What a repair has done is on the disk when it is told: a power loss does not bring back what was wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from behaviour.host import config_for
from doubles.synced import note_syncs

from goqueue.broker.broker import Broker
from goqueue.broker.checkup.folder_checkup import Checkup, CheckupOptions
from goqueue.broker.checkup.repair import repair
from goqueue.model.publishing import NewMessage
from goqueue.storage.log.log import Log


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a partition with a sealed segment whose index is damaged; nobody can read the recovery points either."""

    async def fill() -> Log:
        async with Broker(config_for(tmp_path)) as broker:
            await broker.create_topic("t", {"partitions": 1})
            await broker.publish("t", [NewMessage(b"one"), NewMessage(b"two")])
            log = broker.topic("t").partitions[0].log
            log.roll()
            await broker.publish("t", [NewMessage(b"three")])
            return log

    log = asyncio.run(fill())
    index = log.segments[0].index_path
    index.write_bytes(index.read_bytes()[:-3] + b"???")
    (tmp_path / "checkpoint").write_bytes(b"???")
    return log.folder


def test_what_a_repair_sets_aside_and_makes_anew_is_on_the_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, index = folder.parents[2], folder / f"{0:020d}.index"

    def state(path: Path) -> tuple[Path, bool, bool]:
        return path, (root / "checkpoint.damaged").exists(), index.exists()

    report = Checkup(root, CheckupOptions()).run()
    noted = note_syncs(monkeypatch, state)
    done = repair(report)
    assert {each.path for each in done} == {root / "checkpoint", folder}
    assert (root, True, True) in noted, "the damaged points have another name"
    ours = [(path, index_there) for path, _, index_there in noted if folder in (path, path.parent)]
    gone, made, named = (folder, False), (index, True), (folder, True)
    assert gone in ours, "the damaged index"
    assert made in ours[ours.index(gone) :], "the new one"
    assert ours[-1] == named
    assert not [each for each in Checkup(root, CheckupOptions()).run().every_finding() if each.severity.name != "NOTE"]
