"""Grouping of error texts: those that differ only in values, as ``no customer 17`` and ``no customer 18``, are a kind.

Python and Spark's JVM use the same regular expressions, restricted to syntax with the same meaning in both.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

MAX_KIND_CHARS = 160
NO_ERROR = "(no error given)"
_REPLACEMENTS = [
    (r'"[^"]*"', "<text>"),
    # Not the apostrophe in "can't".
    (r"(?<![A-Za-z0-9])'[^']*'(?![A-Za-z0-9])", "<text>"),
    (r"`[^`]*`", "<text>"),
    (r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", "<id>"),
    (r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]+)?)?(Z|[+-][0-9]{2}:?[0-9]{2})?", "<time>"),
    (r"[0-9]{1,3}(\.[0-9]{1,3}){3}(:[0-9]+)?", "<address>"),
    (r"0[xX][0-9a-fA-F]+", "<hex>"),
    # Must mix digits and letters: excludes words such as "deadbeef" or "facade", and plain numbers, which come below.
    (r"(?<![A-Za-z0-9_])(?=[0-9]*[a-fA-F])(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,}(?![A-Za-z0-9_])", "<hex>"),
    (r"((?<![A-Za-z0-9_])[-+])?[0-9]+([.,][0-9]+)*", "<n>"),
    (r"[ \t\r\n]+", " "),
]
_COMPILED = [(re.compile(pattern), replacement) for pattern, replacement in _REPLACEMENTS]


def kind_of(error: str) -> str:
    """The error text with its values replaced by placeholders."""
    for pattern, replacement in _COMPILED:
        error = pattern.sub(replacement, error)
    return error.strip(" ")[:MAX_KIND_CHARS] or NO_ERROR


def kind_column(error: Column) -> Column:
    """``kind_of`` as a Spark expression."""
    from pyspark.sql import functions

    found = functions.coalesce(error, functions.lit(""))
    for pattern, replacement in _REPLACEMENTS:
        found = functions.regexp_replace(found, pattern, replacement)
    found = functions.substring(functions.trim(found), 1, MAX_KIND_CHARS)
    return functions.when(found == "", functions.lit(NO_ERROR)).otherwise(found)
