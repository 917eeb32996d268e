"""Producer ids that show by themselves whether they were issued.

An id is a number that is encrypted with a key of the data folder's own::

    bit 52        1: distinguishes it from plain ids, which folders gave out before there was a key
    bits 44-51    the shard that gave it, 0 where there is only one
    bits 0-43     the number, encrypted

Ids stay below 2^53, the largest whole numbers that every reader of JSON keeps exactly. Numbers count up and are never
given twice; encryption is a permutation, so ids are not either. An id reveals nothing of the next one, and a
guess decrypts to a number that was not given yet, and so is known for what it is.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct

import msgspec

from goqueue.model.errors import Overloaded

AT_ONCE = 1_000
"""Numbers are reserved in blocks, so that most ids are given without waiting for the disk."""
KEY_BYTES = 32
_NUMBER_BITS = 44
NUMBERS = 1 << _NUMBER_BITS
FOR_A_NAME = 1
"""Producers with a transactional id have odd numbers: a number modulo 2."""
_PROVEN = 1 << 52
_HALF_BITS = _NUMBER_BITS // 2
_HALF = (1 << _HALF_BITS) - 1
_ROUNDS = 10
_ROUND_INPUT = Struct(">BI")
_REMEMBERED = 10_000


class IdsReserved(msgspec.Struct, frozen=True, tag="ids_reserved"):
    """Numbers below ``end`` may have been given."""

    end: int


class IdsSkipped(msgspec.Struct, frozen=True, tag="ids_skipped"):
    """Numbers below ``end`` may have been given, and epochs of the names that have one, without this being known
    here."""

    end: int


class IdKeyMade(msgspec.Struct, frozen=True, tag="id_key_made"):
    """Ids are encrypted with this key from now on, for good. Those of numbers below ``plain_below`` are the number
    itself: they were given before."""

    key: bytes
    plain_below: int


IdsEvent = IdsReserved | IdsSkipped | IdKeyMade


class IssuedIds:
    """Odd numbers are for producers with a transactional id, even ones for those without, so that one whose name is
    gone is not taken for one without a name."""

    def __init__(self) -> None:
        self.reserved = 1
        """Numbers below may have been given."""
        self._skipped_to = 0
        self._key = b""
        self._plain_below = 0
        self._remembered: dict[int, int] = {}
        """Numbers of ids that were asked about: every batch asks."""

    # Looking

    def id_of(self, number: int) -> int:
        if self._is_plain(number):
            return number
        left, right = number >> _HALF_BITS, number & _HALF
        for turn in range(_ROUNDS):
            left, right = right, left ^ self._mixed(turn, right)
        return _PROVEN | left << _HALF_BITS | right

    def number_of(self, producer_id: int) -> int | None:
        """``None`` for an id that was never given."""
        known = self._remembered.get(producer_id)
        if known is not None:
            return known
        number = self._decrypted(producer_id)
        if number is None or not 0 < number < self.reserved:
            return None
        if len(self._remembered) >= _REMEMBERED:
            self._remembered.clear()
        self._remembered[producer_id] = number
        return number

    def _decrypted(self, producer_id: int) -> int | None:
        if self._is_plain(producer_id):
            return producer_id
        # Any other bit is of another shard's id, or of none.
        if producer_id >> _NUMBER_BITS != _PROVEN >> _NUMBER_BITS:
            return None
        left, right = producer_id >> _HALF_BITS & _HALF, producer_id & _HALF
        for turn in reversed(range(_ROUNDS)):
            left, right = right ^ self._mixed(turn, left), left
        number = left << _HALF_BITS | right
        return None if self._is_plain(number) else number

    def _is_plain(self, number: int) -> bool:
        return not self._key or number < self._plain_below

    def _mixed(self, turn: int, half: int) -> int:
        digest = blake2b(_ROUND_INPUT.pack(turn, half), key=self._key, digest_size=3).digest()
        return int.from_bytes(digest) & _HALF

    def was_skipped(self, producer_id: int) -> bool:
        """Whether an id was given before numbers were skipped: its epochs from then on may be in use elsewhere."""
        number = self.number_of(producer_id)
        return number is not None and number < self._skipped_to

    # Deciding

    def decide_reserve(self) -> list[IdsEvent]:
        if self.reserved + AT_ONCE > NUMBERS:
            raise Overloaded(f"all {NUMBERS} producer ids that there are have been given; use those that were given")
        return [IdsReserved(self.reserved + AT_ONCE)]

    def decide_skip(self, count: int) -> list[IdsEvent]:
        """So many numbers are not given, for they may have been."""
        return [IdsSkipped(min(self.reserved + count, NUMBERS))]

    def decide_key(self, key: bytes) -> list[IdsEvent]:
        """Made once: ids must stay good."""
        return [] if self._key else [IdKeyMade(key, self.reserved)]

    # Changing

    def apply(self, event: IdsEvent) -> None:
        match event:
            case IdsReserved(end):
                self.reserved = end
            case IdsSkipped(end):
                self.reserved = self._skipped_to = end
            case IdKeyMade(key, plain_below):
                self._key, self._plain_below = key, plain_below
                self._remembered.clear()

    def dump(self) -> bytes:
        return msgspec.json.encode(_Kept(self.reserved, self._skipped_to, self._key, self._plain_below))

    def restore(self, payload: bytes) -> None:
        found = msgspec.json.decode(payload, type=int | _Kept)
        # Snapshots had one number before ids could be skipped, and two before there was a key.
        kept = _Kept(found) if isinstance(found, int) else found
        self.reserved, self._skipped_to = kept.reserved, kept.skipped_to
        self._key, self._plain_below = kept.key, kept.plain_below
        self._remembered.clear()


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    reserved: int
    skipped_to: int = 0
    key: bytes = b""
    plain_below: int = 0
