"""Tables of Delta and Iceberg: each batch once, with the offset behind it in the same commit; no Spark."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from doubles.synced import note_syncs

from goqueue.spark.pipelines.definitions.problems import PipelineFailed
from goqueue.spark.pipelines.lake.lake_files import staged_files
from goqueue.spark.pipelines.lake.lake_log import Ends, TopicMark
from goqueue.spark.pipelines.lake.lake_tables import DeltaLake, IcebergLake, find_lake

DAY = date(2026, 11, 15)
MARKS = {"orders": TopicMark("id-1", 3)}


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> DeltaLake | IcebergLake:
    if request.param == "delta":
        pytest.importorskip("deltalake", reason="delta is not installed")
        return DeltaLake(tmp_path)
    pytest.importorskip("pyiceberg", reason="iceberg is not installed")
    return IcebergLake(tmp_path)


def add(
    lake: DeltaLake | IcebergLake,
    first: int,
    last: int,
    begun: Ends | None = None,
    **more: list[str],
) -> None:
    """What a run of ``archive`` does, with a file that is made here."""
    staged, folder = lake.new_stage()
    count = last - first + 1
    columns: dict[str, Any] = {
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(first, last + 1), pa.int64()),
        "timestamp": pa.array([datetime(2026, 11, 15, 12, tzinfo=UTC)] * count, pa.timestamp("us", tz="UTC")),
        **more,
    }
    place = folder / "topic=orders" / f"day={DAY}"
    if lake.keeps_columns:
        columns |= {"topic": ["orders"] * count, "day": [DAY] * count}
        place = folder / "_topic=orders" / f"_day={DAY}"
    place.mkdir(parents=True)
    pq.write_table(pa.table(columns), place / "part-0.parquet")
    lake.add(staged, staged_files(folder, staged), MARKS, begun)


def test_the_files_of_a_batch_are_on_the_disk_before_they_are_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {
        "partition": pa.array([0], pa.int32()),
        "offset": pa.array([7], pa.int64()),
        "timestamp": pa.array([datetime(2026, 11, 15, 12, tzinfo=UTC)], pa.timestamp("us", tz="UTC")),
    }
    place = tmp_path / "topic=orders" / f"day={DAY}"
    place.mkdir(parents=True)
    for number in range(2):
        pq.write_table(pa.table(columns), place / f"part-{number}.parquet")
    noted = note_syncs(monkeypatch, lambda path: path)
    assert len(staged_files(tmp_path, "a")) == 2
    assert noted == [place / "part-0.parquet", place / "part-1.parquet"]


def rows(lake: DeltaLake | IcebergLake) -> list[dict[str, Any]]:
    table = lake._table("orders")
    found = table.to_pyarrow_table() if isinstance(lake, DeltaLake) else table.scan().to_arrow()
    return sorted(found.to_pylist(), key=lambda row: int(row["offset"]))


def test_each_message_is_there_once_and_columns_may_come_later(lake: DeltaLake | IcebergLake) -> None:
    assert lake.ends(MARKS) == {"orders": {}}
    add(lake, 0, 9, begun={"orders": {0: 0, 2: 70}})
    assert lake.ends(MARKS) == {"orders": {0: 10, 2: 70}}, "a partition without messages is known too"
    with pytest.raises(PipelineFailed, match="up to offset 10, and offset 5 came again"):
        add(lake, 5, 12)
    add(lake, 10, 12, trace_id=["a", "b", "c"])
    again = find_lake(lake.folder)
    assert type(again) is type(lake)
    assert again.ends(MARKS) == {"orders": {0: 13, 2: 70}}
    assert [(row["topic"], row["day"], row["offset"]) for row in rows(lake)] == [
        ("orders", DAY, offset) for offset in range(13)
    ]
    assert [row["trace_id"] for row in rows(lake)[8:]] == [None, None, "a", "b", "c"]
    assert again.topics() == ["orders"]
    assert again.partitions("orders") == 3
    assert sorted(file.offsets[0] for file in again.files("orders")) == [(0, 9), (10, 12)]
    with pytest.raises(PipelineFailed, match="made anew"):
        again.ends({"orders": TopicMark("id-2", 3)})
