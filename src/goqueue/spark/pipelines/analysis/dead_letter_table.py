"""Dead letters as a table: what each tells of itself in its headers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.wire import internal_headers as system

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from goqueue.client.connection.topics import TopicInfo

_SUFFIX = ".dlq"
_MAX_STEM = 196


def dead_letter_topic(name: str, topic: TopicInfo | None = None) -> str:
    """Where a topic's dead letters go; a dead-letter topic's own name is itself."""
    if name.endswith(_SUFFIX):
        return name
    return (topic is not None and topic.settings.get("dead_letter_topic")) or name[:_MAX_STEM] + _SUFFIX


def header(name: str, kind: str = "STRING") -> Column:
    """A header's text, or the number that it is; null if there is none of that name."""
    from pyspark.sql import functions

    text = f"CAST(try_element_at(filter(headers, each -> each.name = '{name}'), 1).value AS STRING)"
    return functions.expr(text if kind == "STRING" else f"TRY_CAST({text} AS {kind})")


def told_by(letters: DataFrame) -> DataFrame:
    """With where each letter came from, who gave it up, why, and after how many deliveries.

    What someone published to a dead-letter topic by hand came from nowhere, and is left out.
    """
    from pyspark.sql import functions

    found = letters.withColumns(
        {
            "origin_topic": header(system.ORIGIN_TOPIC),
            "origin_partition": header(system.ORIGIN_PARTITION, "INT"),
            "origin_offset": header(system.ORIGIN_OFFSET, "BIGINT"),
            "group": functions.coalesce(header(system.GROUP), functions.lit("")),
            "error": functions.coalesce(header(system.ERROR), functions.lit("")),
            "deliveries": header(system.DELIVERIES, "INT"),
        }
    )
    return found.where("origin_topic IS NOT NULL AND origin_partition IS NOT NULL AND origin_offset IS NOT NULL")
