"""Entry point of the data source ``goqueue``: schema, readers and writers."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from goqueue.model.errors import InvalidRequest
from goqueue.spark.source.columns import NAMES, TYPES
from goqueue.spark.source.options import sink_options, source_options
from goqueue.spark.source.table_options import declared_options, options_to_read, with_options

SCHEMA = from_arrow_schema(pa.schema(TYPES))
_NULLABLE = {"key": "of a message without one", "value": "of a tombstone"}
"""Columns that can be null, and why. Spark trusts a schema that says NOT NULL: it would return wrong results, or fail
with an obscure error."""


class GoQueueSource(datasource.DataSource):
    """The class behind ``spark.read|readStream|write|writeStream.format("goqueue")``."""

    @classmethod
    def name(cls) -> str:
        return "goqueue"

    def schema(self) -> StructType:
        columns = source_options(declared_options(self.options)).columns
        schema = SCHEMA if columns is None else StructType([SCHEMA[name] for name in columns])
        return with_options(schema, self.options)

    def reader(self, schema: StructType) -> datasource.DataSourceReader:
        from goqueue.spark.source.reading import BatchReader

        _check_columns(schema)
        return BatchReader(source_options(options_to_read(self.options, schema), streaming=False), schema)

    def streamReader(self, schema: StructType) -> datasource.DataSourceStreamReader:  # noqa: N802
        from goqueue.spark.source.reading import StreamReader

        _check_columns(schema)
        return StreamReader(source_options(options_to_read(self.options, schema), streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> datasource.DataSourceWriter:
        from goqueue.spark.source.sink import BatchWriter

        _refuse_overwriting(overwrite)
        return BatchWriter(sink_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> datasource.DataSourceStreamWriter:  # noqa: N802
        from goqueue.spark.source.sink import StreamWriter

        _refuse_overwriting(overwrite)
        return StreamWriter(sink_options(self.options), schema)


def _check_columns(schema: StructType) -> None:
    """Raise if a schema given by the user has unknown columns, other types, or NOT NULL where null is possible."""
    known = {field.name: field.dataType for field in SCHEMA}
    for field in schema:
        if field.name not in known:
            raise InvalidRequest(f"there is no column {field.name!r}; there are {', '.join(NAMES)}")
        if not field.nullable and field.name in _NULLABLE:
            raise InvalidRequest(
                f"the column {field.name} can be null ({_NULLABLE[field.name]}), and the schema says NOT NULL; "
                "leave that out, and filter"
            )
        if field.dataType != known[field.name]:
            raise InvalidRequest(
                f"the column {field.name} is {known[field.name].simpleString()}, and the schema says "
                f"{field.dataType.simpleString()}; read it as it is and cast it, such as CAST({field.name} AS STRING)"
            )


def _refuse_overwriting(overwrite: bool) -> None:
    if overwrite:
        raise InvalidRequest("a topic cannot be overwritten; use mode('append')")
