"""Formats messages for printing: the value alone, one line, in full, as JSON, by a template."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
import typer

from goqueue.cli.commands.consume.message_filter import MISSING, BadCondition, Path, decode_json, parse_path, value_at
from goqueue.cli.terminal.output import Line, Span
from goqueue.client.consumer.reader import Record
from goqueue.model.fields import did_you_mean, shown
from goqueue.model.message import PRIORITY_LABELS, Headers, Priority
from goqueue.model.units import format_instant_ns
from goqueue.observe.logs import escape
from goqueue.wire.internal_headers import DEDUP_ID, DELAYED_OFFSET, DELAYED_TIMESTAMP, PROVENANCE, RESERVED_PREFIX, TTL

Write = Callable[[Sequence[Record]], bytes]
_NORMAL = int(Priority.NORMAL)
_NS_PER_MS = 1_000_000
_SHOWN_INTERNAL = {TTL, DEDUP_ID, DELAYED_OFFSET, DELAYED_TIMESTAMP, *PROVENANCE}
_MAX_TEMPLATE = 10_000
_FIELD = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_JSON_PART = re.compile(
    r'(?P<name>"(?:[^"\\]|\\.)*"(?=\s*:))|(?P<text>"(?:[^"\\]|\\.)*"?)|(?P<number>-?\d[\d.eE+-]*)'
    r"|(?P<word>\b(?:true|false|null)\b)"
)
_COLOURS = {"name": "blue", "text": "green", "number": "cyan", "word": "magenta"}


class _Message(msgspec.Struct, omit_defaults=True, gc=False):
    """A message as JSON, with the same fields as over HTTP."""

    topic: str
    partition: int
    offset: int
    timestamp: str
    value: str | None
    priority: str
    encoding: str
    key: str | msgspec.UnsetType = msgspec.UNSET
    headers: dict[str, str | list[str]] | msgspec.UnsetType = msgspec.UNSET
    deliveries: int | msgspec.UnsetType = msgspec.UNSET


_encode = msgspec.json.Encoder().encode


def values(records: Sequence[Record]) -> bytes:
    """One value a line; a tombstone is an empty line."""
    return b"\n".join([record.value or b"" for record in records]) + b"\n"


def raw_values(records: Sequence[Record]) -> bytes:
    """Values without separators."""
    return b"".join([record.value or b"" for record in records])


def json_lines(records: Sequence[Record]) -> bytes:
    return b"\n".join([_encode(_as_json(record)) for record in records]) + b"\n"


def visible_headers(headers: Headers) -> Headers:
    """Headers without those that are internal to the system."""
    return tuple(pair for pair in headers if not pair[0].startswith(RESERVED_PREFIX) or pair[0] in _SHOWN_INTERNAL)


def _as_json(record: Record) -> _Message:
    try:
        return _encode_record(record, "text", bytes.decode)
    except UnicodeDecodeError:
        return _encode_record(record, "base64", _base64)


def _encode_record(record: Record, encoding: str, convert: Callable[[bytes], str]) -> _Message:
    headers: dict[str, str | list[str]] = {}
    for name, value in visible_headers(record.headers) if record.headers else ():
        before, text = headers.get(name), convert(value)
        if before is None:
            headers[name] = text
        else:
            headers[name] = [*([before] if isinstance(before, str) else before), text]
    return _Message(
        record.topic,
        record.partition,
        record.offset,
        format_instant_ns(record.timestamp_ns),
        None if record.value is None else convert(record.value),
        PRIORITY_LABELS[record.priority],
        encoding,
        msgspec.UNSET if record.key is None else convert(record.key),
        headers or msgspec.UNSET,
        getattr(record, "deliveries", msgspec.UNSET),
    )


def _base64(value: bytes) -> str:
    return b64encode(value).decode()


def text_of(value: bytes | None) -> str:
    """A value on one line, with unprintable characters escaped."""
    if value is None:
        return "(tombstone)"
    try:
        return escape(value.decode())
    except UnicodeDecodeError:
        return f"({len(value)} bytes) {_base64(value)}"


def record_line(record: Record, width: int | None, *, headers: bool) -> Line:
    """Time, position, key, lane if not normal, and value; cut at ``width`` columns, if given."""
    spans: Line = [
        (_time(record.timestamp_ns), "dim"),
        ("  ", ""),
        (f"{record.partition}/{record.offset}", "yellow"),
        ("  ", ""),
    ]
    if record.key is not None:
        spans += [(text_of(record.key), "bold"), ("  ", "")]
    if record.priority != _NORMAL:
        spans += [(PRIORITY_LABELS[record.priority], "red"), ("  ", "")]
    if headers:
        for name, value in visible_headers(record.headers):
            spans += [(f"{escape(name)}={text_of(value)}", "dim"), ("  ", "")]
    text = text_of(record.value)
    if width is not None:
        spans, left = _cut(spans, width)
        text = "".join(part for part, _ in _cut([(text, "")], left)[0])
    return spans + (colour_json(text) if text.startswith(("{", "[")) else [(text, "dim" * (record.value is None))])


def _cut(spans: Line, width: int) -> tuple[Line, int]:
    """The spans that fit, with an ellipsis if cut, and the width left."""
    from rich.cells import cell_len, set_cell_size

    kept: Line = []
    for text, style in spans:
        # No need to measure a long value to its end.
        size = cell_len(text[: width + 1])
        if size > width:
            return [*kept, (set_cell_size(text[: width + 1], max(0, width - 1)) + "…", style)] if width else kept, 0
        kept.append((text, style))
        width -= size
    return kept, width


def colour_json(text: str) -> Line:
    """Colour JSON, or the beginning of it."""
    spans: Line = []
    position = 0
    for part in _JSON_PART.finditer(text):
        spans += [(text[position : part.start()], ""), (part[0], _COLOURS[part.lastgroup or "word"])]
        position = part.end()
    return [*spans, (text[position:], "")]


def record_lines(record: Record) -> Iterator[Line]:
    """Everything of a message, a line for each part, with JSON indented."""
    yield [(f"{record.topic}/{record.partition} offset {record.offset}", "bold yellow")]
    facts = [("time", format_instant_ns(record.timestamp_ns)), ("priority", PRIORITY_LABELS[record.priority])]
    if record.key is not None:
        facts.append(("key", text_of(record.key)))
    facts += [(f"header {escape(name)}", text_of(value)) for name, value in visible_headers(record.headers)]
    if (deliveries := getattr(record, "deliveries", None)) is not None:
        facts.append(("deliveries", str(deliveries)))
    for name, fact in facts:
        yield [(f"  {name}: ", "dim"), (fact, "")]
    for each in _indented(record.value):
        yield [("  ", ""), *each]
    yield []


def _indented(value: bytes | None) -> Iterator[list[Span]]:
    if isinstance(value, bytes) and value[:1] in (b"{", b"[") and decode_json(value) is not MISSING:
        for each in msgspec.json.format(value, indent=2).decode(errors="replace").splitlines():
            yield colour_json(escape(each))
    else:
        yield [(text_of(value), "")]


def _time(instant_ns: int) -> str:
    """To the millisecond, in a fixed width."""
    seconds, nanos = divmod(instant_ns, 1_000_000_000)
    return f"{format_instant_ns(seconds * 1_000_000_000)[:-1]}.{nanos // _NS_PER_MS:03d}Z"


_FIELDS: dict[str, Callable[[Record], bytes]] = {
    "topic": lambda record: record.topic.encode(),
    "partition": lambda record: b"%d" % record.partition,
    "offset": lambda record: b"%d" % record.offset,
    "timestamp": lambda record: format_instant_ns(record.timestamp_ns).encode(),
    "timestamp_ns": lambda record: b"%d" % record.timestamp_ns,
    "key": lambda record: record.key or b"",
    "value": lambda record: record.value or b"",
    "priority": lambda record: PRIORITY_LABELS[record.priority].encode(),
    "headers": lambda record: b",".join([b"%s=%s" % (n.encode(), v) for n, v in visible_headers(record.headers)]),
    "trace_id": lambda record: record.trace_id.encode(),
}


def compile_template(text: str) -> Write:
    r"""Compile a template such as ``{partition} {offset} {key} {value.customer.city} {headers.shop}\n``; ``{{`` is a
    brace."""
    if len(text) > _MAX_TEMPLATE:
        raise typer.BadParameter(f"it has {len(text)} letters; at most {_MAX_TEMPLATE}", param_hint="--template")
    text = text.replace("\\n", "\n").replace("\\t", "\t")
    parts: list[Callable[[Record], bytes]] = []
    position = 0
    for found in _FIELD.finditer(text):
        parts.append(partial(_constant, text[position : found.start()].encode()))
        if found[0] in ("{{", "}}"):
            parts.append(partial(_constant, found[0][:1].encode()))
        elif found[1] is None:
            raise typer.BadParameter(
                f"the brace at letter {found.start() + 1} has no partner; write {found[0] * 2} for a brace",
                param_hint="--template",
            )
        else:
            parts.append(_field(found[1]))
        position = found.end()
    parts.append(partial(_constant, text[position:].encode() + b"\n"))

    def write(records: Sequence[Record]) -> bytes:
        return b"".join([part(record) for record in records for part in parts])

    return write


def _field(name: str) -> Callable[[Record], bytes]:
    if name in _FIELDS:
        return _FIELDS[name]
    head, _, rest = name.partition(".")
    if head == "headers" and rest:
        return partial(_header, rest)
    if name.startswith(("value.", "value[")):
        try:
            path, end = parse_path(name, len("value") + name.startswith("value."))
        except BadCondition as error:
            raise typer.BadParameter(str(error), param_hint="--template") from None
        if end == len(name):
            return partial(_value_at, path)
    known = [*_FIELDS, "headers.NAME", "value.PATH"]
    raise typer.BadParameter(
        f"there is no field {shown(name)}; there are {', '.join(known)}{did_you_mean(name, known)}",
        param_hint="--template",
    )


def _constant(text: bytes, _: Record) -> bytes:
    return text


def _header(name: str, record: Record) -> bytes:
    return next((value for each, value in record.headers if each == name), b"")


def _value_at(path: Path, record: Record) -> bytes:
    found: Any = value_at(decode_json(record.value), path)
    if found is MISSING:
        return b""
    return found.encode() if isinstance(found, str) else _encode(found)


def escape_lines(output: bytes) -> str:
    """Escape all unprintable characters but line feeds, for a terminal."""
    return "\n".join([escape(each) for each in output.decode(errors="replace").split("\n")])
