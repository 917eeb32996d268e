"""Makes a plan that fails shorter, as long as it fails."""

from __future__ import annotations

import re
from collections.abc import Callable

from goqueue.simulation.plan import Plan
from goqueue.simulation.run import Ran, run_plan

_MOST_RUNS = 300
_OF_WHAT = re.compile(r"b?'[^']*'|\S*\d\S*|[(\[{].*", re.DOTALL)
_TOLD_APART = 60


def shrunk(failed: Ran, run: Callable[[Plan], Ran] = run_plan, most_runs: int = _MOST_RUNS) -> Ran:
    """A shorter plan that fails with the same kind of problem: ever smaller pieces are left out in turn."""
    kind = _kind(failed.problem)
    shortest, runs = failed, 0
    piece = len(failed.plan.steps) // 2
    while piece >= 1:
        first = 0
        while first < len(shortest.plan.steps):
            if runs == most_runs:
                return shortest
            runs += 1
            ran = run(shortest.plan.without(range(first, first + piece)))
            if _kind(ran.problem) == kind:
                shortest = ran
            else:
                first += piece
        piece //= 2
    return shortest


def _kind(problem: BaseException | None) -> tuple[type, str]:
    """What a problem says, without what it says it of."""
    return type(problem), _OF_WHAT.sub("", str(problem))[:_TOLD_APART]
