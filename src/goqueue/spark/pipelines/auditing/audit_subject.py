"""The subject of an audit: a topic's log ends, its dead-letter topics, and the offsets missing from its log."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from goqueue.client.connection.instants import to_nanoseconds
from goqueue.model.errors import TopicNotFound
from goqueue.model.offset_runs import OffsetRuns
from goqueue.spark.pipelines.analysis.dead_letter_table import dead_letter_topic
from goqueue.spark.pipelines.analysis.offset_blocks import runs_where_same
from goqueue.spark.pipelines.auditing.topic_record import TopicRecord, topic_record
from goqueue.spark.pipelines.definitions.problems import PipelineFailed
from goqueue.storage.reader.reader import FolderReader
from goqueue.storage.reader.reader_files import list_segments, points_for
from goqueue.storage.reader.reader_runs import RUN_BYTES, every_run, start_of

if TYPE_CHECKING:
    from goqueue.client.sync import Client

_UNKNOWN = (
    "{path} does not have what was set for the topic (logs/__metadata and snapshots): a dead letter that is not found "
    "is not missed, and neither is what was published and is not in the log."
)

StartsOf = Callable[[str], Iterable[int]]
"""Returns the start offsets of a topic's partitions; raises ``TopicNotFound``."""


@dataclass(slots=True)
class Subject:
    """The audited topic, as of the start of the audit."""

    topic: str
    topic_id: str
    created_at_ns: int
    ends: dict[int, int]
    """By partition: the last stable offset. Later messages are not audited."""
    starts_of: StartsOf
    folder: Path | None = None
    """The folder of the topic's logs, if there is a data folder."""
    letters: list[str] = field(default_factory=list)
    """The topics that may hold its dead letters."""
    has_letters: bool = True
    """Whether all dead letters ever written to them are still there."""
    is_whole: bool = True
    """Whether published messages stay in the log until retention removes them; false if it is or was compacted."""
    notes: list[str] = field(default_factory=list)

    def add_letters(self, names: Iterable[str]) -> list[str]:
        """Add topics that may hold dead letters; return those that exist and are new."""
        found = []
        for name in dict.fromkeys(names):
            if name == self.topic or name in self.letters:
                continue
            try:
                starts = list(self.starts_of(name))
            except TopicNotFound:
                continue
            found.append(name)
            self.has_letters = self.has_letters and not any(starts)
        self.letters += found
        return found

    def apply_record(self, record: TopicRecord) -> None:
        """Take earlier settings into account: dead letters stay in their earlier topic, compacted messages are gone."""
        usual = dead_letter_topic(self.topic)
        if usual != self.topic:
            self.add_letters([*(each or usual for each in record.values_of("dead_letter_topic")), usual])
        self.is_whole = self.is_whole and "compact" not in record.values_of("cleanup")


def subject_from_broker(client: Client, topic: str, path: str | None) -> Subject:
    """The subject by the broker; earlier settings are only in the data folder, if ``path`` is given."""
    described = client.describe_topic(topic)
    ends = {number: each.stable_end for number, each in enumerate(described.partitions)}

    def starts_of(name: str) -> Iterable[int]:
        return [each.earliest_offset for each in client.describe_topic(name).partitions]

    subject = Subject(topic, described.id, to_nanoseconds(described.created_at), ends, starts_of)
    subject.add_letters([dead_letter_topic(topic, described)])
    subject.is_whole = described.settings.get("cleanup") != "compact"
    if path:
        subject.folder = Path(path) / "logs" / f"{topic}~{described.id}"
        record = topic_record(Path(path), described.id)
        if record is not None:
            subject.apply_record(record)
    return subject


def subject_from_folder(root: Path, topic: str) -> Subject:
    folder = FolderReader(root)
    if folder.is_in_use():
        raise PipelineFailed(f"a broker is using {root}; leave out offline=true, or audit a copy of the folder")
    found = folder.topic(topic)
    ends = {number: folder.log(found, number).stable_end for number in range(found.partitions)}

    def starts_of(name: str) -> Iterable[int]:
        letters = folder.topic(name)
        return [folder.log(letters, number).start_offset for number in range(letters.partitions)]

    subject = Subject(topic, found.topic_id, 0, ends, starts_of, found.folder)
    record = topic_record(root, found.topic_id)
    if record is None:
        subject.add_letters([dead_letter_topic(topic)])
        subject.has_letters = subject.is_whole = False
        subject.notes.append(_UNKNOWN.format(path=root))
    else:
        subject.created_at_ns = record.created_at_ns
        subject.apply_record(record)
    return subject


def latest_ends(client: Client, topic: str) -> dict[int, int]:
    return {number: each.latest_offset for number, each in enumerate(client.describe_topic(topic).partitions)}


def missing_records(folder: Path, first: int, end: int) -> list[tuple[int, int]]:
    """Runs of offsets from ``first`` to before ``end`` at which a partition has no record although it should.

    Records that readers never see count as present: transaction markers, aborted and delayed records, and schema
    rejects. Offsets below the log start, removed by retention, and those cleaned by compaction are not missing.
    """
    points = points_for(folder)
    missing = OffsetRuns([(first, end)])
    for run in every_run(folder, first, end, lambda *_: points.of(folder), RUN_BYTES):
        offsets = run.columns()["offset"].astype(np.int64)
        starts, counts = runs_where_same(offsets)
        for low, count in zip(offsets[starts].tolist(), counts.tolist(), strict=True):
            missing = missing.without(low, low + count)
    # Read the log start last: it then covers what retention has removed during the search.
    point = points.of(folder)
    start = start_of(list_segments(folder), point)
    return missing.without(0, start if point is None else max(start, point.cleaned_to)).runs()
