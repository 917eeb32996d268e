"""Options of tables: ``CREATE TABLE … USING goqueue OPTIONS (…)``.

When a table is created, Spark passes its options to a Python source among the table's properties (owner, comment, …).
When the table is read, Spark 4.3 passes none of them, but it does pass the table's schema as declared. So the options
are stored as metadata of the schema's first column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

from goqueue.model.errors import InvalidRequest

_PROVIDER = "provider"
"""A property that every table has, and that is never set for a plain ``load``."""
_PREFIX = "option."
_METADATA = "goqueue.options"


def declared_options(given: Mapping[str, str]) -> dict[str, str]:
    """The user's options, whether for one read (``load``) or of a table."""
    if _PROVIDER not in given:
        return dict(given)
    options = {name.removeprefix(_PREFIX): value for name, value in given.items() if name.startswith(_PREFIX)}
    # For a table, Spark turns the option path into a property without the prefix.
    return options | ({"path": given["path"]} if "path" in given else {})


def with_options(schema: StructType, given: Mapping[str, str]) -> StructType:
    """The schema; for a table, with the table's options stored in its first column's metadata."""
    if _PROVIDER not in given:
        return schema
    first, *others = schema
    kept = {_METADATA: json.dumps(declared_options(given))}
    return StructType([StructField(first.name, first.dataType, first.nullable, kept), *others])


def options_to_read(given: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """The options of one read, or those stored in the schema of the table that is read.

    The two are never mixed: a read with options of its own may use a schema that was copied from a table.
    """
    if given:
        return dict(given)
    for field in schema:
        if _METADATA in field.metadata:
            kept: dict[str, str] = json.loads(field.metadata[_METADATA])
            return kept
    raise InvalidRequest(
        "say what to read: the option topics ('orders,refunds'), or topicPattern ('orders-.*'). (Spark does not hand "
        "over the options of a table that was created with columns of its own: leave them out, and use the option "
        "columns)"
    )
