"""What exactly once costs: idempotent producers and transactions, over plain publishing.

The ratios are of processor time, the client's and the broker's together, of the same work done in turn (A B B A), so
that whatever else the machine does falls on both.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from bench.client_under_test import TOPIC, ClientUnderTest, measure_client
from bench.harness import Measured, note, rounded
from bench.workload import BATCH_MESSAGES, byte_batches
from goqueue.client.async_client import AsyncClient

IDEMPOTENT, TRANSACTIONS, RATE = "idempotent_ratio", "txn_ratio", "txn_rate"
_MESSAGES = 300_000
_PAIRS = 8
_SMALL = 100
_RATE_TRANSACTIONS = 1_000
_RATE_RUNS = 3
_AT_ONCE = 4

Turn = Callable[[AsyncClient], Awaitable[None]]


def measure_idempotence() -> Measured:
    return measure_client("interval", lambda under: _compare(IDEMPOTENT, under, _idempotent))


def measure_transactions() -> Measured:
    """With every batch durable before its producer goes on, as transactions are."""
    return measure_client("always", lambda under: _compare(TRANSACTIONS, under, _transactions))


async def _compare(name: str, under: ClientUnderTest, turn: Turn) -> Measured:
    turns = {"plain": _plain, name: turn}
    used: dict[str, list[float]] = {side: [] for side in turns}
    took: dict[str, list[float]] = {side: [] for side in turns}
    for warm_up in turns.values():
        await warm_up(under.client)
    for number in range(_PAIRS):
        for side in ("plain", name) if number % 2 else (name, "plain"):
            cpu_s, began_s = _cpu_s(under), time.perf_counter()
            await turns[side](under.client)
            used[side].append(_cpu_s(under) - cpu_s)
            took[side].append(time.perf_counter() - began_s)
        note(f"{name}: pair {number + 1} of {_PAIRS}: {used['plain'][-1]:.2f} s plain, {used[name][-1]:.2f} s")
    ratios = [plain / other for plain, other in zip(used["plain"], used[name], strict=True)]
    return Measured(
        ratios,
        {
            "messages_per_turn": _MESSAGES,
            "producers": _AT_ONCE,
            "batch_messages": BATCH_MESSAGES,
            "ratio_of_sums": rounded(sum(used["plain"]) / sum(used[name])),
            "wall_ratio": rounded(sum(took["plain"]) / sum(took[name])),
            "cpu_s": {side: rounded(sum(found)) for side, found in used.items()},
        },
    )


def _cpu_s(under: ClientUnderTest) -> float:
    return time.process_time() + under.broker.cpu_s()


async def _plain(client: AsyncClient) -> None:
    await _publish(client, idempotent=False)


async def _idempotent(client: AsyncClient) -> None:
    await _publish(client, idempotent=True)


async def _publish(client: AsyncClient, *, idempotent: bool) -> None:
    async def publish(_: str, batches: list[list[bytes]]) -> None:
        async with client.producer(acks="leader", idempotent=idempotent) as producer:
            for batch in batches:
                await producer.send_many(TOPIC, batch)

    await _side_by_side(publish)


async def _transactions(client: AsyncClient) -> None:
    async def publish(name: str, batches: list[list[bytes]]) -> None:
        async with client.producer(transactional_id=name) as producer:
            for batch in batches:
                async with producer.transaction() as tx:
                    await tx.send_many(TOPIC, batch)

    await _side_by_side(publish)


async def _side_by_side(publish: Callable[[str, list[list[bytes]]], Awaitable[None]]) -> None:
    """The work of a turn, shared by a few producers."""
    batches = byte_batches()
    share = [batches[number % len(batches)] for number in range(_MESSAGES // BATCH_MESSAGES // _AT_ONCE)]
    await asyncio.gather(*[publish(f"bench-{number}", share) for number in range(_AT_ONCE)])


def measure_rate() -> Measured:
    """Small transactions, one after the other, each durable before the next begins."""
    return measure_client("always", _rate)


async def _rate(under: ClientUnderTest) -> Measured:
    values = byte_batches()[0][:_SMALL]

    async def commit(name: str, count: int) -> None:
        async with under.client.producer(transactional_id=name) as producer:
            for _ in range(count):
                async with producer.transaction() as tx:
                    await tx.send_many(TOPIC, values)

    await commit("warm", _RATE_TRANSACTIONS // 10)
    runs = []
    for number in range(_RATE_RUNS):
        began_s = time.perf_counter()
        await commit("one", _RATE_TRANSACTIONS)
        runs.append(_RATE_TRANSACTIONS / (time.perf_counter() - began_s))
        note(f"{RATE}: run {number + 1} of {_RATE_RUNS}: {rounded(runs[-1]):,} transactions/s")
    began_s = time.perf_counter()
    await asyncio.gather(*[commit(f"many-{number}", _RATE_TRANSACTIONS // 2) for number in range(_AT_ONCE)])
    together = _AT_ONCE * (_RATE_TRANSACTIONS // 2) / (time.perf_counter() - began_s)
    return Measured(
        runs, {"transaction_messages": _SMALL, f"transactions_per_second_by_{_AT_ONCE}_producers": rounded(together)}
    )
