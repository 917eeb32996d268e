"""Parses lines into messages, with defaults from the options."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import msgspec
import typer

from goqueue.cli.commands.produce.produce_input import MAX_LINE_BYTES, BadFile, BadLine, Block
from goqueue.cli.terminal.times import LONGEST_MS, duration_ms, instant_ns
from goqueue.client.messages.outgoing_message import Outgoing
from goqueue.model.errors import InvalidMessage
from goqueue.model.fields import did_you_mean, shown
from goqueue.model.message import Priority, parse_priority
from goqueue.wire.internal_headers import RESERVED_PREFIX, TTL

Sendable = bytes | Outgoing


@dataclass(frozen=True, slots=True)
class Defaults:
    """Defaults for all messages, from the options; fields of a line override them."""

    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None
    priority: int = int(Priority.NORMAL)
    delay: timedelta | None = None
    deliver_at_ns: int | None = None
    ttl: timedelta | None = None

    def message(self, value: bytes, key: bytes | None = None) -> Outgoing:
        return Outgoing(
            value,
            key=self.key if key is None else key,
            headers=self.headers or None,
            partition=self.partition,
            priority=self.priority,
            delay=self.delay,
            ttl=self.ttl,
            deliver_at=self.deliver_at_ns,
        )


@dataclass(frozen=True, slots=True)
class Chunk:
    """Messages that are sent together, and the line that each came from."""

    source: str
    messages: Sequence[Sendable]
    lines: Sequence[int]
    size_bytes: int
    bad: Sequence[tuple[int, str]] = ()
    """Invalid lines, and why."""
    is_whole: bool = False
    """Whether the whole source is one message."""

    def where(self, line: int) -> str:
        if self.is_whole:
            return self.source
        return f"line {line} of {self.source}" if self.source else f"value {line}"

    def problem(self, line: int, reason: str) -> InvalidMessage:
        return (BadFile if self.is_whole else BadLine)(f"{self.where(line)}: {reason}")

    def parts(self, most: int) -> Iterator[Chunk]:
        """Split into chunks of at most ``most`` messages. The last one carries the invalid lines."""
        count = len(self.messages)
        if count <= most:
            yield self
            return
        for first in range(0, count, most):
            end = min(first + most, count)
            is_last = end == count
            size_bytes = (
                self.size_bytes - self.size_bytes * first // count if is_last else self.size_bytes * most // count
            )
            yield Chunk(
                self.source, self.messages[first:end], self.lines[first:end], size_bytes, self.bad if is_last else ()
            )


Parse = Callable[[bytes], Sendable | None]
"""Parses a line; ``None`` for a line to skip. Raises ``InvalidMessage`` with the reason."""


def plain_parser(defaults: Defaults) -> Parse | None:
    """Parse a line as the value. ``None`` if there are no defaults: lines are sent unchanged."""
    return None if defaults == Defaults() else defaults.message


def key_parser(defaults: Defaults, separator: str) -> Parse:
    """Parse a line as key, separator and value, split at the first separator. An empty key means no key."""
    mark = separator.encode()

    def parse(line: bytes) -> Sendable:
        key, found, value = line.partition(mark)
        if not found:
            raise InvalidMessage(f"there is no {separator!r} between a key and a value")
        return defaults.message(value, key)

    return parse


def chunks(blocks: Iterator[Block], parse: Parse | None, *, skip_bad: bool) -> Iterator[Chunk]:
    """Parse blocks into chunks. Unless bad lines are skipped, the first one ends its chunk."""
    for block in blocks:
        if block.too_long:
            reason = f"it has more than {MAX_LINE_BYTES} bytes"
            yield Chunk(block.source, [], [], block.size_bytes, [(block.first, reason)])
        elif parse is None:
            yield Chunk(block.source, block.lines, range(block.first, block.first + len(block.lines)), block.size_bytes)
        else:
            yield _parse_block(block, parse, skip_bad=skip_bad)


def _parse_block(block: Block, parse: Parse, *, skip_bad: bool) -> Chunk:
    messages: list[Sendable] = []
    lines: list[int] = []
    bad: list[tuple[int, str]] = []
    for number, line in enumerate(block.lines, block.first):
        try:
            message = parse(line)
        except InvalidMessage as error:
            bad.append((number, str(error)))
            if not skip_bad:
                break
            continue
        if message is not None:
            messages.append(message)
            lines.append(number)
    return Chunk(block.source, messages, lines, block.size_bytes, bad)


class _Row(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A line of JSONL: the fields of a message over HTTP. Fields that only stored messages have are ignored."""

    value: msgspec.Raw = msgspec.Raw(b"")
    key: str | None = None
    headers: dict[str, str | list[str]] | None = None
    priority: str | int | None = None
    partition: int | None = None
    timestamp: str | None = None
    delay: str | None = None
    deliver_at: str | None = None
    deliverAt: str | None = None  # noqa: N815
    ttl: str | None = None
    dedup_id: str | None = None
    encoding: Literal["text", "base64"] = "text"
    topic: Any = None
    offset: Any = None
    deliveries: Any = None


