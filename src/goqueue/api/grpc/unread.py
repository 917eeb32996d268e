"""Answers of unary calls that clients have not read yet: bounded in bytes over all connections of a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from goqueue.api.grpc.errors import Context
from goqueue.model.errors import Overloaded
from goqueue.model.logging import get_logger

log = get_logger(__name__)

_PATIENCE = 2
_BYTES_A_SWEEP = 8 << 20
"""Sweeps in which a connection may take no answer while others are kept from theirs; and in how many bytes that wait
for it there is one sweep more, as a large answer is not taken at once."""
_LOGGED = 5


class _Answer(NamedTuple):
    size: int
    context: Context


class _Silence(NamedTuple):
    """What one connection does not read."""

    answers: set[asyncio.Task[Any]]
    sweeps: int
    """How many sweeps in a row found that none of its answers was taken since the sweep before."""


class Unread:
    """An answer counts until its call's task ends, which is when the client's HTTP/2 window has let all of it through.

    gRPC has no flow control for unary calls: the bytes of an answer stay in memory until then, however many calls
    a client has made on its connection, and gRPC has no way to cancel a call whose answer is on its way.
    """

    def __init__(self, max_bytes: int, max_calls: int, cut_off: Callable[[Collection[str]], None]) -> None:
        """``cut_off`` closes the connections of the given peers, and with them ends their calls."""
        self._max_bytes = max_bytes
        self._max_calls = max_calls
        self._cut_off = cut_off
        self.size_bytes = 0
        self._waiting: dict[asyncio.Task[Any], _Answer] = {}
        self._silent: dict[str, _Silence] = {}

    def check_room(self, size_bytes: int = 1) -> None:
        """Raise ``Overloaded`` if an answer of this size goes beyond the bound. The only one may be of any size."""
        if self.size_bytes and self.size_bytes + size_bytes > self._max_bytes:
            raise Overloaded(f"the broker is at its limit: grpc.max_unread_bytes is {self._max_bytes}", retry_after_s=1)

    def add(self, context: Context, size_bytes: int) -> None:
        """Count the answer that the current task, which is gRPC's own task of the call, is about to send."""
        task = asyncio.current_task()
        if task is not None and task not in self._waiting:
            self._waiting[task] = _Answer(size_bytes, context)
            self.size_bytes += size_bytes
            task.add_done_callback(self._taken)

    def _taken(self, task: asyncio.Task[Any]) -> None:
        self.size_bytes -= self._waiting.pop(task).size

    @property
    def is_crowded(self) -> bool:
        """Whether answers that wait take half of the bound, or half of the calls that may be served at once."""
        return 2 * self.size_bytes >= self._max_bytes or 2 * len(self._waiting) >= self._max_calls

    def sweep(self) -> None:
        """Called about once a second: cut off the clients that keep others from being served by not reading.

        Sweeps are counted instead of seconds: after a pause of the whole process, clients have had no time either.
        """
        if not self.is_crowded:
            self._silent.clear()
            return
        found: dict[str, set[asyncio.Task[Any]]] = {}
        for task, answer in self._waiting.items():
            found.setdefault(answer.context.peer(), set()).add(task)
        before, self._silent = self._silent, {}
        for peer, answers in found.items():
            last = before.get(peer)
            is_silent = last is not None and last.answers <= answers
            self._silent[peer] = _Silence(answers, last.sweeps + 1 if last is not None and is_silent else 0)
        too_long = {peer: each for peer, each in self._silent.items() if each.sweeps >= self._patience(each)}
        if too_long:
            log.warning(
                "clients that do not read their answers are cut off",
                connections=len(too_long),
                clients=sorted(too_long)[:_LOGGED],
                bytes=sum(self._bytes_of(each) for each in too_long.values()),
            )
            self._cut_off(too_long)

    def _patience(self, silence: _Silence) -> int:
        return _PATIENCE + self._bytes_of(silence) // _BYTES_A_SWEEP

    def _bytes_of(self, silence: _Silence) -> int:
        return sum(self._waiting[task].size for task in silence.answers)
