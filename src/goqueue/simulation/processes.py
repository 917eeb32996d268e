"""Simulated processes: what was scheduled within the context of one belongs to it, and ends with it."""

from __future__ import annotations

import asyncio
from contextvars import Context, ContextVar, copy_context
from typing import Any

OUTSIDE = "outside"
"""The host of what runs in no process."""


class Killed(Exception):
    """The process in which an operation ran was killed before the operation had ended."""


class Process:
    """What is scheduled in ``context`` belongs to the process. ``host`` is the machine that it runs on."""

    def __init__(self, name: str, host: str = "") -> None:
        self.name = name
        self.host = host or name
        self.is_dead = False
        self.context: Context = copy_context()
        self.context.run(_current.set, self)
        self.tasks: list[asyncio.Task[Any]] = []
        self.callers: dict[asyncio.Future[Any], None] = {}
        """Who waits for an operation of the process, in order."""


_current: ContextVar[Process | None] = ContextVar("simulated_process", default=None)


def process_of(context: Context | None = None) -> Process | None:
    """The process that a context belongs to; without one, the process that runs now."""
    return _current.get() if context is None else context.get(_current)


def runs_in_a_dead_process(context: Context | None) -> bool:
    process = process_of(context)
    return process is not None and process.is_dead
