"""Simulated schedules: what clients were told holds, one seed gives one history, and a missing wait is noticed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

import simulate
from goqueue.simulation.plan import DISTURBANCES, OPERATIONS, Plan, Step, make_plan
from goqueue.simulation.promises import Broken
from goqueue.simulation.run import DISTURBANCES_BY_KIND, OPERATIONS_BY_KIND, Ran
from goqueue.simulation.shrink import shrunk

SCHEDULES = 500
SEEDS = range(900, 910)
PRINT_DIGESTS = """
import json, sys
from goqueue.simulation.plan import make_plan
from goqueue.simulation.run import run_plan
ballast = [object() for _ in range(int(sys.argv[1]))]
ran = {seed: run_plan(make_plan(seed, 300)) for seed in map(int, sys.argv[2:])}
print(json.dumps({seed: [each.digest, repr(each.problem)] for seed, each in ran.items()}))
"""


@pytest.mark.timeout(900)
def test_what_clients_were_told_holds_in_every_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    """The same seeds each time: ``make simulate`` looks at others."""
    status = simulate.main(["--schedules", str(SCHEDULES), "--seed", "1", "--jobs", "1"])
    assert status == 0, capsys.readouterr().out


def digests(hash_seed: str, ballast: int, seeds: Iterable[int]) -> dict[str, list[str]]:
    """Of a process of its own: names are hashed in another way, and objects lie elsewhere."""
    command = [sys.executable, "-c", PRINT_DIGESTS, str(ballast), *map(str, seeds)]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, list[str]] = json.loads(ran.stdout)
    return found


def test_one_seed_gives_one_history_in_whatever_process_and_after_whatever_others() -> None:
    first = digests("1", 0, SEEDS)
    assert len({digest for digest, _ in first.values()}) == len(SEEDS), "another seed gives another history"
    assert digests("2", 9_973, reversed(SEEDS)) == first


def test_every_kind_of_step_has_an_implementation() -> None:
    assert OPERATIONS.keys() == OPERATIONS_BY_KIND.keys()
    assert DISTURBANCES.keys() == DISTURBANCES_BY_KIND.keys()


def test_a_plan_follows_from_its_seed() -> None:
    assert make_plan(7, 200) == make_plan(7, 200)
    assert make_plan(7, 200) != make_plan(8, 200)
    assert {step.kind for seed in range(20) for step in make_plan(seed, 500).steps} == {*OPERATIONS, *DISTURBANCES}


# Shorter schedules


class NeedsSteps:
    """Stands for ``run_plan``: a plan fails if all of some steps are in it."""

    def __init__(self, *needed: int) -> None:
        self.needed = set(needed)
        self.runs = 0

    def __call__(self, plan: Plan) -> Ran:
        self.runs += 1
        fails = self.needed <= {step.seed for step in plan.steps}
        return Ran(plan, Broken("wrong") if fails else None, [], "", Counter())


def steps(count: int) -> Plan:
    return Plan(1, tuple(Step(1, "publish", 0, seed) for seed in range(count)))


def test_a_schedule_that_fails_is_made_as_short_as_it_can_be() -> None:
    run = NeedsSteps(3, 40, 41)
    short = shrunk(run(steps(100)), run)
    assert [step.seed for step in short.plan.steps] == [3, 40, 41]


def test_a_schedule_that_fails_in_another_way_is_another_problem() -> None:
    def fails_otherwise(plan: Plan) -> Ran:
        problem = Broken("b'm000007' is lost: offset 7") if len(plan.steps) > 1 else Broken("b'm000003' is there twice")
        return Ran(plan, problem, [], "", Counter())

    short = shrunk(Ran(steps(64), Broken("b'm000009' is lost: offset 9"), [], "", Counter()), fails_otherwise)
    assert len(short.plan.steps) == 2


def test_making_a_schedule_shorter_ends() -> None:
    run = NeedsSteps(*range(0, 100, 2))
    short = shrunk(run(steps(100)), run, most_runs=20)
    assert run.runs == 21
    assert isinstance(short.problem, Broken)


# The ledger


def test_a_long_run_goes_on_where_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger, ran = tmp_path / "ledger", list[int]()
    monkeypatch.setattr(simulate, "commit", lambda: "abc")

    def pretended(plan: Plan) -> Ran:
        ran.append(plan.seed)
        return Ran(plan, None, [], "", Counter(operations=len(plan.steps)))

    monkeypatch.setattr(simulate, "run_plan", pretended)
    arguments = ["--operations", "3", "--jobs", "1", "--ledger", str(ledger)]
    assert simulate.main(["--schedules", "30", *arguments]) == 0
    assert simulate.main(["--schedules", "40", "--seed", "21", *arguments]) == 0
    assert ran == list(range(1, 61))
    assert {json.loads(line)["commit"] for line in ledger.read_text().splitlines()} == {"abc"}
    assert "30 schedules" in capsys.readouterr().out
    monkeypatch.setattr(simulate, "commit", lambda: "def")
    simulate.main(["--schedules", "1", *arguments])
    assert ran[-1] == 1, "what another commit has passed says nothing of this one"
