"""Frames of delayed messages: the delayed record, the message it becomes, control records that change its due time.

A delayed record is a frame with the flag ``DELAYED`` whose last header holds the due time. The last 26 bytes therefore
are the same in every frame except for the time, and due times can be read and changed as whole columns::

    -26  14                2      -10  8              2
    -24  "goqueue-due-at"  14      -8  nanoseconds    8

A producer may send ``goqueue-due-in`` instead. Both names have the same length, so the broker replaces one by the other
in place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from struct import Struct

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from goqueue.model.errors import InvalidFrame, InvalidMessage, MessageTooLarge
from goqueue.model.message import HIDDEN, Headers
from goqueue.wire.batch import CheckedBatch, Columns, FrameRun, Positions, lanes_in
from goqueue.wire.frame import (
    CHECKSUM_AT,
    CHECKSUM_FROM,
    FLAGS_AGAIN_AT,
    FLAGS_AT,
    HEADER_SIZE,
    MAX_HEADERS_BYTES,
    Flag,
    decode_headers,
    encode_frame,
    encode_headers,
)
from goqueue.wire.internal_headers import DELAYED_OFFSET, DELAYED_TIMESTAMP, DUE_AT, DUE_IN, PRODUCER, STAMP_SIZE

DUE_HEADER_SIZE = 26
MAX_DELAY_NS = 200 * 365 * 86_400 * 10**9
"""Limit on a delay, so that the due time still fits its field."""
_ROOM_TO_FIRE = 100
"""When a message becomes visible, its new headers take a little more space than the removed one."""
MAX_DELAYED_HEADERS_BYTES = MAX_HEADERS_BYTES - _ROOM_TO_FIRE

CANCEL = "cancel"
RESCHEDULE = "reschedule"

Places = NDArray[np.intp]
Times = NDArray[np.int64]
_NO_PLACES: Places = np.empty(0, np.intp)
_NO_TIMES: Times = np.empty(0, np.int64)

_COUNT = Struct(">H")
TIME = Struct(">q")
CHECKSUM = Struct(">I")
_BODY = Struct(">qBBHIH")
_ANY_DUE = re.compile(b"goqueue-due-")
_NAME_ENDS_AT = -12
"""Position of the two bytes in which the names differ."""
_AT = np.frombuffer(DUE_AT[-2:].encode(), np.uint8)
_IN_START = ord(DUE_IN[-2])
_HEADERS_LENGTH_AT = 32
_COUNT_SIZE = 2


def _name(name: str) -> bytes:
    return _COUNT.pack(len(name)) + name.encode()


_DUE_AT_START = _name(DUE_AT) + _COUNT.pack(8)
_DUE_IN_START = _name(DUE_IN) + _COUNT.pack(8)
_DUE_STARTS = {_DUE_AT_START, _DUE_IN_START}
_ONLY_DUE = {_COUNT.pack(1) + start for start in _DUE_STARTS}
_PRODUCER_START = _name(PRODUCER)
_STAMPED_START = _COUNT.pack(2) + _PRODUCER_START + _COUNT.pack(STAMP_SIZE)
_STAMPED_SIZE = len(_STAMPED_START) + STAMP_SIZE + DUE_HEADER_SIZE
_OFFSET_START = _name(DELAYED_OFFSET)
_TIMESTAMP_START = _name(DELAYED_TIMESTAMP)
_MOST_DIGITS = 19
_DELAYED = int(Flag.DELAYED)
_KEPT_FLAGS = ~_DELAYED & 0xFF


def due_header(due_ns: int, *, relative: bool = False) -> tuple[str, bytes]:
    """The last header of a delayed record: due at a time, or a time span after its arrival at the broker."""
    return DUE_IN if relative else DUE_AT, TIME.pack(due_ns)


def due_times(run: FrameRun, places: Places) -> Times:
    """Due times of the frames at these indexes, which are checked delayed records."""
    return _times_at(run.frames, run.ends()[places].astype(np.int64))


def delay_checks(run: FrameRun, columns: Columns, ends: Positions) -> Iterator[None]:
    """Check, one message at a time, that a producer's delay headers are complete and occur in delayed messages only.
    The error names the first message that fails.

    Lengths and checksums must have been checked before. ``ends`` are where the frames end.
    """
    is_delayed = columns["flags"] & np.uint8(Flag.DELAYED) != 0
    if not is_delayed.any() and _ANY_DUE.search(run.frames) is None:
        return
    lengths = columns["headers_length"].tolist()
    rows = zip(ends.tolist(), lengths, is_delayed.tolist(), strict=True)
    data = bytes(run.frames)
    for place, (end, length, delayed) in enumerate(rows):
        yield
        packed = data[end - length : end]
        if delayed:
            _check_delayed(place, packed)
        elif _ANY_DUE.search(packed) is not None:
            for name, _ in _decoded(place, packed):
                if name in (DUE_AT, DUE_IN):
                    raise InvalidFrame(
                        f"message {place} of the batch has a header {name!r} but not the flag delayed "
                        f"({int(Flag.DELAYED):#04x}); both belong together"
                    )


def set_due_times(batch: CheckedBatch, now_ns: int, latest_ns: int) -> tuple[CheckedBatch, Places, Times]:
    """Set the due time of every delayed message of a producer's batch.

    Messages that are due by now become plain messages. Returns the batch, the indexes of those still delayed, and their
    due times. Changes nothing if it raises.
    """
    places = _delayed_places(batch)
    if not len(places):
        return batch, places, _NO_TIMES
    ends = FrameRun(memoryview(batch.frames), batch.positions).ends().astype(np.int64)[places]
    dues = _times_at(batch.frames, ends)
    every_byte = np.frombuffer(batch.frames, np.uint8)
    relative = every_byte[ends + _NAME_ENDS_AT] == _IN_START
    dues[relative] += now_ns
    too_late = dues > latest_ns
    if too_late.any():
        first = int(too_late.argmax())
        raise InvalidMessage(
            f"message {int(places[first])} of the batch is due at {_shown(int(dues[first]))}; "
            f"the latest that is allowed is {_shown(latest_ns)}"
        )
    waits = dues > now_ns
    patched = relative & waits
    if patched.any():
        _write_times(batch.frames, ends[patched], dues[patched])
        _write_checksums(batch.frames, batch.positions[places[patched]].tolist(), ends[patched].tolist())
    if waits.all():
        return batch, places, dues
    return _without_delay(batch, places[~waits], ends[~waits]), places[waits], dues[waits]


def set_single_due_time(batch: CheckedBatch, now_ns: int, latest_ns: int) -> int | None:
    """``set_due_times`` for the only message of a batch, the common case, without numpy columns; returns its due time.

    ``None`` unless it is delayed and due in the future: such a batch is unchanged, and left to ``set_due_times``.
    """
    frame = batch.frames
    if len(batch.positions) != 1 or not frame[FLAGS_AT] & _DELAYED:
        return None
    due_at, time_at = len(frame) - DUE_HEADER_SIZE, len(frame) - TIME.size
    (due_ns,) = TIME.unpack_from(frame, time_at)
    is_relative = frame.startswith(_DUE_IN_START, due_at)
    if is_relative:
        due_ns += now_ns
    if not now_ns < due_ns <= latest_ns:
        return None
    if is_relative:
        frame[due_at:time_at] = _DUE_AT_START
        TIME.pack_into(frame, time_at, due_ns)
        _write_checksums(frame, [0], [len(frame)])
    return int(due_ns)


def fire(frames: Sequence[bytes | memoryview], offsets: Sequence[int], now_ns: int) -> tuple[list[bytes], list[int]]:
    """The visible messages for delayed records with these offsets, and the timestamps of the delayed records."""
    made, since_ns = [], []
    for frame, offset in zip(frames, offsets, strict=True):
        data = bytes(frame)
        timestamp_ns, priority, flags, key_length, value_length, _ = _BODY.unpack_from(data, CHECKSUM_FROM)
        value_at = HEADER_SIZE + key_length
        headers_at = value_at + value_length
        others_at = headers_at + _COUNT_SIZE
        count = int.from_bytes(data[headers_at:others_at]) + 1
        if data.startswith(_PRODUCER_START, others_at):
            # The stamp describes a batch that this message leaves.
            length_at = others_at + len(_PRODUCER_START)
            others_at = length_at + 2 + int.from_bytes(data[length_at : length_at + 2])
            count -= 1
        since_ns.append(timestamp_ns)
        since, origin = b"%d" % timestamp_ns, b"%d" % offset
        headers = b"%b%b%b%b%b%b%b%b" % (
            count.to_bytes(2),
            data[others_at:-DUE_HEADER_SIZE],
            _TIMESTAMP_START,
            len(since).to_bytes(2),
            since,
            _OFFSET_START,
            len(origin).to_bytes(2),
            origin,
        )
        made.append(
            encode_frame(
                data[HEADER_SIZE:value_at],
                data[value_at:headers_at],
                headers,
                now_ns,
                priority,
                # The message no longer depends on a transaction.
                flags & _KEPT_FLAGS & ~int(Flag.TRANSACTIONAL) | int(Flag.FIRED),
            )
        )
    return made, since_ns


def fired_origin(packed_headers: bytes) -> int | None:
    """Offset of the delayed record that a message or a control record names in its last header, if it does."""
    most = len(_OFFSET_START) + _COUNT_SIZE + _MOST_DIGITS
    tail = packed_headers[-most:]
    start = tail.rfind(_OFFSET_START)
    if start < 0:
        return None
    length_at = start + len(_OFFSET_START)
    digits = tail[length_at + _COUNT_SIZE :]
    if int.from_bytes(tail[length_at : length_at + _COUNT_SIZE]) != len(digits):
        return None
    return _number(digits)


def cancel_frame(offset: int, timestamp_ns: int) -> bytes:
    """A control record: the delayed message at this offset is cancelled."""
    return _control(CANCEL, ((DELAYED_OFFSET, b"%d" % offset),), timestamp_ns)


def reschedule_frame(offset: int, due_ns: int, timestamp_ns: int) -> bytes:
    """A control record: the delayed message at this offset has a new due time."""
    return _control(RESCHEDULE, (due_header(due_ns), (DELAYED_OFFSET, b"%d" % offset)), timestamp_ns)


def read_control(value: bytes, headers: Headers) -> tuple[str, int, int | None] | None:
    """Verb, offset and new due time of a control record about delays. ``None`` for other control records."""
    names = tuple(name for name, _ in headers)
    if value == CANCEL.encode() and names == (DELAYED_OFFSET,):
        offset = _number(headers[0][1])
        return None if offset is None else (CANCEL, offset, None)
    if value == RESCHEDULE.encode() and names == (DUE_AT, DELAYED_OFFSET) and len(headers[0][1]) == TIME.size:
        offset = _number(headers[1][1])
        return None if offset is None else (RESCHEDULE, offset, TIME.unpack(headers[0][1])[0])
    return None


def is_only_due(packed: bytes, *, may_be_stamped: bool) -> bool:
    """Whether a frame's only header, behind a stamp if it may have one, is the due time: the common case."""
    if len(packed) == _COUNT_SIZE + DUE_HEADER_SIZE:
        return packed[:-8] in _ONLY_DUE
    return (
        may_be_stamped
        and len(packed) == _STAMPED_SIZE
        and packed.startswith(_STAMPED_START)
        and packed[-DUE_HEADER_SIZE:-8] in _DUE_STARTS
    )


