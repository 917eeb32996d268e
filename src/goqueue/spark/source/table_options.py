"""The options of ``CREATE TABLE … USING goqueue OPTIONS (…)``.

When a table is created, Spark hands its options to a Python source among the table's properties (owner, comment, …).
When the table is read, Spark 4.3 hands over none of them; but it does hand over the table's schema as it was declared.
So the schema's first column carries the options along, as metadata.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

from goqueue.model.errors import InvalidRequest

_PROVIDER = "provider"
"""A property that every table has, and nothing but a table."""
_PREFIX = "option."
_METADATA = "goqueue.options"


def declared_options(given: Mapping[str, str]) -> dict[str, str]:
    """What the user has given, whether for one read (``load``) or for a table."""
    if _PROVIDER not in given:
        return dict(given)
    options = {name.removeprefix(_PREFIX): value for name, value in given.items() if name.startswith(_PREFIX)}
    # Of a table Spark makes this option a property of its own.
    return options | ({"path": given["path"]} if "path" in given else {})


def with_options(schema: StructType, given: Mapping[str, str]) -> StructType:
    """The schema of a source; that of a table remembers the table's options."""
    if _PROVIDER not in given:
        return schema
    first, *others = schema
    kept = {_METADATA: json.dumps(declared_options(given))}
    return StructType([StructField(first.name, first.dataType, first.nullable, kept), *others])


def options_to_read(given: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """The options of one read, or those of the table that is read.

    What is given for one read is never mixed with a table's, whose schema somebody may have used for it.
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
