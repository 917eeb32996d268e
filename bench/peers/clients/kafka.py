"""The work through confluent-kafka, the client that wraps librdkafka."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from bench.peers.work import ACK_EVERY, Durability, Pacer, waits_of

_GROUP = "workers"
_PATIENCE_S = 60.0
_POLL_S = 0.01
_READ_MESSAGES = 1_000
"""Taken from the client's queue at once: few enough to stay in the processor's cache."""
_QUIET = {"log_level": 3}
"""Errors only."""
_BATCHING = {
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "batch.num.messages": 10_000,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 512 * 1_024,
}
_AT_ONCE = {"linger.ms": 0, "max.in.flight": 1}
"""Nothing waits while the broker is idle. While it is busy what comes gathers into one batch: a request (and a flush)
for each message would make a line that only grows."""
_FETCHING = {
    "fetch.message.max.bytes": 16 * 1024**2,
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 256 * 1_024,
}


class KafkaClient:
    """Everything on partition 0. Producers and readers are made for a piece of work, as they are configured for it.

    The worker of the queue stays: joining a group takes a few heartbeats, which would hide what the work itself takes.
    """

    def __init__(self, address: str) -> None:
        self._common: dict[str, Any] = {"bootstrap.servers": address, "socket.nagle.disable": True, **_QUIET}
        self._admin = AdminClient(self._common)
        self._worker: _Worker | None = None

    def create(self, topic: str) -> None:
        self._admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(_PATIENCE_S)
        deadline = time.perf_counter() + _PATIENCE_S
        while not self._has_leader(topic):
            if time.perf_counter() > deadline:
                raise RuntimeError(f"{topic} has no leader after {_PATIENCE_S:.0f} s")
            time.sleep(_POLL_S)
        # A share group begins at the end of a topic unless it is told otherwise.
        begin = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
        group = ConfigResource(ResourceType.GROUP, _GROUP, incremental_configs=[begin])
        for changed in self._admin.incremental_alter_configs([group]).values():
            changed.result(_PATIENCE_S)
        if self._worker is not None:
            self._worker.turn_to(topic)

    def _has_leader(self, topic: str) -> bool:
        found = self._admin.list_topics(topic, timeout=_PATIENCE_S).topics[topic]
        return found.error is None and 0 in found.partitions and found.partitions[0].leader >= 0

    def publish(self, topic: str, batches: Iterator[Sequence[bytes]]) -> None:
        with _Publisher(self._common | _BATCHING, topic) as publisher:
            for batch in batches:
                publisher.add(batch)

    def singles(self, topic: str, value: bytes, seconds: float) -> list[float]:
        with _Publisher(self._common | _AT_ONCE, topic) as publisher:

            def send() -> None:
                publisher.send(value)
                publisher.settle()

            return waits_of(send, seconds)

    def consume(self, topic: str, count: int) -> int:
        consumer = self._reader(topic)
        total = read = 0
        while read < count:
            # It waits until it has as many as it was asked for.
            messages = consumer.consume(min(_READ_MESSAGES, count - read), _PATIENCE_S)
            if not messages:
                raise RuntimeError(f"read {read} of {count} messages, then nothing came")
            total += sum(map(_length, messages))
            read += len(messages)
        consumer.close()
        return total

    def _reader(self, topic: str) -> Any:
        """A consumer of the whole topic that belongs to no group; the name of one has to be given all the same."""
        alone = {"group.id": "readers", "enable.auto.commit": False, "enable.auto.offset.store": False}
        consumer = Consumer(self._common | _FETCHING | alone)
        consumer.assign([TopicPartition(topic, 0, 0)])
        return consumer

    def take(self, topic: str, count: int) -> int:
        if self._worker is None:
            self._worker = _Worker(self._common)
        self._worker.turn_to(topic)
        return self._worker.take(count)

    def paced(self, topic: str, pacer: Pacer) -> None:
        # The topic is empty: its beginning is its end, and whoever reads on from there misses nothing.
        watching = _Watching(self._reader(topic), pacer)
        with _Publisher(self._common | _AT_ONCE, topic) as publisher:
            publisher.connect()
            watching.start()
            pacer.begin()
            for wait_s, value in pacer.sends():
                if wait_s > 0:
                    time.sleep(wait_s)
                publisher.send(value)
            watching.result()

    def close(self) -> None:
        """The other connections went with the producers and readers that had them."""
        if self._worker is not None:
            self._worker.close()


class _Publisher:
    """A producer to one topic. When the block is left, everything is acknowledged, or it raises."""

    def __init__(self, settings: dict[str, Any], topic: str) -> None:
        # Only what failed is reported one by one: what is no longer in the queue and did not fail is acknowledged.
        self._producer = Producer(settings | {"delivery.report.only.error": True, "on_delivery": self._reported})
        self._topic = topic
        self._failure: Any = None

    def __enter__(self) -> _Publisher:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.settle()

    def _reported(self, failure: Any, _message: object) -> None:
        self._failure = failure

    def connect(self) -> None:
        """Know where the partition is before the first message."""
        self._producer.list_topics(self._topic, timeout=_PATIENCE_S)

    def add(self, values: Sequence[bytes]) -> None:
        waiting = [{"value": value} for value in values]
        while self._producer.produce_batch(self._topic, waiting, 0) < len(waiting):
            waiting = [_again(message) for message in waiting if "_error" in message]
            self._producer.poll(_POLL_S)
        self._producer.poll(0)

    def send(self, value: bytes) -> None:
        self._producer.produce(self._topic, value, partition=0)
        self._producer.poll(0)

    def settle(self) -> None:
        """Wait until the broker has acknowledged everything."""
        left = self._producer.flush(_PATIENCE_S)
        if left or self._failure is not None:
            raise RuntimeError(f"{left} messages were not acknowledged in time, failure: {self._failure}")


class _Worker:
    """A member of a share group: messages are acknowledged one by one, and go to another member if they are not."""

    def __init__(self, common: dict[str, Any]) -> None:
        self._consumer = ShareConsumer(common | {"group.id": _GROUP, "share.acknowledgement.mode": "explicit"})
        self._consumer.set_acknowledgement_commit_callback(self._reported)
        self._topic = ""
        self._confirmed = 0
        self._failure: Exception | None = None

    def _reported(self, offsets: dict[object, set[int]], failure: Exception | None) -> None:
        self._failure = self._failure or failure
        self._confirmed += sum(map(len, offsets.values()))

    def turn_to(self, topic: str) -> None:
        if topic != self._topic:
            self._consumer.subscribe([topic])
            self._topic = topic

    def take(self, count: int) -> int:
        """The sum of the lengths of ``count`` messages; every acknowledgement is confirmed when it returns."""
        self._confirmed = total = taken = 0
        while taken < count:
            messages = self._consumer.poll(_PATIENCE_S)
            if not messages:
                raise RuntimeError(f"took {taken} of {count} messages, then nothing came")
            # As many as the producer had put into a few batches. They are acknowledged in pieces, as elsewhere.
            for message in messages:
                total += _length(message)
                self._consumer.acknowledge(message)
                taken += 1
                if taken % ACK_EVERY == 0:
                    self._consumer.commit_async()
        self._settle(count)
        return total

    def _settle(self, count: int) -> None:
        for failure in self._consumer.commit_sync(_PATIENCE_S).values():
            self._failure = self._failure or failure
        deadline = time.perf_counter() + _PATIENCE_S
        # Confirmations are handed over while it polls; there is nothing else to come.
        while self._failure is None and self._confirmed < count and time.perf_counter() < deadline:
            self._consumer.poll(_POLL_S)
        if self._failure is not None or self._confirmed != count:
            raise RuntimeError(f"{self._confirmed} of {count} messages were acknowledged, failure: {self._failure}")

    def close(self) -> None:
        self._consumer.close()


class _Watching(threading.Thread):
    """Tells the pacer of what arrives, until all of it has."""

    def __init__(self, consumer: Any, pacer: Pacer) -> None:
        super().__init__(daemon=True)
        self._consumer = consumer
        self._pacer = pacer
        self._failure: Exception | None = None

    def run(self) -> None:
        try:
            while True:
                message = self._consumer.poll(_PATIENCE_S)
                if message is None:
                    raise RuntimeError(f"nothing arrived for {_PATIENCE_S:.0f} s")
                _length(message)
                if self._pacer.arrived(message.value()):
                    return
        except Exception as failure:
            self._failure = failure
        finally:
            self._consumer.close()

    def result(self) -> None:
        self.join()
        if self._failure is not None:
            raise self._failure


def _again(message: dict[str, Any]) -> dict[str, Any]:
    """A message that did not fit into the queue, to be tried once more; any other problem is raised."""
    problem = message.pop("_error")
    if problem.name() != "_QUEUE_FULL":
        raise KafkaException(problem)
    return message


def _length(message: Any) -> int:
    """Of the message's value. What comes may be an error instead."""
    if (problem := message.error()) is not None:
        raise KafkaException(problem)
    return len(message.value())


def connect(address: str, durability: Durability) -> KafkaClient:
    return KafkaClient(address)
