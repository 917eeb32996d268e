"""Messages of the service ``Groups``, from what the broker knows and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from itertools import pairwise
from typing import cast

from goqueue.api.calls.conversion import settings_of, to_error
from goqueue.broker.operations import (
    Assignment,
    Caller,
    DeadLetter,
    Delivery,
    Filter,
    GroupDescription,
    Join,
    LaneOfGroup,
    LaneOfPartition,
    LeaseClaim,
    Operations,
    PartitionLanes,
    Peek,
    PeekPage,
    PeekState,
    Redriven,
    SettlementRequest,
    TimeSlice,
    Verb,
)
from goqueue.broker.operations.limits import (
    MAX_NAMED_LETTERS,
    MAX_NAMED_PARTITIONS,
    MAX_SETTLED_AT_ONCE,
    MAX_TOPICS_OF_MEMBER,
    heartbeat_interval_ms,
)
from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.model.fields import specs
from goqueue.model.group_settings import GroupSettings
from goqueue.model.runs import Runs, size_of
from goqueue.wire.batch import join_frames
from goqueue.wire.frame import encode_message
from goqueue.wire.proto import goqueue_pb2 as pb

_MAX_MESSAGES = 100_000
"""In one request: as many as a member can have in flight."""
_PEEKED = 100
_LANE_PARTITIONS = 100
_MAX_LANE_PARTITIONS = 1_000
_MAX_LANE_GROUPS = 10_000
"""In one answer, over all of its partitions: each takes about 200 bytes."""
_VERBS: dict[int, Verb] = {
    pb.VERB_ACK: Verb.ACK,
    pb.VERB_NACK: Verb.NACK,
    pb.VERB_REJECT: Verb.REJECT,
    pb.VERB_EXTEND: Verb.EXTEND,
    pb.VERB_RELEASE: Verb.RELEASE,
}


@lru_cache(maxsize=1_000)
def shown_settings(settings: GroupSettings) -> Mapping[str, str]:
    """As text. Every change of a group tells them to every member."""
    declared = specs(GroupSettings)
    return {name: declared[name].format(value) for name, value in asdict(settings).items()}


def to_join(request: pb.JoinRequest) -> Join:
    if len(request.topics) > MAX_TOPICS_OF_MEMBER:
        raise InvalidRequest(f"topics must name 1 to {MAX_TOPICS_OF_MEMBER} topics")
    return Join(
        request.client_id,
        list(request.topics),
        settings_of(request.settings),
        request.session_timeout_ms or None,
        request.instance_id,
        request.auto_commit,
        settings_of(request.initial_settings),
    )


def to_assignment(assignment: Assignment) -> pb.Assignment:
    return pb.Assignment(
        member_id=assignment.member_id,
        generation=assignment.generation,
        leader=assignment.leader_id == assignment.member_id,
        assigned=_places(assignment.assigned),
        revoking=_places(assignment.revoking),
        session_timeout_ms=assignment.session_timeout_ms,
        heartbeat_interval_ms=heartbeat_interval_ms(assignment.session_timeout_ms),
        settings=shown_settings(assignment.settings),
    )


def _places(listed: Sequence[tuple[str, int]]) -> list[pb.TopicPartition]:
    return [pb.TopicPartition(topic=topic, partition=partition) for topic, partition in listed]


def put_deliveries(response: pb.PollResponse, found: Sequence[Delivery]) -> pb.PollResponse:
    """Made where they are to be: a message that is handed to another is copied, batches and all."""
    for each in found:
        response.deliveries.add(
            topic=each.topic,
            partition=each.partition,
            lease=each.lease,
            deliveries=each.count,
            token=each.token,
            visible_until_ns=each.until_ns,
            next_offset=each.next_offset,
            batch=each.run.to_wire(),
        )
    return response


async def settle(operations: Operations, caller: Caller, request: pb.SettleRequest) -> pb.SettleResponse:
    """Carry out what can be carried out; refusals name the rest."""
    order = _order(request)
    claims = to_claims(request)
    queues = operations.queues
    response = pb.SettleResponse(correlation_id=request.correlation_id)
    if claims:
        for place, (runs, error) in enumerate(await queues.settle_leases(caller, request.group, claims, order)):
            if error is not None:
                response.refusals.append(pb.Refusal(lease=place, runs=runs, error=to_error(error)))
    if request.receipts:
        stretch = TimeSlice()
        for place, problem in enumerate(await queues.settle_receipts(caller, list(request.receipts), order)):
            if problem is not None:
                response.refusals.append(pb.Refusal(receipt=place, error=to_error(problem)))
            if stretch.is_over:
                await stretch.rest()
    return response


def _order(request: pb.SettleRequest) -> SettlementRequest:
    verb = _VERBS.get(request.verb)
    if verb is None:
        raise InvalidRequest(
            f"verb is {request.verb}; there are 0 (ack), 1 (nack), 2 (reject), 3 (extend) and 4 (release)"
        )
    delay_ms = request.delay_ms if request.HasField("delay_ms") else None
    if verb == Verb.EXTEND and delay_ms is None:
        raise InvalidRequest("an extension needs delay_ms: for how long the message stays hidden")
    return SettlementRequest(verb, delay_ms, request.reason)


def to_claims(request: pb.SettleRequest | pb.AddAcksRequest) -> list[LeaseClaim]:
    """The leases that are meant, which are none too many."""
    too_many = len(request.leases) + len(request.receipts) > MAX_SETTLED_AT_ONCE
    if too_many or sum(len(each.runs) for each in request.leases) > 2 * MAX_SETTLED_AT_ONCE:
        raise InvalidRequest(f"a request settles at most {MAX_SETTLED_AT_ONCE} leases, runs and receipts")
    claims = [_claim(request.group, each) for each in request.leases]
    if sum(size_of(each.runs) for each in claims) > _MAX_MESSAGES:
        raise InvalidRequest(f"a request settles at most {_MAX_MESSAGES} messages")
    return claims


def _claim(group: str, claim: pb.LeaseClaim) -> LeaseClaim:
    runs: Runs = list(claim.runs)
    _check_runs(runs)
    return LeaseClaim(group, claim.topic, claim.partition, claim.lease, claim.deliveries, claim.token, runs)


def _check_runs(runs: Runs) -> None:
    is_whole = len(runs) % 2 == 0 and len(runs) > 0 and runs[0] >= 0
    if not is_whole or any(end <= first for first, end in pairwise(runs)):
        raise InvalidRequest("runs must be pairs of first and end, each greater than the one before")
    if runs[-1] - runs[0] > MAX_SETTLED_AT_ONCE:
        raise InvalidRequest(f"the runs of one lease lie within {MAX_SETTLED_AT_ONCE} offsets")


def to_offsets(listed: Sequence[pb.PartitionOffset]) -> dict[str, dict[int, int]]:
    if len(listed) > MAX_NAMED_PARTITIONS:
        raise InvalidRequest(f"a request names {len(listed)} partitions; {MAX_NAMED_PARTITIONS} are allowed")
    found: dict[str, dict[int, int]] = {}
    for each in listed:
        found.setdefault(each.topic, {})[each.partition] = each.offset
    return found


def from_offsets(offsets: Mapping[str, Mapping[int, int]]) -> pb.FetchOffsetsResponse:
    return pb.FetchOffsetsResponse(
        offsets=[
            pb.PartitionOffset(topic=topic, partition=partition, offset=offset)
            for topic, by_partition in offsets.items()
            for partition, offset in by_partition.items()
        ]
    )


def to_group(group: GroupDescription) -> pb.Group:
    return pb.Group(
        name=group.name,
        state=group.state,
        generation=group.generation,
        members=[
            pb.GroupMember(
                member_id=member.member_id,
                client_id=member.client_id,
                instance_id=member.instance_id,
                topics=member.topics,
                assigned=_places(member.assigned),
                in_flight=member.in_flight,
            )
            for member in group.members
        ],
        settings=shown_settings(group.settings),
        overrides=group.overrides,
        partitions=[
            pb.PartitionLag(
                topic=each.topic,
                partition=each.partition,
                committed=each.committed,
                latest=each.latest,
                lag=each.lag,
                in_flight=each.in_flight,
                waiting=each.waiting,
                owner=each.owner or "",
            )
            for each in group.lag
        ],
        created_at_ns=group.created_at_ns,
    )


def to_peek(request: pb.PeekGroupRequest, max_bytes: int) -> Peek:
    return Peek(
        request.topic or None,
        request.partition if request.HasField("partition") else None,
        cast("PeekState | None", request.state or None),
        request.limit or _PEEKED,
        request.after or None,
        max_bytes,
    )


def to_peek_response(page: PeekPage) -> pb.PeekGroupResponse:
    response = pb.PeekGroupResponse(next=page.next or "", complete=page.is_complete)
    for each in page.messages:
        batch = join_frames([encode_message(each.message)], each.message.timestamp_ns)
        response.messages.add(
            topic=each.topic,
            partition=each.partition,
            state=each.state,
            deliveries=each.deliveries,
            member=each.member,
            until_ns=each.until_ns,
            error=each.error,
            message=batch.to_wire(),
        )
    return response


def to_filter(given: pb.DeadLetterFilter) -> Filter:
    if len(given.messages) > MAX_NAMED_LETTERS:
        raise InvalidRequest(f"the filter names {len(given.messages)} messages; {MAX_NAMED_LETTERS} are allowed")
    places = frozenset((each.partition, each.offset) for each in given.messages)
    return Filter(
        given.group or None, given.error or None, given.since_ns or None, given.until_ns or None, places or None
    )


def to_dead_letter(letter: DeadLetter) -> pb.DeadLetter:
    message = letter.message
    batch = join_frames([encode_message(message)], message.timestamp_ns)
    return pb.DeadLetter(
        partition=letter.partition,
        offset=message.offset,
        died_at_ns=message.timestamp_ns,
        origin_topic=letter.topic,
        origin_partition=letter.origin_partition,
        origin_offset=letter.origin_offset,
        group=letter.group,
        error=letter.error,
        deliveries=letter.deliveries,
        redriven=letter.redriven,
        message=batch.to_wire(),
    )


def to_redrive_response(report: Redriven) -> pb.RedriveResponse:
    partition, offset = report.next or (0, 0)
    return pb.RedriveResponse(
        matched=report.matched,
        redriven=report.redriven,
        already=report.already,
        by_topic=report.by_topic,
        more=report.next is not None,
        unreachable=report.unreachable,
        next_partition=partition,
        next_offset=offset,
    )


def settle_failed(correlation_id: int, error: GoQueueError) -> pb.SettleResponse:
    return pb.SettleResponse(correlation_id=correlation_id, error=to_error(error))


def to_lane_stats(found: Sequence[PartitionLanes], request: pb.LaneStatsRequest) -> pb.LaneStatsResponse:
    """The part that was asked for. ``found`` is in order."""
    if request.limit > _MAX_LANE_PARTITIONS:
        raise InvalidRequest(f"limit is {request.limit}; at most {_MAX_LANE_PARTITIONS} partitions are allowed")
    if request.HasField("after"):
        last = (request.after.topic, request.after.partition)
        found = [each for each in found if (each.topic, each.partition) > last]
    page: list[pb.PartitionLanes] = []
    room = _MAX_LANE_GROUPS
    for each in found[: request.limit or _LANE_PARTITIONS]:
        if page and len(each.groups) > room:
            break
        page.append(_of_partition(each, room))
        room -= len(page[-1].groups)
    return pb.LaneStatsResponse(partitions=page, more=len(page) < len(found))


def _of_partition(stats: PartitionLanes, most_groups: int) -> pb.PartitionLanes:
    """A partition with more groups than fit into any answer is cut, and says so."""
    groups = stats.groups[:most_groups]
    return pb.PartitionLanes(
        topic=stats.topic,
        partition=stats.partition,
        lanes=[_lane_of_partition(each) for each in stats.lanes],
        groups=[
            pb.GroupLanes(group=each.group, lanes=[_lane_of_group(lane) for lane in each.lanes]) for each in groups
        ],
        groups_left_out=len(stats.groups) - len(groups),
    )


def _lane_of_partition(lane: LaneOfPartition) -> pb.PartitionLane:
    return pb.PartitionLane(
        priority=lane.lane, stored=lane.stored, published=lane.published, published_per_second=lane.published_per_second
    )


def _lane_of_group(lane: LaneOfGroup) -> pb.GroupLane:
    return pb.GroupLane(
        priority=lane.lane,
        ready=lane.ready,
        in_flight=lane.in_flight,
        delivered=lane.delivered,
        delivered_per_second=lane.delivered_per_second,
        last_served_ns=lane.last_served_ns,
        average_wait_ns=lane.average_wait_ns,
    )
