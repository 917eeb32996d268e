"""What checking at publish costs, what it keeps, and what happens when something else happens meanwhile."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import thread_time
from typing import Any

import pytest
import zstandard
from behaviour.faulty_files import FaultyFiles, of_metadata, of_topic
from doubles.async_tests import until
from doubles.loop import on_a_loop

from goqueue.broker.broker import Broker
from goqueue.broker.partitions.read import Bounds
from goqueue.broker.registry import validator_cache
from goqueue.broker.registry.schema_draft import SchemaDraft
from goqueue.broker.registry.validator_cache import ValidatorCache
from goqueue.model.config import Config, StorageConfig
from goqueue.model.errors import DiskFull, GoQueueError, SchemaViolation, StorageFailed, TopicNotFound
from goqueue.model.message import Message
from goqueue.model.publish_result import Published
from goqueue.model.publishing import NewMessage, Outcome
from goqueue.schemas.json.json_validator import JsonValidator
from goqueue.storage.log.log import Log
from goqueue.wire.batch import MAX_BATCH_BYTES, CheckedBatch, FrameRun, join_frames, parse_batch
from goqueue.wire.frame import Flag, encode_frame

JSON = '{"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}'
AVRO = '{"type": "array", "items": "string"}'
GOOD, BAD = b'{"count": 1}', b'{"count": "1"}'


def broker_on(path: Path, files: FaultyFiles | None = None) -> Broker:
    return Broker(Config(storage=StorageConfig(path=str(path), min_free_bytes=0)), files=files)


async def topic(broker: Broker, mode: str = "on", text: str = JSON, kind: str = "JSON", **settings: object) -> None:
    await broker.schemas.register("t-value", SchemaDraft(text, kind))
    await broker.create_topic("t", {"partitions": 1, "schema_validation": mode, **settings})


async def publish(broker: Broker, *values: bytes) -> list[Outcome]:
    return await broker.publish("t", [NewMessage(value, partition=0) for value in values])


def run_of(*frames: bytes) -> FrameRun:
    return parse_batch(join_frames(list(frames), 0).to_wire())


def frame(value: bytes, flags: int = 0, timestamp_ns: int = 1_700_000_000_000_000_000) -> bytes:
    return encode_frame(b"", value, b"", timestamp_ns, flags=flags)


def packed(value: bytes) -> bytes:
    return frame(zstandard.compress(value), int(Flag.COMPRESSED))


async def messages_in(broker: Broker, name: str) -> list[Message]:
    found = await broker.read(name, 0, Bounds(1 << 26, 1 << 20), offset=0)
    return found.messages


async def values_in(broker: Broker, name: str) -> list[bytes]:
    return [message.value for message in await messages_in(broker, name)]


# Packed values


@on_a_loop
async def test_packed_values_are_checked_unpacked_and_stored_as_they_came(tmp_path: Path) -> None:
    async with broker_on(tmp_path) as broker:
        await topic(broker)
        large = b'{"count": 1, "filler": "%b"}' % (b"x" * 300_000)
        assert await broker.publish_frames("t", 0, run_of(packed(GOOD), frame(GOOD), packed(large))) == 0
        assert await values_in(broker, "t") == [zstandard.compress(GOOD), GOOD, zstandard.compress(large)]
        with pytest.raises(SchemaViolation, match=r"^message 1 of the batch: /count: .*; 1 more does not fit either"):
            await broker.publish_frames("t", 0, run_of(packed(GOOD), packed(BAD), frame(BAD), frame(GOOD)))
        assert len(await values_in(broker, "t")) == 3


@on_a_loop
async def test_what_cannot_be_unpacked_does_not_fit(tmp_path: Path) -> None:
    async with broker_on(tmp_path) as broker:
        await topic(broker, max_message_bytes=100_000)
        for value, problem in (
            (b"no zstd", "not valid zstd"),
            (zstandard.compress(GOOD)[:-3], "cut short"),
            (zstandard.compress(b" " * 100_001), "more than 100000 bytes"),
        ):
            with pytest.raises(SchemaViolation, match=problem):
                await broker.publish_frames("t", 0, run_of(frame(value, int(Flag.COMPRESSED))))
        await broker.change_topic("t", {"schema_validation": "dead_letter"})
        assert await broker.publish_frames("t", 0, run_of(frame(b"no zstd", int(Flag.COMPRESSED)), packed(GOOD))) == 0
        (letter,) = await messages_in(broker, "t.dlq")
        assert (letter.value, letter.compressed) == (b"no zstd", True)
        assert [each.offset for each in await messages_in(broker, "t")] == [1]


@on_a_loop
async def test_a_few_bytes_that_unpack_to_very_much_take_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never more than one large value is unpacked at a time."""
    seen: list[int] = []
    checked = JsonValidator.check

    def check(self: JsonValidator, values: list[bytes]) -> list[str | None]:
        seen.append(sum(map(len, values)))
        return checked(self, values)

    monkeypatch.setattr(JsonValidator, "check", check)
    async with broker_on(tmp_path) as broker:
        await topic(broker)
        bomb = packed(b'{"count": 1}' + b" " * (4 << 20))
        assert await broker.publish_frames("t", 0, run_of(*[bomb] * 20)) == 0
    assert len(seen) == 20
    assert max(seen) < 5 << 20


