"""Log output on standard error, one event per line, as text for a terminal or as JSON.

Logged values cannot forge lines: control characters, line separators and the like are escaped. Repeated events cannot
flood the log: an event is written a limited number of times per window, then the number of suppressed lines.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, TextIO

from goqueue.model.errors import InvalidRequest
from goqueue.model.logging import LogEvent
from goqueue.observe.line_limit import LeftOut, LineLimit

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_OURS = "goqueue"
_SERVER_LOGGERS = ("uvicorn", "uvicorn.error")
_ACCESS_LOGGER = "uvicorn.access"
_OWN_KEYS = frozenset({"ts", "level", "logger", "event", "exception"})
_DEEPEST = 6
_MOST_DIGITS_BITS = 1_024

Later = Callable[[float, Callable[[], None]], None]
_LONGEST_KIND = 200

_BARE = re.compile(r"[^\s\"'=\\]+")
_EVENT_WIDTH = 36
_RESET, _DIM, _BOLD = "\x1b[0m", "\x1b[2m", "\x1b[1m"
_LEVEL_COLOURS = {"debug": "\x1b[2m", "info": "\x1b[32m", "warning": "\x1b[33m", "error": "\x1b[31m"}


class JsonFormatter(logging.Formatter):
    """One JSON object per line, in ASCII: ts, level, logger, event, then every field, then the exception if any.

    A field with one of these names gets a trailing underscore.
    """

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "ts": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": _logger_name(record),
            "event": _event(record),
        }
        for key, value in _fields(record).items():
            line[key] = _plain(value)
        if trace := _exception_text(self, record):
            line["exception"] = trace
        return json.dumps(line, ensure_ascii=True, separators=(",", ":"))


class ConsoleFormatter(logging.Formatter):
    """Local time, level, event and fields in columns; an exception follows, a bar before each of its lines."""

    def __init__(self, *, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        level = record.levelname.lower()
        moment = datetime.fromtimestamp(record.created).strftime("%H:%M:%S") + f".{int(record.msecs):03d}"
        event = escape(_event(record))
        fields = " ".join(
            f"{self._paint(escape(key) + '=', _DIM)}{_console_value(value)}"
            for key, value in (_fields(record) | {"logger": _logger_name(record)}).items()
        )
        columns = (
            self._paint(moment, _DIM),
            self._paint(f"{level:<7}", _LEVEL_COLOURS.get(level, "")),
            self._paint(f"{event:<{_EVENT_WIDTH}}", _BOLD),
            fields,
        )
        line = " ".join(columns)
        if trace := _exception_text(self, record):
            line += "".join(f"\n    | {escape(part)}" for part in trace.splitlines())
        return line

    def _paint(self, text: str, colour: str) -> str:
        return f"{colour}{text}{_RESET}" if self._colour and colour else text


class LogHandler(logging.StreamHandler[TextIO]):
    """The handler that ``configure`` installs; configuring again replaces it and leaves other handlers alone.

    It suppresses lines of events that are too frequent. ``later`` calls a function after a number of seconds: the
    summary of suppressed lines is written when their window ends, even if nothing else is logged.
    """

    def __init__(self, stream: TextIO, limit: LineLimit, later: Later) -> None:
        super().__init__(stream)
        self.limit = limit
        self._later = later
        self._is_waiting = False

    def handle(self, record: logging.LogRecord) -> bool:
        self._log_suppressed(self.limit.ended())
        if self.limit.admits(record.name, _kind(record), record.levelno):
            return bool(super().handle(record))
        self._schedule_summary()
        return False

    def close(self) -> None:
        self._log_suppressed(self.limit.ended(all_of_them=True))
        super().close()

    def _schedule_summary(self) -> None:
        # Two threads may get here at once; the check then runs twice, which does no harm.
        if not self._is_waiting and (in_s := self.limit.next_end_s()) is not None:
            self._is_waiting = True
            self._later(in_s, self._window_ended)

    def _window_ended(self) -> None:
        self._is_waiting = False
        self._log_suppressed(self.limit.ended())
        self._schedule_summary()

    def _log_suppressed(self, found: list[LeftOut]) -> None:
        for each in found:
            fields: dict[str, object] = {"of": each.event, "count": each.count}
            record = logging.LogRecord(
                each.logger, each.level, __file__, 0, LogEvent("lines left out", fields), None, None
            )
            record.fields = fields
            super().handle(record)


def configure(
    format: str,
    level: str,
    *,
    stream: TextIO | None = None,
    environ: Mapping[str, str] | None = None,
    clock: Callable[[], float] = time.monotonic,
    later: Later | None = None,
) -> None:
    """Send every log line of this process to ``stream`` (standard error).

    ``format`` is ``json`` or ``console``; ``level`` is the lowest level written. Libraries are logged from ``warning``
    up. The HTTP server's lines use the same format, and its access log is off.
    """
    if level not in _LEVELS:
        raise InvalidRequest(f"{level!r} is not a log level; use one of {', '.join(_LEVELS)}")
    target = stream if stream is not None else sys.stderr
    handler = LogHandler(target, LineLimit(clock), later or _in_a_thread)
    handler.setFormatter(_formatter(format, target, os.environ if environ is None else environ))

    root = logging.getLogger()
    for old in _installed():
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(max(_LEVELS[level], logging.WARNING))
    logging.getLogger(_OURS).setLevel(_LEVELS[level])
    for name in _SERVER_LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(_LEVELS[level])
    access = logging.getLogger(_ACCESS_LOGGER)
    access.handlers.clear()
    access.propagate = False
    access.setLevel(logging.CRITICAL + 1)


def suppressed_lines() -> int:
    """Lines suppressed since ``configure``, because their event was too frequent."""
    return sum(handler.limit.suppressed for handler in _installed())


def _installed() -> list[LogHandler]:
    return [handler for handler in logging.getLogger().handlers if isinstance(handler, LogHandler)]


def _in_a_thread(in_s: float, call: Callable[[], None]) -> None:
    timer = threading.Timer(in_s, call)
    timer.daemon = True
    # Starting a thread can fail, for example at exit: then the next line writes the summary.
    with suppress(RuntimeError):
        timer.start()


def escape(text: str) -> str:
    """``text`` on one line, with all unprintable characters (controls, separators, direction marks) escaped."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def _formatter(format: str, stream: TextIO, environ: Mapping[str, str]) -> logging.Formatter:
    if format == "json":
        return JsonFormatter()
    if format == "console":
        return ConsoleFormatter(
            colour=stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
        )
    raise InvalidRequest(f"{format!r} is not a log format; use one of console, json")


