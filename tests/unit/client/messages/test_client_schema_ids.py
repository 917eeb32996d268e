from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
import zstandard

from goqueue.client.consumer.receive_buffer import ReceiveBuffer
from goqueue.client.consumer.stream_source import Progress, StreamBatch
from goqueue.client.messages.schema_ids import schema_ids
from goqueue.model.errors import BrokerUnavailable, GoQueueError, SchemaNotFound
from goqueue.wire.batch import FrameRun, join_frames
from goqueue.wire.compression import decompressed_start
from goqueue.wire.frame import Flag, encode_frame
from goqueue.wire.proto import goqueue_pb2 as pb
from goqueue.wire.registry_framing import encode_schema_id


def run_of(*frames: bytes) -> FrameRun:
    joined = join_frames(list(frames), 1)
    return FrameRun(memoryview(joined.frames), joined.positions)


def framed(schema_id: int, content: bytes = b"", key: bytes = b"") -> bytes:
    return encode_frame(key, encode_schema_id(schema_id) + content, b"", 1)


def test_each_id_is_found_once_behind_keys_of_any_length() -> None:
    run = run_of(framed(7, b"a"), framed(7, b"bc", b"key"), framed((1 << 32) - 1), framed(2, b"", b"\x00" * 40))
    assert schema_ids(run) == {2, 7, (1 << 32) - 1}


def test_what_has_no_id_adds_none() -> None:
    tombstone = encode_frame(b"key", b"", b"", 1, 2, int(Flag.TOMBSTONE))
    plain = [encode_frame(b"", value, b"", 1) for value in (b"", b"\x00\x00\x00\x01", b'{"a": 1}')]
    assert schema_ids(run_of(tombstone, *plain)) == set()
    assert schema_ids(run_of(tombstone, *plain, framed(3))) == {3}


def test_packed_values_are_unpacked_and_what_cannot_be_is_left_to_the_reader() -> None:
    flags = int(Flag.COMPRESSED)
    value = zstandard.compress(encode_schema_id(9) + b"x" * 100)
    whole, cut = (encode_frame(b"k", each, b"", 1, 2, flags) for each in (value, value[:8]))
    assert schema_ids(run_of(cut, whole, framed(4))) == {4, 9}


def test_only_the_beginning_of_a_packed_value_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def noting(value: bytes, size: int) -> bytes:
        asked.append(size)
        return decompressed_start(value, size)

    monkeypatch.setattr("goqueue.client.messages.schema_ids.decompressed_start", noting)
    value = zstandard.compress(encode_schema_id(9) + bytes(64 << 20))
    assert schema_ids(run_of(encode_frame(b"", value, b"", 1, 2, int(Flag.COMPRESSED)))) == {9}
    assert asked == [5]


class Reader:
    """Knows a schema when it was told to learn it; says first what ``failures`` has."""

    def __init__(self, *failures: GoQueueError) -> None:
        self.failures = list(failures)
        self.asked: list[list[int]] = []
        self.known: set[int] = set()

    def __call__(self, value: bytes) -> Any:
        schema_id = int.from_bytes(value[1:5])
        if schema_id not in self.known:
            raise SchemaNotFound(f"schema {schema_id} was not learned")
        return value[5:]

    async def learn(self, schema_ids: Iterable[int]) -> None:
        self.asked.append(sorted(schema_ids))
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        self.known.update(schema_ids)


def stream_batch(*frames: bytes) -> StreamBatch:
    batch = join_frames(list(frames), 1)
    batch.stamp(0)
    return StreamBatch(pb.Delivery(topic="t", batch=batch.to_wire(), next_offset=len(frames)), ends_answer=True)


def buffer_of(reader: Reader) -> ReceiveBuffer:
    return ReceiveBuffer(Progress(), reader, lambda _: None)


async def test_schemas_are_learned_before_a_parcel_is_opened() -> None:
    reader = Reader()
    buffer = buffer_of(reader)
    buffer.put(stream_batch(framed(1, b"a"), framed(2, b"b")))
    buffer.put(stream_batch(framed(1, b"c")))
    assert [each.value for each in await buffer.take(10)] == [b"a", b"b", b"c"]
    assert reader.asked == [[1, 2]]


async def test_several_takers_wait_for_the_same_schemas() -> None:
    reader = Reader()
    buffer = buffer_of(reader)
    buffer.put(stream_batch(framed(1, b"a"), framed(1, b"b"), framed(1, b"c")))
    found = await asyncio.gather(*(buffer.next() for _ in range(3)))
    assert sorted(each.value for each in found) == [b"a", b"b", b"c"]
    assert reader.asked == [[1]]


async def test_a_broker_that_is_away_is_asked_again_and_nothing_is_skipped() -> None:
    reader = Reader(BrokerUnavailable("away"), BrokerUnavailable("still"))
    buffer = buffer_of(reader)
    buffer.put(stream_batch(framed(1, b"a")))
    assert (await buffer.next()).value == b"a"
    assert reader.asked == [[1], [1], [1]]


async def test_who_loses_patience_while_a_schema_is_asked_for_loses_no_message() -> None:
    reader = Reader(*[BrokerUnavailable("away")] * 3)
    buffer = buffer_of(reader)
    buffer.put(stream_batch(framed(1, b"a")))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await buffer.take(1)
    assert [each.value for each in await buffer.take(1)] == [b"a"]


async def test_the_end_comes_although_the_broker_is_away() -> None:
    reader = Reader(*[BrokerUnavailable("away")] * 100)
    buffer = buffer_of(reader)
    buffer.put(stream_batch(framed(1, b"a")))
    taking = asyncio.ensure_future(buffer.next())
    while not reader.asked:  # noqa: ASYNC110
        await asyncio.sleep(0)
    buffer.end()
    assert await taking is None
