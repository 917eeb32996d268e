"""What a consumer can ask for after a delivery."""

from __future__ import annotations

from dataclasses import dataclass
from operator import lt
from typing import Literal

from goqueue.broker.coordinator.dead_letter_topics import MAX_REASON_LENGTH
from goqueue.delivery.in_flight_batch import SPAN, InFlightBatch
from goqueue.model.errors import InvalidRequest
from goqueue.model.fields import shown
from goqueue.model.runs import Runs
from goqueue.model.settings import MAX_VISIBILITY_MS

Verb = Literal["ack", "nack", "reject", "extend", "release", "freeze"]
_OF_THOSE_IN_FLIGHT = {"extend", "release", "freeze"}
"""What makes no sense for a message that waits for its next delivery."""


@dataclass(frozen=True, slots=True)
class LeaseClaim:
    """Messages of one lease, and the token that proves it."""

    group: str
    topic: str
    partition: int
    lease: int
    count: int
    token: bytes
    runs: Runs

    def check(self) -> None:
        """A claim names offsets of one lease, which lie close together, in ascending order."""
        runs = self.runs
        rises = all(map(lt, runs, runs[1:]))
        if not runs or len(runs) % 2 or not rises or runs[-1] - runs[0] > SPAN:
            raise InvalidRequest(
                f"the offsets of a lease are pairs of first and end, ascending, within {SPAN}; got {shown(runs)}"
            )


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be done with the messages claimed. ``delay_ms``: of a nack, or the new timeout of an extension."""

    verb: Verb
    delay_ms: int | None = None
    reason: str = ""
    holder: str = ""
    """Which transaction a message is frozen for."""

    def check(self) -> None:
        if self.delay_ms is not None and not 0 <= self.delay_ms <= MAX_VISIBILITY_MS:
            raise InvalidRequest(f"the time is {shown(self.delay_ms)} ms; 0 to {MAX_VISIBILITY_MS} are allowed")
        if len(self.reason) > MAX_REASON_LENGTH:
            raise InvalidRequest(f"the reason has {len(self.reason)} characters; {MAX_REASON_LENGTH} are allowed")

    def fits(self, batch: InFlightBatch) -> bool:
        """Whether it can be carried out on a message of this batch."""
        if batch.is_frozen:
            return False
        return batch.member is not None or self.verb not in _OF_THOSE_IN_FLIGHT
