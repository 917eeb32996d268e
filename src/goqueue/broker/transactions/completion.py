"""Carrying out how a transaction ended: a marker in every partition that it wrote to, and its groups' acks.

Who reads up to what is stable sees the records of a transaction when its marker is appended, which is after the
decision is durable. Markers need not be: as long as the journal does not say that a transaction has ``Ended``, they are
written again when the shard is led again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from goqueue.broker.groups.group_service import GroupService
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.runtime.file_freeze import FileFreeze
from goqueue.broker.runtime.journal import Journal
from goqueue.broker.transactions.coordinator_journal import CoordinatorJournal
from goqueue.broker.transactions.open_transactions import AbortCause, OpenTransaction, Touch
from goqueue.coordination.transaction_records import Ended, GroupAcks, GroupOffset
from goqueue.model.errors import GoQueueError, Overloaded, StorageFailed
from goqueue.model.ids import QueueKey
from goqueue.model.logging import get_logger
from goqueue.model.runs import below, pairs
from goqueue.wire.producer_frames import Marker

log = get_logger(__name__)

_TRY_AGAIN_S = 1.0
_GATHERING_S = 0.1
"""How long transactions are gathered before their end is noted for all of them at once."""
_PARTITIONS_AT_A_STRETCH = 50


class _Written(NamedTuple):
    """Where a marker is, the offset behind it or beyond, and how often the partition had been cut by then."""

    touch: Touch
    end: int
    truncations: int

    @property
    def is_cut_off(self) -> bool:
        return self.touch.partition.log.kept_since(self.truncations) < self.end


@dataclass(slots=True, eq=False)
class _Ending:
    """How a transaction ends, and what is left to do for that."""

    name: str
    marker: Marker
    touches: list[Touch]
    """Where the marker has yet to be written."""
    holder: str = ""
    acks: list[GroupAcks] = field(default_factory=list)
    offsets: list[GroupOffset] = field(default_factory=list)
    written: list[_Written] = field(default_factory=list)
    queues: set[QueueKey] = field(default_factory=set)
    """Queues in which its acks and offsets count, which may have yet to become durable."""
    reason: str = ""
    """Why it was aborted, if it was."""
    backs_off: bool = False
    """Whether what was acked in it comes again after a pause."""
    is_stuck: bool = False
    """Whether something takes no more writes: the next start has to know of it."""

    @property
    def is_left(self) -> bool:
        return bool(self.touches or self.acks or self.offsets)


class TransactionCompletion:
    def __init__(self, own: CoordinatorJournal, groups: GroupService, stillness: FileFreeze) -> None:
        self._own = own
        self._groups = groups
        self._stillness = stillness
        self._finished: list[_Ending] = []
        self._finisher: asyncio.Task[None] | None = None
        self._late: set[asyncio.Task[None]] = set()
        self._unended: set[_Ending] = set()
        self.held_up: dict[str, str] = {}
        """Transactions that could not be ended everywhere, and why."""

    async def carry_out(
        self,
        transaction: OpenTransaction,
        *,
        is_commit: bool,
        marked: Sequence[Touch] = (),
        reason: str = "",
        backs_off: bool = False,
    ) -> None:
        """Returns when readers see it. Where that fails it is tried again, for as long as it takes.

        ``marked`` is where the marker was found after a start; it may not be durable. ``reason`` and ``backs_off`` are
        about what was acked in a transaction that is aborted.
        """
        ending = _Ending(
            transaction.transaction_id,
            Marker(transaction.producer_id, transaction.epoch, is_commit),
            list(transaction.touched.values()),
            transaction.holder,
            list(transaction.acks),
            list(transaction.offsets.values()),
            [_written(touch, touch.partition.log.end_offset) for touch in marked],
            reason=reason,
            backs_off=backs_off,
        )
        await self._go_on(ending)
        if ending.is_left:
            self._keep_trying(ending)
        elif is_commit:
            self._finish(ending)

    async def _go_on(self, ending: _Ending) -> None:
        touches, ending.touches = ending.touches, []
        for number, touch in enumerate(touches):
            if number % _PARTITIONS_AT_A_STRETCH == _PARTITIONS_AT_A_STRETCH - 1:
                await asyncio.sleep(0)
            try:
                if touch.needs_file and not touch.topic.closed:
                    await self._save(touch)
                if not touch.topic.closed:
                    ending.written.append(_written(touch, touch.partition.append_marker(ending.marker, ending.reason)))
            except GoQueueError as error:
                # Where the disk has failed nothing is written until a restart; then it is done.
                if not self._is_for_good(ending, error):
                    ending.touches.append(touch)
        for group in sorted({each.group for each in ending.acks} | {each.group for each in ending.offsets}):
            self._tell(group, ending)

    def _tell(self, group: str, ending: _Ending) -> None:
        """What becomes of the acks and offsets that are part of a transaction. Doing it again changes nothing."""
        acks = [each for each in ending.acks if each.group == group]
        offsets = [each for each in ending.offsets if each.group == group]
        try:
            if ending.marker.is_commit:
                self._groups.transactional_acks.commit(group, acks, offsets)
                ending.queues |= {each.queue for each in acks} | {each.queue for each in offsets}
            else:
                self._groups.transactional_acks.thaw(acks, ending.holder, ending.reason, backs_off=ending.backs_off)
                self._groups.offsets.read_again(offsets)
        except GoQueueError as error:
            if not self._is_for_good(ending, error):
                return
        self._groups.stream_commits.expect_no_more(offsets, ending.holder)
        ending.acks = [each for each in ending.acks if each.group != group]
        ending.offsets = [each for each in ending.offsets if each.group != group]

    def _is_for_good(self, ending: _Ending, error: GoQueueError) -> bool:
        """Note that something could not be done; whether it cannot before a restart."""
        self.held_up[ending.name] = str(error)
        is_for_good = isinstance(error, StorageFailed)
        ending.is_stuck |= is_for_good
        return is_for_good

    # Trying again

    def _keep_trying(self, ending: _Ending) -> None:
        self._unended.add(ending)
        self._spawn(self._try_again(ending))

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _try_again(self, ending: _Ending) -> None:
        log.error(
            "a transaction cannot be ended everywhere for now; readers wait there",
            transaction=ending.name,
            reason=self.held_up.get(ending.name, ""),
            partitions=[each.partition.place for each in ending.touches][:20],
        )
        while ending.is_left:
            await asyncio.sleep(_TRY_AGAIN_S)
            await self._go_on(ending)
        self._unended.discard(ending)
        if not ending.is_stuck:
            self.held_up.pop(ending.name, None)
        if ending.marker.is_commit:
            self._finish(ending)

    # Noting the end

    def _finish(self, ending: _Ending) -> None:
        if ending.is_stuck:
            return
        self._finished.append(ending)
        if self._finisher is None:
            self._finisher = asyncio.create_task(self._note_ends())

    async def _note_ends(self) -> None:
        try:
            while self._finished:
                await asyncio.sleep(_GATHERING_S)
                await self._note(self._taken())
        finally:
            self._finisher = None

    def _taken(self) -> list[_Ending]:
        taken, self._finished = self._finished, []
        return taken

    async def _made_durable(self, endings: Sequence[_Ending]) -> set[Partition]:
        """Wait for markers; return the partitions that cannot keep theirs."""
        ends: dict[Partition, int] = {}
        for each in endings:
            for touch, end, _ in each.written:
                ends[touch.partition] = max(ends.get(touch.partition, 0), end)
        waits = {written: written.durable(end) for written, end in ends.items()}
        outcomes = await asyncio.gather(*waits.values(), return_exceptions=True)
        failed = {written for written, outcome in zip(waits, outcomes, strict=True) if outcome is not None}
        # What is durable there now may be something else.
        return failed | {each.touch.partition for ending in endings for each in ending.written if each.is_cut_off}

    async def _note(self, finished: Sequence[_Ending]) -> None:
        failed = await self._made_durable(finished)
        try:
            shards = self._groups.shards.map
            await Journal.all_settled(shards.journals_of_queues({key for each in finished for key in each.queues}))
            # A topic that was deleted meanwhile has no log any more, and nothing to write again.
            safe = [
                each.name
                for each in finished
                if not any(touch.partition in failed and not touch.topic.closed for touch, _, _ in each.written)
            ]
            if safe:
                self._own.propose([Ended(safe)])
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

    # When the shard is taken up

    def cut_off(self, touch: Touch, producer_id: int) -> None:
        """Abort what lies behind a transaction that was committed and has no marker here.

        It is of its producer's next transaction. The marker lay between them: of what was not durable a crash may take
        anything and leave what came later. The log alone does not tell the two apart any more, so the file of producers
        has to, before the marker is written again.
        """
        producers = touch.partition.producers
        records = producers.state.open_of(producer_id)
        if records is None or records.end <= touch.end:
            return
        log.warning("records of a transaction that was open are cut off", partition=touch.partition.place)
        for first, end in pairs(records.seen):
            producers.state.aborted.add(max(first, touch.end), end)
        for first, end in pairs(records.delayed):
            producers.state.aborted_delayed.add(max(first, touch.end), end)
        records.seen, records.delayed = below(records.seen, touch.end), below(records.delayed, touch.end)
        records.end = touch.end
        producers.changes += 1
        touch.partition.delays.recover(producers.log.open_files.disk, None)
        touch.needs_file = True

    async def _save(self, touch: Touch) -> None:
        async with self._stillness.changing():
            is_saved = await touch.partition.derived.save_producers(touch.topic.dedup.of(touch.number))
        if not is_saved:
            raise Overloaded("the file of producers cannot be written", retry_after_s=1)
        touch.needs_file = False

    @property
    def unended(self) -> set[tuple[Partition, int]]:
        """Where the marker of a producer's transaction has yet to be written."""
        return {(touch.partition, each.marker.producer_id) for each in self._unended for touch in each.touches}

    @property
    def holders(self) -> set[str]:
        """Those who hold messages for transactions that could not be ended for now."""
        return {each.holder for each in self._unended}

    def abort_here(self, touch: Touch, producer_id: int, epoch: int) -> None:
        """Abort what a producer has open in a partition, which is of no transaction that is known."""
        marker = Marker(producer_id, epoch, False)
        try:
            touch.partition.append_marker(marker, AbortCause.RESTARTED)
        except GoQueueError as error:
            ending = _Ending(f"{producer_id}-{epoch}", marker, [touch], reason=AbortCause.RESTARTED)
            if not self._is_for_good(ending, error):
                self._keep_trying(ending)


def _written(touch: Touch, end: int) -> _Written:
    return _Written(touch, end, touch.partition.log.truncations)