def _check_delayed(place: int, packed: bytes) -> None:
    if len(packed) > MAX_DELAYED_HEADERS_BYTES:
        raise MessageTooLarge(
            f"message {place} of the batch has headers of {len(packed)} bytes; "
            f"a delayed message may have {MAX_DELAYED_HEADERS_BYTES}"
        )
    relative = packed.startswith(_DUE_IN_START, len(packed) - DUE_HEADER_SIZE)
    if not is_only_due(packed, may_be_stamped=True):
        # Those bytes might be the end of another header's value.
        headers = _decoded(place, packed)
        names = [name for name, _ in headers]
        if (
            names.count(DUE_AT) + names.count(DUE_IN) != 1
            or names[-1] not in (DUE_AT, DUE_IN)
            or len(headers[-1][1]) != 8
        ):
            raise InvalidFrame(
                f"message {place} of the batch is delayed: its last header, and no other, must be {DUE_AT!r} or "
                f"{DUE_IN!r} with 8 bytes"
            )
    (due_ns,) = TIME.unpack_from(packed, len(packed) - 8)
    if due_ns < 0 or (relative and due_ns > MAX_DELAY_NS):
        allowed = f"0 to {MAX_DELAY_NS} (200 years) are" if relative else "times from 1970 on are"
        raise InvalidFrame(
            f"message {place} of the batch has {due_ns} nanoseconds in {DUE_IN if relative else DUE_AT!r}; "
            f"{allowed} allowed"
        )


