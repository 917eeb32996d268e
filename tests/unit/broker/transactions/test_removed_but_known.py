"""What follows from records is known after they were removed, by a purge or by retention, whatever ends the broker."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from threading import Event

import pytest
from doubles.group_scripts import ROOT
from doubles.loop import on_a_loop
from doubles.power_loss import PowerLossDisk
from doubles.transaction_bench import TOPIC, Bench, bench

from goqueue.broker.partitions import derived_files, derived_state
from goqueue.broker.transactions.producer_fencing import ProducerIdentity
from goqueue.model.errors import StorageFailed
from goqueue.model.publish_result import Published
from goqueue.model.publishing import NewMessage
from goqueue.storage.files.atomic import write_atomically
from goqueue.storage.files.files import Files
from goqueue.wire.batch import FrameRun, join_frames, parse_batch
from goqueue.wire.frame import encode_frame
from goqueue.wire.internal_headers import ProducerStamp
from goqueue.wire.producer_frames import stamp_batch

SECOND_MS = 1_000


async def kill(it: Bench) -> None:
    """The process ends at once: every byte it has written stays, and nothing is tidied up."""
    it.disk.sync_filesystem(ROOT)
    await power_loss(it)


async def power_loss(it: Bench, seed: int = 0) -> None:
    await go_on_with(it, it.disk.crash(Random(seed)))


async def go_on_with(it: Bench, left: PowerLossDisk) -> None:
    await it.broker.close()
    it.disk = left
    await it.start()


async def clean_stop(it: Bench) -> None:
    await it.restart()


async def purge(it: Bench) -> None:
    await it.broker.purge_topic(TOPIC)


async def retention(it: Bench) -> None:
    it.pass_ms(2 * SECOND_MS)
    await it.broker._upkeep.expire()


ENDS = {"kill": kill, "power loss": power_loss, "clean stop": clean_stop}
REMOVALS = {"purge": purge, "retention": retention}


def stamped(it: Bench, producer: ProducerIdentity, sequence: int) -> FrameRun:
    """A batch of one message, as an idempotent producer sends it."""
    frame = encode_frame(b"", b"v", b"", it.clock.now_ns())
    stamp = ProducerStamp(producer.producer_id, producer.epoch, sequence, 1)
    return parse_batch(join_frames(stamp_batch([frame], stamp), 0).to_wire())


async def published(it: Bench, dedup_id: str) -> Published:
    (outcome,) = await it.broker.publish(TOPIC, [NewMessage(b"v", partition=0, dedup_id=dedup_id)])
    assert isinstance(outcome, Published)
    return outcome


def start_of(it: Bench) -> int:
    return it.broker.topic(TOPIC).partitions[0].log.start_offset


@pytest.mark.parametrize("removal", REMOVALS)
@pytest.mark.parametrize("end", ENDS)
@on_a_loop
async def test_a_dedup_id_is_a_duplicate_still(removal: str, end: str) -> None:
    async with bench(topic={"retention_ms": SECOND_MS}) as it:
        first = await published(it, "d3")
        await REMOVALS[removal](it)
        assert start_of(it) == 1
        assert (await published(it, "d3")).is_duplicate
        await ENDS[end](it)
        assert start_of(it) == 1
        again = await published(it, "d3")
        assert (again.is_duplicate, again.offset) == (True, first.offset)
        assert await it.values() == []


@pytest.mark.parametrize("removal", REMOVALS)
@pytest.mark.parametrize("end", ENDS)
@on_a_loop
async def test_what_an_idempotent_producer_sends_again_is_not_stored_twice(removal: str, end: str) -> None:
    async with bench(topic={"retention_ms": SECOND_MS}) as it:
        producer = await it.transactions.init(None, None)
        for sequence in range(3):
            assert await it.broker.publish_frames(TOPIC, 0, stamped(it, producer, sequence)) == sequence
        await REMOVALS[removal](it)
        assert start_of(it) == 3
        await ENDS[end](it)
        assert await it.broker.publish_frames(TOPIC, 0, stamped(it, producer, 2)) == 2
        assert await it.broker.publish_frames(TOPIC, 0, stamped(it, producer, 3)) == 3


@pytest.mark.parametrize("removal", REMOVALS)
@on_a_loop
async def test_a_power_loss_at_any_call_of_the_removal_forgets_nothing(removal: str) -> None:
    async with bench(topic={"retention_ms": SECOND_MS}) as it:
        await published(it, "d3")
        rng, left = Random(0), []
        it.disk.before_call = lambda: left.append(it.disk.crash(rng))
        await REMOVALS[removal](it)
        it.disk.before_call = lambda: None
        assert len(left) > 5
        for disk in left:
            await go_on_with(it, disk)
            assert (await published(it, "d3")).is_duplicate


@pytest.mark.parametrize("removal", REMOVALS)
@on_a_loop
async def test_nothing_is_removed_if_it_cannot_be_noted(removal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_room(*_: object) -> bool:
        return False

    async with bench(topic={"retention_ms": SECOND_MS}) as it:
        await published(it, "d3")
        with monkeypatch.context() as patch:
            patch.setattr(derived_state, "save", no_room)
            if removal == "purge":
                with pytest.raises(StorageFailed, match="cannot be noted, so nothing was removed"):
                    await purge(it)
            else:
                await retention(it)
            assert start_of(it) == 0
        await REMOVALS[removal](it)
        assert start_of(it) == 1


@on_a_loop
async def test_where_nothing_follows_nothing_is_written() -> None:
    async with bench() as it:
        await it.publish(None, b"plain")
        await purge(it)
        partition = it.broker.topic(TOPIC).partitions[0]
        assert start_of(it) == 1
        assert not it.disk.exists(partition.producers.path)


@on_a_loop
async def test_of_two_who_write_the_file_the_later_one_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint writes it too: had it begun before a purge and ended behind it, an id would be forgotten."""
    begun, overtaken = Event(), Event()

    def slow_at_first(files: Files, path: Path, payload: bytes) -> None:
        if not begun.is_set():
            begun.set()
            # Nobody overtakes, so this ends by itself.
            overtaken.wait(0.2)
            write_atomically(files, path, payload)
        else:
            write_atomically(files, path, payload)
            overtaken.set()

    async with bench() as it:
        await published(it, "a")
        monkeypatch.setattr(derived_files, "write_atomically", slow_at_first)
        topic, [producers] = it.broker.topic(TOPIC), [each.producers for each in it.broker.topic(TOPIC).partitions]
        early = asyncio.create_task(it.broker.producer_files.save([topic], everything=True))
        assert await asyncio.to_thread(begun.wait, 30)
        await published(it, "b")
        await asyncio.gather(early, it.broker.producer_files.cover(topic, 0, 2))
        assert (producers.saved_at, producers.changes) == (2, 0)
        await kill(it)
        assert (await published(it, "b")).is_duplicate
