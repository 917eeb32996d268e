"""Moves the starts of partitions, after that was noted in the journals of their shards."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from goqueue.broker.partitions.topic import Topic
from goqueue.broker.runtime.journal import Journal
from goqueue.broker.shards.shard import Shard
from goqueue.broker.shards.shard_map import ShardMap
from goqueue.coordination.partition_starts import StartMoved
from goqueue.model.ids import partition_key


async def note_starts(shards: ShardMap, topic: Topic, starts: Mapping[int, int]) -> None:
    """Note where partitions of a topic are to begin, by their numbers. When this returns a start finds it, whatever
    happens, and the logs may be moved.

    A journal must not be ahead of the log that it is about, so what lies below a start is durable first.
    """
    await asyncio.gather(*[topic.partitions[number].durable(start) for number, start in starts.items()])
    if topic.closed:
        return
    events: dict[Shard, list[StartMoved]] = {}
    for number, start in starts.items():
        shards.check_led(topic, number)
        shard, key = shards.of_partition(topic, number), partition_key(topic.record.topic_id, number)
        # Another may have got further meanwhile.
        further = [StartMoved(key, start)] if start > shard.state.starts.get(key, 0) else []
        events.setdefault(shard, []).extend(further)
    for shard, own in events.items():
        if own:
            shard.append(own)
    await Journal.all_settled([shard.journal for shard in events])
