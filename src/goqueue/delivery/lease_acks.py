"""What the latest leases have acked, to tell an ack that is repeated from one that comes too late.

That a message is done may be the work of another delivery, of a rejection, or of this lease. So each queue keeps which
messages its leases have acked. The queues of one journal share a bound; what goes beyond it is forgotten, the oldest
lease first, and an ack by a lease that is forgotten counts as late. Forgetting is therefore always safe.
"""

from __future__ import annotations

from collections import deque

import msgspec

from goqueue.model.runs import moved_bits

MOST_REMEMBERED = 16_384
"""By one journal, over all of its queues: so many leases of one message, or a seventeenth of that of wide ones."""
_BITS_FOR_ANOTHER = 64
"""A lease counts once more for each time that it is so wide: what it takes grows with that."""


class LeaseAcksDump(msgspec.Struct, frozen=True, array_like=True):
    """As it goes into a snapshot; bits in hexadecimal. ``whole`` is empty if all of it was acked."""

    lease: int
    first: int
    acked: str
    whole: str = ""


class _LeaseAcks(msgspec.Struct, gc=False):
    """Bit ``n`` stands for ``first + n``."""

    first: int
    whole: int
    acked: int


class Recent:
    """The order in which leases were remembered, over all queues that share a bound."""

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._room = most
        self._order: deque[tuple[dict[int, _LeaseAcks], int, int]] = deque()

    def add(self, leases: dict[int, _LeaseAcks], lease: int, width: int) -> None:
        size = 1 + width // _BITS_FOR_ANOTHER
        self._order.append((leases, lease, size))
        self._room -= size
        while self._room < 0:
            oldest, gone, size = self._order.popleft()
            oldest.pop(gone, None)
            self._room += size


class LeaseAcks:
    """What the leases of one queue have acked."""

    __slots__ = ("_leases", "_recent")

    def __init__(self, recent: Recent) -> None:
        self._recent = recent
        self._leases: dict[int, _LeaseAcks] = {}

    def add(self, lease: int, first: int, whole: int, bits: int) -> None:
        """Messages of a lease were acked; ``whole`` are all that it had at first."""
        known = self._leases.get(lease)
        if known is None:
            self._leases[lease] = _LeaseAcks(first, whole, bits)
            self._recent.add(self._leases, lease, whole.bit_length())
        else:
            known.acked |= moved_bits(bits, first - known.first)

    def acked(self, lease: int, base: int) -> int:
        """What a lease is known to have acked, as bits from ``base`` on."""
        known = self._leases.get(lease)
        return 0 if known is None else moved_bits(known.acked, known.first - base)

    def whole(self, lease: int) -> tuple[int, int]:
        """The first message that a lease had, and all of them as bits from there on; none if it is not known."""
        known = self._leases.get(lease)
        return (0, 0) if known is None else (known.first, known.whole)

    def cut(self, end: int) -> None:
        """Forget messages from ``end`` on: others will have their offsets."""
        for lease, known in list(self._leases.items()):
            known.acked &= (1 << max(0, end - known.first)) - 1
            if not known.acked:
                del self._leases[lease]

    def clear(self) -> None:
        self._leases.clear()

    def dump(self) -> list[LeaseAcksDump]:
        return [
            LeaseAcksDump(lease, each.first, f"{each.acked:x}", "" if each.whole == each.acked else f"{each.whole:x}")
            for lease, each in self._leases.items()
        ]

    def load(self, dump: list[LeaseAcksDump]) -> None:
        for each in dump:
            acked = int(each.acked, 16)
            self.add(each.lease, each.first, int(each.whole, 16) if each.whole else acked, acked)
