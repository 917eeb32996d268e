"""Messages that do not fit their topic's schema: refused, or, where the topic says so, put with the dead letters.

A dead letter of this kind has an offset like any other message, so that a producer's batch is stored as a whole. What
lies there is a record that no reader sees; the message itself goes to the dead-letter topic, and is safe there before
its producer is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_batch

import numpy as np
from msgspec.structs import replace

from goqueue.broker.dead_letters.moved_messages import fitting
from goqueue.broker.events.event_recorder import EventRecorder, common_reason
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.registry.schema_check import Problems, SchemaCheck, Value, values_in, values_of
from goqueue.broker.runtime.time_slices import TimeSlice
from goqueue.model.bounded_cache import BoundedCache
from goqueue.model.errors import DiskFull, SchemaViolation, StorageFailed
from goqueue.model.logging import get_logger
from goqueue.model.message import Message
from goqueue.model.units import format_instant_ns
from goqueue.wire import internal_headers as system
from goqueue.wire.batch import MAX_BATCH_BYTES, CheckedBatch, FrameRun, check_layout, join_frames
from goqueue.wire.decoding import decode_run
from goqueue.wire.frame import Flag, encode_frame, encode_headers, encode_message
from goqueue.wire.producer_frames import stamp_of, with_stamp
from goqueue.wire.trace_context import TRACEPARENT, TRACESTATE, trace_id_of, traceparent_in

log = get_logger(__name__)

_MOST_NAMED = 20
_MOST_TOLD = 1_000
_MOST_REMEMBERED = 1_000
DeadLetterTopic = Callable[[Topic], Awaitable[Topic | None]]


@dataclass(frozen=True, slots=True)
class Refused:
    """What of a request does not fit and why, by place; ``target`` is where it goes, if not back to the producer."""

    reasons: Problems = field(default_factory=dict)
    target: Topic | None = None
    dedup_ids: dict[int, bytes] | None = None
    """By place in the batch, where there were so many headers that all of them were looked at beforehand."""


ALL_FIT = Refused()


class SchemaRejects:
    def __init__(self, check: SchemaCheck, notes: EventRecorder, dead_letter_topic: DeadLetterTopic) -> None:
        self._check = check
        self._notes = notes
        self._dead_letter_topic = dead_letter_topic
        self._burying: set[asyncio.Task[None]] = set()
        self._burials: BoundedCache[tuple[Partition, int], asyncio.Task[None]] = BoundedCache(_MOST_REMEMBERED)
        """The last, by where their batch begins."""

    async def among(self, topic: Topic, values: Iterable[Value]) -> Refused:
        """What does not fit of the values that are to be published."""
        mode = topic.settings.schema_validation
        if mode == "off":
            return ALL_FIT
        reasons = await self._check.problems(topic, values)
        self._notes.misfits(topic, len(reasons))
        # A dead-letter topic has none itself: there, what does not fit is refused.
        wants_target = bool(reasons) and mode == "dead_letter"
        return Refused(reasons, await self._dead_letter_topic(topic) if wants_target else None)

    async def among_messages(self, topic: Topic, messages: Sequence[Message]) -> Refused:
        """The same of messages that are stored somewhere; where they would go to does not matter."""
        if topic.settings.schema_validation == "off":
            return ALL_FIT
        return Refused(await self._check.problems(topic, values_of(messages)))

    async def among_frames(self, topic: Topic, run: FrameRun, *, may_bury: bool = True) -> Refused:
        """The same of a batch that is stored whole or not at all: raises, unless what does not fit is a dead letter.

        To be asked only if the topic validates."""
        check_layout(run)
        refused = await self.among(topic, values_in(run, topic.settings.max_message_bytes))
        if refused.reasons and (refused.target is None or not may_bury):
            violation = SchemaViolation(_told(refused.reasons, len(run)))
            violation.misfits = {place: refused.reasons[place] for place in sorted(refused.reasons)[:_MOST_TOLD]}
            raise violation
        return refused

    def append(
        self, topic: Topic, number: int, batch: CheckedBatch, refused: Refused, now_ns: int, *, is_repeatable: bool
    ) -> tuple[int, asyncio.Future[None]]:
        """Append a batch of which some are dead letters; its first offset, and when all of it counts.

        ``is_repeatable``: if it came again, the broker would know what is stored of it.
        """
        partition, target, reasons = topic.partitions[number], refused.target, refused.reasons
        assert target is not None
        failure = target.partitions[number % len(target.partitions)].log.failure
        if failure is not None and not target.closed:
            raise StorageFailed(f"the dead letters in {target.name!r} take no more writes: {failure}")
        frames, latest_ns = _frames(batch), batch.max_timestamp_ns
        kept = [_stand_in(frame, latest_ns) if place in reasons else frame for place, frame in enumerate(frames)]
        first = partition.append(replace_batch(join_frames(kept, latest_ns), producer=batch.producer))
        write = _DeadLetterWrite(topic, number, target, first, frames, reasons, now_ns, is_repeatable)
        return first, self._begin(write)

    def again(
        self, topic: Topic, number: int, batch: CheckedBatch, first: int, refused: Refused, now_ns: int
    ) -> asyncio.Future[None]:
        """Of a batch that is stored and comes again: its letters may not be. Rather twice than not at all."""
        before = self._burials.peek((topic.partitions[number], first))
        if before is not None and (not before.done() or (not before.cancelled() and before.exception() is None)):
            return asyncio.shield(before)
        assert refused.target is not None
        return self._begin(
            _DeadLetterWrite(topic, number, refused.target, first, _frames(batch), refused.reasons, now_ns, True)
        )

    def _begin(self, burial: _DeadLetterWrite) -> asyncio.Future[None]:
        partition = burial.topic.partitions[burial.number]
        acknowledged = _looked_at(partition.acknowledge(burial.first + len(burial.frames)))
        burying = asyncio.create_task(self._bury(burial, acknowledged))
        self._burying.add(burying)
        burying.add_done_callback(self._burying.discard)
        self._burials.put((partition, burial.first), burying)
        # A producer that goes away takes nothing with it.
        return asyncio.shield(burying)

    async def buried(self) -> None:
        """Return when nothing is on its way to the dead letters."""
        await asyncio.gather(*self._burying, return_exceptions=True)

    async def _bury(self, burial: _DeadLetterWrite, acknowledged: asyncio.Future[None]) -> None:
        """Put messages with the dead letters, in batches that are none too large, and wait for everything."""
        waits = [acknowledged]
        stretch = TimeSlice()
        places: list[int] = []
        copies: list[bytes] = []
        size = 0
        for place in sorted(burial.reasons):
            copy = burial.letter(place)
            if copies and size + len(copy) > MAX_BATCH_BYTES:
                waits.append(await self._append_letters(burial, places, copies))
                places, copies, size = [], [], 0
            places.append(place)
            copies.append(copy)
            size += len(copy)
            if stretch.is_over:
                await stretch.rest()
        waits.append(await self._append_letters(burial, places, copies))
        await asyncio.gather(*waits)

    async def _append_letters(
        self, burial: _DeadLetterWrite, places: list[int], copies: list[bytes]
    ) -> asyncio.Future[None]:
        topic, number, target = burial.topic, burial.number, burial.target
        if target.closed:
            # Deleted since; then there is another, or there will be.
            target = await self._dead_letter_topic(topic) or target
        grave = target.partitions[number % len(target.partitions)]
        try:
            first_copy = grave.append(join_frames(copies, burial.now_ns), is_new=False)
        except StorageFailed as error:
            raise StorageFailed(f"the dead letters in {target.name!r}: {error}") from None
        except DiskFull as error:
            if burial.is_repeatable:
                # Sent again, it is known, and only its dead letters are written.
                raise
            raise StorageFailed(
                f"the messages that fit their schema are stored, but not the dead letters in {target.name!r}: {error}"
            ) from None
        offsets = [burial.first + place for place in places]
        reason = common_reason(burial.reasons[place] for place in places)
        self._notes.buried(topic.partitions[number], grave, offsets, first_copy, reason)
        log.warning(
            "messages do not fit their topic's schema and became dead letters",
            topic=topic.name,
            partition=number,
            target=target.name,
            count=len(offsets),
            offsets=offsets[:_MOST_NAMED],
            reason=burial.reasons[places[0]],
        )
        # Whatever the topics' own policies: what is nowhere else must be safe there.
        return _looked_at(grave.durable(first_copy + len(copies)))


@dataclass(frozen=True, slots=True)
class _DeadLetterWrite:
    """A batch that was appended at ``first``, of which some are to be dead letters."""

    topic: Topic
    number: int
    target: Topic
    first: int
    frames: list[bytes]
    reasons: Problems
    now_ns: int
    is_repeatable: bool

    def letter(self, place: int) -> bytes:
        """What goes to the dead letters. No group had anything to do with it."""
        topic, number, offset = self.topic, self.number, self.first + place
        message = _message(self.frames[place])
        told = {
            system.ORIGIN_TOPIC: topic.name,
            system.ORIGIN_PARTITION: str(number),
            system.ORIGIN_OFFSET: str(offset),
            system.ORIGIN_TIMESTAMP: format_instant_ns(message.timestamp_ns),
            system.GROUP: "",
            system.DELIVERIES: "0",
            system.ERROR: self.reasons[place],
            system.COPY_OF: f"refused/{topic.record.topic_id}/{number}/{offset}",
        }
        if traceparent_in(message.headers) is None:
            told[system.TRACE] = trace_id_of(message.headers, topic.name, number, offset)
        kept = [(name, value) for name, value in message.headers if not name.startswith(system.RESERVED_PREFIX)]
        headers = fitting(kept, [(name, value.encode()) for name, value in told.items()])
        return encode_message(replace(message, headers=headers, timestamp_ns=self.now_ns))


def _looked_at(done: asyncio.Future[None]) -> asyncio.Future[None]:
    """Nobody waits for it any more if what comes after it fails first."""
    done.add_done_callback(lambda each: each.cancelled() or each.exception())
    return done


def _frames(batch: CheckedBatch) -> list[bytes]:
    run = FrameRun(memoryview(batch.frames), batch.positions)
    starts, ends = run.positions.tolist(), run.ends().tolist()
    return [bytes(run.frames[start:end]) for start, end in zip(starts, ends, strict=True)]


def _message(frame: bytes) -> Message:
    (message,), _ = decode_run(FrameRun(memoryview(frame), np.zeros(1, np.uint32)), verify=False)
    return message


def _stand_in(frame: bytes, timestamp_ns: int) -> bytes:
    """What lies at the message's offset: in the same trace, and no larger, so that the batch is none the larger.

    The first of a producer's batch keeps its stamp, which tells of all of them.
    """
    headers = b""
    if TRACEPARENT.encode() in frame:
        kept = [(name, value) for name, value in _message(frame).headers if name in (TRACEPARENT, TRACESTATE)]
        headers = encode_headers(tuple(kept))
    made = encode_frame(b"", b"", headers, timestamp_ns, flags=int(Flag.CONTROL))
    stamp = stamp_of(frame)
    return made if stamp is None else with_stamp(made, stamp)


def _told(reasons: Problems, count: int) -> str:
    """What is said of a batch: why its first message does not fit that does not."""
    place = min(reasons)
    if count == 1:
        return reasons[place]
    others = len(reasons) - 1
    more = f"; {others} more {'do' if others > 1 else 'does'} not fit either" if others else ""
    return f"message {place} of the batch: {reasons[place]}{more}"
