"""Between JSON bodies and messages. The one place where publishing and reading pay per message."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from typing import Generic, TypeVar

from msgspec import UNSET

from goqueue.api.http.bodies.durations import bounded_ms, due
from goqueue.api.http.bodies.fields import Encoding, HeaderValues
from goqueue.api.http.bodies.message_schemas import PublishMessage, PublishResult
from goqueue.model.errors import CorruptData, InvalidMessage, MessageTooLarge
from goqueue.model.message import NO_HEADERS, PRIORITY_LABELS, Headers, Message, Priority, parse_priority
from goqueue.model.publish_result import Published
from goqueue.model.publishing import NewMessage, Outcome
from goqueue.model.units import format_instant_ns, parse_instant_ns
from goqueue.wire.compression import decompress_within
from goqueue.wire.frame import MAX_HEADERS, MAX_HEADERS_BYTES
from goqueue.wire.internal_headers import (
    DEDUP_ID,
    DELAYED_OFFSET,
    DELAYED_TIMESTAMP,
    MAX_TTL_MS,
    PROVENANCE,
    RESERVED_PREFIX,
    TTL,
)

Written = TypeVar("Written")

_NORMAL = int(Priority.NORMAL)
_TOLD = {TTL, DEDUP_ID, DELAYED_OFFSET, DELAYED_TIMESTAMP, *PROVENANCE}
"""Of the system's own headers, those that are anyone's business."""


def to_new_message(given: PublishMessage, now_ns: int) -> NewMessage:
    """Raise a ``GoQueueError`` that names the field if one cannot be used."""
    delay_ms = deliver_at_ns = None
    if given.delay is not None or given.deliverAt is not None:
        delay_ms, deliver_at_ns = due(given.delay, given.deliverAt, now_ns)
    if given.encoding == "base64":
        key = None if given.key is None else _from_base64("key", given.key)
        value = None if given.value is None else _from_base64("value", given.value)
    else:
        key = None if given.key is None else _to_utf8("key", given.key)
        value = None if given.value is None else _to_utf8("value", given.value)
    return NewMessage(
        value,
        key,
        NO_HEADERS if not given.headers else _to_headers(given.headers, given.encoding),
        given.partition,
        _NORMAL if given.priority is None else int(parse_priority(given.priority)),
        None if given.timestamp is None else parse_instant_ns(given.timestamp),
        None if given.ttl is None else bounded_ms("ttl", given.ttl, MAX_TTL_MS, 1),
        delay_ms,
        deliver_at_ns,
        given.dedup_id,
    )


def _to_utf8(field: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidMessage(f"{field}: the text has half of a surrogate pair; send it as base64") from None


def _from_base64(field: str, text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise InvalidMessage(f"{field}: not valid base64, which encoding announces") from None


def _to_headers(given: dict[str, HeaderValues], encoding: Encoding) -> Headers:
    convert: Callable[[str, str], bytes] = _from_base64 if encoding == "base64" else _to_utf8
    pairs: list[tuple[str, bytes]] = []
    for name, values in given.items():
        _to_utf8("headers", name)
        several = [values] if isinstance(values, str) else values
        if len(pairs) + len(several) > MAX_HEADERS:
            raise MessageTooLarge(
                f"the message has more than {MAX_HEADERS} headers, which do not fit into {MAX_HEADERS_BYTES} bytes"
            )
        pairs += [(name, convert(f"headers.{name[:40]}", value)) for value in several]
    return tuple(pairs)


def to_result(outcome: Outcome) -> PublishResult:
    if isinstance(outcome, Published):
        priority, due_ns = PRIORITY_LABELS[outcome.priority], outcome.deliver_at_ns
        if due_ns is None:
            result = PublishResult(outcome.partition, outcome.offset, priority, False)
        else:
            result = PublishResult(outcome.partition, outcome.offset, priority, True, format_instant_ns(due_ns))
        if outcome.is_duplicate:
            result.duplicate = True
        return result
    return PublishResult(error=str(outcome), code=outcome.code, retriable=outcome.retriable)


class PageOfMessages(Generic[Written]):
    """The messages of one answer. What they unpack to is bounded for all of them together; one always fits."""

    def __init__(self, encoding: Encoding | None, max_bytes: int) -> None:
        self.messages: list[Written] = []
        self._encoding = encoding
        self._left_bytes = max_bytes

    def add(
        self, message: Message, max_message_bytes: int, make: Callable[..., Written], *, must: bool = False
    ) -> bool:
        """False if the message does not fit; it is for another page then.

        ``make`` gets what ``ConsumeMessage`` has, but for the partition. A message that ``must`` be in the answer is
        left packed if it does not fit unpacked.
        """
        value, encoding, compressed = message.value, self._encoding, message.compressed
        room = self._left_bytes if self.messages else max(self._left_bytes, max_message_bytes)
        if compressed:
            try:
                unpacked = decompress_within(value, min(room, max_message_bytes))
            except CorruptData:
                unpacked = None
            else:
                if unpacked is None and room < max_message_bytes:
                    if not must:
                        return False
                    # Trying the same with all that follow could take any time.
                    self._left_bytes = 0
            if unpacked is None:
                # The producer's own affair: whoever can read it gets the bytes as they are.
                encoding = "base64"
            else:
                value, compressed = unpacked, False
        if self.messages and len(value) > room and not must:
            return False
        self._left_bytes = max(0, self._left_bytes - len(value))
        self.messages.append(_to_consumed(message, make, encoding, value, compressed))
        return True


def _to_consumed(
    message: Message, make: Callable[..., Written], encoding: Encoding | None, value: bytes, compressed: bool
) -> Written:
    """As text if the bytes are text and nobody asked for base64, else as base64."""
    if encoding != "base64":
        try:
            return _as_consumed(message, make, "text", value, compressed, bytes.decode)
        except UnicodeDecodeError:
            pass
    return _as_consumed(message, make, "base64", value, compressed, _to_base64)


def _as_consumed(
    message: Message,
    make: Callable[..., Written],
    encoding: Encoding,
    value: bytes,
    compressed: bool,
    write: Callable[[bytes], str],
) -> Written:
    headers: dict[str, HeaderValues] = {}
    for name, content in message.headers:
        if name.startswith(RESERVED_PREFIX) and name not in _TOLD:
            continue
        before, written = headers.get(name), write(content)
        if before is None:
            headers[name] = written
        elif isinstance(before, str):
            headers[name] = [before, written]
        else:
            before.append(written)
    return make(
        offset=message.offset,
        timestamp=format_instant_ns(message.timestamp_ns),
        value=None if message.tombstone else write(value),
        priority=PRIORITY_LABELS[message.priority],
        encoding=encoding,
        key=UNSET if message.key is None else write(message.key),
        headers=headers or UNSET,
        compressed=compressed,
    )


def _to_base64(data: bytes) -> str:
    return b64encode(data).decode()
