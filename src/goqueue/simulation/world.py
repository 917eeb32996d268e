"""One simulated world: a node, what its clients were told, and what they hold."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import TypeVar

from goqueue.broker.broker import Broker
from goqueue.broker.operations import IN_PROCESS, SchemaDraft
from goqueue.model.config import Config, StorageConfig, TraceConfig
from goqueue.model.errors import GoQueueError, NotLeader, StorageFailed
from goqueue.simulation.history import History
from goqueue.simulation.node import Node
from goqueue.simulation.passing import Passing
from goqueue.simulation.processes import Killed
from goqueue.simulation.promises import Delivered, Fact, Promises, Sent, Unit
from goqueue.simulation.virtual_loop import SimulatedLoop

Result = TypeVar("Result")

LOG, WORK, KEYED, OUT, TIDY, WIDE, BRIEF, CHECKED = ("log", "work", "keyed", "out", "tidy", "wide", "brief", "checked")
TOPICS: dict[str, dict[str, object]] = {
    LOG: {"partitions": 2},
    WORK: {"partitions": 2},
    KEYED: {"partitions": 1},
    OUT: {"partitions": 2},
    TIDY: {"partitions": 1, "cleanup": "compact"},
    WIDE: {},
    BRIEF: {"partitions": 1, "retention_ms": 30_000},
    CHECKED: {"partitions": 1, "schema_validation": "dead_letter", "schema_framing": "plain"},
}
_WIDTHS = (2, 9, 9, 17)
"""Of the wide topic, whose partitions are in up to three shards: eight in a row share one."""
COMES_AND_GOES = "comes-and-goes"
WORKERS, IN_ORDER, SPREAD, PASSING = "workers", "in-order", "spread", "passing"
QUEUES = {WORKERS: WORK, IN_ORDER: KEYED, SPREAD: WIDE, PASSING: WORK}
"""Groups that take messages from a topic. ``PASSING`` is set back and deleted now and then."""
READERS, FOLLOWERS = "readers", "followers"
STREAMS = {READERS: LOG, FOLLOWERS: WIDE}
SETTINGS: dict[str, dict[str, object]] = {
    WORKERS: {"kind": "shared"},
    IN_ORDER: {"kind": "shared", "ordering": "key"},
    SPREAD: {"handover_timeout_ms": 3_000},
    PASSING: {"kind": "range"},
    READERS: {"kind": "range", "mode": "stream"},
    FOLLOWERS: {"kind": "sticky", "mode": "stream", "handover_timeout_ms": 3_000},
}
_SPREAD_KINDS = ("sticky", "range", "shared")
VISIBILITY_MS = 2_000
MAX_RETRIES = 2


@dataclass(slots=True)
class Held:
    """A message in the hands of a client."""

    delivered: Delivered
    receipt: str
    count: int


@dataclass(slots=True)
class Membership:
    """A member of a group, as its client knows it."""

    group: str
    member_id: str
    generation: int
    heard_s: float
    """When it last asked for something that was answered, by the loop's clock."""
    instance_id: str = ""


@dataclass(slots=True)
class Batch:
    """What an idempotent producer has sent to a partition, and what it is numbered by."""

    messages: list[Sent]
    first_sequence: int


@dataclass(slots=True)
class Sequence:
    """An idempotent producer, and how far it is in each partition."""

    producer_id: int
    epoch: int
    name: str = ""
    next: dict[tuple[str, int], int] = field(default_factory=dict)
    last: dict[tuple[str, int], Batch] = field(default_factory=dict)
    """Its last batch that was told to be stored."""

    def next_in(self, topic: str, partition: int) -> int:
        return self.next.get((topic, partition), 0)

    def sent(self, topic: str, partition: int, batch: Batch) -> None:
        self.next[topic, partition] = batch.first_sequence + len(batch.messages)
        self.last[topic, partition] = batch


