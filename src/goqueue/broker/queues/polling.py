"""Poll: the next messages of a group for one of its members, waiting for some if there are none.

A queue that one poll is reading is skipped by others. Deliveries are durable before the answer leaves, so delivery
counts survive a crash. Waiting polls are woken one by one, one for each thing that there is to fetch: a poll that
leaves something behind, or ends without having fetched what it was woken for, wakes the next.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from goqueue.broker.queues.assigned_queues import AssignedQueues
from goqueue.broker.queues.lane_fetch import LaneFetch
from goqueue.broker.queues.poll_attempt import Attempt, Delivery, Poller, Room, Visit
from goqueue.broker.queues.queue_fetch import QueueFetch
from goqueue.broker.queues.returns import Returns
from goqueue.broker.queues.stream_commits import StreamCommits
from goqueue.broker.queues.stream_fetch import StreamFetch
from goqueue.broker.queues.tally import Tally
from goqueue.broker.runtime.journal import Journal
from goqueue.broker.shards.group_runtime import Session, Waiter
from goqueue.broker.shards.shard_directory import Shards
from goqueue.delivery.queue import Queue

__all__ = ["Delivery", "PollBounds", "Polling"]

_LEAST_S_EACH = 1e-6
"""No consumer is faster than this."""


@dataclass(frozen=True, slots=True)
class PollBounds:
    """How much one poll may answer with, and how long it may wait."""

    max_messages: int
    max_bytes: int
    wait_ms: int = 0
    max_in_flight: int | None = None
    """The member's own wish; never more than the group allows."""


