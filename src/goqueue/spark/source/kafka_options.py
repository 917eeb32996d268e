"""GoQueue's equivalents of the options of Spark's Kafka source and sink, for error messages."""

from __future__ import annotations

from typing import Literal

_KAFKA_CLIENT_PREFIX = "kafka."
_SOURCE = {
    "subscribe": "use 'topics'",
    "subscribepattern": "use 'topicPattern'",
    "assign": "use 'topics' and filter on the column partition",
    "topic": "use 'topics'",
    "startingoffsets": "use 'startingPosition'",
    "endingoffsets": "use 'endingPosition'",
    "startingtimestamp": "use 'startingPosition' with an instant such as '2026-11-15T08:00:00Z'",
    "endingtimestamp": "use 'endingPosition' with an instant such as '2026-11-15T08:00:00Z'",
    "startingoffsetsbytimestamp": "use 'startingPosition' with an instant such as '2026-11-15T08:00:00Z'",
    "endingoffsetsbytimestamp": "use 'endingPosition' with an instant such as '2026-11-15T08:00:00Z'",
    "startingoffsetsbytimestampstrategy": "leave it out: behind the last message, reading starts at the end",
    "maxoffsetspertrigger": "use 'maxMessagesPerTrigger'",
    "minoffsetspertrigger": "leave it out, and let the query's trigger wait",
    "maxtriggerdelay": "leave it out, and let the query's trigger wait",
    "includeheaders": "leave it out: the column headers is always there",
    "groupidprefix": "use 'group'",
    "kafka.group.id": "use 'group'",
    "checkpointlocation": "give it to the writer (writeStream)",
}
"""Options of Spark's Kafka source, in lower case, and their equivalents."""
_SINK = {"includeheaders": "leave it out: the column headers is written if it is there"}
_BOTH = {"kafka.bootstrap.servers": "use 'brokers'", "bootstrap.servers": "use 'brokers'"}


def equivalent_of(name: str, kind: Literal["source", "sink"]) -> str | None:
    """What to use instead of Kafka's option ``name``; ``None`` if Kafka has no such option."""
    lowered = name.lower()
    known = _BOTH | (_SOURCE if kind == "source" else _SINK)
    if lowered in known:
        return known[lowered]
    if lowered.startswith(_KAFKA_CLIENT_PREFIX):
        return "leave it out: it configures Kafka's client, which is not used here"
    return None
