"""The file of a partition's delayed messages: what waits, and what open transactions hold."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from goqueue.broker.partitions.derived_files import Loaded
from goqueue.delivery.delay_index import PendingDelays

_WITH_HELD = b"GQD2"


class _File(msgspec.Struct):
    """What the file holds while a transaction that has delayed something is open."""

    pending: bytes
    held: dict[int, bytes]


def decode_delays(payload: bytes) -> Loaded[tuple[PendingDelays, dict[int, PendingDelays]]]:
    """The file's state is what waits, and what open transactions hold."""
    held: dict[int, PendingDelays] = {}
    if payload.startswith(_WITH_HELD):
        kept = msgspec.msgpack.decode(payload[len(_WITH_HELD) :], type=_File)
        payload, held = kept.pending, {owner: PendingDelays.load(each)[1] for owner, each in kept.held.items()}
    as_of, pending = PendingDelays.load(payload)
    return as_of, (pending, held)


def encode_delays(pending: PendingDelays, held: Mapping[int, PendingDelays], as_of: int) -> bytes:
    """``held``: by the producer whose transaction is open."""
    payload = pending.dump(as_of)
    if not held:
        return payload
    return _WITH_HELD + msgspec.msgpack.encode(
        _File(payload, {owner: each.dump(as_of) for owner, each in held.items()})
    )