def _decoded(place: int, packed: bytes) -> Headers:
    try:
        return decode_headers(packed)
    except InvalidFrame as error:
        raise InvalidFrame(f"message {place} of the batch: {error}") from None


def _delayed_places(batch: CheckedBatch) -> Places:
    if batch.lanes != HIDDEN if isinstance(batch.lanes, int) else not (batch.lanes == HIDDEN).any():
        return _NO_PLACES
    flags = np.frombuffer(batch.frames, np.uint8)[batch.positions + np.uint32(FLAGS_AT)]
    return np.flatnonzero(flags & np.uint8(Flag.DELAYED))


def _times_at(frames: bytes | bytearray | memoryview, ends: Times) -> Times:
    every_byte = np.ndarray(len(frames) - 7, ">i8", frames, 0, (1,))
    return every_byte[ends - 8].astype(np.int64)


def _write_times(frames: bytearray, ends: Times, dues: Times) -> None:
    np.ndarray(len(frames) - 7, ">i8", frames, 0, (1,))[ends - 8] = dues
    every_byte = np.frombuffer(frames, np.uint8)
    every_byte[ends + _NAME_ENDS_AT] = _AT[0]
    every_byte[ends + _NAME_ENDS_AT + 1] = _AT[1]


def _write_checksums(frames: bytearray, starts: list[int], ends: list[int]) -> None:
    view = memoryview(frames)
    write = CHECKSUM.pack_into
    for start, end in zip(starts, ends, strict=True):
        write(frames, start + CHECKSUM_AT, crc32c(view[start + CHECKSUM_FROM : end]))


