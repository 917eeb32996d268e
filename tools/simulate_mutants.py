"""Takes out each place that waits for the disk, brings something to it, or refuses what comes from the past, and looks
for a schedule that notices.

``python tools/simulate_mutants.py`` goes through ``tests/crash/disk_sites.txt`` and through the guards that
``guard_sites`` finds; arguments choose places by a part of their names. For each place schedules are run until one
fails, at most ``--most`` and for at most ``--seconds``; seeds that have noticed others come first.

A place that no schedule notices is printed as missed: nothing that it protects is promised by the simulation's checks,
or its schedules do not get there. Those of which it is known why are in ``tests/crash/unsimulated_sites.txt``, each
with the reason, and are left out. With ``--ledger`` what was found is appended to a file with the commit, and a run
that is started again goes on where it ended.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tools")]

from doubles import wait_sites  # noqa: E402
from doubles.power_loss import PowerLossDisk  # noqa: E402

import disk_sites  # noqa: E402
import guard_sites  # noqa: E402
import simulate  # noqa: E402
from goqueue.simulation import node  # noqa: E402
from goqueue.simulation.plan import make_plan  # noqa: E402
from goqueue.simulation.run import run_plan  # noqa: E402
from goqueue.simulation.virtual_loop import Stuck  # noqa: E402

UNSIMULATED = ROOT / "tests" / "crash" / "unsimulated_sites.txt"
_BETWEEN = "  "
_ONE_SCHEDULE_S = 60.0


@dataclass(frozen=True)
class Found:
    """What came of a place. ``seed``: of the first schedule that noticed; ``None``: none did."""

    site: str
    seed: int | None
    schedules: int
    seconds: float
    problem: str = ""


def unsimulated() -> dict[str, str]:
    """Places of which it is known why no schedule notices that they are missing, with the reasons."""
    lines = [line for line in UNSIMULATED.read_text().splitlines() if line and not line.startswith("#")]
    parts = [line.rpartition(f"{_BETWEEN}# ") for line in lines]
    return {site.rstrip(): reason for site, _, reason in parts}


def why_unsimulated(site: str, known: dict[str, str]) -> str | None:
    """The reason why no schedule notices a place, by its name or by that of the module or folder that it is in."""
    return next((reason for name, reason in known.items() if covers(name, site)), None)


def covers(name: str, site: str) -> bool:
    return site.startswith(name) if name.endswith(("/", ".py")) else site == name


def all_sites() -> list[str]:
    return [*disk_sites.listed(), *guard_sites.in_source()]


def noticed(site: str, seeds: Sequence[int], operations: int = 500, longest_s: float = float("inf")) -> Found:
    """The first of these seeds whose schedule fails without the site, and how."""
    has_double = site in disk_sites.listed() and f"await {guard_sites.WAIT}" not in site
    without = _without_disk_site if has_double else guard_sites.without
    began_s, number = time.process_time(), 0
    for number, seed in enumerate(seeds, 1):
        with without(site), _ended_after(_ONE_SCHEDULE_S):
            ran = run_plan(make_plan(seed, operations))
        took_s = time.process_time() - began_s
        if ran.problem is not None:
            return Found(site, seed, number, took_s, str(ran.problem) or repr(ran.problem))
        if took_s > longest_s:
            break
    return Found(site, None, number, time.process_time() - began_s)


@contextmanager
def _without_disk_site(site: str) -> Iterator[None]:
    class Forgetful(PowerLossDisk):
        def __init__(self) -> None:
            super().__init__()
            self.ignore_sync_from(site)

    before, node.SimulatedDisk = node.SimulatedDisk, Forgetful  # type: ignore[misc]
    try:
        with wait_sites.without(site):
            yield
    finally:
        node.SimulatedDisk = before  # type: ignore[misc]


@contextmanager
def _ended_after(seconds: float) -> Iterator[None]:
    """Without a guard something may go on for ever, and virtual time with it."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise Stuck(f"no end after {seconds} s of the processor")

    before = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", help="of the names of places; all if none is given")
    parser.add_argument("--seed", type=int, default=1, help="the first (1)")
    parser.add_argument("--most", type=int, default=300, help="schedules for each place (300)")
    parser.add_argument("--seconds", type=float, default=300.0, help="of the processor for each place (300)")
    parser.add_argument("--operations", type=int, default=500, help="in each schedule (500)")
    parser.add_argument("--ledger", type=Path, help="append what was found to this file, and skip what it has")
    parser.add_argument("--missed-first", action="store_true", help="begin with what the ledger says was missed before")
    parser.add_argument("--unsimulated", action="store_true", help="run those that are known to be missed, too")
    options = parser.parse_args(arguments)
    known = unsimulated()
    wanted = [
        site
        for site in all_sites()
        if (options.unsimulated or why_unsimulated(site, known) is None)
        and (not options.parts or any(part in site for part in options.parts))
    ]
    earlier = _read(options.ledger)
    commit = simulate.commit()
    before = {found.site: found for of, found in earlier if of == commit}
    if options.missed_first:
        missed = {found.site for _, found in earlier if found.seed is None}
        wanted.sort(key=lambda site: site not in missed)
    sharp = Counter(found.seed for _, found in earlier if found.seed is not None)
    results: list[Found] = []
    for number, site in enumerate(wanted, 1):
        found = before.get(site)
        if found is None:
            seeds = sorted(range(options.seed, options.seed + options.most), key=lambda seed: (-sharp[seed], seed))
            found = noticed(site, seeds, options.operations, options.seconds)
            _append(options.ledger, commit, found)
            sharp.update([found.seed] if found.seed is not None else [])
        results.append(found)
        _say(f"{number:4} of {len(wanted)}  {_summary(found)}")
    return _conclude(results, sum(why_unsimulated(site, known) is not None for site in all_sites()))


def _summary(found: Found) -> str:
    what = "MISSED" if found.seed is None else f"seed {found.seed}"
    return f"{what:>9} {found.schedules:4} schedules {found.seconds:6.0f} s  {found.site}  {found.problem[:80]}"


def _conclude(results: list[Found], known: int) -> int:
    missed = [found for found in results if found.seed is None]
    counts = sorted(found.schedules for found in results if found.seed is not None)
    _say(f"{len(counts)} of {len(results)} places are noticed when they are missing; {known} are known not to be")
    if counts:
        tenth = counts[max(0, len(counts) * 9 // 10 - 1)]
        _say(f"after {counts[len(counts) // 2]} schedules (median), {tenth} (nine of ten), {counts[-1]} (the last)")
    for found in missed:
        _say(f"missed in {found.schedules} schedules: {found.site}")
    return 1 if missed else 0


# The ledger


def _append(ledger: Path | None, commit: str, found: Found) -> None:
    if ledger is not None:
        with ledger.open("a") as file:
            file.write(json.dumps({"commit": commit} | asdict(found)) + "\n")


def _read(ledger: Path | None) -> list[tuple[str, Found]]:
    if ledger is None or not ledger.exists():
        return []
    entries = [json.loads(line) for line in ledger.read_text().splitlines()]
    return [(entry.pop("commit"), Found(**entry)) for entry in entries]


def _say(text: str) -> None:
    sys.stdout.write(text.replace("\n", " ") + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
