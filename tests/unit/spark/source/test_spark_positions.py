"""Which messages a read and each trigger of a stream take: all of them once, within the limits."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from goqueue.model.errors import OffsetOutOfRange, PartitionNotFound, TopicNotFound
from goqueue.spark.source.positions import (
    SPLIT_MESSAGES,
    Bounds,
    Offsets,
    Range,
    TopicPartition,
    from_json,
    ranges,
    resolve,
    split,
    to_json,
    topic_ids,
    trigger_end,
    without_recreated_topics,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)

places = st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 11))
offsets = st.integers(0, 2_000)


@st.composite
def bounds_of(draw: st.DrawFn) -> dict[TopicPartition, Bounds]:
    found = draw(st.sets(places, min_size=1, max_size=6))
    made = {}
    for tp in sorted(found):
        earliest = draw(offsets)
        made[tp] = Bounds(earliest, earliest + draw(st.integers(0, 300)), draw(st.integers(0, 1 << 20)))
    return made


@settings(max_examples=30)
@given(st.dictionaries(places, offsets))
def test_offsets_survive_json_and_their_text_does_not_depend_on_their_order(found: Offsets) -> None:
    ids = {tp.topic: f"id of {tp.topic}" for tp in found}
    text = json.dumps(to_json(found, ids))
    assert from_json(json.loads(text)) == found
    assert topic_ids(json.loads(text)) == ids
    assert json.dumps(to_json(dict(reversed(found.items())), ids)) == text


def test_rule_3_offsets_of_a_topic_that_was_made_anew_mean_nothing() -> None:
    bounds = {A0: Bounds(0, 150, 0, "new"), B0: Bounds(0, 9, 0, "same")}
    read, ids = {A0: 100, B0: 5}, {"a": "old", "b": "same"}
    with pytest.raises(OffsetOutOfRange, match=r"topic 'a' was deleted and made anew .*another checkpoint"):
        without_recreated_topics(read, ids, bounds, fail_on_data_loss=True)
    assert without_recreated_topics(read, ids, bounds, fail_on_data_loss=False) == {B0: 5}
    assert without_recreated_topics(read, {"a": "new"}, bounds, fail_on_data_loss=True) == read


def test_the_lost_beginning_of_a_partition_that_came_since_is_noticed() -> None:
    with pytest.raises(OffsetOutOfRange, match=r"offset 0 is asked for and the earliest is 50"):
        ranges({}, {A0: 100}, {A0: Bounds(50, 100)}, fail_on_data_loss=True)
    assert ranges({}, {A0: 100}, {A0: Bounds(50, 100)}, fail_on_data_loss=False) == [(A0, 50, 100)]


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(places, st.tuples(offsets, st.integers(1, 5_000)), max_size=6), st.integers(0, 40))
@example({A0: (0, 10)}, 6)
@example({A0: (0, 1), A1: (0, 1), B0: (0, 1_000)}, 5)
def test_splits_cover_every_message_once_and_are_as_many_as_asked_for(
    given_: dict[TopicPartition, tuple[int, int]], wanted: int
) -> None:
    whole = [Range(tp, low, low + size) for tp, (low, size) in sorted(given_.items())]
    parts = split(whole, wanted)
    total = sum(each.size for each in whole)
    assert all(each.size > 0 for each in parts)
    assert sum(each.size for each in parts) == total
    for each in whole:
        mine = [part for part in parts if part.tp == each.tp]
        assert (mine[0].low, mine[-1].high) == (each.low, each.high)
        assert all(one.high == other.low for one, other in pairwise(mine))
        assert max(part.size for part in mine) - min(part.size for part in mine) <= 1
    assert len(parts) >= min(wanted, total)
    # Not needlessly many: a task costs time as well.
    assert len(parts) <= max(wanted, 1) + len(whole)


def test_a_huge_partition_is_split_unasked_and_not_if_few_tasks_are_asked_for() -> None:
    whole = [Range(A0, 0, 4 * SPLIT_MESSAGES + 1)]
    assert len(split(whole, 0)) == 5
    assert split(whole, 1) == whole


@settings(max_examples=40, deadline=None)
@given(bounds_of(), st.data())
def test_triggers_stay_within_their_limits_and_reach_the_end(
    bounds: dict[TopicPartition, Bounds], data: st.DataObject
) -> None:
    max_messages = data.draw(st.none() | st.integers(1, 200))
    max_bytes = data.draw(st.none() | st.integers(1, 1 << 19))
    start: Offsets = {
        tp: data.draw(st.integers(each.earliest, each.end)) for tp, each in bounds.items() if data.draw(st.booleans())
    }
    steps = 0
    while True:
        found = trigger_end(start, bounds, max_messages, max_bytes)
        begin = {tp: start.get(tp, each.earliest) for tp, each in bounds.items()}
        taken = {tp: found[tp] - begin[tp] for tp in bounds}
        assert all(count >= 0 and found[tp] <= bounds[tp].end for tp, count in taken.items())
        waiting = {tp for tp, each in bounds.items() if begin[tp] < each.end}
        # None is forgotten behind larger ones.
        assert {tp for tp, count in taken.items() if count} == waiting
        beyond_one = [tp for tp, count in taken.items() if count > 1]
        if max_messages is not None:
            assert sum(taken[tp] for tp in beyond_one) <= max_messages
        if max_bytes is not None:
            sizes = {tp: each.size_bytes / max(1, each.end - each.earliest) for tp, each in bounds.items()}
            assert sum(taken[tp] * sizes[tp] for tp in beyond_one) <= max_bytes * 1.000001
        if max_messages is None and max_bytes is None:
            assert found == {tp: each.end for tp, each in bounds.items()}
        if not waiting:
            break
        start = start | found
        steps += 1
        assert steps <= 300


def test_messages_that_are_gone_take_nothing_of_a_limit() -> None:
    """Else a query that goes on without a million lost messages would run a hundred thousand empty batches."""
    bounds = {A0: Bounds(1_000_000, 1_000_100)}
    assert trigger_end({A0: 0}, bounds, 10, None) == {A0: 1_000_010}


def test_without_limits_a_trigger_takes_everything_new_partitions_too() -> None:
    bounds = {A0: Bounds(5, 9), A1: Bounds(2, 4)}
    assert trigger_end({A0: 7}, bounds, None, None) == {A0: 9, A1: 4}


def no_time(_place: TopicPartition, _instant_ns: int) -> int:
    raise AssertionError("nobody asked for an instant")


@pytest.mark.parametrize("strict", [True, False])
def test_a_read_begins_at_an_end_of_the_log_at_an_instant_or_at_offsets(strict: bool) -> None:
    bounds = {A0: Bounds(10, 20), A1: Bounds(0, 5), B0: Bounds(3, 3)}
    by_time = {A0: 12, A1: 99, B0: 0}

    def found(position: object, otherwise: str = "earliest") -> Offsets:
        asked: list[int] = []

        def at(tp: TopicPartition, instant_ns: int) -> int:
            asked.append(instant_ns)
            return by_time[tp]

        result = resolve(position, bounds, at, otherwise=otherwise, fail_on_data_loss=strict)  # type: ignore[arg-type]
        assert asked == ([position] * 3 if isinstance(position, int) else [])
        return result

    assert found("earliest") == {A0: 10, A1: 0, B0: 3}
    assert found("latest") == {A0: 20, A1: 5, B0: 3}
    # Never outside of what is there.
    assert found(1_234) == {A0: 12, A1: 5, B0: 3}
    assert found(0) == {A0: 12, A1: 5, B0: 3}
    assert found({"a": {0: 15}}) == {A0: 15, A1: 0, B0: 3}
    assert found({"a": {0: 15}}, "latest") == {A0: 15, A1: 5, B0: 3}
    assert found({}) == {A0: 10, A1: 0, B0: 3}


def test_offsets_of_what_is_not_read_are_refused() -> None:
    bounds = {A0: Bounds(0, 5)}
    with pytest.raises(TopicNotFound, match="topic 'x', which is not among those that are read"):
        resolve({"x": {0: 1}}, bounds, no_time, otherwise="earliest", fail_on_data_loss=True)
    with pytest.raises(PartitionNotFound, match="given for a/7, and there is no such partition"):
        resolve({"a": {7: 1}}, bounds, no_time, otherwise="earliest", fail_on_data_loss=False)


@pytest.mark.parametrize(("offset", "nearest"), [(3, 10), (25, 20)])
def test_an_offset_that_cannot_be_read_raises_or_becomes_the_nearest_that_can(offset: int, nearest: int) -> None:
    bounds = {A0: Bounds(10, 20)}
    text = "offset 3 is asked for and the earliest is 10" if offset == 3 else "a/0 ends at offset 20 and 25 is asked"
    with pytest.raises(OffsetOutOfRange, match=f"{text}.*failOnDataLoss=false") as given_by_the_user:
        resolve({"a": {0: offset}}, bounds, no_time, otherwise="earliest", fail_on_data_loss=True)
    # A batch has no checkpoint, and a stream that begins has nothing in it.
    assert "checkpoint" not in str(given_by_the_user.value)
    with pytest.raises(OffsetOutOfRange, match=f"{text}.*egin anew with another checkpoint"):
        ranges({A0: offset}, {A0: 20}, bounds, fail_on_data_loss=True)
    found = resolve({"a": {0: offset}}, bounds, no_time, otherwise="earliest", fail_on_data_loss=False)
    assert found == {A0: nearest}


def test_what_lies_between_two_positions_is_a_range_for_each_partition_that_has_any() -> None:
    bounds = {A0: Bounds(0, 10), A1: Bounds(0, 10), B0: Bounds(0, 10)}
    found = ranges({A0: 3, B0: 7}, {A0: 5, A1: 6, B0: 7}, bounds, fail_on_data_loss=True)
    # A1 came since: it begins at its beginning.
    assert found == [Range(A0, 3, 5), Range(A1, 0, 6)]


def test_messages_that_retention_took_raise_or_are_passed_over() -> None:
    bounds = {A0: Bounds(50, 100)}
    with pytest.raises(OffsetOutOfRange, match=r"messages of a/0 are gone: offset 10 .* earliest is 50 .*checkpoint"):
        ranges({A0: 10}, {A0: 60}, bounds, fail_on_data_loss=True)
    assert ranges({A0: 10}, {A0: 60}, bounds, fail_on_data_loss=False) == [Range(A0, 50, 60)]
    assert ranges({A0: 10}, {A0: 40}, bounds, fail_on_data_loss=False) == []


def test_a_topic_that_was_deleted_raises_or_is_passed_over() -> None:
    with pytest.raises(TopicNotFound, match=r"has b/0, and it is not among what is read: .*failOnDataLoss=false"):
        ranges({A0: 0, B0: 0}, {A0: 5, B0: 5}, {A0: Bounds(0, 5)}, fail_on_data_loss=True)
    found = ranges({A0: 0, B0: 0}, {A0: 5, B0: 5}, {A0: Bounds(0, 5)}, fail_on_data_loss=False)
    assert found == [Range(A0, 0, 5)]