def _without_delay(batch: CheckedBatch, places: Places, ends: Times) -> CheckedBatch:
    """The batch with plain messages at these indexes. All removed bytes are at the ends of frames."""
    frames = bytearray(batch.frames)
    every_byte = np.frombuffer(frames, np.uint8)
    every_pair = np.ndarray(len(frames) - 1, ">u2", frames, 0, (1,))
    starts = batch.positions[places].astype(np.int64)
    every_byte[starts + FLAGS_AT] &= np.uint8(_KEPT_FLAGS)
    every_byte[starts + FLAGS_AGAIN_AT] &= np.uint8(_KEPT_FLAGS)
    lengths = every_pair[starts + _HEADERS_LENGTH_AT]
    # An empty list of headers is encoded as no bytes: removing the only header removes the count as well.
    is_only = lengths == _COUNT_SIZE + DUE_HEADER_SIZE
    cuts = DUE_HEADER_SIZE + _COUNT_SIZE * is_only.astype(np.int64)
    every_pair[ends - lengths] -= 1
    every_pair[starts + _HEADERS_LENGTH_AT] = lengths - cuts
    sizes = np.zeros(len(batch), np.int64)
    sizes[places] = cuts
    removed_before = np.cumsum(sizes) - sizes
    positions = (batch.positions - removed_before).astype(np.uint32)
    view = memoryview(frames)
    edges = [0, *ends.tolist(), len(frames)]
    stops = [*(ends - cuts).tolist(), len(frames)]
    shorter = bytearray().join([view[start:stop] for start, stop in zip(edges, stops, strict=False)])
    new_ends = (ends - cuts - removed_before[places]).tolist()
    _write_checksums(shorter, positions[places].tolist(), new_ends)
    return CheckedBatch(shorter, positions, batch.max_timestamp_ns, lanes_in(shorter, positions), batch.producer)


def _control(verb: str, headers: Headers, timestamp_ns: int) -> bytes:
    return encode_frame(b"", verb.encode(), encode_headers(headers), timestamp_ns, flags=int(Flag.CONTROL))


def _number(digits: bytes) -> int | None:
    return int(digits) if digits.isdigit() and len(digits) <= _MOST_DIGITS else None


def _shown(time_ns: int) -> str:
    return f"{np.datetime64(time_ns // 10**9, 's')}Z"
