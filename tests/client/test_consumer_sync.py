from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from behaviour.waiting import until

from goqueue import Client, Consumer, ReceivedMessage, TopicPartition, from_json
from goqueue.model.errors import ClientClosed, InvalidConfiguration, StaleReceipt, TopicNotFound
from goqueue.testing import BrokerProcess


def fill(client: Client, topic: str, count: int) -> None:
    with client.producer() as producer:
        producer.send_many(topic, [b"%d" % number for number in range(count)])


def test_messages_are_iterated_and_settled_without_an_event_loop(broker: BrokerProcess, topic: str, group: str) -> None:
    with broker.client() as client:
        fill(client, topic, 6)
        with client.consumer(group, topic, deserializer=from_json, retry_backoff_ms=0) as consumer:
            for message in consumer:
                assert isinstance(message, ReceivedMessage)
                if message.value == 0:
                    message.ack().result()
                elif message.value == 1:
                    message.ack()
                elif message.value == 2:
                    with message:
                        pass
                elif message.value == 3 and message.deliveries == 1:
                    with pytest.raises(ZeroDivisionError), message:
                        raise ZeroDivisionError
                elif message.value == 3:
                    with message:
                        message.ack()
                elif message.value == 4:
                    message.extend(60).result()
                    message.reject("no").result()
                elif message.value == 5:
                    message.nack(delay=60).result()
                if message.deliveries == 2:
                    break
        assert client.describe_group(group).partitions[0].waiting == 1
        until(lambda: client.describe_group(group).lag == 1)
        until(lambda: [each.error for each in client.dead_letters(topic)] == ["no"])


def test_batches_are_polled_and_acked(broker: BrokerProcess, topic: str, group: str) -> None:
    with broker.client() as client:
        fill(client, topic, 250)
        with client.consumer(group, topic) as consumer:
            seen = 0
            for batch in consumer.batches(100):
                seen += len(batch)
                done = consumer.ack(batch)
                if seen == 250:
                    break
            done.result(30)
            with pytest.raises(StaleReceipt):
                consumer.ack(batch).result(30)
            assert consumer.ack([]).done()
            assert consumer.poll(timeout=0.01) == []
        assert client.describe_group(group).lag == 0
        assert client.group_offsets(group) == {TopicPartition(topic, 0): 250}


def test_a_stream_is_iterated_and_committed(broker: BrokerProcess, topic: str, group: str) -> None:
    with broker.client() as client:
        fill(client, topic, 10)
        with client.consumer(group, topic, mode="stream") as consumer:
            records = [next(consumer) for _ in range(5)]
            consumer.commit(records[1])
            assert client.group_offsets(group) == {TopicPartition(topic, 0): 2}
            assert consumer.assignment == [TopicPartition(topic, 0)]
        assert client.group_offsets(group) == {TopicPartition(topic, 0): 5}
        assert client.reset_offsets(group, topic, "earliest") == {TopicPartition(topic, 0): 0}


def test_many_threads_may_share_a_consumer(broker: BrokerProcess, wide_topic: str, group: str) -> None:
    with broker.client() as client, client.consumer(group, wide_topic) as consumer, ThreadPoolExecutor(4) as pool:
        fill(client, wide_topic, 400)
        seen: list[int] = []

        def work(consumer: Consumer) -> None:
            for message in consumer:
                seen.append(int(message.value))
                message.ack()

        working = [pool.submit(work, consumer) for _ in range(4)]
        until(lambda: len(seen) == 400)
        consumer.close()
        for each in working:
            each.result(30)
        assert sorted(seen) == list(range(400))
        assert client.describe_group(group).lag == 0


def test_callbacks_may_use_the_client(broker: BrokerProcess, topic: str, group: str) -> None:
    heard: list[tuple[str, list[str]]] = []
    with broker.client() as client:

        def assigned(places: list[TopicPartition]) -> None:
            heard.append((places[0].topic, client.list_topics()))

        with client.consumer(group, topic, on_assigned=assigned):
            [(name, topics)] = heard
            assert name == topic in topics


def test_a_worker_in_a_thread_is_stopped_by_closing_the_client(broker: BrokerProcess, topic: str, group: str) -> None:
    handled = threading.Event()
    client = broker.client()
    fill(client, topic, 1)
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(client.worker, lambda _: handled.set(), group=group, topics=topic)
        assert handled.wait(30)
        client.close()
        working.result(30)
    with broker.client() as other:
        found = other.describe_group(group)
        assert (found.members, found.lag) == ([], 0)


def test_groups_are_managed(broker: BrokerProcess, topic: str, group: str) -> None:
    with broker.client() as client:
        assert client.configure_group(group, max_retries=0).settings["max_retries"] == "0"
        assert group in client.list_groups()
        fill(client, topic, 1)
        with client.consumer(group, topic) as consumer:
            next(consumer).nack(reason="first and last").result()
            until(lambda: list(client.dead_letters(topic, group=group)))
            assert client.redrive(topic, group=group, dry_run=True).matched == 1
            assert client.redrive(topic, group=group).redriven == 1
            next(consumer).ack().result()
        assert client.reliability_stats().redriven >= 1
        client.delete_group(group)
        assert group not in client.list_groups()


def test_mistakes_are_told_where_they_are_made(broker: BrokerProcess, topic: str, group: str) -> None:
    client = broker.client()
    with pytest.raises(InvalidConfiguration, match="nonsense"):
        client.consumer(group, topic, nonsense=1)
    with pytest.raises(TopicNotFound):
        next(client.consumer(group, "nowhere"))
    fill(client, topic, 1)
    consumer = client.consumer(group, topic)
    message = next(consumer)
    client.close()
    consumer.close()
    with pytest.raises(ClientClosed):
        message.ack().result(30)
    with pytest.raises(ClientClosed):
        consumer.poll()
