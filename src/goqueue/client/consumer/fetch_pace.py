"""How many messages of a queue a consumer wants in flight: as many as are wanted now, and some ahead if it is quick.

What waits in a consumer, others do not get. So nothing is fetched before somebody asks for it, and ahead of that only
what will be handled within a moment, by the pace of late. Of a slow handler this is nothing, and a small backlog is
shared by all who work on it; a quick one has what it takes never to wait. It grows twofold at a time, which takes a few
round trips.
"""

from __future__ import annotations

from collections.abc import Callable

AHEAD_S = 0.25
"""What is fetched ahead is handled within so much time."""
_SHORTEST_S = 1e-6


class Pace:
    """All times come from ``clock``, in seconds."""

    def __init__(
        self, most: int, in_hand: Callable[[], int], tell: Callable[[int], None], clock: Callable[[], float]
    ) -> None:
        """``in_hand``: how many were handed out and are not settled. ``tell`` hears of every new window."""
        self._most = most
        self._in_hand = in_hand
        self._tell = tell
        self._clock = clock
        self.window = 0
        """How many messages may be in flight now, handed out or not."""
        self.takers = 1
        """How many are expected to have one in hand at a time."""
        self._waiting = 0
        self._left_open = 0
        """How many the last one wanted who went away without any."""
        self._finished = 0
        self._since = clock()
        self._is_measured = False
        self._per_s = 0.0

    @property
    def ahead(self) -> int:
        """How many can be handled soon beyond those in hand."""
        return min(self._most, int(self._per_s * AHEAD_S))

    @property
    def keeps(self) -> int:
        """How many may wait here without being given back."""
        return max(self._left_open, 2 * self.ahead + 1)

    @property
    def _wanted(self) -> int:
        return max(self._waiting, self._left_open)

    def begins(self, messages: int) -> None:
        """Somebody waits for so many messages."""
        self._waiting += messages
        self._left_open = 0
        self.takers = max(self.takers, self._waiting)

    def met(self, messages: int) -> None:
        """Some have come for him."""
        self._waiting -= messages
        if not self._finished:
            # Waiting says nothing of how quick the work is.
            self._since = self._clock()

    def given_up(self, messages: int) -> None:
        """None came in his time; he may come back for them, so they are still wanted."""
        self._waiting -= messages
        self._left_open = messages

    def finished(self, count: int) -> bool:
        """So many were settled; whether it is time to ``grow``."""
        self._finished += count
        if self._finished < self.window:
            return False
        self._measure()
        return True

    def _measure(self) -> None:
        now = self._clock()
        self._per_s = self._finished / max(now - self._since, _SHORTEST_S)
        self._finished, self._since, self._is_measured = 0, now, True

    def grow(self) -> None:
        """Ask for more, if more is wanted or can be handled soon."""
        in_hand = self._in_hand()
        needed, ahead = in_hand + self._wanted, self.ahead
        if self._waiting and needed > self.takers:
            # Messages are gathered, to be settled together: how quick that is will be known then.
            ahead = max(ahead, needed)
        wanted = max(needed, min(in_hand + ahead, 2 * max(self.window, needed)))
        if min(wanted, self._most) > self.window:
            self._set(min(wanted, self._most))

    def look(self) -> None:
        """Now and then: ask for less if work has become slower, or if there is none."""
        if not self._is_measured:
            self._measure()
        self._is_measured = False
        in_hand = self._in_hand()
        wanted = min(self._most, in_hand + max(self._wanted, self.ahead))
        if wanted < self.window:
            self._set(wanted)

    def _set(self, window: int) -> None:
        self.window = window
        self._tell(window)
