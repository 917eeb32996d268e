"""``python -m bench.peers``: measure GoQueue beside its peers; tables, charts and data go to ``docs/benchmarks``."""

from __future__ import annotations

import argparse
import datetime
import importlib
import importlib.metadata
import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from bench.peers.machine import machine
from bench.peers.page import write_pages
from bench.peers.results import Results
from bench.peers.system import Missing, System
from bench.peers.table import print_tables
from bench.peers.turns import Turns
from bench.peers.work import Amounts, Durability, Work
from bench.report import note

_SYSTEMS = ("goqueue", "kafka", "nats", "rabbitmq_quorum", "rabbitmq_stream", "redis")
_SIZES = (100, 1_000)
_MOST_BYTES = 1_000_000
_MOST_REPETITIONS = 100
_FOLDER = Path(__file__).resolve().parents[2] / "docs" / "benchmarks"
_QUICK = Amounts(publish_s=0.5, single_s=0.3, queue_messages=5_000, paced_s=0.5, delayed_messages=100)
_TERMINATED = 128 + signal.SIGTERM
_EXAMPLES = f"""\
systems:      {" ".join(_SYSTEMS)}
works:        {", ".join(f"'{work}'" for work in Work)}
durabilities: {", ".join(f"'{durability}'" for durability in Durability)}

examples:
  python -m bench.peers                                        everything; half an hour, then docs/benchmarks is new
  python -m bench.peers --quick                                does it work here? Tables only
  python -m bench.peers --systems goqueue nats --works 'queue round trip' --repetitions 3
  python -m bench.peers --quick --into /tmp/trial              pages and charts of a trial
  python -m bench.peers --draw docs/benchmarks/peers.json      the same figures, tables and pages drawn again
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """0: measured, even if systems are missing (they are named); 1: a system failed on the way."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _end)
    if options.draw:
        results, failed = Results.from_json(json.loads(options.draw.read_text())), False
    else:
        results, failed = _measure(options)
    print_tables(results)
    # Only a whole run replaces the figures that everybody reads.
    whole = options.draw or _parser().parse_args([]) == argparse.Namespace(**{**vars(options), "into": None})
    into = options.into or (_FOLDER if whole else None)
    if into is None:
        note("no pages written: this was not a whole run. Say --into FOLDER to get them")
    else:
        write_pages(results, into)
        note(f"written to {into}")
    return 1 if failed else 0


def _end(_number: int, _frame: object) -> NoReturn:
    """As when it is interrupted: servers and folders go with it, also if it is told twice."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(_TERMINATED)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers",
        description="GoQueue beside its peers, in one run.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--systems", nargs="+", choices=_SYSTEMS, default=list(_SYSTEMS), metavar="SYSTEM")
    parser.add_argument("--works", nargs="+", type=Work, choices=list(Work), default=list(Work), metavar="WORK")
    parser.add_argument("--sizes", nargs="+", type=_size, default=list(_SIZES), metavar="BYTES")
    parser.add_argument("--durabilities", nargs="+", type=Durability, default=list(Durability), metavar="DURABILITY")
    parser.add_argument("--repetitions", type=_repetitions, default=3, metavar="COUNT")
    parser.add_argument("--quick", action="store_true", help="little of everything: to try it, not to believe it")
    parser.add_argument("--into", type=Path, help="where pages, charts and data go; a whole run has docs/benchmarks")
    parser.add_argument("--draw", type=Path, metavar="JSON", help="measure nothing, write the pages of an earlier run")
    return parser


def _size(text: str) -> int:
    """At least what carries the instant that a message is due at."""
    return _number(text, 8, _MOST_BYTES)


def _repetitions(text: str) -> int:
    return _number(text, 1, _MOST_REPETITIONS)


def _number(text: str, least: int, most: int) -> int:
    if not text.isdecimal() or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least:,} to {most:,}")
    return int(text)


def _measure(options: argparse.Namespace) -> tuple[Results, bool]:
    systems, missing = _prepared(options.systems)
    amounts = _QUICK if options.quick else Amounts()
    turns = Turns(systems, frozenset(options.works), options.sizes, amounts)
    # Once, before anything runs that would show in it.
    state = machine() | {"amounts": asdict(amounts)}
    turns.take(options.repetitions, options.durabilities)
    names = {system.key: system.name for system in systems}
    missing |= {names[key]: f"failed on the way: {_brief(why)}" for key, why in turns.failed.items()}
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    # A system that comes second every other time comes in the same place in every table.
    subjects = [turns.subjects[system.key] for system in systems if system.key in turns.subjects]
    return Results(today, state, subjects, turns.pieces, missing), bool(turns.failed)


def _brief(why: str) -> str:
    """What failed and why. All of it was told on the way; the lines between are of this machine only."""
    lines = [line.strip() for line in why.splitlines() if line.strip()]
    return " ".join(dict.fromkeys((lines[0], lines[-1]))) if lines else "nothing was said"


def _prepared(keys: Sequence[str]) -> tuple[list[System], dict[str, str]]:
    """Those that can be had here, and why the others cannot."""
    systems: list[System] = []
    missing: dict[str, str] = {}
    for key in keys:
        system: System = importlib.import_module(f"bench.peers.systems.{key}").SYSTEM
        try:
            _require(system.client)
            system.prepare()
        except Missing as why:
            note(f"MISSING {system.name}: {why}")
            missing[system.name] = str(why)
        else:
            systems.append(system)
    return systems, missing


def _require(package: str) -> None:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise Missing(f"its client {package} is not installed: make bench-peers installs it") from None


if __name__ == "__main__":
    sys.exit(main())
