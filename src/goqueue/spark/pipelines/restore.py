"""``restore``: a topic as the lake has it, whole or a range of time, into a topic that is new or empty."""

from __future__ import annotations

from goqueue.spark.pipelines.definitions.settings import Setting
from goqueue.spark.pipelines.lake import restoring

PIPELINE = restoring.pipeline(
    "restore",
    "A topic from the lake of 'archive' into an empty topic, exactly once.",
    [Setting("into_filled", "Write to the topic although it has messages.", "flag", default=False)],
    into_new=True,
)
