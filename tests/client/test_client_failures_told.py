"""The log tells of a message that failed if nobody asked about it, and only then."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterator

import pytest

from goqueue import GoQueueError
from goqueue.testing import BrokerProcess

TOLD = "message not delivered"


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.WARNING):
        yield caplog


@pytest.fixture
def refused(broker: BrokerProcess) -> str:
    """A topic that takes nothing that is not of its schema."""
    with broker.client() as client:
        if "strict" not in client.list_topics():
            client.schemas.register("strict-value", '{"type": "integer"}', "JSON")
            client.create_topic("strict", partitions=1, schema_validation="on")
    return "strict"


async def test_a_failure_that_was_caught_is_not_told(
    broker: BrokerProcess, refused: str, told: pytest.LogCaptureFixture
) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        with pytest.raises(GoQueueError, match="not of type"):
            await (await producer.send(refused, b'"a"'))
        asked = await producer.send(refused, b'"b"')
        assert isinstance(await asyncio.gather(asked, return_exceptions=True), list)
        del asked
    with broker.client() as sync_client, sync_client.producer() as sync_producer:
        with pytest.raises(GoQueueError, match="not of type"):
            sync_producer.send(refused, b'"c"').result()
        assert sync_producer.send(refused, b'"d"').exception() is not None
        failures: list[BaseException | None] = []
        sync_producer.send(refused, b'"e"').add_done_callback(lambda done: failures.append(done.exception()))
    gc.collect()
    assert len(failures) == 1
    assert TOLD not in told.text


async def test_a_failure_that_nobody_asked_about_is_told_once_without_a_traceback(
    broker: BrokerProcess, refused: str, told: pytest.LogCaptureFixture
) -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with broker.async_client() as client, client.producer() as producer:
        await producer.send(refused, b'"a"')
    with broker.client() as sync_client, sync_client.producer() as sync_producer:
        sync_producer.send(refused, b'"b"')
    gc.collect()
    lines = [record for record in told.records if TOLD in record.getMessage()]
    assert len(lines) == 2 and not any(line.exc_info for line in lines)
    assert all("topic='strict'" in line.getMessage() for line in lines)
    assert complaints == []
