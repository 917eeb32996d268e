"""A plan: what clients do, what fails, and in which order. It follows from its seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

ACTORS = 4
"""Clients that work at the same time."""
FAULTS = 0
"""The actor who breaks things."""

OPERATIONS: Mapping[str, int] = {
    "publish": 14,
    "publish_delayed": 4,
    "publish_once": 3,
    "start_numbering": 1,
    "publish_numbered": 4,
    "publish_numbered_again": 2,
    "publish_out_of_order": 1,
    "poll": 14,
    "ack": 12,
    "ack_again": 2,
    "nack": 4,
    "reject": 3,
    "extend": 2,
    "poll_as_former": 1,
    "leave": 2,
    "come_back": 2,
    "heartbeat": 2,
    "stream": 6,
    "commit_as_former": 1,
    "fetch_offsets": 1,
    "read": 8,
    "cancel": 2,
    "reschedule": 2,
    "begin": 3,
    "write_in_transaction": 5,
    "ack_in_transaction": 3,
    "begin_again": 2,
    "write_again": 1,
    "write_as_former": 1,
    "commit": 3,
    "abort": 1,
    "prepare": 1,
    "commit_many": 1,
    "ask_for_key": 1,
    "redrive": 1,
    "make_topic": 1,
    "drop_topic": 1,
    "configure_group": 1,
    "reset_group": 1,
    "delete_group": 1,
    "register_schema": 1,
    "look_up_schema": 2,
    "publish_checked": 2,
    "purge": 1,
    "back_up": 1,
}
"""How often clients do what."""
DISTURBANCES: Mapping[str, int] = {
    "kill": 4,
    "cut_power": 5,
    "cut_power_after_answer": 8,
    "restart": 2,
    "fail_sync": 2,
    "fill_disk": 2,
    "slow_disk": 2,
    "release_shard": 3,
    "release_coordinator": 3,
    "save_state": 4,
    "move_clock": 1,
    "cut_tail": 4,
}
_DISTURBANCE_SHARE = (0.0, 0.01, 0.03, 0.06)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that an actor does, ``pause_ms`` after its step before. ``seed`` decides on all details.

    What goes wrong does so when clients have begun as many steps as precede it in the plan.
    """

    actor: int
    kind: str
    pause_ms: int
    seed: int


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    steps: tuple[Step, ...]

    def without(self, left_out: range) -> Plan:
        return replace(self, steps=tuple(each for at, each in enumerate(self.steps) if at not in left_out))


def make_plan(seed: int, size: int) -> Plan:
    rng = Random(f"plan {seed}")
    share = rng.choice(_DISTURBANCE_SHARE)
    operations, disturbances = _some(rng, OPERATIONS), _some(rng, DISTURBANCES)
    hurry = rng.choice((1, 10, 100))
    return Plan(
        seed,
        tuple(
            Step(
                FAULTS if (fails := rng.random() < share) else rng.randint(1, ACTORS),
                _chosen(rng, disturbances if fails else operations),
                rng.choice((0, 0, rng.randrange(1 + 4 * hurry))),
                rng.getrandbits(32),
            )
            for _ in range(size)
        ),
    )


def _some(rng: Random, weights: Mapping[str, int]) -> Mapping[str, int]:
    """Some plans do without some kinds, so that others meet more often."""
    return {kind: weight * rng.choice((0, 1, 1, 1, 3)) for kind, weight in weights.items()} or weights


def _chosen(rng: Random, weights: Mapping[str, int]) -> str:
    if not any(weights.values()):
        return next(iter(weights))
    return rng.choices(list(weights), list(weights.values()))[0]
