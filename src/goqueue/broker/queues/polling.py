"""Poll: the next messages of a group for one of its members, waiting for some if there are none.

A queue that one poll is reading is skipped by others. Deliveries are durable before the answer leaves, so delivery
counts survive a crash. Waiting polls are woken one by one, one for each thing that there is to fetch: a poll that
leaves something behind, or ends without having fetched what it was woken for, wakes the next.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from goqueue.broker.coordinator.group_runtime import Session, Waiter
from goqueue.broker.coordinator.group_shards import GroupShards
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.queues.assigned_queues import AssignedQueues
from goqueue.broker.queues.lane_fetch import LaneFetch
from goqueue.broker.queues.poll_attempt import Attempt, Delivery, Poller, Room, Visit
from goqueue.broker.queues.queue_changes import QueueChanges
from goqueue.broker.queues.queue_fetch import QueueFetch
from goqueue.broker.queues.returns import Returns
from goqueue.broker.queues.stream_commits import StreamCommits
from goqueue.broker.queues.stream_fetch import StreamFetch
from goqueue.broker.queues.tally import Tally
from goqueue.coordination.group import Group
from goqueue.delivery.lane import lease_in
from goqueue.delivery.queue import Queue
from goqueue.model.errors import GoQueueError

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
    def __init__(
        self,
        shards: GroupShards,
        changes: QueueChanges,
        returns: Returns,
        commits: StreamCommits,
        tally: Tally,
    ) -> None:
        self._shards = shards
        self._changes = changes
        self._returns = returns
        self._commits = commits
        self._assigned = AssignedQueues(shards)
        self._queue_fetch = QueueFetch(shards, self._assigned, tally)
        self._lane_fetch = LaneFetch(shards, self._assigned, self._queue_fetch, returns, self._give_back_from)
        self._stream_fetch = StreamFetch(shards, self._assigned, commits, tally)
        self._clock = shards.clock

    def drop_expired(self, queue: Queue, partition: Partition) -> None:
        """What lies below the beginning of the partition leaves the queue, be it in flight or not."""
        self._assigned.drop_expired(queue, partition)

    async def poll(self, name: str, member_id: str, bounds: PollBounds) -> list[Delivery]:
        """Messages for a member; none if none came in time, or if the broker stops."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + bounds.wait_ms / 1_000
        self._shards.find(name).member(member_id)
        session = self._shards.runtime(name).session(member_id, self._clock.monotonic_ns())
        session.calls += 1
        try:
            while not self._shards.host.is_stopping:
                group = self._shards.find(name)
                group.member(member_id)
                found = await self._attempt(self._poller(group, member_id, session), bounds)
                if found or loop.time() >= deadline:
                    return found
                if not await self._wait(name, member_id, session, bounds, deadline):
                    return []
            # A client that polls in a loop must not keep the broker from stopping.
            await asyncio.sleep(0)
            return []
        finally:
            session.calls -= 1
            session.heard_ns = self._clock.monotonic_ns()

    def _poller(self, group: Group, member_id: str, session: Session) -> Poller:
        return Poller(group, self._shards.settings(group), self._shards.runtime(group.name), member_id, session)

    # Waiting

    async def _wait(self, name: str, member_id: str, session: Session, bounds: PollBounds, deadline: float) -> bool:
        """Return as soon as there may be something to take; ``False`` if it is too late."""
        poller = self._poller(self._shards.find(name), member_id, session)
        runtime = poller.runtime
        has_room = self._room(poller, bounds) > 0
        if has_room and any(self._is_worth_a_look(poller, queue) for queue in self._assigned.queues(poller)):
            await asyncio.sleep(0)
            return True
        woken = asyncio.get_running_loop().create_future()
        waiter = Waiter(member_id, self._assigned.share(poller).partitions, has_room, woken)
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
                self._pass_on(name)
            raise
        finally:
            runtime.stop_waiting(waiter)
        return True

    def _pass_on(self, name: str) -> None:
        """Wake another poll for what this one was woken for, and did not fetch."""
        group = self._shards.journal(name).machine.get(name)
        if group is not None:
            self._shards.offer_all(name, self._shards.queues_of(group))

    def _is_worth_a_look(self, poller: Poller, queue: Queue) -> bool:
        if poller.settings.mode == "queue":
            return self._shards.has_something(poller.group, queue)
        place = self._shards.place(queue)
        return place is not None and place[1].stable_end > self._stream_fetch.position(poller.session, queue, place[1])

    def _room(self, poller: Poller, bounds: PollBounds) -> int:
        """How many messages the member may get now."""
        if poller.settings.mode == "stream":
            return bounds.max_messages
        most = poller.settings.max_in_flight
        if bounds.max_in_flight is not None:
            most = min(most, bounds.max_in_flight)
        if poller.session.window is not None:
            most = min(most, poller.session.window)
        return min(bounds.max_messages, most - poller.group.in_flight.get(poller.member_id, 0))

    def pause_s(self, name: str, member_id: str, bounds: PollBounds) -> float:
        """How long a member that has plenty in flight can do without more, if there is room for little.

        A moment later there is room for more at once, which costs both sides less.
        """
        group = self._shards.journal(name).machine.get(name)
        if group is None:
            return 0.0
        in_flight = group.in_flight.get(member_id, 0)
        session = self._shards.runtime(name).sessions.get(member_id)
        room = self._room(self._poller(group, member_id, session or Session(0)), bounds)
        return in_flight * _LEAST_S_EACH if 0 < room < in_flight // 2 else 0.0

    # One attempt

    async def _attempt(self, poller: Poller, bounds: PollBounds) -> list[Delivery]:
        """From each of the member's queues in turn, beginning with another every time."""
        group, member_id, session = poller.group, poller.member_id, poller.session
        is_stream = poller.settings.mode == "stream"
        if is_stream:
            self._commits.auto_commit(group, member_id)
        self._changes.release(group, member_id)
        queues = self._assigned.queues(poller)
        turn = session.turn % len(queues) if queues else 0
        session.turn += 1
        room = Room(self._room(poller, bounds), bounds.max_bytes)
        attempt = Attempt(poller, room, deque(queues[turn:] + queues[:turn]))
        try:
            if not is_stream and self._shards.is_mixed(group, self._assigned.share(poller)):
                await self._lane_fetch.serve(attempt)
            else:
                await self._in_order(attempt, is_stream=is_stream)
            if attempt.found and not is_stream:
                await self._shards.journal(group.name).settled()
        except BaseException:
            # What was taken is in no answer, and must not be taken for seen.
            session.go_back(attempt.steps)
            self.give_back(group.name, member_id, attempt.found)
            raise
        finally:
            # It may have been woken for one of those that it did not get to.
            self._shards.offer_all(group.name, attempt.to_visit)
        if attempt.failure is not None and not attempt.found:
            raise attempt.failure
        return attempt.found

    async def _in_order(self, attempt: Attempt, *, is_stream: bool) -> None:
        """Everything is of lane normal, or it is a stream and lanes do not matter."""
        session = attempt.poller.session
        while attempt.to_visit and attempt.room.is_left:
            queue = attempt.to_visit.popleft()
            where = self._shards.place(queue)
            if where is None:
                continue
            visit = Visit(attempt.poller, queue, where[0], where[1], attempt.room)
            if is_stream:
                before = session.positions.get(queue.key)
                await attempt.harvest(self._stream_fetch.take(visit))
                attempt.steps[queue.key] = before, session.positions.get(queue.key)
            else:
                await attempt.harvest(self._visit(visit))

    def give_back(self, name: str, member_id: str, found: Sequence[Delivery]) -> None:
        """Release deliveries that never reached their member, because its connection is gone."""
        unseen = {(each.topic, each.partition, each.lease) for each in found if each.lease}
        if unseen:
            self._give_back(name, member_id, unseen.__contains__)

    def _give_back(self, name: str, member_id: str, is_unseen: Callable[[tuple[str, int, int]], bool]) -> None:
        group = self._shards.journal(name).machine.get(name)
        if group is not None:
            # If that cannot be written either, their visibility timeout brings them back.
            with suppress(GoQueueError):
                self._shards.change(name, self._returns.of_unseen(group, member_id, is_unseen))

    def _give_back_from(self, visit: Visit, first_lease: int) -> None:
        """Of one queue, what was taken by this lease and later ones."""
        here = visit.topic.name, visit.queue.partition
        self._give_back(
            visit.poller.group.name, visit.poller.member_id, lambda lease: lease[:2] == here and lease[2] >= first_lease
        )

    async def _visit(self, visit: Visit) -> list[Delivery]:
        group, runtime, queue = visit.poller.group, visit.poller.runtime, visit.queue
        if queue.key in runtime.reading:
            return []
        self._returns.tend(queue)
        self._assigned.drop_expired(queue, visit.partition)
        if not self._shards.has_something(group, queue):
            return []
        runtime.reading.add(queue.key)
        first_lease = lease_in(queue.leases.next_number, 0)
        try:
            return await self._queue_fetch.take(visit)
        except BaseException:
            self._give_back_from(visit, first_lease)
            raise
        finally:
            runtime.reading.discard(queue.key)
            # Others left it alone meanwhile, and may be waiting for what is left.
            self._shards.offer(group.name, queue)
