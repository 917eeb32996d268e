"""Handlers run over a queue: each message is settled by how its handler ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from behaviour.waiting import until as until_sync
from doubles.async_tests import until

from goqueue import AsyncClient, AsyncReceivedMessage, ReceivedMessage, Reject, Retry, to_json
from goqueue.model.errors import InvalidRequest
from goqueue.testing import BrokerProcess

ROOT = Path(__file__).parents[2]


async def fill(client: AsyncClient, topic: str, count: int) -> None:
    async with client.producer() as producer:
        await producer.send_many(topic, [b"%d" % number for number in range(count)])


async def working(
    client: AsyncClient, handler: Any, group: str, topic: str, when: Callable[[], bool], **options: Any
) -> None:
    """Work until ``when``, then stop as a signal would."""
    consumer = client.consumer(group, topic, **options.pop("of_consumer", {}))
    running = asyncio.create_task(consumer.run(handler, signals=False, **options))
    await asyncio.wait([running, asyncio.create_task(until(when))], return_when=asyncio.FIRST_COMPLETED)
    consumer.stop_taking()
    await running


async def test_a_handler_that_returns_acks(broker: BrokerProcess, topic: str, group: str) -> None:
    seen: list[bytes] = []

    async def handle(message: AsyncReceivedMessage) -> None:
        seen.append(message.value)

    async with broker.async_client() as client:
        await fill(client, topic, 100)
        await working(client, handle, group, topic, lambda: len(seen) == 100)
        assert sorted(seen, key=int) == [b"%d" % number for number in range(100)]
        found = await client.describe_group(group)
        assert (found.lag, found.members) == (0, [])


async def test_how_a_handler_ends_decides(broker: BrokerProcess, topic: str, group: str) -> None:
    seen: list[tuple[int, int]] = []

    async def handle(message: AsyncReceivedMessage) -> None:
        seen.append((message.offset, message.deliveries))
        match message.offset, message.deliveries:
            case 1, 1:
                raise ValueError("not yet")
            case 2, _:
                raise Reject("never")
            case 3, 1:
                raise Retry(after=0)
            case 4, _:
                raise KeyError("always")
            case 5, _:
                await message.ack()
                raise RuntimeError("too late to matter")

    async with broker.async_client() as client:
        await fill(client, topic, 6)
        settings = {"retry_backoff_ms": 0, "max_retries": 1}
        letters: dict[int, str] = {}

        async def look() -> None:
            while len(letters) < 2:
                letters.update({each.origin_offset: each.error async for each in client.dead_letters(topic)})

        looking = asyncio.create_task(look())
        await working(client, handle, group, topic, looking.done, of_consumer=settings)
        await looking
        assert letters == {2: "never", 4: "KeyError: 'always'"}
        assert sorted(seen) == [(0, 1), (1, 1), (1, 2), (2, 1), (3, 1), (3, 2), (4, 1), (4, 2), (5, 1)]
        assert (await client.describe_group(group)).lag == 0


async def test_what_a_handler_raises_on_purpose_is_not_told_as_its_failure(
    broker: BrokerProcess, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    handled = 0

    async def handle(message: AsyncReceivedMessage) -> None:
        nonlocal handled
        handled += 1
        raise {b"0": Retry(after=600), b"1": Retry(reason="the shop is closed"), b"2": Reject("no such card")}[
            message.value
        ]

    with caplog.at_level("INFO", "goqueue.client"):
        async with broker.async_client() as client:
            await fill(client, topic, 3)
            await working(client, handle, group, topic, lambda: handled >= 3)
    told = [record.getMessage() for record in caplog.records]
    assert not [line for line in told if "handler failed" in line or "error=''" in line]
    assert [line for line in told if "handler asks for another delivery" in line and "after_s=600" in line]
    assert [line for line in told if "reason='the shop is closed'" in line]
    (rejected,) = [record for record in caplog.records if "handler rejects a message" in record.getMessage()]
    assert "reason='no such card'" in rejected.getMessage() and rejected.exc_info is None


async def test_as_many_handlers_run_at_once_as_were_asked_for(broker: BrokerProcess, topic: str, group: str) -> None:
    at_once = most = done = 0
    everyone = asyncio.Event()

    async def handle(_: AsyncReceivedMessage) -> None:
        nonlocal at_once, most, done
        at_once += 1
        most = max(most, at_once)
        if at_once == 4:
            everyone.set()
        await everyone.wait()
        await asyncio.sleep(0)
        at_once -= 1
        done += 1

    async with broker.async_client() as client:
        await fill(client, topic, 40)
        await working(client, handle, group, topic, lambda: done == 40, concurrency=4)
        assert most == 4
        for wrong in (0, 100_000):
            with pytest.raises(InvalidRequest, match="concurrency"):
                await client.worker(handle, group=group, topics=topic, concurrency=wrong)


async def test_plain_functions_run_in_threads(broker: BrokerProcess, topic: str, group: str) -> None:
    threads: set[str] = set()
    seen: list[int] = []

    def handle(message: ReceivedMessage) -> None:
        threads.add(threading.current_thread().name)
        if message.offset == 0:
            message.ack().result(30)
        if message.offset == 1 and message.deliveries == 1:
            raise Retry(after=0)
        seen.append(message.offset)

    async with broker.async_client() as client:
        await fill(client, topic, 50)
        await working(client, handle, group, topic, lambda: len(seen) == 50, concurrency=3)
        assert sorted(seen) == list(range(50))
        assert all(name.startswith("goqueue-worker") for name in threads)
        assert (await client.describe_group(group)).lag == 0


async def test_stopping_finishes_what_is_in_hand_and_gives_the_rest_back(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    began = 0
    may_end = asyncio.Event()

    async def handle(_: AsyncReceivedMessage) -> None:
        nonlocal began
        began += 1
        await may_end.wait()

    async with broker.async_client() as client:
        await fill(client, topic, 20)
        consumer = client.consumer(group, topic)
        running = asyncio.create_task(consumer.run(handle, concurrency=2, signals=False))
        await until(lambda: began == 2)
        consumer.stop_taking()
        may_end.set()
        await running
        assert began == 2
        found = await client.describe_group(group)
        assert (found.lag, found.partitions[0].in_flight) == (18, 0)


async def test_a_handler_that_does_not_end_in_time_is_cancelled_and_its_message_given_back(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    ends: list[str] = []

    async def handle(_: AsyncReceivedMessage) -> None:
        ends.append("began")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    async with broker.async_client() as client:
        await fill(client, topic, 1)
        await working(client, handle, group, topic, lambda: bool(ends), shutdown_timeout=0.01)
        assert ends == ["began", "cancelled"]
        async with client.consumer(group, topic) as consumer:
            assert [each.deliveries for each in await consumer.poll()] == [2]


LOGGING = """
import logging, sys
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
"""
WORKER = """
import sys
from goqueue import Client

