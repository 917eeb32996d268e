"""A run as plain tables on standard output."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.peers.numerals import NOTHING, counted, significant, with_spread
from bench.peers.results import Results
from bench.peers.summary import (
    CLIENT_US,
    P50,
    P99,
    PEAK_MB,
    RATE,
    RATED,
    SERVER_US,
    WAITED,
    WORST,
    Asked,
    cpu_count,
    left_to_client,
    runs,
)
from bench.peers.work import Durability, Work

Cell = Callable[[Results, str, Asked], str]


def print_tables(results: Results) -> None:
    """Versions and settings first, then rates, waits and cost for each durability and size."""
    _print_subjects(results)
    for durability in results.durabilities:
        for size in results.sizes:
            _print_figures(results, durability, size)
    for name, why in results.missing.items():
        print(f"MISSING: {name}: {why}")


def _print_subjects(results: Results) -> None:
    print(f"Measured on {results.date}, {counted(results.repetitions, 'repetition')}")
    for name, value in results.machine.items():
        print(f"  {name}: {value}")
    for subject in results.subjects:
        print(f"{subject.name} {subject.version}, by {subject.client}")
        for durability, setting in subject.settings.items():
            print(f"  {durability}: {setting}")
        for remark in subject.remarks:
            print(f"  {remark}")


def _print_figures(results: Results, durability: Durability, size: int) -> None:
    works = [work for work in Work if any(_has(results, durability, size, work))]
    if not works:
        return
    print(f"\n=== {durability}, messages of {size:,} bytes ===")
    print("\nMessages/s: median ± half of the range of all repetitions")
    _print_table(results, durability, [work for work in works if work in RATED], size, rate_cell)
    print("\nWaits in ms: p50 / p99 (medians of the repetitions) / max (of all of them)")
    _print_table(results, durability, [work for work in works if work in WAITED], size, waits_cell)
    print("\nCost: server CPU µs a message / client CPU µs a message / peak memory of the server in MB")
    _print_table(results, durability, works, size, cost_cell)
    print(f"\n{sharing(results, durability, size)}")


def _has(results: Results, durability: Durability, size: int, work: Work) -> list[bool]:
    return [bool(results.of(subject.key, durability, work, size)) for subject in results.subjects]


def _print_table(results: Results, durability: Durability, works: Sequence[Work], size: int, cell: Cell) -> None:
    rows = [["", *map(str, works)]]
    rows += [
        [subject.name, *(cell(results, subject.key, Asked(durability, work, size)) for work in works)]
        for subject in results.measured(durability)
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for name, *cells in rows:
        aligned = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        print("   ".join([name.ljust(widths[0]), *aligned]))


def rate_cell(results: Results, system: str, asked: Asked) -> str:
    return with_spread(runs(results, system, asked, RATE))


def waits_cell(results: Results, system: str, asked: Asked) -> str:
    """Of the worst waits the worst is told: a median of them would be a promise."""
    found = [runs(results, system, asked, measure) for measure in (P50, P99, WORST)]
    if not all(found):
        return NOTHING
    half, most, worst = (each for each in found if each)
    return " / ".join(map(significant, (half.median, most.median, max(worst.values))))


def cost_cell(results: Results, system: str, asked: Asked) -> str:
    found = [runs(results, system, asked, measure) for measure in (SERVER_US, CLIENT_US, PEAK_MB)]
    return " / ".join(significant(each.median) if each else NOTHING for each in found) if all(found) else NOTHING


def sharing(results: Results, durability: Durability, size: int) -> str:
    """A sentence about the processors, which server and client share."""
    works = (Work.PUBLISH, Work.BACKLOG, Work.QUEUE)
    shares = []
    for subject in results.measured(durability):
        left = [left_to_client(results, subject.key, Asked(durability, work, size)) for work in works]
        if any(share is not None for share in left):
            cells = " / ".join(NOTHING if share is None else f"{share:.0%}" for share in left)
            shares.append(f"{subject.name} {cells}")
    cpus = f"{cpu_count(results)} processors, shared by the server and its client."
    named = " / ".join(works)
    return f"{cpus} What the server left of them to the client ({named}): {'; '.join(shares)}." if shares else cpus
