"""What a partition knows of its producers, against the simplest model of each part."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from goqueue.delivery.delay_index import PendingDelays
from goqueue.model.errors import DuplicateSequence, GoQueueError, OutOfOrderSequence, ProducerFenced
from goqueue.model.offset_runs import OffsetRuns
from goqueue.model.producer_sequences import WINDOW, Producers, SentBatch
from goqueue.model.runs import offsets_in

SEQUENCES = 1 << 31
edges = st.integers(0, 40)
runs = st.lists(st.tuples(edges, edges), max_size=12)
steps = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.sampled_from(["batch", "again", "old", "gap", "open", "open", "commit", "abort", "fence", "forget"]),
        st.integers(1, 5),
    ),
    max_size=60,
)


def offsets_of(found: OffsetRuns) -> set[int]:
    return {offset for first, end in found.runs() for offset in range(first, end)}


@settings(max_examples=60, deadline=None)
@given(runs, edges, edges, st.lists(edges, unique=True))
def test_runs_are_a_set_of_offsets(added: list[tuple[int, int]], low: int, high: int, asked: list[int]) -> None:
    model = {offset for first, end in added for offset in range(first, end)}
    found = OffsetRuns(added)
    before = found.runs()
    assert offsets_of(found) == model
    assert all(end < first for (_, end), (first, _) in pairwise(before)), "those that touch are one"
    assert found.count(low, high) == len(model & set(range(low, high)))
    assert found.any_between(low, high) == bool(model & set(range(low, high)))
    assert (low in found) == (low in model)
    assert found.end_of(low) == next(each for each in range(low, 99) if each not in model)
    ascending = np.array(sorted(asked), np.int64)
    mask = found.mask(ascending)
    wanted = [each in model for each in sorted(asked)]
    assert (mask is None and not any(wanted)) or (mask is not None and mask.tolist() == wanted)
    assert offsets_of(found.without(low, high)) == model - set(range(low, high))
    assert found.without(low, high) == OffsetRuns(found.without(low, high).runs())
    assert found.runs() == before
    assert OffsetRuns.load(found.dump()) == found


@pytest.mark.parametrize("edges_of_runs", [[1], [2, 1], [1, 1], [1, 3, 4, 6], [1, 3, 3, 6]])
def test_runs_that_nobody_has_dumped_are_refused(edges_of_runs: list[int]) -> None:
    with pytest.raises(ValueError, match=r"edges|empty or not in order"):
        OffsetRuns.load(np.array(edges_of_runs, "<i8").tobytes())
    with pytest.raises(ValueError, match="buffer size"):
        OffsetRuns.load(b"\x00" * 9)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["first", "second", "gone", "skip"]), max_size=80), st.booleans())
def test_pending_delays_that_are_merged_are_one_sorted_list(parts: list[str], clear: bool) -> None:
    first, second = PendingDelays(), [at for at, part in enumerate(parts) if part == "second"]
    model = {}
    for at, part in enumerate(parts):
        if part in ("first", "gone"):
            first.add(at, at + 1_000)
            model[at] = at + 1_000
    gone = [at for at, part in enumerate(parts) if part == "gone"]
    for at in gone:
        first.remove(at)
        del model[at]
    if clear:
        assert first.first() == min(model, default=None)
    first.merge(np.array(second, np.int64), np.array(second, np.int64) + 7)
    model |= {at: at + 7 for at in second}
    offsets, dues = first.entries()
    assert offsets.tolist() == sorted(model)
    assert dict(zip(offsets.tolist(), dues.tolist(), strict=True)) == model
    assert len(first) == len(model)
    assert first.first() == min(model, default=None)
    assert all(first.due(at) == model.get(at) for at in range(len(parts)))
    first.remove_many(offsets)
    assert len(first) == 0


class Model:
    """One producer, the slow way: everything that it ever sent in its epoch."""

    def __init__(self, first_sequence: int) -> None:
        self.epoch = 0
        self.next = first_sequence
        self.sent: list[tuple[int, int, int]] = []
        self.used = 0
        self.open: list[int] = []


@settings(max_examples=80, deadline=None)
@given(steps, st.sampled_from([0, SEQUENCES - 7, SEQUENCES - 1]))
@example([(1, "batch", 5), (1, "batch", 5), (1, "old", 1), (1, "again", 1)], SEQUENCES - 7)
def test_producers_agree_with_a_model_that_forgets_nothing(what: list[tuple[int, str, int]], first: int) -> None:
    state, models, aborted = Producers(), {each: Model(first) for each in (1, 2, 3)}, set[int]()
    end = 0
    for now, (producer_id, verb, count) in enumerate(what):
        model = models[producer_id]
        known = producer_id in state.known
        if verb in ("batch", "open"):
            assert state.find(producer_id, model.epoch, model.next, count) is None
            state.stored(producer_id, model.epoch, SentBatch(model.next, count, end), now)
            if verb == "open":
                state.opened(producer_id, end, end + count, [end, end + 1])
                model.open += range(end, end + count)
            model.sent.append((model.next, count, end))
            model.next, model.used, end = (model.next + count) % SEQUENCES, now, end + count
        elif verb == "again" and known and model.sent:
            for sequence, size, offset in model.sent[-WINDOW:]:
                assert state.find(producer_id, model.epoch, sequence, size) == offset
                with pytest.raises((DuplicateSequence, OutOfOrderSequence)):
                    state.find(producer_id, model.epoch, sequence, size + 9)
        elif verb == "old" and known:
            for sequence, size, _ in model.sent[:-WINDOW]:
                with pytest.raises(DuplicateSequence, match="sent sequence"):
                    state.find(producer_id, model.epoch, sequence, size)
        elif verb == "gap" and known and model.sent:
            with pytest.raises(OutOfOrderSequence, match=f"{count} messages are missing"):
                state.find(producer_id, model.epoch, (model.next + count) % SEQUENCES, 1)
        elif verb in ("commit", "abort"):
            records = state.ended(producer_id, model.epoch, is_commit=verb == "commit")
            assert (records is not None) == bool(model.open)
            if records is not None:
                found = [*offsets_in(records.seen), *offsets_in(records.delayed)]
                assert sorted(found) == model.open
                assert (records.first, records.end) == (model.open[0], model.open[-1] + 1)
            if verb == "abort":
                aborted |= set(model.open)
            model.open = []
            end += 1
        elif verb == "fence" and not model.open and known:
            model.epoch, model.next, model.sent = model.epoch + 1, 0, []
            with pytest.raises(OutOfOrderSequence, match="0 is the first"):
                state.find(producer_id, model.epoch, 1, 1)
            state.stored(producer_id, model.epoch, SentBatch(0, 1, end), now)
            with pytest.raises(ProducerFenced):
                state.find(producer_id, model.epoch - 1, 0, 1)
            model.sent, model.next, model.used, end = [(0, 1, end)], 1, now, end + 1
        elif verb == "forget":
            most = count % 3
            there = sorted(state.known, key=lambda each: models[each].used)
            idle = [each for each in there if not models[each].open]
            assert state.forget(0, most) == len(idle[: max(0, len(there) - most)])
            # Of these nobody knows anything: they may go on anywhere.
            for each in there:
                assert (each in state.known) == (each not in idle[: max(0, len(there) - most)])
                if each not in state.known:
                    models[each].sent = []
        assert state.first_open == min((each.open[0] for each in models.values() if each.open), default=None)
        assert offsets_of(state.aborted) | offsets_of(state.aborted_delayed) == aborted
        assert state.next_sequence(producer_id, model.epoch) == (model.next if producer_id in state.known else 0)
        assert not any(len(each.batches) > WINDOW for each in state.known.values())
        delayed = {each.open[0]: owner for owner, each in models.items() if each.open}
        owners = state.open_delays().owners(np.arange(end, dtype=np.int64)).tolist()
        assert all(owners[offset] == owner for offset, owner in delayed.items())
        assert all(owner == -1 or offset in models[owner].open for offset, owner in enumerate(owners))


def test_those_who_were_silent_for_long_are_forgotten_and_others_are_not() -> None:
    state = Producers()
    for producer_id, now in ((1, 10), (2, 20), (3, 30), (1, 40)):
        state.stored(producer_id, 0, SentBatch(0, 1, now), now)
    assert state.forget(25, 10) == 1
    assert list(state.known) == [3, 1]
    state.opened(3, 30, 31, [])
    assert state.forget(100, 10) == 1
    assert list(state.known) == [3], "what is open keeps its producer"
    assert state.forget(100, 0) == 0
    state.ended(3, 0, is_commit=True)
    assert state.forget(100, 10) == 1


def test_a_marker_of_a_later_epoch_fences_and_the_epoch_begins_at_0() -> None:
    state = Producers()
    state.stored(1, 0, SentBatch(5, 1, 0), 0)
    assert state.ended(1, 2, is_commit=False) is None
    for epoch, sequence, error in ((1, 0, ProducerFenced), (2, 6, OutOfOrderSequence)):
        with pytest.raises(error):
            state.find(1, epoch, sequence, 1)
    assert state.find(1, 2, 0, 1) is None
    assert state.ended(9, 2, is_commit=False) is None


def test_half_of_all_sequences_lie_before_the_next_one() -> None:
    state = Producers()
    state.stored(1, 0, SentBatch(0, 10, 0), 0)
    errors: dict[int, type[GoQueueError]] = {
        9: DuplicateSequence,
        11: OutOfOrderSequence,
        10 + SEQUENCES // 2: DuplicateSequence,
        10 + SEQUENCES // 2 - 1: OutOfOrderSequence,
        SEQUENCES - 1: DuplicateSequence,
    }
    for sequence, error in errors.items():
        with pytest.raises(error):
            state.find(1, 0, sequence, 1)
