"""Groups of a broker that is called directly."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from behaviour.driver import Refused
from behaviour.groups import (
    ALL,
    Assigned,
    GroupInfo,
    Groups,
    Handle,
    InGroup,
    Lag,
    Letter,
    Offsets,
    Polled,
    Redriven,
    Verb,
    Wanted,
)
from behaviour.host import Host
from goqueue.broker.dead_letters.redrive import DeadLetter, Filter
from goqueue.broker.groups.group_service import Assignment, GroupService, Join
from goqueue.broker.partitions.read import start_of
from goqueue.broker.queues import settlement
from goqueue.broker.queues.polling import Delivery, PollBounds
from goqueue.broker.queues.settlement import SettlementRequest
from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.model.message import PRIORITY_LABELS
from goqueue.wire.decoding import decode_run

T = TypeVar("T")
_MAX_BYTES = 4 << 20


class GroupsInProcess(Groups):
    def __init__(self, host: Host) -> None:
        self._host = host

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._host.thread.run(work)
        except GoQueueError as error:
            raise refused(error) from error

    def _look(self, look: Callable[[], T]) -> T:
        """On the loop: nothing changes meanwhile."""

        async def looking() -> T:
            return look()

        return self._run(looking())

    @property
    def _groups(self) -> GroupService:
        return self._host.broker.groups

    def join(
        self,
        group: str,
        topics: Sequence[str],
        *,
        client_id: str = "worker",
        session_timeout_ms: int | None = None,
        instance_id: str = "",
        auto_commit: bool = False,
        **settings: Any,
    ) -> Assigned:
        request = Join(client_id, list(topics), settings, session_timeout_ms, instance_id, auto_commit)
        return _assigned(self._run(self._groups.join(group, request)))

    def heartbeat(self, group: str, member_id: str, generation: int) -> Assigned:
        return _assigned(self._run(self._groups.heartbeat(group, member_id, generation)))

    def leave(self, group: str, member_id: str) -> None:
        self._run(self._groups.leave(group, member_id))

    def poll(self, group: str, member_id: str, max_messages: int = 100, wait_ms: int = 0) -> list[Polled]:
        bounds = PollBounds(max_messages, _MAX_BYTES, wait_ms)
        return [
            message
            for delivery in self._run(self._groups.polling.poll(group, member_id, bounds))
            for message in _polled(delivery)
        ]

    def settle(
        self, group: str, verb: Verb, handles: Sequence[Handle], delay_ms: int | None = None, reason: str = ""
    ) -> list[Refused | None]:
        receipts = [each for each in handles if isinstance(each, str)]
        outcomes = self._run(
            self._groups.settling.settle_receipts(receipts, SettlementRequest(settlement.Verb(verb), delay_ms, reason))
        )
        return [None if outcome is None else refused(outcome) for outcome in outcomes]

    def altered(self, handle: Handle) -> Mapping[str, Handle]:
        return altered_receipts(handle)

    def commit(self, group: str, member_id: str, offsets: Offsets, generation: int | None = None) -> None:
        self._run(self._groups.commit(group, member_id, offsets, generation))

    def offsets(self, group: str, topic: str | None = None) -> dict[str, dict[int, int]]:
        return self._run(self._groups.offsets(group, topic))

    def reset(
        self,
        group: str,
        topic: str,
        *,
        to: str | None = None,
        offset: int | None = None,
        instant_ns: int | None = None,
        partitions: Sequence[int] | None = None,
    ) -> dict[int, int]:
        def place(number: int) -> int:
            partition = self._host.broker.topic(topic).partition(number)
            if offset is not None:
                return offset
            if instant_ns is not None:
                return start_of(partition, None, instant_ns)
            return partition.high_watermark if to == "latest" else partition.log.start_offset

        def places() -> dict[int, int]:
            count = len(self._host.broker.topic(topic).partitions)
            return {number: place(number) for number in (range(count) if partitions is None else partitions)}

        found = self._look(places)
        self._run(self._groups.reset(group, {topic: found}))
        return found

    def names(self) -> list[str]:
        return self._look(self._groups.shards.names)

    def describe(self, group: str) -> GroupInfo:
        return self._look(lambda: self._describe(group))

    def _describe(self, name: str) -> GroupInfo:
        groups = self._groups
        lag = groups.lag(name)
        group = groups.shards.find(name)
        members = [
            InGroup(
                member_id,
                member.client_id,
                member.instance_id,
                member.topics,
                groups.assignment(name, member_id).assigned,
                group.in_flight.get(member_id, 0),
            )
            for member_id, member in group.state.members.items()
        ]
        return GroupInfo(
            name,
            groups.state(name) == "rebalancing",
            group.state.generation,
            members,
            dataclasses.asdict(groups.shards.settings(group)),
            sorted(group.state.overrides),
            [Lag(**dataclasses.asdict(each)) for each in lag],
        )

    def configure(self, group: str, **settings: Any) -> GroupInfo:
        self._run(self._groups.configure(group, settings))
        return self.describe(group)

    def delete(self, group: str) -> None:
        self._run(self._groups.delete(group))

    def stats(self) -> dict[str, int]:
        return dataclasses.asdict(self._groups.settling.tally)

    def dead_letters(
        self, topic: str, wanted: Wanted = ALL, *, limit: int = 100, after: tuple[int, int] = (0, 0)
    ) -> list[Letter]:
        found = self._run(self._groups.dead_letters.browse(topic, _filter(wanted), limit, after))
        return [_letter(letter) for letter in found]

    def redrive(
        self,
        topic: str,
        wanted: Wanted = ALL,
        *,
        limit: int | None = None,
        rate: float | None = None,
        dry_run: bool = False,
        after: tuple[int, int] = (0, 0),
    ) -> Redriven:
        most = 1_000 if limit is None else limit
        work = self._groups.dead_letters.redrive(topic, _filter(wanted), most, rate, after, dry_run=dry_run)
        return Redriven(**dataclasses.asdict(self._run(work)))


def refused(error: GoQueueError) -> Refused:
    return Refused(error.code, str(error), retriable=error.retriable)


def altered_receipts(handle: Handle) -> Mapping[str, Handle]:
    assert isinstance(handle, str)
    names = ("topic", "partition", "offset", "deliveries", "proof")
    parts = dict(zip(names, handle.split(":"), strict=True))
    changed = {name: str(int(parts[name]) + 1) for name in names[1:4]}
    proof = parts["proof"]
    changed["proof"] = proof[:12] + ("A" if proof[12] != "A" else "B") + proof[13:]
    return {name: ":".join((parts | {name: text}).values()) for name, text in changed.items()} | {
        "length": handle[:-1],
        "parts": handle + ":1",
        "everything": "nothing",
    }


def _assigned(assignment: Assignment) -> Assigned:
    return Assigned(assignment.member_id, assignment.generation, assignment.assigned, assignment.revoking)


def _polled(delivery: Delivery) -> list[Polled]:
    messages, _ = decode_run(delivery.run)
    return [
        Polled(
            delivery.partition,
            message.offset,
            message.timestamp_ns,
            message.key,
            None if message.tombstone else message.value,
            message.headers,
            PRIORITY_LABELS[message.priority],
            delivery.topic,
            delivery.count,
            delivery.receipt(message.offset),
        )
        for message in messages
    ]


def _filter(wanted: Wanted) -> Filter:
    messages = None if wanted.messages is None else frozenset(wanted.messages)
    if messages is not None and not messages:
        raise InvalidRequest("no messages are named")
    return Filter(wanted.group, wanted.error, wanted.since_ns, wanted.until_ns, messages)


def _letter(letter: DeadLetter) -> Letter:
    message = letter.message
    return Letter(
        letter.partition,
        message.offset,
        message.timestamp_ns,
        message.key,
        None if message.tombstone else message.value,
        tuple(header for header in message.headers if not header[0].startswith("goqueue-")),
        letter.topic,
        letter.origin_partition,
        letter.origin_offset,
        letter.group,
        letter.error,
        letter.deliveries,
        letter.redriven,
    )
