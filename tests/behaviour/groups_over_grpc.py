"""Groups over gRPC, through the calls that have one answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import grpc

from behaviour.driver import Got, Refused
from behaviour.groups import (
    ALL,
    Assigned,
    GroupInfo,
    Groups,
    Handle,
    InGroup,
    Lag,
    Lease,
    Letter,
    Offsets,
    Place,
    Polled,
    Redriven,
    Verb,
    Wanted,
)
from behaviour.groups_in_process import refused
from goqueue.client.connection.grpc_connection import to_error
from goqueue.model.errors import error_from
from goqueue.model.fields import specs
from goqueue.model.group_settings import GroupSettings
from goqueue.model.message import PRIORITY_LABELS
from goqueue.model.runs import pairs, to_runs
from goqueue.wire.batch import parse_batch
from goqueue.wire.decoding import decode_run
from goqueue.wire.proto import goqueue_pb2 as pb
from goqueue.wire.proto import goqueue_pb2_grpc as pb_grpc

_TIMEOUT_S = 60.0
_VERBS = {"ack": pb.VERB_ACK, "nack": pb.VERB_NACK, "reject": pb.VERB_REJECT, "extend": pb.VERB_EXTEND}
_COUNTED = [field.name for field in pb.ReliabilityStatsResponse.DESCRIPTOR.fields]


class GroupsOverGrpc(Groups):
    """``channel`` tells the present one: after a restart it is another."""

    def __init__(self, channel: Callable[[], grpc.Channel]) -> None:
        self._channel = channel

    def _ask(self, name: str, request: Any) -> Any:
        call = getattr(pb_grpc.GroupsStub(self._channel()), name)
        try:
            return call(request, timeout=_TIMEOUT_S, wait_for_ready=True)
        except grpc.RpcError as error:
            raise refused(to_error(error, "the broker")) from error

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
        request = pb.JoinRequest(
            group=group,
            client_id=client_id,
            topics=topics,
            settings=_texts(settings),
            session_timeout_ms=session_timeout_ms or 0,
            instance_id=instance_id,
            auto_commit=auto_commit,
        )
        return _assigned(self._ask("Join", request))

    def heartbeat(self, group: str, member_id: str, generation: int) -> Assigned:
        request = pb.HeartbeatRequest(group=group, member_id=member_id, generation=generation)
        return _assigned(self._ask("Heartbeat", request))

    def leave(self, group: str, member_id: str) -> None:
        self._ask("Leave", pb.LeaveRequest(group=group, member_id=member_id))

    def poll(self, group: str, member_id: str, max_messages: int = 100, wait_ms: int = 0) -> list[Polled]:
        request = pb.PollRequest(group=group, member_id=member_id, max_messages=max_messages, wait_ms=wait_ms)
        return [message for each in self._ask("Poll", request).deliveries for message in _polled(each)]

    def settle(
        self, group: str, verb: Verb, handles: Sequence[Handle], delay_ms: int | None = None, reason: str = ""
    ) -> list[Refused | None]:
        """As many messages as have one lease go in one claim."""
        receipts = [each for each in handles if isinstance(each, str)]
        claimed: dict[Lease, list[int]] = {}
        for each in handles:
            if isinstance(each, Lease):
                claimed.setdefault(replace(each, offset=0), []).append(each.offset)
        request = pb.SettleRequest(
            group=group,
            verb=_VERBS[verb],
            delay_ms=delay_ms,
            reason=reason,
            leases=[_claim(lease, offsets) for lease, offsets in claimed.items()],
            receipts=receipts,
        )
        leases = list(claimed)
        problems: dict[Handle, Refused] = {}
        for refusal in self._ask("Settle", request).refusals:
            problem = refused(error_from(refusal.error.code, refusal.error.message))
            if refusal.WhichOneof("which") == "receipt":
                problems[receipts[refusal.receipt]] = problem
            for first, end in pairs(list(refusal.runs)):
                for offset in range(first, end):
                    problems[replace(leases[refusal.lease], offset=offset)] = problem
        return [problems.get(each) for each in handles]

    def altered(self, handle: Handle) -> Mapping[str, Handle]:
        assert isinstance(handle, Lease)
        return {
            "lease": replace(handle, lease=handle.lease + 1),
            "partition": replace(handle, partition=handle.partition + 1),
            "deliveries": replace(handle, deliveries=handle.deliveries + 1),
            "token": replace(handle, token=bytes([handle.token[0] ^ 1]) + handle.token[1:]),
            "length": replace(handle, token=handle.token[:-1]),
            "everything": replace(handle, token=b""),
        }

    def commit(self, group: str, member_id: str, offsets: Offsets, generation: int | None = None) -> None:
        listed = [
            pb.PartitionOffset(topic=topic, partition=number, offset=offset)
            for topic, by_partition in offsets.items()
            for number, offset in by_partition.items()
        ]
        request = pb.CommitOffsetsRequest(group=group, member_id=member_id, generation=generation or 0, offsets=listed)
        self._ask("CommitOffsets", request)

    def offsets(self, group: str, topic: str | None = None) -> dict[str, dict[int, int]]:
        return _by_topic(self._ask("FetchOffsets", pb.FetchOffsetsRequest(group=group, topic=topic or "")))

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
        start = pb.Start(position=pb.POSITION_LATEST if to == "latest" else pb.POSITION_EARLIEST)
        if offset is not None:
            start = pb.Start(offset=offset)
        elif instant_ns is not None:
            start = pb.Start(instant_ns=instant_ns)
        request = pb.ResetOffsetsRequest(group=group, topic=topic, partitions=partitions or [], start=start)
        return _by_topic(self._ask("ResetOffsets", request))[topic]

    def names(self) -> list[str]:
        return list(self._ask("ListGroups", pb.ListGroupsRequest()).names)

    def describe(self, group: str) -> GroupInfo:
        return _info(self._ask("DescribeGroup", pb.DescribeGroupRequest(name=group)))

    def configure(self, group: str, **settings: Any) -> GroupInfo:
        return _info(self._ask("ConfigureGroup", pb.ConfigureGroupRequest(name=group, settings=_texts(settings))))

    def delete(self, group: str) -> None:
        self._ask("DeleteGroup", pb.DeleteGroupRequest(name=group))

    def stats(self) -> dict[str, int]:
        answer = self._ask("ReliabilityStats", pb.ReliabilityStatsRequest())
        return {name: getattr(answer, name) for name in _COUNTED}

    def dead_letters(
        self, topic: str, wanted: Wanted = ALL, *, limit: int = 100, after: tuple[int, int] = (0, 0)
    ) -> list[Letter]:
        request = pb.ListDeadLettersRequest(
            topic=topic, filter=_filter(wanted), limit=limit, from_partition=after[0], from_offset=after[1]
        )
        return [_letter(each) for each in self._ask("ListDeadLetters", request).dead_letters]

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
        request = pb.RedriveRequest(
            topic=topic,
            filter=_filter(wanted),
            limit=limit or 0,
            rate=rate or 0,
            dry_run=dry_run,
            from_partition=after[0],
            from_offset=after[1],
        )
        answer = self._ask("Redrive", request)
        following = (answer.next_partition, answer.next_offset) if answer.more else None
        counts = (answer.matched, answer.redriven, answer.already, answer.unreachable)
        return Redriven(*counts, by_topic=dict(answer.by_topic), next=following)


def _texts(settings: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in settings.items()}


def _places(listed: Sequence[pb.TopicPartition]) -> list[Place]:
    return [(each.topic, each.partition) for each in listed]


def _assigned(answer: pb.Assignment) -> Assigned:
    return Assigned(answer.member_id, answer.generation, _places(answer.assigned), _places(answer.revoking))


def _polled(delivery: pb.Delivery) -> list[Polled]:
    return [
        Polled(
            **vars(got),
            topic=delivery.topic,
            deliveries=delivery.deliveries,
            handle=Lease(
                delivery.topic, delivery.partition, got.offset, delivery.lease, delivery.deliveries, delivery.token
            )
            if delivery.lease
            else None,
        )
        for got in _unpacked(delivery.batch, delivery.partition)
    ]


def _unpacked(batch: bytes, partition: int) -> list[Got]:
    messages, _ = decode_run(parse_batch(batch))
    return [
        Got(
            partition,
            message.offset,
            message.timestamp_ns,
            message.key,
            None if message.tombstone else message.value,
            message.headers,
            PRIORITY_LABELS[message.priority],
        )
        for message in messages
    ]


def _claim(lease: Lease, offsets: list[int]) -> pb.LeaseClaim:
    return pb.LeaseClaim(
        topic=lease.topic,
        partition=lease.partition,
        lease=lease.lease,
        deliveries=lease.deliveries,
        token=lease.token,
        runs=to_runs(sorted(set(offsets))),
    )


def _by_topic(answer: pb.FetchOffsetsResponse) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for each in answer.offsets:
        found.setdefault(each.topic, {})[each.partition] = each.offset
    return found


def _info(answer: pb.Group) -> GroupInfo:
    declared = specs(GroupSettings)
    members = [
        InGroup(
            each.member_id,
            each.client_id,
            each.instance_id,
            list(each.topics),
            _places(each.assigned),
            each.in_flight,
        )
        for each in answer.members
    ]
    lag = [
        Lag(
            each.topic,
            each.partition,
            each.committed,
            each.latest,
            each.lag,
            each.in_flight,
            each.waiting,
            each.owner or None,
        )
        for each in answer.partitions
    ]
    settings = {name: declared[name].parse(value) for name, value in answer.settings.items()}
    is_rebalancing = answer.state == "rebalancing"
    return GroupInfo(answer.name, is_rebalancing, answer.generation, members, settings, list(answer.overrides), lag)


def _filter(wanted: Wanted) -> pb.DeadLetterFilter:
    return pb.DeadLetterFilter(
        group=wanted.group or "",
        error=wanted.error or "",
        since_ns=wanted.since_ns or 0,
        until_ns=wanted.until_ns or 0,
        messages=[pb.PartitionOffset(partition=number, offset=offset) for number, offset in wanted.messages or []],
    )


def _letter(each: pb.DeadLetter) -> Letter:
    (got,) = _unpacked(each.message, each.partition)
    return Letter(
        each.partition,
        each.offset,
        each.died_at_ns,
        got.key,
        got.value,
        tuple(header for header in got.headers if not header[0].startswith("goqueue-")),
        each.origin_topic,
        each.origin_partition,
        each.origin_offset,
        each.group,
        each.error,
        each.deliveries,
        each.redriven,
    )
