"""Requests of consumers about messages that were delivered to them: ack, nack, reject, extend, release, freeze."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from operator import lt

from goqueue.delivery.dead_letters import MAX_REASON_LENGTH
from goqueue.delivery.in_flight_batch import SPAN
from goqueue.model.errors import InvalidRequest
from goqueue.model.fields import shown
from goqueue.model.runs import Runs
from goqueue.model.topic_settings import MAX_VISIBILITY_MS


class Verb(StrEnum):
    """What is to be done with a delivered message."""

    ACK = "ack"
    NACK = "nack"
    REJECT = "reject"
    EXTEND = "extend"
    RELEASE = "release"
    FREEZE = "freeze"
    """Ack it when a transaction is committed."""


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
class SettlementRequest:
    """What is to be done with the messages claimed."""

    verb: Verb
    delay_ms: int | None = None
    """Of a nack: the time until the retry. Of an extension: the new visibility timeout."""
    reason: str = ""
    holder: str = ""
    """Which transaction a message is frozen for."""

    def __post_init__(self) -> None:
        if self.delay_ms is not None and not 0 <= self.delay_ms <= MAX_VISIBILITY_MS:
            raise InvalidRequest(f"the time is {shown(self.delay_ms)} ms; 0 to {MAX_VISIBILITY_MS} are allowed")
        if len(self.reason) > MAX_REASON_LENGTH:
            raise InvalidRequest(f"the reason has {len(self.reason)} characters; {MAX_REASON_LENGTH} are allowed")
