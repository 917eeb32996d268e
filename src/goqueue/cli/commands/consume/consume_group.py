"""Consumes as a member of a group. A message is acked only after it has been printed and flushed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Event
from time import monotonic
from typing import Any

from goqueue.cli.terminal.progress import print_notice
from goqueue.client.consumer.reader import Record
from goqueue.client.sync import Client

_AT_ONCE = 500
_POLL_WAIT_S = 0.2
_MOST_UNACKED = 1_000


def consume_as_member(
    client: Client,
    group: str,
    topic: str,
    put: Callable[[Sequence[Record]], None],
    stop: Event,
    *,
    acks: bool,
    limit: int | None,
    wait_s: float | None,
    decode: Callable[[bytes], Any] | None,
) -> int:
    """Consume, and return how many messages were printed. Messages that were not acked are given back at the end.

    Ends after ``wait_s`` without a message; ``None`` is for never.
    """
    in_hand = _MOST_UNACKED if limit is None else max(1, min(limit, _MOST_UNACKED))
    count = 0
    with client.consumer(group, topic, deserializer=decode, max_in_flight=in_hand, auto_commit=False) as consumer:
        idle_since = monotonic()
        while not stop.is_set() and (limit is None or count < limit):
            most = _AT_ONCE if limit is None else min(_AT_ONCE, limit - count)
            messages = consumer.poll(most, timeout=_POLL_WAIT_S)
            if not messages:
                if wait_s is not None and monotonic() > idle_since + wait_s:
                    break
                continue
            put(messages)
            count += len(messages)
            if acks:
                if isinstance(messages[0], Record):
                    consumer.commit()
                else:
                    consumer.ack(messages).result()
            elif count >= in_hand and count != limit and not isinstance(messages[0], Record):
                print_notice(
                    f"ended after {count:,} messages: so many may be in hand without an ack; they are given back"
                )
                break
            idle_since = monotonic()
    return count
