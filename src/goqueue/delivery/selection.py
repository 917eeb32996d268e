"""Which of a lane's next messages are delivered, and which are skipped, expired, or parked until their key is free."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from goqueue.delivery.dead_letters import FindTarget
from goqueue.delivery.key_order import KeyOrder, lane_key
from goqueue.delivery.queue import Queue
from goqueue.model.clock import NANOS_PER_MS
from goqueue.model.runs import Runs, add_run, ascending_to_runs, below


class Candidates(msgspec.Struct, frozen=True):
    """What a lane has from its cursor on to before ``upto``, in the order of offsets; sets and lists go by index."""

    offsets: list[int]
    upto: int
    hidden: set[int]
    """Messages that the group is not to see, be they the system's own, damaged or aborted."""
    expired: set[int]
    """Messages whose time to live is over."""
    keys: list[bytes] | None = None
    """Under key order, the key of each message; empty for none."""


class FetchTerms(msgspec.Struct, frozen=True):
    """Who fetches from which lane, and what the decision goes by beside the queue."""

    member: str
    lane: int
    until_ns: int
    """When the visibility timeout of a delivery ends."""
    keeps_expired: bool
    """Whether expired messages become dead letters; else they are skipped."""
    max_parked: int
    """How many messages of the queue may be parked at most."""
    find_target: FindTarget


@dataclass(slots=True)
class Selection:
    """What is to be done with the candidates, up to ``upto``."""

    upto: int
    offsets: list[int]
    """Messages to deliver."""
    indexes: list[int] | None = None
    """Of ``offsets`` among the candidates; ``None``: they are all of them."""
    skipped: Runs | None = None
    """What is done without being delivered; ``None``: all that is not delivered."""
    expired: list[int] = field(default_factory=list)
    parked: list[tuple[int, bytes]] = field(default_factory=list)
    keys: dict[int, bytes] = field(default_factory=dict)
    """Under key order, the keys of what is delivered."""
    is_stopped: bool = False
    """Whether the next message would have to be parked, and there is no room for it."""

    @property
    def runs(self) -> Runs:
        offsets = self.offsets
        if offsets and offsets[-1] - offsets[0] == len(offsets) - 1:
            return [offsets[0], offsets[-1] + 1]
        return ascending_to_runs(offsets)

    def keep_within(self, most: int) -> None:
        """Under key order more is read than there is room for; what is beyond is left for the next fetch."""
        if len(self.offsets) <= most:
            return
        cut = self.upto = self.offsets[most]
        self.is_stopped = False
        self.offsets = self.offsets[:most]
        self.indexes = list(range(most)) if self.indexes is None else self.indexes[:most]
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

    def note_keys(self, keys: KeyOrder, lane: int) -> None:
        """Once the delivery was applied: hold the keys of what is delivered, and park what waits for them."""
        for offset, key in self.keys.items():
            keys.hold(offset, key)
        for offset, key in self.parked:
            keys.park(offset, key)
        if self.is_stopped:
            keys.stopped.add(lane)


def select(queue: Queue, candidates: Candidates, terms: FetchTerms) -> Selection:
    """Sort a lane's next messages by what is to be done with them."""
    lane = terms.lane
    cursor, offsets, hidden = queue.cursor(lane), candidates.offsets, candidates.hidden
    known = queue.lanes.get(lane)
    if queue.moving or (known is not None and known.acked.end > cursor):
        # After a reset some of what comes may be on its way to the dead letters, or there already.
        hidden = hidden | {
            index for index, each in enumerate(offsets) if each in queue.moving or queue.is_done(each, lane)
        }
    if not hidden and not candidates.expired and queue.keys is None:
        return Selection(candidates.upto, offsets)
    return _sort(queue, candidates, hidden, terms)


def _sort(queue: Queue, candidates: Candidates, hidden: set[int], terms: FetchTerms) -> Selection:
    lane = terms.lane
    indexes: list[int] = []
    skipped: Runs = []
    selection = Selection(candidates.upto, [], indexes, skipped)
    keys = candidates.keys
    taken: set[bytes] = set()
    at = queue.cursor(lane)
    for index, offset in enumerate(candidates.offsets):
        if offset < at:
            continue
        # Offsets of other lanes, and those without a message any more: compacted away, or damaged.
        add_run(skipped, at, offset)
        at = offset + 1
        if index in hidden:
            if offset not in queue.moving:
                add_run(skipped, offset, at)
            continue
        if index in candidates.expired:
            selection.expired.append(offset)
            if not terms.keeps_expired:
                add_run(skipped, offset, at)
            continue
        if queue.keys is not None and keys is not None and (key := lane_key(lane, keys[index])):
            if key in taken or queue.keys.is_busy(key):
                if queue.keys.parked_count + len(selection.parked) >= terms.max_parked:
                    # No more room for parked messages: this is how far the scan of this lane goes.
                    selection.upto = offset
                    selection.is_stopped = True
                    return selection
                selection.parked.append((offset, key))
                continue
            taken.add(key)
            selection.keys[offset] = key
        selection.offsets.append(offset)
        indexes.append(index)
    add_run(skipped, at, candidates.upto)
    return selection


def expired_indexes(
    timestamps: NDArray[np.int64], own_ttls: Iterable[tuple[int, int]], topic_ttl_ms: int | None, now_ns: int
) -> set[int]:
    """Indexes of the messages whose time to live is over.

    ``own_ttls`` pairs the index of a message with its own time to live in milliseconds, which stands above the topic's.
    """
    expired: set[int] = set()
    if topic_ttl_ms is not None:
        expired.update(np.flatnonzero(timestamps <= now_ns - topic_ttl_ms * NANOS_PER_MS).tolist())
    for index, ttl_ms in own_ttls:
        if int(timestamps[index]) + ttl_ms * NANOS_PER_MS <= now_ns:
            expired.add(index)
        elif topic_ttl_ms is not None:
            expired.discard(index)
    return expired
