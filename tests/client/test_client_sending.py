from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import mmh3
import pytest

from goqueue import AsyncClient, Outgoing, Priority, Published, Sent, as_text, from_json, to_json
from goqueue.client.producer import outbox
from goqueue.model.errors import (
    BufferFull,
    ClientClosed,
    InvalidConfiguration,
    InvalidMessage,
    MessageTooLarge,
    NotAllStored,
    PartitionNotFound,
    TimestampOutOfRange,
    TopicNotFound,
)
from goqueue.testing import BrokerProcess, running_broker
from goqueue.wire.batch import FrameRun


async def everything(client: AsyncClient, topic: str, **options: Any) -> list[Any]:
    return [record.value async for record in client.read(topic, **options)]


async def test_a_message_comes_back_as_it_was_sent(broker: BrokerProcess, topic: str) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    async with broker.async_client() as client, client.producer() as producer:
        sent = await producer.send(
            topic, b"\x00\xff", key=b"k\x80", headers={"a": "ü", "b": b""}, priority="high", timestamp=moment
        )
        assert await sent == Published(0, 0, int(Priority.HIGH))
        (record,) = [record async for record in client.read(topic)]
    assert (record.topic, record.partition, record.offset) == (topic, 0, 0)
    assert (record.key, record.value, record.priority) == (b"k\x80", b"\x00\xff", Priority.HIGH)
    assert record.headers == (("a", "ü".encode()), ("b", b""))
    assert record.timestamp == moment


