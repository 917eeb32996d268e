"""Who works on which partitions. Pure functions of who there is and who has what now.

``partitions`` are by topic; ``subscribed`` has each member's topics, and its order is the order of the members.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence

from goqueue.model.ids import PartitionKey

Partitions = Mapping[str, Sequence[PartitionKey]]
Owners = dict[PartitionKey, str]
"""The member that has a partition, by partition."""
_Held = dict[str, dict[str, list[PartitionKey]]]
"""Partitions by member and topic."""


def assign_range(partitions: Partitions, subscribed: Mapping[str, Sequence[str]]) -> Owners:
    """Each topic's partitions in order, split evenly among the members that subscribe to it."""
    owners: Owners = {}
    for topic, members in _members_by_topic(partitions, subscribed).items():
        if not members:
            continue
        listed = partitions[topic]
        share, more = divmod(len(listed), len(members))
        at = 0
        for place, member in enumerate(members):
            end = at + share + (place < more)
            owners.update(dict.fromkeys(listed[at:end], member))
            at = end
    return owners


def assign_sticky(
    partitions: Partitions,
    subscribed: Mapping[str, Sequence[str]],
    before: Mapping[PartitionKey, str],
    in_hand: Mapping[PartitionKey, str] | None = None,
) -> Owners:
    """As even as the subscriptions allow, moving as few partitions from their owners as that takes.

    ``before`` has the owner, or the next owner, of each partition; ``in_hand`` its present owner, if that is another.
    """
    members_of = _members_by_topic(partitions, subscribed)
    held: _Held = {member: {} for member in subscribed}
    load = dict.fromkeys(subscribed, 0)
    rank = {member: place for place, member in enumerate(subscribed)}
    homeless: dict[str, list[PartitionKey]] = {}
    for topic, listed in partitions.items():
        interested = set(members_of[topic])
        for partition in listed:
            owner = before.get(partition)
            if owner in interested:
                held[owner].setdefault(topic, []).append(partition)
                load[owner] += 1
            elif interested:
                homeless.setdefault(topic, []).append(partition)
    # After all the others: a member that gets one must not have to give one of its own away for it.
    for topic, listed in homeless.items():
        by_load = [(load[member], rank[member], member) for member in members_of[topic]]
        heapq.heapify(by_load)
        for partition in listed:
            _, place, member = by_load[0]
            held[member].setdefault(topic, []).append(partition)
            load[member] += 1
            heapq.heapreplace(by_load, (load[member], place, member))
    _even_out(held, load, members_of, before if in_hand is None else in_hand)
    return {
        partition: member for member, by_topic in held.items() for listed in by_topic.values() for partition in listed
    }


def _members_by_topic(partitions: Partitions, subscribed: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {topic: [] for topic in partitions}
    for member, topics in subscribed.items():
        for topic in dict.fromkeys(topics):
            if topic in found:
                found[topic].append(member)
    return found


def _even_out(
    held: _Held, load: dict[str, int], members_of: Mapping[str, list[str]], in_hand: Mapping[PartitionKey, str]
) -> None:
    """Move partitions from members that have much until none can be given any without getting too much."""
    stuck: set[str] = set()
    while True:
        least = min(load.values(), default=0)
        givers = [member for member in load if load[member] - least > 1 and member not in stuck]
        if not givers:
            return
        giver = max(givers, key=lambda member: load[member])
        way = _way_down(giver, held, load, members_of)
        if not way:
            stuck.add(giver)
            continue
        # Others have other partitions now, which may open ways that were not there.
        stuck.clear()
        at = giver
        for topic, taker in way:
            held[taker].setdefault(topic, []).append(_pick(held[at][topic], at, taker, in_hand))
            at = taker
        load[giver] -= 1
        load[at] += 1


def _pick(listed: list[PartitionKey], giver: str, taker: str, in_hand: Mapping[PartitionKey, str]) -> PartitionKey:
    """Rather one that never left the taker, or is yet to reach the giver, than one that has to move."""

    def trouble(place: int) -> tuple[int, int]:
        owner = in_hand.get(listed[place])
        return (0 if owner == taker else 1 if owner != giver else 2), -place

    return listed.pop(min(range(len(listed)), key=trouble))


def _way_down(
    giver: str, held: _Held, load: Mapping[str, int], members_of: Mapping[str, list[str]]
) -> list[tuple[str, str]]:
    """The shortest way on which partitions can be passed on from ``giver`` to the least busy with two fewer."""
    came: dict[str, tuple[str, str]] = {}
    seen_topics: set[str] = set()
    level = deque([giver])
    seen = {giver}
    while level:
        following: deque[str] = deque()
        for member in level:
            for topic, listed in held[member].items():
                if not listed or topic in seen_topics:
                    continue
                seen_topics.add(topic)
                for taker in members_of[topic]:
                    if taker not in seen:
                        seen.add(taker)
                        came[taker] = member, topic
                        following.append(taker)
        fitting = [member for member in following if load[giver] - load[member] > 1]
        if fitting:
            return _steps(giver, min(fitting, key=lambda member: load[member]), came)
        level = following
    return []


def _steps(giver: str, taker: str, came: Mapping[str, tuple[str, str]]) -> list[tuple[str, str]]:
    steps: list[tuple[str, str]] = []
    while taker != giver:
        member, topic = came[taker]
        steps.append((topic, taker))
        taker = member
    return steps[::-1]
