"""Trace files as a table: a row for each range of offsets that something happened to.

One task reads one file. The lines are what ``goqueue.observe.trace_event`` describes; one that is torn or damaged is
passed over, as the broker does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from goqueue.model.runs import size_of
from goqueue.observe.trace_event import DLQ, FIRED, REDRIVEN, TraceEvent, runs_of
from goqueue.spark.pipelines.analysis.offset_blocks import MOST_OFFSETS, cut_into_blocks
from goqueue.spark.pipelines.definitions.problems import InvalidPipeline

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

COPIED = "copied"
"""Not in the files: a copy lies there since then, as the event of its original tells."""
SCHEMA = (
    "topic STRING, partition INT, event STRING, `group` STRING, reason STRING, at BIGINT, seq BIGINT, "
    "block BIGINT, first BIGINT, `end` BIGINT"
)
"""``at`` is in Unix nanoseconds; ``seq`` tells which of two events came first, whatever the clock did meanwhile."""
_LINES_BITS = 40
_CHUNK_BYTES = 8 << 20
_COPIES = frozenset({FIRED, REDRIVEN, DLQ})
_decoder = msgspec.json.Decoder(TraceEvent)


def trace_files(path: str) -> list[str]:
    """The trace files of a data folder, or of a folder that has nothing else in it, the oldest first."""
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
    """What happened, of these kinds, to messages of these topics (of all, unless they are named)."""
    wanted = Wanted(frozenset(events), None if topics is None else frozenset(topics))

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for runs in read_file(paths[number], number, wanted):
                    yield to_batch(runs)

    return spark.range(0, len(paths), 1, max(1, len(paths))).mapInArrow(decode, SCHEMA)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events are worth a row."""

    events: frozenset[str]
    topics: frozenset[str] | None = None

    def has(self, event: str, topic: str) -> bool:
        return event in self.events and (self.topics is None or topic in self.topics)


@dataclass(slots=True)
class Runs:
    """Columns in the making."""

    topic: list[str] = field(default_factory=list)
    partition: list[int] = field(default_factory=list)
    event: list[str] = field(default_factory=list)
    group: list[str] = field(default_factory=list)
    reason: list[str] = field(default_factory=list)
    at: list[int] = field(default_factory=list)
    seq: list[int] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)

    def add(self, event: TraceEvent, seq: int, wanted: Wanted) -> None:
        place = _split(event.place)
        if place is None:
            return
        if wanted.has(event.event, place[0]):
            edges = runs_of(event.offsets)
            for first, end in zip(edges[::2], edges[1::2], strict=True):
                self._add(place, event, event.event, seq, first, end)
        if event.event in _COPIES and event.to and (target := _split(event.to)) and wanted.has(COPIED, target[0]):
            self._add(target, event, COPIED, seq, event.first_copy, event.first_copy + size_of(event.offsets))

    def _add(self, place: tuple[str, int], event: TraceEvent, kind: str, seq: int, first: int, end: int) -> None:
        if not 0 <= first < end <= first + MOST_OFFSETS:
            return
        self.topic.append(place[0])
        self.partition.append(place[1])
        self.event.append(kind)
        self.group.append(event.group)
        self.reason.append(event.reason)
        self.at.append(event.at)
        self.seq.append(seq)
        self.first.append(first)
        self.end.append(end)


def read_file(path: str, number: int, wanted: Wanted) -> Iterator[Runs]:
    """The events of one file, some at a time; ``number`` is its place among the others."""
    seq = number << _LINES_BITS
    try:
        with Path(path).open("rb") as file:
            while lines := file.readlines(_CHUNK_BYTES):
                yield decoded(lines, seq, wanted)
                seq += len(lines)
    except FileNotFoundError:
        # The broker has deleted it since it was listed: it was too old.
        return


def decoded(lines: list[bytes], seq: int, wanted: Wanted) -> Runs:
    """What lines tell; the first of them has the number ``seq``."""
    runs = Runs()
    marks = [msgspec.json.encode(name) for name in sorted(wanted.events - {COPIED})]
    marks += [msgspec.json.encode(name) for name in sorted(_COPIES)] if COPIED in wanted.events else []
    for at, line in enumerate(lines):
        # Most lines are about something else, and need not be taken apart for that.
        if not any(mark in line for mark in marks):
            continue
        try:
            runs.add(_decoder.decode(line), seq + at, wanted)
        except (msgspec.DecodeError, ValueError, RecursionError):
            continue
    return runs


def to_batch(runs: Runs) -> pa.RecordBatch:
    """Rows of ``SCHEMA``, cut at the borders of blocks."""
    import pyarrow as pa

    first, end = np.array(runs.first, np.int64), np.array(runs.end, np.int64)
    which, block, first, end = cut_into_blocks(first, end)
    rows = pa.array(which)
    texts = [pa.array(each, pa.string()).take(rows) for each in (runs.event, runs.group, runs.reason)]
    numbers = [pa.array(np.array(each, np.int64)[which]) for each in (runs.at, runs.seq)]
    columns: list[Any] = [
        pa.array(runs.topic, pa.string()).take(rows),
        pa.array(np.array(runs.partition, np.int32)[which]),
        *texts,
        *numbers,
        *(pa.array(each) for each in (block, first, end)),
    ]
    names = ["topic", "partition", "event", "group", "reason", "at", "seq", "block", "first", "end"]
    return pa.RecordBatch.from_arrays(columns, names=names)


def _split(place: str) -> tuple[str, int] | None:
    topic, _, number = place.rpartition("/")
    return (topic, int(number)) if number.isascii() and number.isdigit() and len(number) < 10 else None
