"""Transactions that are begun for a key, and batches that their sender has encoded itself."""

from __future__ import annotations

import httpx
import pytest
from doubles.runs import run_of

from goqueue import AsyncClient
from goqueue.model.errors import InvalidRequest, TransactionAborted, TransactionConflict
from goqueue.testing import BrokerProcess
from goqueue.wire.batch import FrameRun
from goqueue.wire.frame import Flag, encode_frame


async def values(client: AsyncClient, topic: str) -> list[bytes]:
    return [record.value async for record in client.read(topic)]


def frames(*made: bytes, flags: int = Flag.TRANSACTIONAL) -> FrameRun:
    return run_of([encode_frame(b"key", value, b"", 1_000, flags=flags) for value in made])


async def nothing_is_left(client: AsyncClient) -> None:
    while await client.transactions():
        pass


async def test_what_was_begun_for_a_key_is_aborted_when_others_are_committed_under_it(
    broker: BrokerProcess, topic: str
) -> None:
    key = f"job/{topic}"
    async with broker.async_client() as client:
        killed, twice, won, late = [client.producer() for _ in range(4)]
        left_open = await killed.begin(for_key=key)
        await left_open.send_many(topic, [b"killed"])
        loser = await twice.begin(for_key=key)
        await loser.send_many(topic, [b"twice"])
        await loser.prepare()
        winner = await won.begin(for_key=key)
        await winner.send_many(topic, [b"won"])
        assert {each.for_key for each in await client.transactions()} == {key}
        assert (await client.describe_transaction(left_open.id)).for_key == key
        assert (await client.commit_many(key, [await winner.prepare()])).is_new
        await nothing_is_left(client)
        assert await values(client, topic) == [b"won"]
        with pytest.raises(TransactionAborted, match="others were committed under the key"):
            await left_open.prepare()
        with pytest.raises(TransactionAborted):
            await client.describe_transaction(loser.id)
        # Too late: nothing of it gets as far as a log.
        too_late = await late.begin(for_key=key)
        with pytest.raises(TransactionConflict, match="too late"):
            await too_late.send_many(topic, [b"too late"])
        with pytest.raises(TransactionAborted) as failure:
            await too_late.prepare()
        assert isinstance(failure.value.__cause__, TransactionConflict)
        uncommitted = [record.value async for record in client.read(topic, isolation="read_uncommitted")]
        assert uncommitted == [b"killed", b"twice", b"won"]
        for each in (killed, twice, won, late):
            await each.close()


async def test_one_without_messages_is_too_late_as_well(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        await client.commit_many(f"job/{topic}", [])
        tx = await producer.begin(for_key=f"job/{topic}")
        with pytest.raises(TransactionConflict, match="too late"):
            await tx.prepare()
        plain = await producer.begin()
        await plain.send_many(topic, [b"seen"])
        assert (await client.describe_transaction(plain.id)).for_key is None
        await plain.commit()
        assert await values(client, topic) == [b"seen"]


async def test_a_key_that_nothing_could_be_committed_under_is_refused(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        tx = await producer.begin(for_key="k" * 1_001)
        with pytest.raises(InvalidRequest, match="1001 characters"):
            await tx.send_many(topic, [b"v"])
        assert await client.transactions() == []


def test_batches_that_were_encoded_elsewhere_are_part_of_it(broker: BrokerProcess, wide_topic: str) -> None:
    with broker.client() as client, client.producer() as producer:
        tx = producer.begin(for_key=f"job/{wide_topic}")
        for partition in (1, 3, 1):
            tx.send_frames(wide_topic, partition, frames(b"%d" % partition, b"more"))
        tx.send(wide_topic, b"plain", partition=0)
        assert list(client.read(wide_topic)) == []
        prepared = tx.prepare()
        described = client.describe_transaction(prepared)
        assert (described.messages, described.for_key) == (7, f"job/{wide_topic}")
        assert client.commit_many(f"job/{wide_topic}", [prepared]).is_new
        found = [(record.partition, record.value) for record in client.read(wide_topic)]
        assert sorted(found) == [(0, b"plain"), *[(1, b"1")] * 2, *[(1, b"more")] * 2, (3, b"3"), (3, b"more")]
        with pytest.raises(TransactionConflict):
            tx.send_frames(wide_topic, 0, frames(b"behind the end"))


@pytest.mark.parametrize("partition, flags", [(4, Flag.TRANSACTIONAL), (0, 0)])
async def test_what_was_not_stored_is_known_when_it_is_prepared(
    broker: BrokerProcess, wide_topic: str, partition: int, flags: int
) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        tx = await producer.begin()
        await tx.send_frames(wide_topic, 1, frames(b"good"))
        await tx.send_frames(wide_topic, partition, frames(b"wrong", flags=flags))
        with pytest.raises(TransactionAborted):
            await tx.prepare()
        await nothing_is_left(client)
        assert await values(client, wide_topic) == []


def test_http_begins_for_a_key_and_shows_it(broker: BrokerProcess, topic: str) -> None:
    key = f"job/{topic}"
    with broker.client() as client, httpx.Client(base_url=broker.url) as http:

        def ask(path: str, status: int = 200, **body: object) -> dict[str, object]:
            answer = http.post(path, json=body)
            assert answer.status_code == status, answer.text
            found: dict[str, object] = answer.json()
            return found

        def producer() -> dict[str, object]:
            made = ask("/producers/init")
            return {"producer_id": made["producer_id"], "epoch": made["epoch"]}

        lost, won = producer(), producer()
        ids = []
        for mine in (lost, won):
            ids.append(ask("/transactions/begin", **mine, for_key=key)["transaction_id"])
            ask("/transactions/publish", **mine, topic=topic, value=f"of {mine['producer_id']}")
            ask("/transactions/prepare", **mine)
        assert [each["for_key"] for each in http.get("/transactions").json()["transactions"]] == [key, key]
        assert http.get(f"/transactions/{ids[0]}").json()["for_key"] == key
        ask("/transactions/commit-many", key=key, transactions=ids[1:])
        while http.get("/transactions").json()["total"]:
            pass
        assert [record.value for record in client.read(topic)] == [b"of %d" % won["producer_id"]]
        told = ask("/transactions/begin", 409, **producer(), for_key=key)
        assert "too late" in str(told)
        ask("/transactions/begin", 400, **producer(), for_key="")
