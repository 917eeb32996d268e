"""Ids of producers: each tells by itself whether it was given."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from goqueue.coordination.issued_ids import AT_ONCE, NUMBERS, IdsEvent, IdsSkipped, IssuedIds
from goqueue.coordination.transaction_records import NamedProducer, ProducerNamed, TransactionsEvent
from goqueue.coordination.transactions import Transactions
from goqueue.model.errors import Overloaded, ProducerFenced, UnknownProducer

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))
JSON_MAX = (1 << 53) - 1
"""What a reader of JSON keeps exactly that has floating point numbers only."""


def apply(ids: IssuedIds, events: list[IdsEvent]) -> None:
    for event in events:
        ids.apply(event)


def made(key: bytes = KEY, blocks: int = 1) -> IssuedIds:
    ids = IssuedIds()
    apply(ids, ids.decide_key(key))
    for _ in range(blocks):
        apply(ids, ids.decide_reserve())
    return ids


def test_every_number_has_an_id_of_its_own_that_json_keeps_and_that_tells_the_number() -> None:
    ids = made(blocks=20)
    given = [ids.id_of(number) for number in range(1, ids.reserved)]
    assert len(set(given)) == len(given)
    assert all(0 < each <= JSON_MAX for each in given)
    assert [ids.number_of(each) for each in given] == list(range(1, ids.reserved))
    # Also when none of them is remembered.
    assert [made(blocks=20).number_of(each) for each in given] == list(range(1, ids.reserved))


def test_no_id_leads_to_another() -> None:
    ids = made()
    given = {ids.id_of(number) for number in range(1, ids.reserved)}
    near = {each + step for each in given for step in range(-64, 65)} - given
    turned = {each ^ 1 << bit for each in given for bit in range(63)} - given
    assert not [each for each in near | turned if ids.number_of(each) is not None]
    assert not [each for each in given if made(OTHER).number_of(each) is not None]


def test_guesses_and_numbers_and_what_is_no_id_at_all_were_never_given() -> None:
    ids, rng = made(), Random(7)
    wrong = [*range(-2, 3_000), NUMBERS, 1 << 52, JSON_MAX, 1 << 53, (1 << 63) - 1, -(1 << 63)]
    wrong += [rng.randrange(1 << 63) for _ in range(1_000)] + [1 << 52 | rng.randrange(NUMBERS) for _ in range(1_000)]
    assert not [each for each in wrong if ids.number_of(each) is not None]


def test_an_id_that_is_not_reserved_yet_was_not_given() -> None:
    ids = made()
    later = ids.id_of(ids.reserved)
    assert ids.number_of(later) is None
    apply(ids, ids.decide_reserve())
    assert ids.number_of(later) == AT_ONCE + 1


def test_ids_of_before_there_was_a_key_stay_good_and_no_more_of_their_kind_are() -> None:
    ids = IssuedIds()
    apply(ids, ids.decide_reserve())
    last = ids.reserved - 1
    assert [ids.id_of(number) for number in (1, last)] == [1, last]
    apply(ids, ids.decide_key(KEY))
    assert ids.decide_key(OTHER) == []
    apply(ids, ids.decide_reserve())
    assert [ids.number_of(each) for each in (0, 1, last, last + 1, ids.reserved)] == [None, 1, last, None, None]
    fresh = ids.id_of(last + 1)
    assert fresh > 1 << 52 and ids.number_of(fresh) == last + 1
    # The id that a plain one's number would encrypt to was never given.
    assert made().number_of(made().id_of(5)) == 5 and ids.number_of(made().id_of(5)) is None


@pytest.mark.parametrize("snapshot", [b"1001", b"[1001,0]"])
def test_snapshots_of_before_there_was_a_key_are_read(snapshot: bytes) -> None:
    ids = IssuedIds()
    ids.restore(snapshot)
    assert (ids.reserved, ids.number_of(1_000), ids.number_of(1_001)) == (1_001, 1_000, None)
    apply(ids, ids.decide_key(KEY))
    assert (ids.number_of(1_000), ids.number_of(1_001)) == (1_000, None)


def test_a_journal_and_a_snapshot_both_tell_everything() -> None:
    live, replayed, restored = Transactions(), Transactions(), Transactions()
    events: list[TransactionsEvent] = [*live.ids.decide_reserve()]
    live.apply(events[0])
    for decide in (lambda: live.ids.decide_key(KEY), live.ids.decide_reserve, lambda: live.ids.decide_skip(77)):
        for event in decide():
            assert live.part_of(event) == "ids"
            live.apply(event)
            events.append(event)
    for event in msgspec.json.decode(msgspec.json.encode(events), type=list[TransactionsEvent]):
        replayed.apply(event)
    restored.ids.restore(live.ids.dump())
    for other in (replayed, restored):
        assert other.ids.dump() == live.ids.dump()
        for number in (1, 1_000, 1_001, 2_000, 2_077):
            assert other.ids.id_of(number) == live.ids.id_of(number)


def test_a_name_whose_id_was_given_before_numbers_were_skipped_gets_another() -> None:
    state = Transactions()
    for event in (*state.ids.decide_key(KEY), *state.ids.decide_reserve()):
        state.apply(event)
    own, fresh = state.ids.id_of(3), state.ids.id_of(5)
    state.apply(ProducerNamed("name", NamedProducer(own, 0, 1, 0)))
    [again] = state.decide_name("name", fresh, 1, 0, 10)
    assert isinstance(again, ProducerNamed) and (again.producer.producer_id, again.producer.epoch) == (own, 1)
    state.apply(IdsSkipped(5_000))
    [other] = state.decide_name("name", fresh, 1, 0, 10)
    assert isinstance(other, ProducerNamed) and (other.producer.producer_id, other.producer.epoch) == (fresh, 0)


def test_an_id_of_a_name_that_is_gone_is_fenced_and_one_that_was_never_given_is_unknown() -> None:
    state = Transactions()
    for event in (*state.ids.decide_key(KEY), *state.ids.decide_reserve()):
        state.apply(event)
    assert state.check_producer(state.ids.id_of(2), 0) == ""
    with pytest.raises(ProducerFenced):
        state.check_producer(state.ids.id_of(3), 0)
    for never in (2, 3, state.ids.id_of(2) + 1, state.ids.id_of(state.ids.reserved)):
        with pytest.raises(UnknownProducer, match="never given"):
            state.check_producer(never, 0)


def test_when_all_ids_are_given_none_is_given_again() -> None:
    ids = made()
    apply(ids, ids.decide_skip(NUMBERS - AT_ONCE))
    assert ids.reserved == NUMBERS
    with pytest.raises(Overloaded, match="have been given"):
        ids.decide_reserve()
