"""A member of a group, and what tests do with the messages it gets, whatever the way in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from behaviour.driver import Driver, Refused
from behaviour.groups import ALL, Assigned, Handle, Letter, Polled, Verb, Wanted
from behaviour.waiting import until
from goqueue.model.publishing import NewMessage

WAIT_MS = 20_000
"""Longer than any test takes: whoever waits so long is to be woken."""
LONGEST_SESSION_MS = 30 * 60_000


@contextmanager
def refusal(code: str) -> Iterator[None]:
    """What is done here is refused with this code."""
    with pytest.raises(Refused) as refused:
        yield
    assert refused.value.code == code


def values(messages: Sequence[Polled]) -> list[bytes | None]:
    return [message.value for message in messages]


def handles(messages: Sequence[Polled]) -> list[Handle]:
    return [message.handle for message in messages if message.handle is not None]


def publish(driver: Driver, topic: str, *texts: str, **fields: Any) -> None:
    """To partition 0 unless told otherwise."""
    messages = [NewMessage(text.encode(), **{"partition": 0, **fields}) for text in texts]
    for result in driver.publish(topic, messages):
        assert not isinstance(result, Refused), result


def filled(driver: Driver, topic: str, *texts: str, partitions: int = 1, **settings: Any) -> None:
    """A topic with these messages in partition 0."""
    driver.create_topic(topic, partitions=partitions, **settings)
    if texts:
        publish(driver, topic, *texts)


def letters(driver: Driver, topic: str, count: int, wanted: Wanted = ALL) -> list[Letter]:
    """The dead letters, as soon as there are so many: they are on their way for a moment."""
    found: list[Letter] = []

    def are_there() -> bool:
        nonlocal found
        try:
            found = driver.groups.dead_letters(topic, wanted)
        except Refused as refused:
            assert refused.code == "topic_not_found"
        return len(found) >= count

    until(are_there)
    assert len(found) == count
    return found


class Member:
    """Joins when it is made."""

    def __init__(self, driver: Driver, group: str, *topics: str, **fields: Any) -> None:
        self._groups = driver.groups
        self.group = group
        given = {"session_timeout_ms": LONGEST_SESSION_MS, **fields}
        self.joined = self._groups.join(group, topics or [group], **given)
        self.id = self.joined.member_id
        self.generation = self.joined.generation

    def heartbeat(self) -> Assigned:
        told = self._groups.heartbeat(self.group, self.id, self.generation)
        self.generation = told.generation
        return told

    def partitions(self) -> list[int]:
        """What it has now, of a group with one topic."""
        return [number for _, number in self.heartbeat().assigned]

    def leave(self) -> None:
        self._groups.leave(self.group, self.id)

    def poll(self, max_messages: int = 100, wait_ms: int = 0) -> list[Polled]:
        return self._groups.poll(self.group, self.id, max_messages, wait_ms)

    def next(self) -> Polled:
        """The one message that is expected to be there, or to come."""
        (message,) = self.poll(1, WAIT_MS)
        return message

    def try_to(self, verb: Verb, messages: Sequence[Polled], **fields: Any) -> list[str | None]:
        """The code of each refusal."""
        outcomes = self._groups.settle(self.group, verb, handles(messages), **fields)
        return [None if outcome is None else outcome.code for outcome in outcomes]

    def _settle(self, verb: Verb, messages: Sequence[Polled], **fields: Any) -> None:
        for outcome in self._groups.settle(self.group, verb, handles(messages), **fields):
            if outcome is not None:
                raise outcome

    def ack(self, *messages: Polled) -> None:
        self._settle("ack", messages)

    def nack(self, *messages: Polled, delay_ms: int | None = None, reason: str = "") -> None:
        self._settle("nack", messages, delay_ms=delay_ms, reason=reason)

    def reject(self, *messages: Polled, reason: str = "") -> None:
        self._settle("reject", messages, reason=reason)

    def extend(self, *messages: Polled, by_ms: int) -> None:
        self._settle("extend", messages, delay_ms=by_ms)

    def commit(self, topic: str, offsets: dict[int, int], generation: int | None = None) -> None:
        self._groups.commit(self.group, self.id, {topic: offsets}, generation)
