"""Short lives of a schema registry on a disk that may lose power at any call; what was told of it must hold.

A script runs once. Before every call that changes the disk, what a power loss would leave now is put aside together
with what was told so far. Afterwards a broker is started on each of these disks.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import goqueue.broker.registry.parsed_schemas
import goqueue.storage.log.group_commit
from doubles.group_scripts import started
from doubles.inline import InlineExecutor
from doubles.ledger import Broken
from doubles.power_loss import PowerLossDisk
from goqueue.broker.broker import Broker
from goqueue.broker.registry.schema_draft import SchemaDraft
from goqueue.broker.registry.schema_registry import Registered, SchemaRegistry
from goqueue.coordination.schema_records import Reference
from goqueue.model.errors import SchemaNotFound, SubjectNotFound

Script = Callable[["Stage"], Awaitable[None]]


def text(name: str, size: int = 0, record: str = "R") -> str:
    fields = [{"name": "x", "type": "int", "default": 0}]
    return json.dumps({"type": "record", "name": record, "doc": f"{name} {'x' * size}", "fields": fields})


@dataclass
class Told:
    """What answers have said, and what the request under way may change."""

    ids: dict[int, str] = field(default_factory=dict)
    """Texts by the ids that they will have for good."""
    versions: dict[tuple[str, int], tuple[int, bool]] = field(default_factory=dict)
    """Id, and whether it is softly deleted."""
    gone: set[tuple[str, int]] = field(default_factory=set)
    configs: dict[str, str | None] = field(default_factory=dict)
    modes: dict[str, str | None] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)
    """Subjects that a request under way changes."""

    def check(self, registry: SchemaRegistry) -> None:
        state = registry.state
        for schema_id, schema in self.ids.items():
            if schema_id not in state.records or state.records[schema_id].text != schema:
                raise Broken(f"id {schema_id} was told for {schema[:80]}, and is {state.records.get(schema_id)}")
        for (subject, version), (schema_id, deleted) in self.versions.items():
            if subject in self.unsure:
                continue
            found = state.version(subject, version, deleted=True)
            if (found.schema_id, found.deleted) != (schema_id, deleted):
                raise Broken(f"version {version} of {subject} was told as {schema_id}, {deleted}, and is {found}")
        for subject, version in self.gone - set(self.versions):
            known = state.subjects.get(subject)
            if known is not None and version in known.versions:
                raise Broken(f"version {version} of {subject} was deleted for good")
        for subject, level in self.configs.items():
            config = (state.own_config(subject) or {}).get("compatibilityLevel")
            if subject not in self.unsure and config != level:
                raise Broken(f"the compatibility of {subject!r} was told as {level}, and is {config}")
        for subject, mode in self.modes.items():
            if subject not in self.unsure and state.own_mode(subject) != mode:
                raise Broken(f"the mode of {subject!r} was told as {mode}, and is {state.own_mode(subject)}")


class Stage:
    def __init__(self, rng: Random, outcomes: int) -> None:
        self.rng = rng
        self.outcomes = outcomes
        self.told = Told()
        self.disk = PowerLossDisk()
        self.left: list[tuple[PowerLossDisk, Told]] = []
        self.broker: Broker

    def _put_aside(self) -> None:
        for _ in range(self.outcomes):
            self.left.append((self.disk.crash(self.rng), copy.deepcopy(self.told)))

    async def start(self) -> None:
        self.broker = await started(self.disk)
        self.disk.before_call = self._put_aside

    async def restart(self) -> None:
        await self.broker.close()
        self.disk.release_locks()
        await self.start()

    async def snapshot(self) -> None:
        await self.broker._schema_journal.snapshot()

    def _tell(self, subject: str, made: Registered) -> None:
        self.told.ids[made.record.schema_id] = made.record.text
        self.told.versions[subject, made.version.version] = (made.record.schema_id, False)

    async def register(self, subject: str, schema: str, *references: Reference) -> Registered:
        # The versions of one that was deleted for good begin again.
        self.told.gone = {each for each in self.told.gone if each[0] != subject}
        made = await self.broker.schemas.register(subject, SchemaDraft(schema, references=references))
        self._tell(subject, made)
        return made

    async def find(self, subject: str, schema: str) -> None:
        """Tells of it only if it is there."""
        with suppress(SchemaNotFound, SubjectNotFound):
            draft = SchemaDraft(schema)
            self._tell(subject, await self.broker.schemas.find(subject, draft, normalize=False, deleted=False))

    async def find_after(self, turns: int, subject: str, schema: str) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        await self.find(subject, schema)

    async def register_again(self, subject: str, schema: str) -> None:
        """As soon as it can be seen."""
        records = self.broker.schemas.state.records
        await self._until(lambda: any(each.text == schema for each in records.values()))
        await self.register(subject, schema)

    async def _until(self, happened: Callable[[], bool]) -> None:
        for _ in range(10_000):
            if happened():
                return
            await asyncio.sleep(0)
        raise Broken("what should happen does not")

    async def look_up(self, schema_id: int) -> None:
        """Tells of it as soon as it can be seen."""
        await self._until(lambda: schema_id in self.broker.schemas.state.records)
        record = await self.broker.schemas.record(schema_id)
        self.told.ids[record.schema_id] = record.text

    async def look_at(self, subject: str, version: int) -> None:
        """The same of a version."""
        subjects = self.broker.schemas.state.subjects
        await self._until(lambda: subject in subjects and version in subjects[subject].versions)
        self._tell(subject, await self.broker.schemas.version(subject, version))

    async def delete(self, subject: str, version: int | None = None, *, permanent: bool = False) -> None:
        self.told.unsure.add(subject)
        registry = self.broker.schemas
        if version is None:
            deleted = await registry.delete_subject(subject, permanent=permanent)
        else:
            deleted = [await registry.delete_version(subject, version, permanent=permanent)]
        for number in deleted:
            if permanent:
                self.told.versions.pop((subject, number), None)
                self.told.gone.add((subject, number))
            else:
                schema_id, _ = self.told.versions[subject, number]
                self.told.versions[subject, number] = (schema_id, True)
        if not registry.state.subjects.get(subject) or not registry.state.subjects[subject].live():
            self.told.configs[subject] = self.told.modes[subject] = None
        self.told.unsure.discard(subject)

    async def configure(self, subject: str, level: str | None) -> None:
        self.told.unsure.add(subject)
        await self.broker.schemas.configure(subject, None if level is None else {"compatibilityLevel": level})
        self.told.configs[subject] = level
        self.told.unsure.discard(subject)

    async def set_mode(self, subject: str, mode: str | None) -> None:
        self.told.unsure.add(subject)
        await self.broker.schemas.set_mode(subject, mode)
        self.told.modes[subject] = mode
        self.told.unsure.discard(subject)


# Scripts


async def register_and_evolve(stage: Stage) -> None:
    await stage.register("s", text("one"))
    await stage.configure("s", "FULL")
    await stage.register("s", text("two"))
    await stage.register("t", text("two"))
    await stage.restart()
    await stage.register("s", text("three"))
    await stage.register("u", text("uses", record="U"), Reference("r", "s", 1))
    await stage.set_mode("u", "READONLY")
    await stage.configure("", "NONE")


async def delete_softly_and_for_good(stage: Stage) -> None:
    for name in ("one", "two", "three"):
        await stage.register("s", text(name))
    await stage.configure("s", "NONE")
    await stage.delete("s", 3)
    await stage.delete("s", 3, permanent=True)
    await stage.register("s", text("four"))
    await stage.delete("s")
    await stage.restart()
    await stage.delete("s", permanent=True)
    await stage.register("s", text("five"))
    await stage.register("s", text("one"))


async def write_the_state_down(stage: Stage) -> None:
    await stage.register("s", text("one", 20_000))
    await stage.snapshot()
    await stage.register("s", text("two"))
    await stage.delete("s", 1)
    await stage.snapshot()
    await stage.delete("s", 1, permanent=True)
    await stage.register("t", text("three"))
    await stage.restart()
    await stage.snapshot()
    await stage.register("t", text("four"))
    await stage.restart()


async def register_the_same_at_once(stage: Stage) -> None:
    """Whoever comes second is not told before what the first has done is on the disk."""
    for number in range(3):
        schema = text(f"number {number}")
        await asyncio.gather(*(stage.register("s", schema) for _ in range(3)), stage.register_again("s", schema))
    await asyncio.gather(*(stage.register("t", text(name)) for name in ("a", "b", "c")))
    assert [each.version for each in stage.broker.schemas.state.versions("t")] == [1, 2, 3]


async def look_while_one_is_registered(stage: Stage) -> None:
    """One of them looks right when it can be seen, and is not on the disk yet."""
    await stage.register("s", text("first"))
    for turns in range(10):
        schema = text(f"number {turns}")
        await asyncio.gather(stage.register("s", schema), stage.find_after(turns, "s", schema))


async def look_up_what_is_being_registered(stage: Stage) -> None:
    """By its id, and by its version: neither is told before it is on the disk."""
    for number in range(1, 4):
        await asyncio.gather(stage.register("s", text(f"number {number}")), stage.look_up(number))
    for number in range(4, 7):
        await asyncio.gather(stage.register("t", text(f"number {number}")), stage.look_at("t", number - 3))


SCRIPTS: tuple[Script, ...] = (
    register_and_evolve,
    delete_softly_and_for_good,
    write_the_state_down,
    register_the_same_at_once,
    look_while_one_is_registered,
    look_up_what_is_being_registered,
)


def run_schema_script(script: Script, seed: int, *, outcomes: int = 1) -> int:
    """Raises ``Broken`` if a crash at some call can break a promise. Returns how many crashes were tried."""
    module: Any = goqueue.broker.registry.parsed_schemas
    before, threads = goqueue.storage.log.group_commit.ThreadPoolExecutor, module.ThreadPoolExecutor
    goqueue.storage.log.group_commit.ThreadPoolExecutor = lambda *_, **__: InlineExecutor()  # type: ignore[assignment,misc]
    # Schemas are read at once: who comes first would else be up to threads.
    module.ThreadPoolExecutor = lambda *_, **__: InlineExecutor()
    name = f"{script.__name__} with seed {seed}"
    try:
        stage = Stage(Random(seed), outcomes)
        asyncio.run(_play(stage, script, name))
        asyncio.run(_check_all(stage.left, name))
        return len(stage.left)
    finally:
        goqueue.storage.log.group_commit.ThreadPoolExecutor = before  # type: ignore[misc]
        module.ThreadPoolExecutor = threads


async def _play(stage: Stage, script: Script, name: str) -> None:
    try:
        await stage.start()
        await script(stage)
        stage.told.check(stage.broker.schemas)
        await stage.broker.close()
    except Exception as error:
        raise Broken(f"{name}, without any crash: {error!r}") from error


async def _check_all(left: Iterable[tuple[PowerLossDisk, Told]], name: str) -> None:
    for place, (disk, told) in enumerate(left):
        try:
            await _check(disk, told)
        except Exception as error:
            raise Broken(f"{name}, crash {place}: {error!r}") from error


async def _check(disk: PowerLossDisk, told: Told) -> None:
    broker = await started(disk)
    try:
        if broker.damage():
            raise Broken(f"a power loss looks like damage: {broker.damage()}")
        told.check(broker.schemas)
        made = await broker.schemas.register("after all", SchemaDraft(text("after all")))
        if made.record.schema_id in told.ids:
            raise Broken(f"id {made.record.schema_id} is given again")
    finally:
        with suppress(Exception):
            await broker.close()
