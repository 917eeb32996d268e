"""A group at work: its state, its settings, its members' sessions and waiting polls, and its queues in all shards.

What its members may take is in the views that shards have of it. So its partitions are served also while its
coordinator is not led here; whatever changes or asks for the group as a whole needs the coordinator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from goqueue.broker.partitions.topic import Topic
from goqueue.broker.runtime.journal import Journal
from goqueue.broker.shards.backlog import is_plain, may_scan
from goqueue.broker.shards.dead_letter_topics import target_for
from goqueue.broker.shards.group_runtime import GroupRuntime, Share
from goqueue.broker.shards.group_views import show
from goqueue.broker.shards.shard import Shard
from goqueue.broker.shards.shard_map import ShardMap
from goqueue.coordination.group import AnyGroupEvent, Group, GroupDeleted, HandedOver, Member, Rebalanced
from goqueue.coordination.group_view import GroupView, SeenMember
from goqueue.coordination.shard_state import ShardEvent, ShardState
from goqueue.delivery.events import QueueClosed, QueueEvent, QueueOpened, ResetTo
from goqueue.delivery.queue import Queue
from goqueue.delivery.receipts import Seal
from goqueue.delivery.retry import Terms
from goqueue.model.clock import NANOS_PER_SECOND
from goqueue.model.errors import GoQueueError, NotLeader
from goqueue.model.fields import shown
from goqueue.model.group_settings import GroupSettings
from goqueue.model.ids import PartitionKey, QueueKey, partition_key, queue_key, queue_key_of, split_queue_key
from goqueue.model.logging import get_logger

log = get_logger(__name__)

_TRY_AGAIN_NS = NANOS_PER_SECOND


class ActiveGroup:
    """Found once for each request. ``shard`` is its coordinator's; its queues are in the shards of their partitions."""

    __slots__ = (
        "_is_news",
        "_with_queues",
        "coordinated",
        "identity",
        "is_over",
        "name",
        "runtime",
        "settings",
        "shard",
        "shards",
    )

    def __init__(self, shards: ShardMap, shard: Shard, known: Group | GroupView, runtime: GroupRuntime) -> None:
        """``known``: what the coordinator knows of the group, or a view of it if that is not led here."""
        self.shards = shards
        self.shard = shard
        self.runtime = runtime
        self.coordinated: Group | None = None
        """The group as its coordinator knows it; ``None`` while that is not led here."""
        self._with_queues: list[Journal[ShardState]] | None = None
        self._is_news = False
        """Whether shards have yet to be shown something."""
        self.is_over = False
        """Whether the group was deleted, or nothing of it is led here: what awaits something gives up."""
        if isinstance(known, GroupView):
            self.name, self.identity = known.group, known.identity
            self.settings: GroupSettings = shards.host.config.group.with_overrides(known.settings)
        else:
            self.name, self.identity = known.name, known.state.identity
            self.use(known)

    def use(self, group: Group) -> None:
        """Its coordinator is led here; or the group has other settings now, or the journal went back to what is durable
        and made it anew."""
        self.coordinated = group
        config = self.shards.host.config.group
        self.settings = config.with_overrides(group.state.fixed | group.state.overrides)

    @property
    def group(self) -> Group:
        """As its coordinator knows it."""
        if self.coordinated is None:
            raise NotLeader(f"this broker does not lead the shard of group {self.name!r} at present")
        return self.coordinated

    def end(self) -> None:
        """It is not served here any more."""
        self.is_over = True
        self.runtime.end()

    # Its members

    def member(self, member_id: str) -> Member | SeenMember:
        """Raises if it is none, or if only the coordinator could tell."""
        if self.coordinated is not None:
            return self.coordinated.member(member_id)
        for _, view in self.views():
            if member_id in view.members:
                return view.members[member_id]
        raise NotLeader(
            f"this broker does not lead the shard of group {self.name!r} at present, and no other that it leads was "
            f"shown member {shown(member_id)}"
        )

    def views(self) -> list[tuple[Journal[ShardState], GroupView]]:
        """What the shards that have its queues were shown of it."""
        found = [(journal, journal.machine.views.get(self.name)) for journal in self._journals()]
        return [(journal, view) for journal, view in found if view is not None and view.identity == self.identity]

    def is_seen_by(self, shard: Shard) -> bool:
        view = shard.state.views.get(self.name)
        return view is not None and view.identity == self.identity

    def show(self) -> None:
        """Bring what shards were shown in line with what the coordinator knows."""
        self.runtime.shares.clear()
        show(self.shards, self.group, is_shared=self.settings.kind == "shared")

    def show_news(self) -> None:
        """The same after a change, if it was one of members, owners, settings or queues. The change itself stands."""
        if not self._is_news or self.coordinated is None or self.is_over:
            return
        self._is_news = False
        try:
            self.show()
        except GoQueueError as error:
            log.warning("shards are shown a change of a group later", group=self.name, error=str(error))
            self.follow_later()

    def follow_later(self) -> None:
        """Something that has happened could not be noted everywhere: try again soon."""
        self.runtime.is_behind = True
        self.shard.group_times.set(self.name, self.shards.host.clock.now_ns() + _TRY_AGAIN_NS)

    # Its queues

    def queue(self, topic: Topic, partition: int) -> Queue | None:
        key = queue_key(self.identity, topic.record.topic_id, partition)
        return self.shards.by_number[topic.shards[partition]].journal.machine.by_key.get(key)

    def queues(self) -> list[Queue]:
        identity = self.identity
        own = [journal.machine.by_group.get(identity) for journal in self._journals()]
        return [queue for queues in own if queues for queue in queues.values()]

    def _journals(self) -> list[Journal[ShardState]]:
        """Those that have its queues; looked for only after some were opened, or shards changed hands."""
        if self._with_queues is None:
            self._with_queues = self.shards.journals_with(self.identity)
        return self._with_queues

    def look_for_queues(self) -> None:
        """There may be queues of it in other shards than before, and other views."""
        self._with_queues = None
        self.runtime.shares.clear()

    def has_several_lanes(self, share: Share) -> bool:
        """Whether a member has anything to fetch outside of lane normal."""
        for name in share.partitions & self.shards.news.special:
            key = queue_key_of(self.identity, name)
            journal = share.queues.get(key)
            queue = None if journal is None else journal.machine.by_key.get(key)
            place = None if queue is None else self.shards.place(queue)
            if queue is not None and place is not None and not is_plain(queue, place[1]):
                return True
        return False

    def has_something(self, queue: Queue) -> bool:
        """Whether a poll of a queue would find something to do; not while another poll reads it."""
        place = self.shards.place(queue)
        if place is None or queue.key in self.runtime.reading:
            return False
        return (
            queue.has_ready
            or may_scan(queue, place[1], place[1].stable_end, self.shards.host.config.limits.max_outstanding)
            or self.must_learn_keys(queue)
        )

    def must_learn_keys(self, queue: Queue) -> bool:
        """Whether key order has to be read from the log: after a start the keys of parked messages are not known."""
        return queue.keys is None and self.settings.ordering == "key" and queue.parked > 0

    def in_flight(self, member_id: str) -> int:
        """How many messages a member has in flight."""
        identity = self.identity
        own = [journal.machine.in_flight.get(identity) for journal in self._journals()]
        return sum([by_member.get(member_id, 0) for by_member in own if by_member])

    def seal(self, queue: Queue, topic: Topic) -> Seal:
        """What proves this queue's receipts."""
        seals = self.runtime.seals
        seal = seals.get(queue.key)
        if seal is None:
            key = self.shards.receipt_key
            seal = seals[queue.key] = Seal(key, topic.name, queue.partition, self.name, queue.key)
        return seal

    def sealed_queue(self, topic: Topic, partition: int) -> tuple[Queue, Seal] | None:
        """A queue, and what proves its receipts."""
        queue = self.queue(topic, partition) if 0 <= partition < len(topic.partitions) else None
        return None if queue is None else (queue, self.seal(queue, topic))

    def terms(self, queue: Queue, topic: Topic) -> Terms:
        """What a decision about a queue's messages goes by, as of now."""
        host = self.shards.host
        return Terms(self.settings, topic.settings, host.clock.now_ns(), lambda: target_for(host, queue, topic))

    # Changing

    def change(self, events: Sequence[ShardEvent], cause: str = "", freed: Collection[str] = ()) -> None:
        """Append and apply events of this group, each in its shard; no answer may leave before they are ``settled``.

        ``cause`` is what traces show as the reason for a retry or a dead letter. ``freed`` are members that have room
        again afterwards.
        """
        if events and (shard := self._only_shard(events)) is not None:
            shard.append(events, cause)
            self.follow(events)
        elif events:
            try:
                self.shards.append(events, cause, self.follow)
            finally:
                self.show_news()
        for member in freed:
            self._free(member)

    def _free(self, member: str) -> None:
        """A member has room again. Whether it can be noted what it has handed over by that does not undo the change."""
        try:
            self.release(member)
        except GoQueueError as error:
            log.warning("partitions change hands at the deadline", group=self.name, member=member, error=str(error))
        if self.runtime.waiters:
            self.runtime.wake_member(member)

    def _only_shard(self, events: Sequence[ShardEvent]) -> Shard | None:
        """The shard of most changes: something happens to one queue."""
        first = events[0]
        if len(events) > 1 or not isinstance(first, QueueEvent) or isinstance(first, QueueClosed):
            return None
        return self.shards.found.get(first.q)

    async def settled(self) -> None:
        """Return when all that is known of the group, in its own shard and in those of its partitions, is durable."""
        await Journal.all_settled(dict.fromkeys([self.shard.journal, *self._journals()]))

    def follow(self, events: Sequence[ShardEvent]) -> None:
        """These events were applied: bring sessions in line, wake polls that have something to fetch by them."""
        touched: dict[QueueKey, None] = {}
        have_owners_changed = False
        for event in events:
            if not isinstance(event, QueueEvent):
                self._follow_group(event)
                have_owners_changed |= isinstance(event, Rebalanced | HandedOver)
            elif isinstance(event, QueueClosed):
                self._forget_queue(event.q)
                self._is_news = True
            else:
                touched[event.q] = None
                if isinstance(event, QueueOpened):
                    self.look_for_queues()
                    self._is_news = True
                if isinstance(event, ResetTo):
                    # Members read on from what is committed.
                    for session in self.runtime.sessions.values():
                        session.positions.pop(event.q, None)
        if have_owners_changed:
            self._follow_owners()
        if self.runtime.waiters:
            for key in touched:
                queue = self.shards.find(key)
                if queue is not None:
                    self.offer(queue)

    def _forget_queue(self, key: QueueKey) -> None:
        self.runtime.seals.pop(key, None)
        self.runtime.served.pop(key, None)
        # Members that had messages of it in flight have room again.
        self.runtime.wake_all()

    def _follow_group(self, event: AnyGroupEvent) -> None:
        if isinstance(event, GroupDeleted):
            self.shards.host.notes.forget_group(self.name)
            self.shards.news.forget_group(self.name)
            self.end()
            self.shard.work.group_deleted(self.name, self.identity)
            return
        group = self.shard.state.by_name.get(self.name)
        if group is None:
            return
        self.use(group)
        self._is_news = True
        if isinstance(event, Rebalanced):
            log.info(
                "a group is rebalanced",
                group=self.name,
                generation=event.generation,
                members=len(group.state.members),
                partitions=len(event.owners),
                changing_hands=len(event.handovers),
            )

    def _follow_owners(self) -> None:
        state, sessions = self.group.state, self.runtime.sessions
        for member in [each for each in sessions if each not in state.members]:
            del sessions[member]
        for member, session in sessions.items():
            for key in list(session.positions):
                if state.owners.get(split_queue_key(key)[1]) != member:
                    del session.positions[key]
        self.runtime.notify_change()
        for handover in state.handovers.values():
            self.shard.group_times.set(self.name, handover.deadline_ns)

    def release(self, member_id: str) -> None:
        """Complete handovers of partitions of which the member that gives them up has nothing in flight any more."""
        group = self.coordinated
        if group is not None and group.state.handovers:
            done = [name for name in group.leaving(member_id) if not self.is_held(member_id, name)]
            if done:
                self.change(group.decide_handovers(done))

    def is_held(self, member_id: str, partition: PartitionKey) -> bool:
        """Whether a member has something of a partition in hand, or may have."""
        key = queue_key_of(self.identity, partition)
        if not self.shards.of_queue(key).is_leading:
            # That is not known here; there is the deadline.
            return True
        queue = self.shards.find(key)
        if queue is None:
            return False
        if self.settings.mode == "queue":
            return queue.leases.in_hand(member_id) > 0
        session = self.runtime.sessions.get(member_id)
        return session is not None and session.positions.get(queue.key, queue.committed) > queue.committed

    def offer(self, queue: Queue) -> None:
        """If there is something in a queue to fetch, wake the poll that has waited longest for it."""
        if self.runtime.waiters and self.settings.mode == "queue" and self.has_something(queue):
            self.runtime.wake_one(partition_key(queue.topic_id, queue.partition))

    def offer_all(self, queues: Iterable[Queue]) -> None:
        """The same for several queues, as long as a poll waits that has room."""
        for queue in queues:
            if not self.runtime.has_takers:
                return
            self.offer(queue)
