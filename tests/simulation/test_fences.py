"""The model of what is over: members that have left, producers that were replaced, numbers that never fall."""

from __future__ import annotations

from itertools import count

import pytest

from goqueue.simulation.fences import Fences
from goqueue.simulation.promises import Broken


@pytest.fixture
def fences() -> Fences:
    return Fences(count(10).__next__, Broken)


def test_what_was_asked_for_after_the_end_must_not_succeed(fences: Fences) -> None:
    fences.check("member", 5, "a poll was answered")
    fences.end("member")
    with pytest.raises(Broken, match="a poll was answered, as member, whose time was over"):
        fences.check("member", 11, "a poll was answered")
    fences.check("another member", 11, "a poll was answered")


def test_what_was_asked_for_before_the_end_may_succeed(fences: Fences) -> None:
    fences.end("member")
    fences.end("member")
    fences.check("member", 9, "a poll was answered")


def test_a_number_does_not_fall_between_an_answer_and_the_next_request(fences: Fences) -> None:
    fences.reach("generation", 3, asked_at=1)
    fences.reach("generation", 2, asked_at=9)
    with pytest.raises(Broken, match="generation is 2, after it was 3"):
        fences.reach("generation", 2, asked_at=11)


def test_whether_a_number_was_passed(fences: Fences) -> None:
    assert not fences.was_passed("generation", 2, asked_at=11)
    fences.reach("generation", 3, asked_at=1)
    assert fences.was_passed("generation", 2, asked_at=11)
    assert not fences.was_passed("generation", 3, asked_at=11)
    assert not fences.was_passed("generation", 2, asked_at=9)
