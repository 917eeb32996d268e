"""Administration of groups, dead letters and lanes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from datetime import datetime
from math import ceil
from typing import Any, Unpack

from goqueue.client.admin.groups import (
    DeadLetter,
    GroupInfo,
    PartitionLanes,
    PeekedMessage,
    RedriveReport,
    ReliabilityStats,
    merge_reports,
    to_dead_letter,
    to_filter,
    to_group_info,
    to_offsets,
    to_partition_lanes,
    to_peeked,
)
from goqueue.client.connection.directory import Directory, items_of
from goqueue.client.connection.instants import Span
from goqueue.client.connection.structs import struct_of
from goqueue.client.connection.topics import to_settings
from goqueue.client.consumer.handler_result import to_seconds
from goqueue.client.consumer.reader import Start, to_start
from goqueue.client.consumer.stream_source import TopicPartition
from goqueue.client.keywords import GroupOptions
from goqueue.model.errors import GroupNotFound, InvalidRequest, TopicNotFound
from goqueue.model.fields import INHERITED, specs
from goqueue.model.group_settings import GroupSettings
from goqueue.wire.proto import goqueue_pb2 as pb

_DEAD_LETTERS_PER_PAGE = 100
_PEEKED_PER_PAGE = 100


class GroupAdministration:
    """Methods of the client for groups, dead letters and lanes."""

    _directory: Directory

    async def list_groups(self) -> list[str]:
        """Names of all groups."""
        return list((await self._query("ListGroups", pb.ListGroupsRequest())).names)

    async def describe_group(self, name: str) -> GroupInfo:
        """Members, settings in effect, and the lag of every partition."""
        return to_group_info(await self._query("DescribeGroup", pb.DescribeGroupRequest(name=name)))

    async def configure_group(self, name: str, **settings: Unpack[GroupOptions]) -> GroupInfo:
        """Create a group, or change its settings while it is in use. ``None``: unlimited, or the topic's value."""
        request = pb.ConfigureGroupRequest(name=name, settings=to_group_settings(settings))
        return to_group_info(await self._directory.command("groups", "ConfigureGroup", request))

    async def delete_group(self, name: str) -> None:
        """Delete a group that has no members, with its offsets and all other state."""
        await self._directory.command("groups", "DeleteGroup", pb.DeleteGroupRequest(name=name), done_if=GroupNotFound)

    async def group_offsets(self, group: str, topic: str | None = None) -> dict[TopicPartition, int]:
        """Committed offsets per partition: every message below is done."""
        request = pb.FetchOffsetsRequest(group=group, topic=topic or "")
        return to_offsets(await self._query("FetchOffsets", request))

    async def reset_offsets(
        self, group: str, topic: str, to: Start, partitions: Iterable[int] | None = None
    ) -> dict[TopicPartition, int]:
        """Move the group's position back or forward; return the new offsets. Messages in flight are void."""
        numbers = None if partitions is None else list(partitions)
        if numbers == []:
            raise InvalidRequest("partitions is empty; leave it out for all of them")
        request = pb.ResetOffsetsRequest(group=group, topic=topic, partitions=numbers, start=to_start(to))
        return to_offsets(await self._directory.command("groups", "ResetOffsets", request))

    def peek(
        self, group: str, *, topic: str | None = None, partition: int | None = None, state: str | None = None
    ) -> AsyncGenerator[PeekedMessage, None]:
        """The group's unfinished messages by topic, partition and offset. Nothing is delivered or changed.

        ``state`` selects one of the states of ``PeekedMessage``.
        """
        return items_of(self._peek_pages(group, topic, partition, state))

    async def _peek_pages(
        self, group: str, topic: str | None, partition: int | None, state: str | None
    ) -> AsyncGenerator[list[PeekedMessage], None]:
        request = pb.PeekGroupRequest(
            group=group, topic=topic or "", partition=partition, state=state or "", limit=_PEEKED_PER_PAGE
        )
        is_last = False
        while not is_last:
            found = await self._query("PeekGroup", request)
            yield list(map(to_peeked, found.messages))
            request.after, is_last = found.next, not found.next

    def dead_letters(
        self,
        topic: str,
        *,
        group: str | None = None,
        error: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> AsyncGenerator[DeadLetter, None]:
        """Dead letters of a topic, or in a dead-letter topic. ``error``: part of the error text. ``since``, ``until``:
        time of death."""
        return items_of(self._dead_letter_pages(topic, group, error, since, until))

    async def _dead_letter_pages(
        self, topic: str, group: str | None, error: str | None, since: datetime | None, until: datetime | None
    ) -> AsyncGenerator[list[DeadLetter], None]:
        request = pb.ListDeadLettersRequest(
            topic=topic, filter=to_filter(group, error, since, until), limit=_DEAD_LETTERS_PER_PAGE
        )
        is_last = False
        while not is_last:
            try:
                found = (await self._query("ListDeadLetters", request)).dead_letters
            except TopicNotFound:
                # No dead-letter topic yet means no dead letters, unless the topic itself does not exist.
                await self._directory.partitions(topic)
                return
            yield list(map(to_dead_letter, found))
            is_last = len(found) < _DEAD_LETTERS_PER_PAGE
            if not is_last:
                request.from_partition, request.from_offset = found[-1].partition, found[-1].offset + 1

    async def redrive(
        self,
        topic: str,
        *,
        group: str | None = None,
        error: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        letters: Iterable[DeadLetter] | None = None,
        rate: float | None = None,
        delay: Span | None = None,
        dry_run: bool = False,
    ) -> RedriveReport:
        """Send dead letters back to their original topics, each once, for the group that gave them up.

        All that match, or only ``letters``; at most ``rate`` a second; visible after ``delay`` (seconds, if it is a
        number), like any delayed message. A dry run changes nothing and only reports.
        """
        criteria = to_filter(group, error, since, until)
        if letters is not None:
            criteria.messages.extend(
                pb.PartitionOffset(partition=each.partition, offset=each.offset) for each in letters
            )
            if not criteria.messages:
                raise InvalidRequest("letters is empty; leave it out for all of them")
        delay_ms = 0 if delay is None else ceil(to_seconds(delay) * 1_000)
        request = pb.RedriveRequest(topic=topic, filter=criteria, rate=rate or 0, dry_run=dry_run, delay_ms=delay_ms)
        reports: list[pb.RedriveResponse] = []
        while not reports or reports[-1].more:
            try:
                report = await self._directory.command("groups", "Redrive", request)
            except TopicNotFound:
                # No dead-letter topic yet means no dead letters, unless the topic itself does not exist.
                await self._directory.partitions(topic)
                report = pb.RedriveResponse()
            request.from_partition, request.from_offset = report.next_partition, report.next_offset
            reports.append(report)
        return merge_reports(reports)

    async def reliability_stats(self) -> ReliabilityStats:
        """Counters of acks, retries, dead letters and redrives of all groups."""
        return struct_of(ReliabilityStats, await self._query("ReliabilityStats", pb.ReliabilityStatsRequest()))

    async def lane_stats(self, topic: str | None = None) -> list[PartitionLanes]:
        """Lane statistics of every partition, or of one topic's partitions, in order of topic and partition."""
        request = pb.LaneStatsRequest(topic=topic or "")
        found: list[PartitionLanes] = []
        more = True
        while more:
            page = await self._query("LaneStats", request)
            found += map(to_partition_lanes, page.partitions)
            more = page.more
            if more:
                request.after.topic, request.after.partition = found[-1].topic, found[-1].partition
        return found

    async def _query(self, method: str, request: Any) -> Any:
        return await self._directory.query("groups", method, request)


def to_group_settings(settings: Mapping[str, object]) -> dict[str, str]:
    """Group settings in the form that the broker parses."""
    declared = specs(GroupSettings)
    return to_settings(
        {
            name: INHERITED if value is None and name in declared and declared[name].inherits else value
            for name, value in settings.items()
        }
    )
