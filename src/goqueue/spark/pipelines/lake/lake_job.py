"""A job that brings messages from a lake back into a topic, in steps that are each committed once.

The job is written down before its first step: which messages each step has, and the key under which it is committed.
Another run with the same settings reads it and goes on. A step that was committed before a kill is known by its key to
the broker, which commits nothing under it a second time.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from goqueue.model.errors import CorruptData
from goqueue.spark.pipelines.lake.durable_file import write_whole
from goqueue.spark.pipelines.lake.lake_log import LakeFile


class Step(msgspec.Struct, frozen=True):
    offsets: dict[int, tuple[int, int]]
    """By partition: from the first offset to before the second."""

    def files(self, of_topic: Iterable[LakeFile]) -> list[LakeFile]:
        """Where its messages may be by now: files are merged while a job waits to go on."""
        return [file for file in of_topic if _overlaps(file, self.offsets)]

    def condition(self) -> str:
        """SQL that holds for its messages."""
        return " OR ".join(
            f"(partition = {number} AND offset >= {low} AND offset < {high})"
            for number, (low, high) in sorted(self.offsets.items())
        )


class Job(msgspec.Struct):
    key: str
    steps: list[Step]
    done: int = 0
    """So many steps are finished."""
    messages: int = 0
    """So many messages were written by them."""

    @property
    def is_finished(self) -> bool:
        return self.done >= len(self.steps)

    def key_of(self, number: int) -> str:
        """One of a series: the broker remembers its last key for good, so a killed job may wait."""
        return f"{self.key}#{number}"


def planned_steps(files: Sequence[LakeFile], most: int) -> list[Step]:
    """About ``most`` messages a step, and every message in one of them.

    Each partition goes from its first offset to its last, step by step, so messages come back in the order in which
    they were. A file may be needed by several steps.
    """
    bounds: dict[int, tuple[int, int]] = {}
    for file in files:
        for number, (first, last) in file.offsets.items():
            low, high = bounds.get(number, (first, last + 1))
            bounds[number] = (min(low, first), max(high, last + 1))
    count = max(1, -(-sum(file.rows for file in files) // most))
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


def between(files: Iterable[LakeFile], since_us: int | None, until_us: int | None) -> list[LakeFile]:
    """Files that may have messages from one instant to before another."""
    return [
        file
        for file in files
        if (since_us is None or file.times_us[1] >= since_us) and (until_us is None or file.times_us[0] < until_us)
    ]


class JobFile:
    """Where a job is written down: its name is made of everything that makes it this job and no other."""

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


def new_job(name: str, steps: list[Step]) -> Job:
    return Job(f"{name}/{uuid.uuid4().hex}", steps)
