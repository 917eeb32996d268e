"""Producer ids that show by themselves whether they were issued, and which shard coordinates their producer.

An id is a number that is encrypted with a key of the data folder's own::

    bit 52        1: distinguishes it from plain ids, which folders gave out before there was a key
    bits 44-51    the shard of the producer's coordinator; 0 if an earlier version gave the id
    bits 0-43     the number, encrypted, for each shard in another way

Ids stay below 2^53, the largest whole numbers that every reader of JSON keeps exactly. Numbers count up, for all shards
together, and are never given twice; encryption is a permutation, so ids are not either. An id reveals nothing of the
next one, and a guess decrypts to a number that was not given yet, and so is known for what it is.

Ids that earlier versions gave stay good. Those that had a transactional id when the folder was converted are on record
with the shard of that name, and all others belong to ``OF_EARLIER_IDS``.
"""

from __future__ import annotations

from collections.abc import Mapping
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
OF_EARLIER_IDS = 1
"""The shard of ids that earlier versions gave, but for those that had a transactional id."""
_PROVEN_BIT = 52
_PROVEN = 1 << _PROVEN_BIT
_SHARD_MASK = (1 << _PROVEN_BIT - _NUMBER_BITS) - 1
_HALF_BITS = _NUMBER_BITS // 2
_HALF = (1 << _HALF_BITS) - 1
_ROUNDS = 10
_ROUND_INPUT = Struct(">BI")
"""Turn; the shard in the highest byte, and half of a number below."""
_SHARD_AT = 24
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


class KeptIds(msgspec.Struct, frozen=True, array_like=True):
    """All that is known of ids."""

    reserved: int
    skipped_to: int = 0
    key: bytes = b""
    plain_below: int = 0
    earlier_below: int = 0
    """Ids of numbers below have no shard."""
    earlier_shards: Mapping[int, int] = {}
    """The shards of those of them that had a transactional id."""


class IdsConverted(msgspec.Struct, frozen=True, tag="ids_converted"):
    """These ids were given by earlier versions, which kept them in the journal of transactions."""

    ids: KeptIds


IdsEvent = IdsReserved | IdsSkipped | IdKeyMade | IdsConverted


class IssuedIds:
    """Odd numbers are for producers with a transactional id, even ones for those without, so that one whose name is
    gone is not taken for one without a name."""

    def __init__(self) -> None:
        self.reserved = 1
        """Numbers below may have been given."""
        self._skipped_to = 0
        self._key = b""
        self._plain_below = 0
        self._earlier_below = 0
        self._earlier_shards: Mapping[int, int] = {}
        self._remembered: dict[int, int] = {}
        """Numbers of ids that were asked about: every batch asks."""

    # Looking

    @property
    def is_empty(self) -> bool:
        """Whether nothing has happened yet."""
        return self.reserved == 1 and not self._key and not self._earlier_below

    def id_of(self, number: int, shard: int) -> int:
        if self._is_plain(number):
            return number
        left, right = number >> _HALF_BITS, number & _HALF
        for turn in range(_ROUNDS):
            left, right = right, left ^ self._mixed(turn, shard, right)
        return _PROVEN | shard << _NUMBER_BITS | left << _HALF_BITS | right

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

    def shard_of(self, producer_id: int) -> int:
        """The shard of a producer's coordinator."""
        shard = producer_id >> _NUMBER_BITS & _SHARD_MASK if producer_id >> _PROVEN_BIT == 1 else 0
        return shard or self._earlier_shards.get(producer_id, OF_EARLIER_IDS)

    def is_for_a_name(self, producer_id: int, number: int) -> bool:
        """Whether the id was given for a transactional id."""
        return number % 2 == FOR_A_NAME or producer_id in self._earlier_shards

    def _decrypted(self, producer_id: int) -> int | None:
        if self._is_plain(producer_id):
            return producer_id
        if producer_id >> _PROVEN_BIT != 1:
            return None
        shard = producer_id >> _NUMBER_BITS & _SHARD_MASK
        left, right = producer_id >> _HALF_BITS & _HALF, producer_id & _HALF
        for turn in reversed(range(_ROUNDS)):
            left, right = right ^ self._mixed(turn, shard, left), left
        number = left << _HALF_BITS | right
        if self._is_plain(number) or (number < self._earlier_below) is not (shard == 0):
            return None
        return number

    def _is_plain(self, number: int) -> bool:
        return not self._key or number < self._plain_below

    def _mixed(self, turn: int, shard: int, half: int) -> int:
        digest = blake2b(_ROUND_INPUT.pack(turn, shard << _SHARD_AT | half), key=self._key, digest_size=3).digest()
        return int.from_bytes(digest) & _HALF

    def keeps_its_epochs(self, producer_id: int) -> bool:
        """Whether the epochs of a name's id can be counted on: not where numbers were skipped since, for its next may
        be in use elsewhere, nor where the id does not tell its shard."""
        number = self.number_of(producer_id)
        return number is not None and number >= self._skipped_to and number >= self._earlier_below

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
            case IdsConverted(ids):
                self._take(ids)

    def converted(self, shards: Mapping[int, int]) -> IdsConverted:
        """The event that makes these the ids of earlier versions; ``shards`` are those of ids that have a name."""
        return IdsConverted(
            KeptIds(self.reserved, self._skipped_to, self._key, self._plain_below, self.reserved, shards)
        )

    def dump(self) -> bytes:
        return msgspec.json.encode(
            KeptIds(
                self.reserved, self._skipped_to, self._key, self._plain_below, self._earlier_below, self._earlier_shards
            )
        )

    def restore(self, payload: bytes) -> None:
        found = msgspec.json.decode(payload, type=int | KeptIds)
        # Snapshots had one number before ids could be skipped, and two before there was a key.
        self._take(KeptIds(found) if isinstance(found, int) else found)

    def _take(self, kept: KeptIds) -> None:
        self.reserved, self._skipped_to = kept.reserved, kept.skipped_to
        self._key, self._plain_below = kept.key, kept.plain_below
        self._earlier_below, self._earlier_shards = kept.earlier_below, kept.earlier_shards
        self._remembered.clear()
