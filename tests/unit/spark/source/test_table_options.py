"""A table's options are found again when it is read, though Spark does not hand them over."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from goqueue.model.errors import InvalidRequest
from goqueue.spark.source.source import SCHEMA, GoQueueSource
from goqueue.spark.source.table_options import declared_options, options_to_read

PROPERTIES = {"provider": "goqueue", "owner": "ada", "comment": "c", "retention": "mine"}
GIVEN = {"topics": "orders", "brokers": "one:1"}
OF_TABLE = PROPERTIES | GIVEN | {f"option.{name}": value for name, value in GIVEN.items()}
"""What Spark hands over when a table is created."""


def stored(schema: StructType) -> StructType:
    """As a catalog keeps it."""
    return StructType.fromJson(schema.jsonValue())


def test_the_options_of_a_table_are_those_that_its_owner_gave() -> None:
    assert declared_options(OF_TABLE) == GIVEN
    assert declared_options(GIVEN) == GIVEN
    at = {"path": "file:/data", "location": "file:/data"}
    assert declared_options(OF_TABLE | at) == GIVEN | {"path": "file:/data"}


def test_a_table_is_read_with_its_own_options_unless_others_are_given() -> None:
    schema = stored(GoQueueSource(options=OF_TABLE | {"option.columns": "value,key"}).schema())
    assert schema.names == ["value", "key"]
    assert options_to_read({}, schema) == GIVEN | {"columns": "value,key"}
    assert options_to_read({}, StructType([schema["key"], schema["value"]])) == GIVEN | {"columns": "value,key"}
    assert options_to_read({"topics": "refunds"}, schema) == {"topics": "refunds"}


def test_the_schema_of_a_load_keeps_nothing() -> None:
    assert GoQueueSource(options=GIVEN).schema() == SCHEMA


def test_a_table_with_columns_of_its_own_is_refused_for_its_options_are_lost() -> None:
    with pytest.raises(InvalidRequest, match=r"say what to read: .* leave them out, and use the option columns\)"):
        options_to_read({}, SCHEMA)


def test_a_misspelt_option_of_a_table_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="the source has no option 'topcs'; did you mean 'topics'"):
        GoQueueSource(options=PROPERTIES | {"topcs": "orders", "option.topcs": "orders"}).schema()
