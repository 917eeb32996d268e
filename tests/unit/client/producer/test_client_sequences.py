"""Numbers on batches, against a leader that answers as it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence as Many
from typing import Any

import pytest
from doubles.async_tests import until
from doubles.runs import run_of

from goqueue.client.connection.config import ProducerConfig
from goqueue.client.connection.connection import NotConnected
from goqueue.client.connection.retries import Backoff
from goqueue.client.producer.accumulator import PartitionQueue
from goqueue.client.producer.pending_batches import PendingBatch
from goqueue.client.producer.sequences import PartitionSequence, ProducerIdentity
from goqueue.model.errors import (
    BrokerUnavailable,
    ClientClosed,
    DeliveryTimeout,
    DuplicateSequence,
    GoQueueError,
    InternalError,
    InvalidMessage,
    OutOfOrderSequence,
    Overloaded,
    ProducerFenced,
    StorageFailed,
    TopicNotFound,
    UnknownProducer,
)
from goqueue.model.producer_sequences import SEQUENCES
from goqueue.wire.batch import parse_batch
from goqueue.wire.batch_envelope import Piece
from goqueue.wire.decoding import decode_run
from goqueue.wire.frame import encode_frame
from goqueue.wire.internal_headers import ProducerStamp
from goqueue.wire.producer_frames import stamp_of
from goqueue.wire.proto import goqueue_pb2 as pb

pytestmark = pytest.mark.virtual_time


class Ids:
    """The first is everyone's; each fresh one is the next number."""

    def __init__(self) -> None:
        self.last = 1
        self.failures: list[GoQueueError] = []

    async def shared(self) -> ProducerIdentity:
        if self.failures:
            raise self.failures.pop()
        return ProducerIdentity(1, 0)

    async def fresh(self) -> ProducerIdentity:
        self.last += 1
        return ProducerIdentity(self.last, 0)


class Sender:
    def __init__(self, **options: Any) -> None:
        self.ids = Ids()
        self.sequence = PartitionSequence(self.ids)  # type: ignore[arg-type]
        self.answers: list[Exception | None] = []
        """``None`` stores."""
        self.sent: list[tuple[ProducerStamp | None, list[bytes]]] = []
        self.stored: list[bytes] = []
        self.open = asyncio.Event()
        self.open.set()
        self._config = ProducerConfig(**{"linger_ms": 5} | options)
        self.queue = PartitionQueue(self._config, self._deliver, lambda: Backoff(1, 1), lambda _: None, self.sequence)

    async def _deliver(self, wire: Many[Piece]) -> pb.Stored:
        run = parse_batch(b"".join(wire))
        first = bytes(run.frames[: int(run.ends()[0])])
        values = [message.value for message in decode_run(run)[0]]
        self.sent.append((stamp_of(first), values))
        await self.open.wait()
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer
        self.stored += values
        return pb.Stored(first_offset=len(self.stored) - len(values), count=len(values))

    def put(self, *values: bytes, dedup_ids: frozenset[str] | None = None, late_s: float = 0) -> asyncio.Future[Any]:
        run = run_of([encode_frame(b"", value, b"", 0) for value in values])
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._config.delivery_timeout_ms / 1_000 - late_s
        entry = PendingBatch(run, 0, deadline, loop.create_future(), dedup_ids)
        self.queue.put(entry)
        return entry.done

    @property
    def numbers(self) -> list[tuple[int, int, int] | None]:
        """Producer, first number and count of each attempt."""
        return [
            None if stamp is None else (stamp.producer_id, stamp.first_sequence, stamp.message_count)
            for stamp, _ in self.sent
        ]


async def test_a_retry_has_the_same_numbers_and_the_next_batch_goes_on_behind_them() -> None:
    sender = Sender()
    sender.answers = [BrokerUnavailable("gone"), DeliveryTimeout("slow"), None]
    await sender.put(b"a", b"b")
    await sender.put(b"c")
    assert sender.numbers == [(1, 0, 2)] * 3 + [(1, 2, 1)]
    assert sender.stored == [b"a", b"b", b"c"]


async def test_a_retry_is_the_same_batch_although_some_of_it_is_too_late_by_now() -> None:
    sender = Sender(delivery_timeout_ms=60_000)
    sender.answers = [BrokerUnavailable("gone")]
    sender.open.clear()
    # What was put first is late before anything else; the rest of its batch has time.
    early, late = sender.put(b"a", late_s=59.95), sender.put(b"b")
    await until(lambda: sender.sent)
    with pytest.raises(DeliveryTimeout):
        await early
    sender.open.set()
    assert list((await late).offsets) == [1]
    assert sender.numbers == [(1, 0, 2)] * 2


@pytest.mark.parametrize("refusal", [NotConnected("no connection"), Overloaded("busy")])
async def test_a_refused_batch_may_go_again_without_those_that_are_too_late(refusal: GoQueueError) -> None:
    refusal.retry_after_s = 0.1
    sender = Sender(delivery_timeout_ms=60_000)
    sender.answers = [refusal]
    early, late = sender.put(b"a", late_s=59.95), sender.put(b"b")
    with pytest.raises(DeliveryTimeout):
        await early
    assert list((await late).offsets) == [0]
    assert sender.numbers == [(1, 0, 2), (1, 0, 1)]


