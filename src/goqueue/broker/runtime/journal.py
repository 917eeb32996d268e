"""A state machine whose events are kept in an internal topic.

Deciding, appending and applying are one step without an await, so two commands never decide on the same state. The
reply waits until the events are durable. If they cannot become so, the state goes back to what is durable and the
journal takes no more commands.

A snapshot is taken part by part, so that a large state never holds up the loop: each part carries the offset that it
is true for, and a replay applies to it only what came later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from goqueue.broker.runtime.journal_tail import DURABLE_MARK, EventsMissing, corrupt, cut_torn_tail
from goqueue.model.errors import CorruptData, GoQueueError, StorageFailed
from goqueue.model.logging import get_logger
from goqueue.storage.files.atomic import read_checked, write_atomically
from goqueue.storage.log.durability import Durability
from goqueue.storage.log.log import Log
from goqueue.wire.batch import join_frames
from goqueue.wire.decoding import decode_run
from goqueue.wire.frame import encode_frame

log = get_logger(__name__)

_READ_BYTES = 1 << 20
_DUMPED_AT_A_STRETCH = 256 << 10
SNAPSHOT_EVERY_BYTES = 16 << 20
Machine = TypeVar("Machine", bound="StateMachine")


class StateMachine(Protocol):
    """What a journal keeps. Its state is the sum of its parts; an event changes one of them."""

    def apply(self, event: Any) -> None: ...

    def parts(self) -> list[str]: ...

    def part_of(self, event: Any) -> str: ...

    def dump(self, part: str) -> bytes | None:
        """The part as JSON; ``None`` if it is gone."""

    def restore(self, part: str, payload: bytes) -> None: ...


class Journal(Generic[Machine]):
    """``machine`` is only ever read from outside; it changes through ``submit`` and ``propose``.

    It is empty until ``load``, and again after ``unload``.
    """

    def __init__(
        self,
        journal: Log,
        durability: Durability,
        snapshot_path: Path,
        make: Callable[[], Machine],
        event_type: Any,
        snapshot_every: int = 1_000,
        vouched_end: int = 0,
        forget_point: Callable[[], None] = lambda: None,
    ) -> None:
        """``vouched_end``: a recovery point says that everything below is on the disk."""
        self.log = journal
        self._durability = durability
        self._snapshot_path = snapshot_path
        self._make = make
        self._decisions = msgspec.json.Decoder(list[event_type])
        self._encode = msgspec.json.Encoder().encode
        self._snapshot_every = snapshot_every
        self._snapshot_at = 0
        self._grown_bytes = 0
        """By how much the log has grown since the last snapshot began."""
        self.is_taken_back = False
        """Whether the disk has failed: then the state is what is durable, and stays so."""
        self._vouched_end = vouched_end
        self._forget_point = forget_point
        self._needed_end = 0
        """Everything before is waited for by ``settled``."""
        self.is_loaded = False
        self.machine: Machine = make()

    def load(self) -> None:
        """Make the state from the snapshot and the log; events that a crash tore off the log's end are cut off."""
        try:
            self._load(self.log.end_offset)
        except EventsMissing as missing:
            kept = self._read_snapshot()
            durable = max(self._vouched_end, 0 if kept is None else kept.end)
            cut_torn_tail(self.log, missing.offset, durable, self._forget_point)
            self._load(self.log.end_offset)
        self._needed_end = self.log.end_offset
        self.is_loaded = True

    async def begin_with(self, parts: Sequence[tuple[str, bytes]], first: Any) -> None:
        """Write the state down that an empty journal begins with; ``load`` makes it. Durable on return.

        ``first`` is the event in the log that stands for this state. A try that was interrupted may have left it.
        """
        if self.log.end_offset > 1:
            raise CorruptData(f"{self.log.folder} is not empty, so it cannot begin with another state")
        if self.log.end_offset == 0:
            now_ns = self.log.now_ns()
            frame = encode_frame(DURABLE_MARK.pack(0), self._encode([first]), b"", now_ns)
            self.log.append(join_frames([frame], now_ns))
        await self._durability.reached(self.log, self.log.end_offset)
        kept = [_Part(name, 1, msgspec.Raw(payload)) for name, payload in parts]
        _write_snapshot(self.log.open_files.disk, self._snapshot_path, _Snapshot(1, 1, kept))

    def unload(self) -> None:
        """Forget the state. The log stays open, so that it can be loaded again."""
        self.is_loaded = False
        self.machine = self._make()

    @property
    def snapshot_due(self) -> bool:
        if not self.is_loaded:
            return False
        grown = self._durability.end(self.log) - self._snapshot_at
        return grown >= self._snapshot_every or (grown > 0 and self._grown_bytes >= SNAPSHOT_EVERY_BYTES)

    async def submit(self, decide: Callable[[Machine], Sequence[Any]]) -> Sequence[Any]:
        """Decide, append, apply; return the events when they are durable.

        An error raised by ``decide`` changes nothing. It waits as well: what it tells of may not be durable yet.
        """
        try:
            events = decide(self.machine)
        except GoQueueError:
            await self.settled()
            raise
        self.propose(events)
        await self.settled()
        return events

    def propose(self, events: Sequence[Any], *, is_needed: bool = True) -> None:
        """Append and apply what was decided in this very step. Nobody may be told before ``settled``.

        ``is_needed``: that waits for these events. Else they are worked out anew if a crash takes them.
        """
        if not events:
            return
        now_ns = self.log.now_ns()
        # One record for a decision: after a crash all of its events are there, or none.
        durable_mark = DURABLE_MARK.pack(self._durability.end(self.log))
        frame = encode_frame(durable_mark, self._encode(events), b"", now_ns)
        self.log.append(join_frames([frame], now_ns))
        self._grown_bytes += len(frame)
        if is_needed:
            self._needed_end = self.log.end_offset
        for event in events:
            self.machine.apply(event)

    def _begin_sync(self) -> asyncio.Future[None]:
        """Have everything brought to the disk that was appended so far and is needed."""
        return self._durability.reached(self.log, self._needed_end)

    async def settled(self, begun: asyncio.Future[None] | None = None) -> None:
        """Return when the state is durable, or what was appended when the sync was ``begun``; if it cannot become so,
        go back to what is."""
        try:
            await (begun or self._begin_sync())
        except StorageFailed:
            if not self.is_taken_back:
                # Once: many may be waiting, and the log takes nothing any more.
                self.is_taken_back = True
                try:
                    self._load(self._durability.end(self.log))
                except EventsMissing as missing:
                    raise corrupt(self.log, missing.offset) from None
            raise

    @staticmethod
    async def all_settled(journals: Collection[Journal[Any]]) -> None:
        """Return when everything that was appended to these journals so far is durable."""
        if not journals:
            return
        first, *others = journals
        # All are asked for before any is waited for, so that one round of fsync serves them.
        syncs = [(each, each._begin_sync()) for each in others]
        for _, begun in syncs:
            begun.add_done_callback(_failure_is_met)
        await first.settled()
        for journal, begun in syncs:
            await journal.settled(begun)

    async def snapshot(self) -> None:
        """Write the state down, so that the log below it is not needed any more."""
        machine = self.machine
        begin, grown_bytes = self.log.end_offset, self._grown_bytes
        if begin == self._snapshot_at:
            return
        parts: list[_Part] = []
        dumped: set[str] = set()
        size = 0
        while missing := [part for part in machine.parts() if part not in dumped]:
            for part in missing:
                payload = machine.dump(part)
                # One that has gone meanwhile may come again under the same name, and is then dumped in its turn.
                if payload is not None:
                    dumped.add(part)
                    parts.append(_Part(part, self.log.end_offset, msgspec.Raw(payload)))
                    size += len(payload)
                if size >= _DUMPED_AT_A_STRETCH:
                    size = 0
                    await asyncio.sleep(0)
                    if self.machine is not machine:
                        # It was unloaded meanwhile, and what is appended since does not reach this state.
                        return
        end = self._needed_end = self.log.end_offset
        # Raises if anything of what was dumped was taken back meanwhile.
        await self.settled()
        snapshot = _Snapshot(begin, end, parts)
        await asyncio.to_thread(_write_snapshot, self.log.open_files.disk, self._snapshot_path, snapshot)
        if self.machine is machine:
            self._snapshot_at = begin
            self._grown_bytes -= grown_bytes
        self.log.move_start(begin)

    def _load(self, until: int) -> None:
        """Raises ``EventsMissing`` if not everything below ``until`` is there."""
        snapshot = self._read_snapshot()
        if snapshot is None:
            offset = self.log.start_offset
            if offset:
                raise CorruptData(f"{self._snapshot_path} is missing, and {self.log.folder} begins at {offset}")
            snapshot = _Snapshot(0, 0, [])
        if snapshot.end > self.log.end_offset:
            raise CorruptData(
                f"{self._snapshot_path} is ahead of {self.log.folder}: {snapshot.end} > {self.log.end_offset}"
            )
        self.machine = self._make()
        true_for: dict[str, int] = {}
        for part in snapshot.parts:
            self.machine.restore(part.name, part.state)
            true_for[part.name] = part.offset
        self._snapshot_at = offset = snapshot.begin
        self._grown_bytes = 0
        expected = offset
        while (found := self.log.locate(offset, _READ_BYTES, limit=until)) is not None:
            for message in decode_run(found.load())[0]:
                if message.offset != expected:
                    raise EventsMissing(expected)
                expected += 1
                self._grown_bytes += len(message.value)
                self._replay(message.offset, message.value, snapshot.end, true_for)
            offset = found.next_offset
        if expected < until:
            raise EventsMissing(expected)

    def _replay(self, offset: int, decision: bytes, snapshot_end: int, true_for: dict[str, int]) -> None:
        machine = self.machine
        for event in self._decisions.decode(decision):
            # A part that the snapshot does not have was gone when it ended.
            if offset >= snapshot_end or offset >= true_for.get(machine.part_of(event), snapshot_end):
                machine.apply(event)

    def _read_snapshot(self) -> _Snapshot | None:
        try:
            payload = read_checked(self.log.open_files.disk, self._snapshot_path)
        except CorruptData as error:
            log.warning("snapshot is damaged, replaying the whole journal", error=str(error))
            return None
        if payload is None:
            return None
        kept = msgspec.json.decode(payload, type=_Kept)
        if bytes(kept.state):
            # Format 1: the whole of it in one part, as of one offset.
            return _Snapshot(
                kept.offset, kept.offset, [_Part(n, kept.offset, kept.state) for n in self._make().parts()]
            )
        return _Snapshot(kept.begin, kept.end, kept.parts)


def _failure_is_met(begun: asyncio.Future[None]) -> None:
    """By ``settled``. If another journal fails first, none waits for this one, which is no error either."""
    if not begun.cancelled():
        begun.exception()


class _Part(msgspec.Struct, array_like=True):
    name: str
    offset: int
    state: msgspec.Raw


class _Snapshot(msgspec.Struct):
    """``begin``: where a replay begins; ``end``: where the last part was dumped."""

    begin: int
    end: int
    parts: list[_Part]


class _Kept(msgspec.Struct):
    """A snapshot of any format."""

    begin: int = 0
    end: int = 0
    parts: list[_Part] = []
    offset: int = 0
    state: msgspec.Raw = msgspec.Raw()


def _write_snapshot(disk: Any, path: Path, snapshot: _Snapshot) -> None:
    write_atomically(disk, path, msgspec.json.encode(snapshot))
