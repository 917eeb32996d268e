"""Lakes of Delta and Iceberg tables, one table per topic, in the folder ``topic=NAME`` of the lake.

Each commit of a table adds files and records the end offset of each partition in the same commit: as Delta application
transactions, or as Iceberg table properties. So a repeated micro-batch adds nothing. Files are moved to their folders
before the commit, where readers of Delta and Iceberg ignore them: files that a killed run has left there are removed by
the table's own maintenance (``vacuum``).

Iceberg tables are in a catalog: an SQLite file in the lake, with the namespace ``goqueue``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from goqueue.model.errors import MissingDependency
from goqueue.spark.pipelines.definitions.problems import PipelineFailed
from goqueue.spark.pipelines.lake.lake import Lake, topic_recreated
from goqueue.spark.pipelines.lake.lake_files import describe_file
from goqueue.spark.pipelines.lake.lake_log import (
    Ends,
    Entry,
    LakeFile,
    LakeState,
    TopicMark,
    check_no_duplicates,
    ends_of,
)

FORMATS = ("parquet", "delta", "iceberg")
_NAMESPACE = "goqueue"
_TOPIC_ID = "goqueue.topic-id"
_PARTITIONS = "goqueue.partitions"
_END = "goqueue.end."


def open_lake(kind: str, folder: Path) -> Lake:
    """A lake of one of ``FORMATS``; raises ``MissingDependency`` if its package is not installed."""
    if kind == "parquet":
        return Lake(folder)
    return DeltaLake(folder) if kind == "delta" else IcebergLake(folder)


def find_lake(folder: Path) -> Lake:
    """The existing lake in a folder, of any kind; raises if there is none."""
    if (folder / "_catalog.db").exists():
        return IcebergLake(folder)
    if any(folder.glob("topic=*/_delta_log")):
        return DeltaLake(folder)
    lake = Lake(folder)
    if not lake.state.version:
        raise PipelineFailed(f"there is no lake in {folder}; 'goqueue pipeline run archive --set lake=…' makes one")
    return lake


class _TableLake(Lake):
    """Base of the Delta and Iceberg lakes: one table per topic, and end offsets in each commit.

    Locks and staging folders are those of every lake; the log of files stays empty.
    """

    can_compact = False

    def topics(self) -> list[str]:
        return sorted(unquote(path.name.removeprefix("topic=")) for path in self.folder.glob("topic=*"))

    def ends(self, topics: Mapping[str, TopicMark]) -> Ends:
        return {name: self._ends(name, mark) for name, mark in topics.items()}

    def add(
        self, staged: str, files: list[LakeFile], topics: dict[str, TopicMark], log_starts: Ends | None = None
    ) -> None:
        check_no_duplicates(Entry(staged, files), LakeState(ends=self.ends(topics)))
        for day in sorted((self._staging / staged).glob("*topic=*/*day=*")):
            names = [each.name.removeprefix("_") for each in (day.parent, day)]
            target = self.folder.joinpath(*names, staged)
            target.parent.mkdir(parents=True, exist_ok=True)
            day.rename(target)
        ends = ends_of(files, log_starts)
        for topic, mark in topics.items():
            self._commit(topic, mark, [file for file in files if file.topic == topic], ends[topic])

    def files(self, topic: str) -> list[LakeFile]:
        found = []
        for path in self._paths(topic):
            day = next(part for part in path.parts if part.startswith("day=")).removeprefix("day=")
            found.append(describe_file(path, topic, day, str(path.relative_to(self.folder))))
        return found

    def _table_folder(self, topic: str) -> Path:
        return self.folder / f"topic={quote(topic)}"

    def _ends(self, topic: str, mark: TopicMark) -> dict[int, int]:
        raise NotImplementedError

    def _commit(self, topic: str, mark: TopicMark, files: list[LakeFile], ends: dict[int, int]) -> None:
        raise NotImplementedError

    def _paths(self, topic: str) -> list[Path]:
        raise NotImplementedError


class DeltaLake(_TableLake):
    def __init__(self, folder: Path) -> None:
        try:
            import deltalake
        except ModuleNotFoundError:
            raise MissingDependency(
                "deltalake is not installed; lakes of Delta need it: pip install deltalake"
            ) from None
        super().__init__(folder)
        self._delta: Any = deltalake

    def partitions(self, topic: str) -> int:
        table = self._table(topic)
        return (table.transaction_version(_PARTITIONS) or 0) if table is not None else 0

    def _table(self, topic: str) -> Any:
        target = str(self._table_folder(topic))
        return self._delta.DeltaTable(target) if self._delta.DeltaTable.is_deltatable(target) else None

    def _ends(self, topic: str, mark: TopicMark) -> dict[int, int]:
        table = self._table(topic)
        if table is None:
            return {}
        if table.transaction_version(f"{_TOPIC_ID}.{mark.id}") is None:
            raise topic_recreated(topic, self.folder)
        found = {number: table.transaction_version(f"{_END}{number}") for number in range(mark.partitions)}
        return {number: end for number, end in found.items() if end is not None}

    def _commit(self, topic: str, mark: TopicMark, files: list[LakeFile], ends: dict[int, int]) -> None:
        from deltalake.transaction import AddAction, create_table_with_add_actions

        folder = self._table_folder(topic)
        actions = []
        for file in files:
            path = self.path_of(file)
            status = path.stat()
            where = str(path.relative_to(folder))
            stats = json.dumps({"numRecords": file.rows})
            values = {"topic": topic, "day": file.day}
            actions.append(AddAction(where, status.st_size, values, int(status.st_mtime * 1_000), True, stats))
        marks = {f"{_TOPIC_ID}.{mark.id}": 1, _PARTITIONS: mark.partitions}
        marks |= {f"{_END}{number}": end for number, end in ends.items()}
        transactions = [self._delta.Transaction(name, value) for name, value in marks.items()]
        properties = self._delta.CommitProperties(app_transactions=transactions)
        schema = self._schema(self.path_of(files[0]))
        table = self._table(topic)
        by = ["topic", "day"]
        if table is None:
            create_table_with_add_actions(
                str(folder), schema, actions, partition_by=by, name=topic, commit_properties=properties
            )
            return
        known = {field.name for field in table.schema().fields}
        if new := [field for field in schema.fields if field.name not in known]:
            table.alter.add_columns(new)
        table.create_write_transaction(actions, "append", table.schema(), by, commit_properties=properties)

    def _schema(self, path: Path) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        found = pq.read_schema(path).remove_metadata()
        found = found.append(pa.field("topic", pa.string())).append(pa.field("day", pa.date32()))
        return self._delta.Schema.from_arrow(found)

    def _paths(self, topic: str) -> list[Path]:
        table = self._table(topic)
        return [] if table is None else [Path(unquote(uri.removeprefix("file://"))) for uri in table.file_uris()]


class IcebergLake(_TableLake):
    keeps_columns = True

    def __init__(self, folder: Path) -> None:
        try:
            from pyiceberg.catalog.sql import SqlCatalog
        except ImportError:
            raise MissingDependency(
                "pyiceberg is not installed, or its SQL catalog is not; lakes of Iceberg need them: "
                "pip install 'pyiceberg[sql-sqlite,pyarrow]'"
            ) from None
        super().__init__(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._catalog = SqlCatalog(
            _NAMESPACE, uri=f"sqlite:///{folder / '_catalog.db'}", warehouse=f"file://{folder}", echo="false"
        )
        self._catalog.create_namespace_if_not_exists(_NAMESPACE)

    def partitions(self, topic: str) -> int:
        table = self._table(topic)
        return int(table.properties[_PARTITIONS]) if table is not None else 0

    def _table(self, topic: str) -> Any:
        name = (_NAMESPACE, topic)
        return self._catalog.load_table(name) if self._catalog.table_exists(name) else None

    def _ends(self, topic: str, mark: TopicMark) -> dict[int, int]:
        table = self._table(topic)
        if table is None or _TOPIC_ID not in table.properties:
            return {}
        if table.properties[_TOPIC_ID] != mark.id:
            raise topic_recreated(topic, self.folder)
        return {
            int(name.removeprefix(_END)): int(value)
            for name, value in table.properties.items()
            if name.startswith(_END)
        }

    def _commit(self, topic: str, mark: TopicMark, files: list[LakeFile], ends: dict[int, int]) -> None:
        import pyarrow.parquet as pq

        schema = pq.read_schema(self.path_of(files[0])).remove_metadata()
        table = self._table(topic)
        if table is None:
            target = f"file://{self._table_folder(topic)}"
            table = self._catalog.create_table((_NAMESPACE, topic), schema, location=target)
        if not table.spec().fields:
            with table.update_spec() as spec:
                spec.add_identity("day")
        with table.transaction() as transaction:
            with transaction.update_schema() as update:
                update.union_by_name(schema)
            transaction.add_files([str(self.path_of(file)) for file in files])
            end_properties = {f"{_END}{number}": str(end) for number, end in ends.items()}
            transaction.set_properties({_TOPIC_ID: mark.id, _PARTITIONS: str(mark.partitions), **end_properties})

    def _paths(self, topic: str) -> list[Path]:
        table = self._table(topic)
        tasks = [] if table is None else table.scan().plan_files()
        return [Path(unquote(task.file.file_path.removeprefix("file://"))) for task in tasks]
