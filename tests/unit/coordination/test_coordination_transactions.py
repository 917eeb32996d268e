"""The state of producers and transactions: what decisions there are, and that a journal tells all of it."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from goqueue.coordination.transaction_records import (
    Aborted,
    Decided,
    Ended,
    GroupAcks,
    GroupOffset,
    KeyUsed,
    NamedProducer,
    Prepared,
    ProducerNamed,
    Touched,
    TransactionRecord,
    TransactionsEvent,
    UsedKey,
)
from goqueue.coordination.transactions import MAX_EPOCH, REMEMBERED, Transactions, keys_beyond, series_of
from goqueue.model.errors import ProducerFenced


def cost_of_keys(state: Transactions) -> int:
    return sum(used.cost for _, used in state.used_keys())


SEEDS = range(8)


def record(number: int) -> TransactionRecord:
    return TransactionRecord(
        f"{number}-0-ab",
        number,
        0,
        f"name {number}",
        1,
        2,
        [Touched("topic", 0, number, number + 3)],
        [GroupAcks("g", "g/topic/0", [(7, [1, 4])])],
        [GroupOffset("s", "s/topic/0", 5, 3, "member")],
        3,
    )


def next_event(state: Transactions, rng: Random, now_ns: int) -> list[TransactionsEvent]:
    """Something that could happen now."""
    number = rng.randrange(30)
    known = [*state.prepared, *state.decided]
    kind = rng.randrange(8)
    if kind == 0:
        going = keys_beyond(state.used_keys(), now_ns - 40, 10)
        return state.decide_forget_keys(going)
    if kind == 1:
        return state.decide_name(f"name {number}", rng.randrange(1, 1 << 40), 60_000, now_ns)
    if kind == 2:
        return [Prepared(record(number))]
    if kind == 3:
        series = rng.random() < 0.5
        key, at = (f"series {number % 3}#{now_ns}", now_ns) if series else (f"key {number}", -1)
        return [KeyUsed(key, UsedKey([f"{number}-0-ab"], now_ns, 3, at)), Decided(record(number))]
    if kind == 4 and state.prepared:
        return [Aborted(rng.choice(list(state.prepared)))]
    if kind == 5 and known:
        return [Ended(rng.sample(known, min(2, len(known))))]
    if kind == 6:
        return state.decide_used({f"name {number}": now_ns}, now_ns)
    return state.decide_forget_names(now_ns - 60, {f"name {number}"})


def dumped(state: Transactions) -> dict[str, bytes | None]:
    return {part: state.dump(part) for part in state.parts()}


def as_journaled(event: TransactionsEvent) -> TransactionsEvent:
    [found] = msgspec.json.decode(msgspec.json.encode([event]), type=list[TransactionsEvent])
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_a_replay_of_the_journal_makes_the_same_state(seed: int) -> None:
    rng, live, replayed = Random(seed), Transactions(), Transactions()
    for now_ns in range(150):
        for event in next_event(live, rng, now_ns):
            live.apply(event)
            replayed.apply(as_journaled(event))
    assert dumped(replayed) == dumped(live)
    for number in range(30):
        found = live.producer(f"name {number}")
        if found is not None:
            assert replayed.name_of(found.producer_id) == live.name_of(found.producer_id) == f"name {number}"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_snapshot_that_is_taken_part_by_part_while_the_state_changes_makes_the_same_state(seed: int) -> None:
    rng, live = Random(seed), Transactions()
    events: list[TransactionsEvent] = []

    def happen(times: int) -> None:
        for _ in range(times):
            for event in next_event(live, rng, len(events)):
                live.apply(event)
                events.append(event)

    happen(60)
    begin = len(events)
    parts: dict[str, tuple[int, bytes]] = {}
    for part in live.parts():
        payload = live.dump(part)
        assert payload is not None
        parts[part] = len(events), payload
        happen(2)
    restored = Transactions()
    for part, (_, payload) in parts.items():
        restored.restore(part, payload)
    for number, event in enumerate(events[begin:], begin):
        # A part that there was not is true from the end on, or the snapshot would have been taken of it as well.
        if number >= parts.get(restored.part_of(event), (begin, b""))[0]:
            restored.apply(as_journaled(event))
    assert dumped(restored) == dumped(live)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_event_changes_the_part_that_it_names_and_no_other(seed: int) -> None:
    rng, state = Random(seed), Transactions()
    for now_ns in range(100):
        for event in next_event(state, rng, now_ns):
            before = dumped(state)
            state.apply(event)
            after = dumped(state)
            assert {part for part in after.keys() | before.keys() if after.get(part) != before.get(part)} <= {
                state.part_of(event)
            }


def test_events_that_come_twice_change_nothing_more() -> None:
    state = Transactions()
    for event in (Prepared(record(1)), Decided(record(1)), Ended(["1-0-ab"])):
        state.apply(event)
        before = dumped(state)
        state.apply(event)
        assert state.is_committed("1-0-ab") == (not isinstance(event, Prepared))
        if not isinstance(event, Ended):
            assert dumped(state) == before


def test_of_those_that_were_committed_the_last_are_remembered() -> None:
    state = Transactions()
    last = REMEMBERED + 1_000
    for number in range(last):
        state.apply(Decided(record(number)))
        state.apply(Ended([f"{number}-0-ab"]))
    known = [state.is_committed(f"{number}-0-ab") for number in (0, 999, 1_000, last - 1)]
    assert known == [False, False, True, True]


def test_an_epoch_goes_up_until_there_is_none_left() -> None:
    state = Transactions()
    state.apply(ProducerNamed("name", NamedProducer(3, MAX_EPOCH - 1, 1, 0)))
    [last] = state.decide_name("name", 5, 1, 0)
    state.apply(last)
    assert state.check_producer(3, MAX_EPOCH) == "name"
    [first] = state.decide_name("name", 5, 1, 0)
    state.apply(first)
    assert state.check_producer(5, 0) == "name"
    for producer_id, epoch in ((3, MAX_EPOCH), (3, 0), (5, 1), (7, 0)):
        with pytest.raises(ProducerFenced):
            state.check_producer(producer_id, epoch)


def test_a_name_whose_id_is_not_to_be_used_further_gets_another() -> None:
    state = Transactions()
    state.apply(ProducerNamed("name", NamedProducer(3, 4, 1, 0)))
    [again] = state.decide_name("name", 5, 1, 0)
    assert isinstance(again, ProducerNamed) and (again.producer.producer_id, again.producer.epoch) == (3, 5)
    [other] = state.decide_name("name", 5, 1, 0, keeps_id=False)
    assert isinstance(other, ProducerNamed) and (other.producer.producer_id, other.producer.epoch) == (5, 0)
    state.apply(other)
    with pytest.raises(ProducerFenced):
        state.check_producer(3, 4)


def used(key: str, at_ns: int, ids: int = 1) -> KeyUsed:
    return KeyUsed(key, UsedKey([f"{at_ns}-0-ab"] * ids, at_ns, 5, series_of(key)[1]))


def test_of_a_series_only_the_last_is_remembered_and_that_those_before_it_are_used() -> None:
    state = Transactions()
    for number in range(12):
        assert state.used_key(f"job#{number}") is None
        state.apply(used(f"job#{number}", 100 + number))
    last, before = state.used_key("job#11"), state.used_key("job#3")
    assert last is not None and before is not None
    assert (last.number, last.messages, len(last.transactions)) == (11, 5, 1)
    assert (before.number, before.messages, before.transactions) == (11, 0, [])
    assert [state.used_key(key) for key in ("job#12", "job", "job#", "job#011")] == [None] * 4
    restored = Transactions()
    for part in state.parts():
        if (payload := state.dump(part)) is not None:
            restored.restore(part, payload)
    assert restored.used_key("job#11") == last


def test_the_last_of_a_series_outlives_keys_of_none_however_many_and_old_they_are() -> None:
    state = Transactions()
    state.apply(used("daily#7", 1))
    for number in range(100):
        state.apply(used(f"once {number}", 10 + number))
    for event in state.decide_forget_keys(keys_beyond(state.used_keys(), 60, 20)):
        state.apply(event)
    assert state.used_key("daily#7") is not None
    assert [number for number in range(100) if state.used_key(f"once {number}")] == list(range(81, 100))
    for event in state.decide_forget_keys(keys_beyond(state.used_keys(), 1_000, 20)):
        state.apply(event)
    assert state.used_key("daily#7") is not None and cost_of_keys(state) == 1


def test_a_key_of_many_transactions_counts_for_more() -> None:
    state = Transactions()
    for number in range(10):
        state.apply(used(f"wide {number}", number, ids=95))
    assert cost_of_keys(state) == 100
    for event in state.decide_forget_keys(keys_beyond(state.used_keys(), 0, 40)):
        state.apply(event)
    assert [number for number in range(10) if state.used_key(f"wide {number}")] == [6, 7, 8, 9]
