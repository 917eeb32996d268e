"""Members of groups: they join, come back as the same instance in another process, leave, and act when their time is
over."""

from __future__ import annotations

from random import Random

from goqueue.broker.operations import IN_PROCESS, Assignment, Join
from goqueue.model.errors import GoQueueError, GroupNotFound, MemberFenced, UnknownMember
from goqueue.simulation.processes import Killed
from goqueue.simulation.promises import Broken
from goqueue.simulation.world import PASSING, QUEUES, STREAMS, Actor, Membership, World, is_doubtful

_SESSION_MS = 20_000
_FORMER = 20


async def member_of(world: World, actor: Actor, group: str) -> Membership | None:
    """The actor's member of a group; it joins if it has none."""
    return actor.members.get(group) or await _join(world, actor, group)


async def _join(world: World, actor: Actor, group: str, instance_id: str = "") -> Membership | None:
    settings = world.settings[group]
    request = Join(
        f"actor-{actor.number}",
        [world.topic_of(group)],
        settings,
        session_timeout_ms=_SESSION_MS,
        instance_id=instance_id,
    )
    asked_at, asked_s = world.promises.tick(), world.loop.time()
    joined = await world.ask(f"join {group}", lambda broker: broker.operations.groups.join(IN_PROCESS, group, request))
    if group == PASSING and (is_doubtful(joined) or not isinstance(joined, GoQueueError)):
        world.passing.made(is_doubtful=is_doubtful(joined))
    if isinstance(joined, GoQueueError | Killed):
        return None
    made = actor.members[group] = Membership(group, joined.member_id, joined.generation, asked_s, instance_id)
    _note_generation(world, made, joined, asked_at)
    return made


def _note_generation(world: World, member: Membership, told: Assignment, asked_at: int) -> None:
    member.generation = told.generation
    if member.group != PASSING:
        # That one begins anew when it was deleted.
        world.promises.fences.reach(f"the generation of {member.group}", told.generation, asked_at)


def note_answer(world: World, actor: Actor, member: Membership, asked_at: int, asked_s: float, answer: object) -> None:
    """A member's request was answered: it succeeds as long as it is a member, and fails from then on."""
    if isinstance(answer, UnknownMember | MemberFenced | GroupNotFound):
        if actor.members.get(member.group) is member:
            del actor.members[member.group]
        silent_s = world.loop.time() - member.heard_s
        if silent_s < _SESSION_MS / 1_000 and not _may_be_over(actor, member):
            raise Broken(f"{member} is not known any more, and was heard of {silent_s:.3f} s before: {answer}")
    elif not isinstance(answer, GoQueueError | Killed):
        world.promises.fences.check((member.group, member.member_id), asked_at, "a request was answered")
        member.heard_s = max(member.heard_s, asked_s)


def _may_be_over(actor: Actor, member: Membership) -> bool:
    return member.group == PASSING or any(each is member for each in actor.former)


def retire(actor: Actor, member: Membership) -> None:
    """The client may still act as this member, which it should not."""
    if actor.members.get(member.group) is member:
        del actor.members[member.group]
    actor.former.append(member)
    del actor.former[:-_FORMER]


async def leave(world: World, actor: Actor, rng: Random) -> None:
    group = rng.choice([each for each in (*QUEUES, *STREAMS) if each != PASSING])
    member = actor.members.get(group)
    if member is None:
        return
    retire(actor, member)
    left = await world.ask(
        f"leave {group}", lambda broker: broker.operations.groups.leave(IN_PROCESS, group, member.member_id)
    )
    if left is True:
        world.promises.fences.end((group, member.member_id))


async def come_back(world: World, actor: Actor, rng: Random) -> None:
    """The client is started again: it joins as the instance that it was, which ends the member that it had."""
    group = rng.choice([each for each in (*QUEUES, *STREAMS) if each != PASSING])
    instance_id = f"instance-{actor.number}"
    before = actor.members.get(group)
    if before is not None and before.instance_id:
        retire(actor, before)
        if await _join(world, actor, group, instance_id) is not None:
            world.promises.fences.end((group, before.member_id))
    elif before is None:
        await _join(world, actor, group, instance_id)


async def heartbeat(world: World, actor: Actor, rng: Random) -> None:
    """Of one of its members, or of one whose time is over."""
    chosen = [*actor.members.values(), *actor.former[-3:]]
    if not chosen:
        return
    member = rng.choice(chosen)
    asked_at, asked_s = world.promises.tick(), world.loop.time()
    told = await world.ask(
        f"heartbeat of {member.group}",
        lambda broker: broker.operations.groups.heartbeat(IN_PROCESS, member.group, member.member_id, None),
    )
    note_answer(world, actor, member, asked_at, asked_s, told)
    if isinstance(told, Assignment):
        _note_generation(world, member, told, asked_at)
