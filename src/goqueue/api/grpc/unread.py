"""Answers of unary calls that clients have not read yet: bounded in bytes over all connections of a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import NamedTuple

from goqueue.api.grpc.errors import Context
from goqueue.model.errors import Overloaded
from goqueue.model.logging import get_logger

log = get_logger(__name__)

_PATIENCE = 2
_BYTES_A_SWEEP = 16 << 20
"""Sweeps in which a connection may take no answer while others are kept from theirs; and in how many bytes that wait
for it there is one sweep more, as a large answer is not taken at once."""
_LOGGED = 5

CutOff = Callable[[Collection[str]], None]
"""Closes the connections of the given peers, and with them ends their calls."""


class _Answer(NamedTuple):
    context: Context
    size: int


class _Silence(NamedTuple):
    """What one connection does not read."""

    answers: set[object]
    size: int
    sweeps: int
    """How many sweeps in a row found that none of its answers was taken since the sweep before."""


class Waiting:
    """Answers that wait for their clients, and which clients take none of theirs."""

    def __init__(self, cut_off: CutOff) -> None:
        self._cut_off = cut_off
        self._answers: dict[object, _Answer] = {}
        self._silent: dict[str, _Silence] = {}
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._answers)

    def __contains__(self, key: object) -> bool:
        return key in self._answers

    def add(self, key: object, context: Context, size_bytes: int) -> None:
        self._answers[key] = _Answer(context, size_bytes)
        self.size_bytes += size_bytes

    def remove(self, key: object) -> None:
        self.size_bytes -= self._answers.pop(key).size

    def forget_silence(self) -> None:
        """From here on every client has all of its time again."""
        self._silent.clear()

    def sweep(self, patience: Callable[[int], int]) -> None:
        """Cut off the clients that took no answer in as many sweeps as ``patience`` allows for the bytes they have.

        Sweeps are counted instead of seconds: after a pause of the whole process, clients have had no time either.
        """
        found: dict[str, set[object]] = {}
        for key, answer in self._answers.items():
            found.setdefault(answer.context.peer(), set()).add(key)
        before, self._silent = self._silent, {}
        for peer, answers in found.items():
            last = before.get(peer)
            is_silent = last is not None and last.answers <= answers
            sweeps = last.sweeps + 1 if last is not None and is_silent else 0
            self._silent[peer] = _Silence(answers, sum(self._answers[key].size for key in answers), sweeps)
        too_long = {peer: each for peer, each in self._silent.items() if each.sweeps >= patience(each.size)}
        if too_long:
            log.warning(
                "clients that do not read their answers are cut off",
                connections=len(too_long),
                clients=sorted(too_long)[:_LOGGED],
                bytes=sum(each.size for each in too_long.values()),
            )
            self._cut_off(too_long)


class Unread:
    """An answer counts until its call's task ends, which is when the client's HTTP/2 window has let all of it through.

    gRPC has no flow control for unary calls: the bytes of an answer stay in memory until then, however many calls
    a client has made on its connection, and gRPC has no way to cancel a call whose answer is on its way.
    """

    def __init__(self, max_bytes: int, max_calls: int, cut_off: CutOff) -> None:
        self._max_bytes = max_bytes
        self._max_calls = max_calls
        self._waiting = Waiting(cut_off)
        self._refused: dict[str, int] = {}

    @property
    def size_bytes(self) -> int:
        return self._waiting.size_bytes

    def check_room(self, method: str, size_bytes: int | None = None) -> None:
        """Raise ``Overloaded`` if an answer of this size goes beyond the bound. The only one may be of any size.

        Without a size, before the answer is made: as if it were as small as the smallest that was refused to the same
        method lately. So no work is done for answers that find no room, while those of other methods still do.
        """
        expected = self._refused.get(method, 1) if size_bytes is None else size_bytes
        waiting_bytes = self._waiting.size_bytes
        if waiting_bytes and waiting_bytes + expected > self._max_bytes:
            self._refused[method] = min(expected, self._refused.get(method, expected))
            raise Overloaded(f"the broker is at its limit: grpc.max_unread_bytes is {self._max_bytes}", retry_after_s=1)

    def add(self, context: Context, size_bytes: int) -> None:
        """Count the answer that the current task, which is gRPC's own task of the call, is about to send."""
        task = asyncio.current_task()
        if task is not None and task not in self._waiting:
            self._waiting.add(task, context, size_bytes)
            task.add_done_callback(self._waiting.remove)

    @property
    def is_crowded(self) -> bool:
        """Whether answers that wait take half of the bound, or half of the calls that may be served at once."""
        return 2 * self._waiting.size_bytes >= self._max_bytes or 2 * len(self._waiting) >= self._max_calls

    def sweep(self) -> None:
        """Called about once a second: cut off the clients that keep others from being served by not reading."""
        if self.is_crowded:
            self._waiting.sweep(lambda size: _PATIENCE + size // _BYTES_A_SWEEP)
        else:
            self._waiting.forget_silence()
            self._refused.clear()
