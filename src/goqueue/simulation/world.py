"""One simulated world: a node, what its clients were told, and what they hold."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import TypeVar

from goqueue.broker.broker import Broker
from goqueue.model.config import Config, StorageConfig, TraceConfig
from goqueue.model.errors import GoQueueError, StorageFailed
from goqueue.simulation.history import History
from goqueue.simulation.node import Node
from goqueue.simulation.processes import Killed
from goqueue.simulation.promises import Delivered, Promises, Unit
from goqueue.simulation.virtual_loop import SimulatedLoop

Result = TypeVar("Result")

LOG, WORK, KEYED, OUT, TIDY = "log", "work", "keyed", "out", "tidy"
TOPICS: dict[str, dict[str, object]] = {
    LOG: {"partitions": 2},
    WORK: {"partitions": 2},
    KEYED: {"partitions": 1},
    OUT: {"partitions": 2},
    TIDY: {"partitions": 1, "cleanup": "compact"},
}
COMES_AND_GOES = "comes-and-goes"
QUEUES = {"workers": WORK, "in-order": KEYED}
QUEUE_SETTINGS: dict[str, dict[str, object]] = {
    "workers": {"kind": "shared"},
    "in-order": {"kind": "shared", "ordering": "key"},
}
STREAM = "readers"
VISIBILITY_MS = 2_000
MAX_RETRIES = 2


@dataclass(slots=True)
class Held:
    """A message in the hands of a client."""

    delivered: Delivered
    receipt: str
    count: int


@dataclass(slots=True)
class Actor:
    """One client: its members of groups, the messages it holds, its open transaction."""

    number: int
    members: dict[str, str] = field(default_factory=dict)
    held: list[Held] = field(default_factory=list)
    done: list[Held] = field(default_factory=list)
    """What it has acked, to ack it once more."""
    unit: Unit | None = None
    """Its open transaction."""


class World:
    def __init__(self, loop: SimulatedLoop, random: Random) -> None:
        self.loop = loop
        self.node = Node("node", _config(random), loop, Random(random.getrandbits(64)))
        self.history = History(lambda: f"{loop.time():.6f} {self.node.starts} {self.node.disk_calls}")
        self.promises = Promises()
        self.members: dict[str, set[str]] = {}
        """Every member that may have joined a group, to let it leave in the end."""

        self.busy: set[str] = set()
        """What one client changes at a time, so that it is known what it is."""

    async def set_up(self) -> None:
        settings = {
            "visibility_timeout_ms": VISIBILITY_MS,
            "max_retries": MAX_RETRIES,
            "retry_backoff_ms": 50,
            "max_retry_backoff_ms": 500,
        }
        await self.node.start()
        for name, own in TOPICS.items():
            await self.node.run(partial(Broker.create_topic, name=name, raw_settings=settings | own))

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
        return result


def is_doubtful(error: object) -> bool:
    """Whether an operation that ended like this may have happened all the same."""
    return isinstance(error, Killed | StorageFailed)


def _config(random: Random) -> Config:
    storage = replace(
        StorageConfig(path="/srv/goqueue", min_free_bytes=0),
        checkpoint_interval_ms=random.choice((200, 2_000, 3_600_000)),
        cleanup_interval_ms=random.choice((500, 5_000)),
        compaction_min_dirty_ratio=0.01,
        max_open_files=random.choice((16, 900)),
    )
    config = Config(storage=storage, trace=TraceConfig(exporters=random.choice(("", "file"))))
    return replace(config, topic=replace(config.topic, segment_bytes=random.choice((64 << 10, 1 << 20))))
