"""Each group's state of a message, as of now. Traces do not keep it, since the queues have it."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Mapping

from goqueue.broker.shards.shard_directory import Shards
from goqueue.delivery.in_flight_batch import SPAN, InFlightBatch
from goqueue.delivery.leases import lane_of
from goqueue.delivery.queue import Queue
from goqueue.model.message import Message
from goqueue.observe.trace import GroupStanding, Place
from goqueue.wire.internal_headers import FOR_GROUP

_AT_A_STRETCH = 2_000

Standings = dict[int, list[GroupStanding]]
"""By offset."""


async def standings(shards: Shards, topic: str, partition: int, messages: Mapping[int, Message]) -> Standings:
    """Of the groups that read a partition, with those of these messages that are meant for them."""
    found: Standings = {offset: [] for offset in messages}
    known = shards.host.topics.by_name.get(topic)
    if known is None:
        return found
    topic_id = known.record.topic_id
    for name in sorted(shards.groups_on(topic_id, partition)):
        group = shards.get_led(name)
        queue = None if group is None else group.queue(known, partition)
        if group is None or queue is None:
            continue
        is_stream = group.settings.mode == "stream"
        for standing in await standings_in(queue, topic, messages, is_stream=is_stream):
            found[standing.place.offset].append(standing)
    return found


async def standings_in(
    queue: Queue, topic: str, messages: Mapping[int, Message], *, is_stream: bool
) -> list[GroupStanding]:
    """Of one group with those of a partition's messages that are meant for it, in the order of their offsets."""
    offsets = sorted(offset for offset, message in messages.items() if _meant_for(message) in ("", queue.group))
    leased = {} if is_stream else await _leased(queue, offsets)
    found = []
    for offset in offsets:
        place = Place(topic, queue.partition, offset)
        if is_stream:
            is_done = offset < queue.committed
            found.append(GroupStanding(queue.group, place, "settled" if is_done else "waiting"))
        else:
            found.append(_of_queue(queue, place, messages[offset].priority, leased.get(offset, [])))
    return found


def _meant_for(message: Message) -> str:
    if not message.headers:
        return ""
    return dict(message.headers).get(FOR_GROUP, b"").decode(errors="replace")


async def _leased(queue: Queue, offsets: list[int]) -> dict[int, list[InFlightBatch]]:
    """The batches that may hold each. There may be many, and others want to get on meanwhile."""
    found: dict[int, list[InFlightBatch]] = {}
    for number, batch in enumerate(list(queue.batches())):
        if number % _AT_A_STRETCH == _AT_A_STRETCH - 1:
            await asyncio.sleep(0)
        at = bisect_left(offsets, batch.first)
        while at < len(offsets) and offsets[at] < batch.first + SPAN:
            found.setdefault(offsets[at], []).append(batch)
            at += 1
    return found


def _of_queue(queue: Queue, place: Place, lane: int, batches: list[InFlightBatch]) -> GroupStanding:
    offset = place.offset
    move = queue.moving.get(offset)
    if move is not None:
        return GroupStanding(queue.group, place, "moving", move.count, reason=move.reason)
    for batch in batches:
        if lane_of(batch.lease) != lane or not batch.bits >> (offset - batch.first) & 1:
            continue
        if batch.is_frozen:
            return GroupStanding(
                queue.group, place, "acked in a transaction", batch.count, reason=f"{batch.member} has not ended"
            )
        if batch.member is not None:
            return GroupStanding(queue.group, place, "in flight", batch.count, batch.member, batch.at_ns)
        return GroupStanding(queue.group, place, "retry", batch.count, "", batch.at_ns, batch.error)
    is_done = offset < queue.cursor(lane) and queue.is_done(offset, lane)
    return GroupStanding(queue.group, place, "settled" if is_done else "waiting")