async def test_headers_may_repeat_a_name(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        await producer.send_many(topic, [Outgoing(b"v", headers=[("h", b"1"), ("h", "2")])])
        (record,) = [record async for record in client.read(topic)]
    assert record.headers == (("h", b"1"), ("h", b"2"))


async def test_a_tombstone_is_read_as_none(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        await (await producer.send(topic, None, key="k"))
        assert await everything(client, topic, deserializer=from_json) == [None]


@pytest.mark.parametrize("priority", list(Priority))
async def test_every_priority_is_kept(broker: BrokerProcess, topic: str, priority: Priority) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        for given in (priority, priority.label, int(priority)):
            assert (await (await producer.send(topic, b"v", priority=given))).priority == priority
        assert {record.priority async for record in client.read(topic)} == {priority}


@pytest.mark.parametrize("acks", ["none", "leader", "all"])
async def test_every_kind_of_acknowledgement_tells_where_the_message_is(
    broker: BrokerProcess, topic: str, acks: str
) -> None:
    async with broker.async_client() as client, client.producer(acks=acks) as producer:
        places = [await (await producer.send(topic, b"%d" % number)) for number in range(5)]
        assert [place.offset for place in places] == [0, 1, 2, 3, 4]


async def test_keys_go_to_the_partition_of_their_murmur3(broker: BrokerProcess, wide_topic: str) -> None:
    keys = [f"key-{number}" for number in range(50)]
    async with broker.async_client() as client, client.producer() as producer:
        results = await producer.send_many(wide_topic, [Outgoing(b"", key) for key in keys])
        for key, result in zip(keys, results, strict=True):
            assert result.partition == (mmh3.hash(key.encode(), 0, signed=False) & 0x7FFFFFFF) % 4
            assert (await (await producer.send(wide_topic, b"", key=key))).partition == result.partition


async def test_messages_without_a_key_fill_a_batch_and_then_the_next_partition(
    broker: BrokerProcess, wide_topic: str
) -> None:
    async with broker.async_client() as client, client.producer(linger_ms=60_000, batch_messages=3) as producer:
        sent = [await producer.send(wide_topic, b"v") for _ in range(12)]
        partitions = [(await each).partition for each in sent]
        assert partitions == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


async def test_the_results_of_send_many_are_in_the_order_of_the_messages(
    broker: BrokerProcess, wide_topic: str
) -> None:
    messages = [
        Outgoing(b"%d" % number, key=f"k{number % 7}" if number % 3 else None, priority=number % 5)
        for number in range(1_000)
    ]
    async with broker.async_client() as client, client.producer() as producer:
        results = await producer.send_many(wide_topic, messages)
        stored = {(record.partition, record.offset): record async for record in client.read(wide_topic)}
    for message, place in zip(messages, results, strict=True):
        record = stored[place.partition, place.offset]
        assert (record.value, record.priority) == (message.value, place.priority)


async def test_send_many_takes_any_iterable_of_values_and_of_nothing(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        assert await producer.send_many(topic, []) == []
        assert len(await producer.send_many(topic, (value for value in (b"a", "b", bytearray(b"c"))))) == 3
        assert await everything(client, topic) == [b"a", b"b", b"c"]


async def test_small_and_large_messages_mix_in_one_send_many(broker: BrokerProcess, topic: str) -> None:
    values = [b"small" * 1_000, b"x" * (3 << 20), b"small", b"y" * (200 << 10), b"z" * (900 << 10), b"small"]
    async with broker.async_client() as client, client.producer() as producer:
        results = await producer.send_many(topic, values)
        assert [place.offset for place in results] == [0, 1, 2, 3, 4, 5]
        assert await everything(client, topic) == values


async def test_a_bad_message_fails_alone_while_its_neighbours_are_stored(broker: BrokerProcess, topic: str) -> None:
    too_late = datetime.now(UTC) + timedelta(days=30)
    async with broker.async_client() as client, client.producer(linger_ms=20) as producer:
        await client.change_topic(topic, max_message_bytes=1_024)
        sent = [await producer.send(topic, b"%d" % number) for number in range(3)]
        large = await producer.send(topic, b"x" * 2_000)
        ahead = await producer.send(topic, b"v", timestamp=too_late)
        sent += [await producer.send(topic, b"%d" % number) for number in range(3, 6)]
        with pytest.raises(MessageTooLarge):
            await large
        with pytest.raises(TimestampOutOfRange):
            await ahead
        assert [(await each).offset for each in sent] == [0, 1, 2, 3, 4, 5]
        assert await everything(client, topic) == [b"0", b"1", b"2", b"3", b"4", b"5"]


async def test_bad_messages_of_send_many_are_told_when_the_others_are_stored(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        await client.change_topic(topic, max_message_bytes=1_024)
        with pytest.raises(NotAllStored, match=r"1 of 3 messages are not stored; .* at place 1: .*2000") as failure:
            await producer.send_many(topic, [b"a", b"x" * 2_000, b"b"])
        assert isinstance(failure.value.__cause__, MessageTooLarge)
        with pytest.raises(NotAllStored, match="int") as failure:
            await producer.send_many(topic, [b"c", 7, b"d"])
        assert isinstance(failure.value.__cause__, InvalidMessage)
        assert await everything(client, topic) == [b"a", b"b", b"c", b"d"]


async def test_send_many_tells_of_each_message_what_became_of_it(broker: BrokerProcess, wide_topic: str) -> None:
    messages: list[Any] = [Outgoing(b"%d" % number, partition=number % 4) for number in range(40)]
    too_late = datetime.now(UTC) + timedelta(days=30)
    wrong: dict[int, tuple[Any, type[Exception]]] = {
        3: (Outgoing(b"x" * 2_000, partition=3), MessageTooLarge),
        7: (Outgoing(b"v", partition=3, timestamp=too_late), TimestampOutOfRange),
        8: (7, InvalidMessage),
        20: (Outgoing(b"v", partition=4), PartitionNotFound),
        39: (Outgoing(None), InvalidMessage),
    }
    for place, (message, _) in wrong.items():
        messages[place] = message
    async with broker.async_client() as client, client.producer() as producer:
        await client.change_topic(wide_topic, max_message_bytes=1_024)
        with pytest.raises(NotAllStored, match="5 of 40 messages") as failure:
            await producer.send_many(wide_topic, messages)
        assert {place: type(error) for place, error in failure.value.failures.items()} == {
            place: kind for place, (_, kind) in wrong.items()
        }
        stored = {(record.partition, record.offset): record.value async for record in client.read(wide_topic)}
        places = {place: each for place, each in enumerate(failure.value.outcomes) if isinstance(each, Published)}
        assert {place: stored[each.partition, each.offset] for place, each in places.items()} == {
            place: message.value for place, message in enumerate(messages) if place not in wrong
        }
        # Who sends only those again that failed stores nothing twice.
        await producer.send_many(wide_topic, [b"mended"] * len(failure.value.failures))
        assert len(await everything(client, wide_topic)) == 40


async def test_what_fails_for_one_reason_is_raised_as_it_is_and_else_told_of_each(
    broker: BrokerProcess, topic: str
) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        with pytest.raises(InvalidMessage, match="int"):
            await producer.send_many(topic, [7, 8])
        with pytest.raises(PartitionNotFound):
            await producer.send_many(topic, [Outgoing(b"a", partition=1), Outgoing(b"b", partition=2)])
        with pytest.raises(NotAllStored, match="2 of 2") as failure:
            await producer.send_many(topic, [7, 7.5])
        assert [str(each).split()[4] for each in failure.value.outcomes] == ["int", "float"]
        assert await everything(client, topic) == []


async def test_what_a_serializer_or_the_messages_themselves_raise_is_told_too(
    broker: BrokerProcess, topic: str
) -> None:
    def broken() -> Iterator[Any]:
        yield b"c"
        raise ZeroDivisionError("no more")

    async with broker.async_client() as client:
        async with client.producer(serializer=lambda value: b"%d" % value) as producer:
            with pytest.raises(NotAllStored) as failure:
                await producer.send_many(topic, [1, "two", 3])
            assert list(map(type, failure.value.outcomes)) == [Sent, TypeError, Sent]
            with pytest.raises(TypeError):
                await producer.send_many(topic, ["two"])
        async with client.producer() as producer:
            with pytest.raises(NotAllStored, match="no more") as failure:
                await producer.send_many(topic, broken())
            assert list(map(type, failure.value.outcomes)) == [Sent, ZeroDivisionError]
            with pytest.raises(TypeError, match="iterable"):
                await producer.send_many(topic, 7)  # type: ignore[arg-type]
        assert await everything(client, topic) == [b"1", b"3", b"c"]


async def test_what_there_is_no_room_for_is_told_by_its_place(broker: BrokerProcess, topic: str) -> None:
    large = b"x" * (600 << 10)
    async with broker.async_client() as client, client.producer(block=False, buffer_bytes=100_000) as producer:
        with pytest.raises(NotAllStored, match="3 of 4") as failure:
            await producer.send_many(topic, [large, large, b"small", large])
        assert list(map(type, failure.value.outcomes)) == [Sent, BufferFull, BufferFull, BufferFull]
        assert await everything(client, topic) == [large]


def test_without_a_loop_it_is_told_as_well(broker: BrokerProcess, topic: str) -> None:
    with broker.client() as client, client.producer() as producer:
        with pytest.raises(NotAllStored) as failure:
            producer.send_many(topic, [b"a", 7, b"b"])
        assert list(map(type, failure.value.outcomes)) == [Sent, InvalidMessage, Sent]


async def test_a_message_too_large_for_the_brokers_grpc_hurts_nobody_else(tmp_path: Any) -> None:
    with running_broker(tmp_path, settings={"grpc.max_message_bytes": "2MiB"}) as broker:
        async with broker.async_client() as client, client.producer() as producer:
            await client.create_topic("t", partitions=2)
            large = await producer.send("t", b"x" * (5 << 20), partition=0)
            small = [await producer.send("t", b"v", partition=1) for _ in range(5)]
            with pytest.raises(MessageTooLarge, match="max_message_bytes"):
                await large
            assert [(await each).offset for each in small] == [0, 1, 2, 3, 4]


async def test_serializers_make_bytes_of_anything_and_back(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client, client.producer(serializer=to_json) as producer:
        await producer.send_many(topic, [{"n": 1}, [1, 2], "text"])
        assert await everything(client, topic, deserializer=from_json) == [{"n": 1}, [1, 2], "text"]
        assert await everything(client, topic, deserializer=as_text) == ['{"n":1}', "[1,2]", '"text"']


async def test_a_topic_or_a_partition_that_does_not_exist_is_refused(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        with pytest.raises(TopicNotFound):
            await producer.send("nope", b"v")
        with pytest.raises(TopicNotFound):
            await producer.send_many("nope", [b"v"])
        for partition in (-1, 1, 1 << 40):
            with pytest.raises(PartitionNotFound):
                await producer.send(topic, b"v", partition=partition)


async def test_flush_lets_everything_leave_and_waits_for_it(broker: BrokerProcess, wide_topic: str) -> None:
    async with broker.async_client() as client, client.producer(linger_ms=60_000) as producer:
        await producer.flush()
        sent = [await producer.send(wide_topic, b"v", partition=number % 4) for number in range(20)]
        assert not any(each.done() for each in sent)
        await producer.flush()
        assert all(each.done() and not each.exception() for each in sent)
        assert producer.buffered_bytes == 0


async def test_flush_ends_although_others_go_on_sending(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        stopping = asyncio.Event()

        async def keep_sending() -> None:
            while not stopping.is_set():
                await producer.send(topic, b"v")
                await asyncio.sleep(0)

        sending = asyncio.create_task(keep_sending())
        for _ in range(5):
            await producer.flush()
        stopping.set()
        await sending


async def test_closing_finishes_what_was_sent_and_refuses_more(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client:
        producer = client.producer(linger_ms=60_000)
        sent = [await producer.send(topic, b"v") for _ in range(5)]
        await producer.close()
        assert [each.result().offset for each in sent] == [0, 1, 2, 3, 4]
        for refused in (producer.send(topic, b"v"), producer.send_many(topic, [b"v"])):
            with pytest.raises(ClientClosed):
                await refused
        await producer.close()


async def test_closing_the_client_finishes_its_producers_and_refuses_more(broker: BrokerProcess, topic: str) -> None:
    client = broker.async_client()
    producer = client.producer(linger_ms=60_000)
    sent = await producer.send(topic, b"v")
    await client.close()
    assert sent.result().offset == 0
    for refused in (producer.send(topic, b"v"), client.list_topics(), client.find_offset(topic, 0, "latest")):
        with pytest.raises(ClientClosed):
            await refused
    with pytest.raises(ClientClosed):
        client.producer()
    with pytest.raises(ClientClosed):
        await anext(client.read(topic))
    await client.close()


async def test_closing_the_client_while_a_producer_closes_loses_nothing(broker: BrokerProcess, topic: str) -> None:
    client = broker.async_client()
    producer = client.producer(linger_ms=60_000)
    sent = [await producer.send(topic, b"v") for _ in range(5)]
    await asyncio.gather(producer.close(), client.close())
    assert [each.result().offset for each in sent] == [0, 1, 2, 3, 4]


async def test_a_close_that_is_cancelled_leaves_the_messages_to_the_client(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client:
        producer = client.producer(linger_ms=60_000)
        sent = await producer.send(topic, b"v")
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
    assert sent.result().offset == 0


async def test_a_producer_that_is_closed_is_let_go_of(broker: BrokerProcess) -> None:
    async with broker.async_client() as client:
        for _ in range(10):
            async with client.producer():
                pass
        assert not client._producers


@pytest.mark.parametrize("options", [{"nonsense": 1}, {"acks": "perhaps"}, {"batch_messages": 0}])
async def test_options_that_make_no_sense_are_refused(broker: BrokerProcess, options: dict[str, Any]) -> None:
    async with broker.async_client() as client:
        with pytest.raises(InvalidConfiguration):
            client.producer(**options)


def test_messages_published_over_grpc_are_the_same_over_http(broker: BrokerProcess, topic: str) -> None:
    with broker.client() as client, client.producer() as producer:
        producer.send_many(topic, ["ü", Outgoing("w", key="k")])
    url = f"{broker.url}/topics/{topic}/partitions/0/messages"
    messages = httpx.get(url, trust_env=False).json()["messages"]
    assert [(each["value"], each.get("key")) for each in messages] == [("ü", None), ("w", "k")]


async def test_many_values_with_long_traces_fit_their_batches(
    broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a trace adds to each message counts as well: a batch that is too large would be refused."""
    trace = (("traceparent", b"00-%b-%b-01" % (b"1" * 32, b"2" * 16)), ("tracestate", b"vendor=" + b"x" * 500))
    monkeypatch.setattr(outbox, "current_trace", lambda: trace)
    values = [bytes([number % 256]) * (250 << 10 if number % 1_000 == 999 else 300) for number in range(4_000)]
    async with broker.async_client() as client, client.producer() as producer:
        sent = await producer.send_many(topic, values)
        found = {(each.partition, each.offset): each async for each in client.read(topic)}
    assert [found[each.partition, each.offset].value for each in sent] == values
    assert all(each.headers == trace for each in found.values())
    assert {each.trace_id for each in sent} == {"1" * 32}


async def test_values_between_other_messages_keep_their_places(broker: BrokerProcess, topic: str) -> None:
    """Plain values are encoded many at a time, and everything else one by one."""
    many = [b"v%d" % number for number in range(3_000)]
    mixed: list[Any] = [*many[:2_500], Outgoing(b"with a key", key=b"k"), *many[2_500:], Outgoing(b"last", partition=0)]
    async with broker.async_client() as client, client.producer() as producer:
        sent = await producer.send_many(topic, iter(mixed))
        found = {(each.partition, each.offset): each.value async for each in client.read(topic)}
    wanted = [each if isinstance(each, bytes) else each.value for each in mixed]
    assert [found[each.partition, each.offset] for each in sent] == wanted
    # The topic has one partition: it is in the order in which they were given.
    assert [value for _, value in sorted(found.items())] == wanted


@pytest.mark.parametrize("size", [200 << 10, 700 << 10])
async def test_of_messages_that_are_yet_to_be_made_few_are_asked_for_before_some_leave(
    broker: BrokerProcess, topic: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the bound on what waits would bound nothing."""
    made: list[int] = []
    waiting: list[int] = []

    def large() -> Iterator[bytes]:
        for number in range(20):
            made.append(number)
            yield bytes(size)

    enqueue = outbox.Outbox.enqueue

    async def noted(self: outbox.Outbox, topic: str, number: int, run: FrameRun, *rest: Any) -> Any:
        waiting.append(len(made) * size - sum(sizes))
        sizes.append(len(run.frames))
        return await enqueue(self, topic, number, run, *rest)

    sizes: list[int] = []
    monkeypatch.setattr(outbox.Outbox, "enqueue", noted)
    async with broker.async_client() as client, client.producer() as producer:
        assert len(await producer.send_many(topic, large())) == 20
    assert len(waiting) >= 6
    assert max(waiting) < 3 << 19


async def test_a_deserializer_that_ends_an_iteration_loses_nothing_silently(broker: BrokerProcess, topic: str) -> None:
    def broken(value: bytes) -> bytes:
        if value == b"3":
            raise StopIteration
        return value

    async with broker.async_client() as client:
        async with client.producer() as producer:
            await producer.send_many(topic, [b"%d" % number for number in range(6)])
        with pytest.raises(RuntimeError, match="StopIteration"):
            await everything(client, topic, deserializer=broken)
