"""Few large files in place of many small ones."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from goqueue.spark.pipelines.lake.lake import Lake
from goqueue.spark.pipelines.lake.lake_files import described, made_durable
from goqueue.spark.pipelines.lake.lake_log import LakeFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SMALL = 0.5
"""Files below this share of the wanted size are merged with others."""


@dataclass(frozen=True, slots=True)
class DayPlan:
    """What becomes of the files of a topic's day: each of ``merges`` becomes one file, the others stay."""

    merges: tuple[tuple[LakeFile, ...], ...]
    stay: tuple[LakeFile, ...]


def days_to_compact(files: Iterable[LakeFile], file_size: int, *, at_least: int = 2) -> list[DayPlan]:
    """Days with ``at_least`` so many small files that can be merged.

    A merged file is at most as large as wanted, and its messages lie in the order of their offsets as far as those of
    the files did.
    """
    by_day: dict[tuple[str, str], list[LakeFile]] = defaultdict(list)
    for file in files:
        by_day[file.topic, file.day].append(file)
    plans = []
    for _, of_day in sorted(by_day.items()):
        small = [file for file in of_day if file.size_bytes < file_size * _SMALL]
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
    """Carry out a plan; False if it was put off because somebody reads the lake."""
    any_file = plan.merges[0][0]
    staged, stage = lake.new_stage()
    day = stage / f"topic={quote(any_file.topic)}" / f"day={any_file.day}"
    made: list[LakeFile] = []
    try:
        for number, files in enumerate(plan.merges):
            folder = stage / f"merge-{number}"
            paths = [str(lake.path_of(file)) for file in files]
            spark.read.parquet(*paths).coalesce(1).write.option("compression", compression).parquet(str(folder))
            made += _taken(folder, day / staged, number, files)
        _link_others(lake, plan.stay, day)
        with lake.moving() as allowed:
            if allowed:
                lake.replace(staged, [file for files in plan.merges for file in files], made)
            return allowed
    finally:
        lake.discard(staged)


def _taken(folder: Path, target: Path, number: int, files: Sequence[LakeFile]) -> list[LakeFile]:
    """What Spark has written, as files of the day that is being made."""
    target.mkdir(parents=True, exist_ok=True)
    place = target.relative_to(target.parents[2])
    found = []
    for path in sorted(folder.glob("*.parquet")):
        name = f"merged-{number}-{path.name}"
        path.rename(target / name)
        made_durable(target / name)
        found.append(described(target / name, files[0].topic, files[0].day, f"{place}/{name}"))
    rows, before = sum(file.rows for file in found), sum(file.rows for file in files)
    assert rows == before, f"{rows} rows were made of {before}"
    return found


def _link_others(lake: Lake, stay: Iterable[LakeFile], day: Path) -> None:
    for file in stay:
        path = lake.path_of(file)
        target = day / path.relative_to(lake.folder / day.parent.name / day.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(path, target)
