"""Trace files as a DataFrame: one row per event and range of offsets.

One task reads one file. ``goqueue.observe.trace_event`` describes the lines; torn or damaged ones are skipped, as in
the broker.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from goqueue.model.runs import pairs, size_of
from goqueue.observe.trace_event import DLQ, FIRED, REDRIVEN, TraceEvent, runs_of
from goqueue.spark.pipelines.analysis.offset_blocks import MAX_RANGE_OFFSETS, cut_into_blocks
from goqueue.spark.pipelines.definitions.problems import InvalidPipeline

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

COPIED = "copied"
"""An event that is not in the files: a copy was written here, derived from the event of its original."""
SCHEMA = (
    "topic STRING, partition INT, event STRING, `group` STRING, reason STRING, at BIGINT, seq BIGINT, "
    "block BIGINT, first BIGINT, `end` BIGINT"
)
"""``at`` is in Unix nanoseconds; ``seq`` orders events independently of clock changes."""
_LINE_BITS = 40
_CHUNK_BYTES = 8 << 20
_COPIES = frozenset({FIRED, REDRIVEN, DLQ})
_decoder = msgspec.json.Decoder(TraceEvent)


def trace_files(path: str) -> list[str]:
    """The trace files of a data folder, or of a folder of copied trace files, the oldest first."""
    folder = Path(path).absolute()
    if not folder.is_dir():
        raise InvalidPipeline(f"path: {folder} is no folder; name the broker's data folder, or a copy of its traces")
    if (folder / "traces").is_dir():
        folder /= "traces"
    if not os.access(folder, os.R_OK | os.X_OK):
        raise InvalidPipeline(f"path: this user may not read {folder}")
    return sorted(str(each) for each in folder.glob("*.jsonl"))


def read_traces(
    spark: SparkSession, paths: list[str], events: Iterable[str], topics: Iterable[str] | None = None
) -> DataFrame:
    """Read the events of these kinds for messages of these topics; by default of all topics."""
    event_filter = EventFilter(frozenset(events), None if topics is None else frozenset(topics))

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for runs in read_file(paths[number], number, event_filter):
                    yield to_batch(runs)

    return spark.range(0, len(paths), 1, max(1, len(paths))).mapInArrow(decode, SCHEMA)


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Selects events by kind and topic."""

    events: frozenset[str]
    topics: frozenset[str] | None = None

    def has(self, event: str, topic: str) -> bool:
        return event in self.events and (self.topics is None or topic in self.topics)


class Run(NamedTuple):
    """A range of offsets of one event."""

    topic: str
    partition: int
    event: str
    group: str
    reason: str
    at: int
    seq: int
    first: int
    end: int


def _runs_in(event: TraceEvent, seq: int, event_filter: EventFilter) -> Iterator[Run]:
    tp = _parse_partition(event.place)
    if tp is None:
        return
    if event_filter.has(event.event, tp[0]):
        for first, end in pairs(runs_of(event.offsets)):
            yield Run(*tp, event.event, event.group, event.reason, event.at, seq, first, end)
    target = _parse_partition(event.to) if event.event in _COPIES else None
    if target is not None and event_filter.has(COPIED, target[0]):
        first, end = event.first_copy, event.first_copy + size_of(event.offsets)
        yield Run(*target, COPIED, event.group, event.reason, event.at, seq, first, end)


def read_file(path: str, number: int, event_filter: EventFilter) -> Iterator[list[Run]]:
    """Read the events of one file in chunks; ``number`` is the file's index in time order."""
    seq = number << _LINE_BITS
    try:
        with Path(path).open("rb") as file:
            while lines := file.readlines(_CHUNK_BYTES):
                yield parse_lines(lines, seq, event_filter)
                seq += len(lines)
    except FileNotFoundError:
        # The broker's retention has deleted the file since it was listed.
        return


def parse_lines(lines: list[bytes], seq: int, event_filter: EventFilter) -> list[Run]:
    """Parse lines; ``seq`` is the sequence number of the first one."""
    runs: list[Run] = []
    marks = [msgspec.json.encode(name) for name in sorted(event_filter.events - {COPIED})]
    marks += [msgspec.json.encode(name) for name in sorted(_COPIES)] if COPIED in event_filter.events else []
    for at, line in enumerate(lines):
        # Most lines are of other events, and need not be parsed.
        if not any(mark in line for mark in marks):
            continue
        try:
            found = _runs_in(_decoder.decode(line), seq + at, event_filter)
            runs.extend(run for run in found if 0 <= run.first < run.end <= run.first + MAX_RANGE_OFFSETS)
        except (msgspec.DecodeError, ValueError, RecursionError):
            continue
    return runs


def to_batch(runs: list[Run]) -> pa.RecordBatch:
    """Rows of ``SCHEMA``, with ranges cut at block borders."""
    import pyarrow as pa

    columns = list(zip(*runs, strict=True)) or [()] * len(Run._fields)
    which, *cut = cut_into_blocks(*(np.array(each, np.int64) for each in columns[-2:]))
    kinds = {"topic": pa.string(), "partition": pa.int32(), "event": pa.string(), "group": pa.string()}
    kinds |= {"reason": pa.string(), "at": pa.int64(), "seq": pa.int64()}
    rows = pa.array(which)
    whole = [pa.array(column, kind).take(rows) for column, kind in zip(columns, kinds.values(), strict=False)]
    return pa.RecordBatch.from_arrays([*whole, *map(pa.array, cut)], names=[*kinds, "block", "first", "end"])


def _parse_partition(topic_partition: str) -> tuple[str, int] | None:
    topic, _, number = topic_partition.rpartition("/")
    return (topic, int(number)) if number.isascii() and number.isdigit() and len(number) < 10 else None
