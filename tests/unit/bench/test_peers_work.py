"""What the comparison measures with: messages at a pace, and batches until the time is up."""

from __future__ import annotations

import types

import pytest

from bench.peers.work import Pacer, Supply, values


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def read(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("bench.peers.work.time", types.SimpleNamespace(time=clock.read, perf_counter=clock.read))
    return clock


def test_messages_are_due_one_after_the_other_and_have_the_size_asked_for(clock: Clock) -> None:
    pacer = Pacer(3, rate=10, size=100)
    clock.now += 5
    pacer.begin()
    sends = list(pacer.sends())
    assert [wait_s for wait_s, _ in sends] == pytest.approx([0, 0.1, 0.2])
    assert {len(value) for _, value in sends} == {100}


def test_what_a_held_up_sender_sends_late_has_waited_since_it_was_due(clock: Clock) -> None:
    pacer = Pacer(4, rate=10, size=100)
    pacer.begin()
    sends = pacer.sends()
    _, first = next(sends)
    # The system holds up its sender for a second with the first, then takes no time at all.
    clock.now += 1
    done = [pacer.arrived(first)]
    waits_s = []
    for wait_s, value in sends:
        waits_s.append(wait_s)
        done.append(pacer.arrived(value))
    assert waits_s == pytest.approx([-0.9, -0.8, -0.7])
    assert pacer.waits_ms == pytest.approx([1_000, 900, 800, 700])
    assert done == [False, False, False, True]


def test_of_a_delayed_message_only_the_wait_beyond_its_delay_counts(clock: Clock) -> None:
    pacer = Pacer(2, rate=10, size=100, delay_ms=1_000)
    pacer.begin()
    values_ = [value for _, value in pacer.sends()]
    clock.now += 1.005
    pacer.arrived(values_[0])
    assert pacer.waits_ms == pytest.approx([5])
    pacer.arrived(values_[1])
    assert pacer.waits_ms[1] == pytest.approx(-95), "a message that comes too early shows it"


def test_a_supply_ends_when_enough_are_given() -> None:
    supply = Supply([[b"a", b"b"], [b"c", b"d"]], messages=5)
    assert list(supply) == [[b"a", b"b"], [b"c", b"d"], [b"a", b"b"]]
    assert supply.given == 6


def test_a_supply_ends_when_the_time_is_up(clock: Clock) -> None:
    supply = Supply([[b"a", b"b"]], seconds=2)
    given = 0
    for batch in supply:
        given += len(batch)
        clock.now += 0.5
    assert given == supply.given == 8


def test_values_have_their_size_and_differ() -> None:
    batches = values(100)
    every = [value for batch in batches for value in batch]
    assert {len(value) for value in every} == {100}
    assert len(set(every)) == len(every)
