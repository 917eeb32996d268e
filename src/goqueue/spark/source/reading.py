"""Reading topics: once, or as a stream."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from goqueue.model.errors import InvalidRequest, TopicNotFound
from goqueue.model.ids import INTERNAL_PREFIX
from goqueue.spark.source.columns import Decoder
from goqueue.spark.source.group_mirror import GroupMirror
from goqueue.spark.source.options import SourceOptions
from goqueue.spark.source.positions import (
    Bounds,
    Offsets,
    OffsetsJson,
    Place,
    admitted,
    from_json,
    ids_in,
    ranges,
    resolve,
    same_topics,
    split,
    to_json,
    within,
)
from goqueue.spark.source.transport_choice import way_of
from goqueue.spark.source.transports import Split, Way

_LOOK_FOR_TOPICS_S = 1.0
"""How often a stream looks for new topics that fit its pattern."""


class Topics:
    """Which topics are read: those that were named, or all that fit a pattern by now."""

    def __init__(self, options: SourceOptions, way: Way) -> None:
        self._options = options
        self._way = way
        self._fitting: list[str] = []
        self._looked_at = float("-inf")

    def names(self) -> Sequence[str]:
        if self._options.pattern is None:
            return self._options.topics
        if time.monotonic() >= self._looked_at + _LOOK_FOR_TOPICS_S:
            fits = re.compile(self._options.pattern).fullmatch
            self._fitting = [name for name in self._way.topics() if fits(name) and not name.startswith(INTERNAL_PREFIX)]
            self._looked_at = time.monotonic()
        return self._fitting

    def bounds(self) -> dict[Place, Bounds]:
        try:
            return self._way.bounds(self.names())
        except TopicNotFound:
            if self._options.pattern is None:
                raise
            # One was deleted since they were looked for.
            self._looked_at = float("-inf")
            return self._way.bounds(self.names())


class _Decoding:
    """What executors do. Planning leaves nothing in it that cannot be pickled."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Split):
            # Spark reads something even if nothing was planned.
            return
        schema = to_arrow_schema(self._schema, timezone="UTC")
        place = partition.range.place
        decoder = Decoder(*place, schema, skip_damaged=not self._options.fail_on_data_loss)
        for run in partition.read():
            yield from decoder.decode(run)


class BatchReader(_Decoding, DataSourceReader):
    """Everything between two positions, as of the moment when it is planned.

    It takes no filters (``pushFilters``). Spark 4.3 makes one reader for each ``load()`` and keeps it with the filters
    of its first use, so a second use of the same DataFrame would silently miss rows.
    """

    def partitions(self) -> list[InputPartition]:
        options = self._options
        way = way_of(options)
        bounds = Topics(options, way).bounds()
        if not bounds and options.pattern is not None:
            raise TopicNotFound(f"no topic fits the pattern {options.pattern!r}")
        strict = options.fail_on_data_loss
        start = resolve(options.starting, bounds, way.offset_at, otherwise="earliest", fail_on_data_loss=strict)
        end = resolve(options.ending, bounds, way.offset_at, otherwise="latest", fail_on_data_loss=strict)
        for place in bounds:
            if start[place] > end[place]:
                if isinstance(options.starting, dict) or isinstance(options.ending, dict):
                    raise InvalidRequest(f"{place} would be read from offset {start[place]} back to {end[place]}")
                end[place] = start[place]
        whole = ranges(start, end, bounds, fail_on_data_loss=strict)
        return [way.split(each) for each in split(whole, options.min_partitions)]


