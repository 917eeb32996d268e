"""Reading the records that traces are about, also those that readers do not see."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import msgspec

from goqueue.broker.partitions.frame_selection import read_frames_at
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.shards.host import Host
from goqueue.broker.tracing.transaction_outcomes import Fate, TransactionOutcomes
from goqueue.model.errors import GoQueueError
from goqueue.model.ids import TopicId
from goqueue.model.message import Message
from goqueue.model.runs import pairs, to_runs
from goqueue.observe import trace_event as kinds
from goqueue.observe.trace import Place, Step, Trace
from goqueue.wire import internal_headers as system
from goqueue.wire.decoding import decode_run
from goqueue.wire.frame import Flag
from goqueue.wire.producer_frames import read_marker, stamp_of
from goqueue.wire.trace_context import trace_id_of

_READ_BYTES = 1 << 20
_OFFSETS_END = 1 << 62


class TracedRecords:
    def __init__(self, host: Host) -> None:
        self._host = host

    def outcomes(self, topic: str, partition: int, offsets: Collection[int]) -> TransactionOutcomes | None:
        """Outcomes of the transactions that records were published in; ``None`` if there is no such partition."""
        try:
            return TransactionOutcomes(self._host.topic(topic).partition(partition), offsets)
        except GoQueueError:
            return None

    def fate(self, place: Place) -> Fate:
        """Outcome of the transaction that one record was published in."""
        found = self.outcomes(place.topic, place.partition, [place.offset])
        return "" if found is None else found.of(place.offset)

    async def message(self, place: Place) -> Message | None:
        """The record at a place, also one that is delayed or of an open transaction; ``None`` if it is not there."""
        return (await self.messages(place.topic, place.partition, [place.offset])).get(place.offset)

    async def messages(self, topic: str, partition: int, offsets: Iterable[int]) -> dict[int, Message]:
        """The records that exist at these offsets, without their values, which may be large."""
        found: dict[int, Message] = {}
        wanted = left = sorted(offset for offset in offsets if offset < _OFFSETS_END)
        while left:
            try:
                there = self._host.topic(topic).partition(partition)
                picked = await read_frames_at(there, to_runs(left), _READ_BYTES)
            except GoQueueError:
                break
            if picked.run is not None:
                messages = (await asyncio.to_thread(decode_run, picked.run))[0]
                found |= {message.offset: msgspec.structs.replace(message, value=b"") for message in messages}
            left = [offset for offset in left if offset >= picked.upto]
        return found | await self._unstable(topic, partition, wanted)

    async def _unstable(self, topic: str, partition: int, offsets: Sequence[int]) -> dict[int, Message]:
        """The same for records above the last stable offset."""
        found: dict[int, Message] = {}
        try:
            there = self._host.topic(topic).partition(partition)
            low, high, written = there.stable_end, there.high_watermark, there.log.end_offset
            outcomes = TransactionOutcomes(there, offsets)
            # Records of a transaction need not be durable before its commit, and never if it is aborted.
            wanted = [each for each in offsets if low <= each < high or (each >= high and outcomes.of(each))]
            for first, end in pairs(to_runs(wanted)):
                while first < end:
                    run, first = await there.read(first, _READ_BYTES, end - first, written)
                    if run is None:
                        break
                    messages = (await asyncio.to_thread(decode_run, run))[0]
                    found |= {each.offset: msgspec.structs.replace(each, value=b"") for each in messages}
        except GoQueueError:
            # The topic was deleted meanwhile.
            return {}
        return found

    async def marker(self, place: Place, message: Message) -> Trace | None:
        """The trace of a transaction's marker; ``None`` for any other record."""
        if message.key is not None or message.headers:
            return None
        try:
            partition = self._host.topic(place.topic).partition(place.partition)
            run, _ = await partition.read(place.offset, _READ_BYTES, 1, partition.log.end_offset)
        except GoQueueError:
            return None
        if run is None or not run.columns()["flags"][0] & Flag.CONTROL:
            return None
        stamp = stamp_of(bytes(run.frames))
        marker = None if stamp is None else read_marker(int(run.columns()["flags"][0]), stamp)
        if marker is None:
            return None
        verb = "committed" if marker.is_commit else "aborted"
        reason = f"a transaction of producer {marker.producer_id} was {verb}"
        step = Step(message.timestamp_ns, kinds.MARKER, place, reason=reason, from_log=True)
        trace_id = trace_id_of((), place.topic, place.partition, place.offset)
        return Trace(trace_id, place, "completed", [step])

    def with_wait(self, trace: Trace) -> Trace:
        """The trace, with the open transaction that it waits for, if there is one."""
        if trace.status != "pending":
            return trace
        waiting = [each.place for each in trace.groups if each.standing == "waiting"]
        for place in dict.fromkeys([*waiting, *([trace.place] if trace.in_log else [])]):
            outcomes = self.outcomes(place.topic, place.partition, [place.offset])
            if outcomes is not None and (found := outcomes.waits_for(place.offset)) is not None:
                return replace(trace, waits_for=found)
        return trace

    def original_of(self, message: Message, place: Place) -> Place | None:
        """The record that a message says it is a copy of; ``None`` if it is none."""
        headers = dict(message.headers)
        fired = headers.get(system.DELAYED_OFFSET, b"")
        if fired.isdigit() and int(fired) < place.offset:
            return Place(place.topic, place.partition, int(fired))
        parts = headers.get(system.COPY_OF, b"").decode(errors="replace").rsplit("/", 3)
        if len(parts) != 4 or not parts[2].isdigit() or not parts[3].isdigit():
            return None
        topic: Topic | None = self._host.topic_by_id(TopicId(parts[1]))
        return None if topic is None else Place(topic.name, int(parts[2]), int(parts[3]))
