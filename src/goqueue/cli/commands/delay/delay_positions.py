"""Positions of delayed messages as commands take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from goqueue.model.errors import DelayedNotFound, GoQueueError, PartitionNotFound
from goqueue.observe.logs import escape

if TYPE_CHECKING:
    from goqueue.cli.connection.broker_http import BrokerHttp

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