class StreamReader(_Decoding, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one process for as long as the query runs, and is copied to executors for every task."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._planning: _Planning | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_planning": None}

    @property
    def _plan(self) -> _Planning:
        if self._planning is None:
            self._planning = _Planning(self._options)
        return self._planning

    def initialOffset(self) -> OffsetsJson:  # noqa: N802
        initial = self._plan.initial()
        return to_json(initial, self._plan.ids)

    def latestOffset(self, start: OffsetsJson, limit: ReadLimit) -> OffsetsJson:  # noqa: N802
        everything = isinstance(limit, ReadAllAvailable) and not self._has_limits
        latest = self._plan.latest(start, limited=not everything)
        return to_json(latest, self._plan.ids)

    @property
    def _has_limits(self) -> bool:
        return self._options.max_messages is not None or self._options.max_bytes is not None

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_messages is not None:
            return ReadMaxRows(self._options.max_messages)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> OffsetsJson | None:  # noqa: N802
        return to_json(self._plan.newest, self._plan.ids)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._plan.fix_the_end()

    def partitions(self, start: OffsetsJson, end: OffsetsJson) -> Sequence[InputPartition]:
        return self._plan.partitions(start, end)

    def commit(self, end: OffsetsJson) -> None:
        """The checkpoint knows, and the group is told when Spark asks for more."""


class _Planning:
    """What the driver's side of a stream knows."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._way = way_of(options)
        self._topics = Topics(options, self._way)
        self._last: Offsets | None = None
        """Where the stream ends, if that was fixed."""
        self.newest: Offsets = {}
        """What could be read when it was last looked at."""
        self.ids: dict[str, str] = {}
        """Of the topics, at the same time."""
        self._mirror = GroupMirror(options) if options.group is not None else None
        if self._mirror is not None:
            self._mirror.check()

    def _bounds(self) -> dict[Place, Bounds]:
        bounds = self._topics.bounds()
        self.newest = {place: each.end for place, each in bounds.items()}
        self.ids = {place.topic: each.topic_id for place, each in bounds.items()}
        return bounds

    def _known(self, offsets: OffsetsJson, bounds: Mapping[Place, Bounds]) -> Offsets:
        strict = self._options.fail_on_data_loss
        return same_topics(from_json(offsets), ids_in(offsets), bounds, fail_on_data_loss=strict)

    def initial(self) -> Offsets:
        options = self._options
        bounds = self._bounds()
        return resolve(
            options.starting,
            bounds,
            self._way.offset_at,
            otherwise="earliest",
            fail_on_data_loss=options.fail_on_data_loss,
        )

    def fix_the_end(self) -> None:
        self._last = {place: each.end for place, each in self._bounds().items()}

    def latest(self, given: OffsetsJson, *, limited: bool) -> Offsets:
        options = self._options
        bounds = self._bounds()
        # Of those that are deleted, too: one that comes again under its name is another.
        self.ids = ids_in(given) | self.ids
        start = self._known(given, bounds)
        # Of a topic that was made anew nothing would be planned until it is as long as it was.
        begin = {
            place: within(place, offset, bounds[place], fail_on_data_loss=options.fail_on_data_loss)
            for place, offset in start.items()
            if place in bounds
        }
        if self._last is not None:
            bounds = {
                place: replace(each, end=min(each.end, self._last[place]))
                for place, each in bounds.items()
                if place in self._last
            }
        most = (options.max_messages, options.max_bytes) if limited else (None, None)
        end = start | admitted(begin, bounds, *most)
        if self._mirror is not None:
            # All up to the start is done. Of the last batch before a stop nobody else says so. What is gone from a
            # topic, or with it, has no offset any more that a group could be told.
            self._mirror.move_to(begin, at_once=end == start)
        return end

    def partitions(self, given_start: OffsetsJson, given_end: OffsetsJson) -> Sequence[InputPartition]:
        bounds = self._bounds()
        start, end = self._known(given_start, bounds), self._known(given_end, bounds)
        strict = self._options.fail_on_data_loss
        self._check_whole(start, end, bounds, strict)
        whole = ranges(start, end, bounds, fail_on_data_loss=strict)
        return [self._way.split(each) for each in split(whole, self._options.min_partitions)]

    @staticmethod
    def _check_whole(start: Offsets, end: Offsets, bounds: Mapping[Place, Bounds], strict: bool) -> None:
        """A batch that is planned again after a restart must be what it was."""
        for place, offset in end.items():
            if strict and place in bounds and offset > bounds[place].end and offset > start.get(place, 0):
                raise InvalidRequest(
                    f"the checkpoint says that {place} was read up to offset {offset}, and it ends at "
                    f"{bounds[place].end}: the topic was made anew, or restored from a backup. Begin anew with another "
                    "checkpoint, or set failOnDataLoss=false"
                )
