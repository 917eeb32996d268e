"""What a message looks like that the broker moved to another topic, and what it tells of where it came from."""

from __future__ import annotations

from msgspec.structs import replace

from goqueue.delivery.queue import Move, Queue
from goqueue.model.logging import get_logger
from goqueue.model.message import Headers, Message
from goqueue.model.units import format_instant_ns
from goqueue.wire import internal_headers as system
from goqueue.wire.delayed import MAX_DELAYED_HEADERS_BYTES, due_header
from goqueue.wire.frame import HEADER_SIZE, MAX_HEADERS_BYTES, Flag, decode_headers, encode_message
from goqueue.wire.trace_context import trace_id_of, traceparent_in

log = get_logger(__name__)

REDRIVE = "__redrive"
"""The broker's own group: what it has done with of a dead-letter topic was redriven."""


def mark_of(queue: Queue, offset: int) -> str:
    """Unique for ever: by it a copy is known after a crash."""
    return f"{queue.key}/{offset}"


def copy_of(message: Message, queue: Queue, source: str, move: Move, now_ns: int) -> bytes:
    """The frame to append to the target. ``source`` is the name of the topic that the message lies in."""
    kept = [(name, value) for name, value in message.headers if not name.startswith(system.RESERVED_PREFIX)]
    if queue.group == REDRIVE:
        told = dict(message.headers)
        group = told.get(system.GROUP, b"").decode()
        # One that was refused at publish was nobody's yet, and is for all.
        added = {system.FOR_GROUP: group} if group else {}
        if system.ORIGIN_TIMESTAMP in told:
            added[system.ORIGIN_TIMESTAMP] = told[system.ORIGIN_TIMESTAMP].decode()
    else:
        added = {
            system.ORIGIN_TOPIC: source,
            system.ORIGIN_PARTITION: str(queue.partition),
            system.ORIGIN_OFFSET: str(message.offset),
            system.ORIGIN_TIMESTAMP: format_instant_ns(message.timestamp_ns),
            system.GROUP: queue.group,
            system.DELIVERIES: str(move.count),
            system.ERROR: move.reason,
        }
    added[system.COPY_OF] = mark_of(queue, message.offset)
    if traceparent_in(message.headers) is None:
        added[system.TRACE] = trace_id_of(message.headers, source, queue.partition, message.offset)
    told_in_bytes = [(name, value.encode()) for name, value in added.items()]
    if move.target.due_ns <= now_ns:
        return encode_message(replace(message, headers=fitting(kept, told_in_bytes), timestamp_ns=now_ns))
    told_in_bytes.append(due_header(move.target.due_ns))
    headers = fitting(kept, told_in_bytes, MAX_DELAYED_HEADERS_BYTES)
    return encode_message(replace(message, headers=headers, timestamp_ns=now_ns), int(Flag.DELAYED))


def trace_of(copy: bytes, source: str, partition: int, offset: int) -> str:
    """The trace id of a message from that place, of which this is the copy."""
    size = int.from_bytes(copy[HEADER_SIZE - 2 : HEADER_SIZE])
    return trace_id_of(decode_headers(copy[len(copy) - size :]), source, partition, offset)


def fitting(
    kept: list[tuple[str, bytes]], added: list[tuple[str, bytes]], max_bytes: int = MAX_HEADERS_BYTES
) -> Headers:
    """The message's own headers and what is added to them; its own make room if they are too large together."""
    headers: Headers = (*kept, *added)
    while sum(len(name.encode()) + len(value) + 4 for name, value in headers) + 2 > max_bytes and kept:
        dropped = kept.pop(max(range(len(kept)), key=lambda place: len(kept[place][1])))
        log.warning("a header does not fit beside those of a dead letter and is dropped", header=dropped[0][:60])
        headers = (*kept, *added)
    return headers
