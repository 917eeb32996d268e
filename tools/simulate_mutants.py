"""Takes out each place that waits for the disk or brings something to it, and looks for a schedule that notices.

``python tools/simulate_mutants.py`` goes through ``tests/crash/disk_sites.txt``; arguments choose places by a part of
their names. A place that no schedule notices within the bound is printed: nothing that it protects is promised by the
simulation's checks, or its schedules do not get there.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tools")]

from doubles.power_loss import PowerLossDisk  # noqa: E402
from doubles.wait_sites import without  # noqa: E402

import disk_sites  # noqa: E402
from goqueue.simulation import node  # noqa: E402
from goqueue.simulation.plan import make_plan  # noqa: E402
from goqueue.simulation.run import run_plan  # noqa: E402


def noticed(site: str, first_seed: int, most: int, operations: int) -> tuple[str, int | None, str]:
    """The first seed whose schedule fails without the site, and how."""

    class Forgetful(PowerLossDisk):
        def __init__(self) -> None:
            super().__init__()
            self.ignore_sync_from(site)

    before, node.SimulatedDisk = node.SimulatedDisk, Forgetful  # type: ignore[misc]
    try:
        for seed in range(first_seed, first_seed + most):
            with without(site):
                ran = run_plan(make_plan(seed, operations))
            if ran.problem is not None:
                return site, seed, str(ran.problem)
    finally:
        node.SimulatedDisk = before  # type: ignore[misc]
    return site, None, ""


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", help="of the names of places; all if none is given")
    parser.add_argument("--seed", type=int, default=1, help="the first (1)")
    parser.add_argument("--most", type=int, default=200, help="schedules for each place (200)")
    parser.add_argument("--operations", type=int, default=500, help="in each schedule (500)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    options = parser.parse_args()
    sites = [each for each in disk_sites.listed() if not options.parts or any(part in each for part in options.parts)]
    found = 0
    with ProcessPoolExecutor(options.jobs) as processes:
        running = [processes.submit(noticed, site, options.seed, options.most, options.operations) for site in sites]
        for each in running:
            site, seed, problem = each.result()
            found += seed is not None
            _say(f"{'missed' if seed is None else f'seed {seed}':>10}  {site}  {problem[:100]}")
    _say(f"{found} of {len(sites)} places are noticed when they are missing")
    return 0 if found == len(sites) else 1


if __name__ == "__main__":
    sys.exit(main())
