"""Dead letters as a DataFrame with columns parsed from their headers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.wire import internal_headers as system

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from goqueue.client.connection.topics import TopicInfo

_SUFFIX = ".dlq"
_MAX_STEM = 196


def dead_letter_topic(name: str, topic: TopicInfo | None = None) -> str:
    """The dead-letter topic of a topic; for a dead-letter topic, the topic itself."""
    if name.endswith(_SUFFIX):
        return name
    return (topic is not None and topic.settings.get("dead_letter_topic")) or name[:_MAX_STEM] + _SUFFIX


def header(name: str, kind: str = "STRING") -> Column:
    """A header's value as text or cast to ``kind``; null if there is no header of that name."""
    from pyspark.sql import functions

    text = f"CAST(try_element_at(filter(headers, each -> each.name = '{name}'), 1).value AS STRING)"
    return functions.expr(text if kind == "STRING" else f"TRY_CAST({text} AS {kind})")


def parse_letters(letters: DataFrame) -> DataFrame:
    """Add each letter's origin, group, error and number of deliveries.

    Messages without an origin, published directly to a dead-letter topic, are left out.
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
