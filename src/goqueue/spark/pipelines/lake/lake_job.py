"""A job that writes messages from a lake back into a topic, in steps that are each committed exactly once.

The job is stored before its first step, with the messages of each step and the key under which it is committed. Another
run with the same settings reads it and continues. The broker remembers the key of a step that was committed before a
kill, and commits nothing under it a second time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from goqueue.model.errors import CorruptData
from goqueue.spark.pipelines.lake.durable_file import write_whole
from goqueue.spark.pipelines.lake.lake_log import LakeFile


class Step(msgspec.Struct, frozen=True):
    """A part of a job that is committed as a whole."""

    offsets: dict[int, tuple[int, int]]
    """By partition: the first offset and the offset behind the last."""

    def files(self, of_topic: Iterable[LakeFile]) -> list[LakeFile]:
        """The files that may hold its messages now; compaction may have merged files since the job was planned."""
        return [file for file in of_topic if _overlaps(file, self.offsets)]

    def condition(self) -> str:
        """SQL that is true for its messages."""
        return " OR ".join(
            f"(partition = {number} AND offset >= {low} AND offset < {high})"
            for number, (low, high) in sorted(self.offsets.items())
        )


class Job(msgspec.Struct):
    """A job and its progress, as stored in its file."""

    key: str
    steps: list[Step]
    done: int = 0
    """Number of finished steps."""
    messages: int = 0
    """Messages written by the finished steps."""

    @property
    def is_finished(self) -> bool:
        return self.done >= len(self.steps)

    def key_of(self, number: int) -> str:
        """The commit key of a step. Keys form a series whose last commit the broker remembers for good, so a killed
        job may be continued at any time."""
        return f"{self.key}#{number}"


def plan_steps(files: Sequence[LakeFile], max_messages: int) -> list[Step]:
    """Plan steps of about ``max_messages`` messages that together hold every message exactly once.

    Steps cover each partition from its first offset to its last, so messages keep their order. A file may be read by
    several steps.
    """
    bounds: dict[int, tuple[int, int]] = {}
    for file in files:
        for number, (first, last) in file.offsets.items():
            low, high = bounds.get(number, (first, last + 1))
            bounds[number] = (min(low, first), max(high, last + 1))
    count = max(1, -(-sum(file.rows for file in files) // max_messages))
    steps = []
    for each in range(count):
        parts = {
            number: (low + (high - low) * each // count, low + (high - low) * (each + 1) // count)
            for number, (low, high) in bounds.items()
        }
        parts = {number: part for number, part in parts.items() if part[0] < part[1]}
        if any(_overlaps(file, parts) for file in files):
            steps.append(Step(parts))
    return steps


def _overlaps(file: LakeFile, parts: dict[int, tuple[int, int]]) -> bool:
    return any(
        number in parts and first < parts[number][1] and last >= parts[number][0]
        for number, (first, last) in file.offsets.items()
    )


def files_between(files: Iterable[LakeFile], since_us: int | None, until_us: int | None) -> list[LakeFile]:
    """The files that may have messages from ``since_us`` to before ``until_us``."""
    return [
        file
        for file in files
        if (since_us is None or file.times_us[1] >= since_us) and (until_us is None or file.times_us[0] < until_us)
    ]


class JobFile:
    """The file of a job, named after a hash of everything that identifies the job."""

    def __init__(self, folder: Path, identity: Sequence[object]) -> None:
        digest = hashlib.sha256(msgspec.json.encode([str(each) for each in identity])).hexdigest()[:24]
        self.path = folder / f"{digest}.json"

    def read(self) -> Job | None:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=Job)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise CorruptData(f"the job in {self.path} cannot be read: {error}") from None

    def write(self, job: Job) -> None:
        write_whole(self.path, msgspec.json.encode(job))
