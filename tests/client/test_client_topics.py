"""Commands to topics when the first try does not go well."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from doubles.connections import wrap

from goqueue import AsyncClient, GoQueueError
from goqueue.model.errors import (
    BrokerUnavailable,
    ClientError,
    DeliveryTimeout,
    InvalidRequest,
    Overloaded,
    ShuttingDown,
    TopicExists,
    TopicNotFound,
)
from goqueue.testing import BrokerProcess
from goqueue.wire.proto import goqueue_pb2 as pb

LOST = BrokerUnavailable("the connection broke before the answer came")


def fail_once(patch: pytest.MonkeyPatch, kind: type, error: GoQueueError, *, after: bool) -> None:
    """The first request of that kind fails, ``after`` or before the broker has carried it out."""
    waiting = [error]

    def failing(real: Any) -> Any:
        async def call(self: Any, method: Any, request: Any, **options: Any) -> Any:
            if not isinstance(request, kind) or not waiting:
                return await real(self, method, request, **options)
            failure = waiting.pop()
            if after:
                await real(self, method, request, **options)
            raise failure

        return call

    wrap(patch, "call", failing)


def stall(patch: pytest.MonkeyPatch, stalls: Callable[[str], bool]) -> None:
    """Brokers at these addresses take all the time that they are given, and answer nothing."""

    def stalling(real: Any) -> Any:
        async def call(self: Any, method: Any, request: Any, *, timeout_ms: int | None = None) -> Any:
            if not stalls(self.address):
                return await real(self, method, request, timeout_ms=timeout_ms)
            await asyncio.sleep((timeout_ms or self._config.request_timeout_ms) / 1_000)
            raise DeliveryTimeout(f"{self.address} did not answer in time")

        return call

    wrap(patch, "call", stalling)


async def test_a_topic_that_may_be_there_already_is_taken_as_it_is(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client:
        there = await client.describe_topic(topic)
        found = await client.create_topic(topic, if_not_exists=True, partitions=len(there.partitions) + 1)
        assert (found.id, len(found.partitions)) == (there.id, len(there.partitions))
        with pytest.raises(TopicExists):
            await client.create_topic(topic)
        made = await client.create_topic(f"{topic}-new", if_not_exists=True, partitions=5)
        assert len(made.partitions) == 5
    with broker.client() as client_:
        assert client_.create_topic(topic, if_not_exists=True).id == there.id


async def test_a_topic_whose_creation_was_not_confirmed_is_created(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker.async_client() as client:
        fail_once(monkeypatch, pb.CreateTopicRequest, LOST, after=True)
        made = await client.create_topic("unconfirmed", partitions=2, retention_ms="60m", retention_bytes=None)
        assert (len(made.partitions), made.settings["retention_ms"]) == (2, "1h")


@pytest.mark.parametrize(
    "other", [{"partitions": 3}, {"partitions": 2, "retention_ms": "2h"}, {"retention_ms": "1h", "fsync": "never"}]
)
async def test_a_topic_of_somebody_else_with_other_settings_still_exists_when_asked_again(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, other: dict[str, Any]
) -> None:
    name = "-".join(["taken", *map(str, other.values())])
    async with broker.async_client() as client:
        await client.create_topic(name, **other)
        fail_once(monkeypatch, pb.CreateTopicRequest, LOST, after=False)
        with pytest.raises(TopicExists):
            await client.create_topic(name, partitions=2, retention_ms="1h")


async def test_a_topic_that_was_there_before_the_request_left_exists(broker: BrokerProcess) -> None:
    async with AsyncClient(["127.0.0.1:1", broker.address]) as client:
        await client.create_topic("there-before", partitions=1)
    async with AsyncClient(["127.0.0.1:1", broker.address]) as client:
        with pytest.raises(TopicExists):
            await client.create_topic("there-before", partitions=1)


async def test_a_topic_whose_deletion_was_not_confirmed_is_deleted(
    broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker.async_client() as client:
        fail_once(monkeypatch, pb.DeleteTopicRequest, LOST, after=True)
        await client.delete_topic(topic)
        assert topic not in await client.list_topics()
        with pytest.raises(TopicNotFound):
            await client.delete_topic(topic)


async def test_a_purge_that_was_not_confirmed_is_not_tried_again(
    broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncClient(["127.0.0.1:1", broker.address]) as client, client.producer() as producer:
        await (await producer.send(topic, "a", partition=0))
        fail_once(monkeypatch, pb.PurgeTopicRequest, LOST, after=False)
        with pytest.raises(ClientError, match=r"whether .* was purged is not known") as raised:
            await client.purge_topic(topic)
        assert not isinstance(raised.value, BrokerUnavailable)
        assert [record.value async for record in client.read(topic)] == [b"a"]
        assert sum(each.removed for each in await client.purge_topic(topic)) == 1


@pytest.mark.parametrize("wrong", [{"partition": -1}, {"partition": 1 << 32}, {"before": 1 << 63}, {"before": "now"}])
async def test_what_cannot_be_sent_is_refused(broker: BrokerProcess, topic: str, wrong: dict[str, Any]) -> None:
    async with broker.async_client() as client:
        with pytest.raises(InvalidRequest):
            await client.purge_topic(topic, **wrong)


@pytest.mark.parametrize("refusal", [ShuttingDown("going", retry_after_s=0.01), Overloaded("busy")])
async def test_a_broker_that_is_stopping_or_busy_is_asked_again(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, refusal: GoQueueError
) -> None:
    async with broker.async_client() as client:
        fail_once(monkeypatch, pb.CreateTopicRequest, refusal, after=False)
        name = f"after-{refusal.code}"
        assert (await client.create_topic(name, partitions=1)).name == name


async def test_several_brokers_that_never_answer_take_no_longer_than_the_connect_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stall(monkeypatch, lambda _: True)
    async with AsyncClient(["a:1", "b:1", "c:1", "d:1"], connect_timeout_ms=200) as client:
        began = asyncio.get_running_loop().time()
        with pytest.raises(BrokerUnavailable):
            await client._directory.partitions("t")
        assert asyncio.get_running_loop().time() - began < 0.6


async def test_a_question_passes_over_a_broker_that_never_answers(
    broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stall(monkeypatch, lambda address: address != broker.address)
    async with AsyncClient(["a:1", broker.address], connect_timeout_ms=2_000) as client:
        assert topic in await client.list_topics()
