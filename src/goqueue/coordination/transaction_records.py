"""What a coordinator of transactions knows: named producers, records of transactions, used keys, and the events."""

from __future__ import annotations

import re

import msgspec

from goqueue.delivery.events import Parts
from goqueue.model.ids import QueueKey, TopicId

_TRANSACTION_ID = re.compile(r"(\d{1,19})-\d{1,5}-[0-9a-f]{16}", re.ASCII)


def producer_of(transaction_id: str) -> int | None:
    """The id of a transaction's producer; ``None`` if it is no id of a transaction."""
    found = _TRANSACTION_ID.fullmatch(transaction_id)
    return None if found is None else int(found[1])


class NamedProducer(msgspec.Struct, frozen=True, array_like=True):
    """A producer with a transactional id."""

    producer_id: int
    epoch: int
    timeout_ms: int
    used_ns: int
    instance: str = ""
    """Which of those that ask for the name has it."""


class Touched(msgspec.Struct, frozen=True, array_like=True):
    """Where a transaction has written, and from where to where."""

    topic_id: TopicId
    partition: int
    first: int
    end: int


class GroupAcks(msgspec.Struct, frozen=True, array_like=True):
    """Messages of a group's queue that are done when a transaction is committed."""

    group: str
    queue: QueueKey
    parts: Parts


class GroupOffset(msgspec.Struct, frozen=True, array_like=True):
    """Where a stream group goes on when a transaction is committed."""

    group: str
    queue: QueueKey
    offset: int
    since: int = 0
    """What was committed when this was asked for. Who has set the group back further since then has the last word."""
    member: str = ""
    """Who reads on from there, and must go back if the transaction is aborted."""


class TransactionRecord(msgspec.Struct, frozen=True):
    """All of a transaction that is needed to end it."""

    transaction_id: str
    producer_id: int
    epoch: int
    name: str
    started_ns: int
    deadline_ns: int
    touched: list[Touched] = []
    acks: list[GroupAcks] = []
    offsets: list[GroupOffset] = []
    messages: int = 0
    for_key: str = ""
    """The application key that it is to be committed under, if it was begun for one."""


class UsedKey(msgspec.Struct, frozen=True, array_like=True):
    """What was committed under an application key."""

    transactions: list[str]
    at_ns: int
    messages: int = 0
    number: int = -1
    """Of a key in a series."""

    @property
    def cost(self) -> int:
        """How many keys it counts for: many transactions take room."""
        return 1 + len(self.transactions) // 10


class CoordinatorEvent(msgspec.Struct, frozen=True):
    """Something that a coordinator of transactions has decided."""


class ProducerNamed(CoordinatorEvent, frozen=True, tag="producer_named"):
    """The process with this transactional id has this producer id and epoch from now on; others are fenced."""

    name: str
    producer: NamedProducer


class NamesForgotten(CoordinatorEvent, frozen=True, tag="names_forgotten"):
    """These were not used for long. All are of one part."""

    names: list[str]


class Prepared(CoordinatorEvent, frozen=True, tag="prepared"):
    """Everything that a transaction has written is durable; another process decides how it ends."""

    transaction: TransactionRecord


class Decided(CoordinatorEvent, frozen=True, tag="decided"):
    """A transaction is committed. What is left to do is done again after every start until it is ``Ended``."""

    transaction: TransactionRecord


class Aborted(CoordinatorEvent, frozen=True, tag="aborted"):
    """A prepared transaction is aborted."""

    transaction_id: str


class Ended(CoordinatorEvent, frozen=True, tag="ended"):
    """Everything that follows from the decision is durable."""

    transaction_ids: list[str]


class KeyUsed(CoordinatorEvent, frozen=True, tag="key_used"):
    """These were committed under a key, for good: this is the decision also for those that other shards coordinate."""

    key: str
    used: UsedKey


class KeysForgotten(CoordinatorEvent, frozen=True, tag="keys_forgotten"):
    """It is not remembered any more what was committed under these. All are of one part."""

    keys: list[str]


class Adopted(CoordinatorEvent, frozen=True, tag="adopted"):
    """This is what an earlier version's journal had of a part of the state."""

    part: str
    state: msgspec.Raw


TransactionsEvent = (
    ProducerNamed | NamesForgotten | Prepared | Decided | Aborted | Ended | KeyUsed | KeysForgotten | Adopted
)
