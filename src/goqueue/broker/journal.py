"""A state machine whose events are kept in an internal topic.

Deciding, appending and applying are one step without an await, so two commands never decide on the same state. The
reply waits until the events are durable. If they cannot become so, the state goes back to what is durable and the
journal takes no more commands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from goqueue.model.errors import CorruptData, GoQueueError, StorageFailed
from goqueue.model.logging import get_logger
from goqueue.storage.atomic import read_checked, write_atomically
from goqueue.storage.commit import CommitScheduler
from goqueue.storage.log import Log
from goqueue.wire.batch import decode_run, join_frames
from goqueue.wire.frame import encode_frame

log = get_logger(__name__)

_READ_BYTES = 1 << 20
Machine = TypeVar("Machine", bound="StateMachine")


class StateMachine(Protocol):
    """What a journal keeps. ``state`` is all of it, as it goes into a snapshot."""

    state: Any

    def apply(self, event: Any) -> None: ...


class Journal(Generic[Machine]):
    """``machine`` is only ever read from outside; it changes through ``submit``."""

    def __init__(
        self,
        journal: Log,
        commits: CommitScheduler,
        snapshot_path: Path,
        make: Callable[[Any], Machine],
        state_type: type,
        event_type: Any,
        snapshot_every: int = 1_000,
    ) -> None:
        self._log = journal
        self._commits = commits
        self._snapshot_path = snapshot_path
        self._make = make
        self._state_type = state_type
        self._decisions = msgspec.json.Decoder(list[event_type])
        self._snapshot_every = snapshot_every
        self._snapshot_at = 0
        self.machine: Machine
        self._load(journal.end_offset)

    @property
    def snapshot_due(self) -> bool:
        return self._log.durable_offset - self._snapshot_at >= self._snapshot_every

    async def submit(self, decide: Callable[[Machine], Sequence[Any]]) -> Sequence[Any]:
        """Decide, append, apply; return the events when they are durable.

        An error raised by ``decide`` changes nothing. It waits as well: what it tells of may not be durable yet.
        """
        try:
            events = decide(self.machine)
        except GoQueueError:
            await self._settled()
            raise
        if events:
            now_ns = self._log.now_ns()
            # One record for a decision: after a crash all of its events are there, or none.
            frame = encode_frame(b"", msgspec.json.encode(events), b"", now_ns)
            self._log.append(join_frames([frame], now_ns))
            for event in events:
                self.machine.apply(event)
        await self._settled()
        return events

    async def _settled(self) -> None:
        """Return when the state is durable; if it cannot become so, go back to what is."""
        try:
            await self._commits.durable(self._log, self._log.end_offset)
        except StorageFailed:
            self._load(self._log.durable_offset)
            raise

    async def snapshot(self) -> None:
        """Write the state down, so that the log below it is not needed any more."""
        at = self._log.durable_offset
        if at != self._log.end_offset or at == self._snapshot_at:
            return
        payload = msgspec.json.encode(_Snapshot(at, msgspec.Raw(msgspec.json.encode(self.machine.state))))
        await asyncio.to_thread(write_atomically, self._log.open_files.disk, self._snapshot_path, payload)
        self._snapshot_at = at
        self._log.start_offset = at

    def _load(self, until: int) -> None:
        offset, state = self._read_snapshot()
        if offset is None:
            offset = self._log.start_offset
            if offset:
                raise CorruptData(f"{self._snapshot_path} is missing, and {self._log.folder} begins at {offset}")
        if offset > self._log.end_offset:
            raise CorruptData(
                f"{self._snapshot_path} is ahead of {self._log.folder}: {offset} > {self._log.end_offset}"
            )
        self.machine = self._make(state)
        self._snapshot_at = offset
        while (found := self._log.locate(offset, _READ_BYTES, limit=until)) is not None:
            messages, damaged = decode_run(found.load())
            for expected, message in enumerate(messages, offset):
                if damaged or message.offset != expected:
                    raise CorruptData(
                        f"{self._log.folder} has lost events near offset {expected}; restore it from a backup"
                    )
                for event in self._decisions.decode(message.value):
                    self.machine.apply(event)
            offset = found.next_offset

    def _read_snapshot(self) -> tuple[int | None, Any]:
        try:
            payload = read_checked(self._log.open_files.disk, self._snapshot_path)
        except CorruptData as error:
            log.warning("snapshot is damaged, replaying the whole journal", error=str(error))
            return None, None
        if payload is None:
            return None, None
        snapshot = msgspec.json.decode(payload, type=_Snapshot)
        return snapshot.offset, msgspec.json.decode(snapshot.state, type=self._state_type)


class _Snapshot(msgspec.Struct):
    offset: int
    state: msgspec.Raw
