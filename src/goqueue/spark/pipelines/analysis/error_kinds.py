"""Errors that differ only in what they are about are one kind: ``no customer 17`` and ``no customer 18``.

The same expressions are used by Python and by Spark's JVM, so only what both read alike is in them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

LONGEST = 160
NO_ERROR = "(no error given)"
_REPLACED = [
    (r'"[^"]*"', "<text>"),
    # Not the apostrophe in "can't".
    (r"(?<![A-Za-z0-9])'[^']*'(?![A-Za-z0-9])", "<text>"),
    (r"`[^`]*`", "<text>"),
    (r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", "<id>"),
    (r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]+)?)?(Z|[+-][0-9]{2}:?[0-9]{2})?", "<time>"),
    (r"[0-9]{1,3}(\.[0-9]{1,3}){3}(:[0-9]+)?", "<address>"),
    (r"0[xX][0-9a-fA-F]+", "<hex>"),
    # Digits and letters mixed: words such as "deadbeef" or "facade" are none, and plain numbers come below.
    (
        r"(?<![A-Za-z0-9_])(?=[0-9]*[a-fA-F])(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,}(?![A-Za-z0-9_])",
        "<hex>",
    ),
    (r"((?<![A-Za-z0-9_])[-+])?[0-9]+([.,][0-9]+)*", "<n>"),
    (r"[ \t\r\n]+", " "),
]
_COMPILED = [(re.compile(pattern), replacement) for pattern, replacement in _REPLACED]


def kind_of(error: str) -> str:
    """What is left of an error when what it is about is taken out."""
    for pattern, replacement in _COMPILED:
        error = pattern.sub(replacement, error)
    return error.strip(" ")[:LONGEST] or NO_ERROR


def kind_column(error: Column) -> Column:
    """The same in Spark."""
    from pyspark.sql import functions

    found = functions.coalesce(error, functions.lit(""))
    for pattern, replacement in _REPLACED:
        found = functions.regexp_replace(found, pattern, replacement)
    found = functions.substring(functions.trim(found), 1, LONGEST)
    return functions.when(found == "", functions.lit(NO_ERROR)).otherwise(found)
