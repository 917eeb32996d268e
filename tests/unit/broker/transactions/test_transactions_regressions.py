"""What once went wrong with transactions and duplicates, mostly after a kill or a power loss: each of it once more."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from doubles import coordinators
from doubles.group_scripts import ROOT
from doubles.loop import on_a_loop
from doubles.transaction_bench import GROUP, OTHER, TOPIC, Bench, bench

from goqueue.broker.groups.membership import Join
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.registry.schema_draft import SchemaDraft
from goqueue.broker.transactions.producer_fencing import ProducerIdentity
from goqueue.model.errors import DiskFull, DuplicateSequence, InvalidMessage, InvalidRequest, TransactionConflict
from goqueue.model.publish_result import Published
from goqueue.model.publishing import NewMessage
from goqueue.storage.log.frame_slice import Slice
from goqueue.storage.log.lanes import LaneSlice
from goqueue.wire.batch import FrameRun, join_frames, parse_batch
from goqueue.wire.frame import encode_frame
from goqueue.wire.internal_headers import ProducerStamp
from goqueue.wire.producer_frames import stamp_batch

HOUR_MS = 3_600_000
CHECKED, LETTERS = "s", "s.dlq"
SCHEMA = '{"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}'
BAD = b'{"count": "first"}'
LARGE = b'{"count": "%b"}' % (b"x" * 8_000)


async def kill(it: Bench) -> None:
    """The process ends at once: every byte it has written stays, and nothing is tidied up."""
    it.disk.sync_filesystem(ROOT)
    await power_loss(it, seed=0)


async def power_loss(it: Bench, seed: int) -> None:
    left = it.disk.crash(Random(seed))
    # What the old one does from now on happens on a disk that nobody looks at again.
    it.room()
    await it.broker.close()
    it.disk = left
    await it.start()


def partition_of(it: Bench) -> Partition:
    return it.broker.topic(TOPIC).partitions[0]


def stamped(it: Bench, producer: ProducerIdentity, sequence: int, value: bytes) -> FrameRun:
    """A batch of one message, as a producer sends it."""
    frame = encode_frame(b"", value, b"", it.clock.now_ns())
    stamp = ProducerStamp(producer.producer_id, producer.epoch, sequence, 1)
    return parse_batch(join_frames(stamp_batch([frame], stamp), 0).to_wire())


async def drained(it: Bench, group: str = GROUP) -> list[bytes]:
    """Everything that a group is given, acked as it comes."""
    values: list[bytes] = []
    while got := await it.poll(50, group):
        values += [each.value for each in got]
        await it.settle("ack", got)
    return values


# Retention and compaction


@on_a_loop
@pytest.mark.parametrize("saved", ["by a clean stop", "between two batches"])
async def test_what_was_aborted_stays_hidden_when_retention_has_removed_its_beginning_and_the_broker_is_killed(
    saved: str,
) -> None:
    async with bench(topic={"retention_bytes": 1 << 20}) as it:
        await it.join()
        transaction = await it.begin()
        for number in range(100):
            await it.publish(transaction, b"aborted %d" % number + b"." * 1_000)
            if number == 90 and saved == "between two batches":
                await it.broker.producer_files.save(it.broker.running_topics(), everything=True)
        # The file of producers knows the transaction as one that is open.
        if saved == "by a clean stop":
            await it.restart()
        else:
            await it.abort(transaction)
        await it.publish(None, *[b"%d" % number + b"." * 1_000 for number in range(700)])
        for number in range(230):
            await it.publish(None, b"%d" % number + b"." * 1_000)
        await it.broker._upkeep.expire()
        await it.broker._upkeep.checkpoint()
        assert 0 < partition_of(it).log.start_offset < 100
        await kill(it)
        assert 0 < partition_of(it).log.start_offset < 100
        values = await it.values()
        assert len(values) == 930
        assert not [each for each in values if each.startswith(b"aborted")]
        await it.join()
        assert await drained(it) == values


async def publish_and_abort_in_turns(it: Bench, count: int, keys: int, *, lanes: tuple[int, int] = (2, 2)) -> None:
    for number in range(count):
        lane = lanes[number % 2]
        await it.publish(None, b"kept" + b"." * 500, key=b"%d" % (number % keys), priority=lane)
        transaction = await it.begin()
        await it.publish(transaction, b"aborted" + b"." * 500, key=b"a%d" % number, priority=lane)
        await it.abort(transaction)
    await it.broker.producer_files.save(it.broker.running_topics(), everything=True)


@on_a_loop
@pytest.mark.parametrize("lanes", [(2, 2), (1, 3)])
async def test_the_lag_is_right_after_a_kill_between_the_end_of_a_compaction_and_the_recovery_point(
    lanes: tuple[int, int],
) -> None:
    async with bench(topic={"cleanup": "compact"}) as it:
        await publish_and_abort_in_turns(it, 120, 10, lanes=lanes)
        await it.join()
        await it.broker._upkeep.compact()
        left = len(await it.values())
        assert it.lag() == left < 120
        await kill(it)
        assert it.lag() == left
        await it.join()
        assert await drained(it) == [b"kept" + b"." * 500] * left
        assert it.lag() == 0


@on_a_loop
async def test_everything_is_delivered_after_a_kill_between_the_end_of_a_compaction_and_the_recovery_point() -> None:
    """Beside another topic, and with just as many messages as are counted too few, nothing seemed to be left."""
    join = Join("c", [TOPIC, OTHER], {"kind": "shared"})
    async with bench(topic={"cleanup": "compact"}) as it:
        await publish_and_abort_in_turns(it, 120, 10)
        for number in range(110):
            await it.publish(None, b"kept" + b"." * 500, key=b"b%d" % number)
        await it.publish(None, *[b"urgent"] * 3, key=b"x", priority=0, topic=OTHER)
        await it.broker.groups.membership.join(GROUP, join)
        await it.broker.producer_files.save(it.broker.running_topics(), everything=True)
        await it.broker._upkeep.compact()
        left, forgotten = len(await it.values()), 120 - len(partition_of(it).producers.state.aborted)
        assert left == forgotten
        await kill(it)
        lag = it.lag()
        it.members[GROUP] = (await it.broker.groups.membership.join(GROUP, join)).member_id
        urgent, kept = [], 0
        while got := await it.poll(10):
            # These are kept in flight, so that every poll looks at both topics.
            urgent += [each for each in got if each.value == b"urgent"]
            others = [each for each in got if each.value != b"urgent"]
            kept += len(others)
            await it.settle("ack", others)
        await it.settle("ack", urgent)
        kept += len(await drained(it))
        assert (len(urgent), kept) == (3, left)
        assert lag == left + 3


@on_a_loop
async def test_a_compaction_that_ends_while_a_lane_is_read_shows_nothing_that_was_aborted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bench(topic={"cleanup": "compact"}) as it:
        await publish_and_abort_in_turns(it, 120, 120, lanes=(1, 3))
        await it.join()
        aborted_after: list[int] = []

        async def load(self: Partition, found: Slice | LaneSlice, offset: int, on_loop_bytes: int = 0) -> FrameRun:
            read = found.load()
            if not aborted_after:
                # As if the old file had been read for long, in its thread.
                await it.broker._upkeep.compact()
                aborted_after.append(len(partition_of(it).producers.state.aborted))
            return read

        monkeypatch.setattr(Partition, "load", load)
        values = await drained(it)
        assert aborted_after[0] < 120
        assert values == [b"kept" + b"." * 500] * 120


# Dead letters of what does not fit a schema


async def with_schema(it: Bench) -> None:
    await it.broker.schemas.register(f"{CHECKED}-value", SchemaDraft(SCHEMA, "JSON"))
    await it.broker.create_topic(CHECKED, {"partitions": 1, "schema_validation": "dead_letter"})


def room_for_no_letter(it: Bench) -> None:
    """What stands in for a refused message can be written; the message itself, as a dead letter, cannot."""
    it.disk.quota = it.disk.used_bytes() + 4_000


@on_a_loop
async def test_a_batch_whose_dead_letter_could_not_be_written_is_sent_again_and_writes_it() -> None:
    async with bench() as it:
        await with_schema(it)
        producer = await it.transactions.init()
        await it.broker.publish_frames(CHECKED, 0, stamped(it, producer, 0, BAD))
        room_for_no_letter(it)
        with pytest.raises(DiskFull):
            await it.broker.publish_frames(CHECKED, 0, stamped(it, producer, 1, LARGE))
        assert it.broker.topic(CHECKED).partitions[0].log.end_offset == 2
        assert await it.values(LETTERS) == [BAD]
        it.room()
        for _ in range(2):
            assert await it.broker.publish_frames(CHECKED, 0, stamped(it, producer, 1, LARGE)) == 1
            assert await it.values(LETTERS) == [BAD, LARGE]
        assert await it.values(CHECKED) == []


@on_a_loop
async def test_a_batch_whose_dead_letter_a_kill_has_prevented_is_sent_again_and_writes_it() -> None:
    async with bench() as it:
        await with_schema(it)
        producer = await it.transactions.init()
        await it.broker.publish_frames(CHECKED, 0, stamped(it, producer, 0, BAD))
        run = stamped(it, producer, 1, LARGE)
        refused = await it.broker.refused_frames(CHECKED, run)
        appended = it.broker.append_frames(CHECKED, 0, run, refused)
        # In the same step of the loop, before anything is written elsewhere.
        await kill(it)
        await asyncio.wait([appended.acknowledged])
        assert await it.values(LETTERS) == [BAD]
        assert await it.broker.publish_frames(CHECKED, 0, stamped(it, producer, 1, LARGE)) == 1
        assert await it.values(LETTERS) == [BAD, LARGE]
        assert await it.values(CHECKED) == []


@on_a_loop
@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_message_with_a_dedup_id_whose_dead_letter_could_not_be_written_is_sent_again_and_writes_it(
    is_killed: bool,
) -> None:
    async with bench() as it:
        await with_schema(it)
        await it.publish(None, BAD, topic=CHECKED, dedup_id="1")
        room_for_no_letter(it)
        with pytest.raises(DiskFull):
            await it.publish(None, LARGE, topic=CHECKED, dedup_id="2")
        assert await it.values(LETTERS) == [BAD]
        if is_killed:
            await kill(it)
        it.room()
        await it.publish(None, LARGE, topic=CHECKED, dedup_id="2")
        assert await it.values(LETTERS) == [BAD, LARGE]
        assert await it.values(CHECKED) == []


# Batches that a power loss has torn


@on_a_loop
async def test_after_a_power_loss_nothing_of_a_torn_batch_of_an_open_transaction_is_seen() -> None:
    for seed in (9, 64, 81, 122):
        async with bench() as it:
            await it.publish(None, b"plain")
            transaction = await it.begin()
            await it.publish(transaction, *[b"OPEN%d" % number + b"." * 4_000 for number in range(30)])
            await power_loss(it, seed)
            assert await it.values() == [b"plain"], seed


@on_a_loop
async def test_after_a_power_loss_nothing_of_a_torn_batch_of_an_aborted_transaction_is_seen() -> None:
    later = b"later" + b"." * 4_000
    for seed in (6, 17, 30, 34, 41, 47, 92):
        async with bench(topic={"fsync": "interval"}) as it:
            transaction = await it.begin()
            await it.publish(transaction, *[b"ABRT%d" % number + b"." * 4_000 for number in range(30)])
            await it.abort(transaction)
            await it.publish(None, later)
            await power_loss(it, seed)
            assert set(await it.values()) <= {later}, seed


# Producers and their sequences


@on_a_loop
async def test_a_broker_starts_on_a_full_disk_and_gives_ids_as_soon_as_there_is_room() -> None:
    async with bench() as it:
        await it.publish(None, b"v")
        await it.restart()
        before = await it.transactions.init()
        await it.broker.close()
        it.disk.release_locks()
        it.full()
        await it.start()
        assert await it.values() == [b"v"]
        with pytest.raises(DiskFull):
            await it.transactions.init()
        it.room()
        made = await it.transactions.init()
        assert made.producer_id != before.producer_id
        transaction = it.begin_as(made)
        await it.publish(transaction, b"w")
        await it.commit(transaction)
        assert await it.values() == [b"v", b"w"]


@on_a_loop
async def test_a_producer_cannot_abort_what_is_no_id_of_a_transaction() -> None:
    async with bench() as it:
        made = await it.transactions.init()
        own = f"{made.producer_id}-{made.epoch}-"
        for made_up in ("", "0", "x" * 16, "0" * 17, f"0-{'0' * 16}", "x" * 100_000, "٣" * 16):
            with pytest.raises(TransactionConflict) as told:
                await it.transactions.abort_own(own + made_up, made.producer_id, made.epoch)
            assert len(str(told.value)) < 200
        assert not coordinators.aborted(it.broker)
        # One that a producer may have chosen and has not used yet is remembered.
        await it.transactions.abort_own(own + "0" * 16, made.producer_id, made.epoch)
        assert coordinators.aborted(it.broker) == [own + "0" * 16]


@on_a_loop
async def test_to_begin_again_what_is_still_empty_renews_its_deadline() -> None:
    async with bench() as it:
        made = await it.transactions.init()
        first = it.transactions.begin(made.producer_id, made.epoch, 60_000)
        it.pass_ms(59_000)
        again = it.transactions.begin(made.producer_id, made.epoch, 60_000)
        assert again.transaction_id == first.transaction_id
        assert again.deadline_ns == it.clock.now_ns() + 60_000 * 10**6
        await it.publish(again, b"v")
        it.pass_ms(59_000)
        await it.commit(again)
        assert await it.values() == [b"v"]


@on_a_loop
async def test_a_plain_batch_with_a_sequence_of_an_aborted_transaction_is_not_taken_for_stored() -> None:
    async with bench() as it:
        made = await it.transactions.init()
        transaction = it.begin_as(made)
        await it.publish(transaction, b"v")
        await it.abort(transaction)
        with pytest.raises(DuplicateSequence, match="in a transaction that was aborted"):
            await it.broker.publish_frames(TOPIC, 0, stamped(it, made, 0, b"v"))
        await it.broker.publish_frames(TOPIC, 0, stamped(it, made, 1, b"v"))
        assert await it.values() == [b"v"]


@on_a_loop
async def test_a_dedup_id_is_not_remembered_beyond_its_window_because_of_a_kill() -> None:
    async with bench() as it:
        await it.publish(None, b"old", dedup_id="old")
        it.pass_ms(8 * HOUR_MS)
        await it.publish(None, b"new", dedup_id="new")
        it.pass_ms(60_000)
        await kill(it)
        messages = [NewMessage(b"again", dedup_id="old"), NewMessage(b"again", dedup_id="new")]
        outcomes = await it.broker.publish(TOPIC, messages)
        assert [each.is_duplicate for each in outcomes if isinstance(each, Published)] == [False, True]
        assert await it.values() == [b"old", b"new", b"again"]


@on_a_loop
async def test_what_a_producer_calls_itself_and_its_messages_is_refused_if_it_cannot_be_kept() -> None:
    async with bench() as it:
        await it.transactions.init("name", None, "x" * 255)
        with pytest.raises(InvalidRequest, match="instance has 256 characters"):
            await it.transactions.init("name", None, "x" * 256)
        with pytest.raises(InvalidMessage, match="UTF-8"):
            await it.publish(None, b"v", dedup_id="\ud800")
        assert await it.values() == []
