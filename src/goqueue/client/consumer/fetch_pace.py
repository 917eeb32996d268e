"""Window of a queue consumer: as many messages in flight as are requested, and a prefetch for fast handlers.

Messages buffered in one consumer are not available to the others. So nothing is fetched without a request, and prefetch
is limited to what will be handled within a moment at the recent rate. For slow handlers that is nothing, and a small
backlog is shared by all members; fast handlers never wait. The window doubles at most, so it grows to size within a few
round trips.
"""

from __future__ import annotations

from collections.abc import Callable

AHEAD_S = 0.25
"""Prefetched messages are handled within this time."""
_SHORTEST_S = 1e-6


class FetchPace:
    """All times are in seconds of ``clock``."""

    def __init__(
        self, max_window: int, in_hand: Callable[[], int], set_window: Callable[[int], None], clock: Callable[[], float]
    ) -> None:
        """``in_hand`` counts messages handed out and not settled. ``set_window`` is called with every new window."""
        self._max_window = max_window
        self._in_hand = in_hand
        self._set_window = set_window
        self._clock = clock
        self.window = 0
        """How many messages may be in flight, handed out or buffered."""
        self.takers = 1
        """Expected number of messages being handled at the same time."""
        self._waiting = 0
        self._unmet = 0
        """Messages requested by the last caller that timed out without any."""
        self._finished = 0
        self._since = clock()
        self._is_measured = False
        self._per_s = 0.0

    @property
    def ahead(self) -> int:
        """Prefetch: how many messages beyond those handed out can be handled soon."""
        return min(self._max_window, int(self._per_s * AHEAD_S))

    @property
    def max_buffered(self) -> int:
        """How many messages may be buffered without being returned."""
        return max(self._unmet, 2 * self.ahead + 1)

    @property
    def _requested(self) -> int:
        return max(self._waiting, self._unmet)

    def wait_started(self, messages: int) -> None:
        """A caller waits for this many messages."""
        self._waiting += messages
        self._unmet = 0
        self.takers = max(self.takers, self._waiting)

    def wait_satisfied(self, messages: int) -> None:
        """Messages have arrived for a waiting caller."""
        self._waiting -= messages
        if not self._finished:
            # Time spent waiting says nothing about the handling rate.
            self._since = self._clock()

    def wait_abandoned(self, messages: int) -> None:
        """A caller timed out without any. It may call again, so its messages are still requested."""
        self._waiting -= messages
        self._unmet = messages

    def finished(self, count: int) -> bool:
        """This many messages were settled; return whether it is time to ``grow``."""
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
        """Enlarge the window if more is requested or can be handled soon."""
        in_hand = self._in_hand()
        needed, ahead = in_hand + self._requested, self.ahead
        if self._waiting and needed > self.takers:
            # The caller collects messages to settle them together; its rate is known once it has.
            ahead = max(ahead, needed)
        wanted = max(needed, min(in_hand + ahead, 2 * max(self.window, needed)))
        if min(wanted, self._max_window) > self.window:
            self._resize(min(wanted, self._max_window))

    def shrink(self) -> None:
        """Called periodically: shrink the window if handling has slowed down or stopped."""
        if not self._is_measured:
            self._measure()
        self._is_measured = False
        in_hand = self._in_hand()
        wanted = min(self._max_window, in_hand + max(self._requested, self.ahead))
        if wanted < self.window:
            self._resize(wanted)

    def _resize(self, window: int) -> None:
        self.window = window
        self._set_window(window)
