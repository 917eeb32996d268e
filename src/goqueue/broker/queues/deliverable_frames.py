"""Which of the messages that lie next are for a group, and what becomes of the others."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from goqueue.broker.partitions.frame_validation import unsound_places
from goqueue.broker.partitions.partition import Partition
from goqueue.delivery.key_order import lane_key
from goqueue.delivery.queue import Queue
from goqueue.model.errors import InvalidFrame
from goqueue.model.message import Headers
from goqueue.model.offset_runs import OffsetRuns
from goqueue.model.ports import NANOS_PER_MS
from goqueue.model.runs import Runs, add_run, ascending_to_runs, below
from goqueue.wire.batch import Columns, FrameRun
from goqueue.wire.frame import HEADER_SIZE, INVISIBLE, decode_headers
from goqueue.wire.internal_headers import FOR_GROUP, RESERVED_PREFIX, TTL, parse_ttl_ms

_SYSTEM = RESERVED_PREFIX.encode()


@dataclass(slots=True)
class Looked:
    """The frames of a run, sorted by what is to be done with them."""

    run: FrameRun
    upto: int
    offsets: list[int]
    places: list[int] | None = None
    """Of the frames at ``offsets``; ``None``: of all frames in the run."""
    skipped: Runs | None = None
    """What is done without being delivered; ``None``: all that is not delivered."""
    expired: list[int] = field(default_factory=list)
    parked: list[tuple[int, bytes]] = field(default_factory=list)
    keys: dict[int, bytes] = field(default_factory=dict)
    """Under key order, the keys of what is delivered."""
    is_stopped: bool = False
    """Whether what comes next would have to be parked, and there is no room for it."""

    @property
    def runs(self) -> Runs:
        offsets = self.offsets
        if offsets and offsets[-1] - offsets[0] == len(offsets) - 1:
            return [offsets[0], offsets[-1] + 1]
        return ascending_to_runs(offsets)

    def keep_within(self, most: int) -> None:
        """Under key order more was read than there is room for; what is beyond is left for the next look."""
        if len(self.offsets) <= most:
            return
        cut = self.upto = self.offsets[most]
        self.is_stopped = False
        self.offsets = self.offsets[:most]
        self.places = list(range(most)) if self.places is None else self.places[:most]
        self.parked = [each for each in self.parked if each[0] < cut]
        self.expired = [each for each in self.expired if each < cut]
        self.keys = {offset: key for offset, key in self.keys.items() if offset < cut}
        if self.skipped is not None:
            self.skipped = below(self.skipped, cut)

    def go_on_to(self, upto: int) -> None:
        """Nothing else of the lane lies before ``upto``."""
        if self.skipped is not None:
            add_run(self.skipped, self.upto, upto)
        self.upto = upto


@dataclass(frozen=True, slots=True)
class Sight:
    """What a group goes by when it looks at new messages."""

    group: str
    now_ns: int
    ttl_ms: int | None
    keeps_expired: bool
    """Whether what has expired becomes a dead letter; else it is skipped."""
    max_parked: int
    aborted: OffsetRuns
    """What no group sees of the partition: records of transactions that were aborted."""


def look(queue: Queue, lane: int, partition: Partition, run: FrameRun, upto: int, sight: Sight) -> Looked:
    """``run`` is what a lane has from its cursor on to before ``upto``."""
    columns = run.columns()
    cursor = queue.cursor(lane)
    offsets: list[int] = columns["offset"].tolist()
    damaged = unsound_places(partition, run, columns)
    hidden, expired = _not_for_all(run, columns, sight)
    hidden |= damaged
    known = queue.lanes.get(lane)
    if queue.moving or (known is not None and known.acked.end > cursor):
        # After a reset some of what comes may be on its way to the dead letters, or there already.
        hidden |= {place for place, each in enumerate(offsets) if each in queue.moving or queue.is_done(each, lane)}
    if not hidden and not expired and queue.keys is None:
        return Looked(run, upto, offsets)
    return _sort(queue, lane, run, upto, offsets, hidden, expired, sight)


def expired_places(run: FrameRun, sight: Sight) -> set[int]:
    """Of frames that were seen before: those whose time to live is over now."""
    return _not_for_all(run, run.columns(), sight)[1]


def passed_by(run: FrameRun, sight: Sight) -> tuple[set[int], set[int]]:
    """Frames that a stream does not show: the system's own and what was redriven for another group; what expired."""
    hidden, expired = _not_for_all(run, run.columns(), sight)
    return hidden, expired - hidden


