"""Whether the steps of transactions fit into any order at all: looks for circles among what must have come first.

The steps are appends, commits and reads. One comes before another because its offset in the same place is lower
(``ww``), because a read has seen what a commit made visible (``wr``), because a transaction commits after everything
that it did (``own``), or because one had been answered before the other was asked for (``time``).

Whole transactions are not put in order by their offsets alone: two that are open at once may write to two partitions
in opposite orders, since nothing locks a partition for a transaction. It is the steps that must have an order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import pairwise

from doubles.transaction_history import History, Read, Transaction

Edge = tuple[int, str]


class Steps:
    """A graph: who must have come before whom, and why."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.after: list[list[Edge]] = []
        self._moments: list[tuple[int, int, int]] = []
        """Moment, 0 for the beginning of a step and 1 for its end, and the step."""

    def add(self, name: str, began: int | None = None, ended: int | None = None) -> int:
        self.names.append(name)
        self.after.append([])
        step = len(self.names) - 1
        if began is not None:
            self._moments.append((began, 0, step))
        if ended is not None:
            self._moments.append((ended, 1, step))
        return step

    def put(self, first: int, second: int, why: str) -> None:
        self.after[first].append((second, why))

    def add_time(self) -> None:
        """One chain of moments instead of an edge between any two steps. At the same moment nothing is first."""
        clock: int | None = None
        for _, is_end, step in sorted(self._moments):
            if is_end:
                tick = self.add("")
                self.put(step, tick, "time")
                if clock is not None:
                    self.put(clock, tick, "time")
                clock = tick
            elif clock is not None:
                self.put(clock, step, "time")

    def circles(self) -> Iterator[str]:
        """One short circle out of every knot of steps that all come before each other."""
        for knot in self._knots():
            yield self._shortest(knot)

    def _knots(self) -> Iterator[set[int]]:
        """Strongly connected components of more than one step, after Tarjan, without recursion."""
        index: dict[int, int] = {}
        low: dict[int, int] = {}
        stack: list[int] = []
        on_stack: set[int] = set()
        for root in range(len(self.names)):
            if root in index:
                continue
            index[root] = low[root] = len(index)
            stack.append(root)
            on_stack.add(root)
            work = [(root, iter(self.after[root]))]
            while work:
                step, edges = work[-1]
                for following, _ in edges:
                    if following not in index:
                        index[following] = low[following] = len(index)
                        stack.append(following)
                        on_stack.add(following)
                        work.append((following, iter(self.after[following])))
                        break
                    if following in on_stack:
                        low[step] = min(low[step], index[following])
                else:
                    work.pop()
                    if work:
                        low[work[-1][0]] = min(low[work[-1][0]], low[step])
                    if low[step] == index[step]:
                        knot: set[int] = set()
                        while step not in knot:
                            knot.add(stack.pop())
                        on_stack -= knot
                        if len(knot) > 1:
                            yield knot

    def _shortest(self, knot: set[int]) -> str:
        start = min(step for step in knot if self.names[step])
        came_from: dict[int, tuple[int, str]] = {}
        waiting = deque([start])
        while start not in came_from:
            step = waiting.popleft()
            for following, why in self.after[step]:
                if following in knot and following not in came_from:
                    came_from[following] = (step, why)
                    waiting.append(following)
        told = [self.names[start]]
        step = start
        while True:
            step, why = came_from[step]
            if self.names[step]:
                told.append(f"{self.names[step]} =({why})=>")
            if step == start:
                return " ".join(reversed(told))


def find_circles(history: History, committed: dict[str, Transaction]) -> list[str]:
    """``committed``: the transactions that turned out to be, by each of their values."""
    steps = Steps()
    transactions = list({each.name: each for each in committed.values()}.values())
    commits = {each.name: steps.add(f"commit of {each.name}", each.commit_began, each.ended) for each in transactions}

    def add_read(read: Read) -> int:
        step = steps.add(f"read of {read.place} by {read.reader}", read.began, read.ended)
        for writer in {committed[value].name for value in read.values if value in committed}:
            steps.put(commits[writer], step, "wr")
        return step

    appends: dict[str, int] = {}
    for transaction in transactions:
        commit = commits[transaction.name]
        for append in transaction.appends:
            step = steps.add(f"append of {append.value} to {append.place}", append.began, append.ended)
            appends[append.value] = step
            steps.put(step, commit, "own")
        for read in transaction.reads:
            steps.put(add_read(read), commit, "own")
    for read in history.reads:
        add_read(read)
    for values in history.log.values():
        known = [appends[value] for value in values if value in appends]
        for first, second in pairwise(known):
            steps.put(first, second, "ww")
    steps.add_time()
    return list(steps.circles())
