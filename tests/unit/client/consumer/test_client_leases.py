from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from doubles.async_tests import until
from hypothesis import given
from hypothesis import strategies as st

from goqueue import AsyncClient
from goqueue.client.consumer.handler_result import to_reject
from goqueue.client.consumer.leases import Lease, LeaseKeeper, granted_s
from goqueue.client.consumer.settler import ACK, RELEASE, Order, Settler
from goqueue.model.errors import BrokerUnavailable, ClientClosed, StaleReceipt
from goqueue.model.runs import offsets_in, to_runs
from goqueue.wire.proto import goqueue_pb2 as pb

NACK = Order(pb.VERB_NACK, 0)


class FakeBroker:
    """Notes what it is asked, refuses what it is told to, and answers when it may."""

    def __init__(self) -> None:
        self.asked: list[pb.SettleRequest] = []
        self.refused: set[int] = set()
        self.fails = False
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def settle(self, request: pb.SettleRequest) -> pb.SettleResponse:
        self.asked.append(request)
        await self.may_answer.wait()
        if self.fails:
            raise BrokerUnavailable("gone")
        response = pb.SettleResponse()
        for place, lease in enumerate(request.leases):
            if refused := set(offsets_in(list(lease.runs))) & self.refused:
                error = pb.Error(code="stale_receipt", message="no")
                response.refusals.append(pb.Refusal(lease=place, runs=to_runs(sorted(refused)), error=error))
        return response


def lease(offsets: range, visibility_s: float = 30.0, number: int = 1) -> Lease:
    delivery = pb.Delivery(topic="t", partition=0, lease=number, deliveries=1, token=b"x")
    return Lease(delivery, offsets, visibility_s, asyncio.get_running_loop().time())


def future() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


@given(st.sets(st.integers(0, 60), min_size=1), st.data())
def test_runs_hold_exactly_those_of_the_leases_offsets_that_are_meant(held: set[int], data: st.DataObject) -> None:
    """Runs may reach over offsets that are not in the lease at all: those of other lanes."""
    meant = data.draw(st.lists(st.sampled_from(sorted(held)), min_size=1))
    runs = list(Lease(pb.Delivery(), held, 1.0, 0.0).claim(meant).runs)
    assert runs == sorted(set(runs))
    assert len(runs) % 2 == 0
    assert set(offsets_in(runs)) & held == set(meant)


@pytest.mark.parametrize(
    ("told_s", "granted"), [(30.0, 30.0), (29.0, 30.0), (300.0, 30.0), (11.0, 10.0), (0.5, 3.0), (-100.0, 3.0)]
)
def test_a_clock_that_differs_is_not_taken_at_its_word(told_s: float, granted: float) -> None:
    assert granted_s(30.0, int((1_000 + told_s) * 1e9), 1_000 * 10**9) == granted


async def keeping(broker: FakeBroker, max_lease_s: float, when: Callable[[], bool], *leases: Lease) -> LeaseKeeper:
    keeper = LeaseKeeper(broker.settle, max_lease_s)
    keeper.start()
    for each in leases:
        keeper.add(each)
    await until(when)
    return keeper


async def test_leases_are_extended_together_until_they_are_dropped() -> None:
    broker = FakeBroker()
    first, second = lease(range(3), 0.06), lease(range(5, 9), 0.06, 2)
    keeper = await keeping(broker, 60, lambda: len(broker.asked) == 2, first, second)
    for request in broker.asked:
        assert (request.verb, request.delay_ms) == (pb.VERB_EXTEND, 60)
        assert [list(each.runs) for each in request.leases] in ([[0, 3], [5, 9]], [[5, 9], [0, 3]])
    keeper.drop(first)
    before = len(broker.asked)
    await until(lambda: len(broker.asked) > before + 1)
    assert [each.lease for each in broker.asked[-1].leases] == [2]
    await keeper.stop()
    assert len(keeper) == 0


async def test_what_the_user_extended_himself_is_not_cut_short() -> None:
    broker = FakeBroker()
    held = lease(range(3), 0.06)
    held.user_deadlines[1] = asyncio.get_running_loop().time() + 60
    keeper = await keeping(broker, 60, lambda: len(broker.asked) == 1, held)
    assert list(broker.asked[0].leases[0].runs) == [0, 1, 2, 3]
    await keeper.stop()


async def test_what_the_broker_refuses_is_lost_unless_it_was_settled_meanwhile() -> None:
    broker = FakeBroker()
    broker.refused = {0, 1}
    some = lease(range(3), 0.06)
    keeper = LeaseKeeper(broker.settle, 60)
    broker.may_answer.clear()
    keeper.start()
    keeper.add(some)
    await until(lambda: broker.asked)
    some.left.discard(0)
    broker.may_answer.set()
    await until(lambda: some.lost)
    assert (some.left, some.lost) == ({2}, {1})
    await keeper.stop()


