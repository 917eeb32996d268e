"""A stream's offsets in a group, so that its lag is seen where all other lag is.

A mirror and not the truth: a query goes on where its checkpoint says.
"""

from __future__ import annotations

import time

from goqueue.model.errors import GoQueueError, GroupConflict, GroupNotFound
from goqueue.model.logging import get_logger
from goqueue.spark.source.clients import client_for
from goqueue.spark.source.options import SourceOptions
from goqueue.spark.source.positions import Offsets

log = get_logger(__name__)

_NOT_MORE_OFTEN_THAN_S = 1.0
"""Micro-batches may follow each other within milliseconds; people look at lag less often."""


class GroupMirror:
    def __init__(self, options: SourceOptions) -> None:
        assert options.group is not None
        self._group = options.group
        self._brokers = options.brokers
        self._told: Offsets = {}
        self._told_at = float("-inf")
        self._is_known = False

    def check(self) -> None:
        """Raises if the group is someone's who goes by it: what is told here would move where they read."""
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

    def move_to(self, offsets: Offsets, *, at_once: bool = False) -> None:
        """Everything below these offsets is done. Whatever goes wrong here does not stop the query."""
        news = {place: offset for place, offset in offsets.items() if self._told.get(place) != offset}
        is_early = time.monotonic() < self._told_at + _NOT_MORE_OFTEN_THAN_S
        if not news or not self._brokers or (is_early and not at_once):
            return
        client = client_for(self._brokers)
        for place, offset in news.items():
            try:
                if not self._is_known:
                    client.configure_group(self._group, mode="stream")
                    self._is_known = True
                client.reset_offsets(self._group, place.topic, offset, [place.partition])
            except GoQueueError as error:
                log.warning(
                    "a query's offset is not in its group", group=self._group, place=str(place), error=str(error)
                )
                if error.retriable:
                    return
            # What cannot be told, because its topic is gone, must not keep the others from being told.
            self._told[place] = offset
        self._told_at = time.monotonic()
