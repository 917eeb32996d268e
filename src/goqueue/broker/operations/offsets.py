"""Operations on the offsets that groups have committed."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any

from goqueue.broker.groups.group_offsets import Offsets
from goqueue.broker.operations.caller import Caller
from goqueue.broker.operations.gate import Resource, ResourceOperations, operation
from goqueue.broker.operations.reading import StartAt
from goqueue.broker.runtime.time_slices import TimeSlice

OffsetsByTopic = dict[str, dict[int, int]]
"""By topic and partition."""


class OffsetOperations(ResourceOperations):
    """Commits and resets are durable when the operation returns."""

    @operation("offsets.fetch", Resource.GROUP)
    def committed(self, caller: Caller, group: str, topic: str | None = None) -> Coroutine[Any, Any, OffsetsByTopic]:
        """Where what the group has finished ends, without a gap."""
        return self._host.groups.offsets.committed(group, topic)

    @operation("offsets.commit", Resource.GROUP)
    def commit(
        self, caller: Caller, group: str, member_id: str, offsets: Offsets, generation: int | None = None
    ) -> Coroutine[Any, Any, None]:
        """In a stream everything below is done; in a queue only what was delivered below."""
        return self._host.groups.offsets.commit(group, member_id, offsets, generation)

    @operation("offsets.reset", Resource.GROUP)
    async def reset(
        self, caller: Caller, group: str, topic: str, partitions: Iterable[int] | None, start: StartAt | int
    ) -> OffsetsByTopic:
        """Begin again at a position, back or ahead, in all partitions or in some; return the offsets.

        An ``int`` is an offset that must be there, 0 included.
        """
        self._host.groups.shards.find(group)
        found = self._host.topics.find(topic)
        offsets: dict[int, int] = {}
        stretch = TimeSlice()
        for number in range(len(found.partitions)) if partitions is None else partitions:
            partition = found.partition(number)
            offsets[number] = start if isinstance(start, int) else start.offset_in(partition)
            if stretch.is_over:
                await stretch.rest()
        await self._host.groups.offsets.reset(group, {topic: offsets})
        return {topic: offsets}
