"""Sends chunks of messages, rate-limited on request, and counts what is stored."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from threading import Event

from goqueue.cli.commands.produce.produce_rows import Chunk
from goqueue.cli.connection.wait_notice import OutageNotices
from goqueue.cli.terminal.progress import Bar
from goqueue.client.messages.outgoing_message import Sent
from goqueue.client.sync_producer import Producer
from goqueue.model.errors import (
    BrokerUnavailable,
    DeliveryTimeout,
    GoQueueError,
    InvalidMessage,
    InvalidRequest,
    NotAllStored,
    PartitionNotFound,
)

_PARTS_A_SECOND = 50
_AT_ONCE = 20_000
"""The most messages per call. The positions returned are objects, which take more memory than short lines."""
_WHEN_INTERRUPTED = "it ends with what is under way, and says what is not known to be stored"
_partition = attrgetter("partition")
_due = attrgetter("deliver_at_ns")
_is_duplicate = attrgetter("is_duplicate")
_STORED_OR_UNKNOWN = (Sent, DeliveryTimeout, BrokerUnavailable)
"""Outcomes of a message that is stored, or may be because its response was lost."""


@dataclass(slots=True)
class Tally:
    """Counts of what became of the messages."""

    stored: int = 0
    delayed: int = 0
    duplicates: int = 0
    bad: int = 0
    by_partition: Counter[int] = field(default_factory=Counter)
    has_begun: bool = False
    seconds: float = 0.0
    stopped_before: str | None = None
    """The next line, if it ended before everything was sent."""
    may_be_stored_after: bool = False
    """Whether messages from there on may be stored nevertheless, because they were sent together."""

    @property
    def in_topic(self) -> int:
        """Messages that the topic has: stored now, or duplicates of earlier ones."""
        return self.stored + self.duplicates

    def add(self, sent: Sequence[Sent]) -> None:
        """Count messages sent. One that the broker already had, by its dedup id, counts as a duplicate only."""
        duplicates = sum(map(_is_duplicate, sent))
        if duplicates:
            self.duplicates += duplicates
            sent = [each for each in sent if not each.is_duplicate]
        self.stored += len(sent)
        self.by_partition.update(map(_partition, sent))
        self.delayed += sum(due is not None for due in map(_due, sent))


class Pace:
    """Rate limit with evenly spaced messages."""

    def __init__(self, rate: int | None) -> None:
        self._rate = rate
        self.at_once = _AT_ONCE if rate is None else max(1, rate // _PARTS_A_SECOND)
        self._due_at = time.monotonic()

    def wait(self, count: int, stop: Event) -> None:
        """Wait until ``count`` messages are due, or until ``stop``. A backlog of more than a second is not caught
        up."""
        if self._rate is None:
            return
        now = time.monotonic()
        if self._due_at > now:
            stop.wait(self._due_at - now)
        self._due_at = max(self._due_at, now - 1) + count / self._rate


@dataclass(frozen=True, slots=True)
class Sender:
    """Sends chunks."""

    topic: str
    producer: Producer
    pace: Pace
    waiting: OutageNotices
    skip_bad: bool
    bar: Bar
    counts_bytes: bool
    """Whether the progress bar counts input bytes instead of messages."""
    on_stored: Callable[[Sequence[Sent]], None]
    on_bad: Callable[[str], None]

    def run(self, chunks: Iterator[Chunk], tally: Tally, stop: Event) -> None:
        """Send all chunks. Raises the error that ends it early: the first bad line, or a broker that cannot store.
        ``tally`` is valid in any case."""
        began, tally.has_begun = time.monotonic(), True
        try:
            for chunk in chunks:
                for part in chunk.parts(self.pace.at_once):
                    self.pace.wait(len(part.messages), stop)
                    if stop.is_set():
                        if part.lines:
                            tally.stopped_before = part.where(part.lines[0])
                        return
                    self._send(part, tally)
        finally:
            tally.seconds = time.monotonic() - began

    def _send(self, part: Chunk, tally: Tally) -> None:
        outcomes = self._outcomes(part, tally) if part.messages else []
        if None is not (failed := next((each for each in outcomes if isinstance(each, Exception)), None)):
            stored = [each for each in outcomes if isinstance(each, Sent)]
        else:
            stored = outcomes  # type: ignore[assignment]
        tally.add(stored)
        self.on_stored(stored)
        self.bar.advance(part.size_bytes if self.counts_bytes else len(stored))
        if failed is not None:
            self._handle_failures(part, outcomes, tally)
        for line, reason in part.bad:
            self._reject(part, line, reason, tally)

    def _outcomes(self, part: Chunk, tally: Tally) -> Sequence[Sent | Exception]:
        try:
            with self.waiting.while_calling(_WHEN_INTERRUPTED):
                return self.producer.send_many(self.topic, part.messages)
        except NotAllStored as error:
            return error.outcomes  # type: ignore[return-value]
        except GoQueueError as error:
            # All messages failed for the same reason.
            return [error] * len(part.messages)
        except KeyboardInterrupt:
            tally.stopped_before, tally.may_be_stored_after = part.where(part.lines[0]), True
            raise

    def _handle_failures(self, part: Chunk, outcomes: Sequence[Sent | Exception], tally: Tally) -> None:
        """Handle messages that were not stored: invalid ones are skipped or raised, other errors are raised."""
        for index, (line, outcome) in enumerate(zip(part.lines, outcomes, strict=True)):
            if isinstance(outcome, Sent):
                continue
            bad = outcome if isinstance(outcome, InvalidRequest | PartitionNotFound) else None
            if bad is None or not self.skip_bad:
                tally.may_be_stored_after = any(isinstance(each, _STORED_OR_UNKNOWN) for each in outcomes[index:])
            if bad is not None:
                self._reject(part, line, str(bad), tally, bad.code)
            else:
                tally.stopped_before = part.where(line)
                raise outcome

    def _reject(self, part: Chunk, line: int, reason: str, tally: Tally, code: str = InvalidMessage.code) -> None:
        problem = part.problem(line, reason)
        # The line number is known here, the error code by the broker.
        problem.code = code  # type: ignore[misc]
        if not self.skip_bad:
            tally.stopped_before = part.where(line)
            raise problem
        tally.bad += 1
        self.on_bad(str(problem))
