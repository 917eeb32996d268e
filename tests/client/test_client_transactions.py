"""Transactions of a producer: all of it is seen, or nothing."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from broker_proxy import proxied
from doubles.timed_broker import TimedBroker

from goqueue import AsyncClient, Outgoing
from goqueue.client.producer.sequences import ProducerIdentity
from goqueue.model.errors import (
    ClientClosed,
    DeliveryTimeout,
    InvalidConfiguration,
    InvalidMessage,
    InvalidRequest,
    MessageTooLarge,
    ProducerFenced,
    TransactionAborted,
    TransactionConflict,
    TransactionNotFound,
)
from goqueue.testing import BrokerProcess, running_broker


async def values(client: AsyncClient, topic: str) -> list[bytes]:
    return [record.value async for record in client.read(topic)]


async def test_what_is_sent_in_a_block_is_seen_when_it_is_left(
    broker: BrokerProcess, topic: str, wide_topic: str
) -> None:
    async with broker.async_client() as client, client.producer(linger_ms=60_000) as producer:
        for number in range(3):
            async with producer.transaction() as tx:
                sent = await tx.send(topic, b"%d" % number)
                await tx.send_many(wide_topic, [Outgoing(b"%d" % at, partition=at) for at in range(4)])
                assert not sent.done()
                await producer.flush()
                assert (await sent).partition == 0
                seen = await values(client, topic), sorted(await values(client, wide_topic))
                assert seen == ([b"0", b"1"][:number], sorted([b"0", b"1", b"2", b"3"] * number))
        assert await values(client, topic) == [b"0", b"1", b"2"]
        assert sorted(await values(client, wide_topic)) == sorted([b"0", b"1", b"2", b"3"] * 3)


async def test_messages_of_a_transaction_are_delayed_from_their_time_on(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        async with producer.transaction() as tx:
            sent = await (await tx.send(topic, b"later", delay=60))
            await tx.send(topic, b"now", priority="high")
        [waiting] = [message async for message in client.delayed(topic)]
        assert (waiting.value, waiting.deliver_at_ns) == (b"later", sent.deliver_at_ns)
        assert await values(client, topic) == [b"now"]


async def test_an_exception_aborts_and_goes_on(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction() as tx:
                await tx.send_many(topic, [b"never"])
                last = await tx.send(topic, b"never either")
                raise ZeroDivisionError
        with pytest.raises(TransactionAborted):
            await last
        with pytest.raises(TransactionAborted, match=tx.id):
            await tx.send(topic, b"too late")
        async with producer.transaction() as tx:
            await tx.send(topic, b"seen")
        assert await values(client, topic) == [b"seen"]
        assert await client.transactions() == []


async def test_after_an_abort_whose_messages_are_known_the_producer_goes_on_as_the_same(
    broker: BrokerProcess, topic: str
) -> None:
    async with broker.async_client() as client, client.producer(transactional_id="goes-on") as producer:
        epochs = []
        for ends in ("commit", "abort", "abort", "commit"):
            tx = await producer.begin()
            await tx.send_many(topic, [ends.encode()] * 3)
            await getattr(tx, ends)()
            await getattr(tx, ends)()
            epochs.append(tx.identity)
        assert len(set(epochs)) == 1
        assert await values(client, topic) == [b"commit"] * 6


async def test_a_transaction_in_which_something_was_not_stored_is_aborted(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        await client.change_topic(topic, max_message_bytes=1_024)
        with pytest.raises(TransactionAborted, match="1024") as failure:
            async with producer.transaction() as tx:
                await tx.send(topic, b"good")
                await tx.send(topic, b"x" * 2_000)
        assert isinstance(failure.value.__cause__, MessageTooLarge)
        async with producer.transaction() as tx:
            await tx.send(topic, b"next")
        assert await values(client, topic) == [b"next"]


async def test_without_a_block_whoever_begins_says_how_it_ends(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        tx = await producer.begin()
        # The broker hears of it with the first thing that is done in it.
        assert tx.id not in [each.transaction_id for each in await client.transactions()]
        await tx.send_many(topic, [b"a", b"b"])
        [found] = [each for each in await client.transactions() if each.transaction_id == tx.id]
        assert (found.state, found.messages, found.transactional_id) == ("ongoing", 2, None)
        described = await client.describe_transaction(tx.id)
        assert [(each.topic, each.partition, each.end_offset) for each in described.partitions] == [(topic, 0, 2)]
        assert described.deadline - described.started_at == timedelta(seconds=60)
        with pytest.raises(TransactionConflict, match=f"{tx.id} open"):
            await producer.begin()
        # Others of the same producer go their own way.
        await producer.send_many(topic, [b"plain"])
        await tx.commit()
        with pytest.raises(TransactionConflict, match="committed"):
            await tx.abort()
        with pytest.raises(TransactionConflict, match="committed"):
            await tx.send(topic, b"c")
        assert await values(client, topic) == [b"a", b"b", b"plain"]


async def test_whoever_comes_with_the_same_transactional_id_takes_over(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client:
        async with client.producer(transactional_id="one-at-a-time") as old:
            tx = await old.begin()
            await tx.send_many(topic, [b"old"])
            async with client.producer(transactional_id="one-at-a-time") as new:
                async with new.transaction() as its:
                    await its.send(topic, b"new")
                with pytest.raises(ProducerFenced):
                    await tx.commit()
                with pytest.raises(ProducerFenced):
                    await old.begin()
                async with new.transaction() as its:
                    await its.send(topic, b"still")
        assert await values(client, topic) == [b"new", b"still"]


async def test_a_fenced_producer_learns_it_from_what_it_sends(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client:
        async with client.producer(transactional_id="fenced") as old, client.producer(transactional_id="fenced") as new:
            tx = await old.begin()
            await (await new.begin()).abort()
            with pytest.raises((ProducerFenced, TransactionAborted)):
                await tx.send_many(topic, [b"old"])
            with pytest.raises((ProducerFenced, TransactionAborted)):
                await tx.commit()
        assert await values(client, topic) == []


async def test_a_producer_with_a_transactional_id_sends_in_transactions_only(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client, client.producer(transactional_id="strict") as producer:
        for send in (producer.send(topic, b"v"), producer.send_many(topic, [b"v"])):
            with pytest.raises(InvalidRequest, match="'strict' and sends in transactions only"):
                await send
        async with producer.transaction():
            with pytest.raises(InvalidRequest, match="in transactions only"):
                await producer.send(topic, b"v")


async def test_arguments_are_checked(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client:
        for wrong in ({"transactional_id": ""}, {"transactional_id": 7}, {"transaction_timeout": 0}):
            with pytest.raises(InvalidConfiguration):
                client.producer(**wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match="transaction_timeout"):
            client.producer(transaction_timeout="soon")  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match="isolation is 'dirty'"):
            await anext(client.read(topic, isolation="dirty"))  # type: ignore[arg-type]
        async with client.producer(transaction_timeout=timedelta(days=1)) as producer:
            with pytest.raises(InvalidRequest, match="timeout_ms is 86400000"):
                await producer.begin()
        async with client.producer() as producer, producer.transaction() as tx:
            with pytest.raises(InvalidMessage, match="dedup_id"):
                await tx.send(topic, b"v", dedup_id="a")
            with pytest.raises(InvalidRequest, match="bytes cannot be acked"):
                await tx.ack([b"v"])  # type: ignore[list-item]
            with pytest.raises(InvalidRequest, match="give a consumer"):
                await tx.commit_offsets(topic)  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match="give a list"):
            await client.commit_many("key", "id")
        with pytest.raises(InvalidRequest, match="a text"):
            await client.describe_transaction(7)  # type: ignore[arg-type]
        for ask in (client.describe_transaction("2-0-none"), client.abort_transaction("2-0-none")):
            with pytest.raises(TransactionNotFound):
                await ask


async def test_a_transaction_that_takes_too_long_is_aborted(timed_broker: TimedBroker, topic: str) -> None:
    async with timed_broker.async_client() as client, client.producer(transaction_timeout=60) as producer:
        await client.create_topic(topic, partitions=1)
        tx = await producer.begin()
        await tx.send_many(topic, [b"slow"])
        await timed_broker.let_pass(59_000)
        assert len(await client.transactions()) == 1
        await timed_broker.let_pass(2_000)
        async with asyncio.timeout(60):
            while await client.transactions():
                pass
        with pytest.raises(TransactionAborted, match="timeout"):
            await tx.commit()
        assert await values(client, topic) == []
        assert (await client.transaction_stats()).timed_out >= 1


async def test_an_operator_can_abort_a_transaction(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        tx = await producer.begin()
        await tx.send_many(topic, [b"v"])
        await client.abort_transaction(tx.id)
        with pytest.raises(TransactionAborted, match="operator"):
            await tx.commit()
        await tx.abort()
        before = await client.transaction_stats()
        async with producer.transaction() as tx:
            await tx.send(topic, b"next")
        after = await client.transaction_stats()
        assert (after.begun - before.begun, after.committed - before.committed, after.active) == (1, 1, 0)
        assert after.mean_duration > timedelta(0)
        assert await values(client, topic) == [b"next"]


async def test_closing_a_producer_aborts_what_is_open(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client:
        producer = client.producer(linger_ms=60_000)
        tx = await producer.begin()
        sent = await tx.send(topic, b"never")
        await producer.close()
        with pytest.raises(TransactionAborted):
            await sent
        for late in (producer.begin(), tx.commit()):
            with pytest.raises((ClientClosed, TransactionAborted)):
                await late
        assert (await client.transactions(), await values(client, topic)) == ([], [])


async def test_prepared_transactions_of_tasks_are_committed_together_under_one_key(
    broker: BrokerProcess, topic: str
) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        ids = []
        for task in range(3):
            async with producer.transaction() as tx:
                await tx.send_many(topic, [b"%d" % task] * 2)
                ids.append(await tx.prepare())
                assert await tx.prepare() == tx.id
        assert await values(client, topic) == []
        uncommitted = [record.value async for record in client.read(topic, isolation="read_uncommitted")]
        assert uncommitted == [b"0", b"0", b"1", b"1", b"2", b"2"]
        assert {each.state for each in await client.transactions()} == {"prepared"}
        assert await client.committed_under(f"job-{topic}") is None
        done = await client.commit_many(f"job-{topic}", ids[:2])
        assert (done.is_new, done.transaction_ids) == (True, ids[:2])
        again = await client.commit_many(f"job-{topic}", [ids[2]])
        assert (again.is_new, again.transaction_ids, again.committed_at) == (False, ids[:2], done.committed_at)
        assert await client.committed_under(f"job-{topic}") == again
        # Not wanted, because another attempt of the task was.
        await client.abort_transaction(ids[2])
        assert await values(client, topic) == [b"0", b"0", b"1", b"1"]
        tx = await producer.begin()
        await tx.send_many(topic, [b"mine"])
        await tx.prepare()
        await tx.commit()
        assert (await values(client, topic))[-1] == b"mine"


async def test_a_commit_whose_answer_was_lost_is_asked_for_again(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as direct, proxied(broker) as proxy, proxy.client() as client:
        async with client.producer(transactional_id=f"lost-{topic}") as producer:
            tx = await producer.begin()
            await tx.send_many(topic, [b"a"])
            proxy.go_deaf()
            committing = asyncio.create_task(tx.commit())
            async with asyncio.timeout(30):
                while await direct.transactions():
                    pass
            assert not committing.done()
            proxy.cut()
            await committing
            async with producer.transaction() as after:
                await after.send(topic, b"b")
            # It was never in doubt, so it is the same producer.
            assert after.identity == tx.identity
        assert await values(direct, topic) == [b"a", b"b"]


async def test_a_commit_whose_answer_never_comes_is_in_doubt_and_the_producer_begins_again(
    broker: BrokerProcess, topic: str
) -> None:
    async with (
        broker.async_client() as direct,
        proxied(broker) as proxy,
        proxy.client(request_timeout_ms=500) as client,
        client.producer(transactional_id=f"silent-{topic}", delivery_timeout_ms=1_500) as producer,
    ):
        tx = await producer.begin()
        await tx.send_many(topic, [b"a"])
        proxy.go_deaf()
        with pytest.raises(DeliveryTimeout, match="not known whether"):
            await tx.commit()
        proxy.cut()
        assert "in doubt" in repr(tx)
        async with producer.transaction() as after:
            await after.send(topic, b"b")
        assert after.identity == (tx.identity.producer_id, tx.identity.epoch + 1)
        # The broker had done what it was asked to.
        assert await values(direct, topic) == [b"a", b"b"]


async def test_a_producer_that_the_broker_does_not_know_any_more_begins_again(
    broker: BrokerProcess, topic: str
) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        producer._session._identity = ProducerIdentity(1 << 40, 0)
        with pytest.raises(TransactionAborted, match="never given"):
            async with producer.transaction() as tx:
                await tx.send(topic, b"lost")
        async with producer.transaction() as tx:
            await tx.send(topic, b"v")
        assert await values(client, topic) == [b"v"]


async def test_messages_of_a_transaction_whose_answers_were_lost_are_in_it_once(
    broker: BrokerProcess, topic: str
) -> None:
    async with broker.async_client() as direct, proxied(broker) as proxy, proxy.client() as client:
        await client.find_offset(topic, 0, "latest")
        async with client.producer() as producer, producer.transaction() as tx:
            proxy.go_deaf()
            sending = asyncio.create_task(tx.send_many(topic, [b"a", b"b"]))
            async with asyncio.timeout(30):
                while not [each for each in await direct.transactions() if each.transaction_id == tx.id]:
                    pass
            proxy.cut()
            await sending
        assert await values(direct, topic) == [b"a", b"b"]


async def test_a_transaction_with_messages_of_unknown_fate_is_aborted_and_the_producer_begins_again(
    broker: BrokerProcess, topic: str
) -> None:
    name = f"doubt-{topic}"
    async with broker.async_client() as direct, proxied(broker) as proxy, proxy.client() as client:
        async with client.producer(transactional_id=name, delivery_timeout_ms=1_500) as producer:
            await client.find_offset(topic, 0, "latest")
            tx = await producer.begin()
            proxy.go_deaf()
            sent = await tx.send(topic, b"given up")
            with pytest.raises(DeliveryTimeout):
                await sent
            proxy.cut()
            with pytest.raises(TransactionAborted, match="can only be aborted"):
                await (await tx.send(topic, b"behind it"))
            with pytest.raises(TransactionAborted, match="1500 ms"):
                await tx.commit()
            async with producer.transaction() as after:
                await after.send(topic, b"seen")
            assert after.identity == (tx.identity.producer_id, tx.identity.epoch + 1)
        assert await values(direct, topic) == [b"seen"]


async def test_a_broker_that_was_restarted_has_aborted_what_was_open_and_kept_what_was_prepared(
    tmp_path: Path,
) -> None:
    settings: dict[str, object] = {"storage.min_free_bytes": 0}
    with running_broker(tmp_path, settings=settings) as first:
        async with first.async_client(retry_backoff_ms=5) as client:
            await client.create_topic("t", partitions=1)
            open_one, sending_one, prepared_one = (
                client.producer(transactional_id=name) for name in ("open", "sending", "prepared")
            )
            tx, sending, prepared = await open_one.begin(), await sending_one.begin(), await prepared_one.begin()
            for each in (tx, sending, prepared):
                await each.send_many("t", [b"before"])
            await prepared.prepare()
            first.kill()
            with running_broker(tmp_path, grpc_port=first.grpc_port, settings=settings):
                with pytest.raises(TransactionAborted, match="started again"):
                    await tx.commit()
                # Without its beginning it must not begin again.
                with pytest.raises(TransactionNotFound):
                    await (await sending.send("t", b"more"))
                with pytest.raises(TransactionAborted, match="started again"):
                    await sending.commit()
                await prepared.commit()
                for producer in (open_one, sending_one, prepared_one):
                    async with producer.transaction() as after:
                        await after.send("t", b"after")
                assert await values(client, "t") == [b"before", b"after", b"after", b"after"]
                await client.close()
