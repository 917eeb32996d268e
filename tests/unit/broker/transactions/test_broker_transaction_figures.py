"""What metrics, health and tracing systems are told of transactions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from behaviour.clock import ManualClock
from behaviour.faulty_files import FaultyFiles, of_topic
from behaviour.host import config_for
from behaviour.scraped import Scraped
from doubles.async_tests import until
from doubles.loop import on_a_loop

from goqueue.broker.broker import Broker
from goqueue.broker.metrics.health import LATE_TRANSACTIONS_NS
from goqueue.broker.tracing import trace_export as tracing_module
from goqueue.broker.transactions import completion
from goqueue.broker.transactions.open_transactions import OpenTransaction
from goqueue.model.clock import NANOS_PER_MS
from goqueue.model.config import MetricsConfig
from goqueue.model.errors import ProducerFenced, StorageFailed
from goqueue.model.publish_result import Published
from goqueue.model.publishing import NewMessage
from goqueue.observe.spans import Span

ONE = [NewMessage(b"v", partition=0)]
STATES = {"ongoing", "preparing", "prepared", "preparing_commit", "preparing_abort"}


class Ledger:
    """A broker with a topic of two partitions, whose time the test owns."""

    def __init__(self, broker: Broker, disk: FaultyFiles, clock: ManualClock) -> None:
        self.broker, self.disk, self.clock = broker, disk, clock
        self.transactions = broker.transactions

    async def begin(self, name: str | None = None, *, writes: bool = True) -> OpenTransaction:
        producer = await self.transactions.init(name)
        transaction = self.transactions.begin(producer.producer_id, producer.epoch)
        if writes:
            assert isinstance((await self.broker.publish("t", ONE, transaction))[0], Published)
        return transaction

    async def scrape(self) -> Scraped:
        return Scraped((await self.broker.metrics.scrape(openmetrics=True)).decode())

    def wrong(self) -> dict[str, str]:
        return {name: each.message for name, each in self.broker.health.checks().items() if each.status != "pass"}


@asynccontextmanager
async def ledger(path: Path, metrics: MetricsConfig | None = None) -> AsyncIterator[Ledger]:
    disk, clock = FaultyFiles(), ManualClock()
    config = replace(config_for(path), metrics=metrics or MetricsConfig())
    async with Broker(config, files=disk, clock=clock) as broker:
        await broker.create_topic("t", {"partitions": 2})
        broker.health._loop_delay.worst_ns = lambda: 0  # type: ignore[method-assign]
        try:
            yield Ledger(broker, disk, clock)
        finally:
            disk.fails = disk.cannot_write = lambda path: False


@on_a_loop
async def test_transactions_are_counted_by_how_they_end(tmp_path: Path) -> None:
    async with ledger(tmp_path) as it:
        before = await it.scrape()
        assert before.all("transactions", "state") == dict.fromkeys(STATES, 0.0)
        assert before("oldest_transaction_seconds") == 0
        await it.begin()
        prepared, committed, aborted = [await it.begin() for _ in range(3)]
        await it.transactions.prepare(prepared.transaction_id)
        it.clock.advance_ms(2_000)
        await it.transactions.commit(committed.transaction_id)
        await it.transactions.abort(aborted.transaction_id)
        it.clock.advance_ms(1_000)
        figures = await it.scrape()
        assert figures.all("transactions", "state") == {
            **dict.fromkeys(STATES, 0.0), "ongoing": 1, "prepared": 1
        }  # fmt: skip
        assert figures("oldest_transaction_seconds") == 3
        assert (figures("transaction_seconds_count"), figures("transaction_seconds_sum")) == (1, 2)
        it.clock.advance_ms(60_000)
        assert (await it.scrape())("transactions_overdue") == 1
        it.broker.clockwork.ring()
        await until(lambda: it.transactions.tally.aborted == 2)
        figures = await it.scrape()
        names = ("begun", "committed", "aborted", "timed_out")
        assert [figures(f"transactions_{name}_total") for name in names] == [4, 1, 2, 1]
        assert (figures("transactions_overdue"), figures("transactions_held_up")) == (0, 0)
        assert figures.all("transactions", "state")["ongoing"] == 0


@on_a_loop
async def test_producers_and_what_came_again_are_counted(tmp_path: Path) -> None:
    async with ledger(tmp_path) as it:
        first = await it.begin("desk", writes=False)
        for _ in range(3):
            # The second and the third are answered with where the first is.
            await it.broker.publish("t", ONE, first, sequence=0)
        await it.begin("desk")
        with pytest.raises(ProducerFenced):
            it.transactions.producers.check(first.producer_id, first.epoch)
        for dedup_id in ("a", "b", "a"):
            await it.broker.publish("t", [NewMessage(b"v", dedup_id=dedup_id)])
        figures = await it.scrape()
        assert figures("known_batches_total") == 2
        # It has lost a transaction, and was told so.
        assert figures("producers_fenced_total") == 2
        assert (figures("known_producers"), figures("known_dedup_ids")) == (1, 2)
        await it.broker.delete_topic("t")
        figures = await it.scrape()
        assert (figures("known_producers"), figures("known_dedup_ids")) == (0, 0)


@on_a_loop
async def test_how_far_readers_see_is_shown_by_partition_and_summed_beyond_the_limit(tmp_path: Path) -> None:
    async with ledger(tmp_path, MetricsConfig(max_partitions=1)) as it:
        await it.broker.publish("t", [NewMessage(b"v", partition=partition) for partition in (0, 1, 1)])
        transaction = await it.begin()
        await it.broker.publish("t", [NewMessage(b"v", partition=1)] * 2, transaction)
        await it.broker.publish("t", ONE)
        figures = await it.scrape()
        assert figures.all("partition_end_offset", "partition", topic="t") == {"0": 3, "__other": 4}
        assert figures.all("partition_stable_offset", "partition", topic="t") == {"0": 1, "__other": 2}
        await it.transactions.commit(transaction.transaction_id)
        # A marker lies behind what it wrote to each.
        partitions = it.broker.topic("t").partitions
        await until(lambda: all(each.stable_end == each.log.end_offset for each in partitions))
        figures = await it.scrape()
        assert figures.all("partition_stable_offset", "partition", topic="t") == {"0": 4, "__other": 5}


@on_a_loop
async def test_a_transaction_that_cannot_be_ended_is_named_until_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "_TRY_AGAIN_S", 0.01)
    async with ledger(tmp_path) as it:
        transaction = await it.begin()
        it.disk.cannot_write = of_topic("t")
        await it.transactions.commit(transaction.transaction_id)
        told = it.wrong()["transactions"]
        assert transaction.transaction_id in told
        assert "No space left on device" in told
        assert (await it.scrape())("transactions_held_up") == 1
        it.disk.cannot_write = lambda path: False
        await until(lambda: "transactions" not in it.wrong())
        assert (await it.scrape())("transactions_held_up") == 0
        # Readers see it, and soon what is behind its marker, too.
        await until(lambda: it.broker.topic("t").partition(0).stable_end == 2)


@on_a_loop
async def test_a_transaction_that_outlives_its_timeout_is_named(tmp_path: Path) -> None:
    async with ledger(tmp_path) as it:
        transaction = await it.begin()
        it.clock.advance_ms(60_000 + LATE_TRANSACTIONS_NS // NANOS_PER_MS)
        assert it.wrong() == {}
        # Nobody has come to end it.
        it.clock.advance_ms(1)
        assert f"{transaction.transaction_id} (ongoing)" in it.wrong()["transactions"]
        it.broker.clockwork.ring()
        await until(lambda: it.wrong() == {})


@on_a_loop
async def test_a_failed_partition_holds_its_transactions_up(tmp_path: Path) -> None:
    async with ledger(tmp_path) as it:
        transaction = await it.begin()
        it.broker.topic("t").partition(0).log.fail("gone")
        await it.transactions.abort(transaction.transaction_id)
        assert transaction.transaction_id in it.wrong()["transactions"]
        assert isinstance((await it.broker.publish("t", ONE))[0], StorageFailed)


class Collecting:
    def __init__(self) -> None:
        self.spans: list[Span] = []

    def export(self, spans: list[Span]) -> None:
        self.spans += spans

    def close(self) -> None:
        """There is nothing to close."""


@on_a_loop
async def test_tracing_systems_are_told_of_a_commit_and_not_of_what_was_aborted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = Collecting()
    monkeypatch.setattr(tracing_module, "span_exporters", lambda config, node_id: [("sink", sink)])
    async with ledger(tmp_path) as it:
        committed, aborted = await it.begin(), await it.begin()
        await until(lambda: not it.broker.tracing.tracer.pending)
        assert sink.spans == []
        await it.transactions.abort(aborted.transaction_id)
        await it.transactions.commit(committed.transaction_id)
        await until(lambda: len(sink.spans) == 1)
        assert it.broker.tracing.dropped()["sink"] == 0
    assert [(each.name, each.kind, each.attributes["messaging.goqueue.offset"]) for each in sink.spans] == [
        ("publish t", "producer", 0)
    ]
