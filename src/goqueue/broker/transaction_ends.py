"""Carrying out how a transaction ended: a marker in every partition that it wrote to, and its groups' acks.

Who reads up to what is stable sees the records of a transaction when its marker is appended, which is after the
decision is durable. Markers need not be: as long as the journal does not say that a transaction has ``Ended``, they are
written again after a start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from goqueue.broker.delays import Delays
from goqueue.broker.groups import GroupService
from goqueue.broker.journal import Journal
from goqueue.broker.notes import Notes
from goqueue.broker.open_transaction import OpenTransaction, Touch
from goqueue.broker.partition import Partition
from goqueue.broker.topic import Topic
from goqueue.coordination.transactions import Ended, Transactions
from goqueue.model.errors import GoQueueError, StorageFailed
from goqueue.model.logging import get_logger
from goqueue.model.ports import Clock
from goqueue.storage.commit import CommitScheduler
from goqueue.storage.log import Log
from goqueue.wire.batch import join_frames
from goqueue.wire.stamped import Marker, marker_frame

log = get_logger(__name__)

_TRY_AGAIN_S = 1.0
_GATHERING_S = 0.02
"""How long transactions are gathered before their end is noted for all of them at once."""
_PARTITIONS_AT_A_STRETCH = 50


@dataclass(slots=True)
class _Finishing:
    """A transaction whose end is carried out and not yet durable."""

    transaction_id: str
    logs: list[tuple[Log, int]] = field(default_factory=list)
    groups: set[str] = field(default_factory=set)


class TransactionEnds:
    def __init__(
        self,
        journal: Journal[Transactions],
        groups: GroupService,
        delays: Delays,
        commits: CommitScheduler,
        clock: Clock,
        notes: Notes,
    ) -> None:
        self._journal = journal
        self._groups = groups
        self._delays = delays
        self._commits = commits
        self._clock = clock
        self._notes = notes
        self._finished: list[_Finishing] = []
        self._finisher: asyncio.Task[None] | None = None
        self._late: set[asyncio.Task[None]] = set()
        self.held_up: dict[str, str] = {}
        """Transactions that could not be ended everywhere, and why."""

    async def carry_out(self, transaction: OpenTransaction, *, is_commit: bool) -> None:
        """Returns when readers see it. Where that fails it is tried again, for as long as it takes."""
        finishing = _Finishing(transaction.transaction_id)
        left = await self._mark(list(transaction.touched.values()), transaction, finishing, is_commit=is_commit)
        if is_commit:
            finishing.groups = self._groups.settling.settle_for(transaction.acks, list(transaction.offsets.values()))
        else:
            self._groups.settling.thaw(transaction.acks)
            self._groups.read_again(list(transaction.offsets.values()))
        if left:
            task = asyncio.create_task(self._try_again(left, transaction, finishing, is_commit=is_commit))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
        elif is_commit:
            self._finish(finishing)

    async def _mark(
        self, touches: Sequence[Touch], transaction: OpenTransaction, finishing: _Finishing, *, is_commit: bool
    ) -> list[Touch]:
        """Write markers; return where that has failed."""
        left: list[Touch] = []
        marker = Marker(transaction.producer_id, transaction.epoch, is_commit)
        for number, touch in enumerate(touches):
            if number % _PARTITIONS_AT_A_STRETCH == _PARTITIONS_AT_A_STRETCH - 1:
                await asyncio.sleep(0)
            try:
                if not touch.topic.closed:
                    end = self.mark(touch.partition, marker)
                    finishing.logs.append((touch.partition.log, end))
            except StorageFailed as error:
                # Until a restart nothing is written there; then it is done.
                self.held_up[transaction.transaction_id] = str(error)
            except GoQueueError as error:
                self.held_up[transaction.transaction_id] = str(error)
                left.append(touch)
        return left

    def mark(self, partition: Partition, marker: Marker) -> int:
        """End a producer's transaction in one partition; return the offset behind the marker."""
        now_ns = self._clock.now_ns()
        first = partition.append(join_frames([marker_frame(marker, now_ns)], now_ns))
        records = partition.producers.ended(marker)
        self._delays.transaction_ended(partition, marker.producer_id, is_commit=marker.is_commit)
        if records is not None:
            self._notes.transaction_ended(partition, records, is_commit=marker.is_commit)
        partition.wake()
        return first + 1

    async def _try_again(
        self, left: Sequence[Touch], transaction: OpenTransaction, finishing: _Finishing, *, is_commit: bool
    ) -> None:
        log.error(
            "a transaction cannot be ended everywhere for now; readers wait there",
            transaction=transaction.transaction_id,
            reason=self.held_up.get(transaction.transaction_id, ""),
            partitions=[each.partition.place for each in left][:20],
        )
        while left:
            await asyncio.sleep(_TRY_AGAIN_S)
            left = await self._mark(left, transaction, finishing, is_commit=is_commit)
        self.held_up.pop(transaction.transaction_id, None)
        if is_commit:
            self._finish(finishing)

    # Noting the end

    def _finish(self, finishing: _Finishing) -> None:
        if finishing.transaction_id in self.held_up:
            # A partition takes no more writes: the next start has to know of it.
            return
        self._finished.append(finishing)
        if self._finisher is None:
            self._finisher = asyncio.create_task(self._note_ends())

    async def _note_ends(self) -> None:
        try:
            while self._finished:
                await asyncio.sleep(_GATHERING_S)
                await self._note(self._taken())
        finally:
            self._finisher = None

    def _taken(self) -> list[_Finishing]:
        taken, self._finished = self._finished, []
        return taken

    async def _note(self, finished: Sequence[_Finishing]) -> None:
        ends: dict[Log, int] = {}
        for each in finished:
            for written, end in each.logs:
                ends[written] = max(ends.get(written, 0), end)
        waits = {written: self._commits.durable(written, end) for written, end in ends.items()}
        outcomes = await asyncio.gather(*waits.values(), return_exceptions=True)
        failed = {written for written, outcome in zip(waits, outcomes, strict=True) if outcome is not None}
        try:
            for name in {name for each in finished for name in each.groups}:
                await self._groups.shards.journal(name).settled()
            # A topic that was deleted meanwhile has no log any more, and nothing to write again.
            safe = [
                each.transaction_id
                for each in finished
                if not any(written in failed and written.folder.exists() for written, _ in each.logs)
            ]
            if safe:
                self._journal.propose([Ended(safe)])
        except GoQueueError as error:
            # The next start does it all again.
            log.error("the end of transactions cannot be noted", error=str(error))

    async def stop(self) -> None:
        """Note what can be noted."""
        for task in list(self._late):
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)
        if self._finisher is not None:
            self._finisher.cancel()
            await asyncio.gather(self._finisher, return_exceptions=True)
        if self._finished:
            await self._note(self._taken())

    # After a start

    def abort_unknown(self, topics: Iterable[Topic], kept: set[int]) -> int:
        """Abort whatever is open in a partition, but for what these producers have; return how many there were."""
        found: set[int] = set()
        for topic in topics:
            for partition in topic.partitions:
                known = partition.producers.state.known
                for producer_id in [each for each, producer in known.items() if producer.open is not None]:
                    if producer_id not in kept:
                        found.add(producer_id)
                        self._abort_here(topic, partition, Marker(producer_id, known[producer_id].epoch, False))
        return len(found)

    def _abort_here(self, topic: Topic, partition: Partition, marker: Marker) -> None:
        try:
            self.mark(partition, marker)
        except GoQueueError as error:
            log.error("an open transaction cannot be aborted", topic=topic.name, error=str(error))
            self.held_up[f"{marker.producer_id}-{marker.epoch}"] = str(error)
