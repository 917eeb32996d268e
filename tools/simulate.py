"""Runs simulated schedules, as many as one likes: ``make simulate SCHEDULES=20000 SEED=1``.

Each schedule follows from its seed alone. A failure prints its seed, what is wrong, and the shortest schedule found
that still fails. With ``--ledger`` each stretch of seeds that was run is appended to a file, with the commit and what
came of it, so that a long run can be ended and gone on with; totals count over one commit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from goqueue.simulation.plan import make_plan
from goqueue.simulation.run import Ran, run_plan
from goqueue.simulation.shrink import shrunk

STRETCH = 25
_PROGRESS_EVERY_S = 5
_LINES_SHOWN = 40


@dataclass
class Stretch:
    """What came of some seeds, one after the other."""

    first: int
    schedules: int
    counts: Counter[str] = field(default_factory=Counter)
    failed: list[int] = field(default_factory=list)


def run_stretch(first: int, schedules: int, operations: int) -> Stretch:
    stretch = Stretch(first, schedules)
    for seed in range(first, first + schedules):
        ran = run_plan(make_plan(seed, operations))
        stretch.counts += ran.counts
        if ran.problem is not None:
            stretch.failed.append(seed)
    return stretch


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="simulate", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--schedules", type=int, default=500, help="how many (500)")
    parser.add_argument("--seed", type=int, default=1, help="of the first (1)")
    parser.add_argument("--operations", type=int, default=500, help="in each (500)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (one for each core)")
    parser.add_argument("--ledger", type=Path, help="append what was run to this file, and skip what it has")
    parser.add_argument("--replay", type=int, metavar="SEED", help="run one schedule and show its history")
    options = parser.parse_args(arguments)
    if options.replay is not None:
        return _replay(options.replay, options.operations)
    tested = commit()
    done = set() if options.ledger is None else _done(options.ledger, tested, options.operations)
    wanted = range(options.seed, options.seed + options.schedules)
    total, failed, began_s = Counter[str](), list[int](), time.monotonic()
    for stretch in _stretches([seed for seed in wanted if seed not in done], options.operations, options.jobs):
        total += stretch.counts
        total["schedules"] += stretch.schedules
        failed += stretch.failed
        if options.ledger is not None:
            _append(options.ledger, tested, options.operations, stretch)
        _show_progress(total["schedules"] + len(done & set(wanted)), len(wanted), len(failed), began_s)
    _show_summary(total, failed, time.monotonic() - began_s, tested, len(done))
    for seed in sorted(failed)[:3]:
        _show_failure(run_plan(make_plan(seed, options.operations)))
    return 1 if failed else 0


def _stretches(seeds: list[int], operations: int, jobs: int) -> Iterator[Stretch]:
    pieces = list(_pieces(seeds))
    if jobs == 1:
        for piece in pieces:
            yield run_stretch(piece[0], len(piece), operations)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as processes:
        running: set[Future[Stretch]] = set()
        while pieces or running:
            while pieces and len(running) < 2 * jobs:
                piece = pieces.pop(0)
                running.add(processes.submit(run_stretch, piece[0], len(piece), operations))
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for each in ended:
                yield each.result()


def _pieces(seeds: list[int]) -> Iterator[list[int]]:
    """Stretches of seeds that follow one another."""
    piece: list[int] = []
    for seed in seeds:
        if piece and (seed != piece[-1] + 1 or len(piece) == STRETCH):
            yield piece
            piece = []
        piece.append(seed)
    if piece:
        yield piece


def _replay(seed: int, operations: int) -> int:
    ran = run_plan(make_plan(seed, operations))
    _say("\n".join(ran.history))
    _say(f"digest {ran.digest}")
    if ran.problem is not None:
        _show_failure(ran)
    return 0 if ran.problem is None else 1


def _show_failure(ran: Ran) -> None:
    _say(f"\nseed {ran.plan.seed} fails: {ran.problem!r}\nmaking it shorter ...")
    short = shrunk(ran)
    _say(f"it still fails with {len(short.plan.steps)} of its {len(ran.plan.steps)} steps: {short.problem!r}")
    for step in short.plan.steps:
        _say(f"  actor {step.actor}: {step.kind} (after {step.pause_ms} ms, seed {step.seed})")
    _say("the end of its history:")
    for line in short.history[-_LINES_SHOWN:]:
        _say(f"  {line}")
    _say(f"all of it: make simulate REPLAY={ran.plan.seed}")


def _show_progress(done: int, wanted: int, failed: int, began_s: float) -> None:
    took_s = time.monotonic() - began_s
    end = "\n" if done >= wanted or not sys.stderr.isatty() else ""
    sys.stderr.write(f"\r{done:,} of {wanted:,} schedules, {failed} failed, {took_s:,.0f} s{end}")
    sys.stderr.flush()


def _show_summary(total: Counter[str], failed: list[int], took_s: float, commit: str, before: int) -> None:
    _say(f"commit {commit}: {total['schedules']:,} schedules in {took_s:,.0f} s, {len(failed)} failed")
    if before:
        _say(f"{before:,} more were run before, as the ledger says")
    for name, count in sorted(total.items()):
        if name != "schedules":
            _say(f"  {name:24} {count:>12,}")
    if failed:
        _say(f"failed seeds: {sorted(failed)}")


# The ledger


def _append(ledger: Path, commit: str, operations: int, stretch: Stretch) -> None:
    entry = {
        "commit": commit,
        "operations": operations,
        "first_seed": stretch.first,
        "schedules": stretch.schedules,
        "failed": stretch.failed,
    }
    with ledger.open("a") as file:
        file.write(json.dumps(entry) + "\n")


def _done(ledger: Path, commit: str, operations: int) -> set[int]:
    """Seeds that have passed at this commit."""
    done: set[int] = set()
    for line in ledger.read_text().splitlines() if ledger.exists() else ():
        entry = json.loads(line)
        if entry["commit"] == commit and entry["operations"] == operations:
            seeds = range(entry["first_seed"], entry["first_seed"] + entry["schedules"])
            done |= set(seeds) - set(entry["failed"])
    return done


def commit() -> str:
    """The commit that is tested; uncommitted changes make another one of it at each run."""
    folder = Path(__file__).parent
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=folder, capture_output=True, text=True)
    changed = subprocess.run(["git", "status", "--porcelain"], cwd=folder, capture_output=True, text=True)
    suffix = f"+{time.time_ns()}" if changed.stdout.strip() else ""
    return (found.stdout.strip() or "unknown") + suffix


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
