"""Due time of a batch with a single message, the common case of delayed messages, without numpy columns."""

from __future__ import annotations

from crc32c import crc32c

from goqueue.wire.batch import CheckedBatch
from goqueue.wire.delayed import CHECKSUM, DUE_HEADER_SIZE, TIME
from goqueue.wire.frame import CHECKSUM_AT, CHECKSUM_FROM, FLAGS_AT, Flag
from goqueue.wire.internal_headers import DUE_AT, DUE_IN

_NAME_AT = 2
_DELAYED = int(Flag.DELAYED)
_AT, _IN = DUE_AT.encode(), DUE_IN.encode()


def set_single_due_time(batch: CheckedBatch, now_ns: int, latest_ns: int) -> int | None:
    """Set the due time of the only message of a producer's batch, if it is delayed and due in the future; returns it.

    ``None`` for any other batch, which is unchanged and left to ``set_due_times``.
    """
    frame = batch.frames
    if len(batch.positions) != 1 or not frame[FLAGS_AT] & _DELAYED:
        return None
    time_at = len(frame) - TIME.size
    name_at = len(frame) - DUE_HEADER_SIZE + _NAME_AT
    (due_ns,) = TIME.unpack_from(frame, time_at)
    is_relative = frame.startswith(_IN, name_at)
    if is_relative:
        due_ns += now_ns
    if not now_ns < due_ns <= latest_ns:
        return None
    if is_relative:
        frame[name_at : name_at + len(_AT)] = _AT
        TIME.pack_into(frame, time_at, due_ns)
        with memoryview(frame) as view:
            checksum = crc32c(view[CHECKSUM_FROM:])
        CHECKSUM.pack_into(frame, CHECKSUM_AT, checksum)
    return int(due_ns)
