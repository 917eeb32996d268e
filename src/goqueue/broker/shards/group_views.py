"""Shows shards what concerns them of a group: who may take messages from their partitions, and by which settings."""

from __future__ import annotations

from collections.abc import Iterator

from goqueue.broker.shards.shard import Shard
from goqueue.broker.shards.shard_map import ShardMap
from goqueue.coordination.group import Group
from goqueue.coordination.group_view import AnyViewEvent, GroupForgotten, decide_view
from goqueue.model.errors import GoQueueError, StorageFailed
from goqueue.model.ids import PartitionKey, queue_key_of


def show(shards: ShardMap, group: Group, *, is_shared: bool) -> None:
    """Bring what shards know of a group in line with its coordinator.

    Doing it again changes nothing. An error is raised when all shards are done but those that it concerns.
    """
    failure = None
    for shard, event in news(shards, group, is_shared=is_shared):
        try:
            shard.show(event)
        except StorageFailed:
            # It takes nothing any more until a start, which shows it everything.
            continue
        except GoQueueError as error:
            failure = error
    if failure is not None:
        raise failure


def news(shards: ShardMap, group: Group, *, is_shared: bool) -> Iterator[tuple[Shard, AnyViewEvent]]:
    """What shards that are led here have yet to be shown.

    It goes by what they know and not by generations: a partition changes hands within one.
    """
    name, identity = group.name, group.state.identity
    settings = group.state.fixed | group.state.overrides
    owners = _owners_by_shard(shards, group)
    for shard in shards.leading:
        event: AnyViewEvent | None = None
        view = shard.state.views.get(name)
        if identity in shard.state.by_group:
            event = decide_view(group, settings, view, owners.get(shard, {}), is_shared=is_shared)
        elif view is not None and view.identity == identity:
            event = GroupForgotten(name, identity)
        if event is not None:
            yield shard, event


def _owners_by_shard(shards: ShardMap, group: Group) -> dict[Shard, dict[PartitionKey, str]]:
    """Who may take messages from which partition: not from one that is about to change hands."""
    state = group.state
    found: dict[Shard, dict[PartitionKey, str]] = {}
    for partition, owner in state.owners.items():
        if partition not in state.handovers:
            shard = shards.of_queue(queue_key_of(state.identity, partition))
            found.setdefault(shard, {})[partition] = owner
    return found
