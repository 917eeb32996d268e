"""What options of Spark's source and sink for Kafka are called here."""

from __future__ import annotations

from typing import Literal

_OF_KAFKAS_CLIENT = "kafka."
_OF_SOURCE = {
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
"""Options of Spark's source for Kafka, in lower case, and what does the same here."""
_OF_SINK = {"includeheaders": "leave it out: the column headers is written if it is there"}
_OF_BOTH = {"kafka.bootstrap.servers": "use 'brokers'", "bootstrap.servers": "use 'brokers'"}


def equivalent_of(name: str, kind: Literal["source", "sink"]) -> str | None:
    """What to do instead of giving the option ``name``; None if Kafka has no such option."""
    lowered = name.lower()
    known = _OF_BOTH | (_OF_SOURCE if kind == "source" else _OF_SINK)
    if lowered in known:
        return known[lowered]
    if lowered.startswith(_OF_KAFKAS_CLIENT):
        return "leave it out: it configures Kafka's client, which is not used here"
    return None
