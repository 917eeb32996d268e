from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from behaviour.waiting import until

from goqueue import Client, Outgoing, Published, from_json, to_json
from goqueue.model.errors import (
    ClientClosed,
    InvalidConfiguration,
    InvalidMessage,
    OffsetOutOfRange,
    TopicExists,
    TopicNotFound,
)
from goqueue.testing import BrokerProcess


def loop_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "goqueue-client"]


def test_sending_and_reading_without_an_event_loop(broker: BrokerProcess, topic: str) -> None:
    with broker.client() as client, client.producer(serializer=to_json) as producer:
        assert producer.send(topic, {"n": 1}, key="k").result() == Published(0, 0, 2)
        assert producer.send_many(topic, [{"n": 2}, Outgoing({"n": 3})]) == [Published(0, 1, 2), Published(0, 2, 2)]
        assert [record.value["n"] for record in client.read(topic, deserializer=from_json)] == [1, 2, 3]
        assert [len(batch.run) for batch in client.read_batches(topic, 0, 1)] == [2]
        assert client.find_offset(topic, 0, "latest") == 3


def test_topics_are_managed(broker: BrokerProcess) -> None:
    with broker.client() as client:
        client.create_topic("sync-managed", partitions=2)
        with pytest.raises(TopicExists):
            client.create_topic("sync-managed")
        assert client.change_topic("sync-managed", retention_ms="1h").settings["retention_ms"] == "1h"
        assert len(client.describe_topic("sync-managed").partitions) == 2
        assert "sync-managed" in client.list_topics()
        client.delete_topic("sync-managed")
        assert "sync-managed" not in client.list_topics()


def test_errors_are_raised_where_the_mistake_is(broker: BrokerProcess, topic: str) -> None:
    with broker.client() as client, client.producer() as producer:
        with pytest.raises(TopicNotFound):
            producer.send("nope", b"v")
        with pytest.raises(InvalidMessage, match="deliver_at"):
            producer.send(topic, b"v", delay=timedelta(1), deliver_at=1)
        with pytest.raises(OffsetOutOfRange):
            next(client.read(topic, 0, 9))
        with pytest.raises(InvalidConfiguration):
            client.producer(nonsense=1)
    with pytest.raises(InvalidConfiguration):
        Client(broker.address, nonsense=1)


def test_one_client_serves_many_threads(broker: BrokerProcess, wide_topic: str) -> None:
    with broker.client() as client, client.producer() as producer, ThreadPoolExecutor(8) as pool:

        def work(who: int) -> list[Published]:
            sent = [producer.send(wide_topic, b"%d-%d" % (who, number), key=b"%d" % who) for number in range(100)]
            return [each.result() for each in sent]

        places = [place for each in pool.map(work, range(8)) for place in each]
        assert len({(place.partition, place.offset) for place in places}) == 800
        read = list(pool.map(lambda _: [record.value for record in client.read(wide_topic)], range(4)))
        for values in read:
            assert len(values) == 800
            for who in range(8):
                mine = [value for value in values if value.startswith(b"%d-" % who)]
                assert mine == [b"%d-%d" % (who, number) for number in range(100)]


def test_closing_twice_does_no_harm_and_leaves_no_thread(broker: BrokerProcess, topic: str) -> None:
    before = len(loop_threads())
    client = broker.client()
    producer = client.producer()
    producer.send(topic, b"v")
    client.close()
    client.close()
    producer.close()
    assert len(loop_threads()) == before


def test_a_closed_client_refuses_everything(broker: BrokerProcess, topic: str) -> None:
    client = broker.client()
    producer = client.producer()
    client.close()
    for use in (
        lambda: producer.send(topic, b"v"),
        lambda: producer.send_many(topic, [b"v"]),
        producer.flush,
        client.producer,
        client.list_topics,
        lambda: next(client.read(topic)),
        lambda: client.find_offset(topic, 0, "latest"),
    ):
        with pytest.raises(ClientClosed):
            use()


def test_closing_a_client_ends_whoever_waits_in_another_thread(broker: BrokerProcess, topic: str) -> None:
    client = broker.client()
    with client.producer() as producer:
        producer.send(topic, b"first").result()
    with ThreadPoolExecutor(1) as pool:
        records = client.read(topic, follow=True)
        assert next(records).value == b"first"
        waiting = pool.submit(next, records)
        until(waiting.running)
        client.close()
        with pytest.raises(ClientClosed):
            waiting.result(30)


def test_many_threads_may_close_at_once(broker: BrokerProcess, topic: str) -> None:
    client = broker.client()
    delivery = client.producer(linger_ms=60_000).send(topic, b"v")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: client.close(), range(4)))
    assert delivery.result(0).offset == 0


def test_a_reader_that_is_abandoned_half_way_frees_its_place(broker: BrokerProcess, topic: str) -> None:
    with broker.client() as client, client.producer() as producer:
        producer.send_many(topic, [b"%d" % number for number in range(100)])
        for _ in range(5):
            records = client.read(topic, follow=True)
            assert next(records).value == b"0"
            del records
        gc.collect()
        until(lambda: client._thread.run(_readers()) == 0)
        assert len(list(client.read(topic))) == 100


async def _readers() -> int:
    import asyncio

    return sum("Reader._fetch" in repr(task.get_coro()) for task in asyncio.all_tasks())


def test_a_reader_outlived_by_its_client_ends_quietly(broker: BrokerProcess, topic: str) -> None:
    client = broker.client()
    with client.producer() as producer:
        producer.send_many(topic, [b"a", b"b"])
    records = client.read(topic)
    next(records)
    client.close()
    records.close()
    del records
    gc.collect()


def test_a_future_that_is_cancelled_does_not_disturb_the_others(broker: BrokerProcess, topic: str) -> None:
    with broker.client() as client, client.producer(linger_ms=30) as producer:
        first, second = producer.send(topic, b"a"), producer.send(topic, b"b")
        first.cancel()
        assert second.result().offset == 1


def test_the_client_cannot_be_used_from_its_own_callbacks(broker: BrokerProcess, topic: str) -> None:
    with broker.client() as client, client.producer() as producer:
        met: list[BaseException] = []
        done = threading.Event()

        def use(_: object) -> None:
            try:
                client.list_topics()
            except BaseException as error:
                met.append(error)
            done.set()

        producer.send(topic, b"v").add_done_callback(use)
        assert done.wait(30)
        assert isinstance(met[0], RuntimeError)
        assert "AsyncClient" in str(met[0])


def test_flush_waits_for_what_was_sent(broker: BrokerProcess, topic: str) -> None:
    with broker.client() as client, client.producer(linger_ms=60_000) as producer:
        sent = [producer.send(topic, b"v") for _ in range(10)]
        assert not any(each.done() for each in sent)
        producer.flush()
        assert all(each.done() for each in sent)