def _logger_name(record: logging.LogRecord) -> str:
    # The server's main logger is called "uvicorn.error" for messages of any level, which reads like a failure.
    return "uvicorn" if record.name == "uvicorn.error" else record.name


def _kind(record: logging.LogRecord) -> str:
    """The event without its fields, shared by lines that report the same about different objects."""
    return record.msg.event if isinstance(record.msg, LogEvent) else str(record.msg)[:_LONGEST_KIND]


def _event(record: logging.LogRecord) -> str:
    return record.msg.event if isinstance(record.msg, LogEvent) else record.getMessage()


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields = getattr(record, "fields", None)
    if not isinstance(fields, dict):
        return {}
    return {f"{key}_" if key in _OWN_KEYS else str(key): value for key, value in fields.items()}


def _exception_text(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = []
    if record.exc_info and record.exc_info[0] is not None:
        parts.append(formatter.formatException(record.exc_info))
    if record.stack_info:
        parts.append(formatter.formatStack(record.stack_info))
    return "\n".join(parts)


def _plain(value: object, depth: int = 0) -> object:
    """``value`` as a JSON value; types that JSON does not have become text."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value) if value.bit_length() <= _MOST_DIGITS_BITS else hex(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if depth < _DEEPEST and isinstance(value, Mapping):
        return {_text(key): _plain(item, depth + 1) for key, item in value.items()}
    if depth < _DEEPEST and isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, depth + 1) for item in value]
    return _text(value)


def _text(value: object) -> str:
    """``value`` as text. Never raises: a line with one unreadable field is better than no line."""
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "backslashreplace")
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__} that cannot be shown>"


def _console_value(value: object) -> str:
    plain = _plain(value)
    if not isinstance(plain, str):
        return json.dumps(plain, ensure_ascii=True)
    if plain.isprintable() and _BARE.fullmatch(plain):
        return plain
    quoted = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escape(quoted)}"'
