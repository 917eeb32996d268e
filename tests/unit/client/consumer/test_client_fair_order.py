from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from goqueue.client.consumer.fair_order import FairOrder


@dataclass
class Item:
    name: str
    lane: int
    left: int = 1


def taken(line: FairOrder[Item]) -> list[str]:
    found = []
    while line:
        found.append(line.take()[0].name)
    return found


def test_of_one_lane_all_is_taken_in_the_order_in_which_it_came() -> None:
    line: FairOrder[Item] = FairOrder()
    for name in ("a", "b", "c"):
        assert not line.put(Item(name, 2, 500), None)
    assert line.take()[1] is None
    assert taken(line) == ["b", "c"]


def test_what_is_urgent_comes_first_and_interrupts_what_is_open() -> None:
    line: FairOrder[Item] = FairOrder()
    line.put(Item("b0", 4, 900), None)
    line.put(Item("b1", 4, 900), None)
    is_open, most = line.take()
    assert most is None
    assert line.put(Item("c0", 0), is_open)
    line.put_back(is_open)
    assert line.take() == (Item("c0", 0, 0), 100)
    assert line.put(Item("n0", 2), is_open)
    assert not line.put(Item("b2", 4), is_open)
    assert taken(line) == ["n0", "b0", "b1", "b2"]


def test_every_urgent_message_of_a_trickle_comes_at_once() -> None:
    line: FairOrder[Item] = FairOrder()
    line.put(Item("background", 4, 10_000), None)
    is_open, _ = line.take()
    for number in range(200):
        assert line.put(Item(f"c{number}", 0), is_open)
        line.put_back(is_open)
        assert line.take()[0].name == f"c{number}"
        is_open, _ = line.take()
        assert is_open.name == "background"


def test_full_lanes_share_by_weight_whatever_the_parcels() -> None:
    line: FairOrder[Item] = FairOrder()
    for number in range(600):
        for lane in range(5):
            line.put(Item(f"{lane}-{number}", lane, 1 + (number * 7 + lane) % 40), None)
    handed: Counter[int] = Counter()
    while sum(handed.values()) < 10_000:
        before = {item.name: item.left for item in line}
        item, most = line.take()
        assert most is not None
        handed[item.lane] += before[item.name] - item.left
        if item.left:
            line.put_back(item)
    for lane, share in enumerate((50, 25, 15, 7, 3)):
        assert abs(100 * handed[lane] / sum(handed.values()) - share) <= 1
