"""Messages on their way to another topic: dead letters, and dead letters that go back.

What is to be moved is in the journal before it is copied, with how far its target is durable; it is done when the copy
is durable. Whatever interrupts this, the target is searched from there on for copies that were made, so that nothing is
lost and nothing is copied twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from goqueue.broker.dead_letters.moved_messages import REDRIVE, copy_of, mark_of, trace_of
from goqueue.broker.events.event_recorder import common_reason
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.read import UNBOUNDED, Bounds, read_messages
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.queues.tally import Tally
from goqueue.broker.runtime.journal import Journal
from goqueue.broker.shards.dead_letter_topics import CreateTopic, can_be_a_topic, dead_letter_topic, find_or_make
from goqueue.broker.shards.host import Host
from goqueue.broker.shards.shard import Shard, place_of
from goqueue.broker.shards.shard_directory import Shards
from goqueue.broker.shards.shard_work import HeldUp
from goqueue.delivery.dead_letters import decide_moved
from goqueue.delivery.events import Target
from goqueue.delivery.queue import Queue
from goqueue.model.errors import GoQueueError, TopicNotFound
from goqueue.model.ids import TopicId
from goqueue.model.logging import get_logger
from goqueue.model.message import Message
from goqueue.model.runs import to_runs
from goqueue.storage.files import disk_errors
from goqueue.wire import internal_headers as system
from goqueue.wire.batch import MAX_BATCH_BYTES, join_frames
from goqueue.wire.decoding import decode_run

log = get_logger(__name__)

_AT_ONCE = 500
_MOST_NAMED = 5
_PAUSES_S = (0.1, 0.5, 1, 5, 30)


@dataclass(frozen=True, slots=True)
class _Since:
    """Where a copy that may have been made would lie: in this topic, at this offset or later."""

    topic_id: TopicId
    offset: int


@dataclass(slots=True)
class _Progress:
    """What is known of a queue's moves beyond the journal."""

    doubtful: dict[int, _Since]
    """Offsets that may have been copied already."""
    copied: set[int]
    """Offsets whose copies are durable, which the journal does not know yet."""


