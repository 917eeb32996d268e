"""``replay``: copies a range of a topic to another topic, exactly once.

The first run resolves the range to offsets and cuts it into slices. Each slice is read, filtered and published
atomically, under a commit key that the broker remembers: whatever is killed, no slice is published twice. The
checkpoint stores how many slices are done.
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
_SLICE_SECONDS = 2.0
"""With a rate limit, a slice has as many messages as may be copied in this time."""


@dataclass(frozen=True)
class Copy:
    """A copy job and its progress. ``ranges``: per partition the first offset and the offset behind the last."""

    ranges: dict[str, tuple[int, int]]
    slices: int
    key: str
    done: int = 0
    copied: int = 0

    @property
    def total(self) -> int:
        return sum(high - low for low, high in self.ranges.values())

    def offsets_at_slice(self, number: int) -> dict[str, int]:
        """The start offsets of slice ``number``; all partitions advance proportionally."""
        return {each: low + (high - low) * number // self.slices for each, (low, high) in self.ranges.items()}

    def messages_before_slice(self, number: int) -> int:
        if not self.slices:
            return 0
        return sum(self.offsets_at_slice(number).values()) - sum(low for low, _ in self.ranges.values())

    def commit_key(self, number: int) -> str:
        """The commit key of a slice. Keys form a series whose last commit the broker remembers for good, so a copy may
        pause for any time."""
        return f"{self.key}#{number}"


def run(context: Context) -> Summary:
    """Copy the remaining slices."""
    copy = _find_or_start_copy(context)
    began, done_before = time.monotonic(), copy.done
    rate = context.settings["rate"]
    next_at = began
    while copy.done < copy.slices and not context.stopping.wait(max(0.0, next_at - time.monotonic())):
        next_at = time.monotonic() + (_SLICE_SECONDS if rate else 0.0)
        copied = _copy_slice(context, copy)
        copy = replace(copy, done=copy.done + 1, copied=copy.copied + copied)
        _save(context, copy)
        done = copy.messages_before_slice(copy.done)
        read = done - copy.messages_before_slice(done_before)
        speed = read / max(time.monotonic() - began, 1e-9)
        context.tell(Progress(read, speed, copy.done - 1, copy.total - done))
    return _summary(copy, time.monotonic() - began, done_before)


def _copy_slice(context: Context, copy: Copy) -> int:
    from pyspark.sql import Observation, functions

    topic, offsets_at = context.settings["topic"], copy.offsets_at_slice
    rows = context.read(
        topics=topic,
        startingPosition=json.dumps({topic: offsets_at(copy.done)}),
        endingPosition=json.dumps({topic: offsets_at(copy.done + 1)}),
    )
    observation = Observation("copied")
    messages = _messages(rows, context.settings).observe(observation, functions.count("*").alias("messages"))
    context.write(messages, topic=context.settings["to"], commitKey=copy.commit_key(copy.done))
    return int(observation.get["messages"])


def _messages(rows: DataFrame, settings: Settings) -> DataFrame:
    from pyspark.sql import functions

    if settings["where"] is not None:
        rows = rows.where(settings["where"])
    kept = ["key", "value", "priority", *(["timestamp"] if settings["keep_timestamp"] else [])]
    return rows.select(*kept, functions.expr(USER_HEADERS_SQL.format("headers")).alias("headers"))


def _find_or_start_copy(context: Context) -> Copy:
    """The copy stored in the checkpoint, or a new one. Nothing is written before all checks have passed."""
    settings = context.settings
    check(settings)
    known = _load(context)
    if context.claim(is_begun=known is not None and known.done > 0):
        if known is not None:
            return known
    elif known is not None and _is_published(context, known):
        # A run was killed after its first slice, before saving. The copy has started, so this raises the differences.
        context.claim(is_begun=True)
    ranges = _resolve_range(context)
    # Spark analyzes the condition here without reading anything.
    _messages(context.read(topics=settings["topic"]), settings)
    size = max(1, int(settings["rate"] * _SLICE_SECONDS)) if settings["rate"] else _SLICE
    total = sum(high - low for low, high in ranges.values())
    copy = Copy(ranges, slices=-(-total // size), key=f"replay/{secrets.token_hex(16)}")
    context.make_topics([settings["to"]], partitions=len(ranges))
    context.keep_claim()
    _save(context, copy)
    return copy


def _load(context: Context) -> Copy | None:
    try:
        saved = json.loads((context.local_checkpoint() / _FILE).read_bytes())
    except FileNotFoundError:
        return None
    return Copy(**{**saved, "ranges": {each: (low, high) for each, (low, high) in saved["ranges"].items()}})


def _is_published(context: Context, copy: Copy) -> bool:
    """Whether the first slice was published although the checkpoint has none as done."""
    with context.client() as client:
        return client.committed_under(copy.commit_key(0)) is not None


def _resolve_range(context: Context) -> dict[str, tuple[int, int]]:
    """The range as offsets. Its end is at most the last stable offset; later messages are not copied."""
    from goqueue.spark.source.options import source_options
    from goqueue.spark.source.positions import resolve
    from goqueue.spark.source.reading import transport_for

    settings = context.settings
    topic = settings["topic"]
    positions = {"startingPosition": settings["start"], "endingPosition": settings["end"]}
    options = source_options({"brokers": context.brokers, "topics": topic, **positions})
    transport = transport_for(options)
    bounds = transport.bounds([topic])
    low = resolve(options.starting, bounds, transport.offset_at, otherwise="earliest", fail_on_data_loss=True)
    high = resolve(options.ending, bounds, transport.offset_at, otherwise="latest", fail_on_data_loss=True)
    return {str(tp.partition): (low[tp], max(low[tp], high[tp])) for tp in sorted(bounds)}


def _save(context: Context, copy: Copy) -> None:
    write_whole(context.local_checkpoint() / _FILE, json.dumps(asdict(copy)).encode())


def _summary(copy: Copy, seconds: float, done_before: int) -> Summary:
    read = copy.messages_before_slice(copy.done) - copy.messages_before_slice(done_before)
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
    """Raise if the settings are invalid, before anything is read."""
    check_names(settings, "topic", "to")
    if settings["topic"] == settings["to"]:
        raise InvalidPipeline(f"topic and to are both {settings['to']}; a replay into the same topic would never end")


def plan(settings: Settings) -> dict[str, str]:
    """Describe what a run would do."""
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
            "rate", "Messages read per second, at the most.", "number", minimum=1, maximum=10_000_000, may_change=True
        ),
        Setting("keep_timestamp", "Whether copies have the timestamp of the original.", "flag", default=False),
    ],
)
