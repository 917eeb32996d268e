"""``send_many`` without an event loop, of messages that are yet to be made."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest
from behaviour.waiting import until

from goqueue import Client, Outgoing, Sent, to_json
from goqueue.model.errors import ClientClosed, NotAllStored, TopicNotFound, TransactionAborted
from goqueue.testing import BrokerProcess


def values_in(client: Client, topic: str) -> list[bytes]:
    return [record.value for record in client.read(topic)]


def test_what_is_read_with_a_client_can_be_sent_by_it(broker: BrokerProcess, topic: str, wide_topic: str) -> None:
    values = [b"%d" % number for number in range(5_000)]
    with broker.client() as client, client.producer() as producer:
        producer.send_many(topic, values)
        sent = producer.send_many(wide_topic, (record.value + b"!" for record in client.read(topic)))
        stored = {(each.partition, each.offset): each.value for each in client.read(wide_topic)}
    assert [stored[each.partition, each.offset] for each in sent] == [value + b"!" for value in values]


@pytest.mark.parametrize("messages", [range(3_000), dict.fromkeys(range(3_000)).keys()])
def test_whatever_can_be_iterated_over_is_sent_in_its_order(broker: BrokerProcess, topic: str, messages: Any) -> None:
    with broker.client() as client, client.producer(serializer=to_json) as producer:
        sent = producer.send_many(topic, messages)
        assert [each.offset for each in sent] == list(range(3_000))
        assert values_in(client, topic) == [b"%d" % number for number in range(3_000)]
        assert producer.send_many(topic, iter(())) == []
        with pytest.raises(TypeError, match="iterable"):
            producer.send_many(topic, 7)  # type: ignore[arg-type]


def test_messages_are_made_in_the_callers_thread_while_the_client_serves_others(
    broker: BrokerProcess, topic: str
) -> None:
    makers: set[threading.Thread] = set()
    with broker.client() as client, client.producer() as producer, ThreadPoolExecutor(1) as pool:

        def slow() -> Iterator[Outgoing]:
            for number in range(3):
                makers.add(threading.current_thread())
                # Nothing is made before another thread was served.
                assert pool.submit(client.list_topics).result(60)
                yield Outgoing(b"%d" % number)

        assert len(producer.send_many(topic, slow())) == 3
        assert values_in(client, topic) == [b"0", b"1", b"2"]
    assert makers == {threading.current_thread()}


def test_few_are_made_ahead(broker: BrokerProcess, topic: str) -> None:
    """No more than a parcel takes, while the broker has not answered or the buffer is full."""
    made = 0
    most_waiting = 0
    with broker.client() as client, client.producer(buffer_bytes=1 << 20) as producer:

        def large() -> Iterator[str]:
            nonlocal made, most_waiting
            for _ in range(100):
                made += 1
                waiting = made * (100 << 10) - client.find_offset(topic, 0, "latest") * (100 << 10)
                most_waiting = max(most_waiting, waiting)
                yield "x" * (100 << 10)

        assert len(producer.send_many(topic, large())) == 100
    # In the buffer, encoded beside it, and yet to be encoded.
    assert most_waiting <= (1 << 20) + (1 << 19) + (600 << 10)


def test_what_was_made_before_a_failure_is_stored_and_told(broker: BrokerProcess, topic: str) -> None:
    def broken() -> Iterator[bytes]:
        yield from [b"v"] * 2_500
        raise ZeroDivisionError("no more")

    with broker.client() as client, client.producer() as producer:
        with pytest.raises(NotAllStored, match=r"1 of 2501 messages .* at place 2500: no more") as failure:
            producer.send_many(topic, broken())
        assert list(map(type, failure.value.outcomes)) == [Sent] * 2_500 + [ZeroDivisionError]
        assert values_in(client, topic) == [b"v"] * 2_500


def test_an_interruption_ends_it_and_leaves_what_was_sent(broker: BrokerProcess, topic: str) -> None:
    def interrupted() -> Iterator[bytes]:
        yield from [b"v"] * 2_000
        until(lambda: client.find_offset(topic, 0, "latest") == 2_000)
        raise KeyboardInterrupt

    with broker.client() as client, client.producer() as producer:
        with pytest.raises(KeyboardInterrupt):
            producer.send_many(topic, interrupted())
        assert producer.send(topic, b"after").result().offset == 2_000


def test_of_what_cannot_be_sent_nothing_is_made(broker: BrokerProcess, topic: str) -> None:
    ended_in: list[threading.Thread] = []

    def endless() -> Iterator[bytes]:
        try:
            yield from (b"%d" % number for number in count())
        finally:
            ended_in.append(threading.current_thread())

    with broker.client() as client, client.producer() as producer:
        with pytest.raises(TopicNotFound):
            producer.send_many("nope", endless())
        assert not ended_in
        begun = endless()
        assert next(begun) == b"0"
    with pytest.raises(ClientClosed):
        producer.send_many(topic, begun)


def test_a_client_that_is_closed_meanwhile_ends_it_in_the_callers_thread(broker: BrokerProcess, topic: str) -> None:
    ended_in: list[threading.Thread] = []
    client = broker.client()
    producer = client.producer()

    def closing() -> Iterator[bytes]:
        try:
            for number in count():
                if number == 2_000:
                    client.close()
                yield b"%d" % number
        finally:
            ended_in.append(threading.current_thread())

    with pytest.raises(ClientClosed):
        producer.send_many(topic, closing())
    assert ended_in == [threading.current_thread()]
    with broker.client() as another:
        assert values_in(another, topic) == [b"%d" % number for number in range(2_000)]


def test_in_a_transaction_it_is_whole_or_nothing(broker: BrokerProcess, topic: str, wide_topic: str) -> None:
    def copied(until_offset: int) -> Iterator[Outgoing]:
        for record in client.read(topic):
            if record.offset == until_offset:
                raise ZeroDivisionError("enough")
            yield Outgoing(record.value, key=record.value)

    with broker.client() as client, client.producer() as producer:
        producer.send_many(topic, [b"%d" % number for number in range(100)])
        with pytest.raises(TransactionAborted), producer.transaction() as transaction, pytest.raises(NotAllStored):
            transaction.send_many(wide_topic, copied(50))
        assert values_in(client, wide_topic) == []
        with producer.transaction() as transaction:
            transaction.send_many(wide_topic, copied(100))
        assert sorted(values_in(client, wide_topic), key=int) == [b"%d" % number for number in range(100)]
