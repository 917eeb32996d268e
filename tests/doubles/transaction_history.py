"""What concurrent clients did with transactions, and what they were told: written down for a checker.

Moments are nanoseconds of one clock that all clients share. ``None`` for an end means that no answer came.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

Place = tuple[str, str]
"""A topic and a key: all values of a key lie in one partition, in the order of their offsets."""


class Outcome(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """The commit was asked for and never answered: it must be all or nothing."""


@dataclass(slots=True)
class Append:
    """A value, which nobody else writes, at the end of a place."""

    place: Place
    value: str
    began: int
    ended: int | None = None


@dataclass(slots=True)
class Read:
    """What a place held from the ``position``-th value on. ``to_end``: there was nothing more that could be read."""

    reader: str
    place: Place
    position: int
    values: tuple[str, ...]
    began: int
    ended: int
    to_end: bool = True


@dataclass(slots=True)
class Transaction:
    name: str
    producer: str
    """Its transactional id."""
    epoch: int
    began: int
    appends: list[Append] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    """Messages of a group that it acks."""
    outcome: Outcome = Outcome.ABORTED
    commit_began: int | None = None
    ended: int | None = None
    """When the answer to its commit or abort came."""

    @property
    def values(self) -> list[str]:
        return [append.value for append in self.appends]


@dataclass(frozen=True, slots=True)
class Takeover:
    """A transactional id was given a new epoch; known to its client from ``at`` on."""

    producer: str
    epoch: int
    at: int


@dataclass
class History:
    transactions: list[Transaction] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    """Those outside of transactions."""
    takeovers: list[Takeover] = field(default_factory=list)
    inputs: set[str] = field(default_factory=set)
    """Messages that were there for the group."""
    left: set[str] = field(default_factory=set)
    """Those that the group still gives out when all is over."""
    log: dict[Place, list[str]] = field(default_factory=lambda: defaultdict(list))
    """What can be read when all is over."""

    def all_reads(self) -> Iterable[Read]:
        yield from self.reads
        for transaction in self.transactions:
            yield from transaction.reads


class Notes:
    """Writes a history while it happens."""

    def __init__(self, now: Callable[[], int] = time.monotonic_ns) -> None:
        self.now = now
        self.history = History()
        self.outcomes: Counter[Outcome] = Counter()
        """Of those transactions whose client was told."""
        self._values = 0

    def begin(self, producer: str, epoch: int) -> Transaction:
        name = f"transaction {len(self.history.transactions)} of {producer}/{epoch}"
        transaction = Transaction(name, producer, epoch, self.now())
        self.history.transactions.append(transaction)
        return transaction

    def fresh_value(self) -> str:
        self._values += 1
        return f"v{self._values}"

    def append(self, transaction: Transaction, place: Place, value: str) -> Append:
        """Before it is sent; ``Append.ended`` is set when it was answered."""
        append = Append(place, value, self.now())
        transaction.appends.append(append)
        return append

    def commit(self, transaction: Transaction) -> None:
        """Before it is asked for. Until the answer comes nobody knows."""
        transaction.commit_began = self.now()
        transaction.outcome = Outcome.UNKNOWN

    def answered(self, transaction: Transaction, outcome: Outcome) -> None:
        transaction.outcome = outcome
        transaction.ended = self.now()
        self.outcomes[outcome] += 1

    def took_over(self, producer: str, epoch: int) -> None:
        self.history.takeovers.append(Takeover(producer, epoch, self.now()))


class View:
    """One reader's knowledge of one partition: how far it is, and how many values of each place it has seen."""

    def __init__(self, reader: str, places: Iterable[Place]) -> None:
        self.reader = reader
        self.next_offset = 0
        self._counts = dict.fromkeys(places, 0)

    def read(self, found: Iterable[tuple[Place, str]], began: int, ended: int, *, to_end: bool = True) -> list[Read]:
        """One read for each place of the partition, also for those where nothing new was."""
        fresh: dict[Place, list[str]] = {place: [] for place in self._counts}
        for place, value in found:
            fresh[place].append(value)
        reads = [
            Read(self.reader, place, self._counts[place], tuple(values), began, ended, to_end)
            for place, values in fresh.items()
        ]
        for place, values in fresh.items():
            self._counts[place] += len(values)
        return reads
