"""Columns by the schemas of the registry: bytes in its framing to structs, and back.

>>> orders = spark.readStream.format("goqueue").option("topics", "orders").load()
>>> orders.select(from_registry("value", "orders-value").alias("order")).select("order.id", "order.total")
>>> decoded(orders, "value", "orders-value").where("_corrupt IS NOT NULL")
>>> frame.select(to_registry(struct("id", "total"), "orders-value").alias("value"))

The reader's schema is asked for when the function is called, and does not change after that: a query that runs for
months has one schema. Each value is read with the schema that it was written with, and becomes what the reader's makes
of it:

- Avro: fields are matched by name or alias, new ones have their defaults, removed ones are left out, numbers widen.
- JSON: what the reader's schema describes is taken from the value; what is missing has the property's ``default``, or
  is null. A value of another type than its property makes the record corrupt. Nothing else of the schema is checked.
- Protobuf: fields are matched by number. New ones are null, or what proto3 has for a field that is not set.

=========================================  ===================================================================
in the schema                              in Spark
=========================================  ===================================================================
Avro ``["null", T]``                       ``T``: everything may be null
Avro ``["int", "long"]``                   BIGINT; ``["float", "double"]``: DOUBLE
Avro, any other union                      STRUCT<member0, member1, …>, of which one is set
Avro decimal, date, timestamp-*            DECIMAL, DATE, TIMESTAMP; local-timestamp-*: TIMESTAMP_NTZ
Avro enum, uuid; fixed; time-*             STRING; BINARY; the INT or BIGINT that it is
JSON object, ``additionalProperties``      STRUCT of its properties; without any, MAP<STRING, …>
JSON integer, number                       BIGINT, DOUBLE
JSON, not described, or of several types   STRING that holds the JSON
Protobuf enum; uint32; uint64              STRING; BIGINT; DECIMAL(20, 0)
Protobuf oneof, ``optional``               fields that may be null
Protobuf Timestamp, Duration, wrappers     TIMESTAMP, INTERVAL DAY TO SECOND, the type that is wrapped
Protobuf Struct, Value, ListValue          STRING that holds the JSON
=========================================  ===================================================================

Avro records and Protobuf messages that lie within themselves are refused (``invalid_schema``); in JSON the inner one is
a STRING.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Unpack

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import coalesce
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType, DataType, StructField, StructType

from goqueue.client.connection.config import DEFAULT_ADDRESS
from goqueue.client.keywords import ClientOptions
from goqueue.client.schemas.schema_serializer import registry_of
from goqueue.client.schemas.schemas import Schema, SchemaGiven, Version
from goqueue.client.sync import Client
from goqueue.model.errors import InvalidConfiguration
from goqueue.schemas.base import SchemaKind
from goqueue.spark.registry.registry_decoding import CORRUPT, OnError, Reading, decode_batch
from goqueue.spark.registry.registry_encoding import Writing, encode_batch
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
    """A column of bytes as what the subject's schema describes. Null stays null.

    ``message`` names a message of a Protobuf schema, if not the first is meant. What cannot be read:

    - ``on_error="null"``: is null.
    - ``on_error="corrupt"``: the column is ``STRUCT<value, _corrupt STRUCT<error STRING, bytes BINARY>>``, and one of
      them is set. ``decoded`` makes two columns of that.
    - ``on_error="fail"``: ends the query with ``InvalidMessage``.

    If a schema cannot be asked for because no broker answers, the task fails in any case, and Spark does it again.
    """
    if on_error not in ("null", "fail", "corrupt"):
        raise InvalidConfiguration(f"on_error is {on_error!r}; 'null', 'corrupt' and 'fail' are known")
    addresses = _addresses(brokers)
    schema, found = _resolved(addresses, subject, message, version=version)
    reading = Reading(addresses, schema, message, on_error)
    if on_error == "corrupt":
        parts = [StructField("value", found), StructField(CORRUPT_COLUMN, spark_type(CORRUPT))]
        found = StructType(parts)
    return _function(lambda values: decode_batch(reading, values), "from_registry", found)(col)


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
    """The frame with a column of bytes read by the subject's schema, and a column ``_corrupt`` that is null unless it
    could not be: ``STRUCT<error STRING, bytes BINARY>``.

    The values take the place of the bytes, or, with ``into``, a column of their own. If there is a ``_corrupt`` from
    before (of the keys, say), it stays where it is set.
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
    """A column as bytes of the subject's schema, which any client of the registry reads. Null stays null.

    With ``schema``, a text of this ``kind``, that one is registered first unless it is there. The column's fields are
    matched by name; those that it does not have are left to the schema's defaults, and null is left out where JSON and
    Protobuf can do without. What does not fit ends the query with ``InvalidMessage``, which names the field.
    """
    if version == "register" and schema is None:
        raise InvalidConfiguration("version is 'register', and there is no schema to register; give it as schema=")
    if schema is not None and version not in ("latest", "register"):
        raise InvalidConfiguration(f"version is {version!r} and a schema is given; give only one of them")
    addresses = _addresses(brokers)
    if schema is None:
        assert version != "register"
        used, _ = _resolved(addresses, subject, message, version=version)
    else:
        used, _ = _resolved(addresses, subject, message, schema=schema, kind=kind)
    writing = Writing(addresses, subject, used, message)
    return _function(lambda values: encode_batch(writing, values), "to_registry", BinaryType())(col)


def encoded(
    frame: DataFrame,
    column: str,
    subject: str,
    *,
    brokers: Brokers = DEFAULT_ADDRESS,
    version: Version | Literal["register"] = "latest",
    schema: SchemaGiven | None = None,
    kind: SchemaKind = "AVRO",
    message: str = "",
) -> DataFrame:
    """The frame with bytes in place of a column, made of it as ``to_registry`` does."""
    made = to_registry(
        frame[column], subject, brokers=brokers, version=version, schema=schema, kind=kind, message=message
    )
    return frame.withColumn(column, made)


def _resolved(
    brokers: tuple[str, ...],
    subject: str,
    message: str,
    *,
    version: Version = "latest",
    schema: SchemaGiven | None = None,
    kind: SchemaKind = "AVRO",
    **options: Unpack[ClientOptions],
) -> tuple[Schema, DataType]:
    """The schema that is meant, with its id, and its type in Spark."""
    with Client(list(brokers), **options) as client:
        if schema is None:
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


def _function(change: Callable[[pa.Array], pa.Array], name: str, returned: DataType) -> Callable[..., Column]:
    """A function of Spark for one column, called with a batch of it at a time."""

    def batch(values: pa.Array) -> pa.Array:
        return change(values)

    batch.__name__ = name
    # It takes the kind of function from the hints, and warns if it is told; its own hints know only the latter.
    made: Callable[..., Column] = arrow_udf(batch, returned)  # type: ignore[call-overload]
    return made
