"""``restore``: writes a topic from the lake, all of it or a time range, into a new or empty topic."""

from __future__ import annotations

from goqueue.spark.pipelines.definitions.settings import Setting
from goqueue.spark.pipelines.lake import restoring

PIPELINE = restoring.pipeline(
    "restore",
    "A topic from the lake of 'archive' into an empty topic, exactly once.",
    [Setting("into_filled", "Write to the topic although it has messages.", "flag", default=False)],
    into_new=True,
)
