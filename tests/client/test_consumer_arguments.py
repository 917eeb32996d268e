"""What cannot work is refused before anything is joined."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from goqueue import Client, GoQueueError, errors
from goqueue.testing import BrokerProcess


@pytest.mark.parametrize(
    "wrong",
    [{"topics": None}, {"topics": 5}, {"topics": [None]}, {"deserializer": "json"}, {"on_assigned": 1}, {"kind": "al"}],
    ids=str,
)
def test_a_consumer_with_arguments_of_the_wrong_kind_is_refused(wrong: dict[str, Any], broker: BrokerProcess) -> None:
    arguments = {"topics": "t", **wrong}
    with broker.client() as client, pytest.raises(GoQueueError), client.consumer("arguments", **arguments) as consumer:
        consumer.poll(1, timeout=0)


@pytest.mark.parametrize(
    "wrong", [{"handler": None}, {"handler": 5}, {"concurrency": "8"}, {"concurrency": 1.5}], ids=str
)
def test_a_worker_that_could_handle_nothing_takes_nothing(wrong: dict[str, Any], broker: BrokerProcess) -> None:
    arguments = {"handler": print, "concurrency": 1, **wrong}
    with broker.client() as client:
        with pytest.raises(GoQueueError):
            client.worker(group="no-worker", topics="t", signals=False, **arguments)
        assert "no-worker" not in client.list_groups()


def test_times_that_make_no_sense_are_refused(broker: BrokerProcess) -> None:
    with broker.client() as client:
        client.create_topic("times")
        with client.consumer("times", "times") as consumer:
            for wrong in (-1, float("nan"), "5s", True):
                with pytest.raises(errors.InvalidRequest):
                    consumer.poll(1, timeout=wrong)


def test_polling_a_closed_consumer_says_so(broker: BrokerProcess) -> None:
    with broker.client() as client:
        client.create_topic("closed")
        with client.consumer("closed", "closed") as consumer:
            pass
        with pytest.raises(errors.ClientClosed):
            consumer.poll(1, timeout=5)


def test_a_stream_that_is_left_in_good_order_has_finished_with_its_last_record(broker: BrokerProcess) -> None:
    with broker.client() as client:
        _fill(client, "orderly")
        with client.consumer("orderly", "orderly", mode="stream") as consumer:
            assert len(consumer.poll(10, timeout=10)) == 10
        assert sum(client.group_offsets("orderly").values()) == 10


def test_a_stream_that_is_left_by_an_exception_has_not(broker: BrokerProcess) -> None:
    with broker.client() as client:
        _fill(client, "broken")
        with pytest.raises(ZeroDivisionError), client.consumer("broken", "broken", mode="stream") as consumer:
            assert len(consumer.poll(10, timeout=10)) == 10
            raise ZeroDivisionError
        assert sum(client.group_offsets("broken").values()) == 0


def test_any_formatter_shows_what_a_line_is_about(caplog: pytest.LogCaptureFixture, broker: BrokerProcess) -> None:
    with broker.client() as client:
        client.create_topic("failing", partitions=1, max_retries=0)
        with client.producer() as producer:
            producer.send("failing", "x").result()
        with caplog.at_level(logging.WARNING), client.consumer("failing", "failing") as consumer:

            def fail(_: object) -> None:
                consumer._inner.stop_taking()
                raise ZeroDivisionError("by nothing")

            consumer.run(fail, concurrency=1, signals=False)
    (line,) = [record for record in caplog.records if "handler failed" in record.getMessage()]
    assert "topic='failing'" in line.getMessage()
    assert "offset=0" in line.getMessage()
    assert line.exc_info is not None


def _fill(client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=1)
    with client.producer() as producer:
        producer.send_many(topic, [b"v"] * 10)
