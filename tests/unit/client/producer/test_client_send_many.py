"""Many messages at once, against a leader that stores everything or what it is told to."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import pytest
from doubles.async_tests import until

from goqueue import Outgoing, Sent
from goqueue.client.connection.config import ProducerConfig
from goqueue.client.connection.retries import Backoff
from goqueue.client.messages.outgoing_message import Encoder
from goqueue.client.messages.serializers import to_bytes
from goqueue.client.producer.outbox import Outbox, OutboxTerms
from goqueue.client.producer.pending_batches import Stored
from goqueue.client.producer.send_buffer import SendBuffer
from goqueue.client.producer.send_input import LoopInput
from goqueue.client.producer.send_many import send_many
from goqueue.model.errors import GoQueueError, TopicNotFound
from goqueue.wire.batch import FrameRun, parse_batch
from goqueue.wire.batch_envelope import Piece
from goqueue.wire.proto import goqueue_pb2 as pb

KIB = 1 << 10


class Leader:
    """Of every partition, and who tells that it is."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._next_offset = [0] * partitions
        self.refusal: GoQueueError | None = None
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def partitions(self, topic: str, within_ms: int | None = None) -> int:
        return self._partitions

    async def leader(self, topic: str, number: int) -> Leader:
        return self

    def backoff(self) -> Backoff:
        return Backoff(1, 1)

    def doubt(self, topic: str, error: GoQueueError) -> None:
        pass

    async def publish(self, topic: str, number: int, acks: Any, batch: Sequence[Piece], *_: Any) -> pb.Stored:
        await self.may_answer.wait()
        if self.refusal is not None:
            raise self.refusal
        first, count = self._next_offset[number], len(parse_batch(b"".join(batch)))
        self._next_offset[number] += count
        return pb.Stored(first_offset=first, count=count)


class Sender(Outbox):
    """Notes what is handed over."""

    def __init__(self, partitions: int = 1, serializer: Callable[[Any], bytes] = to_bytes, **options: Any) -> None:
        self.brokers = Leader(partitions)
        config = ProducerConfig(**{"idempotent": False} | options)
        self.buffer = SendBuffer(config.buffer_bytes, block=config.block)
        directory: Any = self.brokers
        terms = OutboxTerms(directory, config, Encoder(serializer, 20 << 20), self.buffer)
        super().__init__(terms, lambda *_: None, lambda: None)
        self.handed_over: list[int] = []
        """The bytes of each parcel."""

    async def enqueue(
        self, topic: str, number: int, run: FrameRun, dedup_ids: frozenset[str] | None = None
    ) -> asyncio.Future[Stored]:
        self.handed_over.append(len(run.frames))
        return await super().enqueue(topic, number, run, dedup_ids)

    def sending(self, messages: Any) -> asyncio.Task[list[Sent]]:
        return asyncio.create_task(send_many(self, "t", LoopInput(messages)))


@pytest.mark.parametrize("partitions", [1, 8, 100])
async def test_what_is_encoded_and_not_handed_over_is_a_part_of_the_buffer_however_many_partitions_there_are(
    partitions: int,
) -> None:
    encoded = 0
    ahead: list[int] = []

    def counted(value: bytes) -> bytes:
        nonlocal encoded
        encoded += len(value)
        ahead.append(encoded - sum(sender.handed_over))
        return value

    sender = Sender(partitions, counted, buffer_bytes=1 << 20)
    sent = await sender.sending(Outgoing(bytes(1_000), key=b"%d" % number) for number in range(4_000))
    assert len(sent) == 4_000
    assert max(ahead) <= 257 * KIB


@pytest.mark.parametrize(
    "make",
    [
        lambda number: bytes(1_000),
        lambda number: "x" * 1_000,
        lambda number: Outgoing(bytes(1_000), key=b"%d" % number),
        lambda number: bytes((60 if number % 10 == 9 else 1) * KIB),
        lambda number: "x" * ((60 if number % 10 == 9 else 1) * KIB),
    ],
    ids=["bytes", "texts", "keys", "large bytes", "large texts"],
)
async def test_several_parcels_fit_the_buffer_unless_a_message_is_larger(make: Callable[[int], Any]) -> None:
    sender = Sender(3, buffer_bytes=64 * KIB)
    assert len(await sender.sending([make(number) for number in range(300)])) == 300
    assert max(size for size in sender.handed_over if size < 60 * KIB) <= 16 * KIB
    assert max(sender.handed_over) < 61 * KIB


@pytest.mark.parametrize(("size", "most"), [(10, -(-2_000 // 3)), (1_000, 512 * KIB // 1_000)])
async def test_bytes_and_texts_without_keys_stay_together_alike(size: int, most: int) -> None:
    for messages in ([b"x" * size] * 5_000, ["x" * size] * 5_000):
        sent = await Sender(3).sending(messages)
        together = [len(list(some)) for _, some in groupby(sent, lambda each: each.partition)]
        assert most * 0.95 < max(together) <= most


@pytest.mark.parametrize("messages", [range(10_000), [7] * 10_000, [Outgoing(b"v", key=b"k")] * 10_000])
async def test_others_have_their_turn_while_messages_are_taken_in(messages: Any) -> None:
    """Those with a fault never fill a parcel, and it takes long until small ones do."""
    sending = Sender().sending(messages)
    turns = 0
    while not sending.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 90
    await asyncio.gather(sending, return_exceptions=True)


async def test_a_list_that_is_changed_meanwhile_is_sent_as_it_was() -> None:
    values = [b"%d" % number for number in range(6_000)]
    given = LoopInput(values)
    values.clear()
    assert [each.offset for each in await send_many(Sender(), "t", given)] == list(range(6_000))


async def test_what_fails_when_nobody_asks_any_more_is_told_by_the_log(caplog: pytest.LogCaptureFixture) -> None:
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    sender = Sender()
    sender.brokers.refusal = TopicNotFound("gone")
    sender.brokers.may_answer.clear()
    sending = sender.sending([b"v"] * 2_001)
    await until(lambda: len(sender.handed_over) == 2)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert not caplog.records
    sender.brokers.may_answer.set()
    await until(lambda: not sender.buffer.used_bytes)
    del sending
    gc.collect()
    assert complaints == []
    assert caplog.text.count("message not delivered") == 2


async def test_what_has_failed_before_the_messages_broke_off_is_told_by_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sender = Sender(block=False)
    sender.brokers.refusal = TopicNotFound("gone")

    class BrokenOff(BaseException):
        pass

    def values() -> Iterator[bytes]:
        yield from [b"v"] * 10_000
        raise BrokenOff

    with pytest.raises(BrokenOff):
        await send_many(sender, "t", LoopInput(values()))
    await until(lambda: not sender.buffer.used_bytes)
    assert "message not delivered" in caplog.text