async def test_a_lease_is_tried_again_after_a_failure_and_given_up_when_it_is_too_old() -> None:
    broker = FakeBroker()
    broker.fails = True
    keeper = await keeping(broker, 0.2, lambda: len(broker.asked) >= 2, lease(range(3), 0.06))
    await until(lambda: len(keeper) == 0)
    await keeper.stop()


def settler(broker: FakeBroker) -> Settler:
    return Settler(broker.settle, LeaseKeeper(broker.settle, 0))


async def test_calls_of_one_turn_leave_as_one_request_for_each_verb() -> None:
    broker = FakeBroker()
    gather = settler(broker)
    some, other = lease(range(10)), lease(range(20, 30), number=2)
    done = [future() for _ in range(6)]
    for offset in range(4):
        gather.put(ACK, [(some, (offset,))], done[offset])
    gather.put(ACK, [(other, (20, 22))], done[4])
    gather.put(NACK, [(some, (5,))], done[5])
    await asyncio.gather(*done)
    acked, nacked = broker.asked
    assert [list(each.runs) for each in acked.leases] == [[0, 4], [20, 21, 22, 23]]
    assert (nacked.verb, nacked.delay_ms, list(nacked.leases[0].runs)) == (pb.VERB_NACK, 0, [5, 6])
    assert some.left == {4, 6, 7, 8, 9}


async def test_requests_grow_while_another_is_under_way() -> None:
    broker = FakeBroker()
    broker.may_answer.clear()
    gather = settler(broker)
    some = lease(range(100))
    done = []
    for offset in range(100):
        done.append(future())
        gather.put(ACK, [(some, (offset,))], done[-1])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert len(broker.asked) == 1
    broker.may_answer.set()
    await asyncio.gather(*done)
    assert len(broker.asked) == 2
    assert list(broker.asked[-1].leases[0].runs) == [1, 100]


async def test_each_hears_of_its_own_refusal_and_of_no_other() -> None:
    broker = FakeBroker()
    broker.refused = {1, 7}
    gather = settler(broker)
    some = lease(range(10))
    fine, refused, many, twice = future(), future(), future(), future()
    gather.put(ACK, [(some, (0,))], fine)
    gather.put(ACK, [(some, (1,))], refused)
    gather.put(ACK, [(some, (5, 6, 7))], many)
    gather.put(ACK, [(some, (0, 2))], twice)
    assert not twice.done()
    await fine
    for each in (refused, many, twice):
        with pytest.raises(StaleReceipt):
            await each
    assert some.lost == {1, 7}
    assert sum(len(list(offsets_in(list(each.leases[0].runs)))) for each in broker.asked) == 6


