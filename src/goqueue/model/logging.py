"""How every layer says what happened: a short event, and the facts beside it as fields.

How a line looks and where it goes is decided above, by ``goqueue.observe.logs``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_CALLER = 3
"""Frames between ``logging`` and whoever called ``Logger.info`` and its kin."""


_trace_id: ContextVar[str] = ContextVar("trace_id", default="")


@contextmanager
def tracing(trace_id: str) -> Iterator[None]:
    """Lines written inside carry this trace id, unless they name another; an empty one changes nothing.

    For a few lines, not for all of a request: tasks and timers that begin inside would carry it on for ever.
    """
    token = _trace_id.set(trace_id or _trace_id.get())
    try:
        yield
    finally:
        _trace_id.reset(token)


class Said:
    """An event with its fields. As a text it holds both, so that any formatter shows them."""

    __slots__ = ("event", "fields")

    def __init__(self, event: str, fields: dict[str, object]) -> None:
        self.event = event
        self.fields = fields

    def __str__(self) -> str:
        return " ".join([self.event, *(f"{name}={_shown(value)}" for name, value in self.fields.items())])


def _shown(value: object) -> str:
    try:
        return repr(value)
    except Exception:
        # A line must come out whatever it is about.
        return f"<{type(value).__name__}>"


class Logger:
    """A ``logging.Logger`` that takes fields: ``log.info("recovered partition", topic="x", cut_bytes=12)``.

    An event is a constant text; what varies goes into fields, so that lines can be counted and searched.
    An event is never taken for a format string.
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
        """Something failed; ``exc_info`` adds that exception with its traceback."""
        self._write(logging.ERROR, event, fields, exc_info)

    def exception(self, event: str, /, **fields: object) -> None:
        """``error`` with the exception that is being handled."""
        self._write(logging.ERROR, event, fields, True)

    def is_enabled_for(self, level: int) -> bool:
        """Whether a line of that level would be written; for fields that are dear to compute."""
        return self._logger.isEnabledFor(level)

    def _write(
        self,
        level: int,
        event: str,
        fields: dict[str, object],
        exc_info: BaseException | bool | None = None,
    ) -> None:
        if self._logger.isEnabledFor(level):
            if trace_id := _trace_id.get():
                fields.setdefault("trace_id", trace_id)
            said = Said(event, fields)
            self._logger.log(level, said, exc_info=exc_info, extra={"fields": fields}, stacklevel=_CALLER)


def get_logger(name: str) -> Logger:
    """The logger of a module: ``log = get_logger(__name__)``."""
    return Logger(logging.getLogger(name))
