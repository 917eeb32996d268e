from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

import pytest

from goqueue.client import lineup
from goqueue.client.lineup import Lineup


@dataclass
class Item:
    name: str
    lane: int
    arrived: float = 0.0


def taken(line: Lineup[Item]) -> list[str]:
    found = []
    while line:
        found.append(line.take().name)
    return found


def test_what_came_is_taken_in_the_order_in_which_it_came() -> None:
    line: Lineup[Item] = Lineup()
    for name, lane in [("c1", 0), ("n1", 2), ("b1", 4), ("c2", 0), ("n2", 2)]:
        assert not line.put(Item(name, lane), None)
    assert taken(line) == ["c1", "n1", "b1", "c2", "n2"]


def test_a_lane_that_becomes_busy_goes_first_and_stays_in_order() -> None:
    line: Lineup[Item] = Lineup()
    line.put(Item("b1", 4), None)
    line.put(Item("b2", 4), None)
    for name, lane in [("n1", 2), ("c1", 0), ("c2", 0), ("n2", 2), ("b3", 4)]:
        line.put(Item(name, lane), None)
    assert taken(line) == ["c1", "c2", "n1", "n2", "b1", "b2", "b3"]


def test_the_one_that_is_open_counts_as_here() -> None:
    line: Lineup[Item] = Lineup()
    is_open = Item("n0", 2, monotonic())
    assert not line.put(Item("n1", 2), is_open)
    assert not line.put(Item("l1", 3), is_open)
    assert line.put(Item("c1", 0), is_open)
    line.put_back(is_open)
    assert taken(line) == ["c1", "n0", "n1", "l1"]


def test_what_has_waited_long_is_overtaken_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(lineup, "monotonic", lambda: now)
    line: Lineup[Item] = Lineup()
    line.put(Item("b1", 4), None)
    now = 131.0
    line.put(Item("b2", 4), None)
    line.put(Item("c1", 0), None)
    assert taken(line) == ["b1", "c1", "b2"]


def test_one_that_is_open_and_as_urgent_is_not_interrupted_and_holds_nothing_up() -> None:
    line: Lineup[Item] = Lineup()
    is_open = Item("c1", 0, monotonic())
    for number in range(3):
        line.put(Item(f"b{number}", 4), is_open)
    assert not line.put(Item("c2", 0), is_open)
    assert taken(line) == ["c2", "b0", "b1", "b2"]
