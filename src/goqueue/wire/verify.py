"""Validation of producers' batches before they are stored."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from goqueue.model.errors import GoQueueError, InvalidFrame, InvalidMessage, MessageTooLarge, TimestampOutOfRange
from goqueue.model.message import PRIORITY_LABELS, Headers
from goqueue.wire.batch import CheckedBatch, Columns, FrameRun, check_layout, lanes_of
from goqueue.wire.delayed import delay_checks, is_only_due
from goqueue.wire.frame import Flag, decode_headers, read_whole
from goqueue.wire.internal_headers import (
    DEDUP_ID,
    DUE_AT,
    DUE_IN,
    MAX_DEDUP_ID_BYTES,
    MAX_TTL_MS,
    PRODUCER,
    RESERVED_PREFIX,
    TTL,
    ProducerStamp,
    parse_ttl_ms,
)
from goqueue.wire.producer_frames import check_stamp

_ALLOWED_FLAGS = int(Flag.COMPRESSED | Flag.TOMBSTONE | Flag.DELAYED | Flag.TRANSACTIONAL)
_OF_DELAYS = {DUE_AT, DUE_IN}
"""Headers checked by ``delay_checks``."""
_RESERVED = RESERVED_PREFIX.encode()
FEW_HEADER_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class FrameRules:
    """Limits that a topic sets for published messages."""

    max_value_bytes: int
    latest_timestamp_ns: int
    needs_key: bool = False
    in_transaction: bool = False
    headers_were_checked: bool = False
    """Whether ``header_checks`` has run, which includes the layout."""


def has_many_headers(run: FrameRun) -> bool:
    """Whether checking a batch's headers takes more than a few milliseconds; never for ``FEW_HEADER_BYTES``."""
    return len(run.positions) > 1 and int(run.columns()["headers_length"].sum()) > FEW_HEADER_BYTES


def header_checks(run: FrameRun) -> Iterator[None]:
    """Checks of ``verify_batch`` on headers one by one, for callers that yield to other tasks in between."""
    columns = check_layout(run)
    yield
    stamp, _ = check_stamp(run, int(columns["headers_length"][0]))
    yield from _check_headers(run, columns, is_stamped=stamp is not None)


def verify_batch(run: FrameRun, rules: FrameRules) -> CheckedBatch:
    """Check a producer's whole batch; raises for the first message that is not allowed. Copies the frames."""
    if len(run.positions) == 1 and (only := _plain_one(run, rules)) is not None:
        return only
    columns = run.columns() if rules.headers_were_checked else check_layout(run)
    flags = columns["flags"]
    has_flags = bool(flags.any())
    if has_flags:
        _check_flags(columns)
    lengths = columns["headers_length"]
    stamp, has_others = check_stamp(run, int(lengths[0]))
    # Most batches have no header but the stamp, and then nothing has to be searched.
    has_headers = has_others or bool(lengths[1:].any())
    if has_flags or rules.in_transaction:
        _check_transaction(columns, stamp, rules)
    _check_bounds(columns, rules)
    if not rules.headers_were_checked and (has_headers or (has_flags and (flags & np.uint8(Flag.DELAYED)).any())):
        deque(_check_headers(run, columns, is_stamped=stamp is not None), 0)
    lanes = lanes_of(columns["priority"], flags if has_flags else None)
    latest_ns = int(columns["timestamp"].max())
    return CheckedBatch(bytearray(run.frames), run.positions, latest_ns, lanes, stamp, has_headers)


def _plain_one(run: FrameRun, rules: FrameRules) -> CheckedBatch | None:
    """Fast path for a single message that is valid beyond doubt. ``None``: it needs the full checks.

    Numpy columns are made for many messages: for one they take several times as long as the rest of publishing it.
    """
    frame = run.frames
    if (header := read_whole(frame)) is None:
        return None
    flags, _, timestamp_ns, priority, key, value, headers = header
    if flags or priority >= len(PRIORITY_LABELS) or rules.in_transaction:
        return None
    if value > rules.max_value_bytes or not 0 <= timestamp_ns <= rules.latest_timestamp_ns:
        return None
    if rules.needs_key and not key:
        return None
    stamp, has_others = check_stamp(run, headers)
    if has_others:
        return None
    return CheckedBatch(bytearray(frame), run.positions, timestamp_ns, priority, stamp, has_headers=False)


def _first(bad: Any) -> int | None:
    return int(bad.argmax()) if bad.any() else None


