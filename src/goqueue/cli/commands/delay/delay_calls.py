"""Calls about delayed messages by their positions, many of them in batches that can be stopped in between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import Event
from typing import Any, TypeVar

from goqueue.cli.connection.broker_http import BrokerHttp
from goqueue.cli.connection.many_calls import ManyCalls
from goqueue.model.errors import DelayedNotFound, GoQueueError, PartitionNotFound
from goqueue.observe.logs import escape

_BATCH_SIZE = 200
_MOST_VALUE_BYTES = 64 << 10
Item = TypeVar("Item")

Position = tuple[int, int]
"""A partition and an offset."""


def delayed_path(topic: str, partition: int, offset: int) -> list[str]:
    return ["topics", topic, "delayed", str(partition), str(offset)]


def check_partitions(broker: BrokerHttp, topic: str, positions: Sequence[Position]) -> None:
    """Raise for a partition that the topic does not have, before anything is changed."""
    count = int(broker.send("GET", ["topics", topic])["partitions"])
    for partition, _ in positions:
        if partition >= count:
            raise PartitionNotFound(f"topic {escape(topic)} has no partition {partition}; it has {count}, from 0 on")


def raise_failure(errors: Sequence[GoQueueError | None]) -> None:
    """Raise the first error other than that a message is not delayed any more."""
    for error in errors:
        if error is not None and not isinstance(error, DelayedNotFound):
            raise error


def cancel_each(
    broker: BrokerHttp, topic: str, positions: Sequence[Position], stop: Event
) -> Iterator[list[tuple[Position, GoQueueError | None]]]:
    """Cancel, and yield for each message the error or ``None``. Ends after a batch with an error other than "not
    found"."""

    def cancel(connection: BrokerHttp, position: Position) -> None:
        connection.send("DELETE", delayed_path(topic, *position))

    with ManyCalls(broker) as calls:
        for batch in _batches(positions, stop):
            answers = calls.call_each(cancel, batch)
            yield list(zip(batch, answers, strict=True))
            if any(error is not None and not isinstance(error, DelayedNotFound) for error in answers):
                return


def fetch_values(
    broker: BrokerHttp, topic: str, messages: Sequence[dict[str, Any]], stop: Event
) -> Iterator[list[dict[str, Any]]]:
    """Add values to listed messages, with a call for each of at most 64 KiB; larger ones are left without."""

    def with_value(connection: BrokerHttp, message: dict[str, Any]) -> dict[str, Any]:
        if not 0 < message.get("size_bytes", 0) <= _MOST_VALUE_BYTES:
            return message
        try:
            path = ["topics", topic, "delayed", str(message["offset"])]
            return {**message, **connection.send("GET", path, {"partition": message["partition"]})}
        except DelayedNotFound:
            # It became due since it was listed.
            return message

    with ManyCalls(broker) as calls:
        for batch in _batches(messages, stop):
            found: list[dict[str, Any]] = []
            for answer in calls.call_each(with_value, batch):
                if isinstance(answer, GoQueueError):
                    raise answer
                found.append(answer)
            yield found


def _batches(items: Sequence[Item], stop: Event) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), _BATCH_SIZE):
        if stop.is_set():
            return
        yield items[start : start + _BATCH_SIZE]
