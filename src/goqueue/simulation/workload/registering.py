"""What simulated clients do with schemas: register them, look them up, and publish what fits one and what does not."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from random import Random

from goqueue.broker.broker import Broker
from goqueue.broker.operations import IN_PROCESS, Registered, SchemaDraft
from goqueue.model.errors import GoQueueError, StorageFailed
from goqueue.model.ids import SchemaId
from goqueue.simulation.processes import Killed
from goqueue.simulation.promises import Broken, Fact, Sent
from goqueue.simulation.workload.publishing import send
from goqueue.simulation.world import CHECKED, Actor, World

_SUBJECTS = ("one", "two")
_TITLES = 12
_MANY = 1_000


Told = set[Fact]
Lookup = Callable[[Broker, Fact], Awaitable[Told]]
Concerns = Callable[[Fact, Fact], bool]
"""Whether a fact must be in the answer to a question about another."""


async def register_schema(world: World, actor: Actor, rng: Random) -> None:
    subject, text = rng.choice(_SUBJECTS), json.dumps({"type": "object", "title": f"t{rng.randrange(_TITLES)}"})
    answer = await world.ask(f"register {subject}", lambda broker: register(broker, subject, text))
    if isinstance(answer, Registered):
        _note(world, {_fact(subject, answer)})


async def register(broker: Broker, subject: str, text: str) -> Registered:
    return await broker.operations.schemas.register(IN_PROCESS, subject, SchemaDraft(text, "JSON"))


async def look_up_schema(world: World, actor: Actor, rng: Random) -> None:
    """In one of the ways that there are. What was told before must be part of the answer."""
    if not world.versions:
        return
    about = rng.choice(list(world.versions))
    name = rng.choice(list(_LOOKUPS))
    look_up, concerns = _LOOKUPS[name]
    asked_at = world.promises.tick()
    answer = await world.ask(f"look up {name} of {about}", lambda broker: _called(look_up, broker, about))
    if isinstance(answer, Killed | StorageFailed):
        return
    told = set() if isinstance(answer, GoQueueError) else answer
    wanted = {fact for fact, at in world.versions.items() if at < asked_at and concerns(fact, about)}
    if missing := wanted - told:
        raise Broken(f"{sorted(missing)} were told, and {name} of {about} are {answer}")
    _note(world, told)


async def _called(look_up: Lookup, broker: Broker, about: Fact) -> Told:
    return await look_up(broker, about)


def _note(world: World, facts: Told) -> None:
    now = world.promises.tick()
    for fact in sorted(facts):
        world.versions.setdefault(fact, now)


def _fact(subject: str, found: Registered) -> Fact:
    return Fact(subject, found.version.version, found.record.schema_id)


async def _names(broker: Broker, about: Fact) -> Told:
    names = await broker.operations.schemas.names(IN_PROCESS)
    # The names alone are asked for; that they are there is what the first versions say.
    return {about} if about.subject in names else set()


async def _versions(broker: Broker, about: Fact) -> Told:
    found = await broker.operations.schemas.versions(IN_PROCESS, about.subject)
    return {Fact(about.subject, each.version, each.schema_id) for each in found}


async def _all_versions(broker: Broker, about: Fact) -> Told:
    found = await broker.operations.schemas.all_versions(
        IN_PROCESS, lambda name: True, deleted=False, latest_only=False, start=0, count=_MANY
    )
    return {_fact(subject, each) for subject, each in found}


async def _one_version(broker: Broker, about: Fact) -> Told:
    found = await broker.operations.schemas.version(IN_PROCESS, about.subject, about.version)
    return {_fact(about.subject, found)}


async def _schema(broker: Broker, about: Fact) -> Told:
    found = await broker.operations.schemas.get(IN_PROCESS, about.schema_id)
    return {about._replace(schema_id=found.schema_id)}


async def _schema_and_last_id(broker: Broker, about: Fact) -> Told:
    found, last_id = await broker.operations.schemas.get_with_last_id(IN_PROCESS, about.schema_id)
    return {about._replace(schema_id=found.schema_id)} if about.schema_id <= last_id else set()


async def _subjects_using(broker: Broker, about: Fact) -> Told:
    names = await broker.operations.schemas.subjects_using(
        IN_PROCESS, about.schema_id, subject="", deleted=False, start=0, count=_MANY
    )
    return {about} if about.subject in names else set()


async def _versions_using(broker: Broker, about: Fact) -> Told:
    found = await broker.operations.schemas.versions_using(
        IN_PROCESS, about.schema_id, subject="", deleted=False, start=0, count=_MANY
    )
    return {Fact(subject, version, about.schema_id) for subject, version in found}


async def _same_schema(broker: Broker, about: Fact) -> Told:
    text = (await broker.operations.schemas.get(IN_PROCESS, SchemaId(about.schema_id))).text
    found = await broker.operations.schemas.find(
        IN_PROCESS, about.subject, SchemaDraft(text, "JSON"), normalize=False, deleted=False
    )
    return {_fact(about.subject, found)}


def _itself(fact: Fact, about: Fact) -> bool:
    return fact == about


_LOOKUPS: dict[str, tuple[Lookup, Concerns]] = {
    "names": (_names, _itself),
    "versions": (_versions, lambda fact, about: fact.subject == about.subject),
    "all versions": (_all_versions, lambda fact, about: True),
    "a version": (_one_version, _itself),
    "a schema": (_schema, _itself),
    "a schema and the last id": (_schema_and_last_id, _itself),
    "subjects using a schema": (_subjects_using, _itself),
    "versions using a schema": (_versions_using, lambda fact, about: fact.schema_id == about.schema_id),
    "the version with a schema": (_same_schema, _itself),
}


# What fits a schema, and what does not


async def publish_checked(world: World, actor: Actor, rng: Random) -> None:
    """To a topic of which what is no string of JSON becomes a dead letter."""
    messages = []
    for _ in range(rng.choice((1, 2, 5))):
        value, fits = world.promises.new_value(), rng.random() < 0.5
        message = Sent(b'"%b"' % value if fits else value, CHECKED, fits=fits)
        world.promises.sent[message.value] = message
        messages.append(message)
    await send(world, CHECKED, messages, rng)
    for message in messages:
        if message.state == "refused":
            # If there is no room for the dead letters of a batch, the rest of it is stored already.
            message.state = "asked"
