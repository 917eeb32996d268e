"""Commits, resets, and groups that are ahead of their log, decided without a broker."""

from __future__ import annotations

import pytest

from goqueue.delivery.committed_offsets import decide_commit, decide_cut, decide_reset
from goqueue.delivery.dead_letters import decide_moved, decide_redrive
from goqueue.delivery.events import Committed, CutTo, Delivered, Moved, Moving, QueueOpened, ResetTo, Target
from goqueue.delivery.queue import Queue
from goqueue.model.errors import OffsetOutOfRange
from goqueue.model.ids import QueueKey, TopicId

Q = QueueKey("id/topic/0")
TARGET = Target("t", TopicId("topic"), 0, 7)
OTHER = Target("t", TopicId("topic"), 1, 2)


def queue_at(start: int) -> Queue:
    return Queue(QueueOpened(Q, "g", TopicId("topic"), 0, start), {})


def test_a_stream_is_committed_forward_only() -> None:
    queue = queue_at(5)
    assert decide_commit(queue, 9) == [Committed(Q, 9)]
    assert decide_commit(queue, 5) == []
    assert decide_commit(queue, 9, since=6) == [], "it was set back since"


def test_a_reset_lies_within_the_log() -> None:
    assert decide_reset(Q, 3, 3, 8) == ResetTo(Q, 3)
    assert decide_reset(Q, 8, 3, 8) == ResetTo(Q, 8)
    for offset in (2, 9):
        with pytest.raises(OffsetOutOfRange, match="there are 3 to 8"):
            decide_reset(Q, offset, 3, 8)


def test_a_group_ahead_of_its_log_is_cut_back() -> None:
    queue = queue_at(0)
    queue.apply(Delivered(Q, [0, 6], None, 6, "m", 9))
    assert decide_cut(queue, 6) == []
    assert decide_cut(queue, 4) == [CutTo(Q, 4)]


def test_a_redrive_sends_each_dead_letter_once_and_groups_them_by_target() -> None:
    queue = queue_at(0)
    events = decide_redrive(queue, {4: TARGET, 1: TARGET, 2: OTHER})
    assert events == [
        Moving(Q, [], [1, 2, 4, 5], "redriven", TARGET),
        Moving(Q, [], [2, 3], "redriven", OTHER),
    ]
    for event in events:
        queue.apply(event)
    assert decide_redrive(queue, {1: TARGET}) == [], "it is on its way"
    queue.apply(decide_moved(queue, [1, 4])[0])
    assert decide_redrive(queue, {1: TARGET, 3: TARGET}) == [Moving(Q, [], [3, 4], "redriven", TARGET)]


def test_only_what_was_on_its_way_is_moved() -> None:
    queue = queue_at(0)
    assert decide_moved(queue, [1]) == []
    queue.apply(Moving(Q, [], [1, 3], "redriven", TARGET))
    assert decide_moved(queue, [2, 1, 9]) == [Moved(Q, [1, 3])]
