"""Expiry: members that are not heard of within their session timeout, overdue handovers, groups that stay empty."""

from __future__ import annotations

from goqueue.broker.events.event_recorder import INTERNAL
from goqueue.broker.groups.subscriptions import Subscriptions
from goqueue.broker.queues.returns import Returns
from goqueue.broker.shards.active_group import ActiveGroup
from goqueue.broker.shards.shard_directory import Shards
from goqueue.coordination.group import Member
from goqueue.coordination.rebalance import decide_leave
from goqueue.coordination.shard_state import ShardEvent
from goqueue.model.clock import NANOS_PER_MS, Clock
from goqueue.model.errors import GoQueueError
from goqueue.model.logging import get_logger
from goqueue.observe.trace_event import RELEASED

log = get_logger(__name__)

_LOOK_AGAIN_NS = 60_000 * NANOS_PER_MS


class MemberExpiry:
    def __init__(self, clock: Clock, returns: Returns, subscriptions: Subscriptions) -> None:
        self._clock = clock
        self._returns = returns
        self._subscriptions = subscriptions

    def take_up(self, group: ActiveGroup) -> None:
        """After a start every member has its whole session before it."""
        now_ns = self._clock.monotonic_ns()
        for member in group.group.state.members:
            group.runtime.session(member, now_ns)
        self.arm(group)

    def return_departed(self, group: ActiveGroup) -> None:
        """Return to the queues what members have in flight who left while that could not be noted everywhere."""
        try:
            group.change(self._returns.of_departed(group), RELEASED)
        except GoQueueError as error:
            log.warning("messages come back when their visibility timeout ends", group=group.name, error=str(error))

    def arm(self, group: ActiveGroup) -> None:
        """Set the timer for the next session, handover or idle time that may expire."""
        state = group.group.state
        for member in state.members.values():
            self.arm_member(group, member)
        for handover in state.handovers.values():
            group.shard.group_times.set(group.name, handover.deadline_ns)
        ends_at_ns = _idle_until_ns(group)
        if ends_at_ns is not None:
            group.shard.group_times.set(group.name, ends_at_ns)

    def arm_member(self, group: ActiveGroup, member: Member) -> None:
        """The same for one member's session."""
        heard_ns = self._clock.monotonic_ns()
        session = group.runtime.session_or_new(member.member_id, heard_ns)
        # One that has a call open is heard of all the time.
        ends_ns = (heard_ns if session.calls else session.heard_ns) + member.session_timeout_ms * NANOS_PER_MS
        group.shard.group_times.set(group.name, self._clock.now_ns() + max(0, ends_ns - heard_ns))

    def expire_due(self, shards: Shards, name: str) -> None:
        """Take out silent members, complete overdue handovers, delete a group that was empty for too long."""
        group = shards.get(name)
        if group is None:
            return
        if group.runtime.is_behind:
            self._subscriptions.keep_up(group)
        now_ns, heard_ns = self._clock.now_ns(), self._clock.monotonic_ns()
        overdue = group.group.overdue(now_ns)
        if overdue:
            log.warning("partitions are taken from members that did not let go", group=name, partitions=len(overdue))
            group.change(group.group.decide_handovers(overdue))
        # A member that has a call open is heard of all the time.
        sessions = {each: group.runtime.session_or_new(each, heard_ns) for each in group.group.state.members}
        heard = {each: heard_ns if session.calls else session.heard_ns for each, session in sessions.items()}
        silent = group.group.expired_members(heard, heard_ns)
        if silent:
            log.warning("members were not heard of and are taken out", group=name, members=silent[:10])
            self.remove(group, silent, orderly=False)
        ends_at_ns = _idle_until_ns(group)
        if ends_at_ns is None or ends_at_ns > now_ns:
            self.arm(group)
        elif not group.shards.are_all_led or any(queue.moving for queue in group.queues()):
            group.shard.group_times.set(name, now_ns + _LOOK_AGAIN_NS)
        else:
            log.info("a group without members is deleted", group=name)
            group.change(group.group.decide_deletion(is_moving=False))

    def remove(self, group: ActiveGroup, gone: list[str], *, orderly: bool) -> None:
        """Take members out of the group, and return to the queues what they have in flight."""
        events: list[ShardEvent] = []
        for member_id in gone:
            events += self._returns.of_member(group, member_id, orderly=orderly)
        left = [each for each in group.group.state.members.values() if each.member_id not in gone]
        rules = self._subscriptions.rules(group.settings)
        departure = decide_leave(group.group, gone, self._subscriptions.partitions(left), rules)
        group.change([*events, *departure, *self._subscriptions.idle_handovers(group, departure)], RELEASED)
        group.runtime.wake_all()
        self.arm(group)


def _idle_until_ns(group: ActiveGroup) -> int | None:
    """When a user's group is deleted for having no members."""
    return None if group.name.startswith(INTERNAL) else group.group.idle_until_ns(group.settings.idle_expiry_ms)
