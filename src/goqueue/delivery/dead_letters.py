"""Decision on messages that are not delivered again: move them to the dead-letter topic, or give them up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from goqueue.delivery.events import Acked, AnyQueueEvent, Moved, Moving, Parts, Target
from goqueue.delivery.queue import Queue
from goqueue.model.ids import QueueKey
from goqueue.model.message import Priority
from goqueue.model.runs import Runs, to_runs

_LANE = int(Priority.NORMAL)
_REDRIVEN = "redriven"
MAX_REASON_LENGTH = 1_000
EXPIRED_REASON = "its time to live was over"
"""Of a dead letter that was never delivered."""

FindTarget = Callable[[], Target | None]
"""Where dead letters of a queue go as of now; ``None`` if they stay where they are, as dead letters themselves do.

A function, because finding it looks at every topic and few decisions need it.
"""


def decide_dead_letters(
    key: QueueKey, parts: Parts, fresh: Runs, reason: str, target: Target | None, lane: int = _LANE
) -> list[AnyQueueEvent]:
    """``parts`` were delivered; ``fresh`` are messages of ``lane`` that never were."""
    reason = reason[:MAX_REASON_LENGTH]
    if target is None:
        return [Acked(key, parts, reason), Moved(key, fresh, lane)]
    return [Moving(key, parts, fresh, reason, target, lane)]


def decide_moved(queue: Queue, offsets: Iterable[int]) -> list[Moved]:
    """Copies of these messages are durable in their target: they are done."""
    moved = sorted(set(offsets) & queue.moving.keys())
    return [Moved(queue.key, to_runs(moved))] if moved else []


def decide_redrive(queue: Queue, targets: Mapping[int, Target]) -> list[Moving]:
    """Send dead letters back: ``targets`` has where each offset goes. Each goes once, so some may have gone already."""
    by_target: dict[Target, list[int]] = {}
    for offset, target in targets.items():
        if not queue.is_done(offset, _LANE) and offset not in queue.moving:
            by_target.setdefault(target, []).append(offset)
    return [Moving(queue.key, [], to_runs(sorted(some)), _REDRIVEN, target) for target, some in by_target.items()]
