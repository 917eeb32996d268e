"""``backfill``: writes messages from the lake into a topic that is in use, with a filter and a rate limit."""

from __future__ import annotations

from goqueue.spark.pipelines.definitions.settings import Setting
from goqueue.spark.pipelines.lake import restoring

PIPELINE = restoring.pipeline(
    "backfill",
    "Messages from the lake of 'archive' into a topic in use: a range, a filter, a rate limit, exactly once.",
    [
        Setting("filter", "SQL over the columns of the lake, such as \"decoded.total > 100\" or 'priority < 2'."),
        Setting("rate", "At most so many messages a second.", "ratio", minimum=0.01, maximum=100_000_000),
    ],
    into_new=False,
)
