"""Operations on dead letters: browse, and redrive to the topic that they came from."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from goqueue.broker.dead_letters.redrive import MAX_BROWSED_BYTES, DeadLetter, Filter, Redriven
from goqueue.broker.operations.caller import Caller
from goqueue.broker.operations.gate import Resource, ResourceOperations, operation


class DeadLetterOperations(ResourceOperations):
    """``topic`` is the topic that messages came from, or its dead-letter topic."""

    @operation("dead_letters.find_topic", Resource.TOPIC)
    def topic_of(self, caller: Caller, topic: str) -> str:
        """The name of the topic that holds the dead letters."""
        return self._host.groups.dead_letters.topic_of(topic).name

    @operation("dead_letters.browse", Resource.TOPIC)
    def browse(
        self,
        caller: Caller,
        topic: str,
        wanted: Filter,
        limit: int,
        after: tuple[int, int] = (0, 0),
        max_bytes: int = MAX_BROWSED_BYTES,
    ) -> Coroutine[Any, Any, list[DeadLetter]]:
        """Dead letters by partition and offset, from ``after`` on; no more once there are ``max_bytes``."""
        return self._host.groups.dead_letters.browse(topic, wanted, limit, after, max_bytes)

    @operation("dead_letters.redrive", Resource.TOPIC)
    def redrive(
        self,
        caller: Caller,
        topic: str,
        wanted: Filter,
        limit: int,
        rate: float | None,
        after: tuple[int, int] = (0, 0),
        *,
        dry_run: bool = False,
        delay_ms: int | None = None,
    ) -> Coroutine[Any, Any, Redriven]:
        """Send dead letters back to where they came from, each once, for the group that gave them up."""
        return self._host.groups.dead_letters.redrive(
            topic, wanted, limit, rate, after, dry_run=dry_run, delay_ms=delay_ms
        )
