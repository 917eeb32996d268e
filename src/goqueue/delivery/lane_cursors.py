"""How far a group has come in each lane of one partition.

Each lane has its own cursor. ``front`` is the highest offset that any of them has reached. A lane without an entry in
``by_number`` has nothing below the front that is not done, so a queue of one lane, or an empty one, costs no more than
if there were no lanes.
"""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.delivery.lane import Lane


class LaneCursors:
    """The cursors and acked offsets of all lanes of a queue. Only events of the queue change them."""

    __slots__ = ("by_number", "front")

    def __init__(self, start: int) -> None:
        self.front = start
        self.by_number: dict[int, Lane] = {}

    @property
    def committed(self) -> int:
        """The end of the prefix that is done in every lane."""
        return min([self.front, *(lane.acked.prefix for lane in self.by_number.values())])

    @property
    def known_end(self) -> int:
        """No lane has come to an offset from here on, or is done with one."""
        return max([self.front, *(lane.acked.end for lane in self.by_number.values())])

    def cursor(self, number: int) -> int:
        """The offset from which to look for a lane's next messages."""
        found = self.by_number.get(number)
        return self.front if found is None else found.cursor

    def is_done(self, offset: int, number: int) -> bool:
        """Whether the group is done with an offset that is known to be of this lane."""
        found = self.by_number.get(number)
        return offset < self.front if found is None else offset in found.acked

    def open(self, number: int) -> Lane:
        """The lane's entry, made if it has none: something in it is about to be not done, or done beyond the front."""
        lane = self.by_number.get(number)
        if lane is None:
            lane = self.by_number[number] = Lane(self.front)
        return lane

    def tidy(self, number: int, lane: Lane) -> None:
        """Remove the entry of a lane in which everything up to the front is done."""
        # After a reset something beyond the front may be done already, and must be remembered.
        if lane.acked.prefix == self.front and not lane.acked.above:
            self.by_number.pop(number, None)

    def advance(self, number: int, lane: Lane, upto: int, left: Sequence[tuple[int, int]]) -> None:
        """Move one lane's cursor to ``upto``.

        If this is beyond the front, other lanes that stood at the front stop at what they have behind it, which
        ``left`` names by lane, or go along.
        """
        if upto > self.front:
            self._move_front(number, upto, dict(left))
        lane.cursor = max(lane.cursor, upto)
        self.tidy(number, lane)

    def _move_front(self, moving: int, upto: int, left: dict[int, int]) -> None:
        before, self.front = self.front, upto
        for number in left:
            if number not in self.by_number:
                self.by_number[number] = Lane(before)
        for number, lane in list(self.by_number.items()):
            if lane.cursor == before and number != moving:
                end = left.get(number, upto)
                lane.acked.add(before, end)
                lane.cursor = end
                self.tidy(number, lane)

    def restart(self, offset: int) -> None:
        """All lanes are done below ``offset`` and with nothing else."""
        self.by_number.clear()
        self.front = offset

    def drop_below(self, start: int) -> None:
        """The log begins at ``start``: everything below counts as done."""
        self.front = max(self.front, start)
        for number, lane in list(self.by_number.items()):
            lane.acked.add(0, start)
            lane.cursor = max(lane.cursor, start)
            self.tidy(number, lane)

    def cut(self, end: int) -> None:
        """Forget everything from ``end`` on: other messages will have these offsets."""
        self.front = min(self.front, end)
        for number, lane in list(self.by_number.items()):
            lane.acked.cut(end)
            lane.cursor = min(lane.cursor, end)
            self.tidy(number, lane)
