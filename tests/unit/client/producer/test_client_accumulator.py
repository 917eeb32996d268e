from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from doubles.async_tests import until
from doubles.runs import run_of

from goqueue.client.connection.config import ProducerConfig
from goqueue.client.connection.retries import Backoff
from goqueue.client.producer.accumulator import PartitionQueue, PendingBatch
from goqueue.model.errors import (
    BrokerUnavailable,
    ClientClosed,
    DeliveryTimeout,
    GoQueueError,
    InternalError,
    InvalidMessage,
    SchemaViolation,
    TopicNotFound,
)
from goqueue.wire.batch import MAX_BATCH_BYTES, parse_batch
from goqueue.wire.batch_envelope import Piece
from goqueue.wire.decoding import decode_run
from goqueue.wire.frame import encode_frame
from goqueue.wire.proto import goqueue_pb2 as pb

pytestmark = pytest.mark.virtual_time


class Leader:
    """Where batches arrive: it stores them, holds them up, or answers as it is told to.

    A value such as ``b"a@7"`` is of a message that is delayed until then.
    """

    def __init__(self) -> None:
        self.batches: list[list[bytes]] = []
        self.stored: list[bytes] = []
        self.answers: list[GoQueueError | Exception] = []
        self.refuses: Callable[[bytes], bool] = lambda value: False
        self.open = asyncio.Event()
        self.open.set()

    async def deliver(self, wire: Sequence[Piece]) -> pb.Stored:
        values = [message.value for message in decode_run(parse_batch(b"".join(wire)))[0]]
        self.batches.append(values)
        await self.open.wait()
        if self.answers:
            raise self.answers.pop(0)
        if any(self.refuses(value) for value in values):
            raise InvalidMessage("one of them is bad")
        self.stored += values
        dues = [int(value.rpartition(b"@")[2]) if b"@" in value else 0 for value in values]
        first = len(self.stored) - len(values)
        return pb.Stored(first_offset=first, count=len(values), deliver_at_ns=dues if any(dues) else [])


class Sender:
    def __init__(self, **options: Any) -> None:
        self.leader = Leader()
        self.waiting_bytes = 0
        self._config = ProducerConfig(**{"linger_ms": 0} | options)
        self.queue = PartitionQueue(self._config, self.leader.deliver, lambda: Backoff(1, 1), self._release)

    def _release(self, size: int) -> None:
        self.waiting_bytes -= size

    def put(self, *values: bytes, dedup_ids: frozenset[str] | None = None) -> asyncio.Future[Any]:
        run = run_of([encode_frame(b"", value, b"", 0) for value in values])
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._config.delivery_timeout_ms / 1_000
        entry = PendingBatch(run, len(run.frames), deadline, loop.create_future(), dedup_ids)
        self.waiting_bytes += entry.size
        self.queue.put(entry)
        return entry.done


async def test_without_linger_a_message_leaves_at_once() -> None:
    sender = Sender(linger_ms=0)
    assert list((await sender.put(b"a")).offsets) == [0]
    assert sender.leader.batches == [[b"a"]]


async def test_messages_gather_until_the_linger_is_over() -> None:
    sender = Sender(linger_ms=20)
    began = asyncio.get_running_loop().time()
    for value in (b"a", b"b", b"c"):
        last = sender.put(value)
    await last
    assert asyncio.get_running_loop().time() - began >= 0.019
    assert sender.leader.batches == [[b"a", b"b", b"c"]]


async def test_a_batch_leaves_when_it_has_enough_messages() -> None:
    sender = Sender(linger_ms=60_000, batch_messages=3)
    sender.put(b"a")
    sender.put(b"b")
    await asyncio.sleep(0)
    assert sender.leader.batches == []
    await sender.put(b"c")
    assert sender.leader.batches == [[b"a", b"b", b"c"]]


async def test_a_batch_leaves_when_it_is_large_enough() -> None:
    sender = Sender(linger_ms=60_000, batch_bytes=2_000)
    sender.put(b"x" * 1_000)
    await asyncio.sleep(0)
    assert sender.leader.batches == []
    await sender.put(b"y" * 1_000)
    assert len(sender.leader.batches[0]) == 2


async def test_hurrying_ends_the_linger_but_not_that_of_messages_to_come() -> None:
    sender = Sender(linger_ms=60_000)
    sender.queue.send_now()
    assert sender.queue.unsettled() == []
    sender.put(b"a")
    sender.queue.send_now()
    [done] = sender.queue.unsettled()
    await done
    assert sender.queue.unsettled() == []
    sender.queue.send_now()
    sender.put(b"b")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert sender.leader.batches == [[b"a"]]
    await sender.queue.close()


async def test_while_a_batch_is_under_way_the_next_one_grows() -> None:
    sender = Sender()
    sender.leader.open.clear()
    sender.put(b"first")
    await until(lambda: sender.leader.batches)
    for number in range(5):
        last = sender.put(b"%d" % number)
    sender.leader.open.set()
    await last
    assert sender.leader.batches == [[b"first"], [b"0", b"1", b"2", b"3", b"4"]]


