"""Deficit round robin over priority lanes: each lane gets deliveries in proportion to its weight.

In a round every lane may deliver as many messages as its weight, the more urgent lane first. The round ends when no
lane with a backlog may deliver any more; then the next begins with full weights. Nothing is saved up: a lane that was
empty for long gets one weight in a round like any other. No lane starves: one that has had a backlog for long while
others were served goes first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from goqueue.model.message import PRIORITY_LABELS

_LANES = len(PRIORITY_LABELS)
_ENDLESS = 1 << 62


class LaneScheduler:
    """Plans how many messages a poll takes from each lane.

    It counts what was really served, so a plan that is not kept does no harm.
    """

    __slots__ = ("_left", "_used", "_weights", "last_served_ns", "waiting_since")

    def __init__(self) -> None:
        self._weights: Sequence[int] = ()
        self._used = [0] * _LANES
        """Served in this round. More than a lane's weight if a plan reached into rounds to come."""
        self._left: dict[int, int] = {}
        """By lane: its backlog when the last plan was made, less what was served since."""
        self.last_served_ns: dict[int, int] = {}
        self.waiting_since: dict[int, int] = {}
        """Lanes with a backlog: since when they have one, or when they were last served."""

    def plan(
        self, backlog: Mapping[int, int], room: int, weights: Sequence[int], starvation_ns: int, now_ns: int
    ) -> list[tuple[int, int]]:
        """How many to take from which lane, in this order; as many as there is room for, if there are as many.

        A lane may come twice: with what it may take in this round, and with what it may take in rounds to come. A poll
        that stops in the middle has therefore passed over no lane. A count in ``backlog`` need not be more than
        ``room``. Planning serves nothing: call ``note_served`` afterwards.
        """
        left = {lane: count for lane, count in sorted(backlog.items()) if count > 0}
        self._note_waiting(left, now_ns)
        if not left or room <= 0:
            return []
        self._adopt_weights(weights)
        self._end_rounds(left, weights)
        # A count may have been cut at the room: then the backlog is at least that.
        self._left = {lane: count if count < room else _ENDLESS for lane, count in left.items()}
        if len(left) == 1:
            return [(lane, min(count, room)) for lane, count in left.items()]
        # After a time in which no lane was served none was passed over, and what is urgent comes first.
        is_idle = now_ns - max(self.last_served_ns.values(), default=now_ns) >= starvation_ns
        hungry = [lane for lane in left if not is_idle and now_ns - self.waiting_since[lane] >= starvation_ns]
        hungry.sort(key=self.waiting_since.__getitem__)
        order = [*hungry, *(lane for lane in left if lane not in hungry)]
        plan = _PlanBuilder(left, room, list(self._used), weights)
        for lane in hungry:
            plan.take(lane, 1)
        plan.fill_round(order)
        of_this_round = list(plan.taken.items())
        plan.taken.clear()
        plan.fill_rounds_to_come(order)
        return _joined(of_this_round, list(plan.taken.items()))

    def note_served(self, lane: int, count: int, now_ns: int) -> None:
        """So many were really taken from a lane."""
        if count <= 0:
            return
        self._used[lane] += count
        if lane in self._left:
            self._left[lane] -= count
        self.last_served_ns[lane] = now_ns
        if lane in self.waiting_since:
            self.waiting_since[lane] = now_ns

    def _note_waiting(self, left: Mapping[int, int], now_ns: int) -> None:
        for lane in [lane for lane in self.waiting_since if lane not in left]:
            del self.waiting_since[lane]
        for lane in left:
            self.waiting_since.setdefault(lane, now_ns)

    def _adopt_weights(self, weights: Sequence[int]) -> None:
        """Changed weights hold from now on: a lane that had used half of its round has used half of the new one."""
        if self._weights and list(weights) != list(self._weights):
            both = zip(self._used, weights, self._weights, strict=True)
            self._used = [used * new // old for used, new, old in both]
        self._weights = weights

    def _end_rounds(self, left: Mapping[int, int], weights: Sequence[int]) -> None:
        """Close the rounds that what was served has filled.

        Only a lane that had a backlog, and still has, can have kept a round open. A lane that was alone and used the
        shares of all others therefore owes them nothing.
        """
        waited = [lane for lane, count in self._left.items() if count > 0 and lane in left]
        full = [self._used[lane] // weights[lane] for lane in waited]
        ended = min(full) if full else max(used // weight for used, weight in zip(self._used, weights, strict=True))
        if ended:
            self._used = _after_rounds(self._used, weights, ended)


class _PlanBuilder:
    """Divides the room of one plan, on a copy of what the lanes have used."""

    __slots__ = ("_left", "_room", "_used", "_weights", "taken")

    def __init__(self, left: dict[int, int], room: int, used: list[int], weights: Sequence[int]) -> None:
        self._left = left
        self._room = room
        self._used = used
        self._weights = weights
        self.taken: dict[int, int] = {}
        """By lane, in the order in which lanes were first served."""

    def take(self, lane: int, most: int) -> None:
        count = min(most, self._left.get(lane, 0), self._room)
        if count > 0:
            self.taken[lane] = self.taken.get(lane, 0) + count
            self._used[lane] += count
            self._room -= count
            self._left[lane] -= count
            if not self._left[lane]:
                del self._left[lane]

    def fill_round(self, order: Sequence[int]) -> None:
        """What the lanes may still take in this round."""
        for lane in order:
            self.take(lane, self._weights[lane] - self._used[lane])

    def fill_rounds_to_come(self, order: Sequence[int]) -> None:
        """Further rounds until there is no room, or nothing left. Whole ones are taken at one stroke."""
        weights, used = self._weights, self._used
        while self._room and self._left:
            ended = min([used[lane] // weights[lane] for lane in self._left])
            used[:] = _after_rounds(used, weights, ended)
            if not any(used[lane] for lane in self._left):
                self._take_whole_rounds()
            self.fill_round(order)

    def _take_whole_rounds(self) -> None:
        weights = self._weights
        rounds = min([count // weights[lane] for lane, count in self._left.items()])
        rounds = min(rounds, self._room // sum([weights[lane] for lane in self._left]))
        if rounds:
            for lane in list(self._left):
                self.take(lane, rounds * weights[lane])
                self._used[lane] = 0


def _after_rounds(used: Sequence[int], weights: Sequence[int], rounds: int) -> list[int]:
    return [max(0, count - rounds * weight) for count, weight in zip(used, weights, strict=True)]


def _joined(first: list[tuple[int, int]], then: list[tuple[int, int]]) -> list[tuple[int, int]]:
    if first and then and first[-1][0] == then[0][0]:
        lane = first[-1][0]
        return [*first[:-1], (lane, first[-1][1] + then[0][1]), *then[1:]]
    return first + then
