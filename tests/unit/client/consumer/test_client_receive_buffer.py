from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue import Record, TopicPartition
from goqueue.client.consumer.delivery import claims_of
from goqueue.client.consumer.leases import LeaseKeeper
from goqueue.client.consumer.queue_source import AsyncDeliveryContext, QueueSource
from goqueue.client.consumer.receive_buffer import ReceiveBuffer
from goqueue.client.consumer.settler import ACK, Settler
from goqueue.client.consumer.stream_source import Progress, StreamBatch
from goqueue.model.errors import CorruptData
from goqueue.wire.batch import FrameRun
from goqueue.wire.frame import encode_frame
from goqueue.wire.proto import goqueue_pb2 as pb


def delivery(partition: int, offsets: range, *, damaged: int | None = None, **fields: Any) -> pb.Delivery:
    frames = [encode_frame(b"", b"%d" % offset, b"", 1, offset=offset) for offset in offsets]
    if damaged is not None:
        place = damaged - offsets.start
        frames[place] = frames[place][:-1] + b"?"
    positions = np.cumsum([0, *map(len, frames[:-1])]).astype(np.uint32)
    batch = FrameRun(memoryview(b"".join(frames)), positions).to_wire()
    return pb.Delivery(topic="t", partition=partition, next_offset=offsets.stop, batch=batch, **fields)


def buffer(progress: Progress, taken_up: list[Any]) -> ReceiveBuffer:
    return ReceiveBuffer(progress, None, taken_up.append)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 6)), min_size=1, max_size=8),
    st.lists(st.integers(0, 8), max_size=30),
)
def test_however_it_is_asked_every_record_comes_once_and_only_what_is_finished_counts_as_finished(
    parcels: list[tuple[int, int]], asks: list[int]
) -> None:
    async def run() -> None:
        progress, taken_up = Progress(), []
        inbox = buffer(progress, taken_up)
        ends = [0, 0, 0]
        for partition, count in parcels:
            offsets = range(ends[partition], ends[partition] + count)
            ends[partition] = offsets.stop
            inbox.put(StreamBatch(delivery(partition, offsets), ends_answer=True))
        handed: dict[int, list[int]] = {0: [], 1: [], 2: []}
        left = sum(ends)
        for ask in asks:
            finished = {TopicPartition("t", each): len(handed[each]) for each in handed if handed[each]}
            if not left:
                break
            # 0 asks for one record, any other number for as many at once.
            got: list[Record] = [await inbox.next()] if ask == 0 else await inbox.take(ask)
            assert len(got) == min(max(ask, 1), left)
            left -= len(got)
            for record in got:
                handed[record.partition].append(record.offset)
            now = {TopicPartition("t", each): len(handed[each]) for each in handed if handed[each]}
            assert inbox.positions(finished=False) == now
            told = {place: at for place, at in inbox.positions(finished=True).items() if at}
            assert told == finished
        assert all(offsets == list(range(len(offsets))) for offsets in handed.values())

    asyncio.run(run())


async def test_what_is_withheld_comes_when_it_is_released_and_what_is_dropped_never() -> None:
    taken_up: list[Any] = []
    inbox = buffer(Progress(), taken_up)
    mine, other = TopicPartition("t", 0), TopicPartition("t", 1)
    inbox.hold_back({mine})
    for partition in (0, 1, 0, 1):
        inbox.put(StreamBatch(delivery(partition, range(3)), ends_answer=True))
    assert {each.partition for each in await inbox.take(4)} == {1}
    assert not inbox.is_drained(mine)
    inbox.release({mine})
    inbox.prioritize({mine})
    inbox.drop({other})
    assert [each.partition for each in await inbox.take(100)] == [0] * 6
    assert len(taken_up) == len(set(map(id, taken_up))) == 4
    inbox.end()
    assert await inbox.take(1) == []
    assert inbox.is_drained(mine)


async def test_at_the_end_what_was_not_handed_out_is_taken_back_once() -> None:
    for polls in (True, False):
        inbox = buffer(Progress(), [])
        inbox.hold_back({TopicPartition("t", 1)})
        for partition in (0, 1, 0):
            inbox.put(StreamBatch(delivery(partition, range(3)), ends_answer=True))
        [first] = await inbox.take(1) if polls else [await inbox.next()]
        assert (first.partition, first.offset) == (0, 0)
        inbox.end()
        inbox.end()
        rest = [(each.partition, each.offset) for each in inbox.take_back()]
        assert rest == [(0, 1), (0, 2), (0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
        assert inbox.take_back() == []
        assert await inbox.next() is None


async def test_at_the_end_only_what_was_handed_out_counts_as_handed_out() -> None:
    for polls in (True, False):
        inbox = buffer(Progress(), [])
        inbox.put(StreamBatch(delivery(0, range(5)), ends_answer=True))
        await inbox.take(2) if polls else [await inbox.next(), await inbox.next()]
        inbox.end()
        assert await (inbox.take(1) if polls else inbox.next()) in (None, [])
        assert inbox.positions(finished=True) == {TopicPartition("t", 0): 2}


async def test_several_tasks_may_take() -> None:
    inbox = buffer(Progress(), [])
    seen: list[int] = []

    async def take() -> None:
        while (record := await inbox.next()) is not None:
            seen.append(record.offset)
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(take()) for _ in range(5)]
    for first in range(0, 30, 3):
        await asyncio.sleep(0)
        inbox.put(StreamBatch(delivery(0, range(first, first + 3)), ends_answer=True))
    while len(seen) < 30:  # noqa: ASYNC110
        await asyncio.sleep(0)
    inbox.end()
    await asyncio.gather(*tasks)
    assert sorted(seen) == list(range(30))


async def test_a_damaged_record_of_a_stream_is_an_error_behind_those_before_it() -> None:
    for polls in (True, False):
        progress = Progress()
        inbox = buffer(progress, [])
        inbox.put(StreamBatch(delivery(0, range(5, 9), damaged=7), ends_answer=True))
        before = await inbox.take(10) if polls else [await inbox.next(), await inbox.next()]
        assert [each.offset for each in before] == [5, 6]
        for _ in range(2):
            with pytest.raises(CorruptData, match="after offset 6 of t/0"):
                await inbox.take(10) if polls else await inbox.next()
        assert inbox.positions(finished=False) == {TopicPartition("t", 0): 7}


async def test_a_damaged_message_of_a_queue_goes_to_the_dead_letters_and_the_others_are_handled() -> None:
    asked: list[pb.SettleRequest] = []

    async def settle(request: pb.SettleRequest) -> pb.SettleResponse:
        asked.append(request)
        return pb.SettleResponse()

    keeper = LeaseKeeper(settle, 0)
    settler = Settler(settle, keeper)
    side = QueueSource(keeper, settler, AsyncDeliveryContext(settler, None))
    side.use_group_settings({"visibility_timeout_ms": "30s"}, ["t"])
    stream_batch = side.open(delivery(0, range(5, 9), damaged=7, lease=1, deliveries=1))
    assert [each.offset for each in stream_batch.open(None)] == [5, 6, 8]
    await settler.flush()
    [request] = asked
    assert (request.verb, list(request.leases[0].runs)) == (pb.VERB_REJECT, [7, 8])
    side.context.settle(ACK, claims_of([each for each in stream_batch.open(None) if each.offset > 5]))
    await settler.flush()
    assert (asked[1].verb, list(asked[1].leases[0].runs)) == (pb.VERB_ACK, [6, 7, 8, 9])
