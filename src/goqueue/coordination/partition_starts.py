"""Where the partitions of a shard begin, once retention or a purge has moved that.

It is decided once, and noted in the shard's journal, so that whoever has a copy of the partition begins at the same
offset. A partition whose start was never moved has no entry: it begins where its log does.
"""

from __future__ import annotations

import msgspec

from goqueue.model.ids import PartitionKey


class StartEvent(msgspec.Struct, frozen=True):
    """Something that happened to the start of a partition."""

    partition: PartitionKey


class StartMoved(StartEvent, frozen=True, tag="start_moved"):
    """It begins at ``start`` from now on: what lies below may be removed, and is not read any more."""

    start: int


class StartForgotten(StartEvent, frozen=True, tag="start_forgotten"):
    """Its topic is gone."""


AnyStartEvent = StartMoved | StartForgotten
