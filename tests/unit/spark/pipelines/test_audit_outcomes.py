"""What became of a message, by what is known of it. Each lie is found, and each honest story believed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from goqueue.spark.pipelines.analysis.offset_blocks import BLOCK
from goqueue.spark.pipelines.auditing.audit_kinds import (
    ANY_LANE,
    FATE_TEXTS,
    Evidence,
    Fate,
    Kind,
    Knowledge,
    evidence_rows,
)
from goqueue.spark.pipelines.auditing.audit_outcomes import determine_fates

_ALL = Knowledge(has_runs=True, has_letters=True, has_delays=True, is_whole=True)
_BASE = 2 * BLOCK
_AT = _BASE + 7
_STORY = [Kind.MESSAGE, Kind.PUBLISHED]
_DONE = [Kind.DONE, Kind.DONE_LATER]


def _evidence(rows: Sequence[tuple[int, ...]]) -> Evidence:
    return Evidence(*(np.array(column, np.int64) for column in zip(*rows, strict=True)))


def _judge(kinds: list[Kind], knows: Knowledge = _ALL, *, done_in_lane: int = ANY_LANE) -> Fate | None:
    """The fate of a message in lane 2 to which these happened one after the other."""
    rows = []
    for seq, kind in enumerate(kinds):
        lane = 2 if kind == Kind.MESSAGE else done_in_lane if kind in _DONE else ANY_LANE
        rows.append((int(kind), lane, seq, _AT, _AT + 1))
    found = determine_fates(_evidence(rows), _BASE, knows)
    assert len(found.fate) <= 1
    if not len(found.fate):
        return None
    assert (found.first[0], found.size[0]) == (_AT, 1)
    return Fate(found.fate[0])


@pytest.mark.parametrize(
    ("kinds", "fate"),
    [
        ([Kind.CONSUMED, Kind.ACKED, *_DONE], Fate.ACKED),
        ([Kind.COMMITTED, *_DONE], Fate.ACKED),
        ([Kind.DIED, Kind.LETTER, *_DONE], Fate.DEAD_LETTERED),
        ([Kind.EXPIRED, *_DONE], Fate.EXPIRED),
        ([Kind.CONSUMED, Kind.DISCARDED, *_DONE], Fate.DISCARDED),
        ([Kind.SKIPPED, *_DONE], Fate.SKIPPED),
        ([Kind.BEFORE, *_DONE], Fate.BEFORE),
        ([], Fate.NOT_DELIVERED),
        ([Kind.CONSUMED, Kind.IN_FLIGHT], Fate.IN_FLIGHT),
        ([Kind.CONSUMED, Kind.RETRY], Fate.RETRY),
        ([Kind.CONSUMED, Kind.FROZEN], Fate.FROZEN),
        ([Kind.CONSUMED, Kind.MOVING], Fate.MOVING),
        # Set back after it was acked: it is to come again, and then it does.
        ([Kind.CONSUMED, Kind.ACKED, Kind.VOIDED], Fate.NOT_DELIVERED),
        ([Kind.LETTER, Kind.DIED, Kind.VOIDED], Fate.NOT_DELIVERED),
        ([Kind.CONSUMED, Kind.ACKED, Kind.VOIDED, Kind.CONSUMED, Kind.ACKED, *_DONE], Fate.ACKED),
        # It was acked while the audit looked.
        ([Kind.CONSUMED, Kind.ACKED, Kind.DONE_LATER], Fate.ACKED),
    ],
)
def test_an_honest_story_is_believed(kinds: list[Kind], fate: Fate) -> None:
    assert _judge([*_STORY, *kinds]) == fate
    assert fate < Fate.NEVER_DELIVERED


@pytest.mark.parametrize(
    ("kinds", "fate"),
    [
        (_DONE, Fate.NEVER_DELIVERED),
        ([Kind.CONSUMED, *_DONE], Fate.NEVER_ACKED),
        ([Kind.ACKED, *_DONE], Fate.ACKED_UNSEEN),
        ([Kind.CONSUMED, Kind.ACKED], Fate.ACK_FORGOTTEN),
        ([Kind.COMMITTED], Fate.ACK_FORGOTTEN),
        ([Kind.DIED, *_DONE], Fate.LETTER_MISSING),
        ([Kind.LETTER, Kind.RETRY], Fate.LETTER_EARLY),
        # The ack was for what lay there before.
        ([Kind.CONSUMED, Kind.ACKED, Kind.VOIDED, *_DONE], Fate.NEVER_DELIVERED),
        ([Kind.CONSUMED, Kind.ACKED, Kind.REPLACED, Kind.PUBLISHED, *_DONE], Fate.NEVER_DELIVERED),
        ([Kind.LETTER, Kind.DIED, Kind.VOIDED, *_DONE], Fate.NEVER_DELIVERED),
    ],
)
def test_a_lie_is_found(kinds: list[Kind], fate: Fate) -> None:
    assert _judge([*_STORY, *kinds]) == fate
    assert FATE_TEXTS[fate][0] == "unaccounted"


def test_what_is_not_traced_is_the_groups_word() -> None:
    assert _judge([Kind.MESSAGE, *_DONE]) == Fate.SETTLED
    assert _judge([Kind.MESSAGE, Kind.ACKED, *_DONE]) == Fate.SETTLED
    # Its publishing was that of a message of a topic that is gone.
    assert _judge([Kind.PUBLISHED, Kind.REPLACED, Kind.MESSAGE, *_DONE]) == Fate.SETTLED


def test_a_copy_is_traced_if_its_neighbours_are() -> None:
    copy = [Kind.MESSAGE, Kind.COPIED, *_DONE]
    assert _judge(copy) == Fate.SETTLED
    rows = [(int(kind), 2 if kind == Kind.MESSAGE else ANY_LANE, 0, _AT, _AT + 1) for kind in copy]
    rows.append((int(Kind.PUBLISHED), ANY_LANE, 1, _AT + 100, _AT + 101))
    found = determine_fates(_evidence(rows), _BASE, _ALL._replace(is_whole=False))
    assert found.fate.tolist() == [Fate.NEVER_DELIVERED]


def test_done_in_another_lane_is_not_done() -> None:
    assert _judge([*_STORY, *_DONE], done_in_lane=2) == Fate.NEVER_DELIVERED
    assert _judge([*_STORY, *_DONE], done_in_lane=0) == Fate.NOT_DELIVERED


def test_a_dead_letter_that_retention_may_have_removed_is_not_missed() -> None:
    assert _judge([*_STORY, Kind.DIED, *_DONE], _ALL._replace(has_letters=False)) == Fate.DEAD_LETTERED


def test_without_the_groups_runs_nothing_beyond_its_offset_is_judged() -> None:
    knows = _ALL._replace(has_runs=False)
    assert _judge([*_STORY, Kind.CONSUMED, Kind.ACKED], knows) == Fate.OPEN
    assert _judge([Kind.MESSAGE, Kind.LETTER], knows) == Fate.DEAD_LETTERED
    assert _judge([Kind.MESSAGE, Kind.DONE], knows) == Fate.SETTLED


def test_what_is_not_in_the_log_is_judged_if_it_was_delayed_or_lost() -> None:
    assert _judge([Kind.PUBLISHED, Kind.DELAYED, Kind.WAITING]) == Fate.DELAYED
    assert _judge([Kind.PUBLISHED, Kind.DELAYED, Kind.CANCELLED]) == Fate.CANCELLED
    assert _judge([Kind.PUBLISHED, Kind.DELAYED, Kind.FIRED]) is None
    assert _judge([Kind.PUBLISHED, Kind.DELAYED, Kind.ABORTED]) is None
    assert _judge([Kind.PUBLISHED, Kind.DELAYED]) == Fate.DELAY_LOST
    assert _judge([Kind.PUBLISHED, Kind.DELAYED], _ALL._replace(has_delays=False)) == Fate.DELAYED
    assert _judge([Kind.PUBLISHED, Kind.LOST]) == Fate.LOST
    assert _judge([Kind.LOST]) is None


def test_what_was_published_and_is_not_in_the_log_is_gone_whatever_the_group_says() -> None:
    assert _judge([Kind.PUBLISHED]) == Fate.GONE
    assert _judge([Kind.PUBLISHED, *_DONE]) == Fate.GONE
    assert _judge([Kind.PUBLISHED, Kind.CONSUMED, Kind.ACKED, *_DONE]) == Fate.GONE
    assert FATE_TEXTS[Fate.GONE] == ("unaccounted", "it was published and is not in the log")
    # A transaction took it back; its topic was another; or nobody knows that there was a message.
    assert _judge([Kind.PUBLISHED, Kind.ABORTED, *_DONE]) is None
    assert _judge([Kind.PUBLISHED, Kind.REPLACED, *_DONE]) is None
    assert _judge([Kind.CONSUMED, Kind.ACKED, *_DONE]) is None
    # Compaction may have taken it.
    knows = _ALL._replace(is_whole=False)
    assert _judge([Kind.PUBLISHED, Kind.CONSUMED, Kind.ACKED, *_DONE], knows) is None
    assert _judge([Kind.PUBLISHED, Kind.LOST], knows) == Fate.LOST


def test_a_hole_among_messages_that_were_acked_is_found() -> None:
    rows = [(Kind.PUBLISHED, ANY_LANE, 1, _BASE, _BASE + 10), (Kind.DONE, ANY_LANE, 0, _BASE, _BASE + 10)]
    for low, high in ((_BASE, _BASE + 5), (_BASE + 8, _BASE + 10)):
        rows += [(Kind.MESSAGE, 2, 0, low, high), (Kind.CONSUMED, ANY_LANE, 2, low, high)]
        rows += [(Kind.ACKED, ANY_LANE, 3, low, high)]
    found = determine_fates(_evidence(rows), _BASE, _ALL)
    assert list(zip(*(column.tolist() for column in found), strict=True)) == [
        (Fate.ACKED, _BASE, 5),
        (Fate.GONE, _BASE + 5, 3),
        (Fate.ACKED, _BASE + 8, 2),
    ]


def test_redriven_for_another_group_is_no_business_of_this_one() -> None:
    assert _judge([Kind.OTHERS, Kind.PUBLISHED, *_DONE]) == Fate.OTHERS


def test_neighbours_of_one_fate_are_one_run() -> None:
    rows = [
        *evidence_rows(Kind.MESSAGE, [(2, _BASE, _BASE + 100)]),
        *evidence_rows(Kind.DONE, [(ANY_LANE, 0, _BASE + 60)]),
    ]
    inside = [row[1:] for row in rows if row[0] == _BASE // BLOCK]
    found = determine_fates(_evidence(inside), _BASE, _ALL)
    assert list(zip(*(column.tolist() for column in found), strict=True)) == [
        (Fate.SETTLED, _BASE, 60),
        (Fate.NOT_DELIVERED, _BASE + 60, 40),
    ]
