"""What moves a group's messages to other topics, for tests that make it stop or fail."""

from __future__ import annotations

from goqueue.broker.dead_letters.dead_letter_mover import DeadLetterMover
from goqueue.broker.groups.group_service import GroupService
from goqueue.broker.groups.leader_work import LeaderWork


def mover_of(groups: GroupService, group: str) -> DeadLetterMover:
    """That of the shard of a group."""
    work = groups.shards.of(group).work
    assert isinstance(work, LeaderWork)
    return work.mover


def movers(groups: GroupService) -> list[DeadLetterMover]:
    return [shard.work.mover for shard in groups.shards.all if isinstance(shard.work, LeaderWork)]
