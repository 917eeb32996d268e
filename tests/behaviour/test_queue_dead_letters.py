"""Dead letters: how messages become one, what they tell of themselves, and sending them back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from behaviour.driver import Driver
from behaviour.groups import Redriven, Wanted
from behaviour.member import Member, filled, letters, publish, refusal, values
from behaviour.waiting import until


def kill(driver: Driver, topic: str, *texts: str, group: str | None = None, reason: str = "no") -> None:
    """Have a group give these messages up."""
    publish(driver, topic, *texts)
    member = Member(driver, group or topic, topic)
    member.reject(*(message for message in member.poll() if (message.value or b"").decode() in texts), reason=reason)
    member.leave()


# How a message becomes one


def test_a_message_that_was_tried_often_enough_becomes_a_dead_letter(shared: Driver, name: str) -> None:
    filled(shared, name, "a", "b", max_retries=2)
    member = Member(shared, name)
    for deliveries in (1, 2, 3):
        message = member.next()
        assert (message.value, message.deliveries) == (b"a", deliveries)
        member.nack(message, delay_ms=0, reason=f"failed {deliveries}")
    (letter,) = letters(shared, name, 1)
    assert (letter.value, letter.deliveries, letter.error) == (b"a", 3, "failed 3")
    assert values(member.poll()) == [b"b"]


def test_a_message_that_is_never_settled_becomes_a_dead_letter(timed: Driver, name: str) -> None:
    filled(timed, name, "a")
    member = Member(timed, name, max_retries=1)
    for deliveries in (1, 2):
        assert member.next().deliveries == deliveries
        timed.let_pass(30_000)
    (letter,) = letters(timed, name, 1)
    assert (letter.deliveries, letter.error) == (2, "its visibility timed out")
    assert member.poll() == []


def test_a_message_whose_consumers_vanish_again_and_again_becomes_a_dead_letter(timed: Driver, name: str) -> None:
    filled(timed, name, "a")
    for deliveries in (1, 2):
        assert Member(timed, name, max_retries=1, session_timeout_ms=1_000).next().deliveries == deliveries
        timed.let_pass(1_000)
    (letter,) = letters(timed, name, 1)
    assert (letter.deliveries, letter.error) == (2, "its consumer left")


def test_a_message_whose_consumers_leave_in_good_order_becomes_none(shared: Driver, name: str) -> None:
    filled(shared, name, "a")
    for deliveries in (1, 2, 3):
        member = Member(shared, name, max_retries=0)
        assert member.next().deliveries == deliveries
        member.leave()
    assert f"{name}.dlq" not in shared.list_topics()


def test_a_rejected_message_is_a_dead_letter_at_once(shared: Driver, name: str) -> None:
    filled(shared, name, "a")
    member = Member(shared, name)
    member.reject(member.next(), reason="kaputt \N{COLLISION SYMBOL}\n")
    (letter,) = letters(shared, name, 1)
    assert (letter.deliveries, letter.error) == (1, "kaputt \N{COLLISION SYMBOL}\n")
    assert member.poll() == []
    until(lambda: shared.groups.offsets(name) == {name: {0: 1}})


def test_rejecting_needs_no_reason(shared: Driver, name: str) -> None:
    filled(shared, name, "a")
    member = Member(shared, name)
    member.reject(member.next())
    assert [letter.error for letter in letters(shared, name, 1)] == ["rejected"]


def test_dead_letters_go_where_the_topic_says(shared: Driver, name: str) -> None:
    end = f"{name}-end"
    filled(shared, name, "a", dead_letter_topic=end)
    member = Member(shared, name)
    member.reject(member.next())
    letters(shared, name, 1)
    assert [message.value for message in shared.read(end).messages] == [b"a"]


@pytest.mark.parametrize("text", ["../../x", "a b", "__groups", "..", "a/b", "x" * 201])
def test_dead_letters_can_only_go_to_what_can_be_a_topic(shared: Driver, name: str, text: str) -> None:
    filled(shared, name, "a")
    with refusal("invalid_settings"):
        shared.change_topic(name, dead_letter_topic=text)
    with refusal("invalid_settings"):
        shared.create_topic(f"{name}-other", dead_letter_topic=text)
    assert f"{name}-other" not in shared.list_topics()
    shared.change_topic(name, dead_letter_topic=f"{name}-end")
    shared.change_topic(name, dead_letter_topic="")
    member = Member(shared, name)
    member.reject(member.next())
    assert [letter.value for letter in letters(shared, name, 1)] == [b"a"]


def test_a_rejection_whose_dead_letter_topic_cannot_be_made_says_so_and_changes_nothing(
    start: Callable[..., Driver],
) -> None:
    driver = start(limits={"max_topics": 1})
    filled(driver, "t", *"abc")
    member = Member(driver, "g", "t")
    a, b, c = member.poll()
    member.ack(a)
    assert member.try_to("reject", [b, c]) == ["no_dead_letter_topic"] * 2
    assert member.try_to("reject", [a]) == ["stale_receipt"]
    member.ack(b)
    member.nack(c, delay_ms=0)
    assert member.next().deliveries == 2


def test_a_dead_letter_that_is_rejected_stays_where_it_lies(shared: Driver, name: str) -> None:
    filled(shared, name)
    kill(shared, name, "a")
    letters(shared, name, 1)
    mourner = Member(shared, f"{name}-mourners", f"{name}.dlq")
    mourner.reject(mourner.next())
    assert mourner.poll() == []
    assert len(letters(shared, name, 1)) == 1
    assert f"{name}.dlq.dlq" not in shared.list_topics()


# What they tell


def test_a_dead_letter_tells_where_it_came_from(timed: Driver, name: str) -> None:
    filled(timed, name, "other", partitions=2)
    headers = (("h", b"1"), ("h", b"\xff"))
    timed.publish_one(name, b"v", key=b"k", headers=headers, partition=1)
    member = Member(timed, name)
    (message,) = (message for message in member.poll() if message.partition == 1)
    timed.let_pass(1_000)
    member.reject(message, reason="cannot be read")
    (letter,) = letters(timed, name, 1)
    assert (letter.key, letter.value, letter.own_headers) == (b"k", b"v", headers)
    assert (letter.topic, letter.origin_partition, letter.origin_offset) == (name, 1, 0)
    assert (letter.group, letter.error, letter.deliveries) == (name, "cannot be read", 1)
    assert (letter.partition, letter.offset, letter.died_at_ns) == (1, 0, timed.clock.now_ns())
    assert letter.redriven is False


def test_who_reads_the_dead_letter_topic_sees_the_same_in_headers(shared: Driver, name: str) -> None:
    filled(shared, name)
    kill(shared, name, "a", reason="why not")
    letters(shared, name, 1)
    (message,) = Member(shared, f"{name}-readers", f"{name}.dlq").poll()
    told = dict(message.headers)
    expected = {"topic": name, "partition": "0", "offset": "0"}
    assert {part: told[f"goqueue-origin-{part}"].decode() for part in expected} == expected
    assert (told["goqueue-group"].decode(), told["goqueue-error"]) == (name, b"why not")
    assert told["goqueue-deliveries"] == b"1"


def test_dead_letters_are_chosen_by_group_error_and_time(timed: Driver, name: str) -> None:
    filled(timed, name)
    kill(timed, name, "a", reason="disk is full")
    letters(timed, name, 1)
    timed.let_pass(1_000)
    noon = timed.clock.now_ns()
    kill(timed, name, "b", group=f"{name}-other", reason="disk is slow")
    letters(timed, name, 2)

    def found(**wanted: object) -> list[bytes | None]:
        return [letter.value for letter in timed.groups.dead_letters(name, Wanted(**wanted))]  # type: ignore[arg-type]

    assert found(group=name) == [b"a"]
    assert (found(error="disk is"), found(error="full")) == ([b"a", b"b"], [b"a"])
    assert (found(since_ns=noon), found(until_ns=noon)) == ([b"b"], [b"a"])
    assert found(group=name, error="slow") == []


def test_dead_letters_are_browsed_page_by_page(shared: Driver, name: str) -> None:
    filled(shared, name)
    kill(shared, name, *"abc")
    letters(shared, name, 3)
    first = shared.groups.dead_letters(name, limit=2)
    rest = shared.groups.dead_letters(name, limit=2, after=(0, first[-1].offset + 1))
    assert [letter.value for letter in first + rest] == [b"a", b"b", b"c"]


def test_the_dead_letter_topic_shows_its_own(shared: Driver, name: str) -> None:
    filled(shared, name)
    kill(shared, name, "a")
    assert letters(shared, name, 1) == shared.groups.dead_letters(f"{name}.dlq")


def buried_together(driver: Driver, name: str) -> tuple[str, str, str]:
    """Two topics with a dead letter each in a dead-letter topic that they share."""
    one, other, end = (f"{name}-{which}" for which in ("one", "other", "end"))
    for topic in (one, other):
        filled(driver, topic, dead_letter_topic=end)
        kill(driver, topic, topic)
    letters(driver, end, 2)
    return one, other, end


def test_topics_that_share_a_dead_letter_topic_show_their_own(shared: Driver, name: str) -> None:
    one, other, end = buried_together(shared, name)
    for topic in (one, other):
        assert [letter.topic for letter in shared.groups.dead_letters(topic)] == [topic]
    assert {letter.topic for letter in shared.groups.dead_letters(end)} == {one, other}


def test_a_topic_without_dead_letters_says_so(shared: Driver, name: str) -> None:
    filled(shared, name)
    for topic in (name, f"{name}-none"):
        with refusal("topic_not_found"):
            shared.groups.dead_letters(topic)
        with refusal("topic_not_found"):
            shared.groups.redrive(topic)


# Sending back


def test_a_dry_run_tells_what_would_happen_and_moves_nothing(shared: Driver, name: str) -> None:
    filled(shared, name)
    kill(shared, name, *"abc")
    before = letters(shared, name, 3)
    assert shared.groups.redrive(name, dry_run=True) == Redriven(3, 0, 0, 0, {name: 3}, None)
    assert shared.groups.dead_letters(name) == before
    assert Member(shared, name).poll() == []


def test_redriven_messages_come_back_whole_and_as_if_for_the_first_time(shared: Driver, name: str) -> None:
    filled(shared, name, partitions=2)
    shared.publish_one(name, b"v", key=b"k", headers=(("h", b"1"),), partition=1)
    member = Member(shared, name)
    member.reject(member.next())
    letters(shared, name, 1)
    assert shared.groups.redrive(name) == Redriven(1, 1, 0, 0, {name: 1}, None)
    (message,) = member.poll()
    assert (message.partition, message.offset, message.deliveries) == (1, 1, 1)
    assert (message.key, message.value, ("h", b"1") in message.headers) == (b"k", b"v", True)
    assert [letter.redriven for letter in letters(shared, name, 1)] == [True]


def test_redriving_twice_sends_nothing_twice(shared: Driver, name: str) -> None:
    filled(shared, name)
    kill(shared, name, "a", "b")
    letters(shared, name, 2)
    assert shared.groups.redrive(name).redriven == 2
    assert shared.groups.redrive(name) == Redriven(0, 0, 2, 0, {}, None)
    assert values(Member(shared, name).poll()) == [b"a", b"b"]


def test_two_who_redrive_at_once_send_nothing_twice(shared: Driver, name: str) -> None:
    filled(shared, name)
    kill(shared, name, *"abcdefgh")
    letters(shared, name, 8)
    reports = [each.result() for each in [shared.background(shared.groups.redrive, name) for _ in range(4)]]
    assert sum(report.redriven for report in reports) == 8
    assert len(Member(shared, name).poll()) == 8


def test_a_redriven_message_reaches_only_its_group(shared: Driver, name: str) -> None:
    filled(shared, name)
    other = Member(shared, f"{name}-other", name)
    kill(shared, name, "a")
    other.ack(other.next())
    letters(shared, name, 1)
    shared.groups.redrive(name)
    assert values(Member(shared, name).poll()) == [b"a"]
    assert other.poll() == []
    assert shared.groups.describe(f"{name}-other").lag[0].lag == 0


def test_a_redriven_message_that_fails_again_is_a_dead_letter_again(shared: Driver, name: str) -> None:
    filled(shared, name)
    kill(shared, name, "a", reason="first")
    letters(shared, name, 1)
    shared.groups.redrive(name)
    member = Member(shared, name)
    member.reject(member.next(), reason="second")
    assert [(letter.error, letter.redriven) for letter in letters(shared, name, 2)] == [
        ("first", True),
        ("second", False),
    ]
    assert shared.groups.redrive(name).redriven == 1


def test_dead_letters_are_redriven_one_by_one(shared: Driver, name: str) -> None:
    filled(shared, name)
    kill(shared, name, *"abc")
    _, second, _ = letters(shared, name, 3)
    place = [(second.partition, second.offset)]
    assert shared.groups.redrive(name, Wanted(messages=place)).redriven == 1
    assert values(Member(shared, name).poll()) == [b"b"]


def test_dead_letters_are_redriven_by_group_error_and_time(timed: Driver, name: str) -> None:
    filled(timed, name)
    early = timed.clock.now_ns()
    for text, reason in (("a", "full"), ("b", "slow"), ("c", "gone")):
        timed.let_pass(1_000)
        kill(timed, name, text, reason=reason)
        letters(timed, name, ord(text) - ord("a") + 1)
    assert timed.groups.redrive(name, Wanted(group=f"{name}-none")).matched == 0
    assert timed.groups.redrive(name, Wanted(error="slow")).redriven == 1
    assert timed.groups.redrive(name, Wanted(until_ns=early)).matched == 0
    assert timed.groups.redrive(name, Wanted(since_ns=timed.clock.now_ns())).redriven == 1
    assert values(Member(timed, name).poll()) == [b"b", b"c"]


def test_a_redrive_goes_on_where_its_limit_ended(shared: Driver, name: str) -> None:
    filled(shared, name)
    kill(shared, name, *"abc")
    letters(shared, name, 3)
    first = shared.groups.redrive(name, limit=2)
    assert (first.redriven, first.next) == (2, (0, 2))
    rest = shared.groups.redrive(name, limit=2, after=(0, 2))
    assert (rest.redriven, rest.next) == (1, None)


def test_of_a_shared_dead_letter_topic_only_what_came_from_the_topic_goes_back(shared: Driver, name: str) -> None:
    one, other, end = buried_together(shared, name)
    assert shared.groups.redrive(one) == Redriven(1, 1, 0, 0, {one: 1}, None)
    assert shared.groups.redrive(end) == Redriven(1, 1, 1, 0, {other: 1}, None)
    assert values(Member(shared, other).poll()) == [other.encode()]


def test_a_stream_passes_by_what_was_redriven_for_another_group(shared: Driver, name: str) -> None:
    filled(shared, name)
    kill(shared, name, "a")
    letters(shared, name, 1)
    shared.groups.redrive(name)
    publish(shared, name, "b")
    assert values(Member(shared, f"{name}-stream", name, mode="stream").poll()) == [b"a", b"b"]


def test_rule_7_a_redriven_message_has_no_headers_of_the_broker_but_documented_ones(shared: Driver, name: str) -> None:
    filled(shared, name)
    kill(shared, name, "a")
    letters(shared, name, 1)
    shared.groups.redrive(name)
    (message,) = Member(shared, name).poll()
    told = {header for header, _ in message.headers}
    assert "goqueue-origin-timestamp" in told
    # Frames go over gRPC as they lie in the log, with what the broker needs to know of a copy.
    assert told <= {"goqueue-origin-timestamp", "goqueue-for-group", "goqueue-copy-of", "goqueue-trace"}


def test_a_redrive_at_a_rate_sends_the_same(shared: Driver, name: str) -> None:
    filled(shared, name)
    kill(shared, name, *"abc")
    letters(shared, name, 3)
    assert shared.groups.redrive(name, rate=100).redriven == 3


def test_what_has_nowhere_to_go_back_to_is_counted_and_holds_up_nothing(shared: Driver, name: str) -> None:
    filled(shared, name)
    kill(shared, name, "a", group=f"{name}-gone")
    kill(shared, name, "b")
    letters(shared, name, 2)
    shared.groups.delete(f"{name}-gone")
    assert shared.groups.redrive(name) == Redriven(1, 1, 0, 1, {name: 1}, None)


@pytest.mark.parametrize("fields", [{"limit": 10_001}, {"rate": -1.0}, {"rate": 1_000_001.0}])
def test_a_redrive_that_cannot_be_moves_nothing(shared: Driver, name: str, fields: dict[str, float]) -> None:
    filled(shared, name)
    kill(shared, name, "a")
    before = letters(shared, name, 1)
    with refusal("invalid_request"):
        shared.groups.redrive(name, **fields)  # type: ignore[arg-type]
    assert shared.groups.dead_letters(name) == before
