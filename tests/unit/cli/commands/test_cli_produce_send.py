"""Sending parts of what ``goqueue produce`` reads."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event
from typing import Any

import pytest

from goqueue.cli.commands.produce.produce_rows import Chunk
from goqueue.cli.commands.produce.produce_send import Pace, Sender, Tally
from goqueue.cli.connection.wait_notice import OutageNotices
from goqueue.client.messages.outgoing_message import Sent


class Interrupted:
    """A producer whose user loses patience."""

    def send_many(self, topic: str, messages: Sequence[Any]) -> list[Sent]:
        raise KeyboardInterrupt


class NoBar:
    def advance(self, amount: int = 1) -> None:
        pass

    def expect(self, total: int) -> None:
        pass


def test_who_interrupts_a_call_learns_which_line_is_not_known_to_be_stored() -> None:
    waiting, tally = OutageNotices("http://broker", "60s", is_enabled=False), Tally()
    producer: Any = Interrupted()
    delivery = Sender("t", producer, Pace(None), waiting, False, NoBar(), False, lambda _: None, lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        delivery.run(iter([Chunk("standard input", [b"a", b"b"], [7, 8], 4)]), tally, Event())
    assert (tally.stopped_before, tally.may_be_stored_after) == ("line 7 of standard input", True)
