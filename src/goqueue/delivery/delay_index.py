"""The delayed messages of one partition that have not become visible yet: which offsets, and when each is due.

Two flat arrays side by side, 16 bytes a message. What is no longer pending is marked, and the marked ones are cleared
away when they are the greater part.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from goqueue.model.errors import CorruptData

Numbers = NDArray[np.int64]

_DONE = -1
"""The due time of an offset that is no longer pending. True ones are never negative."""
_FEW_DONE = 1_024
"""So many may lie around in any case."""
_FEW = 32
"""So many are looked up one by one in less time than all of them as a column."""
_SEARCH = 4_096
_DUMP_VERSION = 1
_DUMP_HEAD = Struct("<Iqq")


class PendingDelays:
    """Offsets are added in ascending order, and leave in any."""

    __slots__ = ("_done", "_dues", "_first", "_offsets")

    def __init__(self) -> None:
        self._offsets = array("q")
        self._dues = array("q")
        self._done = 0
        """How many of the due times are marked."""
        self._first = 0
        """All places below are marked."""

    def __len__(self) -> int:
        return len(self._offsets) - self._done

    def add(self, offset: int, due_ns: int) -> None:
        if due_ns < 0 or (self._offsets and offset <= self._offsets[-1]):
            raise ValueError(f"offset {offset} (due {due_ns}) must be above all others, and due after 1970")
        self._offsets.append(offset)
        self._dues.append(due_ns)

    def add_many(self, offsets: Numbers, dues: Numbers) -> None:
        if not len(offsets):
            return
        last = self._offsets[-1] if self._offsets else int(offsets[0]) - 1
        if len(offsets) != len(dues) or dues.min() < 0 or not (np.diff(offsets, prepend=last) > 0).all():
            raise ValueError(f"offsets from {offsets[0]} on must ascend from above {last}, and be due after 1970")
        self._offsets.frombytes(offsets.astype(np.int64).tobytes())
        self._dues.frombytes(dues.astype(np.int64).tobytes())

    def merge(self, offsets: Numbers, dues: Numbers) -> None:
        """Like ``add_many``, of offsets that may lie among the others: only what lies behind the first is moved."""
        if not len(offsets):
            return
        at = bisect_left(self._offsets, int(offsets[0]))
        later = np.frombuffer(self._offsets[at:], np.int64), np.frombuffer(self._dues[at:], np.int64)
        together = np.concatenate((later[0], offsets.astype(np.int64)))
        order = np.argsort(together, kind="stable")
        del self._offsets[at:], self._dues[at:]
        self._first = min(self._first, at)
        self._offsets.frombytes(together[order].tobytes())
        self._dues.frombytes(np.concatenate((later[1], dues.astype(np.int64)))[order].tobytes())

    def due(self, offset: int) -> int | None:
        """When it is due; ``None`` if it is not pending."""
        place = self._place(offset)
        return None if place is None else self._dues[place]

    def dues_of(self, offsets: Numbers) -> Numbers:
        """When these are due; -1 for those that are not pending."""
        if len(offsets) <= _FEW:
            found = [self._place(offset) for offset in offsets.tolist()]
            return np.array([_DONE if place is None else self._dues[place] for place in found], np.int64)
        if not len(self._offsets):
            return np.full(len(offsets), _DONE, np.int64)
        places, is_there = self._places(offsets)
        return np.where(is_there, np.frombuffer(self._dues, np.int64)[places], _DONE)

    def restore(self, offsets: Numbers, dues: Numbers) -> None:
        """These offsets, in any order and each once, are pending again, or due at another time."""
        if not len(offsets):
            return
        order = np.argsort(offsets)
        offsets, dues = offsets[order], dues[order]
        if not len(self._offsets):
            self.add_many(offsets, dues)
            return
        places, is_there = self._places(offsets)
        here = places[is_there]
        if len(here):
            known = np.frombuffer(self._dues, np.int64)
            self._done -= int(np.count_nonzero(known[here] == _DONE))
            known[here] = dues[is_there]
            # The arrays cannot grow while this looks into one of them.
            del known
            self._first = min(self._first, int(here[0]))
        self.merge(offsets[~is_there], dues[~is_there])

    def remove(self, offset: int) -> bool:
        """Whether it was pending."""
        place = self._place(offset)
        if place is None:
            return False
        self._dues[place] = _DONE
        self._done += 1
        self._clear_away()
        return True

    def remove_many(self, offsets: Numbers) -> None:
        """Those that are not pending are passed over."""
        if len(offsets) <= _FEW:
            for offset in offsets.tolist():
                self.remove(offset)
            return
        if not len(self._offsets):
            return
        dues = np.frombuffer(self._dues, np.int64)
        places, found = self._places(offsets)
        places = np.sort(places[found & (dues[places] != _DONE)])
        dues[places] = _DONE
        # The array cannot be exchanged for a smaller one while this looks into it.
        del dues
        # One that is named twice counts once.
        self._done += int(np.count_nonzero(np.diff(places, prepend=-1)))
        self._clear_away()

    def reschedule(self, offset: int, due_ns: int) -> bool:
        """Whether it was pending."""
        if due_ns < 0:
            raise ValueError(f"offset {offset} cannot be due at {due_ns}, before 1970")
        place = self._place(offset)
        if place is None:
            return False
        self._dues[place] = due_ns
        return True

    def first(self) -> int | None:
        """The lowest offset that is pending."""
        # Each place is passed once until the marked ones are cleared away, so this is cheap over time.
        while self._first < len(self._dues) and self._dues[self._first] == _DONE:
            ahead = np.frombuffer(self._dues, np.int64)[self._first : self._first + _SEARCH] != _DONE
            self._first += int(ahead.argmax()) if ahead.any() else len(ahead)
        return self._offsets[self._first] if self._first < len(self._offsets) else None

    def next_due_ns(self) -> int | None:
        """When the first of them is due."""
        if not len(self):
            return None
        dues = np.frombuffer(self._dues, np.int64)
        return int(dues.min() if not self._done else dues[dues != _DONE].min())

    def any_between(self, low: int, high: int) -> bool:
        """Whether one is pending from ``low`` to before ``high``."""
        first = self.first()
        if first is None or first >= high:
            return False
        start = bisect_left(self._offsets, low, self._first)
        end = bisect_left(self._offsets, high, start)
        dues = np.frombuffer(self._dues, np.int64)
        return any((dues[place : min(place + _SEARCH, end)] != _DONE).any() for place in range(start, end, _SEARCH))

    def is_due(self, offsets: Numbers, dues: Numbers) -> NDArray[np.bool_]:
        """Which of these are pending with exactly that due time."""
        if len(offsets) <= _FEW:
            rows = zip(offsets.tolist(), dues.tolist(), strict=True)
            return np.array([self.due(offset) == due_ns for offset, due_ns in rows], np.bool_)
        if not len(self._offsets):
            return np.zeros(len(offsets), np.bool_)
        places, found = self._places(offsets)
        matches: NDArray[np.bool_] = found & (np.frombuffer(self._dues, np.int64)[places] == dues) & (dues != _DONE)
        return matches

    def entries(self) -> tuple[Numbers, Numbers]:
        """All offsets that are pending, ascending, and their due times; copies."""
        offsets, dues = np.array(self._offsets, np.int64), np.array(self._dues, np.int64)
        if self._done:
            pending = dues != _DONE
            offsets, dues = offsets[pending], dues[pending]
        return offsets, dues

    def earliest(self, most: int, after: tuple[int, int] | None = None) -> list[tuple[int, int]]:
        """The first ``most`` as (due time, offset) in that order, of those that lie strictly behind ``after``."""
        dues = np.frombuffer(self._dues, np.int64)
        offsets = np.frombuffer(self._offsets, np.int64)
        if after is None:
            chosen = np.flatnonzero(dues != _DONE)
        else:
            due_ns, offset = after
            chosen = np.flatnonzero((dues > due_ns) | ((dues == due_ns) & (offsets > offset)))
        if most <= 0 or not len(chosen):
            return []
        if len(chosen) > most:
            times = dues[chosen]
            last = np.partition(times, most - 1)[most - 1]
            before = chosen[times < last]
            # Of those that are due at the same time the lowest offsets are taken: there may be a million of them.
            level = chosen[times == last][: most - len(before)]
            chosen = np.concatenate([before, level])
        # Equal times stay in the order of offsets.
        chosen = chosen[np.argsort(dues[chosen], kind="stable")]
        return list(zip(dues[chosen].tolist(), offsets[chosen].tolist(), strict=True))

    def cut(self, end: int) -> None:
        """Forget all offsets from ``end`` on."""
        if not len(self._offsets):
            return
        place = bisect_left(self._offsets, end)
        self._done -= int(np.count_nonzero(np.frombuffer(self._dues, np.int64)[place:] == _DONE))
        del self._offsets[place:], self._dues[place:]
        self._first = min(self._first, place)

    def dump(self, as_of: int) -> bytes:
        """All that is pending, with a number that tells how far in the log this is true."""
        offsets, dues = self.entries()
        head = _DUMP_HEAD.pack(_DUMP_VERSION, as_of, len(offsets))
        return b"".join((head, offsets.astype("<i8").tobytes(), dues.astype("<i8").tobytes()))

    @staticmethod
    def load(dumped: bytes) -> tuple[int, PendingDelays]:
        """The opposite of ``dump``; raises ``CorruptData`` for anything it could not have made."""
        if len(dumped) < _DUMP_HEAD.size:
            raise CorruptData(f"pending delays begin with {_DUMP_HEAD.size} bytes; here are {len(dumped)}")
        version, as_of, count = _DUMP_HEAD.unpack_from(dumped)
        if version != _DUMP_VERSION:
            raise CorruptData(f"pending delays of version {version}; this broker reads version {_DUMP_VERSION}")
        if count < 0 or len(dumped) != _DUMP_HEAD.size + 16 * count:
            raise CorruptData(f"{count} pending delays do not take {len(dumped)} bytes")
        numbers = np.frombuffer(dumped, "<i8", 2 * count, _DUMP_HEAD.size)
        pending = PendingDelays()
        try:
            pending.add_many(numbers[:count], numbers[count:])
        except ValueError as error:
            raise CorruptData(f"pending delays are out of order: {error}") from None
        return as_of, pending

    def _place(self, offset: int) -> int | None:
        place = bisect_left(self._offsets, offset)
        if place < len(self._offsets) and self._offsets[place] == offset and self._dues[place] != _DONE:
            return place
        return None

    def _places(self, offsets: Numbers) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Where these offsets would be, and whether they are there, pending or not. There must be some."""
        known = np.frombuffer(self._offsets, np.int64)
        places = np.minimum(np.searchsorted(known, offsets), len(known) - 1)
        return places, known[places] == offsets

    def _clear_away(self) -> None:
        if self._done <= _FEW_DONE or self._done * 2 <= len(self._offsets):
            return
        offsets, dues = self.entries()
        self._offsets, self._dues = array("q", offsets.tobytes()), array("q", dues.tobytes())
        self._done = self._first = 0
