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
from goqueue.broker import operations
from goqueue.broker.operations import (
    IN_PROCESS,
    Assignment,
    DeadLetter,
    Delivery,
    Filter,
    GroupDescription,
    Join,
    Operations,
    PollBounds,
    SettlementRequest,
    StartAt,
)
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
    def _operations(self) -> Operations:
        return self._host.broker.operations

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
        return _assigned(self._run(self._operations.groups.join(IN_PROCESS, group, request)))

    def heartbeat(self, group: str, member_id: str, generation: int) -> Assigned:
        return _assigned(self._run(self._operations.groups.heartbeat(IN_PROCESS, group, member_id, generation)))

    def leave(self, group: str, member_id: str) -> None:
        self._run(self._operations.groups.leave(IN_PROCESS, group, member_id))

    def poll(self, group: str, member_id: str, max_messages: int = 100, wait_ms: int = 0) -> list[Polled]:
        bounds = PollBounds(max_messages, _MAX_BYTES, wait_ms)
        return [
            message
            for delivery in self._run(self._operations.queues.poll(IN_PROCESS, group, member_id, bounds))
            for message in _polled(delivery)
        ]

    def settle(
        self, group: str, verb: Verb, handles: Sequence[Handle], delay_ms: int | None = None, reason: str = ""
    ) -> list[Refused | None]:
        receipts = [each for each in handles if isinstance(each, str)]

        async def settled() -> Sequence[GoQueueError | None]:
            # Within the operation, because a request that cannot be is refused as it is made.
            request = SettlementRequest(operations.Verb(verb), delay_ms, reason)
            return await self._operations.queues.settle_receipts(IN_PROCESS, receipts, request)

        outcomes = self._run(settled())
        return [None if outcome is None else refused(outcome) for outcome in outcomes]

    def altered(self, handle: Handle) -> Mapping[str, Handle]:
        return altered_receipts(handle)

    def commit(self, group: str, member_id: str, offsets: Offsets, generation: int | None = None) -> None:
        self._run(self._operations.offsets.commit(IN_PROCESS, group, member_id, offsets, generation))

    def offsets(self, group: str, topic: str | None = None) -> dict[str, dict[int, int]]:
        return self._run(self._operations.offsets.committed(IN_PROCESS, group, topic))

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
        start: StartAt | int = StartAt(from_time_ns=instant_ns, latest=to == "latest") if offset is None else offset
        return self._run(self._operations.offsets.reset(IN_PROCESS, group, topic, partitions, start))[topic]

    def names(self) -> list[str]:
        return self._look(lambda: self._operations.groups.names(IN_PROCESS))

    def describe(self, group: str) -> GroupInfo:
        return _info(self._run(self._operations.groups.describe(IN_PROCESS, group)))

    def configure(self, group: str, **settings: Any) -> GroupInfo:
        return _info(self._run(self._operations.groups.configure(IN_PROCESS, group, settings)))

    def delete(self, group: str) -> None:
        self._run(self._operations.groups.delete(IN_PROCESS, group))

    def stats(self) -> dict[str, int]:
        return dataclasses.asdict(self._look(lambda: self._operations.queues.settlement_stats(IN_PROCESS)))

    def dead_letters(
        self, topic: str, wanted: Wanted = ALL, *, limit: int = 100, after: tuple[int, int] = (0, 0)
    ) -> list[Letter]:
        found = self._run(self._operations.dead_letters.browse(IN_PROCESS, topic, _filter(wanted), limit, after))
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
        work = self._operations.dead_letters.redrive(
            IN_PROCESS, topic, _filter(wanted), most, rate, after, dry_run=dry_run
        )
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


def _info(group: GroupDescription) -> GroupInfo:
    return GroupInfo(
        group.name,
        group.state == "rebalancing",
        group.generation,
        [
            InGroup(each.member_id, each.client_id, each.instance_id, each.topics, each.assigned, each.in_flight)
            for each in group.members
        ],
        dataclasses.asdict(group.settings),
        group.overrides,
        [Lag(**dataclasses.asdict(each)) for each in group.lag],
    )


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