def handle(message):
    print("began", message.offset, flush=True)
    sys.stdin.readline()
    print("ended", message.offset, flush=True)

with Client({address!r}) as client:
    client.worker(handle, group={group!r}, topics={topic!r}, concurrency=1)
print("bye", flush=True)
"""
ASYNC_WORKER = """
import asyncio, sys
from goqueue import AsyncClient

async def handle(message):
    print("began", message.offset, flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print("ended", message.offset, flush=True)

async def main():
    async with AsyncClient({address!r}) as client:
        await client.worker(handle, group={group!r}, topics={topic!r}, concurrency=1)

asyncio.run(main())
print("bye", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("script", [WORKER, ASYNC_WORKER], ids=["sync", "async"])
def test_a_signal_to_a_worker_process_finishes_what_is_in_hand_and_acks_it(
    broker: BrokerProcess, topic: str, group: str, script: str, number: signal.Signals
) -> None:
    with broker.client() as client, client.producer() as producer:
        producer.send_many(topic, [b"1", b"2", b"3"])
        script = script.format(address=broker.address, group=group, topic=topic)
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", LOGGING + script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == "began 0\n"
            process.send_signal(number)
            assert process.stdout.readline().startswith("stopping")
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.read() == "ended 0\nbye\n"
            assert process.wait(30) == 0
        found = client.describe_group(group)
        assert (found.members, found.lag, found.partitions[0].committed, found.partitions[0].in_flight) == ([], 2, 1, 0)


def test_the_example_is_a_worker_service_in_fifteen_lines(broker: BrokerProcess) -> None:
    example = ROOT / "examples" / "worker.py"
    _, _, code = example.read_text().partition("\n\n")
    assert code in (ROOT / "docs" / "client.md").read_text()
    assert len([line for line in example.read_text().splitlines() if line.strip()]) <= 15
    with broker.client() as client, client.producer(serializer=to_json) as producer:
        client.create_topic("orders", partitions=1)
        producer.send_many("orders", [{"item": "a hat"}, {}, {"item": "a scarf"}])
        process = subprocess.Popen(
            [sys.executable, "-W", "error", str(example)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"GOQUEUE_ADDRESS": broker.address},
        )
        with process:
            assert process.stdout is not None
            printed = {process.stdout.readline() for _ in range(2)}
            until_sync(lambda: client.describe_group("packers").lag == 0)
            process.terminate()
            assert process.wait(30) == 0
        assert printed == {"packed a hat\n", "packed a scarf\n"}
        until_sync(lambda: [each.error for each in client.dead_letters("orders")] == ["an order needs an item"])