COLUMNS = [name for name in _Row.__struct_fields__ if name not in ("topic", "offset", "deliveries")]
_UNKNOWN = "Object contains unknown field `"


def json_parser(defaults: Defaults, *, ignore_partition: bool) -> Parse:
    """Parse a line as a JSON object. Empty lines are skipped."""
    decode = msgspec.json.Decoder(_Row).decode

    def parse(line: bytes) -> Sendable | None:
        if not line or line.isspace():
            return None
        try:
            row = decode(line)
        except msgspec.DecodeError as error:
            raise InvalidMessage(_reason(str(error))) from None
        except RecursionError:
            raise InvalidMessage("it is nested too deeply") from None
        return _message(row, defaults, ignore_partition=ignore_partition)

    return parse


def _reason(text: str) -> str:
    if text.startswith(_UNKNOWN):
        name = text.removeprefix(_UNKNOWN).partition("`")[0]
        return f"there is no column {shown(name)}; there are {', '.join(COLUMNS)}{did_you_mean(name, COLUMNS)}"
    if text.startswith(("JSON is malformed", "Input data was truncated")):
        return f"it is not JSON (the {text if text.startswith('JSON') else text[0].lower() + text[1:]})"
    if text.startswith("Invalid enum value") and text.endswith("`$.encoding`"):
        return "encoding: it is text or base64"
    return text[0].lower() + text[1:].replace("`", "'")


def _message(row: _Row, defaults: Defaults, *, ignore_partition: bool) -> Outgoing:
    convert = _from_base64 if row.encoding == "base64" else _to_utf8
    key = defaults.key if row.key is None else convert("key", row.key)
    headers = list(defaults.headers)
    ttl = defaults.ttl if row.ttl is None else _span("ttl", row.ttl)
    if row.headers:
        named = [(name, convert("headers", each)) for name, given in row.headers.items() for each in _as_list(given)]
        if row.offset is not None:
            # The row was read from a topic: drop headers added by the broker, which adds them again if they apply.
            ttl = ttl or next((_ttl(each) for name, each in named if name == TTL), None)
            named = [pair for pair in named if not pair[0].startswith(RESERVED_PREFIX)]
        headers = [pair for pair in headers if pair[0] not in row.headers] + named
    due = row.deliver_at if row.deliverAt is None else row.deliverAt
    if sum(each is not None for each in (row.deliver_at, row.deliverAt, row.delay)) > 1:
        raise InvalidMessage("there is more than one of delay, deliver_at and deliverAt")
    delay, deliver_at_ns = defaults.delay, defaults.deliver_at_ns
    if row.delay is not None or due is not None:
        delay = None if row.delay is None else _span("delay", row.delay)
        deliver_at_ns = None if due is None else _instant("deliver_at", due)
    return Outgoing(
        _value(row, convert),
        key=key,
        headers=headers or None,
        partition=defaults.partition if row.partition is None or ignore_partition else row.partition,
        priority=defaults.priority if row.priority is None else int(parse_priority(row.priority)),
        timestamp=None if row.timestamp is None else _instant("timestamp", row.timestamp),
        delay=delay,
        ttl=ttl,
        deliver_at=deliver_at_ns,
        dedup_id=row.dedup_id,
    )


def _value(row: _Row, convert: Callable[[str, str], bytes]) -> bytes | None:
    """The value: a string is taken as text, null is a tombstone, anything else is its JSON as written."""
    raw = bytes(row.value)
    if not raw:
        raise InvalidMessage("it has no value; null is one, of a tombstone")
    if raw == b"null":
        return None
    if raw[:1] == b'"':
        return convert("value", msgspec.json.decode(raw, type=str))
    if row.encoding == "base64":
        raise InvalidMessage("value: it is not a text, and encoding says base64")
    return raw


def _as_list(values: str | list[str]) -> list[str]:
    return [values] if isinstance(values, str) else values


def _ttl(header: bytes) -> timedelta | None:
    return timedelta(milliseconds=int(header)) if header.isdigit() and int(header) <= LONGEST_MS else None


def _to_utf8(column: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidMessage(f"{column}: the text has half of a surrogate pair; write it as base64") from None


def _from_base64(column: str, text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise InvalidMessage(f"{column}: not valid base64, which encoding announces") from None


def _span(column: str, text: str) -> timedelta:
    try:
        return timedelta(milliseconds=duration_ms(column, text))
    except typer.BadParameter as error:
        raise InvalidMessage(f"{column}: {error.message}") from None


def _instant(column: str, text: str) -> int:
    try:
        return instant_ns(column, text)
    except typer.BadParameter as error:
        raise InvalidMessage(f"{column}: {error.message}") from None
