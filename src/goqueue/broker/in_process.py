"""The in-process face of a broker: its operations as methods, for applications that embed one."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.broker.operations import (
    IN_PROCESS,
    Bounds,
    FramesRead,
    Loss,
    MessagesRead,
    Operations,
    PurgedPartition,
    Topic,
)
from goqueue.broker.publishing.appending import Appended
from goqueue.broker.publishing.schema_rejects import ALL_FIT, Refused
from goqueue.broker.transactions.open_transactions import OpenTransaction
from goqueue.model.publishing import NewMessage, Outcome
from goqueue.wire.batch import FrameRun


class InProcessFace:
    """Thin: each method is one operation, asked for by the process itself. ``operations`` has all the others."""

    operations: Operations

    # Topics

    async def create_topic(self, name: str, raw_settings: dict[str, object] | None = None) -> Topic:
        """Make a topic; it is durable when this returns."""
        return await self.operations.topics.create(IN_PROCESS, name, raw_settings or {})

    async def change_topic(self, name: str, raw_settings: dict[str, object], unset: Sequence[str] = ()) -> Topic:
        """Change a topic's settings while it is in use; those in ``unset`` follow the broker's defaults again."""
        return await self.operations.topics.change(IN_PROCESS, name, raw_settings, unset)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and its messages. If this is interrupted after it was decided, the next start finishes it."""
        await self.operations.topics.delete(IN_PROCESS, name)

    async def purge_topic(
        self, name: str, partition: int | None = None, before_ns: int | None = None
    ) -> list[PurgedPartition]:
        """Remove the messages that are there now, or those before an instant; they are gone for good afterwards."""
        return await self.operations.topics.purge(IN_PROCESS, name, partition, before_ns)

    def losses(self, name: str | None = None, partition: int | None = None) -> list[Loss]:
        """What was found to be lost, acknowledged or not; of one topic or partition, or of all."""
        return self.operations.maintenance.losses(IN_PROCESS, name, partition)

    async def acknowledge_losses(self, name: str, partition: int | None = None) -> list[Loss]:
        """Accept what a topic or one of its partitions has lost: readers step over it, and it is no damage any more."""
        return await self.operations.maintenance.acknowledge_losses(IN_PROCESS, name, partition)

    # Messages

    async def publish(
        self,
        name: str,
        messages: Sequence[NewMessage],
        transaction: OpenTransaction | None = None,
        sequence: int | None = None,
    ) -> list[Outcome]:
        """Store messages; one outcome for each, in order. In a transaction readers see them once it is committed."""
        return await self.operations.publishing.publish(IN_PROCESS, name, messages, transaction, sequence)

    async def publish_frames(self, name: str, partition: int, run: FrameRun) -> int:
        """Store a batch that a client has encoded, whole or not at all; return its first offset."""
        return await self.operations.publishing.publish_frames(IN_PROCESS, name, partition, run)

    async def refused_frames(self, name: str, run: FrameRun, *, in_transaction: bool = False) -> Refused:
        """What of a batch does not fit its topic's schema; raises unless the topic makes that dead letters."""
        return await self.operations.publishing.validate_frames(IN_PROCESS, name, run, in_transaction=in_transaction)

    def append_frames(
        self,
        name: str,
        partition: int,
        run: FrameRun,
        refused: Refused = ALL_FIT,
        transaction: OpenTransaction | None = None,
    ) -> Appended:
        """Like ``publish_frames`` without waiting: where the batch is, and a future for the acknowledgement.

        ``refused`` is what ``refused_frames`` found in the batch just before.
        """
        return self.operations.publishing.append_validated(IN_PROCESS, name, partition, run, refused, transaction)

    async def read(
        self, name: str, number: int, bounds: Bounds, *, offset: int | None = None, from_time_ns: int | None = None
    ) -> MessagesRead:
        """Decoded messages of a partition, from an offset or an instant on."""
        return await self.operations.reading.read(
            IN_PROCESS, name, number, bounds, offset=offset, from_time_ns=from_time_ns
        )

    async def read_frames(
        self, name: str, number: int, bounds: Bounds, *, offset: int | None = None, from_time_ns: int | None = None
    ) -> FramesRead:
        """Frames of a partition as they lie in its log, in one batch."""
        return await self.operations.reading.read_frames(
            IN_PROCESS, name, number, bounds, offset=offset, from_time_ns=from_time_ns
        )

    # The broker itself

    def problems(self) -> dict[str, str]:
        """What keeps the broker from doing all of its work, by part."""
        return self.operations.system.problems(IN_PROCESS)

    def damage(self) -> list[str]:
        """What was found to be damaged or gone, a line for each partition."""
        return self.operations.system.damage(IN_PROCESS)
