"""Short lives of a topic whose values are checked, on a disk that may lose power at any call.

A script runs once. Before every call that changes the disk, what a power loss would leave now is put aside together
with what was told so far. Afterwards a broker is started on each of these disks: whatever a producer was told to be
published must be readable in its topic, or lie with the dead letters.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random

import goqueue.storage.log.group_commit
from doubles.group_ledger import settled
from doubles.group_scripts import CONFIG
from doubles.inline import InlineExecutor
from doubles.ledger import Broken
from doubles.power_loss import PowerLossDisk
from goqueue.broker.broker import Broker
from goqueue.broker.dead_letters.redrive import Filter
from goqueue.broker.partitions.read import Bounds
from goqueue.broker.registry.schema_draft import SchemaDraft
from goqueue.model.errors import TopicNotFound
from goqueue.model.publish_result import Published
from goqueue.model.publishing import NewMessage
from goqueue.wire.batch import join_frames, parse_batch
from goqueue.wire.frame import encode_frame

TOPIC, DEAD, SUBJECT = "t", "t.dlq", "t-value"
NUMBERS, ANYTHING = '{"type": "integer"}', "{}"
NOW_NS = 1_700_000_000_000_000_000

Script = Callable[["Stage"], Awaitable[None]]


@dataclass
class Told:
    """Values are all different; those that begin with a quotation mark do not fit until the schema is changed."""

    stored: set[bytes] = field(default_factory=set)
    """Was acknowledged, and is promised to be in the topic."""
    dead: set[bytes] = field(default_factory=set)
    """Was acknowledged, and is promised to be with the dead letters."""
    sent: set[bytes] = field(default_factory=set)
    may_return: bool = False
    """Whether dead letters may be in their topic as well."""

    def copy(self) -> Told:
        return Told(set(self.stored), set(self.dead), set(self.sent), self.may_return)


class Stage:
    def __init__(self, rng: Random, outcomes: int) -> None:
        self.rng = rng
        self.outcomes = outcomes
        self.told = Told()
        self.disk = PowerLossDisk()
        self.left: list[tuple[PowerLossDisk, Told]] = []
        self.lasting = True
        self._serial = 0
        self.broker: Broker

    def _put_aside(self) -> None:
        for _ in range(self.outcomes):
            self.left.append((self.disk.crash(self.rng), self.told.copy()))

    async def start(self) -> None:
        self.broker = await started(self.disk)

    async def restart(self) -> None:
        await self.broker.close()
        self.disk.release_locks()
        await self.start()

    async def topic(self, **settings: object) -> None:
        """From here on the power may go."""
        await self.broker.schemas.register(SUBJECT, SchemaDraft(NUMBERS, "JSON"))
        await self.broker.create_topic(TOPIC, {"schema_validation": "dead_letter", **settings})
        self.lasting = settings.get("fsync", "always") == "always"
        self.disk.before_call = self._put_aside

    def _values(self, kinds: str) -> list[bytes]:
        """``1`` fits, ``x`` does not."""
        values = []
        for kind in kinds:
            self._serial += 1
            values.append(b"%d" % self._serial if kind == "1" else b'"%d"' % self._serial)
        self.told.sent |= set(values)
        return values

    def _answered(self, values: list[bytes]) -> None:
        self.told.dead |= {value for value in values if not fits(value)}
        if self.lasting:
            self.told.stored |= set(filter(fits, values))

    async def publish(self, kinds: str) -> None:
        values = self._values(kinds)
        outcomes = await self.broker.publish(TOPIC, [NewMessage(value) for value in values])
        assert all(isinstance(outcome, Published) for outcome in outcomes), outcomes
        self._answered(values)

    async def publish_frames(self, kinds: str) -> None:
        values = self._values(kinds)
        frames = [encode_frame(b"", value, b"", NOW_NS) for value in values]
        await self.broker.publish_frames(TOPIC, 0, parse_batch(join_frames(frames, NOW_NS).to_wire()))
        self._answered(values)

    async def allow_anything(self) -> None:
        await self.broker.schemas.configure(SUBJECT, {"compatibilityLevel": "NONE"})
        await self.broker.schemas.register(SUBJECT, SchemaDraft(ANYTHING, "JSON"))

    async def redrive(self, expected: int) -> None:
        self.told.may_return = expected > 0
        report = await self.broker.groups.dead_letters.redrive(TOPIC, Filter(), 100, None, dry_run=False)
        assert report.redriven == expected, report
        if expected:
            self.told.stored |= self.told.dead


def fits(value: bytes) -> bool:
    return not value.startswith(b'"')


async def started(disk: PowerLossDisk) -> Broker:
    broker = Broker(CONFIG, files=disk)
    await broker.start()
    return broker


# Scripts


async def refuse_some(stage: Stage) -> None:
    await stage.topic()
    await stage.publish("11")
    await stage.publish("x")
    await stage.publish("1x1x")
    await stage.publish_frames("x1")
    await stage.publish_frames("11")
    await stage.publish_frames("xx")


async def refuse_some_where_nothing_is_synced(stage: Stage) -> None:
    await stage.topic(fsync="never")
    await stage.publish("1x")
    await stage.publish_frames("x1x")
    await stage.publish("x")


async def refuse_some_and_stop(stage: Stage) -> None:
    await stage.topic()
    await stage.publish_frames("1xx")
    await stage.restart()
    await stage.publish("x1")
    await stage.restart()
    await stage.publish_frames("x")


async def refuse_many_at_once(stage: Stage) -> None:
    await stage.topic()
    await asyncio.gather(stage.publish("x1"), stage.publish_frames("1x"), stage.publish("xx"), stage.publish("1"))


async def take_back_what_was_refused(stage: Stage) -> None:
    await stage.topic()
    await stage.publish("1x")
    await stage.publish_frames("x1x")
    await stage.redrive(0)
    await stage.allow_anything()
    await stage.redrive(3)
    await stage.publish("1")


SCRIPTS: tuple[Script, ...] = (
    refuse_some,
    refuse_some_where_nothing_is_synced,
    refuse_some_and_stop,
    refuse_many_at_once,
    take_back_what_was_refused,
)


def run_refusal_script(script: Script, seed: int, *, outcomes: int = 1) -> int:
    """Raises ``Broken`` if a crash at some call can break a promise. Returns how many crashes were tried."""
    before = goqueue.storage.log.group_commit.ThreadPoolExecutor
    goqueue.storage.log.group_commit.ThreadPoolExecutor = lambda *_, **__: InlineExecutor()  # type: ignore[assignment,misc]
    try:
        stage = Stage(Random(seed), outcomes)
        asyncio.run(_play(stage, script))
        for place, (disk, told) in enumerate(stage.left):
            try:
                asyncio.run(_check(disk, told))
            except Exception as error:
                raise Broken(f"{script.__name__} with seed {seed}, crash {place}: {error!r}") from error
        return len(stage.left)
    finally:
        goqueue.storage.log.group_commit.ThreadPoolExecutor = before  # type: ignore[misc]


async def _play(stage: Stage, script: Script) -> None:
    await stage.start()
    await script(stage)
    await stage.broker.close()


async def _check(disk: PowerLossDisk, told: Told) -> None:
    broker = await started(disk)
    try:
        if broker.damage():
            raise Broken(f"a power loss looks like damage: {broker.damage()}")
        await settled(broker)
        seen, dead = await _values_in(broker, TOPIC), await _values_in(broker, DEAD)
        if lost := told.stored - seen.keys():
            raise Broken(f"messages are lost: {sorted(lost)}")
        if lost := told.dead - dead.keys():
            raise Broken(f"dead letters are lost: {sorted(lost)}")
        if made_up := (seen.keys() | dead.keys()) - told.sent:
            raise Broken(f"messages that nobody published: {sorted(made_up)}")
        if twice := [value for found in (seen, dead) for value, times in found.items() if times > 1]:
            raise Broken(f"messages are there twice: {sorted(twice)}")
        if not told.may_return and (wrong := [value for value in seen if not fits(value)]):
            raise Broken(f"messages are shown that do not fit: {sorted(wrong)}")
        # It goes on as before.
        (outcome,) = await broker.publish(TOPIC, [NewMessage(b'"after"')])
        if not isinstance(outcome, Published):
            raise Broken(f"nothing can be published afterwards: {outcome!r}")
    finally:
        await broker.close()


async def _values_in(broker: Broker, name: str) -> Counter[bytes]:
    try:
        read = await broker.read(name, 0, Bounds(1 << 24), offset=0)
    except TopicNotFound:
        return Counter()
    return Counter(message.value for message in read.messages)
