"""Who a producer is to the broker, and where it is in its sequence, so that what is sent again is not stored again."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from goqueue.client.connection.directory import Directory
from goqueue.client.connection.response_cache import Answers
from goqueue.model.sequences import next_sequence
from goqueue.wire.internal_headers import ProducerStamp
from goqueue.wire.proto import goqueue_pb2 as pb


class Identity(NamedTuple):
    """A producer as the broker knows it."""

    producer_id: int
    epoch: int


class Sequence(Protocol):
    """Where a producer is in one partition."""

    begins_anew: bool
    """Whether it may go on under another id."""

    async def stamp(self, count: int) -> ProducerStamp:
        """For the next batch. Until that is ``stored`` its numbers are the same: what was refused leaves no gap."""

    def stored(self, stamp: ProducerStamp) -> None: ...

    def abandon(self) -> None:
        """It is not known what became of the batch that was stamped last, so its numbers must never be used again."""


class ProducerIds:
    """Ids of a producer without a name. One is asked for when it is first needed, and then used for all partitions."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._answers: Answers[str, Identity] = Answers(1)

    async def shared(self) -> Identity:
        return await self._answers.get("shared", self.fresh)

    async def fresh(self) -> Identity:
        """One that nobody has used."""
        return await init_producer(self._directory, pb.InitProducerRequest())

    async def close(self) -> None:
        await self._answers.close()


async def init_producer(directory: Directory, request: pb.InitProducerRequest) -> Identity:
    """Asked again if the answer was lost: an id that nobody uses does no harm, and under a name the last one counts."""
    found = await directory.any(lambda attempt: attempt.command(attempt.broker.transactions.InitProducer, request))
    return Identity(found.producer_id, found.epoch)


class PartitionSequence:
    """Of a producer without a name. A partition in which something went wrong goes on under an id of its own, so that
    the others are not disturbed."""

    begins_anew = True

    def __init__(self, ids: ProducerIds) -> None:
        self._ids = ids
        self._identity: Identity | None = None
        self._next = 0
        self._is_alone = False

    async def stamp(self, count: int) -> ProducerStamp:
        if self._identity is None:
            self._identity = await (self._ids.fresh() if self._is_alone else self._ids.shared())
            self._next = 0
        return ProducerStamp(*self._identity, self._next, count)

    def stored(self, stamp: ProducerStamp) -> None:
        self._next = next_sequence(stamp.first_sequence, stamp.message_count)

    def abandon(self) -> None:
        self._identity = None
        self._is_alone = True
