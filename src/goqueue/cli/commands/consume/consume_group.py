"""What a member of a group gets. A message is acked when it is printed and flushed, and not before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event
from time import monotonic
from typing import Any

from goqueue.cli.terminal.progress import remark
from goqueue.client.consumer.reader import Record
from goqueue.client.sync import Client

_AT_ONCE = 500
_LOOK_EVERY_S = 0.2
_MOST_UNACKED = 1_000


@dataclass(frozen=True, slots=True)
class Membership:
    """How to take part in a group."""

    client: Client
    group: str
    topic: str
    acks: bool
    limit: int | None
    wait_s: float | None
    """It ends when nothing has come for so long; ``None``: it does not."""
    decode: Callable[[bytes], Any] | None = None

    def run(self, put: Callable[[Sequence[Record]], None], stop: Event) -> int:
        """How many messages were printed. What is not acked is given back when it ends."""
        in_hand = _MOST_UNACKED if self.limit is None else max(1, min(self.limit, _MOST_UNACKED))
        count = 0
        with self.client.consumer(
            self.group, self.topic, deserializer=self.decode, max_in_flight=in_hand, auto_commit=False
        ) as consumer:
            idle_since = monotonic()
            while not stop.is_set() and (self.limit is None or count < self.limit):
                most = _AT_ONCE if self.limit is None else min(_AT_ONCE, self.limit - count)
                messages = consumer.poll(most, timeout=_LOOK_EVERY_S)
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
                    remark(
                        f"ended after {count:,} messages: so many may be in hand without an ack; they are given back"
                    )
                    break
                idle_since = monotonic()
        return count
