"""Settlements that come too late: by a delivery that did not settle the message, and one's own ack again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from behaviour.driver import Driver
from behaviour.groups import Polled, Verb
from behaviour.member import Member, filled, letters, values

Start = Callable[..., Driver]
VERBS: dict[Verb, dict[str, object]] = {
    "ack": {},
    "nack": {"delay_ms": 0},
    "reject": {"reason": "late"},
    "extend": {"delay_ms": 1_000},
}


def refused_all(member: Member, message: Polled) -> bool:
    """Whether nothing at all can be done with this delivery any more."""
    outcomes = [member.try_to(verb, [message], **fields) for verb, fields in VERBS.items()]
    return outcomes == [["stale_receipt"]] * len(VERBS)


def delivered_twice(driver: Driver, name: str) -> tuple[Member, Polled, Polled]:
    """The first delivery of a message, and the second, which has it."""
    filled(driver, name, "a")
    member = Member(driver, name)
    first = member.next()
    member.nack(first, delay_ms=0)
    return member, first, member.next()


def test_a_message_that_another_delivery_acked_is_not_acked_by_the_earlier_one(shared: Driver, name: str) -> None:
    member, first, second = delivered_twice(shared, name)
    member.ack(second)
    assert refused_all(member, first)
    member.ack(second)


def test_a_rejected_message_cannot_be_settled_again_on_its_way_or_when_it_is_there(shared: Driver, name: str) -> None:
    filled(shared, name, "a")
    member = Member(shared, name)
    message = member.next()
    member.reject(message)
    assert refused_all(member, message)
    letters(shared, name, 1)
    assert refused_all(member, message)


def test_a_message_that_was_tried_often_enough_cannot_be_settled_by_any_delivery(shared: Driver, name: str) -> None:
    filled(shared, name, "a", max_retries=1)
    member = Member(shared, name)
    first = member.next()
    member.nack(first, delay_ms=0)
    last = member.next()
    member.nack(last, delay_ms=0)
    letters(shared, name, 1)
    assert refused_all(member, first)
    assert refused_all(member, last)


def test_a_late_ack_of_a_redriven_message_is_refused_and_takes_nothing_from_its_second_life(
    shared: Driver, name: str
) -> None:
    filled(shared, name, "a")
    member = Member(shared, name)
    message = member.next()
    member.reject(message)
    letters(shared, name, 1)
    assert shared.groups.redrive(name).redriven == 1
    assert refused_all(member, message)
    again = member.next()
    assert (again.value, again.offset) == (b"a", 1)
    assert refused_all(member, message)
    member.ack(again)
    assert refused_all(member, message)


def test_a_dead_letter_that_is_rejected_once_more_cannot_be_acked(shared: Driver, name: str) -> None:
    filled(shared, name, "a")
    member = Member(shared, name)
    member.reject(member.next())
    letters(shared, name, 1)
    reader = Member(shared, f"{name}-letters", f"{name}.dlq")
    letter = reader.next()
    reader.reject(letter)
    assert refused_all(reader, letter)


def test_of_a_batch_of_acks_each_is_answered_for_itself(shared: Driver, name: str) -> None:
    filled(shared, name, *"abcde")
    member = Member(shared, name)
    a, b, c, d, e = member.poll()
    member.ack(a)
    member.reject(b)
    letters(shared, name, 1)
    member.nack(c, delay_ms=0)
    again = member.next()
    member.ack(again)
    assert member.try_to("ack", [a, b, c, d, e, again]) == [None, "stale_receipt", "stale_receipt", None, None, None]
    assert shared.groups.offsets(name) == {name: {0: 5}}


def test_what_was_acked_can_be_acked_again_and_again_message_by_message(shared: Driver, name: str) -> None:
    filled(shared, name, *"abcdef")
    member = Member(shared, name)
    messages = [*member.poll(3), *member.poll(1), *member.poll(2)]
    for message in reversed(messages):
        member.ack(message)
    for message in messages:
        member.ack(message)
    member.ack(*messages)


def test_after_a_reset_an_ack_from_before_is_void_also_if_it_had_succeeded(shared: Driver, name: str) -> None:
    filled(shared, name, "a", "b")
    member = Member(shared, name)
    a, b = member.poll()
    member.ack(a)
    shared.groups.reset(name, name, offset=1)
    assert member.try_to("ack", [a, b]) == ["stale_receipt"] * 2
    shared.groups.reset(name, name, offset=2)
    assert member.try_to("ack", [a, b]) == ["stale_receipt"] * 2


def test_an_older_delivery_is_void_when_its_time_ran_out_and_another_has_settled_it(timed: Driver, name: str) -> None:
    filled(timed, name, "a")
    slow, other = Member(timed, name, kind="shared"), Member(timed, name)
    late = slow.next()
    timed.let_pass(30_000)
    other.ack(other.next())
    assert refused_all(slow, late)


@pytest.mark.parametrize("restarts", [1, 2])
def test_a_restart_forgets_neither_who_acked_nor_who_did_not(start: Start, restarts: int) -> None:
    driver = start()
    filled(driver, "t", *"abcd")
    member = Member(driver, "g", "t")
    a, b, c, d = member.poll()
    member.ack(a)
    member.reject(b)
    letters(driver, "t", 1)
    member.nack(c, delay_ms=0)
    again = member.next()
    member.ack(again)
    for _ in range(restarts):
        driver.restart()
    assert member.try_to("ack", [a, b, c, d, again]) == [None, "stale_receipt", "stale_receipt", None, None]
    assert refused_all(member, b)
    assert refused_all(member, c)
    assert values(member.poll()) == []
