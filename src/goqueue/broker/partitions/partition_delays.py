"""The delayed messages of one partition, derived from its log; a file saves a start from reading all of it.

The delayed record, the *original*, is the schedule. Its end is the plain record that is appended when it is due, or a
control record that cancels it. All of them lie in one log, so after a crash each message has either become visible or
will become so, once.

Retention may remove the record of an end while the original stays, because the original shares a segment with others
that still wait. So it removes an end only once the file covers it. Compaction keeps the record of an end as long as the
original is there, and keeps an original as long as the file names it.

The outcome of transactions is asked of the partition's producers, which are recovered first: markers may be gone by the
time a start reads on from where the file ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goqueue.broker.partitions.delays_file import decode_delays, encode_delays
from goqueue.broker.partitions.derived_files import load
from goqueue.broker.partitions.partition_producers import PartitionProducers
from goqueue.delivery.delay_index import PendingDelays
from goqueue.model.logging import get_logger
from goqueue.model.message import HIDDEN
from goqueue.model.producer_sequences import OpenDelays
from goqueue.storage.files.checkpoint import RecoveryPoint
from goqueue.storage.files.files import Files
from goqueue.storage.log import lanes
from goqueue.storage.log.log import Log
from goqueue.wire.batch import FrameRun, damaged_places, select_frames
from goqueue.wire.delayed import due_times, fired_origin, read_control
from goqueue.wire.frame import HEADER_SIZE, Flag, decode_headers

log = get_logger(__name__)

FILE_NAME = "delays"
_SCAN_BYTES = 1 << 20
_MOST_UNSETTLED = 64
"""Beyond so many ends of delays that were not durable when last looked at, they are looked at again."""
_NONE = np.empty(0, np.int64)
_OF_INTEREST = np.uint8(Flag.DELAYED | Flag.FIRED | Flag.CONTROL)
_TRANSACTIONAL = np.uint8(Flag.TRANSACTIONAL)


class _Change(NamedTuple):
    """What a record has changed that is not durable yet, and how it was before."""

    end: int
    """Of the log, behind the record."""
    offsets: NDArray[np.int64]
    dues: NDArray[np.int64]
    """When they were due; -1 for those that did not wait."""
    first: int
    """Where the records begin that ended these: one for each, in their order."""
    owner: int | None = None
    """The producer whose transaction has ended, which held these."""
    is_commit: bool = False


class PartitionDelays:
    """The messages that wait in one partition, and those that ended by a record which is not durable yet."""

    def __init__(self, owner_log: Log, producers: PartitionProducers, durable_end: Callable[[], int]) -> None:
        """``producers`` know the outcome of the transaction that a delayed record belongs to; ``durable_end`` returns
        the log's high watermark."""
        self.log = owner_log
        self._producers = producers
        self._durable_end = durable_end
        self._durable_from = 0
        """From where a start would look for what is pending, by the recovery point that is on the disk."""
        self._forget()

    def _forget(self) -> None:
        self._held: dict[int, PendingDelays] = {}
        """By producer: what its open transaction has delayed."""
        self._held_count = 0
        self.pending = PendingDelays()
        self.saved_at = 0
        """The offset up to which the file covers the log."""
        self.changes = 0
        """How often something changed since the file was written."""
        self._named = _NONE
        """Of a compacted log: the offsets that the file names, or did before the one that is being written."""
        self._naming = _NONE
        self._unsettled: deque[_Change] = deque()

    def __len__(self) -> int:
        """How many messages wait, those of open transactions included."""
        return len(self.pending) + self._held_count

    # Changing

    def hold(self, producer_id: int, offsets: NDArray[np.int64], dues: NDArray[np.int64]) -> None:
        """Delayed by a transaction: times do not count before it is committed."""
        self._held.setdefault(producer_id, PendingDelays()).add_many(offsets, dues)
        self._held_count += len(offsets)
        self.changes += len(offsets)

    def end_hold(self, producer_id: int, *, is_commit: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """A transaction has ended: what it has delayed waits from now on, or is of no interest any more."""
        held = self._held.pop(producer_id, None)
        if held is None:
            return _NONE, _NONE
        offsets, dues = held.entries()
        self._held_count -= len(offsets)
        self.changes += len(offsets)
        if is_commit:
            self.pending.merge(offsets, dues)
        if len(offsets):
            end = self.log.end_offset
            self._note(_Change(end, offsets, dues, end - 1, producer_id, is_commit))
        return offsets, dues

    def due(self, offset: int) -> int | None:
        """When what waits there is due, be it in a transaction that is open."""
        due_ns = self.pending.due(offset)
        if due_ns is None and self._held_from() <= offset:
            found = (each.due(offset) for each in self._held.values())
            return next((due_ns for due_ns in found if due_ns is not None), None)
        return due_ns

    def added(self, offsets: NDArray[np.int64], dues: NDArray[np.int64]) -> None:
        if len(offsets) == 1:
            self.pending.add(int(offsets[0]), int(dues[0]))
        else:
            self.pending.add_many(offsets, dues)
        self.changes += len(offsets)

    def ended(self, offsets: NDArray[np.int64]) -> None:
        """They became visible or were cancelled, by records at the log's end: one for each, in this order."""
        self._end_all(offsets, self.log.end_offset - len(offsets))

    def given_up(self, offsets: NDArray[np.int64]) -> None:
        """They are lost, which no record tells."""
        self._end_all(offsets, 0)

    def _end_all(self, offsets: NDArray[np.int64], first: int) -> None:
        dues = self.pending.dues_of(offsets)
        self.pending.remove_many(offsets)
        self.changes += len(offsets)
        self._note(_Change(self.log.end_offset, offsets, dues, first))

    def rescheduled(self, offset: int, due_ns: int) -> None:
        """By a record at the log's end."""
        end, offsets = self.log.end_offset, np.array([offset], np.int64)
        dues = self.pending.dues_of(offsets)
        self._reschedule(offset, due_ns)
        self._note(_Change(end, offsets, dues, end - 1))

    def _reschedule(self, offset: int, due_ns: int) -> None:
        self.pending.reschedule(offset, due_ns)
        self.changes += 1

    def _note(self, change: _Change) -> None:
        self._unsettled.append(change)
        if len(self._unsettled) > _MOST_UNSETTLED:
            self._settle()

    # Cutting

    def cut(self, end: int) -> Generator[None, None, tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """The log was cut: forget what lay behind, and what changed by it. Until this has come to its end, some of it
        is still known. Returns what waits again, and when it is due."""
        self.changes += 1
        again: list[NDArray[np.int64]] = []
        while self._unsettled and self._unsettled[-1].end > end:
            change = self._unsettled.pop()
            if change.owner is not None:
                self._hold_again(change.owner, change)
            else:
                again.append(self._wait_again(change, end))
            yield
        self.pending.cut(end)
        for owner, held in list(self._held.items()):
            held.cut(end)
            if not len(held):
                del self._held[owner]
        self._held_count = sum(len(held) for held in self._held.values())
        if not again:
            return _NONE, _NONE
        offsets = np.unique(np.concatenate(again))
        dues = self.pending.dues_of(offsets)
        return offsets[dues >= 0], dues[dues >= 0]

    def _hold_again(self, owner: int, change: _Change) -> None:
        if change.is_commit:
            self.pending.remove_many(change.offsets)
        held = self._held[owner] = PendingDelays()
        held.add_many(change.offsets, change.dues)

    def _wait_again(self, change: _Change, end: int) -> NDArray[np.int64]:
        left = max(0, end - change.first)
        if 0 < left < len(change.offsets):
            # The records of some of them are there still.
            self._unsettled.append(change._replace(end=end, offsets=change.offsets[:left], dues=change.dues[:left]))
        offsets, dues = change.offsets[left:], change.dues[left:]
        waited = dues >= 0
        self.pending.restore(offsets[waited], dues[waited])
        return offsets[waited]

    # What the log must keep

    def _held_from(self) -> int:
        """Nothing below is held: told without a look at thousands of transactions."""
        first_open = self._producers.first_open
        return self.log.end_offset if first_open is None or not self._held else first_open

    def _settle(self) -> None:
        durable_end = self._durable_end() if self._unsettled else 0
        while self._unsettled and self._unsettled[0].end <= durable_end:
            self._unsettled.popleft()

    def holds(self, low: int, high: int) -> bool:
        """Whether an original between these offsets is needed: it waits, or would wait again after a crash."""
        self._settle()
        if self.pending.any_between(low, high):
            return True
        if high > self._held_from() and any(each.any_between(low, high) for each in self._held.values()):
            return True
        return any(((each.offsets >= low) & (each.offsets < high)).any() for each in self._unsettled)

    def is_wanted(self, offset: int) -> bool:
        """Whether compaction must keep an original: what it became goes only after it."""
        if offset in self._producers.state.aborted_delayed:
            # It becomes nothing. As a plain record it would look like one that waits.
            return False
        place = int(np.searchsorted(self._named, offset))
        is_named = place < len(self._named) and int(self._named[place]) == offset
        return is_named or self.holds(offset, offset + 1)

    def holds_up_compaction(self) -> bool:
        """Whether originals that have ended may stay only because the file names them."""
        return len(self._named) > 0 and self.changes > 0

    def point_saved(self, point: RecoveryPoint) -> None:
        """A recovery point is on the disk."""
        self._durable_from = point.delays_from

    def keeps(self, low: int, high: int) -> bool:
        """Whether the files of a segment must stay: for an original, or for what it may tell of the end of others."""
        if self.holds(low, high):
            return True
        looked_at_from = min(self._durable_from, self.needed_from())
        return looked_at_from < low and high > self.saved_at

    def holds_up_files(self) -> bool:
        """Whether segments wait to be removed until the file is written."""
        return any(
            segment.below > self.saved_at and not self.holds(segment.base, segment.below)
            for segment in self.log.below_durable_start()
        )

    def needed_from(self) -> int:
        """Nothing below this offset is needed to know what waits."""
        self._settle()
        first = self.pending.first()
        ended = (int(each.offsets.min()) for each in self._unsettled)
        return min([self.log.end_offset if first is None else first, self._held_from(), *ended])

    # Recovery

    def recover(self, files: Files, point: RecoveryPoint | None) -> None:
        """Learn what waits, from the file and from the log behind it, once the producers are recovered. Done again, it
        begins anew."""
        self._forget()
        at = self.log.segments[0].base if point is None else point.delays_from
        loaded = load(files, self, "delayed messages", decode_delays)
        if loaded is not None:
            at, (self.pending, self._held) = loaded
            self.saved_at = at
            self._named = self._to_name()
            self._settle_held()
            if point is not None:
                # The point may be newer than the file, and what tells of their end may be gone.
                offsets, _ = self.pending.entries()
                self.pending.remove_many(offsets[offsets < point.delays_from])
        first_new = len(self.pending)
        at = self._first_of_interest(max(at, self.log.segments[0].base))
        opened = self._producers.state.open_delays()
        while (found := self.log.read_kept(at, _SCAN_BYTES, 1 << 20)) is not None:
            self._replay(found.load(), opened)
            at = found.next_offset
        if len(self.pending) or first_new:
            log.info("delayed messages wait", folder=str(self.log.folder), waiting=len(self.pending))

    def _settle_held(self) -> None:
        """Of what the file says is held: what was committed since waits, what was aborted never will."""
        loaded, self._held = self._held, {}
        opened = self._producers.state.open_delays()
        for producer_id, held in loaded.items():
            offsets, dues = held.entries()
            is_held = opened.owners(offsets) == producer_id
            if is_held.any():
                self.hold(producer_id, offsets[is_held], dues[is_held])
            waits = ~is_held
            aborted = self._producers.state.aborted_delayed.mask(offsets)
            if aborted is not None:
                waits &= ~aborted
            # Compaction may have taken what was aborted, and with it what told so.
            waits[waits] = [self.log.has(offset) for offset in offsets[waits].tolist()]
            self.pending.merge(offsets[waits], dues[waits])

    def _first_of_interest(self, at: int) -> int:
        """If nothing waits, only a delayed record can be news; the lane index tells where the first one lies."""
        if len(self) or at < self.log.start_offset:
            return at
        first = lanes.first(self.log, HIDDEN, at, self.log.end_offset)
        return self.log.end_offset if first is None else first

    @property
    def path(self) -> Path:
        return self.log.folder / FILE_NAME

    def _replay(self, run: FrameRun, opened: OpenDelays) -> None:
        columns = run.columns()
        flags = columns["flags"]
        places = np.flatnonzero(flags & _OF_INTEREST)
        if not len(places):
            return
        chosen = select_frames(run, places.tolist())
        columns = chosen.columns()
        flags, offsets = columns["flags"], columns["offset"].astype(np.int64)
        sound = np.ones(len(chosen), np.bool_)
        sound[damaged_places(chosen, columns)] = False
        delayed = np.flatnonzero((flags & np.uint8(Flag.DELAYED) != 0) & sound)
        if (flags[delayed] & _TRANSACTIONAL).any():
            delayed = self._sort_out(chosen, offsets, delayed, opened)
        if len(delayed):
            self.added(offsets[delayed], due_times(chosen, delayed))
        ends = chosen.ends()
        lengths, values = columns["headers_length"], columns["value_length"]
        is_marker = (flags & np.uint8(Flag.CONTROL) != 0) & (flags & _TRANSACTIONAL != 0)
        of_ends = (flags & np.uint8(Flag.FIRED | Flag.CONTROL) != 0) & ~is_marker
        for place in np.flatnonzero(of_ends & sound).tolist():
            end = int(ends[place])
            packed = bytes(chosen.frames[end - int(lengths[place]) : end])
            if flags[place] & np.uint8(Flag.FIRED):
                origin = fired_origin(packed)
                if origin is not None:
                    self._end(origin)
                continue
            value_at = int(chosen.positions[place]) + HEADER_SIZE + int(columns["key_length"][place])
            control = read_control(
                bytes(chosen.frames[value_at : value_at + int(values[place])]), decode_headers(packed)
            )
            if control is not None:
                verb, origin, due_ns = control
                if verb == "cancel":
                    self._end(origin)
                elif due_ns is not None:
                    self._reschedule(origin, due_ns)

    def _sort_out(
        self, run: FrameRun, offsets: NDArray[np.int64], delayed: NDArray[np.intp], opened: OpenDelays
    ) -> NDArray[np.intp]:
        """Of delayed records, those that wait: not what was aborted, nor what belongs to an open transaction."""
        of_delayed = offsets[delayed]
        owners = opened.owners(of_delayed)
        for owner in np.unique(owners[owners >= 0]).tolist():
            held = delayed[owners == owner]
            self.hold(owner, offsets[held], due_times(run, held))
        waits = owners < 0
        aborted = self._producers.state.aborted_delayed.mask(of_delayed)
        return delayed[waits if aborted is None else waits & ~aborted]

    def _end(self, offset: int) -> None:
        if self.pending.remove(offset):
            self.changes += 1

    # The file

    def dump(self) -> tuple[int, bytes]:
        """What to write once everything that is in the log now is on the disk, and up to where it tells."""
        as_of = self.log.end_offset
        self._naming = self._to_name()
        self._named = np.union1d(self._named, self._naming)
        return as_of, encode_delays(self.pending, self._held, as_of)

    def saved(self, as_of: int, changes: int) -> None:
        self.saved_at, self._named = as_of, self._naming
        self.changes -= changes

    def _to_name(self) -> NDArray[np.int64]:
        if not self.log.options.compacted:
            return _NONE
        return np.unique(np.concatenate([each.entries()[0] for each in (self.pending, *self._held.values())]))
