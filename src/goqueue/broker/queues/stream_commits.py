"""Committed offsets of stream groups: automatic commits, and commits that open transactions may still make."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.broker.shards.active_group import ActiveGroup
from goqueue.broker.shards.shard_directory import Shards
from goqueue.coordination.shard_state import ShardEvent
from goqueue.coordination.transaction_records import GroupOffset
from goqueue.delivery.committed_offsets import decide_commit
from goqueue.model.clock import NANOS_PER_MS


class StreamCommits:
    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._clock = shards.clock
        self._expected: dict[str, dict[str, GroupOffset]] = {}
        """Offsets where streams may go on soon: by queue, and by the transaction that may commit them."""

    def auto_commit(self, group: ActiveGroup, member_id: str, *, now: bool = False) -> None:
        """Commit what a stream member was delivered by earlier polls, if its interval is over or ``now`` is set."""
        member = group.member(member_id)
        session = group.runtime.sessions.get(member_id)
        if not member.auto_commit or session is None:
            return
        interval_ns = group.settings.auto_commit_ms * NANOS_PER_MS
        is_handing_over = group.coordinated is not None and group.coordinated.state.handovers
        if not now and self._clock.monotonic_ns() - session.committed_at_ns < interval_ns and not is_handing_over:
            return
        session.committed_at_ns = self._clock.monotonic_ns()
        events: list[ShardEvent] = []
        for key, position in session.positions.items():
            queue = group.shards.find(key)
            if queue is not None:
                events += decide_commit(queue, position)
        group.change(events)

    def expect(self, offset: GroupOffset, holder: str) -> None:
        """A transaction may let a stream go on at this offset: until it has ended, no poll reads what lies below.

        A member that read it again, be it the same one that does not know whether its commit succeeded, would do the
        same work once more, and both might be committed.
        """
        expected = self._expected.setdefault(offset.queue, {})
        before = expected.get(holder)
        if before is None or before.offset < offset.offset:
            expected[holder] = offset

    def expect_no_more(self, offsets: Sequence[GroupOffset], holder: str) -> None:
        """The transaction has ended: polls that wait look again."""
        for each in offsets:
            expected = self._expected.get(each.queue, {})
            expected.pop(holder, None)
            if not expected:
                self._expected.pop(each.queue, None)
        for name in dict.fromkeys(each.group for each in offsets):
            group = self._shards.served(name)
            if group is not None:
                group.runtime.wake_all()

    def is_expected(self, queue: str, offset: int) -> bool:
        """Whether a transaction may move a stream beyond an offset."""
        expected = self._expected.get(queue)
        return expected is not None and any(each.offset > offset for each in expected.values())