def _check_flags(columns: Columns) -> None:
    flags = columns["flags"]
    if (place := _first(flags & np.uint8(~_ALLOWED_FLAGS & 0xFF) != 0)) is not None:
        raise InvalidFrame(
            f"message {place} of the batch has flags {int(flags[place]):#04x}; a producer may set "
            f"compressed ({int(Flag.COMPRESSED):#04x}), tombstone ({int(Flag.TOMBSTONE):#04x}), delayed "
            f"({int(Flag.DELAYED):#04x}) and transactional ({int(Flag.TRANSACTIONAL):#04x})"
        )
    tombstones = flags & np.uint8(Flag.TOMBSTONE) != 0
    if (place := _first(tombstones & ((columns["value_length"] > 0) | (columns["key_length"] == 0)))) is not None:
        raise InvalidFrame(f"message {place} of the batch is a tombstone: it must have a key and no value")


def _check_transaction(columns: Columns, stamp: ProducerStamp | None, rules: FrameRules) -> None:
    flagged = columns["flags"] & np.uint8(Flag.TRANSACTIONAL) != 0
    if rules.in_transaction:
        if stamp is None:
            raise InvalidFrame(f"a batch of a transaction needs its producer in the header {PRODUCER!r}")
        if (place := _first(~flagged)) is not None:
            raise InvalidFrame(
                f"message {place} of the batch is not flagged as transactional ({int(Flag.TRANSACTIONAL):#04x}); "
                "in a transaction all must be"
            )
    elif (place := _first(flagged)) is not None:
        raise InvalidFrame(f"message {place} of the batch is transactional, and the request names no transaction")


def _check_bounds(columns: Columns, rules: FrameRules) -> None:
    problem: GoQueueError
    if (place := _first(columns["value_length"] > rules.max_value_bytes)) is not None:
        problem = MessageTooLarge(
            f"message {place} of the batch has a value of {int(columns['value_length'][place])} bytes; "
            f"the topic takes {rules.max_value_bytes}"
        )
    elif (place := _first(columns["priority"] >= len(PRIORITY_LABELS))) is not None:
        problem = InvalidFrame(f"message {place} of the batch has priority {int(columns['priority'][place])}, not 0-4")
    elif (place := _first(columns["timestamp"] > rules.latest_timestamp_ns)) is not None:
        problem = TimestampOutOfRange(f"message {place} of the batch has a timestamp too far ahead of the broker")
    elif (place := _first(columns["timestamp"] < 0)) is not None:
        problem = TimestampOutOfRange(f"message {place} of the batch has a timestamp before 1970")
    elif rules.needs_key and (place := _first(columns["key_length"] == 0)) is not None:
        problem = InvalidMessage(f"message {place} of the batch has no key; a compacted topic needs one")
    else:
        return
    raise problem


def _check_headers(run: FrameRun, columns: Columns, *, is_stamped: bool) -> Iterator[None]:
    """Check one message at a time, those of delays last."""
    lengths, ends = columns["headers_length"], run.ends()
    with_headers = np.flatnonzero(lengths)
    sizes = lengths[with_headers].tolist()
    data = bytes(run.frames)
    for place, end, size in zip(with_headers.tolist(), ends[with_headers].tolist(), sizes, strict=True):
        yield
        packed = data[end - size : end]
        if is_only_due(packed, may_be_stamped=is_stamped and not place):
            continue
        try:
            headers = decode_headers(packed)
        except InvalidFrame as error:
            raise InvalidFrame(f"message {place} of the batch: {error}") from None
        if _RESERVED in packed:
            refuse_reserved(place, headers[1:] if is_stamped and not place else headers)
    yield from delay_checks(run, columns, ends)


def refuse_reserved(place: int, headers: Headers) -> None:
    """Refuse the system's reserved headers, except those that producers may set."""
    seen_ttl = seen_dedup_id = False
    for name, value in headers:
        if name == TTL:
            if seen_ttl or parse_ttl_ms(value) is None:
                raise InvalidFrame(
                    f"message {place} of the batch has a header {TTL!r}; it may come once, as a number from 1 to "
                    f"{MAX_TTL_MS}"
                )
            seen_ttl = True
        elif name == DEDUP_ID:
            if seen_dedup_id or not 0 < len(value) <= MAX_DEDUP_ID_BYTES:
                raise InvalidFrame(
                    f"message {place} of the batch has a header {DEDUP_ID!r}; it may come once, with 1 to "
                    f"{MAX_DEDUP_ID_BYTES} bytes"
                )
            seen_dedup_id = True
        elif name.startswith(RESERVED_PREFIX) and name not in _OF_DELAYS:
            raise InvalidFrame(
                f"message {place} of the batch has a header {name[:60]!r}; names that begin with "
                f"{RESERVED_PREFIX!r} are the broker's"
            )
