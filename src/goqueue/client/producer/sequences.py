"""Producer ids and sequence numbers, by which the broker recognizes retried batches."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from goqueue.client.connection.directory import Directory
from goqueue.client.connection.response_cache import ResponseCache
from goqueue.model.producer_sequences import next_sequence
from goqueue.wire.internal_headers import ProducerStamp
from goqueue.wire.proto import goqueue_pb2 as pb


class ProducerIdentity(NamedTuple):
    """Producer id and epoch, as assigned by the broker."""

    producer_id: int
    epoch: int


class Sequence(Protocol):
    """Sequence numbers of a producer in one partition."""

    begins_anew: bool
    """Whether it may continue under another producer id."""

    async def stamp(self, count: int) -> ProducerStamp:
        """The stamp of the next batch. The numbers stay the same until ``stored``, so a refused batch leaves no gap."""

    def stored(self, stamp: ProducerStamp) -> None: ...

    def abandon(self) -> None:
        """The last stamped batch may or may not be stored, so its numbers must never be used again."""


class ProducerIds:
    """Ids of a producer without a transactional id. One is requested on first use and shared by all partitions."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._cache: ResponseCache[str, ProducerIdentity] = ResponseCache(1)

    async def shared(self) -> ProducerIdentity:
        return await self._cache.get("shared", self.fresh)

    async def fresh(self) -> ProducerIdentity:
        """A newly assigned id."""
        return await init_producer(self._directory, pb.InitProducerRequest())

    async def close(self) -> None:
        await self._cache.close()


async def init_producer(directory: Directory, request: pb.InitProducerRequest) -> ProducerIdentity:
    """Retried if the answer was lost: an unused id does no harm, and under a transactional id the last one counts."""
    found = await directory.command("transactions", "InitProducer", request)
    return ProducerIdentity(found.producer_id, found.epoch)


class PartitionSequence:
    """Sequence of a producer without a transactional id. After an uncertain batch a partition continues under an id of
    its own, so that the others are not affected."""

    begins_anew = True

    def __init__(self, ids: ProducerIds) -> None:
        self._ids = ids
        self._identity: ProducerIdentity | None = None
        self._next = 0
        self._has_own_id = False

    async def stamp(self, count: int) -> ProducerStamp:
        if self._identity is None:
            self._identity = await (self._ids.fresh() if self._has_own_id else self._ids.shared())
            self._next = 0
        return ProducerStamp(*self._identity, self._next, count)

    def stored(self, stamp: ProducerStamp) -> None:
        self._next = next_sequence(stamp.first_sequence, stamp.message_count)

    def abandon(self) -> None:
        self._identity = None
        self._has_own_id = True