async def test_what_was_given_back_already_is_no_trouble_for_who_gives_it_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A broker takes back what it is about to send when a stream ends, and some of that arrives all the same."""
    broker = FakeBroker()
    broker.refused = {0, 1}
    keeper = LeaseKeeper(broker.settle, 60)
    settler = Settler(broker.settle, keeper)
    some = lease(range(4))
    released, released_again, nacked = future(), future(), future()
    settler.put(RELEASE, [(some, [0, 2])], released)
    await released
    settler.put(RELEASE, [(some, [0])], released_again)
    await released_again
    assert not caplog.records
    settler.put(NACK, [(some, [1])], nacked)
    with pytest.raises(StaleReceipt):
        await nacked
    assert "message not settled" in caplog.text


async def test_what_cannot_be_told_fails_and_nothing_is_taken_after_the_end() -> None:
    broker = FakeBroker()
    broker.fails = True
    gather = settler(broker)
    some = lease(range(10))
    gone, late, stuck = future(), future(), future()
    gather.put(ACK, [(some, (0,))], gone)
    with pytest.raises(BrokerUnavailable):
        await gone
    broker.may_answer.clear()
    gather.put(ACK, [(some, (1,))], stuck)
    await gather.close(0.01)
    gather.put(ACK, [(some, (2,))], late)
    for each in (stuck, late):
        with pytest.raises(ClientClosed):
            await each


async def test_a_future_that_is_cancelled_disturbs_nobody() -> None:
    broker = FakeBroker()
    gather = settler(broker)
    some = lease(range(10))
    cancelled, other = future(), future()
    gather.put(ACK, [(some, (0,))], cancelled)
    gather.put(ACK, [(some, (1,))], other)
    cancelled.cancel()
    await other
    await gather.flush()


async def test_a_lease_is_open_until_everything_of_it_is_settled_though_it_is_not_extended_any_more() -> None:
    broker = FakeBroker()
    some = lease(range(3), 0.06)
    keeper = await keeping(broker, 0.1, lambda: broker.asked, some)
    await until(lambda: len(keeper) == 0)
    assert keeper.open() == {some}
    gather = Settler(broker.settle, keeper)
    broker.may_answer.clear()
    done = future()
    gather.put(ACK, [(some, range(3))], done)
    # The broker may not have heard of it.
    assert (keeper.open(), gather.leases()) == (set(), {some})
    await until(lambda: broker.asked[-1].verb == pb.VERB_ACK)
    assert gather.leases() == {some}
    broker.may_answer.set()
    await done
    await gather.flush()
    assert gather.leases() == set()
    await keeper.stop()


async def test_a_consumer_names_what_it_holds_and_gives_up_what_are_too_many_to_name() -> None:
    client = AsyncClient("127.0.0.1:1")
    consumer = client.consumer("g", "t", close_timeout_ms=10)
    held = [lease(range(number, number + 1), number=number) for number in range(10_002)]
    for number, each in enumerate(held):
        each.taken_at = float(number)
        consumer._keeper.add(each)
    acked = future()
    consumer._settler.put(ACK, [(held[0], (0,))], acked)
    named = consumer.held()
    assert [(each.topic, each.partition, each.lease) for each in named] == [("t", 0, n) for n in range(10_000)]
    assert [each.number for each in held if each.lost] == [10_000, 10_001]
    assert len(consumer._keeper) == 9_999
    await consumer.close()
    await client.close()


async def test_an_ack_does_not_wait_for_a_rejection() -> None:
    broker = FakeBroker()
    broker.may_answer.clear()
    gather = settler(broker)
    some = lease(range(4))
    done = [future() for _ in range(4)]
    gather.put(to_reject("broken"), [(some, (0,))], done[0])
    await asyncio.sleep(0)
    gather.put(ACK, [(some, (1,))], done[1])
    await asyncio.sleep(0)
    gather.put(ACK, [(some, (2,))], done[2])
    gather.put(to_reject("broken, too"), [(some, (3,))], done[3])
    for _ in range(5):
        await asyncio.sleep(0)
    assert [request.verb for request in broker.asked] == [pb.VERB_REJECT, pb.VERB_ACK]
    broker.may_answer.set()
    await asyncio.gather(*done)
    assert sorted(request.verb for request in broker.asked[2:]) == [pb.VERB_ACK, pb.VERB_REJECT]


class CountedOrder(Order):
    """Notes how often it is looked at."""

    looks = 0

    @property
    def verb(self) -> pb.Verb.ValueType:  # type: ignore[override]
        CountedOrder.looks += 1
        return self[0]


async def test_what_is_said_of_a_message_takes_no_look_at_all_that_was_said_before() -> None:
    """Each with a reason of its own, before and while one is under way, and when answers come one by one."""
    broker = FakeBroker()
    broker.may_answer.clear()
    gather = settler(broker)
    some = lease(range(901))
    done = [future() for _ in range(901)]
    CountedOrder.looks = 0
    gather.put(to_reject("the first"), [(some, (900,))], done[900])
    for offset in range(900):
        if not offset % 300:
            await asyncio.sleep(0)
        gather.put(CountedOrder(pb.VERB_REJECT, None, f"reason {offset}"), [(some, (offset,))], done[offset])
    broker.may_answer.set()
    await asyncio.gather(*done)
    await gather.flush()
    assert len(broker.asked) == 901
    assert CountedOrder.looks <= 20 * 900


EXTEND = Order(pb.VERB_EXTEND, 20_000)


async def test_an_extension_that_comes_after_the_ack_loses_nothing_and_is_no_trouble(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = FakeBroker()
    broker.refused = {0, 1}
    gather = settler(broker)
    some = lease(range(3))
    extended, lost = future(), future()
    gather.put(EXTEND, [(some, (0,))], extended)
    gather.put(EXTEND, [(some, (1,))], lost)
    broker.may_answer.clear()
    await until(lambda: broker.asked)
    # As if the broker had got it before.
    some.left.discard(0)
    broker.may_answer.set()
    await extended
    with pytest.raises(StaleReceipt):
        await lost
    assert (some.left, some.lost) == ({2}, {1})
    assert len(caplog.records) == 1


async def test_an_extension_of_what_is_known_to_be_lost_is_told_although_others_found_out_first() -> None:
    broker = FakeBroker()
    broker.refused = {0}
    gather = settler(broker)
    some = lease(range(3))
    extended = future()
    gather.put(EXTEND, [(some, (0,))], extended)
    some.lose({0})
    with pytest.raises(StaleReceipt):
        await extended


async def test_a_lease_of_which_an_extension_finds_nothing_left_is_not_kept() -> None:
    broker = FakeBroker()
    broker.refused = {0, 1}
    keeper = LeaseKeeper(broker.settle, 60)
    gather = Settler(broker.settle, keeper)
    some = lease(range(2))
    keeper.add(some)
    extended = future()
    gather.put(EXTEND, [(some, (0, 1))], extended)
    with pytest.raises(StaleReceipt):
        await extended
    assert (len(keeper), some.lost) == (0, {0, 1})
