"""What is known of a group that is set back, deleted and made again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from goqueue.simulation.promises import Promises, State


@dataclass(slots=True)
class Passing:
    name: str
    promises: Promises
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by who polls or changes it, so that it is known what came before what."""
    state: State = "refused"
    """Told to be there, told to be gone ('refused'), or neither."""
    limits: list[int] = field(default_factory=list)
    """What its ``max_in_flight`` may be; empty: anything."""
    is_known: bool = True
    """Whether everything that was not settled since it was made or set back has to come."""

    def forget(self) -> None:
        """What it was given before says nothing any more."""
        delivered = self.promises.delivered
        for group, place in [each for each in delivered if each[0] == self.name]:
            del delivered[group, place]

    def made(self, *, is_doubtful: bool = False) -> None:
        """A member has joined, or may have: that makes the group."""
        if not is_doubtful:
            self.state = "told"
        elif self.state == "refused":
            self.state = "asked"