async def test_a_batch_is_never_larger_than_a_broker_takes() -> None:
    sender = Sender()
    sender.leader.open.clear()
    sender.put(b"first")
    await until(lambda: sender.leader.batches)
    for _ in range(5):
        last = sender.put(b"x" * (MAX_BATCH_BYTES // 2 - 100))
    sender.leader.open.set()
    await last
    assert [len(batch) for batch in sender.leader.batches] == [1, 2, 2, 1]


async def test_what_can_be_tried_again_is_tried_again_in_the_same_order() -> None:
    sender = Sender()
    sender.leader.answers = [BrokerUnavailable("gone"), BrokerUnavailable("still gone")]
    dones = [sender.put(b"%d" % number) for number in range(4)]
    assert [(await done).offsets[0] for done in dones] == [0, 1, 2, 3]
    assert sender.leader.stored == [b"0", b"1", b"2", b"3"]
    assert sender.waiting_bytes == 0


async def test_what_cannot_be_tried_again_fails_with_the_reason_and_the_next_goes_on() -> None:
    sender = Sender()
    sender.leader.answers = [TopicNotFound("gone")]
    with pytest.raises(TopicNotFound):
        await sender.put(b"a")
    assert list((await sender.put(b"b")).offsets) == [0]
    assert sender.waiting_bytes == 0


@pytest.mark.parametrize("count", [1, 2, 3, 8, 13])
async def test_a_bad_message_fails_alone(count: int) -> None:
    for bad in range(count):
        sender = Sender(linger_ms=1)
        sender.leader.refuses = lambda value, bad=bad: value == b"%d" % bad
        dones = [sender.put(b"%d" % number) for number in range(count)]
        outcomes = await asyncio.gather(*dones, return_exceptions=True)
        assert [isinstance(each, InvalidMessage) for each in outcomes] == [number == bad for number in range(count)]
        assert sender.leader.stored == [b"%d" % number for number in range(count) if number != bad]
        assert sender.waiting_bytes == 0


async def test_bad_messages_of_a_parcel_are_told_by_their_places_and_their_neighbours_are_stored() -> None:
    sender = Sender()
    sender.leader.refuses = lambda value: value == b"bad"
    stored = await sender.put(b"a", b"b@7", b"bad", b"c", b"bad")
    assert {place: type(error) for place, error in stored.failures.items()} == {2: InvalidMessage, 4: InvalidMessage}
    assert [stored.offsets[place] for place in (0, 1, 3)] == [0, 1, 2]
    assert [stored.due(place) for place in (0, 1, 3)] == [None, 7, None]
    assert sender.leader.stored == [b"a", b"b@7", b"c"]
    assert sender.waiting_bytes == 0


def misfits(**reasons: str) -> SchemaViolation:
    """By the places of a batch: ``_1="why"``."""
    error = SchemaViolation("some do not fit")
    error.misfits = {int(place[1:]): reason for place, reason in reasons.items()}
    return error


async def test_what_does_not_fit_is_told_by_its_place_each_with_its_own_reason() -> None:
    sender = Sender(linger_ms=20)
    # What is told of the second attempt counts by the places of that one.
    sender.leader.answers = [misfits(_1="first", _3="second", _6="other"), misfits(_1="third")]
    mixed, alone, whole = sender.put(b"0", b"1", b"2", b"3", b"4"), sender.put(b"5"), sender.put(b"6", b"7")
    stored = await mixed
    assert {place: str(error) for place, error in stored.failures.items()} == {1: "first", 3: "second", 2: "third"}
    assert [stored.offsets[place] for place in (0, 4)] == [0, 1]
    assert list((await alone).offsets) == [2]
    last = await whole
    assert (list(last.failures), last.offsets[1]) == ([0], 3)
    assert sender.leader.stored == [b"0", b"4", b"5", b"7"]
    assert sender.waiting_bytes == 0


async def test_a_parcel_of_which_nothing_fits_tells_every_reason() -> None:
    sender = Sender()
    sender.leader.answers = [misfits(_0="first", _1="second")]
    stored = await sender.put(b"a", b"b")
    assert [str(stored.failures[place]) for place in (0, 1)] == ["first", "second"]
    sender.leader.answers = [misfits(_0="alone")]
    with pytest.raises(SchemaViolation, match="alone"):
        await sender.put(b"c")


async def test_a_parcel_whose_rest_fails_for_another_reason_tells_both() -> None:
    sender = Sender()
    sender.leader.answers = [misfits(_1="does not fit"), TopicNotFound("gone")]
    stored = await sender.put(b"a", b"b", b"c")
    assert [type(stored.failures[place]) for place in range(3)] == [TopicNotFound, SchemaViolation, TopicNotFound]


async def test_a_message_that_is_not_acknowledged_in_time_fails_on_time() -> None:
    sender = Sender(delivery_timeout_ms=50)
    sender.leader.open.clear()
    began = asyncio.get_running_loop().time()
    with pytest.raises(DeliveryTimeout, match="50 ms"):
        await sender.put(b"a")
    assert 0.045 < asyncio.get_running_loop().time() - began < 0.1
    await until(lambda: sender.waiting_bytes == 0)


async def test_messages_that_wait_behind_a_stalled_batch_fail_on_time_too() -> None:
    sender = Sender(delivery_timeout_ms=100)
    sender.leader.open.clear()
    first = sender.put(b"under way")
    await until(lambda: sender.leader.batches)
    behind = sender.put(b"behind")
    for done in (first, behind):
        with pytest.raises(DeliveryTimeout):
            await done
    await until(lambda: sender.waiting_bytes == 0)
    sender.leader.open.set()
    assert list((await sender.put(b"later")).offsets) == [0]


async def test_a_timeout_names_what_the_last_attempt_said() -> None:
    sender = Sender(delivery_timeout_ms=30)
    sender.leader.answers = [BrokerUnavailable("nobody home")] * 1_000
    with pytest.raises(DeliveryTimeout, match="nobody home") as failure:
        await sender.put(b"a")
    assert isinstance(failure.value.__cause__, BrokerUnavailable)


async def test_closing_gives_up_what_is_under_way_and_what_waits() -> None:
    sender = Sender()
    sender.leader.open.clear()
    first = sender.put(b"under way")
    await until(lambda: sender.leader.batches)
    second = sender.put(b"waiting")
    await sender.queue.close()
    for done in (first, second):
        with pytest.raises(ClientClosed):
            await done
    assert sender.waiting_bytes == 0


async def test_closing_before_anything_could_leave_gives_up_what_waits() -> None:
    sender = Sender()
    done = sender.put(b"a")
    await sender.queue.close(TopicNotFound("of no use any more"))
    with pytest.raises(TopicNotFound, match="of no use"):
        await done
    assert (sender.leader.batches, sender.waiting_bytes) == ([], 0)


async def test_a_defect_fails_the_messages_instead_of_leaving_them_waiting() -> None:
    sender = Sender()
    sender.leader.answers = [ZeroDivisionError("oops")]
    with pytest.raises(InternalError, match="oops"):
        await sender.put(b"a")
    assert list((await sender.put(b"b")).offsets) == [0]
    assert sender.waiting_bytes == 0


def test_pauses_double_and_never_exceed_the_longest_or_undercut_what_was_asked_for() -> None:
    backoff = Backoff(100, 1_000)
    bounds = [(0.05, 0.1), (0.1, 0.2), (0.2, 0.4), (0.4, 0.8), (0.5, 1.0), (0.5, 1.0)]
    for low, high in bounds:
        assert low <= backoff.next_s() <= high
    assert backoff.next_s(7.5) == 7.5
    backoff.reset()
    assert backoff.next_s() <= 0.1


async def test_every_message_of_a_batch_is_told_when_it_will_be_seen() -> None:
    sender = Sender(linger_ms=20)
    dones = [sender.put(b"a"), sender.put(b"b@5", b"c", b"d@6"), sender.put(b"e")]
    plain, mixed, last = [await done for done in dones]
    assert len(sender.leader.batches) == 1
    assert [plain.due(0), *(mixed.due(place) for place in range(3)), last.due(0)] == [None, 5, None, 6, None]
    assert [*plain.offsets, *mixed.offsets, *last.offsets] == [0, 1, 2, 3, 4]


async def test_a_batch_without_delayed_messages_tells_no_times() -> None:
    assert (await Sender().put(b"a", b"b")).dues is None


async def test_what_was_stored_in_parts_is_told_when_it_will_be_seen() -> None:
    sender = Sender()
    # As if the whole were too much for once: only the parts are taken.
    sender.leader.answers = [InvalidMessage("in parts, please")]
    stored = await sender.put(b"a", b"b", b"c@7", b"d")
    assert list(stored.offsets) == [0, 1, 2, 3]
    assert [stored.due(place) for place in range(4)] == [None, None, 7, None]


class CountedIds(frozenset[str]):
    """Notes how many ids are copied when several sets are made one."""

    copied = 0

    def __or__(self, others: Any) -> Any:
        CountedIds.copied += len(self) + len(others)
        return CountedIds(super().__or__(others))

    def __ror__(self, others: Any) -> Any:
        CountedIds.copied += len(self) + len(others)
        return CountedIds(super().__or__(others))


async def test_a_batch_of_many_parcels_does_not_copy_the_dedup_ids_of_all_for_each() -> None:
    sender = Sender()
    CountedIds.copied = 0
    dones = [sender.put(b"%d" % number, dedup_ids=CountedIds((f"id-{number}",))) for number in range(500)]
    again = sender.put(b"again", dedup_ids=CountedIds(("id-7",)))
    await asyncio.gather(*dones, again)
    assert [len(batch) for batch in sender.leader.batches] == [500, 1]
    assert CountedIds.copied <= 2 * len(dones)
