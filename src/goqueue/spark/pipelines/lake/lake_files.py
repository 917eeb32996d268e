"""Descriptions of Parquet files for the lake's log, read from their footers."""

from __future__ import annotations

import hashlib
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from goqueue.model.errors import CorruptData
from goqueue.spark.pipelines.lake.lake_log import LakeFile


def staged_files(folder: Path, staged: str) -> list[LakeFile]:
    """Fsync and describe the files that Spark wrote below ``folder``, with their final paths in the lake."""
    found = []
    for path in sorted(folder.glob("*topic=*/*day=*/*.parquet")):
        topic, day = (each.name.partition("=")[2] for each in (path.parent.parent, path.parent))
        fsync_file(path)
        found.append(describe_file(path, unquote(topic), day, f"topic={topic}/day={day}/{staged}/{path.name}"))
    return found


def fsync_file(path: Path) -> None:
    """Fsync a file. Needed before it is in the log: retention may then remove its messages from the topic."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def describe_file(path: Path, topic: str, day: str, lake_path: str) -> LakeFile:
    import pyarrow.parquet as pq

    footer = pq.read_metadata(path)
    low, high = _bounds(footer, "partition", path)
    offsets = {low: _bounds(footer, "offset", path)} if low == high else _offsets_by_partition(path)
    # The first line names the writer of the file, which is not part of the shape.
    shape = hashlib.sha256(str(footer.schema).partition("\n")[2].encode()).hexdigest()[:16]
    times = _bounds(footer, "timestamp", path)
    return LakeFile(lake_path, topic, day, footer.num_rows, path.stat().st_size, offsets, times, shape)


def _bounds(footer: Any, column: str, path: Path) -> tuple[int, int]:
    """The minimum and maximum of a column over all row groups."""
    found: list[int] = []
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for each in range(group.num_columns):
            chunk = group.column(each)
            if chunk.path_in_schema == column and chunk.statistics is not None and chunk.statistics.has_min_max:
                found += [_number(chunk.statistics.min), _number(chunk.statistics.max)]
    if not found:
        raise CorruptData(f"{path} does not tell the bounds of its column {column}; it was not written by 'archive'")
    return min(found), max(found)


def _number(value: Any) -> int:
    if isinstance(value, datetime):
        since = value.replace(tzinfo=value.tzinfo or UTC) - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return int(value)


def _offsets_by_partition(path: Path) -> dict[int, tuple[int, int]]:
    import pyarrow.parquet as pq

    positions = pq.ParquetFile(path).read(columns=["partition", "offset"])
    found = positions.group_by("partition").aggregate([("offset", "min"), ("offset", "max")]).to_pylist()
    return {row["partition"]: (row["offset_min"], row["offset_max"]) for row in found}