@dataclass(slots=True)
class Actor:
    """One client: its members of groups, the messages it holds, its open transaction."""

    number: int
    members: dict[str, Membership] = field(default_factory=dict)
    former: list[Membership] = field(default_factory=list)
    """Members that have left, or that another took the place of."""
    held: list[Held] = field(default_factory=list)
    done: list[Held] = field(default_factory=list)
    """What it has acked, to ack it once more."""
    unit: Unit | None = None
    """Its open transaction."""
    former_units: list[Unit] = field(default_factory=list)
    """Transactions of producers that another took the place of."""
    sequence: Sequence | None = None
    former_sequences: list[Sequence] = field(default_factory=list)
    numbered: dict[Unit, Sequence] = field(default_factory=dict)
    """Transactions whose batches the client numbers itself."""


class World:
    def __init__(self, loop: SimulatedLoop, random: Random) -> None:
        self.loop = loop
        self.node = Node("node", _config(random), loop, Random(random.getrandbits(64)))
        self.history = History(lambda: f"{loop.time():.6f} {self.node.starts} {self.node.disk_calls}")
        self.promises = Promises()
        self.topics = TOPICS | {WIDE: {"partitions": random.choice(_WIDTHS)}}
        self.settings = SETTINGS | {SPREAD: {"kind": random.choice(_SPREAD_KINDS), **SETTINGS[SPREAD]}}
        self.on_answer: Callable[[str], None] = lambda what: None
        """Called when a client is answered, before it does anything more."""
        self.busy: set[object] = set()
        """What one client changes at a time, so that it is known what it is."""
        self.passing = Passing(PASSING, self.promises)
        self.prepared: list[Unit] = []
        self.doubtful: list[Unit] = []
        """Transactions that may be prepared or committed."""
        self.keys: dict[str, tuple[list[str], int]] = {}
        """Which transactions were told to be committed under a key, and when."""
        self.versions: dict[Fact, int] = {}
        """Versions of schemas that were told, and when."""
        self.is_backed_up = False

    def partitions(self, topic: str) -> int:
        return int(str(self.topics[topic]["partitions"]))

    def topic_of(self, group: str) -> str:
        return QUEUES[group] if group in QUEUES else STREAMS[group]

    async def set_up(self) -> None:
        settings = {
            "visibility_timeout_ms": VISIBILITY_MS,
            "max_retries": MAX_RETRIES,
            "retry_backoff_ms": 50,
            "max_retry_backoff_ms": 500,
        }
        await self.node.start()
        for name, own in self.topics.items():
            await self.node.run(partial(Broker.create_topic, name=name, raw_settings=settings | own))
        await self.node.run(_register_strings)

    async def ask(
        self, what: str, operation: Callable[[Broker], Coroutine[object, object, Result]]
    ) -> Result | GoQueueError | Killed:
        """The result of an operation, or why there is none; after ``is_doubtful`` errors it may have happened."""
        await self.node.until_up()
        try:
            result = await self.node.run(operation)
        except (GoQueueError, Killed) as error:
            self.history.note(what, type(error).__name__)
            self.history.counts[f"answered {type(error).__name__}"] += 1
            return error
        self.history.note(what, "done")
        self.on_answer(what)
        return result


async def _register_strings(broker: Broker) -> None:
    await broker.operations.schemas.register(IN_PROCESS, f"{CHECKED}-value", SchemaDraft('{"type": "string"}', "JSON"))


def is_doubtful(error: object) -> bool:
    """Whether an operation that ended like this may have happened all the same. That its shard is led elsewhere by now
    may be found before it is begun, or when it is to be answered."""
    return isinstance(error, Killed | StorageFailed | NotLeader)


def _config(random: Random) -> Config:
    storage = replace(
        StorageConfig(path="/srv/goqueue", min_free_bytes=0),
        checkpoint_interval_ms=random.choice((500, 2_000, 3_600_000)),
        cleanup_interval_ms=random.choice((500, 5_000)),
        compaction_min_dirty_ratio=0.01,
        max_open_files=random.choice((16, 900)),
    )
    config = Config(storage=storage, trace=TraceConfig(exporters=random.choice(("", "file"))))
    return replace(config, topic=replace(config.topic, segment_bytes=random.choice((64 << 10, 1 << 20))))
