"""Compaction of a lake: merges small files of a day into large ones."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from goqueue.spark.pipelines.lake.lake import Lake
from goqueue.spark.pipelines.lake.lake_files import describe_file, fsync_file
from goqueue.spark.pipelines.lake.lake_log import LakeFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SMALL_FRACTION = 0.5
"""Files below this fraction of the target size are merged with others."""


@dataclass(frozen=True, slots=True)
class DayPlan:
    """The compaction plan of a topic's day: each of ``merges`` becomes one file, the others are kept."""

    merges: tuple[tuple[LakeFile, ...], ...]
    unchanged: tuple[LakeFile, ...]


def days_to_compact(files: Iterable[LakeFile], file_size: int, *, at_least: int = 2) -> list[DayPlan]:
    """Plans for the days that have at least ``at_least`` small files, some of which can be merged.

    A merged file has at most the target size. Its messages are in offset order if those of the small files were.
    """
    by_day: dict[tuple[str, str], list[LakeFile]] = defaultdict(list)
    for file in files:
        by_day[file.topic, file.day].append(file)
    plans = []
    for _, of_day in sorted(by_day.items()):
        small = [file for file in of_day if file.size_bytes < file_size * _SMALL_FRACTION]
        merges = tuple(_merges(small, file_size))
        merged = {file.path for files in merges for file in files}
        if merged and len(small) >= at_least:
            plans.append(DayPlan(merges, tuple(file for file in of_day if file.path not in merged)))
    return plans


def _merges(small: Sequence[LakeFile], file_size: int) -> Iterable[tuple[LakeFile, ...]]:
    by_shape: dict[str, list[LakeFile]] = defaultdict(list)
    for file in small:
        by_shape[file.shape].append(file)
    for of_shape in by_shape.values():
        current: list[LakeFile] = []
        for file in sorted(of_shape, key=lambda each: (sorted(each.offsets.items()), each.path)):
            if current and sum(each.size_bytes for each in current) + file.size_bytes > file_size:
                if len(current) > 1:
                    yield tuple(current)
                current = []
            current.append(file)
        if len(current) > 1:
            yield tuple(current)


def compact(spark: SparkSession, lake: Lake, plan: DayPlan, compression: str) -> bool:
    """Execute a plan; False if nothing was replaced because the lake has readers."""
    any_file = plan.merges[0][0]
    staged, stage = lake.new_stage()
    day = stage / f"topic={quote(any_file.topic)}" / f"day={any_file.day}"
    merged_files: list[LakeFile] = []
    try:
        for number, files in enumerate(plan.merges):
            folder = stage / f"merge-{number}"
            paths = [str(lake.path_of(file)) for file in files]
            spark.read.parquet(*paths).coalesce(1).write.option("compression", compression).parquet(str(folder))
            merged_files += _adopt_files(folder, day / staged, number, files)
        for file in plan.unchanged:
            path = lake.path_of(file)
            target = day / path.relative_to(lake.folder / day.parent.name / day.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, target)
        with lake.removing_files() as is_allowed:
            if is_allowed:
                lake.replace(staged, [file for files in plan.merges for file in files], merged_files)
            return is_allowed
    finally:
        lake.discard(staged)


def _adopt_files(folder: Path, target: Path, number: int, files: Sequence[LakeFile]) -> list[LakeFile]:
    """Move the files that Spark has written into the new folder of the day, and describe them."""
    target.mkdir(parents=True, exist_ok=True)
    prefix = target.relative_to(target.parents[2])
    found = []
    for path in sorted(folder.glob("*.parquet")):
        name = f"merged-{number}-{path.name}"
        path.rename(target / name)
        fsync_file(target / name)
        found.append(describe_file(target / name, files[0].topic, files[0].day, f"{prefix}/{name}"))
    rows, before = sum(file.rows for file in found), sum(file.rows for file in files)
    assert rows == before, f"{rows} rows were made of {before}"
    return found
