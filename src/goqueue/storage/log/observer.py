"""Observer of a log: told what happens to the log, asked what of it the state derived from its records still needs."""

from __future__ import annotations


class LogObserver:
    """Follows one log, as its ``observer``.

    Every method is called from the event loop, inside a step of the log, and returns at once. The answers given here
    are those for a log from which nothing is derived.
    """

    def compacted(self, low: int, high: int) -> None:
        """The segments between two offsets were replaced by what compaction left of them."""

    def is_held(self, low: int, high: int) -> bool:
        """Whether the files of a segment with offsets from ``low`` to below ``high`` must stay although the log starts
        behind them: they hold an original that a delayed message needs."""
        return False

    def delays_from(self, end_offset: int) -> int:
        """The offset below which no delayed message is pending; ``end_offset`` is the log's own."""
        return end_offset

    def producers_from(self, end_offset: int) -> int:
        """The offset below which nothing is needed to know the producers, whether or not there is a file of them."""
        return end_offset

    def producers_known_to(self, end_offset: int) -> int:
        """The offset up to which everything about producers is known without the log."""
        return end_offset
