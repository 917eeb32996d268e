"""Spark's readers of topics: a batch reader and a stream reader."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming import datasource
from pyspark.sql.types import StructType

from goqueue.model.errors import InvalidRequest, TopicNotFound
from goqueue.model.names import INTERNAL_PREFIX
from goqueue.spark.source.columns import Decoder
from goqueue.spark.source.group_mirror import GroupMirror
from goqueue.spark.source.options import SourceOptions
from goqueue.spark.source.positions import (
    Bounds,
    Offsets,
    OffsetsJson,
    TopicPartition,
    from_json,
    ranges,
    readable_offset,
    resolve,
    split,
    to_json,
    topic_ids,
    trigger_end,
    without_recreated_topics,
)
from goqueue.spark.source.transports import BrokerTransport, Split, Transport

_TOPIC_REFRESH_S = 1.0
"""How often a stream lists topics to find new ones that match its pattern."""


def transport_for(options: SourceOptions) -> Transport:
    """The transport by the options: a broker, or the files of a data folder."""
    how: dict[str, bool] = {"uncommitted": options.uncommitted, "fail_on_data_loss": options.fail_on_data_loss}
    if options.path is None:
        assert options.brokers is not None
        return BrokerTransport(options.brokers, **how)
    from goqueue.spark.source.file_transport import FileTransport

    return FileTransport(options.path, options.brokers, **how)


class Topics:
    """The topics to read: those named in the options, or all that currently match the pattern."""

    def __init__(self, options: SourceOptions, transport: Transport) -> None:
        self._options = options
        self._transport = transport
        self._matching: list[str] = []
        self._listed_at = float("-inf")

    def names(self) -> Sequence[str]:
        if self._options.pattern is None:
            return self._options.topics
        if time.monotonic() >= self._listed_at + _TOPIC_REFRESH_S:
            fits = re.compile(self._options.pattern).fullmatch
            self._matching = [
                name for name in self._transport.topics() if fits(name) and not name.startswith(INTERNAL_PREFIX)
            ]
            self._listed_at = time.monotonic()
        return self._matching

    def bounds(self) -> dict[TopicPartition, Bounds]:
        try:
            return self._transport.bounds(self.names())
        except TopicNotFound:
            if self._options.pattern is None:
                raise
            # A matching topic was deleted since the last listing.
            self._listed_at = float("-inf")
            return self._transport.bounds(self.names())


class _Reader:
    """The part of a reader that runs in executors. It must stay picklable."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Split):
            # Spark starts a task even if no partitions were planned.
            return
        schema = to_arrow_schema(self._schema, timezone="UTC")
        tp = partition.range.tp
        decoder = Decoder(*tp, schema, skip_damaged=not self._options.fail_on_data_loss)
        for run in partition.read():
            yield from decoder.decode(run)


class BatchReader(_Reader, DataSourceReader):
    """Reads everything between two positions, as of the moment of planning.

    It does not implement filter pushdown (``pushFilters``). Spark 4.3 creates one reader for each ``load()`` and keeps
    it with the filters of its first use, so a second use of the same DataFrame would silently miss rows.
    """

    def partitions(self) -> list[InputPartition]:
        options = self._options
        transport = transport_for(options)
        bounds = Topics(options, transport).bounds()
        if not bounds and options.pattern is not None:
            raise TopicNotFound(f"no topic fits the pattern {options.pattern!r}")
        strict = options.fail_on_data_loss
        start = resolve(options.starting, bounds, transport.offset_at, otherwise="earliest", fail_on_data_loss=strict)
        end = resolve(options.ending, bounds, transport.offset_at, otherwise="latest", fail_on_data_loss=strict)
        for tp in bounds:
            if start[tp] > end[tp]:
                if isinstance(options.starting, dict) or isinstance(options.ending, dict):
                    raise InvalidRequest(f"{tp} would be read from offset {start[tp]} back to {end[tp]}")
                end[tp] = start[tp]
        whole = ranges(start, end, bounds, fail_on_data_loss=strict)
        return [transport.split(each) for each in split(whole, options.min_partitions)]