async def test_parts_of_a_refused_batch_have_numbers_of_their_own() -> None:
    sender = Sender()
    sender.answers = [InvalidMessage("one is bad"), None, InvalidMessage("in here"), InvalidMessage("this one"), None]
    stored = await sender.put(b"a", b"bad", b"c")
    assert sender.numbers == [(1, 0, 3), (1, 0, 1), (1, 1, 2), (1, 1, 1), (1, 1, 1)]
    assert [*stored.failures] == [1]
    assert sender.stored == [b"a", b"c"]


async def test_a_refused_message_leaves_its_numbers_to_the_next() -> None:
    sender = Sender()
    sender.answers = [TopicNotFound("gone")]
    with pytest.raises(TopicNotFound):
        await sender.put(b"a")
    await sender.put(b"b")
    assert sender.numbers == [(1, 0, 1), (1, 0, 1)]


@pytest.mark.parametrize("refusal", [InvalidMessage("bad"), TopicNotFound("gone"), UnknownProducer("who")])
async def test_a_batch_that_may_be_stored_is_neither_taken_apart_nor_sent_under_another_id(
    refusal: GoQueueError,
) -> None:
    sender = Sender()
    sender.answers = [BrokerUnavailable("gone"), refusal]
    with pytest.raises(type(refusal)):
        await sender.put(b"a", b"b")
    await sender.put(b"c", b"d")
    assert sender.numbers == [(1, 0, 2)] * 2 + [(2, 0, 2)]
    assert sender.stored == [b"c", b"d"]


@pytest.mark.parametrize("failure", [StorageFailed("the disk"), InternalError("a bug"), ZeroDivisionError("a bug")])
async def test_a_failure_that_leaves_open_what_is_stored_ends_the_use_of_an_id(failure: Exception) -> None:
    sender = Sender()
    sender.answers = [failure]
    with pytest.raises(GoQueueError):
        await sender.put(b"a")
    await sender.put(b"b")
    assert sender.numbers == [(1, 0, 1), (2, 0, 1)]


@pytest.mark.parametrize("error", [UnknownProducer("who"), ProducerFenced("old"), OutOfOrderSequence("a gap")])
async def test_a_producer_that_the_broker_has_forgotten_goes_on_under_another_id(error: GoQueueError) -> None:
    sender = Sender()
    await sender.put(b"a")
    sender.answers = [error]
    assert list((await sender.put(b"b")).offsets) == [1]
    assert sender.numbers == [(1, 0, 1), (1, 1, 1), (2, 0, 1)]


async def test_what_follows_on_something_lost_was_not_stored_by_any_attempt() -> None:
    sender = Sender()
    sender.answers = [BrokerUnavailable("gone"), OutOfOrderSequence("a gap")]
    await sender.put(b"a")
    assert sender.numbers == [(1, 0, 1), (1, 0, 1), (2, 0, 1)]


async def test_a_batch_that_the_broker_remembers_without_its_offset_is_stored() -> None:
    sender = Sender()
    sender.answers = [BrokerUnavailable("gone"), DuplicateSequence("long ago")]
    assert list((await sender.put(b"a", b"b")).offsets) == [-1, -1]
    await sender.put(b"c")
    assert sender.numbers == [(1, 0, 2), (1, 0, 2), (1, 2, 1)]


async def test_a_batch_that_was_given_up_takes_its_numbers_with_it() -> None:
    sender = Sender(delivery_timeout_ms=50)
    sender.open.clear()
    with pytest.raises(DeliveryTimeout):
        await sender.put(b"a")
    sender.open.set()
    await sender.put(b"b")
    assert sender.numbers == [(1, 0, 1), (2, 0, 1)]


async def test_a_batch_that_was_called_off_takes_its_numbers_with_it() -> None:
    sender = Sender()
    sender.open.clear()
    done = sender.put(b"a")
    await until(lambda: sender.sent)
    await sender.queue.close()
    with pytest.raises(ClientClosed):
        await done
    assert (await sender.sequence.stamp(1)).producer_id == 2


async def test_an_id_that_cannot_be_had_yet_is_asked_for_again() -> None:
    sender = Sender()
    sender.ids.failures = [BrokerUnavailable("gone")]
    await sender.put(b"a")
    assert sender.numbers == [(1, 0, 1)]


async def test_numbers_begin_again_behind_the_last_one() -> None:
    sender = Sender()
    await sender.put(b"a")
    sender.sequence.stored(ProducerStamp(1, 0, SEQUENCES - 4, 2))
    for _ in range(2):
        await sender.put(b"b", b"c", b"d")
    assert sender.numbers[1:] == [(1, SEQUENCES - 2, 3), (1, 1, 3)]


async def test_messages_with_dedup_ids_have_no_numbers_and_batches_of_their_own() -> None:
    sender = Sender(linger_ms=20)
    ids: Many[frozenset[str] | None] = [None, frozenset("x"), frozenset("y"), frozenset("x"), None, None]
    for number, each in enumerate(ids):
        last = sender.put(b"%d" % number, dedup_ids=each)
    await last
    assert [values for _, values in sender.sent] == [[b"0"], [b"1", b"2"], [b"3"], [b"4", b"5"]]
    assert sender.numbers == [(1, 0, 1), None, None, (1, 1, 2)]
