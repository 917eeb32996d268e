"""The first start on a copy of an earlier state: what was given out since is not given out again."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest
from doubles.power_loss import PowerLossDisk

from goqueue.broker.broker import Broker
from goqueue.broker.registry.schema_draft import SchemaDraft
from goqueue.coordination.earlier_transactions import EarlierTransactions
from goqueue.coordination.schemas import Schemas
from goqueue.model.errors import CorruptData, ProducerFenced, UnknownProducer
from goqueue.storage.files.data_folder import RESTORED
from goqueue.storage.files.files import OsFiles


def draft(name: str) -> SchemaDraft:
    return SchemaDraft(f'{{"type": "fixed", "name": "{name}", "size": 1}}')


def number_of(running: Broker, producer_id: int) -> int:
    """How many ids were given before this one, at the most."""
    number = running.transactions.coordinators.ids.number_of(producer_id)
    assert number is not None
    return number


async def copied(tmp_path: Path) -> tuple[Path, Path]:
    """A folder, and a copy of an earlier state of it that was marked as such."""
    first, copy = tmp_path / "first", tmp_path / "copy"
    async with Broker(first) as running:
        await running.transactions.init("named")
        await running.schemas.register("s", draft("a"))
    shutil.copytree(first, copy)
    (copy / "RESTORED").touch()
    return first, copy


async def test_ids_that_were_given_after_the_instant_are_not_given_again(tmp_path: Path) -> None:
    first, copy = await copied(tmp_path)
    async with Broker(first) as running:
        before = [(await running.transactions.init()).producer_id for _ in range(3)]
        schema_before = (await running.schemas.register("s2", draft("b"))).record.schema_id
        key_before = running._catalog.machine.state.receipt_key
    async with Broker(copy) as running:
        assert not (copy / "RESTORED").exists()
        after = (await running.transactions.init()).producer_id
        jump = number_of(running, after)
        assert 1 << 32 < jump < 1 << 34 and after not in before
        # Who has one from between goes on with it, and who makes one up does not.
        for each in before:
            running.transactions.producers.check(each, 0)
        with pytest.raises(UnknownProducer):
            running.transactions.producers.check(max(before) + 2, 0)
        # Schemas of before the instant keep their ids; new ones get none that anybody may know.
        assert (await running.schemas.register("s", draft("a"))).record.schema_id == 1
        schema_after = (await running.schemas.register("s2", draft("c"))).record.schema_id
        assert schema_after > 1_000_000 > schema_before
        key = running._catalog.machine.state.receipt_key
        assert key != key_before
        for journal in (running._catalog, running._schema_journal):
            await journal.snapshot()
    async with Broker(copy) as running:
        # Once: a start like any other.
        assert jump < number_of(running, (await running.transactions.init()).producer_id) < jump + 10_000
        assert (await running.schemas.register("s3", draft("d"))).record.schema_id == schema_after + 1
        assert running._catalog.machine.state.receipt_key == key


async def test_a_name_that_was_taken_over_after_the_instant_is_no_two_producers(tmp_path: Path) -> None:
    first, copy = await copied(tmp_path)
    async with Broker(first) as running:
        since = await running.transactions.init("named")
        other = await running.transactions.init("new")
    async with Broker(copy) as running:
        for each in (since, other):
            with pytest.raises(ProducerFenced):
                running.transactions.producers.check(each.producer_id, each.epoch)
        for journal in (running._catalog, running._schema_journal):
            await journal.snapshot()
    async with Broker(copy) as running:
        assert running.schemas.state.last_id > 1_000_000
        now = await running.transactions.init("named")
        assert now.producer_id != since.producer_id
        running.transactions.producers.check(now.producer_id, now.epoch)
        with pytest.raises(ProducerFenced):
            running.transactions.producers.check(since.producer_id, since.epoch)
        again = await running.transactions.init("named")
        assert (again.producer_id, again.epoch) == (now.producer_id, now.epoch + 1)


async def test_a_first_start_that_is_killed_is_done_again(tmp_path: Path) -> None:
    class Killed(OsFiles):
        def remove(self, path: Path) -> None:
            if path.name == "RESTORED":
                raise KeyboardInterrupt
            super().remove(path)

    _, copy = await copied(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        await Broker(copy, files=Killed()).start()
    assert (copy / "RESTORED").exists()
    async with Broker(copy) as running:
        assert number_of(running, (await running.transactions.init()).producer_id) > 2 << 32
        assert running.schemas.state.last_id > 2_000_000
    assert not (copy / "RESTORED").exists()


async def test_the_mark_of_a_copy_is_not_back_after_a_power_loss() -> None:
    """Ids would be skipped once more, and receipts that were given out since would be void."""
    disk, root = PowerLossDisk(), Path("/data")
    async with Broker(root, files=disk):
        pass
    disk.open(root / RESTORED, create=True)
    disk.sync_dir(root)
    disk.release_locks()
    async with Broker(root, files=disk):
        for seed in range(20):
            assert not disk.crash(Random(seed)).exists(root / RESTORED), f"seed {seed}"


async def test_no_broker_starts_where_a_restore_was_broken_off(tmp_path: Path) -> None:
    (tmp_path / "restore.part").mkdir()
    with pytest.raises(CorruptData, match="run 'goqueue restore' again"):
        await Broker(tmp_path).start()
    assert not (tmp_path / "FORMAT").exists()


def test_states_from_before_ids_could_be_skipped_are_read() -> None:
    state = EarlierTransactions()
    state.restore("ids", b"1001")
    assert state.ids.reserved == 1_001
    schemas = Schemas()
    assert "ids" not in schemas.parts()
    # Not so far that none would be left.
    assert schemas.decide_skip(1 << 31) == []
