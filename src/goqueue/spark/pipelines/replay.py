"""``replay``: copies a range of a topic to another topic, exactly once.

The range is pinned to offsets when the first run begins to copy, and cut into slices. Each slice is read, filtered and
published as a whole, under a key that the broker remembers: whatever is killed, no slice is published twice. How many
are done is kept in the checkpoint.
"""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from goqueue.spark.pipelines.definitions.checks import check_names
from goqueue.spark.pipelines.definitions.definition import Pipeline
from goqueue.spark.pipelines.definitions.problems import InvalidPipeline
from goqueue.spark.pipelines.definitions.settings import Setting, Settings
from goqueue.spark.pipelines.lake.durable_file import write_whole
from goqueue.spark.pipelines.running.context import Context
from goqueue.spark.pipelines.running.progress import Progress
from goqueue.spark.pipelines.running.rows import USER_HEADERS_SQL
from goqueue.spark.pipelines.running.summary import Summary, Table, per_second

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FILE = "replay.json"
_SLICE = 1_000_000
_PACE_S = 2.0
"""With a rate, a slice is what may be copied in this time."""


@dataclass(frozen=True)
class Copy:
    """What is to be copied, and how far that is. ``ranges`` has the first offset and the one behind the last."""

    ranges: dict[str, tuple[int, int]]
    slices: int
    key: str
    done: int = 0
    copied: int = 0

    @property
    def total(self) -> int:
        return sum(high - low for low, high in self.ranges.values())

    def before(self, number: int) -> dict[str, int]:
        """Where each partition's share of slice ``number`` begins; they all advance together."""
        return {each: low + (high - low) * number // self.slices for each, (low, high) in self.ranges.items()}

    def commit_key(self, number: int) -> str:
        """One of a series: of that the broker remembers the last for good, so a copy may wait."""
        return f"{self.key}#{number}"


def run(context: Context) -> Summary:
    """Copy what is left to copy."""
    copy = _begun(context)
    began, done_before = time.monotonic(), copy.done
    rate = context.settings["rate"]
    next_at = began
    while copy.done < copy.slices and not context.stopping.wait(max(0.0, next_at - time.monotonic())):
        next_at = time.monotonic() + (_PACE_S if rate else 0.0)
        copied = _copy_slice(context, copy)
        copy = replace(copy, done=copy.done + 1, copied=copy.copied + copied)
        _save(context, copy)
        read = sum(copy.before(copy.done).values()) - sum(copy.before(done_before).values())
        speed = read / max(time.monotonic() - began, 1e-9)
        left = copy.total - sum(copy.before(copy.done).values()) + sum(low for low, _ in copy.ranges.values())
        context.tell(Progress(read, speed, copy.done - 1, left))
    return _summary(copy, time.monotonic() - began, done_before)


def _copy_slice(context: Context, copy: Copy) -> int:
    from pyspark.sql import Observation, functions

    topic, place = context.settings["topic"], copy.before
    rows = context.read(
        topics=topic,
        startingPosition=json.dumps({topic: place(copy.done)}),
        endingPosition=json.dumps({topic: place(copy.done + 1)}),
    )
    counted = Observation("copied")
    messages = _messages(rows, context.settings).observe(counted, functions.count("*").alias("messages"))
    context.write(messages, topic=context.settings["to"], commitKey=copy.commit_key(copy.done))
    return int(counted.get["messages"])


def _messages(rows: DataFrame, settings: Settings) -> DataFrame:
    from pyspark.sql import functions

    if settings["where"] is not None:
        rows = rows.where(settings["where"])
    kept = ["key", "value", "priority", *(["timestamp"] if settings["keep_timestamp"] else [])]
    return rows.select(*kept, functions.expr(USER_HEADERS_SQL.format("headers")).alias("headers"))


def _begun(context: Context) -> Copy:
    """The copy that the checkpoint knows of, or a new one: nothing is written until it is known that it can run."""
    settings = context.settings
    check(settings)
    known = _known(context)
    if context.claim(is_begun=known is not None and known.done > 0):
        if known is not None:
            return known
    elif known is not None and _is_published(context, known):
        # Somebody was killed before this was noted. It counts as begun, so this says what differs.
        context.claim(is_begun=True)
    ranges = _pinned(context)
    # Spark looks at the condition here, and reads nothing.
    _messages(context.read(topics=settings["topic"]), settings)
    size = max(1, int(settings["rate"] * _PACE_S)) if settings["rate"] else _SLICE
    total = sum(high - low for low, high in ranges.values())
    copy = Copy(ranges, slices=-(-total // size), key=f"replay/{secrets.token_hex(16)}")
    context.make_topics([settings["to"]], partitions=len(ranges))
    context.keep_claim()
    _save(context, copy)
    return copy


def _known(context: Context) -> Copy | None:
    try:
        told = json.loads((context.local_checkpoint() / _FILE).read_bytes())
    except FileNotFoundError:
        return None
    return Copy(**{**told, "ranges": {each: (low, high) for each, (low, high) in told["ranges"].items()}})


def _is_published(context: Context, copy: Copy) -> bool:
    """Whether the first slice is there, of a copy that has noted none."""
    with context.client() as client:
        return client.committed_under(copy.commit_key(0)) is not None


def _pinned(context: Context) -> dict[str, tuple[int, int]]:
    """The range as offsets. The end is where no transaction was open yet: what comes behind it is not copied."""
    from goqueue.spark.source.options import source_options
    from goqueue.spark.source.positions import resolve
    from goqueue.spark.source.transport_choice import transport_for

    settings = context.settings
    topic = settings["topic"]
    options = source_options(
        {
            "brokers": context.brokers,
            "topics": topic,
            "startingPosition": settings["start"],
            "endingPosition": settings["end"],
        }
    )
    way = transport_for(options)
    bounds = way.bounds([topic])
    low = resolve(options.starting, bounds, way.offset_at, otherwise="earliest", fail_on_data_loss=True)
    high = resolve(options.ending, bounds, way.offset_at, otherwise="latest", fail_on_data_loss=True)
    return {str(place.partition): (low[place], max(low[place], high[place])) for place in sorted(bounds)}


def _save(context: Context, copy: Copy) -> None:
    write_whole(context.local_checkpoint() / _FILE, json.dumps(asdict(copy)).encode())


def _summary(copy: Copy, seconds: float, done_before: int) -> Summary:
    read = sum(copy.before(copy.done).values()) - sum(copy.before(done_before).values()) if copy.slices else 0
    numbers: dict[str, Any] = {
        "messages read": read,
        "messages copied": copy.copied,
        "messages in the range": copy.total,
        "seconds": round(seconds, 1),
        "messages per second": per_second(read, seconds),
    }
    rows = [[int(each), low, high] for each, (low, high) in copy.ranges.items()]
    summary = Summary(numbers, [Table("range", ["partition", "from offset", "to before"], rows)])
    if copy.done < copy.slices:
        summary.notes.append("stopped before the end, between two slices; the next run goes on from there")
    elif copy.slices and done_before == copy.slices:
        summary.notes.append("this range was copied before; name another --checkpoint to copy it again")
    if copy.slices and done_before:
        summary.notes.append("messages copied are those of all runs on this checkpoint")
    return summary


def check(settings: Settings) -> None:
    """What can be told before anything is read."""
    check_names(settings, "topic", "to")
    if settings["topic"] == settings["to"]:
        raise InvalidPipeline(f"topic and to are both {settings['to']}; a replay into the same topic would never end")


def plan(settings: Settings) -> dict[str, str]:
    """In words."""
    check(settings)
    rate = settings["rate"]
    return {
        "source": f"topic {settings['topic']} from {settings['start']} to {settings['end']}",
        **({"where": settings["where"]} if settings["where"] else {}),
        "sink": f"topic {settings['to']}, exactly once; made if it is not there",
        "keeps": "key, value, headers, priority" + (", timestamp" if settings["keep_timestamp"] else ""),
        "rate": f"{rate} messages per second at the most" if rate else "as fast as it goes",
    }


PIPELINE = Pipeline(
    name="replay",
    summary="Copy a range of a topic to another topic, exactly once.",
    run=run,
    plan=plan,
    checkpoint="./checkpoints/replay/${topic}-to-${to}",
    settings=[
        Setting("topic", "The topic to copy from.", required=True),
        Setting("to", "The topic to copy to; made if it is not there.", required=True),
        Setting("start", 'earliest, an instant, or offsets as JSON: {"orders": {"0": 12}}.', default="earliest"),
        Setting("end", "Where to end, likewise: latest, an instant, or offsets.", default="latest"),
        Setting("where", "SQL; only messages for which it is true: CAST(key AS STRING) LIKE 'ada%'."),
        Setting(
            "rate",
            "Messages read per second, at the most.",
            "number",
            minimum=1,
            maximum=10_000_000,
            may_change=True,
        ),
        Setting("keep_timestamp", "Whether copies have the timestamp of the original.", "flag", default=False),
    ],
)
