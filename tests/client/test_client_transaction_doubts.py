"""Transactions whose callers lose patience, whose answers are lost, or that others end."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from behaviour.clock import ManualClock
from held_calls import HeldCalls, answer_instead, lost

from goqueue import AsyncClient
from goqueue.broker.broker import Broker
from goqueue.client.connection.loop_thread import LoopThread
from goqueue.client.producer.sequences import ProducerIdentity
from goqueue.model.config import Config, StorageConfig
from goqueue.model.errors import (
    ClientClosed,
    DeliveryTimeout,
    NotAllStored,
    ProducerFenced,
    TransactionAborted,
    TransactionConflict,
    TransactionNotFound,
)
from goqueue.testing import BrokerProcess


async def values(client: AsyncClient, topic: str) -> list[bytes]:
    return [record.value async for record in client.read(topic)]


async def given_up(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_who_loses_patience_with_a_send_many_does_not_take_messages_with_him(
    broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        held = HeldCalls(monkeypatch, "publish")
        sent = await producer.send(topic, b"a")
        sending = asyncio.create_task(producer.send_many(topic, [b"b"]))
        await held.reached.wait()
        await given_up(sending)
        closing = asyncio.create_task(producer.close())
        held.go.set()
        await closing
        assert (await sent).offset == 0
        assert await values(client, topic) == [b"a", b"b"]


@pytest.mark.parametrize("how", ["send_many", "send"])
async def test_a_transaction_in_which_a_send_was_called_off_is_aborted(
    broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    async with broker.async_client() as client, client.producer(buffer_bytes=1 << 16) as producer:
        await client.find_offset(topic, 0, "latest")
        tx = await producer.begin()
        held = HeldCalls(monkeypatch, "publish")
        first = await tx.send(topic, b"x" * 40_000)
        await held.reached.wait()
        # There is no room for it yet.
        values_sent: Any = [b"y" * 40_000] if how == "send_many" else b"y" * 40_000
        sending = asyncio.create_task(getattr(tx, how)(topic, values_sent))
        await asyncio.sleep(0)
        await given_up(sending)
        held.go.set()
        with pytest.raises(TransactionAborted, match="called off"):
            await tx.commit()
        assert (await first).offset == 0
        assert await values(client, topic) == []


async def test_what_the_client_refuses_in_a_send_many_makes_the_transaction_fail(
    broker: BrokerProcess, topic: str
) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        tx = await producer.begin()
        with pytest.raises(NotAllStored):
            await tx.send_many(topic, [b"good", object()])
        with pytest.raises(TransactionAborted, match="1 of 2"):
            await tx.commit()
        assert await values(client, topic) == []


async def test_a_commit_that_the_broker_has_forgotten_is_in_doubt_and_can_be_asked_for_again(
    broker: BrokerProcess, topic: str
) -> None:
    async with broker.async_client(retry_backoff_ms=1) as client, client.producer(transactional_id=topic) as producer:
        tx = await producer.begin()
        await tx.send_many(topic, [b"a"])
        with pytest.MonkeyPatch.context() as patch:
            answer_instead(patch, "CommitTransaction", lost(), TransactionNotFound("not known"))
            with pytest.raises(DeliveryTimeout, match="not known whether"):
                await tx.commit()
            answer_instead(patch, "DescribeTransaction", TransactionNotFound("not known"))
            with pytest.raises(DeliveryTimeout, match="not known whether"):
                await tx.abort()
        assert "in doubt" in repr(tx)
        with pytest.raises(TransactionConflict, match="committed"):
            await tx.abort()
        await tx.commit()
        with pytest.MonkeyPatch.context() as patch:
            answer_instead(patch, "CommitTransaction", TransactionNotFound("not known"))
            tx = await producer.begin()
            await tx.send_many(topic, [b"b"])
            # It has never had another answer, so nothing is open about it.
            with pytest.raises(TransactionAborted, match="does not know it any more"):
                await tx.commit()


@pytest.mark.parametrize("in_block", [True, False])
async def test_a_commit_that_was_cancelled_leaves_nothing_behind_that_readers_wait_for(
    broker: BrokerProcess, topic: str, *, in_block: bool
) -> None:
    async with broker.async_client() as client:
        producer = client.producer()
        tx = await producer.begin()
        await tx.send_many(topic, [b"never"])

        async def block() -> None:
            async with producer.transaction() as tx:
                await tx.send(topic, b"never")

        if in_block:
            await tx.abort()
        with pytest.MonkeyPatch.context() as patch:
            held = HeldCalls(patch, "CommitTransaction")
            task = asyncio.create_task(block() if in_block else tx.commit())
            await held.reached.wait()
            await given_up(task)
        if not in_block:
            assert "in doubt" in repr(tx)
            await producer.close()
        assert await client.transactions() == []
        async with client.producer() as plain:
            await plain.send_many(topic, [b"seen"])
        assert await values(client, topic) == [b"seen"]


async def test_the_next_transaction_ends_the_doubt_about_the_last(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        tx = await producer.begin()
        await tx.send_many(topic, [b"never"])
        with pytest.MonkeyPatch.context() as patch:
            held = HeldCalls(patch, "CommitTransaction")
            committing = asyncio.create_task(tx.commit())
            await held.reached.wait()
            await given_up(committing)
        async with producer.transaction() as after:
            await after.send(topic, b"seen")
        with pytest.raises(TransactionAborted):
            await tx.commit()
        assert await values(client, topic) == [b"seen"]


async def test_a_transaction_that_has_done_nothing_can_be_prepared_and_ended(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client(retry_backoff_ms=1) as client, client.producer(transactional_id=topic) as producer:
        for end in ("commit", "abort"):
            tx = await producer.begin()
            with pytest.MonkeyPatch.context() as patch:
                answer_instead(patch, "PrepareTransaction", lost())
                await tx.prepare()
            assert [each.state for each in await client.transactions()] == ["prepared"]
            await getattr(tx, end)()
            assert await client.transactions() == []
        async with producer.transaction() as tx:
            await tx.send(topic, b"v")
        assert await values(client, topic) == [b"v"]


async def test_a_prepare_whose_answer_never_comes_can_be_asked_for_again(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client, client.producer(delivery_timeout_ms=1_500) as producer:
        tx = await producer.begin()
        await tx.send_many(topic, [b"v"])
        with pytest.MonkeyPatch.context() as patch:
            answer_instead(patch, "PrepareTransaction", *[DeliveryTimeout("no answer")] * 1_000)
            with pytest.raises(DeliveryTimeout, match=r"not known whether .* prepared"):
                await tx.prepare()
        assert await tx.prepare() == tx.id
        await tx.commit()
        assert await values(client, topic) == [b"v"]


async def test_how_others_have_ended_a_prepared_transaction_is_not_made_up(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client:
        old = client.producer(transactional_id=topic)
        tx = await old.begin()
        await tx.send_many(topic, [b"v"])
        await client.commit_many(topic, [await tx.prepare()])
        async with client.producer(transactional_id=topic):
            with pytest.raises(ProducerFenced):
                await tx.commit()
            with pytest.MonkeyPatch.context() as patch, pytest.raises(TransactionNotFound):
                answer_instead(patch, "DescribeTransaction", TransactionNotFound("not known"))
                await tx.abort()
            with pytest.raises(TransactionConflict, match="committed"):
                await tx.abort()
        assert await values(client, topic) == [b"v"]


async def test_the_late_end_of_a_prepared_transaction_does_not_disturb_the_one_that_is_open(
    broker: BrokerProcess, topic: str
) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        prepared = await producer.begin()
        await prepared.send_many(topic, [b"never"])
        await prepared.prepare()
        tx = await producer.begin()
        await tx.send_many(topic, [b"a"])
        await client.abort_transaction(prepared.id)
        with pytest.raises(TransactionAborted):
            await prepared.commit()
        await tx.send_many(topic, [b"b"])
        await tx.commit()
        async with producer.transaction() as after:
            await after.send(topic, b"c")
        assert after.identity == tx.identity
        assert await values(client, topic) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("end", ["commit", "prepare"])
async def test_closing_a_producer_waits_for_an_end_that_is_under_way(
    broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    async with broker.async_client() as client:
        producer = client.producer()
        tx = await producer.begin()
        await tx.send_many(topic, [b"v"])
        held = HeldCalls(monkeypatch, f"{end.capitalize()}Transaction", answered=True)
        ending = asyncio.create_task(getattr(tx, end)())
        await held.reached.wait()
        closing = asyncio.create_task(producer.close())
        # Turns enough for one that does not wait.
        for _ in range(20):
            await asyncio.sleep(0)
        assert not closing.done()
        held.go.set()
        await closing
        await ending
        if end == "prepare":
            await tx.commit()
        assert await values(client, topic) == [b"v"]
        assert caplog.messages == []


async def an_id_of_a_name_that_was_forgotten(folder: Path) -> ProducerIdentity:
    clock = ManualClock(time.time_ns())
    config = Config(storage=StorageConfig(path=str(folder), min_free_bytes=0))
    async with Broker(config, clock=clock) as before:
        gone = await before.transactions.init("gone")
        clock.advance_ms(config.transactions.id_expiry_ms + 1)
        await before.transactions.tidy()
    return ProducerIdentity(gone.producer_id, gone.epoch)


async def test_a_producer_whose_name_the_broker_has_forgotten_begins_again_under_it(tmp_path: Path) -> None:
    nobodys = await an_id_of_a_name_that_was_forgotten(tmp_path)
    broker = await asyncio.to_thread(BrokerProcess, tmp_path)
    try:
        await begins_again(broker, nobodys)
    finally:
        await asyncio.to_thread(broker.kill)


async def begins_again(broker: BrokerProcess, nobodys: ProducerIdentity) -> None:
    topic = "t"
    async with broker.async_client() as client, client.producer(transactional_id=topic) as producer:
        await client.create_topic(topic, partitions=1)
        for fails_at in ("send", "commit"):
            # As if the name had been forgotten.
            tx = await producer.begin()
            if fails_at == "commit":
                await tx.send_many(topic, [b"never"])
            tx._contents.identity = producer._session._identity = nobodys
            if fails_at == "send":
                with pytest.raises(ProducerFenced):
                    await (await tx.send(topic, b"never"))
            with pytest.raises(TransactionAborted, match="nobody's any more"):
                await tx.commit()
        async with producer.transaction() as tx:
            await tx.send(topic, b"v")
        assert await values(client, topic) == [b"v"]


async def test_a_closed_producer_begins_nothing(
    broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker.async_client() as client:
        producer = client.producer(transactional_id=topic)
        held = HeldCalls(monkeypatch, "InitProducer", answered=True)
        beginning = asyncio.create_task(producer.begin())
        await held.reached.wait()
        await producer.close()
        held.go.set()
        with pytest.raises(ClientClosed):
            await beginning
        with pytest.raises(ClientClosed):
            await producer.__aenter__()


@pytest.mark.parametrize("in_block", [True, False])
def test_who_is_interrupted_while_a_transaction_begins_leaves_none(
    broker: BrokerProcess, topic: str, *, in_block: bool
) -> None:
    with broker.client() as client, client.producer() as producer:
        run = LoopThread.run

        def interrupted(thread: LoopThread, work: Any) -> Any:
            run(thread, work)
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(LoopThread, "run", interrupted)
            if in_block:
                producer.transaction().__enter__()
            else:
                producer.begin()
        with producer.transaction() as tx:
            tx.send(topic, b"v")
        assert [record.value for record in client.read(topic)] == [b"v"]