# ValidatorCache


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """One entry for each validator that is made: whether it was made by the loop."""
    made: list[bool] = []
    before = validator_cache._compiled

    def note(*args: Any) -> Any:
        made.append(threading.current_thread() is threading.main_thread())
        return before(*args)

    monkeypatch.setattr(validator_cache, "_compiled", note)
    yield made


@on_a_loop
async def test_validators_are_compiled_once_whoever_asks_and_not_by_the_loop(
    tmp_path: Path, compiled: list[bool]
) -> None:
    async with broker_on(tmp_path) as broker:
        await topic(broker)
        await asyncio.gather(*(publish(broker, GOOD) for _ in range(20)))
        await publish(broker, GOOD, BAD)
        await broker.publish_frames("t", 0, run_of(frame(GOOD)))
        assert compiled == [False]
        found = await broker.schemas.register("t-value", SchemaDraft(JSON, "JSON"))
        await publish(broker, b"\x00" + found.record.schema_id.to_bytes(4) + GOOD)
        assert compiled == [False, False]


@on_a_loop
async def test_of_those_who_wait_for_a_validator_one_may_go_away(tmp_path: Path, compiled: list[bool]) -> None:
    async with broker_on(tmp_path) as broker:
        await topic(broker)
        first, second = (asyncio.create_task(publish(broker, GOOD)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert isinstance((await second)[0], Published)
        assert compiled == [False]


@on_a_loop
async def test_threads_end_with_the_broker(tmp_path: Path) -> None:
    async with broker_on(tmp_path) as broker:
        await topic(broker, max_message_bytes=1 << 20)
        await publish(broker, b'{"count": 1, "rest": "' + b"x" * 500_000 + b'"}')
        assert [each for each in threading.enumerate() if each.name.startswith("goqueue-schemas")]
    await until(lambda: not [each for each in threading.enumerate() if each.name.startswith("goqueue-schemas")])


@on_a_loop
async def test_a_batch_whose_dead_letters_fail_leaves_nothing_that_nobody_looks_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
    async with broker_on(tmp_path) as broker:
        await topic(broker, "dead_letter", fsync="always")
        await publish(broker, BAD)
        log = broker.topic("t").partitions[0].log

        async def fail(*_: object) -> asyncio.Future[None]:
            raise StorageFailed("no dead letters")

        monkeypatch.setattr(broker._refusals, "_append_letters", fail)
        monkeypatch.setattr(broker._commits, "_carry_out", lambda _: {log: "broken"})
        (outcome,) = await publish(broker, BAD)
        assert isinstance(outcome, StorageFailed)
        await until(lambda: log.failure is not None)
    # What was raised holds on to all that was waited for.
    del outcome
    gc.collect()
    assert told == []


@on_a_loop
async def test_validators_that_are_used_least_make_room(tmp_path: Path) -> None:
    async with broker_on(tmp_path) as broker:
        texts = [json.dumps({"title": "x" * 1_000, "const": number}) for number in range(5)]
        found = [await broker.schemas.register(f"s{at}", SchemaDraft(text, "JSON")) for at, text in enumerate(texts)]
        ids = [each.record.schema_id for each in found]
        kept = ValidatorCache(broker.schemas, max_bytes=len(texts[0]) * 3)
        for schema_id in ids[:3]:
            await kept.get(schema_id, framed=False)
        await kept.get(ids[0], framed=False)
        await kept.get(ids[3], framed=False)
        assert [schema_id for schema_id, _ in kept._kept] == [ids[2], ids[0], ids[3]]
        kept = ValidatorCache(broker.schemas, max_kept=2)
        for schema_id in (ids[0], ids[3], ids[4]):
            await kept.get(schema_id, framed=False)
        assert [schema_id for schema_id, _ in kept._kept] == [ids[3], ids[4]]


# What it costs


def steps_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """The longest time that the loop was busy with one thing, by the clock of its thread: others may use the cores."""
    longest, last = 0.0, thread_time()

    def step() -> None:
        nonlocal longest, last
        now = thread_time()
        longest, last = max(longest, now - last), now
        loop.call_soon(step)

    loop.call_soon(step)
    return lambda: longest


@pytest.mark.parametrize("kind", ["good", "bad"])
@on_a_loop
async def test_the_loop_is_not_held_up(tmp_path: Path, kind: str) -> None:
    """By many values, by large ones, or by those of which it takes long to tell what is wrong."""
    async with broker_on(tmp_path) as broker:
        await topic(broker, "on", AVRO, "AVRO")
        items = b"\x04ab" * 50
        end = b"\x00" if kind == "good" else b""
        small = b"\x64" + items + end
        large = (b"\x64" + items) * 1_000 + end
        await publish(broker, small)
        longest = steps_of(asyncio.get_running_loop())
        outcomes = await publish(broker, *[small] * 300, *[large] * 2)
        held_s = longest()
    assert {type(each) for each in outcomes} == {Published if kind == "good" else SchemaViolation}
    assert held_s < 0.1


# Dead letters


@on_a_loop
async def test_dead_letters_are_appended_in_batches_that_are_none_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended: list[int] = []
    before = Log.append

    def append(self: Log, batch: CheckedBatch) -> int:
        if "__" not in self.folder.parent.name:
            appended.append(len(batch.frames))
        return before(self, batch)

    async with broker_on(tmp_path) as broker:
        await topic(broker, "dead_letter")
        monkeypatch.setattr(Log, "append", append)
        # Messages cannot be smaller than these, which are a header and nothing else.
        run = run_of(*[frame(b"")] * 6_000)
        assert await broker.publish_frames("t", 0, run) == 0
        assert broker.topic("t").partitions[0].log.end_offset == len(run)
        assert broker.topic("t.dlq").partitions[0].log.end_offset == len(run)
    assert appended[0] == len(run.frames)
    assert sum(appended[1:]) > 2 * MAX_BATCH_BYTES
    assert max(appended) <= MAX_BATCH_BYTES


@on_a_loop
async def test_the_first_dead_letters_of_many_producers_at_once(tmp_path: Path) -> None:
    async with broker_on(tmp_path) as broker:
        await topic(broker, "dead_letter")
        outcomes = await asyncio.gather(*(publish(broker, b"%d" % number) for number in range(30)))
        assert all(isinstance(outcome, Published) for (outcome,) in outcomes)
        assert sorted(await values_in(broker, "t.dlq")) == sorted(b"%d" % number for number in range(30))


@on_a_loop
async def test_a_producer_that_goes_away_leaves_the_dead_letter_topic_whole(tmp_path: Path) -> None:
    disk = FaultyFiles()
    async with broker_on(tmp_path, disk) as broker:
        await topic(broker, "dead_letter")
        with disk.hanging(of_metadata) as begun:
            publishing = asyncio.create_task(publish(broker, BAD))
            await asyncio.to_thread(begun.wait, 30)
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)
        assert isinstance((await publish(broker, b"last"))[0], Published)
    async with broker_on(tmp_path) as broker:
        assert not broker.damage()
        assert await values_in(broker, "t.dlq") == [b"last"]


@on_a_loop
async def test_a_producer_that_goes_away_takes_no_dead_letters_with_it(tmp_path: Path) -> None:
    """For each record that stands in for a message there is that message."""
    async with broker_on(tmp_path) as broker:
        await topic(broker, "dead_letter", fsync="never")
        await publish(broker, BAD)
        run = run_of(*[frame(b"%d" % number) for number in range(2_000)])
        appended = broker.append_frames("t", 0, run, await broker.refused_frames("t", run))
        await asyncio.sleep(0)
        appended.acknowledged.cancel()
        await broker._refusals.buried()
        assert len(await values_in(broker, "t.dlq")) == 2_001


@on_a_loop
async def test_when_there_is_no_room_for_dead_letters_it_is_not_told_that_nothing_was_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker_on(tmp_path) as broker:
        await topic(broker, "dead_letter")
        await publish(broker, BAD)
        letters = broker.topic("t.dlq").partition(0)

        def full(*_: object, **__: object) -> int:
            raise DiskFull("no space is left")

        with monkeypatch.context() as disk:
            disk.setattr(letters, "append", full)
            outcomes = await publish(broker, GOOD, BAD)
        assert [type(each) for each in outcomes] == [StorageFailed, StorageFailed]
        partition = broker.topic("t").partition(0)
        await partition.durable(partition.log.end_offset)
        assert await values_in(broker, "t") == [GOOD]


@on_a_loop
async def test_dead_letters_whose_topic_is_deleted_meanwhile_come_into_a_new_one(tmp_path: Path) -> None:
    async with broker_on(tmp_path) as broker:
        await topic(broker, "dead_letter")
        await publish(broker, BAD)
        run = run_of(frame(b"1"), frame(GOOD))
        refused = await broker.refused_frames("t", run)
        await broker.delete_topic("t.dlq")
        appended = broker.append_frames("t", 0, run, refused)
        await appended.acknowledged
        assert appended.first == 1
        assert await values_in(broker, "t.dlq") == [b"1"]


@on_a_loop
async def test_a_topic_that_is_deleted_while_its_values_are_checked_takes_nothing(tmp_path: Path) -> None:
    async with broker_on(tmp_path) as broker:
        await topic(broker)
        await publish(broker, GOOD)
        publishing = asyncio.create_task(publish(broker, *[GOOD] * 50_000))
        framed = asyncio.create_task(broker.publish_frames("t", 0, run_of(*[frame(GOOD)] * 20_000)))
        await asyncio.sleep(0)
        await broker.delete_topic("t")
        for task in (publishing, framed):
            with pytest.raises(TopicNotFound):
                await task


@on_a_loop
async def test_closing_waits_until_dead_letters_are_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = broker_on(tmp_path)
    await broker.start()
    await topic(broker, "dead_letter", fsync="never")
    await publish(broker, BAD)
    goes_on = asyncio.Event()
    append = broker._refusals._append_letters

    async def append_later(*args: Any) -> Any:
        await goes_on.wait()
        return await append(*args)

    monkeypatch.setattr(broker._refusals, "_append_letters", append_later)
    publishing = asyncio.create_task(publish(broker, b"last"))
    await until(lambda: broker._refusals._burying)
    closing = asyncio.create_task(broker.close())
    # Long enough for a close that waits for nobody.
    await asyncio.wait({closing}, timeout=0.3)
    assert not closing.done()
    goes_on.set()
    await closing
    assert isinstance((await publishing)[0], Published)
    async with broker_on(tmp_path) as again:
        assert await values_in(again, "t.dlq") == [BAD, b"last"]


@pytest.mark.parametrize("policy", ["always", "never"])
@on_a_loop
async def test_if_the_dead_letter_cannot_be_made_safe_the_publish_fails(tmp_path: Path, policy: str) -> None:
    disk = FaultyFiles()
    async with broker_on(tmp_path, disk) as broker:
        await topic(broker, "dead_letter", fsync=policy)
        assert isinstance((await publish(broker, BAD))[0], Published)
        disk.fails = of_topic("t.dlq")
        (failed,) = await publish(broker, BAD)
        assert isinstance(failed, StorageFailed)
        end = broker.topic("t").partitions[0].log.end_offset
        # Now it is known, and nothing is begun.
        with pytest.raises(StorageFailed, match=r"the dead letters in 't\.dlq' take no more writes"):
            await broker.publish_frames("t", 0, run_of(frame(BAD), frame(GOOD)))
        outcomes = await publish(broker, GOOD, BAD)
        assert [type(each) for each in outcomes] == [StorageFailed, StorageFailed]
        assert broker.topic("t").partitions[0].log.end_offset == end
        assert isinstance((await publish(broker, GOOD))[0], Published)


@on_a_loop
async def test_any_bytes_get_an_answer_that_can_be_stored_and_sent(tmp_path: Path) -> None:
    strange = [
        b'"\\ud800"', b'{"\\ud800": 1}', b'{"count": "\\udfff"}', b"\xff\xfe", b"[" * 5_000, b'{"count": 1e400}',
        b'{"count": ' + b"9" * 5_000 + b"}", b"\x00" * 5, b'{"count": "%b"}' % (b"x" * 100_000),
        b'{"%b": 1}' % (b"y" * 100_000),
    ]  # fmt: skip
    async with broker_on(tmp_path) as broker:
        await topic(broker)
        outcomes = await publish(broker, *strange)
        for outcome in outcomes:
            assert isinstance(outcome, GoQueueError)
            assert len(str(outcome).encode()) < 5_000
        await broker.change_topic("t", {"schema_validation": "dead_letter"})
        assert all(isinstance(outcome, Published) for outcome in await publish(broker, *strange))
        assert await values_in(broker, "t.dlq") == strange
