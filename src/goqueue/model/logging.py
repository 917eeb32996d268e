"""Logging with fields: a log line is a constant event and the values that belong to it.

``goqueue.observe.logs`` decides on the format of the lines and where they go.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

_CALLER = 3
"""The number of stack frames between ``logging`` and the caller of ``Logger.info`` and the others."""


_trace_id: ContextVar[str] = ContextVar("trace_id", default="")


@contextmanager
def tracing(trace_id: str) -> Iterator[None]:
    """Add a trace id to the lines logged in this context, unless they have their own; an empty one changes nothing.

    Use it for a few lines, not for a whole request: tasks and timers started in the context keep the id.
    """
    token = _trace_id.set(trace_id or _trace_id.get())
    try:
        yield
    finally:
        _trace_id.reset(token)


@dataclass(slots=True, eq=False)
class LogEvent:
    """An event with its fields. Its text has both, so every formatter shows them."""

    event: str
    fields: dict[str, object]

    def __str__(self) -> str:
        return " ".join([self.event, *(f"{name}={_shown(value)}" for name, value in self.fields.items())])


def _shown(value: object) -> str:
    try:
        return repr(value)
    except Exception:
        # A value without a valid repr must not prevent the line.
        return f"<{type(value).__name__}>"


class Logger:
    """A ``logging.Logger`` that takes fields: ``log.info("recovered partition", topic="x", cut_bytes=12)``.

    The event is a constant text and the values are fields, so that lines can be counted and searched. The event is
    never used as a format string.
    """

    __slots__ = ("_logger",)

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, event: str, /, **fields: object) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, /, exc_info: BaseException | None = None, **fields: object) -> None:
        self._write(logging.WARNING, event, fields, exc_info)

    def error(self, event: str, /, exc_info: BaseException | None = None, **fields: object) -> None:
        """Log a failure; ``exc_info`` adds an exception with its traceback."""
        self._write(logging.ERROR, event, fields, exc_info)

    def exception(self, event: str, /, **fields: object) -> None:
        """Log a failure with the exception that is being handled."""
        self._write(logging.ERROR, event, fields, True)

    def _write(
        self, level: int, event: str, fields: dict[str, object], exc_info: BaseException | bool | None = None
    ) -> None:
        if self._logger.isEnabledFor(level):
            if trace_id := _trace_id.get():
                fields.setdefault("trace_id", trace_id)
            message = LogEvent(event, fields)
            self._logger.log(level, message, exc_info=exc_info, extra={"fields": fields}, stacklevel=_CALLER)


def get_logger(name: str) -> Logger:
    """The logger of a module: ``log = get_logger(__name__)``."""
    return Logger(logging.getLogger(name))
