"""Key order: one message of a key in flight at a time, in the order of offsets.

Messages of different lanes do not wait for each other: the lane is part of what is called a key here (``lane_key``).
Derived state: which offsets are outstanding is known to the queue, which keys they have is in the log.
"""

from __future__ import annotations

from collections import deque
from itertools import islice


def lane_key(lane: int, key: bytes) -> bytes:
    """Identifies the key within its lane; empty for messages without a key."""
    return bytes((lane,)) + key if key else b""


class KeyOrder:
    """A key is busy while one of its messages is outstanding; later ones are parked until it is done."""

    def __init__(self) -> None:
        self._keys: dict[int, bytes] = {}
        """The key of every offset that is outstanding or parked and has one."""
        self._busy: dict[bytes, int] = {}
        self._parked: dict[bytes, deque[int]] = {}
        self._ready: dict[int, dict[int, None]] = {}
        """By lane, parked offsets whose key is free, in the order in which it became so; the key is theirs already."""
        self._lanes: dict[int, int] = {}
        """The lane of each offset in ``_ready``."""
        self.parked_count = 0
        self.stopped: set[int] = set()
        """Lanes whose next message would have to be parked, when there is no more room for that."""

    @property
    def has_ready(self) -> bool:
        return bool(self._lanes)

    def is_busy(self, key: bytes) -> bool:
        """Whether a message of this key is outstanding."""
        return key in self._busy

    def hold(self, offset: int, key: bytes) -> None:
        """This message is outstanding."""
        if key:
            self._keys[offset] = key
            self._busy[key] = offset

    def park(self, offset: int, key: bytes) -> None:
        """This message waits for the one that holds its key. Offsets of a key come in ascending order."""
        self._keys[offset] = key
        self._parked.setdefault(key, deque()).append(offset)
        self.parked_count += 1

    def make_ready(self, offset: int, key: bytes, lane: int) -> None:
        """Not outstanding, and its key is free: it is to be delivered next."""
        self.hold(offset, key)
        self._add_ready(offset, lane)
        self.parked_count += 1

    def _add_ready(self, offset: int, lane: int) -> None:
        self._lanes[offset] = lane
        self._ready.setdefault(lane, {})[offset] = None

    def ready(self, most: int, lane: int) -> list[int]:
        """The first parked messages whose key is free."""
        return list(islice(self._ready.get(lane, ()), most))

    def ready_count(self, lane: int) -> int:
        return len(self._ready.get(lane, ()))

    def is_ready(self, offset: int) -> bool:
        return offset in self._lanes

    def take(self, offset: int) -> None:
        """A parked message whose key is free is delivered."""
        del self._ready[self._lanes.pop(offset)][offset]
        self.parked_count -= 1
        self.stopped.clear()

    def release(self, first: int, end: int, lane: int | None = None) -> None:
        """These are done, or those of them that are of a lane: the next messages of their keys become ready."""
        if end - first > len(self._keys):
            offsets = [offset for offset in self._keys if first <= offset < end]
        else:
            offsets = [offset for offset in range(first, end) if offset in self._keys]
        for offset in offsets:
            if lane is None or self._keys[offset][0] == lane:
                self._release_one(offset)

    def _release_one(self, offset: int) -> None:
        key = self._keys.pop(offset)
        self.stopped.clear()
        if self._busy.get(key) != offset:
            # Parked and yet done: it has left the log.
            waiting = self._parked.get(key)
            if waiting is not None and offset in waiting:
                waiting.remove(offset)
                self.parked_count -= 1
                if not waiting:
                    del self._parked[key]
            return
        if offset in self._lanes:
            self.take(offset)
        waiting = self._parked.get(key)
        if waiting:
            following = waiting.popleft()
            if not waiting:
                del self._parked[key]
            self._busy[key] = following
            self._add_ready(following, key[0])
        else:
            del self._busy[key]