class DeadLetterMover:
    """Of one shard: a task for each queue that has something to move, until it has nothing more."""

    def __init__(
        self, shards: Shards, shard: Shard, tally: Tally, create: CreateTopic, check_room: Callable[[], None]
    ) -> None:
        self._shards = shards
        self._shard = shard
        self._tally = tally
        self._host: Host = shard.host
        self._create = create
        self._check_room = check_room
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._progress: dict[str, _Progress] = {}
        self.held_up: dict[str, HeldUp] = {}
        """By queue."""
        self._stopping = asyncio.Event()

    def resume(self, queue: Queue) -> None:
        """After a start, before anything is appended anywhere: nobody knows how far it had come."""
        if queue.moving:
            doubtful = {offset: self._since(move.target) for offset, move in queue.moving.items()}
            self._progress[queue.key] = _Progress(doubtful, set())
            self.begin(queue)

    def _since(self, target: Target) -> _Since:
        """If the topic is another by now, all of that one is looked at."""
        end = target.end
        with suppress(TopicNotFound):
            topic = self._host.topic(target.topic)
            # Its end may have been lost, by damage or as an earlier version noted it: copies go on from where it is.
            end = min(end, topic.partitions[target.partition % len(topic.partitions)].log.end_offset)
        return _Since(target.topic_id, end)

    def begin(self, queue: Queue) -> None:
        if queue.key not in self._tasks and not self._stopping.is_set():
            task = self._tasks[queue.key] = asyncio.create_task(self._run(queue))
            task.add_done_callback(lambda ended: self._ended(queue, ended))

    def _ended(self, queue: Queue, task: asyncio.Task[None]) -> None:
        self._tasks.pop(queue.key, None)
        self.held_up.pop(queue.key, None)
        if task.cancelled():
            # The loop comes to its end: another task would be left behind.
            return
        if queue.moving and self._is_current(queue):
            self.begin(queue)
        else:
            self._progress.pop(queue.key, None)

    async def finished(self, queue: Queue) -> None:
        """Return when nothing of the queue is on its way any more, or it cannot go on for now."""
        task = self._tasks.get(queue.key)
        if task is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PAUSES_S[0] / 2 + 1):
                    await asyncio.shield(task)

    async def stop(self) -> None:
        """Finish the batches that are under way; the next start goes on with the rest."""
        self._stopping.set()
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    def _is_current(self, queue: Queue) -> bool:
        return self._shard.state.by_key.get(queue.key) is queue

    async def _run(self, queue: Queue) -> None:
        failures = 0
        while queue.moving and not self._stopping.is_set() and self._is_current(queue):
            try:
                await self._some(queue)
                failures = 0
                self.held_up.pop(queue.key, None)
            except Exception as met:
                # Whatever it was: what is known of copies that were made must not be forgotten, and nothing given up.
                error = met
                if isinstance(met, OSError) and disk_errors.is_of_the_disk(met):
                    error = disk_errors.told(met, "reading or writing")
                self.held_up[queue.key] = HeldUp(queue.group, len(queue.moving), str(error))
                told: dict[str, Any] = {"group": queue.group, "messages": len(queue.moving), "error": str(error)}
                if isinstance(error, GoQueueError):
                    log.warning("messages cannot be moved for now", **told)
                else:
                    log.error("messages cannot be moved for now", exc_info=error, **told)
                pause_s = _PAUSES_S[min(failures, len(_PAUSES_S) - 1)]
                failures += 1
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._stopping.wait()

    async def _some(self, queue: Queue) -> None:
        """As many as go to the same partition, in one batch."""
        progress = self._progress.setdefault(queue.key, _Progress({}, set()))
        if progress.copied:
            self._done(queue, progress.copied)
            return
        source = place_of(self._host, queue)
        if source is None:
            raise TopicNotFound("the topic was deleted")
        first = next(iter(queue.moving.values())).target
        target = await self._target(queue, source[0], first.topic)
        if target is None:
            # Where it should go is gone for good: there is nobody left to give it to.
            log.error("messages are given up: their target was deleted", group=queue.group, target=first.topic)
            self._done(queue, _alike(queue, first))
            return
        partition = target.partitions[first.partition % len(target.partitions)]
        await self._look_for_copies(queue, progress, target, partition, first)
        if progress.copied:
            return
        chosen = _alike(queue, first)
        # A copy whose reason is lost in a crash would be there beside the message itself. The reason is gone with the
        # queue also if the group is: it may have been made just now.
        await Journal.all_settled([self._shard.journal, self._shards.map.of_group(queue.group).journal])
        frames, carried, gone = await self._load(queue, source, chosen)
        if gone:
            log.warning(
                "messages had left the log before they could be moved",
                group=queue.group,
                topic=source[0].name,
                partition=queue.partition,
                offsets=gone[:20],
            )
            self._host.notes.lost(queue, to_runs(gone), "it had left the log before it could be moved")
            self._done(queue, gone)
        if frames:
            reason = common_reason(queue.moving[offset].reason for offset in carried if offset in queue.moving)
            # Someone may read a copy before this hears that it is durable.
            moved_at_ns = self._host.clock.now_ns()
            first_copy = await self._append(progress, target, partition, frames, carried)
            self._count(queue, len(carried))
            self._host.notes.moved(queue, target, partition, carried, first_copy, reason, moved_at_ns)
            _tell_moved(queue, source[0].name, target.name, reason, carried, frames)
            self._done(queue, carried)

    async def _load(
        self, queue: Queue, source: tuple[Topic, Partition], chosen: list[int]
    ) -> tuple[list[bytes], list[int], list[int]]:
        """Copies that fit into one batch, which messages they are of, and which are not there any more."""
        frames: list[bytes] = []
        carried: list[int] = []
        gone: list[int] = []
        size = 0
        for offset in chosen:
            message = await _message(source[1], offset)
            move = queue.moving.get(offset)
            if move is None:
                continue
            if message is None:
                gone.append(offset)
                continue
            frame = copy_of(message, queue, source[0].name, move, self._host.clock.now_ns())
            if frames and size + len(frame) > MAX_BATCH_BYTES:
                break
            frames.append(frame)
            carried.append(offset)
            size += len(frame)
        return frames, carried, gone

    async def _append(
        self, progress: _Progress, target: Topic, partition: Partition, frames: list[bytes], carried: list[int]
    ) -> int:
        """Returns the offset of the first copy."""
        self._check_room()
        copies = join_frames(frames, self._host.clock.now_ns())
        first = partition.append(copies, is_new=False)
        progress.doubtful |= dict.fromkeys(carried, _Since(target.record.topic_id, first))
        # Whatever the topic's own policy: what leaves one place must be safe in the other.
        await partition.durable(first + len(frames))
        for offset in carried:
            del progress.doubtful[offset]
        progress.copied.update(carried)
        return first

    def _done(self, queue: Queue, offsets: Iterable[int]) -> None:
        progress = self._progress[queue.key]
        if self._is_current(queue):
            # Not waited for: if it is lost, the copies are found again.
            self._shards.change(queue.group, decide_moved(queue, offsets))
        progress.copied.difference_update(list(offsets))

    def _count(self, queue: Queue, carried: int) -> None:
        if queue.group == REDRIVE:
            self._tally.redriven += carried
        else:
            self._tally.dead_letters += carried

    async def _target(self, queue: Queue, source: Topic, name: str) -> Topic | None:
        if not can_be_a_topic(name):
            # Where the source's dead letters go instead; ``None`` is for one that has none.
            name = dead_letter_topic(self._host, source) or ""
            if not name:
                return None
        try:
            return self._host.topic(name)
        except TopicNotFound:
            if queue.group == REDRIVE:
                return None
        return await find_or_make(self._host, self._create, source, name)

    async def _look_for_copies(
        self, queue: Queue, progress: _Progress, target: Topic, partition: Partition, first: Target
    ) -> None:
        """Find out for all in doubt that go to this partition whether they were copied."""
        doubtful = {
            offset: since
            for offset, since in progress.doubtful.items()
            if offset in queue.moving and _same_place(queue.moving[offset].target, first)
        }
        if not doubtful:
            return
        topic_id = target.record.topic_id
        at = min(since.offset if since.topic_id == topic_id else 0 for since in doubtful.values())
        # It may have been cut back since, and copies with what followed.
        at = max(min(at, partition.log.end_offset), partition.log.start_offset)
        marks = {mark_of(queue, offset).encode(): offset for offset in doubtful}
        copied: set[int] = set()
        # Under 'interval' a copy may be there and not yet be safe.
        await partition.durable(partition.log.end_offset)
        while True:
            # Also what readers do not see: a copy may be delayed, or lie behind a transaction that is open.
            run, following = await partition.read(at, 1 << 20, UNBOUNDED, partition.high_watermark)
            if run is None:
                break
            for message in decode_run(run)[0]:
                for name, value in message.headers:
                    if name == system.COPY_OF and value in marks:
                        copied.add(marks[value])
                        self._host.notes.moved(
                            queue, target, partition, [marks[value]], message.offset, "", message.timestamp_ns
                        )
            at = following
        progress.copied |= copied
        for offset in doubtful:
            del progress.doubtful[offset]


def _tell_moved(queue: Queue, topic: str, target: str, reason: str, carried: list[int], frames: list[bytes]) -> None:
    few = list(zip(carried, frames, strict=True))[:_MOST_NAMED]
    told: dict[str, Any] = {
        "topic": topic,
        "partition": queue.partition,
        "target": target,
        "count": len(carried),
        "offsets": [offset for offset, _ in few],
        "trace_ids": [trace_of(frame, topic, queue.partition, offset) for offset, frame in few],
    }
    if queue.group == REDRIVE:
        log.info("dead letters were sent back", **told)
    else:
        log.warning("messages became dead letters", group=queue.group, reason=reason, **told)


def _alike(queue: Queue, first: Target) -> list[int]:
    """Offsets that go where ``first`` is, as many as are worth reading at once."""
    found = (offset for offset, move in queue.moving.items() if _same_place(move.target, first))
    return sorted(islice(found, _AT_ONCE))


def _same_place(target: Target, other: Target) -> bool:
    return target.topic == other.topic and target.partition == other.partition


async def _message(partition: Partition, offset: int) -> Message | None:
    if offset < partition.log.start_offset:
        return None
    read = await read_messages(partition, offset, Bounds(1, 1))
    return next((message for message in read.messages if message.offset == offset), None)
