"""Consumes as a member of a group. A message is acked only after it has been printed and flushed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event
from time import monotonic
from typing import Any

from goqueue.cli.terminal.progress import print_notice
from goqueue.client.consumer.reader import Record
from goqueue.client.sync import Client

_AT_ONCE = 500
_POLL_WAIT_S = 0.2
_MOST_UNACKED = 1_000


@dataclass(frozen=True, slots=True)
class Membership:
    """Options of consuming as a group member."""

    client: Client
    group: str
    topic: str
    acks: bool
    limit: int | None
    wait_s: float | None
    """Ends after this long without a message; ``None`` for never."""
    decode: Callable[[bytes], Any] | None = None

    def run(self, put: Callable[[Sequence[Record]], None], stop: Event) -> int:
        """Consume, and return how many messages were printed. Messages that were not acked are given back at the
        end."""
        in_hand = _MOST_UNACKED if self.limit is None else max(1, min(self.limit, _MOST_UNACKED))
        count = 0
        with self.client.consumer(
            self.group, self.topic, deserializer=self.decode, max_in_flight=in_hand, auto_commit=False
        ) as consumer:
            idle_since = monotonic()
            while not stop.is_set() and (self.limit is None or count < self.limit):
                most = _AT_ONCE if self.limit is None else min(_AT_ONCE, self.limit - count)
                messages = consumer.poll(most, timeout=_POLL_WAIT_S)
                if not messages:
                    if self.wait_s is not None and monotonic() > idle_since + self.wait_s:
                        break
                    continue
                put(messages)
                count += len(messages)
                if self.acks:
                    if isinstance(messages[0], Record):
                        consumer.commit()
                    else:
                        consumer.ack(messages).result()
                elif count >= in_hand and count != self.limit and not isinstance(messages[0], Record):
                    print_notice(
                        f"ended after {count:,} messages: so many may be in hand without an ack; they are given back"
                    )
                    break
                idle_since = monotonic()
        return count
