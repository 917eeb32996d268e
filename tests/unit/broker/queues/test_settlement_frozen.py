"""Messages that were acked in a transaction are nobody else's until it ends, whichever way somebody asks for them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from doubles.loop import on_a_loop
from doubles.transaction_bench import GROUP, TOPIC, Bench, bench

from goqueue.broker.queues.polling import Delivery, PollBounds
from goqueue.delivery.settlement_requests import LeaseClaim, SettlementRequest, Verb
from goqueue.model.errors import StaleReceipt


async def joined(it: Bench, *values: bytes) -> list[Delivery]:
    """What the group's first member has in hand."""
    await it.join(retry_backoff_ms=0)
    await it.publish(None, *values)
    return await it.broker.groups.polling.poll(GROUP, it.members[GROUP], PollBounds(100, 1 << 20))


def claim(delivery: Delivery, *runs: int) -> LeaseClaim:
    return LeaseClaim(GROUP, TOPIC, 0, delivery.lease, delivery.count, delivery.token, list(runs))


async def settle(it: Bench, order: SettlementRequest, *claims: LeaseClaim) -> list[Sequence[int]]:
    """Which offsets were refused."""
    return [runs for runs, _ in await it.broker.groups.settling.settle_leases(claims, order)]


@on_a_loop
@pytest.mark.parametrize("verb", ["ack", "nack", "reject", "extend", "release"])
async def test_a_lease_settles_nothing_of_what_a_transaction_holds(verb: str) -> None:
    async with bench() as it:
        [delivery] = await joined(it, b"a", b"b")
        transaction = await it.begin()
        await it.transactions.add_acks(transaction, [delivery.receipt(0) or ""])
        assert await settle(it, SettlementRequest(Verb(verb)), claim(delivery, 0, 2)) == [[0, 1]]
        await it.abort(transaction)
        assert b"a" in [each.value for each in await it.poll()]


@on_a_loop
@pytest.mark.parametrize("verb", ["extend", "release"])
async def test_a_lease_neither_extends_nor_returns_what_was_given_back(verb: str) -> None:
    async with bench() as it:
        [delivery] = await joined(it, b"a", b"b")
        assert await settle(it, SettlementRequest(Verb.NACK, 60_000), claim(delivery, 0, 1)) == [[]]
        assert await settle(it, SettlementRequest(Verb(verb)), claim(delivery, 0, 2)) == [[0, 1]]
        assert b"a" not in [each.value for each in await it.poll()], "its time has not come"


@on_a_loop
async def test_a_transaction_takes_a_lease_whole_or_not_at_all() -> None:
    async with bench() as it:
        [delivery] = await joined(it, b"a", b"b")
        assert await settle(it, SettlementRequest(Verb.NACK, 60_000), claim(delivery, 0, 1)) == [[]]
        transaction = await it.begin()
        with pytest.raises(StaleReceipt):
            await it.transactions.add_acks(transaction, [], [claim(delivery, 0, 2)])
        assert transaction.acks == []
        assert await settle(it, SettlementRequest(Verb.ACK), claim(delivery, 1, 2)) == [[]], "it is still the member's"


@on_a_loop
async def test_offsets_in_a_transaction_take_nothing_of_what_another_holds() -> None:
    async with bench() as it:
        [delivery] = await joined(it, b"a", b"b", b"c")
        first, second = await it.begin(), await it.begin()
        await it.transactions.add_acks(first, [delivery.receipt(0) or ""])
        await it.transactions.add_offsets(second, GROUP, it.members[GROUP], {TOPIC: {0: 2}})
        await it.abort(second)
        assert [each.value for each in await it.poll()] == [b"b"]
        await it.commit(first)
        assert it.committed() == 1


@on_a_loop
async def test_what_a_prepared_transaction_holds_stays_so_over_a_start() -> None:
    async with bench() as it:
        [delivery] = await joined(it, b"a", b"b")
        prepared, ongoing = await it.begin(), await it.begin()
        for place, transaction in enumerate((prepared, ongoing)):
            await it.transactions.add_acks(transaction, [delivery.receipt(place) or ""])
            await it.publish(transaction, b"made of it")
        await it.prepare(prepared)
        await it.restart()
        await it.join()
        assert [each.value for each in await it.poll()] == [b"b"]
        await it.transactions.commit(prepared.transaction_id)
        assert it.committed() == 1
