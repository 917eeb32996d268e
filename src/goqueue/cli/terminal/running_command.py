"""The arguments of the command that is running, for code that is called deep inside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_arguments: ContextVar[Mapping[str, object] | None] = ContextVar("arguments", default=None)


@contextmanager
def for_command(arguments: Mapping[str, object]) -> Iterator[None]:
    """Within this block ``command_arguments`` returns ``arguments``, with which the command was called."""
    token = _arguments.set(arguments)
    try:
        yield
    finally:
        _arguments.reset(token)


def command_arguments() -> Mapping[str, object]:
    """The arguments of the command that is running, by parameter name; empty outside of a command."""
    return _arguments.get() or {}
