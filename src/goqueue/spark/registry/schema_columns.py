"""Column functions for the schema registry: framed bytes to structs, and back.

>>> orders = spark.readStream.format("goqueue").option("topics", "orders").load()
>>> orders.select(from_registry("value", "orders-value").alias("order")).select("order.id", "order.total")
>>> decoded(orders, "value", "orders-value").where("_corrupt IS NOT NULL")
>>> frame.select(to_registry(struct("id", "total"), "orders-value").alias("value"))

The reader's schema is fetched when the function is called and does not change after that: a query that runs for months
has one schema. Each value is read with the schema it was written with and resolved to the reader's:

- Avro: fields are matched by name or alias, new ones get their defaults, removed ones are dropped, numbers widen.
- JSON: properties that the reader's schema describes are taken from the value; a missing one gets its ``default``, or
  null. A value whose type differs from its property's makes the record corrupt. Nothing else of the schema is checked.
- Protobuf: fields are matched by number. New ones are null, or proto3's default for an unset field.

=========================================  ===================================================================
in the schema                              in Spark
=========================================  ===================================================================
Avro ``["null", T]``                       ``T``: everything may be null
Avro ``["int", "long"]``                   BIGINT; ``["float", "double"]``: DOUBLE
Avro, any other union                      STRUCT<member0, member1, …>, of which one is set
Avro decimal, date, timestamp-*            DECIMAL, DATE, TIMESTAMP; local-timestamp-*: TIMESTAMP_NTZ
Avro enum, uuid; fixed; time-*             STRING; BINARY; the underlying INT or BIGINT
JSON object, ``additionalProperties``      STRUCT of its properties; without any, MAP<STRING, …>
JSON integer, number                       BIGINT, DOUBLE
JSON, not described, or of several types   STRING that holds the JSON
Protobuf enum; uint32; uint64              STRING; BIGINT; DECIMAL(20, 0)
Protobuf oneof, ``optional``               fields that may be null
Protobuf Timestamp, Duration, wrappers     TIMESTAMP, INTERVAL DAY TO SECOND, the wrapped type
Protobuf Struct, Value, ListValue          STRING that holds the JSON
=========================================  ===================================================================

Recursive Avro records and Protobuf messages are refused (``invalid_schema``); a recursive JSON object becomes a STRING
at the inner level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import coalesce
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType, DataType, StructField, StructType

from goqueue.client.connection.config import DEFAULT_ADDRESS
from goqueue.client.schemas.schema_serializer import registry_of
from goqueue.client.schemas.schemas import Schema, SchemaGiven, Version
from goqueue.client.sync import Client
from goqueue.model.errors import InvalidConfiguration
from goqueue.schemas.base import SchemaKind
from goqueue.spark.registry.registry_decoding import CORRUPT, OnError, decode_batch
from goqueue.spark.registry.registry_encoding import encode_batch
from goqueue.spark.registry.registry_types import spark_type, value_type

Brokers = str | Sequence[str]
CORRUPT_COLUMN = "_corrupt"


def from_registry(
    col: Column | str,
    subject: str,
    *,
    brokers: Brokers = DEFAULT_ADDRESS,
    version: Version = "latest",
    message: str = "",
    on_error: OnError = "null",
) -> Column:
    """Decode a column of bytes with the subject's schema. Null stays null.

    ``message`` names a message of a Protobuf schema; by default it is the first. A value that cannot be read:

    - ``on_error="null"``: becomes null.
    - ``on_error="corrupt"``: the column is ``STRUCT<value, _corrupt STRUCT<error STRING, bytes BINARY>>``, of which
      one is set. ``decoded`` turns that into two columns.
    - ``on_error="fail"``: fails the query with ``InvalidMessage``.

    If a schema cannot be fetched because no broker answers, the task fails in any case, and Spark retries it.
    """
    if on_error not in ("null", "fail", "corrupt"):
        raise InvalidConfiguration(f"on_error is {on_error!r}; 'null', 'corrupt' and 'fail' are known")
    addresses = _addresses(brokers)
    schema, found = _resolve_schema(addresses, subject, message, version)
    if on_error == "corrupt":
        found = StructType([StructField("value", found), StructField(CORRUPT_COLUMN, spark_type(CORRUPT))])
    decode = partial(decode_batch, addresses, schema, message, on_error)
    return _column_function(decode, "from_registry", found)(col)


def decoded(
    frame: DataFrame,
    column: str,
    subject: str,
    *,
    brokers: Brokers = DEFAULT_ADDRESS,
    version: Version = "latest",
    message: str = "",
    into: str | None = None,
) -> DataFrame:
    """The DataFrame with a column of bytes decoded by the subject's schema, and a column ``_corrupt``, ``STRUCT<error
    STRING, bytes BINARY>``, that is set for rows whose value cannot be read and null for others.

    The values replace the bytes, or go into the new column ``into``. In a column ``_corrupt`` that exists already (of
    the keys, say), rows that are set keep their error.
    """
    made = from_registry(frame[column], subject, brokers=brokers, version=version, message=message, on_error="corrupt")
    both = "__from_registry"
    read = frame.withColumn(both, made)
    wrong = read[both][CORRUPT_COLUMN]
    if CORRUPT_COLUMN in frame.columns:
        wrong = coalesce(read[CORRUPT_COLUMN], wrong)
    return read.withColumns({into or column: read[both]["value"], CORRUPT_COLUMN: wrong}).drop(both)


def to_registry(
    col: Column | str,
    subject: str,
    *,
    brokers: Brokers = DEFAULT_ADDRESS,
    version: Version | Literal["register"] = "latest",
    schema: SchemaGiven | None = None,
    kind: SchemaKind = "AVRO",
    message: str = "",
) -> Column:
    """Encode a column as bytes with the subject's schema, readable by any client of the registry. Null stays null.

    ``schema``, a text of this ``kind``, is registered first unless it exists. The column's fields are matched by name;
    missing ones get the schema's defaults, and null is omitted where JSON and Protobuf allow that. A value that does
    not fit fails the query with ``InvalidMessage``, which names the field.
    """
    if version == "register" and schema is None:
        raise InvalidConfiguration("version is 'register', and there is no schema to register; give it as schema=")
    if schema is not None and version not in ("latest", "register"):
        raise InvalidConfiguration(f"version is {version!r} and a schema is given; give only one of them")
    addresses = _addresses(brokers)
    used, _ = _resolve_schema(addresses, subject, message, version, schema, kind)
    encode = partial(encode_batch, addresses, subject, used, message)
    return _column_function(encode, "to_registry", BinaryType())(col)


def _resolve_schema(
    brokers: tuple[str, ...],
    subject: str,
    message: str,
    version: Version | Literal["register"],
    schema: SchemaGiven | None = None,
    kind: SchemaKind = "AVRO",
) -> tuple[Schema, DataType]:
    """The subject's schema with its id, registered first if given as text, and its Spark type."""
    with Client(list(brokers)) as client:
        if schema is None:
            assert version != "register"
            found = client.schemas.version(subject, version).schema
        else:
            found = client.schemas.register(subject, schema, kind).schema
        registry, thread = registry_of(client.schemas)
        assert thread is not None
        parsed = thread.run(registry.parsed(found))
    return found, spark_type(value_type(parsed, message))


def _addresses(brokers: Brokers) -> tuple[str, ...]:
    listed = brokers.split(",") if isinstance(brokers, str) else list(brokers)
    found = tuple(each.strip() for each in listed if each.strip())
    if not found:
        raise InvalidConfiguration("brokers is empty; give 'host:port', or several with a comma between them")
    return found


def _column_function(change: Callable[[pa.Array], pa.Array], name: str, returned: DataType) -> Callable[..., Column]:
    """A Spark function of one column that is called with Arrow batches of it."""

    def batch(values: pa.Array) -> pa.Array:
        return change(values)

    batch.__name__ = name
    # Spark infers the kind of function from type hints and warns if it is given; its own stubs only know the latter.
    made: Callable[..., Column] = arrow_udf(batch, returned)  # type: ignore[call-overload]
    return made