class StreamReader(_Reader, DataSourceStreamReader, datasource.SupportsTriggerAvailableNow):
    """Reads a stream. One instance lives on the driver's side as long as the query; each task gets a pickled copy
    without the plan."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._current_plan: _StreamPlan | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_current_plan": None}

    @property
    def _plan(self) -> _StreamPlan:
        if self._current_plan is None:
            self._current_plan = _StreamPlan(self._options)
        return self._current_plan

    def initialOffset(self) -> OffsetsJson:  # noqa: N802
        initial = self._plan.initial()
        return to_json(initial, self._plan.ids)

    def latestOffset(self, start: OffsetsJson, limit: datasource.ReadLimit) -> OffsetsJson:  # noqa: N802
        # Options that limit a trigger hold even if Spark asks for all.
        latest = self._plan.latest(start)
        return to_json(latest, self._plan.ids)

    def getDefaultReadLimit(self) -> datasource.ReadLimit:  # noqa: N802
        if self._options.max_messages is not None:
            return datasource.ReadMaxRows(self._options.max_messages)
        if self._options.max_bytes is not None:
            return datasource.ReadMaxBytes(self._options.max_bytes)
        return datasource.ReadAllAvailable()

    def reportLatestOffset(self) -> OffsetsJson | None:  # noqa: N802
        return to_json(self._plan.latest_seen, self._plan.ids)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._plan.fix_end()

    def partitions(self, start: OffsetsJson, end: OffsetsJson) -> Sequence[InputPartition]:
        return self._plan.partitions(start, end)

    def commit(self, end: OffsetsJson) -> None:
        """Nothing to do: offsets are in the checkpoint, and ``latestOffset`` publishes them to the group."""


class _StreamPlan:
    """Driver-side state of a stream: the transport, its topics, the latest offsets seen and a fixed end, if any."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._transport = transport_for(options)
        self._topics = Topics(options, self._transport)
        self._fixed_end: Offsets | None = None
        """Where the stream ends under the trigger AvailableNow; ``None``: no end."""
        self.latest_seen: Offsets = {}
        """End offsets at the last look at the topics."""
        self.ids: dict[str, str] = {}
        """Topic ids by name, as of the same moment as ``latest_seen``."""
        self._mirror = GroupMirror(options) if options.group is not None else None
        if self._mirror is not None:
            self._mirror.check()

    def _bounds(self) -> dict[TopicPartition, Bounds]:
        bounds = self._topics.bounds()
        self.latest_seen = {tp: each.end for tp, each in bounds.items()}
        self.ids = {tp.topic: each.topic_id for tp, each in bounds.items()}
        return bounds

    def _offsets_of(self, offsets: OffsetsJson, bounds: Mapping[TopicPartition, Bounds]) -> Offsets:
        strict = self._options.fail_on_data_loss
        return without_recreated_topics(from_json(offsets), topic_ids(offsets), bounds, fail_on_data_loss=strict)

    def initial(self) -> Offsets:
        options = self._options
        offset_at, strict = self._transport.offset_at, options.fail_on_data_loss
        return resolve(options.starting, self._bounds(), offset_at, otherwise="earliest", fail_on_data_loss=strict)

    def fix_end(self) -> None:
        self._fixed_end = {tp: each.end for tp, each in self._bounds().items()}

    def latest(self, given: OffsetsJson) -> Offsets:
        options = self._options
        bounds = self._bounds()
        # Keep the ids of deleted topics too, so that a topic recreated under the same name is recognized.
        self.ids = topic_ids(given) | self.ids
        start = self._offsets_of(given, bounds)
        # Without this check, a recreated topic would plan nothing until it is as long as the old one was.
        begin = {
            tp: readable_offset(tp, offset, bounds[tp], fail_on_data_loss=options.fail_on_data_loss)
            for tp, offset in start.items()
            if tp in bounds
        }
        if self._fixed_end is not None:
            bounds = {
                tp: replace(each, end=min(each.end, self._fixed_end[tp]))
                for tp, each in bounds.items()
                if tp in self._fixed_end
            }
        end = start | trigger_end(begin, bounds, options.max_messages, options.max_bytes)
        if self._mirror is not None:
            # Everything below the start is processed; only this call reports the last batch before a stop. Topics
            # that were deleted or recreated are left out: their old offsets cannot be set in a group.
            self._mirror.publish(begin, at_once=end == start)
        return end

    def partitions(self, given_start: OffsetsJson, given_end: OffsetsJson) -> Sequence[InputPartition]:
        bounds = self._bounds()
        start, end = self._offsets_of(given_start, bounds), self._offsets_of(given_end, bounds)
        strict = self._options.fail_on_data_loss
        self._check_replanned_batch(start, end, bounds, strict)
        whole = ranges(start, end, bounds, fail_on_data_loss=strict)
        return [self._transport.split(each) for each in split(whole, self._options.min_partitions)]

    @staticmethod
    def _check_replanned_batch(
        start: Offsets, end: Offsets, bounds: Mapping[TopicPartition, Bounds], strict: bool
    ) -> None:
        """Raise if a batch that is planned again after a restart cannot have the same end as before."""
        for tp, offset in end.items():
            if strict and tp in bounds and offset > bounds[tp].end and offset > start.get(tp, 0):
                raise InvalidRequest(
                    f"the checkpoint says that {tp} was read up to offset {offset}, and it ends at "
                    f"{bounds[tp].end}: the topic was made anew, or restored from a backup. Begin anew with another "
                    "checkpoint, or set failOnDataLoss=false"
                )