class Polling:
    def __init__(self, shards: Shards, returns: Returns, commits: StreamCommits, tally: Tally) -> None:
        self._shards = shards
        self._returns = returns
        self._commits = commits
        self._assigned = AssignedQueues(shards)
        self._queue_fetch = QueueFetch(shards, self._assigned, returns, tally)
        self._lane_fetch = LaneFetch(shards, self._assigned, self._queue_fetch, returns)
        self._stream_fetch = StreamFetch(shards, self._assigned, commits, tally)
        self._clock = shards.clock

    async def poll(self, name: str, member_id: str, bounds: PollBounds) -> list[Delivery]:
        """Messages for a member; none if none came in time, or if the broker stops."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + bounds.wait_ms / 1_000
        group = self._shards.find_served(name)
        group.member(member_id)
        session = group.runtime.session(member_id, self._clock.monotonic_ns())
        session.calls += 1
        try:
            while not self._shards.is_stopping:
                found = await self._attempt(Poller(group, member_id, session), bounds)
                if found or loop.time() >= deadline:
                    return found
                if not await self._wait(Poller(self._shards.find_served(name), member_id, session), bounds, deadline):
                    return []
                group = self._shards.find_served(name)
                group.member(member_id)
            # A client that polls in a loop must not keep the broker from stopping.
            await asyncio.sleep(0)
            return []
        finally:
            session.calls -= 1
            session.heard_ns = self._clock.monotonic_ns()

    # Waiting

    async def _wait(self, poller: Poller, bounds: PollBounds, deadline: float) -> bool:
        """Return as soon as there may be something to take; ``False`` if it is too late."""
        runtime = poller.group.runtime
        has_room = self._room(poller, bounds) > 0
        if has_room and any(self._is_worth_a_look(poller, queue) for queue in self._assigned.queues(poller)):
            await asyncio.sleep(0)
            return True
        woken = asyncio.get_running_loop().create_future()
        waiter = Waiter(poller.member_id, self._assigned.share(poller).partitions, has_room, woken)
        runtime.wait(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                await woken
        except TimeoutError:
            # Both may come at once: a poll that was woken must look, since no other was.
            return woken.done() and not woken.cancelled()
        except asyncio.CancelledError:
            runtime.stop_waiting(waiter)
            if woken.done() and not woken.cancelled():
                # Another poll is to fetch what this one was woken for, and did not fetch.
                poller.group.offer_all(poller.group.queues())
            raise
        finally:
            runtime.stop_waiting(waiter)
        return True

    def _is_worth_a_look(self, poller: Poller, queue: Queue) -> bool:
        if poller.group.settings.mode == "queue":
            return poller.group.has_something(queue)
        place = poller.group.shards.place(queue)
        return place is not None and place[1].stable_end > self._stream_fetch.position(poller.session, queue, place[1])

    def _room(self, poller: Poller, bounds: PollBounds) -> int:
        """How many messages the member may get now."""
        settings = poller.group.settings
        if settings.mode == "stream":
            return bounds.max_messages
        most = settings.max_in_flight
        if bounds.max_in_flight is not None:
            most = min(most, bounds.max_in_flight)
        if poller.session.window is not None:
            most = min(most, poller.session.window)
        return min(bounds.max_messages, most - poller.group.in_flight(poller.member_id))

    def pause_s(self, name: str, member_id: str, bounds: PollBounds) -> float:
        """How long a member that has plenty in flight can do without more, if there is room for little.

        A moment later there is room for more at once, which costs both sides less.
        """
        group = self._shards.served(name)
        if group is None:
            return 0.0
        in_flight = group.in_flight(member_id)
        session = group.runtime.sessions.get(member_id)
        room = self._room(Poller(group, member_id, session or Session(0)), bounds)
        return in_flight * _LEAST_S_EACH if 0 < room < in_flight // 2 else 0.0

    # One attempt

    async def _attempt(self, poller: Poller, bounds: PollBounds) -> list[Delivery]:
        """From each of the member's queues in turn, beginning with another every time."""
        group, session = poller.group, poller.session
        is_stream = group.settings.mode == "stream"
        if is_stream:
            self._commits.auto_commit(group, poller.member_id)
        if group.coordinated is not None and group.coordinated.state.handovers:
            group.release(poller.member_id)
        queues = self._assigned.queues(poller)
        turn = session.turn % len(queues) if queues else 0
        session.turn += 1
        room = Room(self._room(poller, bounds), bounds.max_bytes)
        attempt = Attempt(poller, room, deque(queues[turn:] + queues[:turn]))
        try:
            if not is_stream and group.has_several_lanes(self._assigned.share(poller)):
                await self._lane_fetch.serve(attempt)
            else:
                await self._in_order(attempt, is_stream=is_stream)
            if attempt.found and not is_stream:
                await self._settled(attempt.found)
        except BaseException:
            # What was taken is in no answer, and must not be taken for seen.
            session.go_back(attempt.steps)
            self.give_back(group.name, poller.member_id, attempt.found)
            raise
        finally:
            if attempt.to_visit:
                # It may have been woken for one of those that it did not get to.
                group.offer_all(attempt.to_visit)
        if attempt.failure is not None and not attempt.found:
            raise attempt.failure
        return attempt.found

    async def _settled(self, found: Sequence[Delivery]) -> None:
        """Only what the answer tells of is waited for: another partition's disk may have failed."""
        topics, shards = self._shards.host.topics.by_name, self._shards.map.by_number
        places = dict.fromkeys((each.topic, each.partition) for each in found)
        found_in = [(topics[name].shards, number) for name, number in places if name in topics]
        # A topic that was made again meanwhile may have fewer partitions, and has none of these messages.
        own = [shards[numbers[number]].journal for numbers, number in found_in if number < len(numbers)]
        await Journal.all_settled(dict.fromkeys(own))

    async def _in_order(self, attempt: Attempt, *, is_stream: bool) -> None:
        """Everything is of lane normal, or it is a stream and lanes do not matter."""
        session, shards = attempt.poller.session, attempt.poller.group.shards
        while attempt.to_visit and attempt.room.is_left:
            queue = attempt.to_visit.popleft()
            where = shards.place(queue)
            if where is None:
                continue
            visit = Visit(attempt.poller, queue, where[0], where[1], attempt.room)
            if is_stream:
                before = session.positions.get(queue.key)
                await attempt.harvest(self._stream_fetch.take(visit))
                attempt.steps[queue.key] = before, session.positions.get(queue.key)
            else:
                await attempt.harvest(self._queue_fetch.take_alone(visit))

    def give_back(self, name: str, member_id: str, found: Sequence[Delivery]) -> None:
        """Release deliveries that never reached their member, because its connection is gone."""
        unseen = {(each.topic, each.partition, each.lease) for each in found if each.lease}
        group = self._shards.served(name) if unseen else None
        if group is not None:
            self._returns.give_back(group, member_id, unseen.__contains__)
