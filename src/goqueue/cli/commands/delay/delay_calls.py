"""Calls about many delayed messages, a piece at a time: between two pieces it can be stopped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import Event
from typing import Any, TypeVar

from goqueue.cli.commands.delay.delay_positions import Place, delayed_path
from goqueue.cli.connection.broker_http import BrokerHttp
from goqueue.cli.connection.many_calls import ManyCalls
from goqueue.model.errors import DelayedNotFound, GoQueueError

_PIECE = 200
_MOST_VALUE_BYTES = 64 << 10
Item = TypeVar("Item")


def cancelled(
    broker: BrokerHttp, topic: str, places: Sequence[Place], stop: Event
) -> Iterator[list[tuple[Place, GoQueueError | None]]]:
    """What came of each, ``None`` if it was taken back. Ends behind the piece in which something else went wrong."""

    def cancel(asked: BrokerHttp, place: Place) -> None:
        asked.send("DELETE", delayed_path(topic, *place))

    with ManyCalls(broker) as calls:
        for some in _pieces(places, stop):
            answers = calls.each(cancel, some)
            yield list(zip(some, answers, strict=True))
            if any(error is not None and not isinstance(error, DelayedNotFound) for error in answers):
                return


def with_values(
    broker: BrokerHttp, topic: str, messages: Sequence[dict[str, Any]], stop: Event
) -> Iterator[list[dict[str, Any]]]:
    """A list has no values: they are asked for, unless they are large."""

    def whole(asked: BrokerHttp, message: dict[str, Any]) -> dict[str, Any]:
        if not 0 < message.get("size_bytes", 0) <= _MOST_VALUE_BYTES:
            return message
        try:
            path = ["topics", topic, "delayed", str(message["offset"])]
            return {**message, **asked.send("GET", path, {"partition": message["partition"]})}
        except DelayedNotFound:
            # Its time has come since it was listed.
            return message

    with ManyCalls(broker) as calls:
        for some in _pieces(messages, stop):
            found: list[dict[str, Any]] = []
            for answer in calls.each(whole, some):
                if isinstance(answer, GoQueueError):
                    raise answer
                found.append(answer)
            yield found


def _pieces(items: Sequence[Item], stop: Event) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), _PIECE):
        if stop.is_set():
            return
        yield items[start : start + _PIECE]