def _sort(
    queue: Queue,
    lane: int,
    run: FrameRun,
    upto: int,
    offsets: list[int],
    hidden: set[int],
    expired: set[int],
    sight: Sight,
) -> Looked:
    places: list[int] = []
    skipped: Runs = []
    looked = Looked(run, upto, [], places, skipped)
    keys = None if queue.keys is None else keys_of(run)
    taken: set[bytes] = set()
    at = queue.cursor(lane)
    for place, offset in enumerate(offsets):
        if offset < at:
            continue
        # Offsets of other lanes, and those that nobody has any more: compaction took them, or they are damaged.
        add_run(skipped, at, offset)
        at = offset + 1
        if place in hidden:
            if offset not in queue.moving:
                add_run(skipped, offset, at)
            continue
        if place in expired:
            looked.expired.append(offset)
            if not sight.keeps_expired:
                add_run(skipped, offset, at)
            continue
        if queue.keys is not None and keys is not None and (key := lane_key(lane, keys[place])):
            if key in taken or queue.keys.is_busy(key):
                if queue.keys.parked_count + len(looked.parked) >= sight.max_parked:
                    # No more room for those that wait: this is how far the scan of this lane goes.
                    looked.upto = offset
                    looked.is_stopped = True
                    return looked
                looked.parked.append((offset, key))
                continue
            taken.add(key)
            looked.keys[offset] = key
        looked.offsets.append(offset)
        places.append(place)
    add_run(skipped, at, upto)
    return looked


def _not_for_all(run: FrameRun, columns: Columns, sight: Sight) -> tuple[set[int], set[int]]:
    """Places of frames that this group is not to see, and of those whose time to live is over."""
    hidden: set[int] = set()
    if columns["flags"].any():
        hidden |= set(np.flatnonzero(columns["flags"] & np.uint8(INVISIBLE)).tolist())
    if len(sight.aborted) and (aborted := sight.aborted.mask(columns["offset"].astype(np.int64))) is not None:
        hidden |= set(np.flatnonzero(aborted).tolist())
    expired = _expired(columns, sight)
    if columns["headers_length"].any():
        _look_at_headers(run, columns, sight, hidden, expired)
    return hidden, expired


def _expired(columns: Columns, sight: Sight) -> set[int]:
    if sight.ttl_ms is None:
        return set()
    return set(np.flatnonzero(columns["timestamp"] <= sight.now_ns - sight.ttl_ms * NANOS_PER_MS).tolist())


def _look_at_headers(run: FrameRun, columns: Columns, sight: Sight, hidden: set[int], expired: set[int]) -> None:
    ends, lengths = run.ends(), columns["headers_length"]
    for place in np.flatnonzero(lengths).tolist():
        end = int(ends[place])
        packed = bytes(run.frames[end - int(lengths[place]) : end])
        if place in hidden or _SYSTEM not in packed:
            continue
        for name, value in _headers(packed):
            if name == FOR_GROUP and value != sight.group.encode():
                hidden.add(place)
            elif name == TTL and (ttl_ms := parse_ttl_ms(value)) is not None:
                if int(columns["timestamp"][place]) + ttl_ms * NANOS_PER_MS <= sight.now_ns:
                    expired.add(place)
                elif sight.ttl_ms is not None:
                    # The message's own time to live stands above the topic's.
                    expired.discard(place)


def _headers(packed: bytes) -> Headers:
    try:
        return decode_headers(packed)
    except InvalidFrame:
        return ()


def keys_of(run: FrameRun) -> list[bytes]:
    """The key of every frame; empty for none."""
    starts = run.positions + np.uint32(HEADER_SIZE)
    ends = starts + run.columns()["key_length"]
    return [bytes(run.frames[start:end]) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
