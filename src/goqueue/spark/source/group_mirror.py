"""Copies a streaming query's offsets to a consumer group, so that its lag appears beside that of other consumers.

The group is only a copy: a query always resumes from its checkpoint.
"""

from __future__ import annotations

import time

from goqueue.model.errors import GoQueueError, GroupConflict, GroupNotFound
from goqueue.model.logging import get_logger
from goqueue.spark.source.clients import client_for
from goqueue.spark.source.options import SourceOptions
from goqueue.spark.source.positions import Offsets

log = get_logger(__name__)

_MIN_INTERVAL_S = 1.0
"""Micro-batches may follow each other within milliseconds; lag needs no finer resolution than this."""


class GroupMirror:
    """Publishes the offsets of one streaming query to the group named in its options."""

    def __init__(self, options: SourceOptions) -> None:
        assert options.group is not None
        self._group = options.group
        self._brokers = options.brokers
        self._published: Offsets = {}
        self._published_at = float("-inf")
        self._is_configured = False

    def check(self) -> None:
        """Raise ``GroupConflict`` if other consumers use the group: publishing offsets would move their position."""
        if not self._brokers:
            return
        try:
            found = client_for(self._brokers).describe_group(self._group)
        except GroupNotFound:
            return
        if found.members or found.settings.get("mode") != "stream":
            raise GroupConflict(
                f"the group {self._group!r} is {'in use by members' if found.members else 'a queue'}; a query shows "
                "its offsets in a group of its own: give the option group another name"
            )

    def publish(self, offsets: Offsets, *, at_once: bool = False) -> None:
        """Set the group's offsets, below which everything is processed. Errors are logged and do not stop the query.

        Calls within a second of the last one are skipped unless ``at_once``.
        """
        changed = {tp: offset for tp, offset in offsets.items() if self._published.get(tp) != offset}
        is_early = time.monotonic() < self._published_at + _MIN_INTERVAL_S
        if not changed or not self._brokers or (is_early and not at_once):
            return
        client = client_for(self._brokers)
        for tp, offset in changed.items():
            try:
                if not self._is_configured:
                    client.configure_group(self._group, mode="stream")
                    self._is_configured = True
                client.reset_offsets(self._group, tp.topic, offset, [tp.partition])
            except GoQueueError as error:
                log.warning("a query's offset is not in its group", group=self._group, place=str(tp), error=str(error))
                if error.retriable:
                    return
            # An offset that cannot be set, because its topic was deleted, must not block the other partitions.
            self._published[tp] = offset
        self._published_at = time.monotonic()
