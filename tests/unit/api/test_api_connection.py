from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from goqueue.api.http.server.connection import Connection, sweep


class Transport:
    """A peer that takes what the test says."""

    def __init__(self) -> None:
        self.unread_bytes = 0
        self.aborted = False

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def abort(self) -> None:
        self.aborted = True


class Watched:
    """A connection that is swept whenever the test says what is left to read."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        config = uvicorn.Config(lambda *_: None, log_config=None)
        self.transport = Transport()
        self._connection = Connection(config, ServerState(), {}, loop)
        self._connection.transport = self.transport  # type: ignore[assignment]

    def is_cut_off(self, now: float, unread_bytes: int) -> bool:
        self.transport.unread_bytes = unread_bytes
        connections: set[Any] = {self._connection}
        sweep(connections, now)
        return self.transport.aborted


@pytest.fixture
def watched() -> Iterator[Watched]:
    loop = asyncio.new_event_loop()
    yield Watched(loop)
    loop.close()


def test_a_client_that_takes_nothing_for_a_minute_is_cut_off(watched: Watched) -> None:
    assert not watched.is_cut_off(1_000, 500)
    assert not watched.is_cut_off(1_060, 500)
    assert watched.is_cut_off(1_061, 500)


def test_a_client_that_takes_a_little_now_and_then_is_not_cut_off(watched: Watched) -> None:
    assert not any(watched.is_cut_off(1_000 + 59 * turn, 500 - turn) for turn in range(100))


def test_more_to_read_does_not_give_a_client_more_time(watched: Watched) -> None:
    assert not watched.is_cut_off(1_000, 500)
    assert not watched.is_cut_off(1_030, 900)
    assert watched.is_cut_off(1_061, 900)


def test_a_client_that_read_everything_has_its_time_again(watched: Watched) -> None:
    assert not watched.is_cut_off(1_000, 500)
    assert not watched.is_cut_off(1_030, 0)
    assert not watched.is_cut_off(2_000, 500)
    assert not watched.is_cut_off(2_060, 500)
    assert watched.is_cut_off(2_061, 500)


def test_a_client_with_nothing_to_read_is_not_cut_off(watched: Watched) -> None:
    assert not any(watched.is_cut_off(now, 0) for now in (1_000, 2_000, 9_000))
